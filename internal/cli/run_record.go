package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// newRecord is the process that records a run. Its standard input states what to record and, line by line, how far the
// run is; its standard output has the answer.
func newRecord() *cobra.Command {
	record := &cobra.Command{Use: "record", Hidden: true, Args: cobra.NoArgs}
	addFlags(record.Flags(), "(prices)", nil)
	record.RunE = func(cmd *cobra.Command, _ []string) error {
		lines := json.NewDecoder(bufio.NewReader(cmd.InOrStdin()))
		var run runRecord
		if err := lines.Decode(&run); err != nil {
			return fmt.Errorf("read what to record: %w", err)
		}
		cmd.SetContext(context.WithoutCancel(cmd.Context())) // it ends when the agent does
		r := &recording{cmd: cmd, runRecord: run}
		var listeners [2]net.Listener
		for i := range listeners {
			var err error
			if listeners[i], err = net.FileListener(os.NewFile(uintptr(firstFile+i), "listener")); err != nil {
				return fmt.Errorf("take over the listener: %w", err)
			}
		}
		r.listener = listeners[1]
		if err := r.start(listeners[0], os.NewFile(firstFile+2, "copies")); err != nil {
			return err
		}
		r.wait(lines)
		answer := r.finish()
		return json.NewEncoder(cmd.OutOrStdout()).Encode(answer)
	}
	return record
}

// firstFile is the first that a process gets besides its standard input, output and error.
const firstFile = 3

// recording is the recorder of a run.
type recording struct {
	runRecord
	cmd *cobra.Command

	listener net.Listener // of the requests to models, which are passed on here if the other process is killed
	servers  servers
	// telemetry is stored as it comes. calls has what the proxy saw: in the same store or, of a client that keeps
	// sessions of its own, in one of the run, which is compared with those at the end.
	telemetry, calls *recorder.Recorder
	observer         *callObserver

	// endWatch has the rules evaluated once more, and returns when what they found is delivered.
	endWatch func() error
	found    []string // by rules

	mu       sync.Mutex
	problems []string
}

// unlessWaiting is err, nil if it only reports what waits: that is stored later, or reported at the end.
func unlessWaiting(err error) error {
	if waits, ok := errors.AsType[*recorder.NotStoredError](err); ok && waits.Lost+waits.Refused == 0 {
		return nil
	}
	return err
}

// shareStore has a recorder store in the user's store, and keep in a file what it cannot store.
func shareStore(cmd *cobra.Command) (*recorder.Recorder, error) {
	dir, err := stateDirectory()
	if err != nil {
		dir = os.TempDir()
	}
	return recorder.Share(opener(cmd), recorder.Options{Spill: filepath.Join(dir, "not-stored-"+newRunID()+".otlp")})
}

// problem notes what is reported to the user at the end, each once.
func (r *recording) problem(err error) {
	if err = unlessWaiting(err); err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 10
	for text := range strings.SplitSeq(err.Error(), "\n") { // of joined errors each
		if len(r.problems) < most && !slices.Contains(r.problems, text) {
			r.problems = append(r.problems, text)
		}
	}
}

// What the proxy saw is stored when a request is on its way, at most as often as this, and else after a while.
const (
	often = 100 * time.Millisecond
	sent  = time.Second
)

// start receives telemetry, and copies of what passes to models.
func (r *recording) start(telemetry net.Listener, copies io.Reader) (err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(r.problem))
	collectGarbageLess(400)
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
	r.observer = observeCalls(r.calls, modelhttp.Options{Agent: r.Agent, OnlyNumbered: r.Client != "",
		Session: agenttrace.SessionOptions{WorkspaceRoot: r.Working}}, attribute.String("agenttrace.run.id", r.ID))
	r.observer.follow(copies)
	r.servers.serve(telemetry, r.telemetry)
	if r.Watch != "" {
		r.problem(r.watch())
	}
	return nil
}

// callObserver records the calls of models in what passes.
type callObserver struct {
	*recorder.Calls
	model   *modelhttp.Transport
	traces  *sdktrace.TracerProvider
	logs    *sdklog.LoggerProvider
	reading chan error // gets a value when all is read
	flushed time.Time
}

// observeCalls records in a store.
func observeCalls(to *recorder.Recorder, o modelhttp.Options, about ...attribute.KeyValue) *callObserver {
	c := &callObserver{Calls: new(recorder.Calls), reading: make(chan error, 1)}
	c.traces, c.logs = providers(to.SpanExporter(), to.LogExporter(), sent,
		append(about, attribute.String("service.name", o.Agent))...)
	c.reading <- nil
	o.Now, o.Decoders = c.Now, decoders
	c.model = modelhttp.New(
		agenttrace.New(agenttrace.Options{TracerProvider: c.traces, LoggerProvider: c.logs, Now: c.Now}), o)
	c.Begin = func(req *http.Request) (*http.Request, func(*http.Response, error)) {
		out, received := c.model.Begin(req)
		c.flush()
		return out, received
	}
	return c
}

// decoders are those of the encodings that clients accept besides those that the standard library has.
var decoders = map[string]modelhttp.Decoder{
	"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // RFC 9659
	},
}

// providers returns those of a program, which send what they get at an interval.
func providers(spans sdktrace.SpanExporter, logs sdklog.Exporter, interval time.Duration,
	about ...attribute.KeyValue) (*sdktrace.TracerProvider, *sdklog.LoggerProvider) {
	program := resource.NewSchemaless(about...)
	return sdktrace.NewTracerProvider(sdktrace.WithResource(program), sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithBatcher(spans, sdktrace.WithBatchTimeout(interval))),
		sdklog.NewLoggerProvider(sdklog.WithResource(program),
			sdklog.WithProcessor(sdklog.NewBatchProcessor(logs, sdklog.WithExportInterval(interval))))
}

// flush stores what is recorded, some times a second at most. It is called when a request is on its way to a model,
// which takes its time: on a machine of few processors, storing would delay what passes at other times.
func (c *callObserver) flush() {
	if time.Since(c.flushed) < often {
		return
	}
	c.flushed = time.Now()
	go func() {
		ctx := context.Background()
		for _, err := range []error{c.traces.ForceFlush(ctx), c.logs.ForceFlush(ctx)} {
			if err != nil {
				otel.Handle(err) // as the timer does
			}
		}
	}()
}

// follow records copies, after those that it was given before.
func (c *callObserver) follow(copies io.Reader) {
	before, read := c.reading, make(chan error, 1)
	c.reading = read
	go func() { read <- errors.Join(<-before, c.Read(copies)) }()
}

// tee returns a transport that sends by base, of which what passes is recorded until it is closed.
func (c *callObserver) tee(base http.RoundTripper) (*recorder.Tee, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("record requests: %w", err)
	}
	c.follow(from)
	return recorder.NewTee(base, to), nil
}

// end returns when all copies are read, which must have ended, and stored.
func (c *callObserver) end(ctx context.Context) error {
	return errors.Join(<-c.reading, c.model.Close(), c.traces.Shutdown(ctx), c.logs.Shutdown(ctx))
}

// wait returns when the agent has ended. If the process that started it is killed, it waits for the agent itself, and
// passes its requests on.
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
			tee, err := r.observer.tee(recorder.NewTransport())
			if r.problem(err); err == nil {
				r.servers.pass(r.listener, r.Servers, tee)
				defer tee.Close()
			}
			for isAlive(agent) {
				time.Sleep(100 * time.Millisecond)
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
	r.servers.close()
	r.problem(r.observer.end(ctx))
	err := r.telemetry.Close(ctx)
	r.problem(err)
	var undelivered error
	if r.endWatch != nil {
		undelivered = r.endWatch()
		r.problem(undelivered)
	}
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
	if err == nil && undelivered == nil {
		_ = os.RemoveAll(r.Directory)
	}
	return ran{Sessions: ids, Problems: r.problems, Found: r.found}
}

// deliveryLimit is how long what rules found may be delivered when the agent has ended.
const deliveryLimit = 5 * time.Second

// watch evaluates rules on the sessions of the run: of a client that keeps sessions of its own on what the proxy sees,
// which is there first and has all that passes.
func (r *recording) watch() error {
	rules, err := gate.ReadRules(r.Watch)
	if err != nil {
		return err
	}
	shared, _, err := follow(r.cmd)
	if err != nil {
		return err
	}
	w := gate.Watcher{Rules: rules, Store: shared, State: filepath.Join(r.Directory, "watch"), Ending: deliveryLimit,
		Of:      func(id string) bool { return slices.Contains(r.telemetry.Sessions(), id) },
		Problem: r.problem, Found: func(rule *gate.Rule, f gate.Fact) {
			text := fmt.Sprintf("rule %q in session %s: %s", rule.Name, f.SessionID, f.Detail)
			if rule.Does(gate.ActionStop) {
				_ = json.NewEncoder(r.cmd.OutOrStdout()).Encode(ran{Stop: text})
			} else if rule.Does(gate.ActionLog) {
				r.found = append(r.found, text)
			}
		}}
	if r.calls != r.telemetry && len(r.Servers) > 0 {
		w.Store, w.Of = stores.Follow(filepath.Join(r.Directory, "calls.db")), nil
		w.Spent = func(ctx context.Context, q store.StatsQuery) (int64, float64, error) {
			return r.spentElsewhere(ctx, shared, q)
		}
	}
	p, err := readPrices(r.cmd)
	if err != nil {
		return err
	}
	w.Price = p.Price
	ctx, end := context.WithCancel(r.cmd.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	r.endWatch = func() error {
		end()
		err := errors.Join(<-ended, w.Store.Close())
		if w.Store != shared {
			err = errors.Join(err, shared.Close())
		}
		return err
	}
	return nil
}

// spentElsewhere counts what the sessions of a store took, without those that the run's telemetry reports: the proxy
// sees these, too.
func (r *recording) spentElsewhere(ctx context.Context, shared store.Follower, q store.StatsQuery) (
	tokens int64, costUSD float64, err error) {
	s, _, err := shared.Poll(ctx)
	if err != nil || s == nil {
		return 0, 0, err
	}
	own := q
	own.Sessions.IDs = append([]string{}, r.telemetry.Sessions()...)
	for sign, q := range map[int64]store.StatsQuery{1: q, -1: own} {
		stats, err := s.Stats(ctx, q)
		if err != nil {
			return 0, 0, err
		}
		tokens += sign * stats.Total.TotalTokens
		costUSD += float64(sign) * (stats.Total.CostUSD + session.Deref(stats.Total.EstimatedCostUSD))
	}
	return tokens, costUSD, nil
}
