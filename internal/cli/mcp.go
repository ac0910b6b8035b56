package cli

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/web"
)

func newMCP(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Let agents look up past sessions over MCP",
		Long: `Serve the Model Context Protocol on standard input and output, so that an agent can look
up past sessions: list, search and read them, see what one is doing, compare two, and count.
Nothing can be changed.

The tools are list_sessions, search_sessions, read_session, read_part, session_status,
session_stats and diff_sessions. A result has at most 40 KB and says how to get the rest.`,
		Example: `  claude mcp add agenttrace -- agenttrace mcp
  agenttrace mcp --remote https://collector.example:4320`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := openSessions(cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			return web.NewMCP(r, version, time.Local).Run(cmd.Context(), &mcp.StdioTransport{})
		},
	}
}
