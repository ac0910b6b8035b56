package agenttrace

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
)

// scope is a context that knows where in an agent's work it is. It lives inside the handle that it was made for, so
// that it costs no allocation of its own.
type scope struct {
	context.Context
	run  *Run
	turn *Turn
	tool *ToolCall
	call *ModelCall
}

type scopeKey struct{}

func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// noScope is the scope of a context that belongs to nothing. Nobody writes to it.
var noScope scope

// scopeOf returns the scope of ctx.
func scopeOf(ctx context.Context) *scope {
	if ctx != nil {
		if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
			return s
		}
	}
	return &noScope
}

// orBackground returns a context for nil, which must not fail an agent here that it does not fail elsewhere.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

func withSpan(ctx context.Context, span trace.Span) context.Context {
	return trace.ContextWithSpan(orBackground(ctx), span)
}

// of returns something of what may be nil.
func of[T, V any](x *T, get func(*T) V) (value V) {
	if x != nil {
		value = get(x)
	}
	return value
}

// with returns something that mu guards.
func with[V any](mu *sync.Mutex, get func() V) V {
	mu.Lock()
	defer mu.Unlock()
	return get()
}

// do runs f with mu held, and then emits the events that were queued meanwhile.
func (s *Session) do(mu *sync.Mutex, f func()) {
	func() {
		mu.Lock()
		defer mu.Unlock()
		f()
	}()
	s.flush()
}

// ending is the end of something that ends once.
type ending struct {
	mu    sync.Mutex
	ended bool
}

func (e *ending) hasEnded() bool { return with(&e.mu, func() bool { return e.ended }) }

// endOnce reports whether this is the first end.
func (e *ending) endOnce() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.ended
	e.ended = true
	return first
}

// within returns the context in which something of the turn begins, and the open tool call around it, if any. Where
// the active span of ctx is not of the turn, or is one of the turn's model calls or a tool call that has ended
// (because the agent went on with the context that it got from there), the turn's span takes its place. Spans that
// the agent itself began in between stay.
func (t *Turn) within(ctx context.Context) (context.Context, *ToolCall) {
	sc := scopeOf(ctx)
	if sc.turn != t {
		return withSpan(ctx, t.span), nil
	}
	tool := sc.tool
	if tool != nil && tool.hasEnded() {
		tool = nil
	}
	// By id: not every implementation's spans can be compared.
	active := trace.SpanContextFromContext(ctx)
	switch {
	case (sc.call == nil || !active.Equal(sc.call.span.SpanContext())) &&
		(sc.tool == nil || tool != nil || !active.Equal(sc.tool.span.SpanContext())):
		return ctx, tool
	case tool != nil:
		return withSpan(ctx, tool.span), tool
	}
	return withSpan(ctx, t.span), nil
}

// unrecorded returns ctx for what begins in a run of which nothing is recorded: sub-agents
// are those of its session nevertheless, because a sampler keeps or drops them together.
func (r *Run) unrecorded(ctx context.Context) context.Context {
	if RunFromContext(ctx) == r {
		return ctx
	}
	return &scope{Context: orBackground(ctx), run: r}
}

// SessionFromContext returns the session that ctx works on, nil when there is none.
func SessionFromContext(ctx context.Context) *Session { return RunFromContext(ctx).Session() }

// RunFromContext returns the run that ctx belongs to, nil when there is none.
func RunFromContext(ctx context.Context) *Run { return scopeOf(ctx).run }

// TurnFromContext returns the turn that ctx belongs to, nil when there is none.
func TurnFromContext(ctx context.Context) *Turn {
	s := scopeOf(ctx)
	if s.turn == nil && s.run != nil && s.run.off {
		return &s.run.offTurn
	}
	return s.turn
}

// ToolFromContext returns the tool call that ctx belongs to, nil when there is none.
func ToolFromContext(ctx context.Context) *ToolCall { return scopeOf(ctx).tool }

// ModelCallFromContext returns the model call that ctx belongs to, nil when there is none.
func ModelCallFromContext(ctx context.Context) *ModelCall { return scopeOf(ctx).call }

// StartTool begins a tool call in the turn that ctx belongs to. Without one it is the call of that ID, or that Name
// and Input, that package modelhttp has seen in the answer of a model and that waits for its result, if there is only
// one in the process. Otherwise StartTool returns ctx and a nil ToolCall, which records nothing and is never allowed.
func StartTool(ctx context.Context, o ToolOptions) (context.Context, *ToolCall) {
	turn := TurnFromContext(ctx)
	if turn == nil && RunFromContext(ctx) == nil {
		if turn, o.ID = observedCall(o); turn == nil {
			return ctx, nil
		}
	}
	return turn.StartTool(ctx, o)
}

// propagator writes and reads the headers traceparent, tracestate and baggage of the W3C.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// Inject writes where ctx is in an agent's work to what a request or a process is started with, so that a sub-agent
// which runs there joins: its runs are in the trace of ctx, and its sessions have the session of ctx as their
// parent, as in [Tracer.NewSession]. These are the headers traceparent, tracestate and baggage, with the baggage of
// ctx in the latter. The ids of the session and of the user message are sent; the caller decides to whom.
//
//	agenttrace.Inject(ctx, propagation.HeaderCarrier(request.Header)) // an HTTP request
//
//	env := agenttrace.Environment(os.Environ()) // a process
//	agenttrace.Inject(ctx, &env)
//	cmd.Env = env
//
//	meta := agenttrace.Meta{} // the _meta of an MCP request
//	agenttrace.Inject(ctx, meta)
func Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	if ctx == nil || carrier == nil {
		return
	}
	if turn := TurnFromContext(ctx); turn != nil && turn.run != nil {
		ctx = baggage.ContextWithBaggage(ctx, lineageOf(ctx).add(baggage.FromContext(ctx)))
	}
	propagator.Inject(ctx, carrier)
}

// Extract returns ctx with what [Inject] wrote. A session that [Tracer.NewSession] makes in
// it is one of a sub-agent, and a run that is started in it continues the trace. Contexts
// of other instrumentation that reads the headers traceparent and baggage do the same.
//
// The sender chooses which session is the parent, so extract from trusted senders only.
func Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	if ctx == nil || carrier == nil {
		return ctx
	}
	return propagator.Extract(ctx, carrier)
}

// lineage is where the session of a sub-agent comes from: the session that started it, the
// user message that it works for, and the session that has no parent.
type lineage struct{ session, message, root string }

// lineageOf returns the lineage of a session that begins in ctx, in this process or another.
func lineageOf(ctx context.Context) lineage {
	if turn := TurnFromContext(ctx); turn != nil && turn.run != nil {
		s := turn.run.sess
		return lineage{s.id, turn.UserMessageID(), s.root()}
	}
	if ctx == nil {
		return lineage{}
	}
	b := baggage.FromContext(ctx)
	value := func(key string) string {
		if v := b.Member(key).Value(); len(v) <= maxLineageID {
			return v
		}
		return ""
	}
	o := lineage{session: value(string(semconv.SessionParentIDKey))}
	if o.session != "" {
		o.message, o.root = value(string(semconv.SessionParentMessageIDKey)), value(string(semconv.SessionRootIDKey))
	}
	return o
}

// maxLineageID bounds the ids that are taken from other processes, in bytes.
const maxLineageID = 512

// add returns b with the lineage. Where the limits of baggage leave no room, the lineage is all that there is.
func (o lineage) add(b baggage.Baggage) baggage.Baggage {
	for _, before := range []baggage.Baggage{b, {}} {
		if with, err := o.addTo(before); err == nil {
			return with
		}
	}
	return b
}

func (o lineage) addTo(b baggage.Baggage) (baggage.Baggage, error) {
	for key, value := range map[string]string{
		string(semconv.SessionParentIDKey): o.session, string(semconv.SessionParentMessageIDKey): o.message,
		string(semconv.SessionRootIDKey): o.root,
	} {
		b = b.DeleteMember(key) // also of a session further up
		if value == "" {
			continue
		}
		m, err := baggage.NewMemberRaw(key, value)
		if err == nil {
			b, err = b.SetMember(m)
		}
		if err != nil {
			return b, err
		}
	}
	_, err := baggage.Parse(b.String())
	return b, err
}

// Environment is a carrier in environment variables, as [os.Environ] and the Env of
// [os/exec.Cmd] have them: TRACEPARENT, TRACESTATE and BAGGAGE.
type Environment []string

var _ propagation.TextMapCarrier = (*Environment)(nil)

func variable(key string) string { return strings.ToUpper(strings.ReplaceAll(key, "-", "_")) + "=" }

// Get returns the value of a key, "" if it has none. Of several, the last counts.
func (e *Environment) Get(key string) string {
	name, value := variable(key), ""
	for _, v := range *e {
		if after, ok := strings.CutPrefix(v, name); ok {
			value = after
		}
	}
	return value
}

// Set sets the variable of a key. It changes a copy, so that the slice may be shared.
func (e *Environment) Set(key, value string) {
	name := variable(key)
	*e = slices.DeleteFunc(slices.Clone(*e), func(v string) bool { return strings.HasPrefix(v, name) })
	*e = append(*e, name+value)
}

// Keys returns the names of all variables.
func (e *Environment) Keys() []string {
	keys := make([]string, 0, len(*e))
	for _, v := range *e {
		name, _, _ := strings.Cut(v, "=")
		keys = append(keys, name)
	}
	return keys
}

// Meta is a carrier in the _meta object of a request or notification of the Model Context
// Protocol, where the keys have no prefix (SEP-414). To inject, it must not be nil.
type Meta map[string]any

var _ propagation.TextMapCarrier = Meta(nil)

// Get returns the text under a key, "" if there is none.
func (m Meta) Get(key string) string {
	s, _ := m[key].(string)
	return s
}

// Set sets the text under a key.
func (m Meta) Set(key, value string) { m[key] = value }

// Keys returns all keys.
func (m Meta) Keys() []string { return slices.Collect(maps.Keys(m)) }
