// Package adapter has what the adapters of frameworks share: to which session a turn belongs, and how answers are
// recorded that come in pieces.
package adapter

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// maxSessions bounds the sessions that are remembered; the one used longest ago is forgotten.
const maxSessions = 1000

// Sessions begins turns in sessions. It is safe for concurrent use.
type Sessions struct {
	tracer *agenttrace.Tracer
	agent  string
	id     func(context.Context) string

	mu   sync.Mutex
	used []*agenttrace.Session // the one used longest ago first
}

// NewSessions returns sessions of an agent; an empty name means that of the program. The function returns the id of the
// session that a turn belongs to, "" for a new one; nil knows none.
func NewSessions(tracer *agenttrace.Tracer, agent string, id func(context.Context) string) *Sessions {
	if agent == "" {
		agent = filepath.Base(os.Args[0])
	}
	return &Sessions{tracer: tracer, agent: agent, id: id}
}

// Begun is what [Sessions.StartTurn] began; the zero value is nothing.
type Begun struct {
	run  *agenttrace.Run
	turn *agenttrace.Turn
}

// StartTurn begins a turn, and returns what is to be ended with it. The
// turn is part of the first that there is: the run in ctx, the session of the id, or a new session.
// If ctx has a turn, that is returned, and ending it is left to those that began it.
func (s *Sessions) StartTurn(
	ctx context.Context, m agenttrace.UserMessage, o agenttrace.TurnOptions,
) (_ context.Context, _ *agenttrace.Turn, b Begun) {
	if turn := agenttrace.TurnFromContext(ctx); turn != nil {
		return ctx, turn, b
	}
	run := agenttrace.RunFromContext(ctx)
	if run == nil {
		ctx, run = s.session(ctx).StartRun(ctx, agenttrace.RunOptions{Model: o.Model})
		b.run = run
	}
	ctx, b.turn = run.StartTurn(ctx, m, o)
	return ctx, b.turn, b
}

// ContinueTurn takes up the turn of the session of the id that waits for a human; without one the turn is nil.
func (s *Sessions) ContinueTurn(ctx context.Context) (turn *agenttrace.Turn, b Begun) {
	run := agenttrace.RunFromContext(ctx)
	if run == nil {
		if s.id == nil || s.id(ctx) == "" {
			return nil, b
		}
		session := s.session(ctx)
		if session.State().Pending == nil {
			return nil, b
		}
		ctx, run = session.StartRun(ctx, agenttrace.RunOptions{})
		b.run = run
	}
	_, turn, err := run.ContinueTurn(ctx, agenttrace.TurnOptions{})
	if b.turn = turn; err != nil {
		b.Done(&err)
		return nil, Begun{}
	}
	return turn, b
}

// Resume takes up the call of a turn that [Sessions.ContinueTurn] returned, by the call's id or, without one, by the
// tool's name. It is nil where no such call waits.
func Resume(ctx context.Context, turn *agenttrace.Turn, id, tool string) (context.Context, *agenttrace.ToolCall) {
	for _, p := range turn.PendingTools() {
		if p.CallID == id || id == "" && p.Name == tool {
			if ctx, call, _, err := turn.ResumeTool(ctx, p.CallID, agenttrace.Answer{}); err == nil {
				return ctx, call
			}
		}
	}
	return ctx, nil
}

// StartTool takes up the call of a tool that waits, as [Resume] does, or else begins it.
func StartTool(
	ctx context.Context, turn *agenttrace.Turn, o agenttrace.ToolOptions,
) (context.Context, *agenttrace.ToolCall) {
	if resumed, call := Resume(ctx, turn, o.ID, o.Name); call != nil {
		return resumed, call
	}
	return turn.StartTool(ctx, o)
}

// Done ends what was begun with *err. If a function that defers it panics, the panic is the error, and goes on.
func (b *Begun) Done(err *error) {
	if p := recover(); p != nil {
		defer b.run.Done(err)
		defer b.turn.Done(err)
		panic(p)
	}
	b.turn.Fail(*err)
	b.run.End(*err)
}

func (s *Sessions) session(ctx context.Context) *agenttrace.Session {
	o := agenttrace.SessionOptions{Agent: s.agent}
	if s.id != nil {
		o.ID = s.id(ctx)
	}
	if o.ID == "" {
		return s.tracer.NewSession(ctx, o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.used, func(used *agenttrace.Session) bool { return used.ID() == o.ID })
	if i < 0 {
		i = len(s.used)
		s.used = append(s.used, s.tracer.NewSession(ctx, o))
	}
	session := s.used[i]
	s.used = append(slices.Delete(s.used, i, i+1), session)
	s.used = s.used[max(0, len(s.used)-maxSessions):]
	return session
}

// StartModelCall begins a call of a model in a turn. Where the framework's own spans are recorded, and nothing of the
// program's is above them, they have a trace of their own. The call is in that then, by which a collector knows that
// the two report the same.
func StartModelCall(
	ctx context.Context, turn *agenttrace.Turn, o agenttrace.ModelCallOptions,
) (context.Context, *agenttrace.ModelCall) {
	own := trace.SpanContextFromContext(ctx)
	o.UsageElsewhere = own.IsSampled() && own.TraceID() != turn.SpanContext().TraceID()
	return turn.StartModelCall(ctx, o)
}

// Answer records an answer of a model that comes in pieces. It is for one goroutine.
type Answer struct {
	Call            *agenttrace.ModelCall
	reasoning, text *agenttrace.TextStream
}

// Text records a piece of the text, if it is not empty, and Reasoning one of the reasoning.
func (a *Answer) Text(piece string) { write(&a.text, a.Call.StreamText, piece) }

// Reasoning records a piece of the reasoning.
func (a *Answer) Reasoning(piece string) { write(&a.reasoning, a.Call.StreamReasoning, piece) }

func write(stream **agenttrace.TextStream, begin func() *agenttrace.TextStream, piece string) {
	if piece == "" {
		return
	}
	if *stream == nil {
		*stream = begin()
	}
	_, _ = (*stream).WriteString(piece) // never fails
}

// End ends the call.
func (a *Answer) End(result agenttrace.ModelResult, err error) {
	_, _ = a.reasoning.Close(), a.text.Close()
	a.Call.End(result, err)
}

// ToolOf describes a tool whose parameters are anything that encodes to a JSON Schema.
func ToolOf(name, description string, parameters any) agenttrace.Tool {
	schema, err := json.Marshal(parameters)
	if err != nil || string(schema) == "null" {
		schema = nil
	}
	return agenttrace.Tool{Name: name, Description: description, Parameters: schema}
}

// Output returns the output of a tool such that text that is JSON is recorded as JSON.
func Output(output any) any {
	if text, ok := output.(string); ok {
		return []byte(text)
	}
	return output
}

// After returns a system prompt with one more part of it.
func After(prompt, part string) string {
	if prompt == "" || part == "" {
		return prompt + part
	}
	return prompt + "\n\n" + part
}
