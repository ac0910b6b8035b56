package agenttrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Options configures a [Tracer]. The zero value uses the global tracer provider
// and has no rules, no watchdog and no approver.
type Options struct {
	// TracerProvider makes the spans; nil means [otel.GetTracerProvider], also when that is set later.
	TracerProvider trace.TracerProvider

	// LoggerProvider takes events about work in progress; nil means that there are
	// none. Of a run that is not recorded there are none either.
	LoggerProvider log.LoggerProvider
	// Live states how much the events report.
	Live LiveOptions

	// MeterProvider takes the metrics of the GenAI conventions, and counts of loops and
	// denials; nil means [otel.GetMeterProvider], also when that is set later.
	MeterProvider metric.MeterProvider
	// CaptureContent adds the messages, the system prompt and the tools to the span of each
	// model call, in the form of the GenAI conventions, for other tools: session stores have
	// them from turns and tool calls. It costs time and space, for each call repeats the turn
	// so far. OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true does the same.
	CaptureContent bool

	// Redact takes secrets out of every text, input, output, error and title before it goes to a span or an event;
	// nil means package redact with its zero Config. What the agent itself is given back (a [State], a
	// [ToolRequest]) is whole. DisableRedaction sends everything as it is.
	Redact           Redactor
	DisableRedaction bool
	// MaxPartBytes bounds texts, tool inputs and tool outputs as they are sent: the head is kept, a marker with the
	// size of the whole ends it, JSON stays JSON. A tool call whose output is cut reports so as
	// [ToolCall.EndTruncated] does. What is more than twice as long is cut before it is redacted: it has no SHA256, and
	// its Size is that before. 0 means 1 MiB, the least is 100, a negative number no bound.
	MaxPartBytes int

	// LoopDetection warns of agents that repeat themselves; nil does not.
	LoopDetection *LoopDetection
	// Limits bound each run.
	Limits Limits

	// Rules are those of the manifest and the project; they hold in every
	// session. A rule without a source counts as the manifest's.
	Rules []Rule

	// Watchdog sees every tool call that no rule denies before it runs and may
	// narrow what the rules allow. Nil narrows nothing.
	Watchdog Watchdog

	// Approver asks a human. Nil means that there is none: ask means deny.
	Approver Approver

	// ResultGrace is how long after the end of its turn the result of a tool call is accepted, as callbacks that
	// read streams report it late. 0 means 10 seconds, less than zero not at all.
	ResultGrace time.Duration

	// Now is the clock; nil means [time.Now].
	Now func() time.Time
}

// Tracer makes sessions. Make one with [New] per process and share it; it is
// safe for concurrent use. A nil Tracer and the zero Tracer make nil sessions.
type Tracer struct {
	tracer   trace.Tracer
	live     *live // nil without events
	filter   filter
	loop     *LoopDetection
	limits   Limits
	rules    []Rule
	watchdog Watchdog
	approver Approver
	grace    time.Duration
	genAI    genAI
	metrics  *metrics
	now      func() time.Time
	bodies   memory[string, *body]
	dropped  atomic.Int64
	// global reports that spans go to the global tracer provider; unset reports once that there is none.
	global bool
	unset  sync.Once
}

// New returns a tracer. It never fails and needs no closing; shutting down the tracer provider is the caller's.
func New(o Options) *Tracer {
	tp := cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	names := newGenAI(o)
	t := &Tracer{
		tracer: tp.Tracer(semconv.ScopeName, trace.WithSchemaURL(semconv.SchemaURL),
			trace.WithInstrumentationVersion(version())),
		genAI:    names,
		live:     newLive(o),
		filter:   newFilter(o),
		limits:   o.Limits,
		rules:    make([]Rule, 0, len(o.Rules)),
		watchdog: o.Watchdog,
		approver: o.Approver,
		grace:    cmp.Or(o.ResultGrace, 10*time.Second),
		now:      o.Now,
		global:   o.TracerProvider == nil,
	}
	if t.live != nil {
		t.live.filter = &t.filter
	}
	t.metrics = newMetrics(o, names, &t.filter)
	if t.now == nil {
		t.now = time.Now
	}
	if o.LoopDetection != nil {
		loop := *o.LoopDetection
		loop.Window, loop.Repetitions = max(cmp.Or(loop.Window, 12), 4), max(cmp.Or(loop.Repetitions, 3), 2)
		t.loop = &loop
	}
	for _, r := range o.Rules {
		r.Source = cmp.Or(r.Source, SourceManifest)
		t.rules = append(t.rules, r)
	}
	return t
}

// noProvider is the global tracer provider before one is set.
var noProvider = otel.GetTracerProvider()

// warn reports once that runs are not recorded because no tracer provider is set.
func (t *Tracer) warn() {
	disabled, _ := strconv.ParseBool(strings.ToLower(os.Getenv("OTEL_SDK_DISABLED")))
	if disabled || !t.global || otel.GetTracerProvider() != noProvider || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return
	}
	t.unset.Do(func() {
		otel.Handle(errors.New("record sessions: no tracer provider is set, so nothing is stored; call setup.Init of " +
			"agenttrace/setup when the program starts, or set Options.TracerProvider"))
	})
}

// start begins a span at now, which is its session's time: what is dated by its span must not come before what is
// dated by its session.
func (t *Tracer) start(
	ctx context.Context, name string, kind trace.SpanKind, now time.Time, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	if kind != trace.SpanKindInternal {
		opts = append(opts, trace.WithSpanKind(kind))
	}
	return t.tracer.Start(orBackground(ctx), name, append(opts, trace.WithTimestamp(now))...)
}

// reference returns a span that has the context of another, and holds nothing of it.
func reference(span trace.Span) trace.Span {
	return trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), span.SpanContext()))
}

// finish ends a span at now.
func (t *Tracer) finish(span trace.Span, now time.Time) { span.End(trace.WithTimestamp(now)) }

// addEvent adds an event to a span.
func (t *Tracer) addEvent(span trace.Span, now time.Time, name string, event spans.SpanData) {
	attrs := t.filter.attributes(spans.Append(nil, event))
	span.AddEvent(name, trace.WithAttributes(attrs...), trace.WithTimestamp(now))
}

// Dropped returns how many calls came too late to be recorded, after the end of the tool call, turn or run that
// they belong to, and how many events had to go because a log processor did not take them.
func (t *Tracer) Dropped() int64 { return of(t, func(t *Tracer) int64 { return t.dropped.Load() }) }

// drop counts a call that came too late.
func (t *Tracer) drop(what, id string) {
	t.count("record %s of %s: it has ended; calls dropped so far: %d", what, id)
}

// count counts what is dropped, whose number ends the arguments. It reports the first, the second, the fourth and
// so on, so that a loop cannot flood the log.
func (t *Tracer) count(format string, args ...any) {
	if n := t.dropped.Add(1); bits.OnesCount64(uint64(n)) == 1 {
		otel.Handle(fmt.Errorf(format, append(args, n)...))
	}
}

// Errors that callers branch on.
var (
	// ErrAborted ends a run or turn that its user stopped. Wrap it or use it as it
	// is; [context.Canceled] has the same effect.
	ErrAborted = errors.New("aborted")
	// ErrBusy is returned where a session must be idle and a turn or a compaction is open.
	ErrBusy = errors.New("session is busy: end its turn first")
	// ErrNothingPending is returned by [Run.ContinueTurn] when no turn waits, and
	// by [Session.Unrewind] when no rewind is left to undo.
	ErrNothingPending = errors.New("nothing is pending")
)
