// Command agenttrace records and reads the sessions of agents.
package main

import (
	"os"

	"github.com/agenttrace/agenttrace/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
