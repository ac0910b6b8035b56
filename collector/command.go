package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/agenttrace/agenttrace/extension/sessionview"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// Command returns the command "collect". Its flags may not be shared: each call
// makes a new one.
func Command(version string) *cobra.Command {
	o := Options{Version: version}
	collect := &cobra.Command{
		Use:   "collect",
		Short: "Receive traces and logs over OTLP and store the sessions in them",
		Long: `Receive traces and logs over OTLP and store the sessions in them.

Without --config, OTLP is accepted on localhost:4317 (gRPC) and localhost:4318
(HTTP), and an acknowledgement means that the session store has committed. The
environment variables AGENTTRACE_STORE, AGENTTRACE_GRPC_ENDPOINT,
AGENTTRACE_HTTP_ENDPOINT, AGENTTRACE_VIEW_ENDPOINT, AGENTTRACE_OTLP_ENDPOINT and
AGENTTRACE_KEEP_OTLP are the defaults of the flags. AGENTTRACE_LOG_LEVEL (warn) and AGENTTRACE_MEMORY_MIB (512)
have no flag.

With --keep-otlp, all telemetry is also written to a directory, compressed and without
secrets, in files of 64 MiB of which the newest 200 are kept. A later version that
recognizes more of a client can rebuild its sessions:

  agenttrace import DIR`,
		Example: `  agenttrace collect
  agenttrace collect --store sessions.db --otlp-endpoint localhost:14317
  agenttrace collect --keep-otlp ~/.local/state/agenttrace/otlp
  agenttrace collect --config my.yaml
  agenttrace collect validate --config my.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limitMemory()
			r, err := o.run(cmd.Context(), false)
			if err != nil {
				return err
			}
			if err, over := r.wait(cmd.Context()); over {
				if errors.Is(err, syscall.EADDRINUSE) && len(o.Config) == 0 {
					return fmt.Errorf("%w: another program listens there; "+
						"stop it, or choose other ports with --grpc-endpoint and --http-endpoint", err)
				}
				return err
			}
			if len(o.Config) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "accepting OTLP on %s (gRPC) and %s (HTTP), storing sessions in %s\n",
					o.GRPCEndpoint, o.HTTPEndpoint, stores.Name(o.Store))
				if o.OTLPEndpoint != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "sending traces to %s too\n", o.OTLPEndpoint)
				}
				if o.KeepOTLP != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "keeping all telemetry in %s\n", o.KeepOTLP)
				}
			}
			<-r.done
			return r.err
		},
	}
	flags := collect.PersistentFlags()
	flags.StringArrayVar(&o.Config, "config", nil,
		"`file` or URI of a collector configuration to run instead of the built-in one; several are merged in order")
	flags.StringVar(&o.Store, "store", "",
		"`path` of the session store (default ${XDG_STATE_HOME:-~/.local/state}/agenttrace/sessions.db)")
	flags.StringVar(&o.GRPCEndpoint, "grpc-endpoint", "",
		"loopback `host:port` to accept OTLP over gRPC on (default "+defaultGRPC+")")
	flags.StringVar(&o.HTTPEndpoint, "http-endpoint", "",
		"loopback `host:port` to accept OTLP over HTTP on (default "+defaultHTTP+")")
	flags.StringVar(&o.ViewEndpoint, "view-endpoint", "",
		"loopback `host:port` to serve sessions to readers on (default "+sessionview.DefaultEndpoint+")")
	flags.StringVar(&o.OTLPEndpoint, "otlp-endpoint", "",
		"`host:port` of Jaeger, Tempo or another OTLP server over gRPC to send traces to as well; "+
			"https://host:port for TLS")
	flags.StringVar(&o.KeepOTLP, "keep-otlp", "",
		"`directory` to keep all telemetry in, without secrets, "+
			"so that import can rebuild the sessions after an upgrade")
	collect.AddCommand(&cobra.Command{
		Use:           "validate",
		Short:         "Check the configuration without running it",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Validate(cmd.Context(), o)
		},
	})
	for _, sub := range otelcol.NewCommand(Settings(version, nil)).Commands() {
		if sub.Name() == "components" {
			sub.Short = "List what a configuration may be made of"
			collect.AddCommand(sub)
		}
	}
	return collect
}

// limitMemory has the garbage collector work harder before the memory that the
// memory limiter of the embedded configuration allows is exceeded, unless GOMEMLIMIT
// sets another limit: it would let the heap grow to twice of what is in use.
func limitMemory() {
	mib, err := strconv.ParseInt(cmp.Or(os.Getenv(envMemory), defaultMemory), 10, 64)
	if err == nil && mib > 0 && mib < 1<<40 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(mib << 20)
	}
}

// Validate reports what would keep a collector with these options from being set
// up. It opens neither files nor ports.
func Validate(ctx context.Context, o Options) error {
	uris, err := o.resolve()
	if err != nil {
		return err
	}
	c, err := otelcol.NewCollector(Settings(o.Version, uris))
	if err != nil {
		return fmt.Errorf("set up collector: %w", err)
	}
	if err := c.DryRun(ctx); err != nil {
		return fmt.Errorf("invalid configuration: %w", err)
	}
	return nil
}
