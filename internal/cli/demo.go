package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/session/inspect"
	"github.com/agenttrace/agenttrace/session/store"
)

// shutdownTime bounds how long the demo waits for what is under way.
const shutdownTime = 10 * time.Second

func (p *program) demo() *cobra.Command {
	var forward string
	var verbose bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run an example agent and look at its session",
		Long: `Run an example agent, and look at its session: a collector is started in this
process, a small coding agent repairs a project (the model's words are from a
script; the tools, the tests and the telemetry are real), its spans go to the
collector over OTLP, and the session that came of them is read from the store
and printed.

With --otlp-endpoint the same spans go to Jaeger or Tempo as well.`,
		Example: `  agenttrace demo
  agenttrace demo --store demo.db
  agenttrace demo --otlp-endpoint localhost:4317`,
		Args: arguments(cobra.NoArgs, "demo takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := p.path()
			if err != nil {
				return err
			}
			if forward == "" {
				forward = os.Getenv(collector.EnvOTLPEndpoint)
			}
			result, err := p.runDemo(cmd.Context(), collector.Options{Version: buildVersion(), Store: path, OTLPEndpoint: forward}, verbose)
			if err != nil {
				return err
			}
			return p.with(cmd.Context(), func(r store.Reader) error {
				tl, err := inspect.Load(cmd.Context(), r, result.SessionID)
				if err != nil {
					return fmt.Errorf("read what was recorded: %w", err)
				}
				o := p.options()
				o.Lines = 4
				if err := tl.Render(p.stdout, o); err != nil {
					return err
				}
				return p.nextSteps(path, forward, &result, tl)
			})
		},
	}
	c.Flags().StringVar(&forward, "otlp-endpoint", "", "`host:port` of Jaeger, Tempo or another OTLP server over gRPC to send the traces to as well")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the agent's conversation while it runs")
	return c
}

// runDemo records a run of the example agent, and returns when it is stored.
func (p *program) runDemo(ctx context.Context, o collector.Options, verbose bool) (result codeagent.Result, err error) {
	say := newProgress(p.stderr)
	defer say.stop()
	say.step("starting a collector")
	running, err := collector.Start(ctx, o)
	if err != nil {
		return result, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		err = errors.Join(err, running.Shutdown(ctx))
	}()

	resource := resource.NewSchemaless(attribute.String("service.name", "codeagent"))
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(running.Endpoint()), otlptracegrpc.WithInsecure())
	if err != nil {
		return result, fmt.Errorf("connect to the collector: %w", err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithBatchTimeout(time.Second)), sdktrace.WithResource(resource))
	events, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(running.Endpoint()), otlploggrpc.WithInsecure())
	if err != nil {
		return result, errors.Join(fmt.Errorf("connect to the collector: %w", err), tp.Shutdown(ctx))
	}
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(events)), sdklog.WithResource(resource))

	say.step("an agent repairs a small project (its model is a script)")
	config := codeagent.Config{TracerProvider: tp, LoggerProvider: lp}
	if verbose {
		say.stop()
		config.Progress = p.stderr
	}
	result, err = codeagent.Run(ctx, config)
	if err != nil {
		err = fmt.Errorf("run the agent: %w", err)
	}

	say.step("storing its session")
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if sendErr := errors.Join(tp.Shutdown(flush), lp.Shutdown(flush)); sendErr != nil {
		err = errors.Join(err, fmt.Errorf("send telemetry to the collector: %w", sendErr))
	}
	return result, err
}

// nextSteps says where the session is and what else can be done with it. Every
// line of it can be pasted into a shell.
func (p *program) nextSteps(path, forward string, result *codeagent.Result, tl *inspect.Timeline) error {
	command := "agenttrace"
	if standard, err := defaultStore(); err != nil || standard != path {
		command += " --store " + shellQuote(path)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	var b strings.Builder
	line := func(comment, text string) { fmt.Fprintf(&b, "\n# %s\n%s\n", comment, text) }
	fmt.Fprintf(&b, "\nThe session is in %s\n", absolute)
	line("read it again, or one side of it", command+" show last\n"+command+" show last --prompt=1")
	line("ask the store itself", fmt.Sprintf(`sqlite3 %s 'select m.role, p.type, p.tool_state from chat_parts p join chat_messages m on m.id = p.message_id where p.session_id = "%s" order by m.created_at, m.id, p."index"'`,
		shellQuote(absolute), result.SessionID))
	line("take it elsewhere", command+" export last --format jsonl | jq -c .")
	if forward != "" {
		for _, id := range result.TraceIDs {
			line("the same run in Jaeger", "http://localhost:16686/trace/"+id)
		}
	} else {
		line("see the same run in Jaeger: trace "+strings.Join(tl.Traces, ", ")+" needs a second endpoint", command+" demo --otlp-endpoint localhost:4317")
	}
	_, err = io.WriteString(p.stdout, b.String())
	return err
}

// shellQuote quotes a path for a POSIX shell where that is needed.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// progress tells what is under way: a line per step, or on a terminal one line
// that turns.
type progress struct {
	w    io.Writer
	turn bool

	mu   sync.Mutex
	text string
	done chan struct{}
	end  chan struct{}
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, turn: isTerminal(w)}
}

func (s *progress) step(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
	if !s.turn {
		fmt.Fprintf(s.w, "%s\n", text)
		return
	}
	if s.done == nil {
		s.done, s.end = make(chan struct{}), make(chan struct{})
		go s.run(s.done, s.end)
	}
}

func (s *progress) run(done <-chan struct{}, end chan<- struct{}) {
	defer close(end)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		s.mu.Lock()
		fmt.Fprintf(s.w, "\r\x1b[K%c %s", []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[i%10], s.text)
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-done:
			fmt.Fprint(s.w, "\r\x1b[K")
			return
		}
	}
}

// stop ends the turning line, and makes further steps plain lines.
func (s *progress) stop() {
	s.mu.Lock()
	done, end := s.done, s.end
	s.done, s.turn = nil, false
	s.mu.Unlock()
	if done != nil {
		close(done)
		<-end
	}
}
