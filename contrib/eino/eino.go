// Package einotrace records agents that are built with github.com/cloudwego/eino: one handler for
// the callbacks of all components.
//
//	handler := einotrace.New(tracer, einotrace.Options{Agent: "coder"})
//	callbacks.AppendGlobalHandlers(handler) // or compose.WithCallbacks(handler) for one call
//
// The outermost component that runs, such as the graph of an agent, is a turn if it calls a chat model; it begins
// with the last message of the user in the model's first request. The calls of models and tools below it are those
// of the turn. A turn that the program began itself with package agenttrace has them instead.
//
// A call of a tool that interrupts waits for a human. A graph that is resumed goes on with the turn, if it has the id of
// its session: see [Options].
//
// A streamed answer is recorded as the framework delivers it; a turn ends when the stream of its
// graph has been read to its end. [Handler.Close] waits for that.
package einotrace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/contrib/internal/adapter"
)

// Options configures a handler. The zero value is ready to use.
type Options struct {
	// Agent names the agent; empty means the name of the program.
	Agent string
	// SessionID returns the id of the session that a turn belongs to, or "" for a new session. Nil
	// knows none. A run or a turn in the context takes precedence.
	SessionID func(ctx context.Context) string
}

// patience is how long tools wait for the answer that requests them to be recorded, which the
// framework has delivered by then, and how long the agent waits for streams at the end of a turn.
const patience = 100 * time.Millisecond

// Handler records what the components do. Make one with [New], and share it; it is safe for concurrent use.
type Handler struct {
	callbacks.Handler
	sessions *adapter.Sessions
	reading  sync.WaitGroup
}

// New returns a handler that records with the tracer.
func New(tracer *agenttrace.Tracer, o Options) *Handler {
	h := &Handler{sessions: adapter.NewSessions(tracer, o.Agent, o.SessionID)}
	h.Handler = callbacks.NewHandlerBuilder().
		OnStartFn(h.start).OnStartWithStreamInputFn(h.startStream).
		OnEndFn(h.end).OnEndWithStreamOutputFn(h.endStream).OnErrorFn(h.fail).Build()
	return h
}

// Close waits until the streams that have begun are recorded, to their ends. Call it before the
// tracer provider is shut down. The handler goes on to work. It always returns nil.
func (h *Handler) Close() error {
	h.reading.Wait()
	return nil
}

// work is what the outermost component does.
type work struct {
	mu      sync.Mutex
	turn    *agenttrace.Turn
	begun   adapter.Begun
	latest  chan struct{} // closed when the latest streamed answer is recorded
	streams sync.WaitGroup
}

// frame is a component that runs.
type frame struct {
	*work
	outermost bool
	call      *agenttrace.ModelCall
	tool      *agenttrace.ToolCall
	ctx       context.Context
}

type frameKey struct{}

func frameOf(ctx context.Context) *frame {
	f, _ := ctx.Value(frameKey{}).(*frame)
	return f
}

// enter returns the frame of a component that starts.
func enter(ctx context.Context) *frame {
	if outer := frameOf(ctx); outer != nil {
		return &frame{work: outer.work}
	}
	return &frame{work: &work{}, outermost: true}
}

func (h *Handler) start(ctx context.Context, info *callbacks.RunInfo, input callbacks.CallbackInput) context.Context {
	f := enter(ctx)
	switch info.Component {
	case components.ComponentOfChatModel:
		if in := model.ConvCallbackInput(input); in != nil {
			turn := h.begin(ctx, f, info, in)
			ctx, f.call = turn.StartModelCall(ctx, agenttrace.ModelCallOptions{Model: modelOf(info, in)})
			f.ctx = ctx
		}
	case compose.ComponentOfToolsNode:
		if m, ok := input.(*schema.Message); ok {
			f.requested(ctx, m.ToolCalls)
		}
	case components.ComponentOfTool:
		if in := tool.ConvCallbackInput(input); in != nil {
			ctx, f.tool = adapter.StartTool(ctx, h.resumed(ctx, f), agenttrace.ToolOptions{
				ID: compose.GetToolCallID(ctx), Name: info.Name, Input: []byte(in.ArgumentsInJSON),
			})
		}
	}
	return context.WithValue(ctx, frameKey{}, f)
}

func (h *Handler) startStream(
	ctx context.Context, _ *callbacks.RunInfo, input *schema.StreamReader[callbacks.CallbackInput],
) context.Context {
	input.Close()
	return context.WithValue(ctx, frameKey{}, enter(ctx))
}

// begin returns the turn of a model call, and begins it with the first one.
func (h *Handler) begin(
	ctx context.Context, f *frame, info *callbacks.RunInfo, in *model.CallbackInput,
) *agenttrace.Turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if turn := agenttrace.TurnFromContext(ctx); turn != nil {
		return turn
	}
	if f.turn == nil {
		o := agenttrace.TurnOptions{Model: modelOf(info, in), Tools: toolsOf(in.Tools)}
		var user agenttrace.UserMessage
		for _, m := range in.Messages {
			switch m.Role {
			case schema.System:
				o.SystemPrompt = adapter.After(o.SystemPrompt, m.Content)
			case schema.User:
				user = userMessage(m)
			}
		}
		_, f.turn, f.begun = h.sessions.StartTurn(ctx, user, o)
	}
	return f.turn
}

// resumed is current for a call of a tool: where that is the first of a graph, it goes on after an interrupt.
func (h *Handler) resumed(ctx context.Context, f *frame) *agenttrace.Turn {
	turn := f.current(ctx)
	if turn == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.turn, f.begun = h.sessions.ContinueTurn(ctx)
		turn = f.turn
	}
	return turn
}

// current returns the turn that a component belongs to, or nil.
func (f *frame) current(ctx context.Context) *agenttrace.Turn {
	if turn := agenttrace.TurnFromContext(ctx); turn != nil {
		return turn
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.turn
}

// requested records the tool calls of an answer before any of them begins, so that their parts have
// the order of the answer.
func (f *frame) requested(ctx context.Context, calls []schema.ToolCall) {
	f.mu.Lock()
	latest := f.latest
	f.mu.Unlock()
	if latest != nil {
		select {
		case <-latest:
		case <-time.After(patience):
		}
	}
	announce(ctx, f.current(ctx), calls)
}

func announce(ctx context.Context, turn *agenttrace.Turn, calls []schema.ToolCall) {
	for _, c := range calls {
		turn.StartTool(ctx, agenttrace.ToolOptions{
			ID: c.ID, Name: c.Function.Name, Input: []byte(c.Function.Arguments), Inferred: true,
		})
	}
}

func (h *Handler) end(ctx context.Context, _ *callbacks.RunInfo, output callbacks.CallbackOutput) context.Context {
	if f := frameOf(ctx); f != nil {
		h.leave(f, f.record(func(yield func(callbacks.CallbackOutput, error) bool) { yield(output, nil) }))
	}
	return ctx
}

func (h *Handler) fail(ctx context.Context, _ *callbacks.RunInfo, err error) context.Context {
	if f := frameOf(ctx); f != nil {
		f.call.End(agenttrace.ModelResult{}, err)
		h.leave(f, f.failed(err))
	}
	return ctx
}

// failed records the error of a component, and returns it. An interrupt is none: the call of the tool waits for a
// human.
func (f *frame) failed(err error) error {
	info, waits := compose.IsInterruptRerunError(err)
	if waits {
		question, _ := info.(string)
		f.tool.AwaitInput(question)
	}
	if _, interrupted := compose.ExtractInterruptInfo(err); waits || interrupted {
		return nil
	}
	f.tool.Fail(err)
	return err
}

// leave ends the turn if its component is the one that ends. The agent waits for what is left of streams, but not for
// one that goes on although nobody reads it.
func (h *Handler) leave(f *frame, err error) {
	if !f.outermost {
		return
	}
	left := make(chan struct{})
	h.reading.Go(func() {
		defer close(left)
		f.streams.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.begun.Done(&err)
	})
	select {
	case <-left:
	case <-time.After(patience):
	}
}

func (h *Handler) endStream(
	ctx context.Context, _ *callbacks.RunInfo, output *schema.StreamReader[callbacks.CallbackOutput],
) context.Context {
	f := frameOf(ctx)
	if f == nil || f.call == nil && f.tool == nil && !f.outermost {
		output.Close()
		return ctx
	}
	done := make(chan struct{})
	if f.call != nil {
		f.mu.Lock()
		f.latest = done
		f.mu.Unlock()
	}
	if !f.outermost {
		f.streams.Add(1)
	}
	h.reading.Go(func() {
		defer output.Close()
		defer close(done)
		if !f.outermost {
			defer f.streams.Done()
		}
		h.leave(f, f.record(func(yield func(callbacks.CallbackOutput, error) bool) {
			for {
				chunk, err := output.Recv()
				if errors.Is(err, io.EOF) || !yield(chunk, err) || err != nil {
					return
				}
			}
		}))
	})
	return ctx
}

// record records what a component puts out, in one piece or several, and returns the error that it ends with.
func (f *frame) record(output iter.Seq2[callbacks.CallbackOutput, error]) error {
	switch {
	case f.call != nil:
		return f.recordAnswer(output)
	case f.tool != nil:
		return f.recordOutput(output)
	}
	for _, err := range output {
		if err != nil {
			return err
		}
	}
	return nil
}

// recordAnswer records an answer as it comes.
func (f *frame) recordAnswer(output iter.Seq2[callbacks.CallbackOutput, error]) (failure error) {
	answer := adapter.Answer{Call: f.call}
	var messages []*schema.Message
	whole := &model.CallbackOutput{}
	for chunk, err := range output {
		failure = err
		out := model.ConvCallbackOutput(chunk)
		if err != nil || out == nil {
			continue
		}
		whole.TokenUsage = cmp.Or(out.TokenUsage, whole.TokenUsage)
		if out.Message != nil {
			messages = append(messages, out.Message)
			answer.Reasoning(out.Message.ReasoningContent)
			answer.Text(out.Message.Content)
		}
	}
	var err error
	if whole.Message, err = schema.ConcatMessages(messages); err != nil {
		whole.Message = &schema.Message{}
	}
	answer.End(resultOf(whole), failure)
	announce(f.ctx, f.current(f.ctx), whole.Message.ToolCalls)
	return failure
}

func (f *frame) recordOutput(output iter.Seq2[callbacks.CallbackOutput, error]) error {
	var text strings.Builder
	for chunk, err := range output {
		if err != nil {
			return f.failed(err)
		}
		out := tool.ConvCallbackOutput(chunk)
		switch {
		case out == nil:
		case out.ToolOutput != nil: // comes as a whole
			f.tool.End(out.ToolOutput)
			return nil
		default:
			text.WriteString(out.Response)
		}
	}
	f.tool.End([]byte(text.String()))
	return nil
}

func modelOf(info *callbacks.RunInfo, in *model.CallbackInput) agenttrace.Model {
	m := agenttrace.Model{Provider: strings.ToLower(info.Type)}
	if in.Config != nil {
		m.ID = in.Config.Model
	}
	return m
}

func resultOf(out *model.CallbackOutput) (r agenttrace.ModelResult) {
	var meta schema.ResponseMeta
	if out.Message.ResponseMeta != nil {
		meta = *out.Message.ResponseMeta
	}
	r.StopReason = meta.FinishReason
	switch u, m := out.TokenUsage, meta.Usage; {
	case u != nil:
		r.Usage = usageOf(u.PromptTokens, u.PromptTokenDetails.CachedTokens, u.CompletionTokens,
			u.CompletionTokensDetails.ReasoningTokens)
	case m != nil:
		r.Usage = usageOf(m.PromptTokens, m.PromptTokenDetails.CachedTokens, m.CompletionTokens,
			m.CompletionTokensDetails.ReasoningTokens)
	}
	return r
}

func usageOf(input, cached, output, reasoning int) agenttrace.Usage {
	return agenttrace.InclusiveUsage{
		Input: int64(input), CacheRead: int64(cached), Output: int64(output), Reasoning: int64(reasoning),
	}
}

func userMessage(m *schema.Message) agenttrace.UserMessage {
	user := agenttrace.UserMessage{Text: m.Content}
	for _, p := range m.UserInputMultiContent {
		if p.Type == schema.ChatMessagePartTypeText {
			user.Parts = append(user.Parts, agenttrace.TextPart(p.Text))
		} else {
			user.Parts = append(user.Parts, agenttrace.DataPart("file", "", map[string]string{"type": string(p.Type)}))
		}
	}
	return user
}

func toolsOf(infos []*schema.ToolInfo) (tools []agenttrace.Tool) {
	for _, t := range infos {
		schema, _ := t.ToJSONSchema() // without it, the tool has none
		tools = append(tools, adapter.ToolOf(t.Name, t.Desc, schema))
	}
	return tools
}
