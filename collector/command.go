package collector

import (
	"cmp"
	"context"
	_ "embed" // of the help
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/agenttrace/agenttrace/session/store/stores"
)

//go:embed help.txt
var help string

// Command returns the command "collect". Its flags may not be shared: each call makes a new one.
func Command(version string) *cobra.Command {
	o := Options{Version: version}
	long, example, _ := strings.Cut(help, "\n\nExamples:\n")
	collect := &cobra.Command{
		Use:   "collect",
		Short: "Receive traces and logs over OTLP and store the sessions in them",
		Long:  long, Example: strings.TrimRight(example, "\n"),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limitMemory()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			r, err := o.run(ctx, false)
			if err != nil {
				return err
			}
			if err, over := r.wait(ctx); over {
				if errors.Is(err, syscall.EADDRINUSE) && len(o.Config) == 0 {
					return fmt.Errorf("%w: another program listens there; "+
						"stop it, or choose other ports with --grpc-endpoint, --http-endpoint and --view-endpoint", err)
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
	for _, s := range o.settings() {
		flags.StringVar(s.value, s.flag, "", s.usage)
	}
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

// Validate reports what would keep a collector with these options from being set up. It opens neither files nor ports.
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
