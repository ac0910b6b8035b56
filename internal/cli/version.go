package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases:
// -X github.com/agenttrace/agenttrace/internal/cli.version=v1.2.3
var version string

// buildVersion is the version of the program: the linker's, else the module's,
// else devel.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func (p *program) version() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version, and what it was built from.

With --json it is an object: version, go, os, arch, revision, modified.`,
		Example: `  agenttrace version
  agenttrace version --json | jq -r .version`,
		Args: arguments(cobra.NoArgs, "version takes no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				OS       string `json:"os"`
				Arch     string `json:"arch"`
				Revision string `json:"revision,omitempty"`
				Modified bool   `json:"modified,omitempty"`
			}{Version: buildVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					switch s.Key {
					case "vcs.revision":
						v.Revision = s.Value
					case "vcs.modified":
						v.Modified = s.Value == "true"
					}
				}
			}
			if asJSON {
				return writeJSON(p.rows(), v)
			}
			text := fmt.Sprintf("agenttrace %s (%s, %s/%s", v.Version, v.Go, v.OS, v.Arch)
			if v.Revision != "" {
				text += ", " + v.Revision[:min(12, len(v.Revision))]
				if v.Modified {
					text += " modified"
				}
			}
			_, err := fmt.Fprintln(p.stdout, text+")")
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}
