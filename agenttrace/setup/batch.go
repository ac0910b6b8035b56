package setup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/redact"
)

// The SDK's batch processors count spans and log records, and those of agents are large: 80 tool results of 1 MiB make
// one request of 80 MiB. Receivers limit requests by bytes, to 4 MiB by default, and refuse a larger one for good, with
// everything in it. So a batch is sent as several requests. A span or record that is larger by itself is sent alone and
// unchanged. If it is refused, it is sent once more with its longest values truncated, and [otel.Handle] gets an error:
// the rest of the session does not depend on it. Nor does a batch depend on a text in it that is no UTF-8, such as a
// header that the client of a server sent and other instrumentation put into a span.

// MaxRequestBytes is the maximum size of a request. It is below the 4 MiB that OTLP receivers accept by default,
// because the computed size is an estimate.
const MaxRequestBytes = 3 << 20

// BoundSpans returns an exporter that splits batches by [MaxRequestBytes] and passes the pieces to another exporter. If
// a piece is refused, ExportSpans continues with the next until its context ends, and returns the joined errors. What
// is no UTF-8, such as a header of a request in a span of other instrumentation, costs a batch no span: it is replaced.
// Shutdown shuts the other exporter down. [Init] has it around its own.
func BoundSpans(to sdktrace.SpanExporter) sdktrace.SpanExporter { return boundedSpans{to} }

// BoundLogs is BoundSpans for log records.
func BoundLogs(to sdklog.Exporter) sdklog.Exporter { return boundedLogs{to} }

type boundedSpans struct{ sdktrace.SpanExporter }

func (e boundedSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return exportPieces(ctx, SplitSpans(spans), e.SpanExporter.ExportSpans, spanSize, shortenSpan,
		func(s sdktrace.ReadOnlySpan) string {
			return fmt.Sprintf("span %s %s of trace %s", s.Name(), s.SpanContext().SpanID(), s.SpanContext().TraceID())
		})
}

type boundedLogs struct{ sdklog.Exporter }

func (e boundedLogs) Export(ctx context.Context, records []sdklog.Record) error {
	return exportPieces(ctx, SplitRecords(records), e.Exporter.Export, recordSize, shortenRecord,
		func(r sdklog.Record) string {
			return fmt.Sprintf("log record %s of trace %s", r.EventName(), r.TraceID())
		})
}

// exportPieces sends pieces. If one is refused that is a single item which is too large, a shorter version of it is
// sent, and its name is reported; if it cannot be encoded, one in UTF-8.
func exportPieces[T any](
	ctx context.Context, pieces iter.Seq[[]T], send func(context.Context, []T) error,
	size func(T) int, shorten func(T) (T, int), name func(T) string,
) error {
	var errs []error
	unsent := 0
	for piece := range pieces {
		if ctx.Err() != nil {
			unsent += len(piece)
			continue
		}
		err := send(ctx, piece)
		tooLarge := len(piece) == 1 && size(piece[0]) > MaxRequestBytes
		if err != nil && ctx.Err() == nil && (tooLarge || strings.Contains(err.Error(), "invalid UTF-8")) {
			shorter, limit := make([]T, len(piece)), 0
			for i := range piece {
				shorter[i], limit = shorten(piece[i])
			}
			if again := send(ctx, shorter); again == nil {
				what := "sent with what is no UTF-8 replaced"
				if tooLarge {
					what = fmt.Sprintf("%s has about %d bytes; sent with its values cut to %d", name(piece[0]),
						size(piece[0]), limit)
				}
				otel.Handle(fmt.Errorf("%s: %w", what, err))
				continue
			}
		}
		errs = append(errs, err)
	}
	if unsent > 0 {
		errs = append(errs, fmt.Errorf("export: %w with %d spans or log records left", ctx.Err(), unsent))
	}
	return errors.Join(errs...)
}

// SplitSpans returns spans in pieces of at most [MaxRequestBytes] of OTLP, by estimate. A larger span is a piece of its
// own.
func SplitSpans(spans []sdktrace.ReadOnlySpan) iter.Seq[[]sdktrace.ReadOnlySpan] {
	return split(spans, spanSize, func(s sdktrace.ReadOnlySpan) *resource.Resource { return s.Resource() })
}

// SplitRecords is SplitSpans for log records.
func SplitRecords(records []sdklog.Record) iter.Seq[[]sdklog.Record] {
	return split(records, recordSize, func(r sdklog.Record) *resource.Resource { return r.Resource() })
}

func split[T any](all []T, size func(T) int, of func(T) *resource.Resource) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		from, sum := 0, 0
		var seen []*resource.Resource // a request has each once
		for i := 0; i < len(all); i++ {
			n, res := size(all[i]), of(all[i])
			if !slices.Contains(seen, res) {
				n, seen = n+resourceSize(res), append(seen, res)
			}
			if sum += n; sum > MaxRequestBytes && i > from {
				if !yield(all[from:i]) {
					return
				}
				from, sum, seen = i, 0, seen[:0]
				i-- // it begins the next piece
			}
		}
		if from < len(all) {
			yield(all[from:])
		}
	}
}

// fixed is the approximate size of an item without its texts.
const fixed = 256

func resourceSize(r *resource.Resource) int {
	if r == nil {
		return fixed
	}
	return fixed + len(r.SchemaURL()) + attributesSize(r.Attributes())
}

func spanSize(s sdktrace.ReadOnlySpan) int {
	n := fixed + len(s.Name()) + len(s.Status().Description) + len(s.SpanContext().TraceState().String())
	n += attributesSize(s.Attributes())
	for _, e := range s.Events() {
		n += fixed + len(e.Name) + attributesSize(e.Attributes)
	}
	for _, l := range s.Links() {
		n += fixed + attributesSize(l.Attributes)
	}
	return n
}

func recordSize(r sdklog.Record) int {
	n := fixed + len(r.EventName()) + len(r.SeverityText()) + valueSize(r.Body())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
		return true
	})
	return n
}

func attributesSize(all []attribute.KeyValue) int {
	n := 0
	for _, kv := range all {
		n += len(kv.Key) + 16 + valueSize(kv.Value)
	}
	return n
}

func valueSize(v attribute.Value) int {
	n := 0
	switch v.Type() {
	case attribute.STRING:
		return len(v.AsString())
	case attribute.STRINGSLICE:
		for _, s := range v.AsStringSlice() {
			n += len(s) + 12
		}
	case attribute.BYTESLICE:
		return len(v.AsByteSlice())
	case attribute.SLICE:
		for _, e := range v.AsSlice() {
			n += 12 + valueSize(e)
		}
	case attribute.MAP:
		return attributesSize(v.AsMap())
	case attribute.BOOLSLICE, attribute.INT64SLICE, attribute.FLOAT64SLICE:
		return 16 * reflect.ValueOf(v.AsInterface()).Len()
	}
	return n
}

// shortened returns an item with its texts in valid UTF-8, and cut to a limit, which is halved until the item fits into
// a request, as far as its texts allow, and that limit.
func shortened[T any](size func(T) int, cut func(cutter) T) (item T, limit int) {
	for limit = MaxRequestBytes; ; limit /= 2 {
		r, err := redact.New(redact.Config{DisableKeys: true, DisablePatterns: true, MaxBytes: limit})
		if err != nil {
			panic("setup: " + err.Error()) // the limit is at least redact.MinLimit
		}
		if item = cut(cutter{r, limit}); size(item) <= MaxRequestBytes || limit/2 < redact.MinLimit {
			return item, limit
		}
	}
}

// shortSpan is a span with shorter values.
type shortSpan struct {
	sdktrace.ReadOnlySpan
	attributes []attribute.KeyValue
	events     []sdktrace.Event
	links      []sdktrace.Link
}

func (s *shortSpan) Name() string { return valid(s.ReadOnlySpan.Name()) }
func (s *shortSpan) Status() sdktrace.Status {
	status := s.ReadOnlySpan.Status()
	status.Description = valid(status.Description)
	return status
}
func (s *shortSpan) Links() []sdktrace.Link           { return s.links }
func (s *shortSpan) Attributes() []attribute.KeyValue { return s.attributes }
func (s *shortSpan) Events() []sdktrace.Event         { return s.events }

func shortenSpan(s sdktrace.ReadOnlySpan) (sdktrace.ReadOnlySpan, int) {
	return shortened(spanSize, func(c cutter) sdktrace.ReadOnlySpan {
		out := &shortSpan{s, c.attributes(s.Attributes()), slices.Clone(s.Events()), slices.Clone(s.Links())}
		for i := range out.events {
			e := &out.events[i]
			e.Name, e.Attributes = valid(e.Name), c.attributes(e.Attributes)
		}
		for i := range out.links {
			out.links[i].Attributes = c.attributes(out.links[i].Attributes)
		}
		return out
	})
}

func shortenRecord(r sdklog.Record) (sdklog.Record, int) {
	var all []attribute.KeyValue
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		all = append(all, kv)
		return true
	})
	return shortened(recordSize, func(c cutter) sdklog.Record {
		out := r.Clone()
		out.SetEventName(valid(r.EventName()))
		out.SetSeverityText(valid(r.SeverityText()))
		out.SetBody(c.value(r.Body()))
		out.SetAttributes(c.attributes(all)...)
		return out
	})
}

// cutter cuts texts to a limit. JSON stays JSON: the parts of a message are decoded one by
// one, and a tool's output is a JSON value.
type cutter struct {
	*redact.Redactor
	limit int
}

func (c cutter) text(s string) string {
	if s = valid(s); len(s) <= c.limit {
		return s
	}
	b, _ := c.TruncateJSON([]byte(s))
	return string(b)
}

func (c cutter) attributes(all []attribute.KeyValue) []attribute.KeyValue {
	out := slices.Clone(all)
	for i := range out {
		out[i].Key, out[i].Value = attribute.Key(valid(string(out[i].Key))), c.value(out[i].Value)
	}
	return out
}

func (c cutter) value(v attribute.Value) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(c.text(v.AsString()))
	case attribute.STRINGSLICE:
		all := slices.Clone(v.AsStringSlice())
		for i := range all {
			all[i] = c.text(all[i])
		}
		return attribute.StringSliceValue(all)
	case attribute.SLICE:
		all := slices.Clone(v.AsSlice())
		for i := range all {
			all[i] = c.value(all[i])
		}
		return attribute.SliceValue(all...)
	case attribute.MAP:
		return attribute.MapValue(c.attributes(v.AsMap())...)
	}
	return v
}

// valid returns s in UTF-8, without which a request cannot be encoded.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// maxQuiet is how long shutdown waits without an export that succeeds, if its context has no deadline.
var maxQuiet = 2500 * time.Millisecond

// delivery counts what ends and what an endpoint accepts, because the SDK reports neither what its queues drop nor,
// when a provider shuts down, what could not be sent.
type delivery struct {
	what, endpoint string
	ended, sent    atomic.Int64
	quiet          atomic.Pointer[time.Timer]
	ending         context.Context // ends when shutdown begins
	end            context.CancelFunc
	stopped        context.Context
	stop           context.CancelCauseFunc
	late           sync.Once

	mu  sync.Mutex
	err error // of the last export that failed
}

func newDelivery(what string) *delivery {
	d := &delivery{what: what}
	d.ending, d.end = context.WithCancel(context.Background())
	d.stopped, d.stop = context.WithCancelCause(context.Background())
	return d
}

// export sends n items, or counts them as lost. The SDK's processors export with a context that shutdown does not
// end, so that stop has to.
func (d *delivery) export(ctx context.Context, n int, send func(context.Context) error) error {
	err := context.Cause(d.stopped)
	if err == nil {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(d.stopped, func() { cancel(context.Cause(d.stopped)) })()
		for err = send(ctx); unreachable(err) && d.waited(ctx, retry.InitialInterval); err = send(ctx) {
		}
	}
	if lost := rejected(err, n); lost < n {
		d.sent.Add(int64(n - lost))
		if timer := d.quiet.Load(); timer != nil {
			timer.Reset(maxQuiet)
		}
	}
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cause := context.Cause(d.stopped)
	if cause == nil || d.err == nil {
		d.err = err
	}
	if cause != nil && !errors.Is(d.err, cause) {
		d.err = fmt.Errorf("%w: %w", cause, d.err)
	}
	if d.ending.Err() != nil {
		return nil // the error of shutdown has it
	}
	return err
}

// waited reports whether the time passed, or shutdown began, before ctx ended. An error that was there then says more
// than that of ctx.
func (d *delivery) waited(ctx context.Context, wait time.Duration) bool {
	begins := d.ending.Done()
	if d.ending.Err() != nil {
		begins = nil
	}
	select {
	case <-time.After(wait):
		return true
	case <-begins:
		return true
	case <-ctx.Done():
		return false
	}
}

// unreachable reports whether there is no connection, as while a collector is restarted: the exporters by HTTP repeat
// a request only if there is an answer.
func unreachable(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// partialSuccess is the text of the error with which exporters report that a collector rejected a part of a request.
// The error's type is internal to each of them.
var partialSuccess = lazy.Regexp(`OTLP partial success: .*\((\d+) [a-z ]+ rejected\)`)

// rejected returns how many of n items an export did not deliver.
func rejected(err error, n int) int {
	if err == nil {
		return 0
	}
	if m := partialSuccess().FindStringSubmatch(err.Error()); m != nil {
		part, _ := strconv.Atoi(m[1])
		return min(part, n)
	}
	return n
}

// shutdown shuts a provider down. The error counts what was lost since its start.
func (d *delivery) shutdown(ctx context.Context, provider func(context.Context) error) error {
	d.end()
	if _, limited := ctx.Deadline(); !limited {
		timer := time.AfterFunc(maxQuiet, func() { d.stop(fmt.Errorf("no answer within %v", maxQuiet)) })
		defer timer.Stop()
		d.quiet.Store(timer)
	}
	defer context.AfterFunc(ctx, func() { d.stop(context.Cause(ctx)) })()
	err := provider(context.WithoutCancel(ctx)) // returns when exports do, which stop ends
	d.mu.Lock()
	defer d.mu.Unlock()
	lost := d.ended.Load() - d.sent.Load()
	if lost <= 0 {
		return err
	}
	if d.err == nil && d.what == "spans" {
		return errors.Join(err, fmt.Errorf("%d of %d spans are lost: they came faster than %s accepted them; raise "+
			"OTEL_BSP_MAX_QUEUE_SIZE", lost, d.ended.Load(), d.endpoint))
	} else if d.err == nil {
		return err // live events that the queue dropped are repeated by later ones
	}
	i := slices.IndexFunc(remedies[:], func(r [2]string) bool { return strings.Contains(d.err.Error(), r[0]) })
	return fmt.Errorf("%d of %d %s are lost: %s did not accept them: %w; %s", lost, d.ended.Load(), d.what, d.endpoint,
		d.err, remedies[i][1])
}

// remedies are what to do after an error with a text, and last after any. The types of these errors are internal.
var remedies = [...][2]string{
	{"HTTP/1.1 header", "that port takes HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
	{"no application protocol", "that port takes HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
	{"malformed HTTP response", "that port takes gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	{"look like a TLS handshake", "that port has no TLS: set OTEL_EXPORTER_OTLP_ENDPOINT with http://"},
	{"HTTP response to HTTPS client", "that port has no TLS: set OTEL_EXPORTER_OTLP_ENDPOINT with http://"},
	{"server preface: EOF", "that port may want TLS: set OTEL_EXPORTER_OTLP_ENDPOINT with https://"},
	{"reset by peer", "that port may want TLS, or gRPC: set OTEL_EXPORTER_OTLP_ENDPOINT with https://, or _PROTOCOL=grpc"},
	{"request to an HTTPS server", "that port wants TLS: set OTEL_EXPORTER_OTLP_ENDPOINT with https://"},
	{"x509: ", "set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with the certificate that signed the server's"},
	{"certificate required", "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY"},
	{"Unauthenticated", "set OTEL_EXPORTER_OTLP_HEADERS, such as authorization=Bearer%20TOKEN"},
	{": 401 ", "set OTEL_EXPORTER_OTLP_HEADERS, such as authorization=Bearer%20TOKEN"},
	{": 404 ", "set OTEL_EXPORTER_OTLP_ENDPOINT without /v1/traces and /v1/logs, which are added"},
	{"proxyconnect", "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"},
	{"", `start "agenttrace collect" there or set OTEL_EXPORTER_OTLP_ENDPOINT`},
}

// spanExporter and spanProcessor count what an exporter delivers, and what its provider is given.
type spanExporter struct {
	sdktrace.SpanExporter
	*delivery
}

func (e spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return e.export(ctx, len(spans), func(ctx context.Context) error { return e.SpanExporter.ExportSpans(ctx, spans) })
}

type spanProcessor struct {
	sdktrace.SpanProcessor
	*delivery
}

func (p spanProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	switch sampled := s.SpanContext().IsSampled(); {
	case sampled && p.ending.Err() != nil:
		p.late.Do(func() {
			otel.Handle(fmt.Errorf("send span %s of trace %s: it ended after shutdown, so it is lost, and so are all that "+
				"follow; call shutdown when the last run has ended", s.Name(), s.SpanContext().TraceID()))
		})
		return
	case sampled:
		p.ended.Add(1)
	}
	p.SpanProcessor.OnEnd(s)
}

// logExporter and logProcessor do so for live events.
type logExporter struct {
	sdklog.Exporter
	*delivery
}

func (e logExporter) Export(ctx context.Context, records []sdklog.Record) error {
	return e.export(ctx, len(records), func(ctx context.Context) error { return e.Exporter.Export(ctx, records) })
}

type logProcessor struct {
	sdklog.Processor
	*delivery
}

func (p logProcessor) OnEmit(ctx context.Context, r *sdklog.Record) error {
	p.ended.Add(1)
	return p.Processor.OnEmit(ctx, r)
}
