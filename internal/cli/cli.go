// Package cli is the command agenttrace.
//
// Rules of the interface:
//
//   - stdout has data and nothing else, so that it can be piped; what is said to
//     the user goes to stderr.
//   - An error is one line, "agenttrace: what went wrong", and where there is a
//     remedy a second, "hint: what to do". No usage text is thrown after it.
//   - Messages are in lower case, without a period at the end.
//   - The exit status tells kinds of failure apart: see [ExitFinding] and its
//     siblings.
//   - What comes from a session is never written to a terminal as it is.
//   - Color and width follow the terminal, NO_COLOR, CLICOLOR, CLICOLOR_FORCE,
//     TERM and COLUMNS.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// Main runs the command with the arguments that follow its name, and returns
// the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	p := &program{stdout: stdout, stderr: stderr, now: time.Now, open: openSQLite}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return p.report(ctx, root.ExecuteContext(ctx))
}

// program is one invocation.
type program struct {
	stdout, stderr io.Writer
	now            func() time.Time
	// open opens a store for reading.
	open func(ctx context.Context, path string) (store.Reader, error)

	// storePath and color are persistent flags.
	storePath string
	color     string
}

func openSQLite(ctx context.Context, path string) (store.Reader, error) {
	return sqlite.OpenReader(ctx, path)
}

// defaultStore is the path of the store where no flag names one.
func defaultStore() (string, error) {
	if path := os.Getenv(collector.EnvStore); path != "" {
		return path, nil
	}
	return collector.DefaultStore()
}

// path is that of the store to work with.
func (p *program) path() (string, error) {
	if p.storePath != "" {
		return p.storePath, nil
	}
	return defaultStore()
}

// reader opens the store to work with. The caller closes it.
func (p *program) reader(ctx context.Context) (store.Reader, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	r, err := p.open(ctx, path)
	if err != nil {
		return nil, storeError(err)
	}
	return r, nil
}

// with opens the store for the time of fn.
func (p *program) with(ctx context.Context, fn func(store.Reader) error) error {
	r, err := p.reader(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(r)
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "agenttrace",
		Short: "Record and read what agents do",
		Long: `agenttrace records the runs of agents: each is a trace in Jaeger or Tempo and, from
the same OpenTelemetry spans, a session in a SQLite file. The file is what these
commands read.

A session is named by its id, the head of its id, a trace id, or "last".`,
		Example: `  agenttrace demo                     run an example agent and look at its session
  agenttrace collect                  receive OTLP and store sessions
  agenttrace ls                       list sessions
  agenttrace show last                read the latest one
  agenttrace export last | jq .       get its rows as JSON lines`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := "agenttrace --help lists the commands"
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				hint = "did you mean agenttrace " + like[0] + "?"
			}
			return usageError("there is no command "+quote(args[0]), hint)
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch p.color {
			case "auto", "always", "never":
				return nil
			}
			return usageError("--color is "+quote(p.color), "use auto, always or never")
		},
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(err.Error(), cmd.CommandPath()+" --help lists the flags")
	})
	root.PersistentFlags().StringVar(&p.storePath, "store", "",
		"`path` of the session store (default $AGENTTRACE_STORE or ${XDG_STATE_HOME:-~/.local/state}/agenttrace/sessions.db)")
	root.PersistentFlags().StringVar(&p.color, "color", "auto", "`when` to use color: auto, always or never")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))

	root.AddGroup(&cobra.Group{ID: "read", Title: "Read sessions:"}, &cobra.Group{ID: "write", Title: "Record sessions:"})
	root.SetHelpCommandGroupID("")
	for _, c := range []*cobra.Command{p.ls(), p.show(), p.export(), p.check()} {
		c.GroupID = "read"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{p.collect(), p.demo()} {
		c.GroupID = "write"
		root.AddCommand(c)
	}
	root.AddCommand(p.version(), exitCodesTopic(), environmentTopic())
	return root
}

// collect is the collector's own command.
func (p *program) collect() *cobra.Command {
	c := collector.Command(buildVersion())
	for _, c := range append([]*cobra.Command{c}, c.Commands()...) {
		c.Args = arguments(c.Args, c.UseLine()+" takes no arguments")
	}
	return c
}

func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "The environment variables that agenttrace heeds",
		Long: `The environment variables that agenttrace heeds. Flags take precedence.

  AGENTTRACE_STORE           path of the session store
  AGENTTRACE_GRPC_ENDPOINT   where "collect" accepts OTLP over gRPC
  AGENTTRACE_HTTP_ENDPOINT   where "collect" accepts OTLP over HTTP
  AGENTTRACE_OTLP_ENDPOINT   where "collect" and "demo" send traces besides
  XDG_STATE_HOME             the store is in agenttrace/sessions.db below it
  COLUMNS                    width of what is printed
  NO_COLOR                   if set, no color
  CLICOLOR_FORCE             if set and not 0, color also into a pipe
  CLICOLOR                   if 0, no color
  TZ                         time zone of what is printed`,
	}
}
