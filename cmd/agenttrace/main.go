// Command agenttrace records what agents do and shows it: a collector for their
// spans, and tools for the sessions in them.
package main

import (
	"os"
	_ "time/tzdata" // the image has no time zones, and Windows none that Go reads

	"github.com/agenttrace/agenttrace/internal/cli"
)

// version is set by the linker in releases.
var version string

func main() {
	os.Exit(cli.Main(cli.Version(version), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
