package cli

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/web"
)

func newMCP(version string) *cobra.Command {
	return described("mcp", nil, &cobra.Command{
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			return web.NewMCP(r, version, time.Local).Run(cmd.Context(), &mcp.StdioTransport{})
		},
	})
}
