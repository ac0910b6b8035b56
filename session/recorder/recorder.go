package recorder

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// DefaultMaxPendingBytes is the default limit of what waits in memory.
const DefaultMaxPendingBytes = 64 << 20

// Options configure a [Recorder]. The zero value is ready for use.
type Options struct {
	// Store configures the store, such as its durability.
	Store stores.Options
	// MaxPendingBytes limits what waits in memory while the store is unavailable, by its size in OTLP. Beyond it the
	// oldest deliveries are lost. 0 means DefaultMaxPendingBytes; a negative value means that nothing waits.
	MaxPendingBytes int
	// Spill, if it is set, names a file to which what cannot be stored is appended, by Close what waits then, as the
	// collector's file exporter writes it, without the secrets' redaction. Importing the file stores it.
	Spill string
}

// ErrClosed is returned by exports after [Recorder.Close].
var ErrClosed = errors.New("recorder is closed")

// NotStoredError reports how many of the exported spans and log records are not in the store.
type NotStoredError struct {
	// Lost spans and records, and Refused rows, of which the others of their export are stored, count since the last
	// ForceFlush or Close that reported them; in the error of an export they count that export only.
	Lost, Refused int64
	// Pending spans and records wait in memory and are retried.
	Pending int64
	// Err is the most recent cause.
	Err error
}

func (e *NotStoredError) Error() string {
	text := fmt.Sprintf("record: of spans and log records, %d are lost and %d wait for the store, and %d rows were refused",
		e.Lost, e.Pending, e.Refused)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *NotStoredError) Unwrap() error { return e.Err }

// Recorder is a store that an OpenTelemetry SDK writes to. It is safe for concurrent use,
// and several providers may share it.
type Recorder struct {
	redactor  *redact.Redactor
	maximum   int
	spillPath string
	// open opens a store that others write to as well. Nil means that the store is held until Close.
	open func(context.Context) (store.Service, error)

	mu       sync.Mutex // guards the fields below, and is held while a delivery is stored
	closed   bool
	store    store.Service // nil while another may have it
	ingester *ingest.Ingester
	taken    time.Time   // when the store was opened
	later    *time.Timer // has the store released, or what waits tried again
	sessions map[string]bool
	// pending has the waiting deliveries in order, size their number of bytes.
	pending []delivery
	size    int
	// unreported is what ForceFlush has not reported yet.
	unreported NotStoredError
	// spilled counts what is in the file of Spill, spilledFor is why.
	spilled    int64
	spilledFor error
}

// delivery is the content of one export: traces or logs.
type delivery struct {
	items  int64 // how many spans or log records
	size   int   // in OTLP, set while the delivery waits
	bytes  func() int
	encode func() ([]byte, error)
	store  func(context.Context, *ingest.Ingester) (ingest.Report, error)
}

func tracesOf(td ptrace.Traces) delivery {
	return delivery{items: int64(td.SpanCount()),
		bytes:  func() int { return (&ptrace.ProtoMarshaler{}).TracesSize(td) },
		encode: func() ([]byte, error) { return (&ptrace.ProtoMarshaler{}).MarshalTraces(td) },
		store:  func(ctx context.Context, in *ingest.Ingester) (ingest.Report, error) { return in.Traces(ctx, td) }}
}

func logsOf(ld plog.Logs) delivery {
	return delivery{items: int64(ld.LogRecordCount()),
		bytes:  func() int { return (&plog.ProtoMarshaler{}).LogsSize(ld) },
		encode: func() ([]byte, error) { return (&plog.ProtoMarshaler{}).MarshalLogs(ld) },
		store:  func(ctx context.Context, in *ingest.Ingester) (ingest.Report, error) { return in.Logs(ctx, ld) }}
}

// Open opens or creates the store at path for this process to write.
//
// Its errors are those of [stores.Open]. One that wraps [store.ErrLocked] names
// the process that writes to the store; if that is a collector, send to it.
func Open(ctx context.Context, path string, o Options) (*Recorder, error) {
	r, err := newRecorder(o)
	if err != nil {
		return nil, err
	}
	s, err := stores.Open(ctx, path, o.Store)
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("record sessions: %w, or export to it by OTLP if it is a collector", err)
	}
	if err != nil {
		return nil, fmt.Errorf("record sessions: %w", err)
	}
	r.take(s)
	return r, nil
}

// Share returns a recorder that opens the store when there is something to store, and closes it when nothing was for a
// moment, and each second: others may write to it meanwhile. While they do, deliveries wait in memory.
func Share(open func(context.Context) (store.Service, error), o Options) (*Recorder, error) {
	r, err := newRecorder(o)
	if err == nil {
		r.open = open
	}
	return r, err
}

func newRecorder(o Options) (*Recorder, error) {
	r := &Recorder{spillPath: o.Spill, maximum: cmp.Or(o.MaxPendingBytes, DefaultMaxPendingBytes),
		sessions: make(map[string]bool)}
	var err error
	if r.redactor, err = redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes}); err != nil {
		return nil, fmt.Errorf("record sessions: %w", err)
	}
	return r, nil
}

// take has deliveries stored in a store.
func (r *Recorder) take(s store.Service) {
	r.store, r.ingester = s, ingest.New(s, ingest.Options{Redactor: r.redactor})
	r.taken = time.Now()
}

// How long a shared store is kept open after a delivery, and at most, and how long waiting deliveries wait for it.
const (
	keptOpen    = 100 * time.Millisecond
	maxKeptOpen = time.Second
	triedAgain  = 200 * time.Millisecond
)

// borrow opens a store that is shared, unless it is open. The caller holds mu.
func (r *Recorder) borrow(ctx context.Context) error {
	if r.store != nil {
		return nil
	}
	s, err := r.open(ctx)
	if err == nil {
		r.take(s)
	}
	return err
}

// release closes a store that is shared if nothing uses it, and tries again to store what waits. The caller holds mu.
func (r *Recorder) release() {
	if r.open == nil || r.closed {
		return
	}
	if r.later != nil {
		r.later.Stop()
	}
	after := keptOpen
	switch {
	case len(r.pending) > 0:
		after = triedAgain
	case r.store == nil:
		return
	case time.Since(r.taken) > maxKeptOpen:
		r.closeStore()
		return
	}
	r.later = time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return
		}
		r.retry(context.Background())
		if len(r.pending) == 0 {
			r.closeStore()
		}
		r.release()
	})
}

// closeStore closes a shared store. Its error is one of those that deliveries are reported with.
func (r *Recorder) closeStore() {
	if r.store != nil {
		if err := r.store.Close(); err != nil {
			r.unreported.Err = err
		}
		r.store, r.ingester = nil, nil
	}
}

// Sessions returns the ids of the sessions that something was stored of, in order.
func (r *Recorder) Sessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.sessions))
}

// sessionsOfCalls returns, by the ids of calls of tools, the sessions that have them, of those that changed last.
func (r *Recorder) sessionsOfCalls(ctx context.Context) map[string]string {
	const recent = 5
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.borrow(ctx) != nil {
		return nil
	}
	defer r.release()
	var ids []string
	for row, err := range r.store.Sessions(ctx, store.SessionQuery{Limit: recent, Children: true}) {
		if err == nil {
			ids = append(ids, row.ID)
		}
	}
	found := make(map[string]string)
	for _, id := range slices.Backward(ids) {
		t, err := r.store.Transcript(ctx, id)
		if err != nil {
			continue // what is not found now is looked for again
		}
		for i := range t.Messages {
			for _, p := range t.Messages[i].Parts {
				if p.ToolCallID != nil {
					found[*p.ToolCallID] = id
				}
			}
		}
	}
	return found
}

// Reader returns the store for reading, which must not be one that is shared. The recorder closes it: its Close does
// nothing.
func (r *Recorder) Reader() store.Reader { return reader{r.store} }

// reader is a store that only its recorder closes.
type reader struct{ store.Service }

func (reader) Close() error { return nil }

// ForceFlush stores the waiting deliveries. It returns nil if everything that was exported is in the store, and
// otherwise a [*NotStoredError] with the losses since the last call and what still waits. It does not see what a
// provider has not exported yet: flush the provider first.
func (r *Recorder) ForceFlush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.retry(ctx)
	r.release()
	return r.report()
}

// Close stores the waiting deliveries, closes the store and releases its lock. What still cannot be stored is lost; the
// error counts it as that of ForceFlush does. Shut the providers down first. A store
// that is shared is waited for until ctx ends, which must have an end. Later calls do nothing.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	if r.later != nil {
		r.later.Stop()
	}
	r.retry(ctx)
	for len(r.pending) > 0 && errors.Is(r.unreported.Err, store.ErrLocked) && sleep(ctx, triedAgain) {
		r.retry(ctx)
	}
	for cause := r.unreported.Err; len(r.pending) > 0; {
		r.giveUp(r.first(), cause)
	}
	err := r.report()
	if r.spilled > 0 {
		err = errors.Join(err, fmt.Errorf("%w; %d spans and log records are in %s, which agenttrace import stores",
			r.spilledFor, r.spilled, r.spillPath))
	}
	if r.store == nil {
		return err
	}
	if closeErr := r.store.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close recorder: %w", closeErr))
	}
	return err
}

// spill appends a delivery to the file for what could not be stored.
func (r *Recorder) spill(d delivery) error {
	if r.spillPath == "" {
		return errors.ErrUnsupported
	}
	body, err := d.encode()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.spillPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(otlpfile.Frame(body))
	return errors.Join(err, f.Close())
}

// sleep reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// report returns the unreported losses and what waits, or nil.
func (r *Recorder) report() error {
	e := r.unreported
	r.unreported = NotStoredError{}
	for i := range r.pending {
		e.Pending += r.pending[i].items
	}
	if e.Lost+e.Refused+e.Pending == 0 {
		return nil
	}
	if e.Pending > 0 {
		r.unreported.Err = e.Err // they still wait for the same reason
	}
	return &e
}

// export stores d after the waiting deliveries. The error is about d only.
func (r *Recorder) export(ctx context.Context, d delivery) error {
	if d.items == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	defer r.release()
	r.retry(ctx)
	refusedBefore := r.unreported.Refused
	err := r.deliver(ctx, d)
	if refused := r.unreported.Refused - refusedBefore; err == nil && refused > 0 {
		return &NotStoredError{Refused: refused}
	} else if err == nil {
		return nil
	}
	r.unreported.Err = err
	e := &NotStoredError{Err: err}
	d.size = d.bytes()
	if !r.mayPass(err) || r.maximum < 0 || d.size > r.maximum {
		if r.giveUp(d, err) {
			e.Lost = d.items
		}
		return e
	}
	for r.size+d.size > r.maximum {
		r.giveUp(r.first(), err)
	}
	r.pending = append(r.pending, d)
	r.size += d.size
	e.Pending = d.items
	return e
}

// mayPass reports whether a retry may succeed.
func (r *Recorder) mayPass(err error) bool {
	return r.open != nil && errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// retry stores the waiting deliveries in order, until one fails.
func (r *Recorder) retry(ctx context.Context) {
	for len(r.pending) > 0 {
		err := r.deliver(ctx, r.pending[0])
		if err != nil {
			r.unreported.Err = err
			if r.mayPass(err) {
				return
			}
		}
		d := r.first()
		if err != nil {
			r.giveUp(d, err)
		}
	}
}

// first removes the oldest waiting delivery.
func (r *Recorder) first() delivery {
	d := r.pending[0]
	r.pending[0] = delivery{}
	r.pending = r.pending[1:]
	r.size -= d.size
	return d
}

// giveUp has d, which err keeps from the store, in the file for that, or counts it as lost.
func (r *Recorder) giveUp(d delivery, err error) (lost bool) {
	if r.spill(d) == nil {
		r.spilled += d.items
		r.spilledFor = err
		return false
	}
	r.unreported.Lost += d.items
	r.unreported.Err = err
	return true
}

func (r *Recorder) deliver(ctx context.Context, d delivery) error {
	if err := r.borrow(ctx); err != nil {
		return err
	}
	report, err := d.store(ctx, r.ingester)
	if err != nil {
		return err
	}
	r.unreported.Refused += report.Refused
	for _, id := range report.Sessions {
		r.sessions[id] = true
	}
	return nil
}

// SpanExporter returns an exporter for a tracer provider. Its Shutdown stores the waiting
// deliveries and leaves the recorder open.
//
// ExportSpans returns nil when the rows of all spans are committed, and otherwise a [*NotStoredError] that reports
// whether the spans wait or are lost. If its context is canceled, it stops waiting for the store and the spans wait.
func (r *Recorder) SpanExporter() sdktrace.SpanExporter { return exporter{r} }

// LogExporter returns an exporter for a logger provider, with the same guarantees as that for spans.
func (r *Recorder) LogExporter() sdklog.Exporter { return exporter{r} }

type exporter struct{ *Recorder }

func (e exporter) Shutdown(ctx context.Context) error { return e.ForceFlush(ctx) }

func (e exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return e.export(ctx, tracesOf(otlpfile.Traces(spans)))
}

func (e exporter) Export(ctx context.Context, records []sdklog.Record) error {
	return e.export(ctx, logsOf(otlpfile.Logs(records)))
}

// maxRequest bounds the telemetry of one request, as it is and unpacked.
const maxRequest = 64 << 20

// ServeHTTP stores the traces and the logs of an OTLP/HTTP request, in protobuf or JSON; metrics are received and
// forgotten. It answers when they are stored, or wait in memory for the store. A request that cannot be read is
// answered with 400, one whose telemetry is lost with 503.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	kind := req.Header.Get("Content-Type")
	w.Header().Set("Content-Type", kind)
	if strings.HasSuffix(req.URL.Path, "/v1/metrics") {
		return // an empty answer in either encoding says that nothing was refused
	}
	body, err := readRequest(w, req)
	if err != nil {
		http.Error(w, "read telemetry: "+err.Error(), http.StatusBadRequest)
		return
	}
	for b, err := range otlpfile.Read(bytes.NewReader(body), otlpfile.Options{}) {
		if err != nil {
			http.Error(w, "read telemetry: "+err.Error(), http.StatusBadRequest)
			return
		}
		for _, d := range []delivery{tracesOf(b.Traces), logsOf(b.Logs)} {
			lost, isLost := errors.AsType[*NotStoredError](r.export(req.Context(), d))
			if isLost && lost.Lost > 0 {
				http.Error(w, lost.Error(), http.StatusServiceUnavailable)
				return
			}
		}
	}
	if strings.Contains(kind, "json") {
		_, _ = io.WriteString(w, "{}")
	}
}

func readRequest(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	var r io.Reader = http.MaxBytesReader(w, req.Body, maxRequest)
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = io.LimitReader(z, maxRequest+1)
	}
	body, err := io.ReadAll(r)
	if err == nil && len(body) > maxRequest {
		err = errors.New("it is more than 64 MiB unpacked; export smaller batches")
	}
	return body, err
}
