package agenttrace

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
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
