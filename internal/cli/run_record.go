package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/session/recorder"
)

// newRecord is the process that records a run. Its standard input states what to record and, line by line, how far the
// run is; its standard output has the answer.
func newRecord() *cobra.Command {
	record := &cobra.Command{Use: "record", Hidden: true, Args: cobra.NoArgs}
	record.RunE = func(cmd *cobra.Command, _ []string) error {
		lines := json.NewDecoder(bufio.NewReader(cmd.InOrStdin()))
		var run runRecord
		if err := lines.Decode(&run); err != nil {
			return fmt.Errorf("read what to record: %w", err)
		}
		for name, value := range map[string]string{"store": run.Store, "remote": run.Remote} {
			if value != "" {
				_ = cmd.Flags().Set(name, value)
			}
		}
		cmd.SetContext(context.WithoutCancel(cmd.Context())) // it ends when the agent does
		listener, err := net.FileListener(os.NewFile(3, "listener"))
		if err != nil {
			return fmt.Errorf("take over the listener: %w", err)
		}
		r := &recording{cmd: cmd, runRecord: run}
		if err := r.start(listener); err != nil {
			return err
		}
		r.wait(lines)
		answer := r.finish()
		return json.NewEncoder(cmd.OutOrStdout()).Encode(answer)
	}
	return record
}

// recording is the recorder of a run.
type recording struct {
	runRecord
	cmd *cobra.Command

	server *http.Server
	// telemetry is stored as it comes. calls has what the proxy saw: in the same store or, of a client that keeps
	// sessions of its own, in one of the run, to be told apart from those at the end.
	telemetry, calls *recorder.Recorder
	observer         *callObserver

	mu       sync.Mutex
	problems []string
}

// problem notes what the user is told at the end, each once.
func (r *recording) problem(err error) {
	var waits *recorder.NotStoredError
	if err == nil || errors.As(err, &waits) && waits.LostSpans+waits.LostRecords+waits.RefusedRows == 0 {
		return // what waits is stored, or reported at the end
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 10
	if text := err.Error(); len(r.problems) < most && !slices.Contains(r.problems, text) {
		r.problems = append(r.problems, text)
	}
}

// sent is how soon what the proxy saw is stored.
const sent = 100 * time.Millisecond

func (r *recording) start(listener net.Listener) (err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(r.problem))
	r.telemetry, err = recorder.Share(opener(r.cmd),
		recorder.Options{Spill: filepath.Join(r.Directory, "telemetry.otlp")})
	if err != nil {
		return err
	}
	r.calls = r.telemetry
	if r.Client != "" {
		r.calls, err = recorder.Open(r.cmd.Context(), filepath.Join(r.Directory, "calls.db"), recorder.Options{})
		if err != nil {
			r.problem(err)
			r.calls = r.telemetry
		}
	}
	r.observer = observeCalls(r.calls, modelhttp.Options{Agent: r.Agent,
		Session: agenttrace.SessionOptions{WorkspaceRoot: r.Working}}, attribute.String("agenttrace.run.id", r.ID))
	r.server = &http.Server{ErrorLog: silent,
		Handler: serveAgent(recorder.Proxy(upstreams(r.Servers), recorder.RecordSockets(r.observer, r.observer.Middleware())),
			r.telemetry)}
	go func() { _ = r.server.Serve(listener) }()
	return nil
}

// callObserver records the calls of models that pass through its transport.
type callObserver struct {
	*modelhttp.Transport
	base   http.RoundTripper
	traces *sdktrace.TracerProvider
	logs   *sdklog.LoggerProvider
}

// observeCalls records in a store what passes to servers of models.
func observeCalls(to *recorder.Recorder, o modelhttp.Options, about ...attribute.KeyValue) *callObserver {
	program := resource.NewSchemaless(append(about, attribute.String("service.name", o.Agent))...)
	c := &callObserver{
		traces: sdktrace.NewTracerProvider(sdktrace.WithResource(program), sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithBatcher(to.SpanExporter(), sdktrace.WithBatchTimeout(sent))),
		logs: sdklog.NewLoggerProvider(sdklog.WithResource(program),
			sdklog.WithProcessor(sdklog.NewBatchProcessor(to.LogExporter(), sdklog.WithExportInterval(sent)))),
	}
	c.base = recorder.NewTransport()
	o.Base = c.base
	c.Transport = modelhttp.New(agenttrace.New(agenttrace.Options{TracerProvider: c.traces, LoggerProvider: c.logs}), o)
	return c
}

// end ends what is open, and stores the rest.
func (c *callObserver) end(ctx context.Context) error {
	return errors.Join(c.Close(), c.traces.Shutdown(ctx), c.logs.Shutdown(ctx))
}

// wait returns when the agent has ended. If the process that started it is killed, it waits for the agent itself.
func (r *recording) wait(lines *json.Decoder) {
	agent := 0
	for {
		var line struct {
			Agent int
			Ended bool
		}
		err := lines.Decode(&line)
		agent = cmp.Or(line.Agent, agent)
		switch {
		case line.Ended:
			return
		case err != nil:
			for isAlive(agent) {
				time.Sleep(sent)
			}
			return
		}
	}
}

// finishLimit is how long a store may be held by others before what waits for it is given up.
const finishLimit = 20 * time.Second

// finish stores the rest, and makes one session of what several sources report.
func (r *recording) finish() ran {
	ctx, cancel := context.WithTimeout(r.cmd.Context(), finishLimit)
	defer cancel()
	_ = r.server.Close()
	r.problem(r.observer.end(ctx))
	err := r.telemetry.Close(ctx)
	r.problem(err)
	var ids []string
	if err == nil {
		sources := runSources{recording: r}
		ids, err = sources.merge(ctx)
	}
	if r.calls != r.telemetry {
		r.problem(r.calls.Close(ctx))
		if err != nil {
			r.problem(fmt.Errorf("%w; what the proxy saw is in %s, which agenttrace import stores", err, r.Directory))
		}
	}
	if err == nil {
		_ = os.RemoveAll(r.Directory)
	}
	return ran{Sessions: ids, Problems: r.problems}
}
