package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

func newDemo() *cobra.Command {
	var x struct{ OTLPEndpoint string }
	return described("demo", &x, noArguments, func(cmd *cobra.Command, _ []string) error {
		path, err := ownStore(cmd)
		if err != nil {
			return err
		}
		if x.OTLPEndpoint != "" {
			if err := answers(cmd.Context(), x.OTLPEndpoint); err != nil {
				return err
			}
		}
		begin := time.Now()
		o := collector.Options{Version: cmd.Root().Version, Store: path, OTLPEndpoint: x.OTLPEndpoint}
		named := cmd.Flags().Changed("store")
		if !named && locked(cmd.Context(), path) {
			named, o.Store = true, filepath.Join(filepath.Dir(path), "demo.db")
			_ = note(cmd, "Another writer holds %s. The demo uses %s.\n", stores.Name(path), o.Store)
		}
		result, err := runDemo(cmd.Context(), o, cmd.ErrOrStderr())
		option := ""
		if named {
			option = " --store " + quote(stores.Name(o.Store))
		}
		if err == nil && !result.TestsPass {
			err = errors.New(`"go test ./..." does not pass at the end`)
		}
		if err != nil && result.SessionID != "" && cmd.Context().Err() == nil {
			return fmt.Errorf("the demo did not succeed: %w; see what it did with %s show %s%s", err, ownName(),
				result.SessionID, option)
		}
		if err != nil {
			return err
		}
		return showDemo(cmd, o.Store, option, result, x.OTLPEndpoint, time.Since(begin))
	})
}

// answers reports whether a server is where the trace shall be sent to: better
// than a link to a trace that never arrived.
func answers(ctx context.Context, endpoint string) error {
	_, address, found := strings.Cut(endpoint, "://")
	if !found {
		address = endpoint
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("send the trace to %s: nothing answers there: %w; start Jaeger or leave --otlp-endpoint out",
			endpoint, err)
	}
	return conn.Close()
}

func locked(ctx context.Context, path string) bool {
	s, err := stores.Open(ctx, path, stores.Options{})
	if err == nil {
		err = s.Close()
	}
	return errors.Is(err, store.ErrLocked) // starting the collector reports other errors
}

// demoInterval is how soon what happens is sent, so that it can be watched: the demo is over within seconds.
const demoInterval = 50 * time.Millisecond

// runDemo runs the agent against a collector and returns when everything that it sent is stored.
func runDemo(ctx context.Context, o collector.Options, progress io.Writer) (result codeagent.Result, err error) {
	c, err := collector.Start(ctx, o)
	if err != nil {
		return result, err
	}
	// Delivery and shutdown go on when the user interrupts: what the agent did until then is worth having.
	late := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, c.Shutdown(late)) }()
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(c.Endpoint()))
	if err != nil {
		return result, fmt.Errorf("connect to the collector: %w", err)
	}
	events, err := otlploggrpc.New(ctx, otlploggrpc.WithInsecure(), otlploggrpc.WithEndpoint(c.Endpoint()))
	if err != nil {
		return result, errors.Join(fmt.Errorf("connect to the collector: %w", err), exporter.Shutdown(late))
	}
	tp, lp := providers(exporter, events, demoInterval, attribute.String("service.name", "codeagent"))
	defer func() { err = errors.Join(err, tp.Shutdown(late), lp.Shutdown(late)) }()
	return codeagent.Run(ctx, codeagent.Config{
		TracerProvider: tp, LoggerProvider: lp, Progress: progress,
		BaseURL: os.Getenv("OPENAI_BASE_URL"), APIKey: os.Getenv("OPENAI_API_KEY"), Model: os.Getenv("OPENAI_MODEL"),
	})
}

// showDemo shows the session, and how to go on from there. option names the store in commands.
func showDemo(cmd *cobra.Command, path, option string, result codeagent.Result, otlp string, took time.Duration) error {
	r, err := stores.OpenReader(cmd.Context(), path)
	if err != nil {
		return err
	}
	defer r.Close()
	doc, err := document.Load(cmd.Context(), r, result.SessionID)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintln(out)
	if err := render.Document(out, doc, terminal(cmd)); err != nil {
		return err
	}
	client := "sqlite3"
	if !stores.IsFile(path) {
		client = "psql"
	}
	_, err = io.WriteString(out, phrases.Text("demo", struct {
		codeagent.Result
		Seconds                                   float64
		Store, Quoted, Client, Self, Option, OTLP string
	}{result, took.Seconds(), stores.Name(path), quote(stores.Name(path)), client, ownName(), option, otlp}))
	return err
}

// ownName is how the user called this program, so that the commands shown can be copied.
func ownName() string {
	path, err := os.Executable()
	if err == nil && strings.Contains(filepath.ToSlash(path), "/go-build") {
		return "go run ./cmd/agenttrace"
	}
	return "agenttrace"
}

// quote makes a path one word for a shell.
func quote(path string) string {
	if strings.Trim(filepath.ToSlash(path),
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
