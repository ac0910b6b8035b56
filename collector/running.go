package collector

import (
	"cmp"
	"context"
	_ "embed" // of the help
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/agenttrace/agenttrace/session/store/stores"
)

// Running is a collector within this program.
type Running struct {
	collector *otelcol.Collector
	options   Options
	done      chan struct{} // closed when the collector has stopped
	err       error         // valid after done
}

// portAttempts is how often Start picks other ports when someone took those it had found free.
const portAttempts = 10

// Start runs a collector within this program and returns when it accepts telemetry. Endpoints that o leaves empty are
// free ports of 127.0.0.1; the environment variables of the endpoints do not count. Signals are left to the program.
//
// ctx bounds the start only. The caller must call Shutdown.
func Start(ctx context.Context, o Options) (*Running, error) {
	for attempt := 1; ; attempt++ {
		picked := o
		if len(o.Config) == 0 {
			for _, endpoint := range []*string{&picked.GRPCEndpoint, &picked.HTTPEndpoint, &picked.ViewEndpoint} {
				if err := orFree(endpoint); err != nil {
					return nil, err
				}
			}
		}
		r, err := picked.run(context.WithoutCancel(ctx), true)
		if err == nil {
			var over bool
			if err, over = r.wait(ctx); over {
				r, err = nil, fmt.Errorf("start collector: %w", cmp.Or(err, errors.New("it stopped at once")))
			}
		}
		free := len(o.Config) == 0 && (o.GRPCEndpoint == "" || o.HTTPEndpoint == "" || o.ViewEndpoint == "")
		if err != nil && free && attempt < portAttempts && errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		return r, err
	}
}

// run starts a collector, which runs until a context ends: it would notice a signal only when all components have
// started, which wait for their databases. One that is embedded leaves the logger of gRPC to the program.
func (o *Options) run(until context.Context, embedded bool) (*Running, error) {
	uris, err := o.resolve()
	if err == nil {
		err = o.prepare()
	}
	if err != nil {
		return nil, err
	}
	set := Settings(o.Version, uris)
	set.DisableGracefulShutdown, set.SkipSettingGRPCLogger = true, embedded
	c, err := otelcol.NewCollector(set)
	if err != nil {
		return nil, fmt.Errorf("set up collector: %w", err)
	}
	r := &Running{collector: c, options: *o, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = o.readable(c.Run(until))
	}()
	return r, nil
}

// wait returns when the collector accepts telemetry, or when it is over, which it is soon after ctx ends. The
// collector's state can only be polled.
func (r *Running) wait(ctx context.Context) (err error, over bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for r.collector.GetState() != otelcol.StateRunning {
		select {
		case <-r.done:
			return r.err, true
		case <-ctx.Done():
			r.collector.Shutdown()
			<-r.done
			return errors.Join(ctx.Err(), r.err), true
		case <-tick.C:
		}
	}
	return nil, false
}

// Endpoint returns the "host:port" of OTLP over gRPC, empty with Options.Config.
func (r *Running) Endpoint() string { return r.options.GRPCEndpoint }

// HTTPEndpoint returns the "host:port" of OTLP over HTTP, empty with Options.Config.
func (r *Running) HTTPEndpoint() string { return r.options.HTTPEndpoint }

// ViewEndpoint returns the "host:port" where sessions are served to readers, empty with Options.Config.
func (r *Running) ViewEndpoint() string { return r.options.ViewEndpoint }

// Store returns the path of the session store, empty with Options.Config.
func (r *Running) Store() string { return r.options.Store }

// Shutdown stops accepting telemetry, stores what was accepted, and returns when the store is closed, or when ctx ends;
// then the collector goes on stopping. Calls after the first wait for the same end.
func (r *Running) Shutdown(ctx context.Context) error {
	go r.collector.Shutdown()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("shut down collector: %w", ctx.Err())
	}
}

// orFree sets an endpoint that is empty to one of 127.0.0.1 that is free.
func orFree(endpoint *string) error {
	if *endpoint != "" {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	*endpoint = l.Addr().String()
	return l.Close()
}

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
		return o.readable(fmt.Errorf("invalid configuration: %w", err))
	}
	return nil
}

// wordings shorten the collector library's errors for a configuration to the place of a mistake and what is wrong.
var wordings = [][2]string{
	{`^invalid configuration: |failed to get config: |cannot \w+ the configuration: `, ""},
	{`decoding failed due to the following error\(s\):\s*|'' |'\w+\.\w*[A-Z]\w*' |` +
		`retrieved value \(type=string\) cannot be used as a Conf: assuming string type since contents are `, ""},
	{`'(\w+)' error reading configuration for "([^"]*)"`, "$1::$2"},
	{`'([\w.]+)' `, "$1: "}, {`has invalid keys:`, "has no key"}, {`\s*\n\s*`, ", "},
}

// readable is an error of the collector library; that for a configuration names the files and the place of a mistake.
func (o *Options) readable(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if !strings.HasPrefix(text, "invalid configuration: ") && !strings.HasPrefix(text, "failed to get config: ") {
		return err
	}
	for _, w := range wordings {
		text = regexp.MustCompile(w[0]).ReplaceAllString(text, w[1])
	}
	return fmt.Errorf("invalid configuration %s: %s", cmp.Or(strings.Join(o.Config, ", "), "of the environment"), text)
}
