// Package genkittrace records agents that are built with github.com/firebase/genkit/go.
//
//	h := genkittrace.New(tracer, genkittrace.Options{Agent: "coder"})
//	tool := genkit.DefineTool(g, "ls", "Lists files.", genkittrace.Tool("ls", list))
//	response, err := h.Generate(ctx, g, ai.WithPrompt(question), ai.WithTools(tool))
//
// A Generate is a turn; the calls of the model and of the tools in it are those of the turn. [Handler.Middleware]
// does the same for prompts, and where ai.WithMiddleware has others, in a context of [Handler.Start].
//
// A call of a tool that interrupts waits for a human. A Generate with the restarted call, or with its response, goes on
// with the turn, if it has the id of its session: see [Options].
//
// Genkit does not tell a tool which call it executes, and runs those of an answer at the same time. [Tool] finds the
// call by its input. Without it, a call lasts until the next request has its result, which is marked as inferred.
package genkittrace

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/contrib/internal/adapter"
)

// Options configures a [Handler]. The zero value is ready to use.
type Options struct {
	// Agent names the agent; empty means the name of the program.
	Agent string
	// Model is the one that is called: Genkit does not show it to middleware.
	Model agenttrace.Model
	// SessionID returns the id of the session that a turn belongs to, or "" for a new session. Nil
	// knows none. A run or a turn in the context takes precedence.
	SessionID func(ctx context.Context) string
}

// Handler records what models and tools do. It is safe for concurrent use.
type Handler struct {
	sessions *adapter.Sessions
	model    agenttrace.Model
}

// New returns a handler that records with the tracer.
func New(tracer *agenttrace.Tracer, o Options) *Handler {
	return &Handler{adapter.NewSessions(tracer, o.Agent, o.SessionID), o.Model}
}

// work is a turn, which begins with the first request to a model.
type work struct {
	sessions *adapter.Sessions

	mu    sync.Mutex
	turn  *agenttrace.Turn
	begun adapter.Begun
}

type workKey struct{}

// Start returns a context in which the calls of models and tools are one turn, and a function that
// ends it. The turn begins with the last message of the user in the first request to a model.
func (h *Handler) Start(ctx context.Context) (context.Context, func(error)) {
	w := &work{sessions: h.sessions}
	return context.WithValue(ctx, workKey{}, w), func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.begun.Done(&err)
	}
}

// Generate is [genkit.Generate] as a turn. The options must not have ai.WithMiddleware.
func (h *Handler) Generate(
	ctx context.Context, g *genkit.Genkit, options ...ai.GenerateOption,
) (response *ai.ModelResponse, err error) {
	w := &work{sessions: h.sessions}
	ctx = context.WithValue(ctx, workKey{}, w)
	defer w.begun.Done(&err)
	return genkit.Generate(ctx, g, append(options[:len(options):len(options)], ai.WithMiddleware(h.Middleware))...)
}

// Middleware is an [ai.ModelMiddleware]. Without [Handler.Start], each call of a model is a turn.
func (h *Handler) Middleware(next ai.ModelFunc) ai.ModelFunc {
	return func(
		ctx context.Context, req *ai.ModelRequest, stream ai.ModelStreamCallback,
	) (response *ai.ModelResponse, err error) {
		w, started := ctx.Value(workKey{}).(*work)
		if !started {
			w = &work{sessions: h.sessions}
			ctx = context.WithValue(ctx, workKey{}, w)
			defer w.begun.Done(&err)
		}
		turn := h.begin(ctx, w, req)
		for _, m := range slices.Backward(req.Messages) { // of results with one id, the last is new
			for _, p := range m.Content {
				if r := p.ToolResponse; p.IsToolResponse() {
					_, call := adapter.Resume(ctx, turn, r.Ref, r.Name)
					cmp.Or(call, turn.Tool(r.Ref)).End(adapter.Output(r.Output)) // if no tool did
				}
			}
		}
		callCtx, call := adapter.StartModelCall(ctx, turn, agenttrace.ModelCallOptions{})
		answer, streamed := adapter.Answer{Call: call}, false
		if deliver := stream; deliver != nil {
			stream = func(ctx context.Context, chunk *ai.ModelResponseChunk) error {
				answer.Text(chunk.Text())
				streamed = streamed || chunk.Text() != ""
				return deliver(ctx, chunk)
			}
		}
		response, err = next(callCtx, req, stream)
		if err != nil {
			answer.End(agenttrace.ModelResult{}, err)
		} else {
			answered(ctx, turn, &answer, response, streamed)
		}
		return response, err
	}
}

// begin returns the turn, and begins it if the request is the first one.
func (h *Handler) begin(ctx context.Context, w *work, req *ai.ModelRequest) *agenttrace.Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(req.Messages); w.turn == nil && n > 0 && req.Messages[n-1].Role == ai.RoleTool {
		w.turn, w.begun = h.sessions.ContinueTurn(ctx)
	}
	if w.turn != nil {
		return w.turn
	}
	o := agenttrace.TurnOptions{Model: h.model}
	var user agenttrace.UserMessage
	for _, m := range req.Messages {
		switch m.Role {
		case ai.RoleSystem:
			o.SystemPrompt = adapter.After(o.SystemPrompt, m.Text())
		case ai.RoleUser:
			user = userMessage(m)
		}
	}
	for _, t := range req.Tools {
		o.Tools = append(o.Tools, adapter.ToolOf(t.Name, t.Description, t.InputSchema))
	}
	_, w.turn, w.begun = h.sessions.StartTurn(ctx, user, o)
	return w.turn
}

func userMessage(m *ai.Message) (user agenttrace.UserMessage) {
	for _, p := range m.Content {
		switch {
		case p.IsText():
			user.Parts = append(user.Parts, agenttrace.TextPart(p.Text))
		case p.IsMedia():
			user.Parts = append(user.Parts, agenttrace.FilePart(agenttrace.File{MediaType: p.ContentType, URL: p.Text}))
		}
	}
	return user
}

// answered records an answer. streamed reports that its text is recorded.
func answered(
	ctx context.Context, turn *agenttrace.Turn, answer *adapter.Answer, r *ai.ModelResponse, streamed bool,
) {
	var requests []*ai.ToolRequest
	if r.Message != nil {
		for _, p := range r.Message.Content {
			switch {
			case p.IsReasoning():
				answer.Call.Reasoning(p.Text)
			case p.IsText() && p.Text != "" && !streamed:
				answer.Call.Text(p.Text)
			case p.IsToolRequest():
				requests = append(requests, p.ToolRequest)
			}
		}
	}
	answer.End(agenttrace.ModelResult{StopReason: string(r.FinishReason), Usage: usageOf(r.Usage)}, nil)
	for _, t := range requests {
		_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: t.Ref, Name: t.Name, Input: t.Input, Inferred: true})
		if t.Ref == "" {
			t.Ref = tool.ID() // Genkit would make one up next
		}
	}
}

// usageOf returns the tokens of a call, or nil. The total shows whether the output includes the thoughts.
func usageOf(u *ai.GenerationUsage) agenttrace.Usage {
	if u == nil || u.InputTokens+u.OutputTokens == 0 {
		return nil
	}
	usage := agenttrace.InclusiveUsage{
		Input: int64(u.InputTokens), CacheRead: int64(u.CachedContentTokens),
		Output: int64(u.OutputTokens), Reasoning: int64(u.ThoughtsTokens),
	}
	if u.TotalTokens == u.InputTokens+u.OutputTokens+u.ThoughtsTokens {
		usage.Output += usage.Reasoning
	}
	return usage
}

// Tool returns the function of a tool, of that name, whose calls are recorded.
func Tool[In, Out any](name string, fn ai.ToolFunc[In, Out]) ai.ToolFunc[In, Out] {
	return func(ctx *ai.ToolContext, input In) (output Out, err error) {
		w, ok := ctx.Value(workKey{}).(*work)
		if !ok {
			return fn(ctx, input)
		}
		w.mu.Lock()
		if w.turn == nil && ctx.Resumed != nil {
			w.turn, w.begun = w.sessions.ContinueTurn(ctx)
		}
		turn := w.turn
		w.mu.Unlock()
		if turn == nil {
			turn = agenttrace.TurnFromContext(ctx)
		}
		inner, call := adapter.StartTool(ctx, turn, agenttrace.ToolOptions{Name: name, Input: input})
		defer call.Abort() // a panic
		with := *ctx
		with.Context = inner
		output, err = fn(&with, input)
		if waits, about := ai.IsToolInterruptError(err); waits {
			question, _ := json.Marshal(about)
			call.AwaitInput(string(question))
		} else if err != nil {
			call.Fail(err)
		} else {
			call.End(adapter.Output(output))
		}
		return output, err
	}
}
