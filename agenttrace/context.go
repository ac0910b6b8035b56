package agenttrace

import "context"

// scope is a context that knows where in an agent's work it is. It lives
// inside the handle that it was made for, so that it costs no allocation of its
// own.
type scope struct {
	context.Context
	run  *Run
	turn *Turn
	tool *ToolCall
}

type scopeKey struct{}

func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func scopeOf(ctx context.Context) *scope {
	if ctx == nil {
		return nil
	}
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// SessionFromContext returns the session that ctx works on, nil when there is
// none.
func SessionFromContext(ctx context.Context) *Session { return RunFromContext(ctx).Session() }

// RunFromContext returns the run that ctx belongs to, nil when there is none.
func RunFromContext(ctx context.Context) *Run {
	if s := scopeOf(ctx); s != nil {
		return s.run
	}
	return nil
}

// TurnFromContext returns the turn that ctx belongs to, nil when there is none.
func TurnFromContext(ctx context.Context) *Turn {
	s := scopeOf(ctx)
	switch {
	case s == nil:
		return nil
	case s.turn == nil && s.run.off:
		return &s.run.offTurn
	}
	return s.turn
}

// ToolFromContext returns the tool call that ctx belongs to, nil when there is
// none.
func ToolFromContext(ctx context.Context) *ToolCall {
	if s := scopeOf(ctx); s != nil {
		return s.tool
	}
	return nil
}

// StartTool begins a tool call in the turn that ctx belongs to. Without one it
// returns ctx and a nil ToolCall, which records nothing and is never allowed.
func StartTool(ctx context.Context, o ToolOptions) (context.Context, *ToolCall) {
	return TurnFromContext(ctx).StartTool(ctx, o)
}
