// Package langchaintrace records agents that are built with github.com/tmc/langchaingo.
//
//	h := langchaintrace.New(tracer, langchaintrace.Options{Agent: "coder"})
//	agent := agents.NewOpenAIFunctionsAgent(h.Model(llm), h.Tools(all...))
//	chain := h.Chain(agents.NewExecutor(agent, agents.WithCallbacksHandler(h)))
//
// A run of the chain is a turn; the calls of the model and of the tools in its context are those of
// the turn. A call of the model without a turn is one by itself.
//
// The callbacks of langchaingo alone do not suffice: they return no context, have neither the tools
// nor the settings of a request, and some models do not report how a call ended.
package langchaintrace

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tmc/langchaingo/callbacks"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/tools"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/contrib/internal/adapter"
)

// Options configures a [Handler]. The zero value is ready to use.
type Options struct {
	// Agent names the agent; empty means the name of the program.
	Agent string
	// Model is that of calls without llms.WithModel: langchaingo does not show the one that a model was made with.
	Model agenttrace.Model
	// SessionID returns the id of the session that a turn belongs to, or "" for a new session. Nil
	// knows none. A run or a turn in the context takes precedence.
	SessionID func(ctx context.Context) string
}

// Handler records what chains, models and tools do, if it is put around them. It is also the
// [callbacks.Handler] of executors. It is safe for concurrent use.
type Handler struct {
	callbacks.SimpleHandler
	sessions *adapter.Sessions
	model    agenttrace.Model
}

// New returns a handler that records with the tracer.
func New(tracer *agenttrace.Tracer, o Options) *Handler {
	return &Handler{sessions: adapter.NewSessions(tracer, o.Agent, o.SessionID), model: o.Model}
}

// Chain returns a chain each run of which is a turn.
func (h *Handler) Chain(c chains.Chain) chains.Chain { return &chain{c, h} }

type chain struct {
	chains.Chain
	h *Handler
}

// GetCallbackHandler implements [callbacks.HandlerHaver].
func (c *chain) GetCallbackHandler() callbacks.Handler {
	if haver, ok := c.Chain.(callbacks.HandlerHaver); ok {
		return haver.GetCallbackHandler()
	}
	return nil
}

func (c *chain) Call(
	ctx context.Context, inputs map[string]any, options ...chains.ChainCallOption,
) (outputs map[string]any, err error) {
	ctx, _, begun := c.h.sessions.StartTurn(ctx, agenttrace.UserMessage{Text: c.question(inputs)},
		agenttrace.TurnOptions{Model: c.h.model})
	defer begun.Done(&err)
	return c.Chain.Call(ctx, inputs, options...)
}

// question returns the one input that is not the chain's memory.
func (c *chain) question(inputs map[string]any) string {
	for _, key := range c.GetInputKeys() {
		if text, ok := inputs[key].(string); ok {
			return text
		}
	}
	data, err := json.Marshal(inputs)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tools returns tools whose calls are recorded.
func (h *Handler) Tools(all ...tools.Tool) []tools.Tool {
	recorded := make([]tools.Tool, len(all))
	for i, t := range all {
		recorded[i] = recordedTool{t}
	}
	return recorded
}

type recordedTool struct{ tools.Tool }

func (t recordedTool) Call(ctx context.Context, input string) (output string, err error) {
	ctx, call := agenttrace.StartTool(ctx, agenttrace.ToolOptions{Name: t.Name(), Input: input})
	defer call.Abort() // a panic
	if output, err = t.Tool.Call(ctx, input); err != nil {
		call.Fail(err)
	} else {
		call.End([]byte(output))
	}
	return output, err
}

// Model returns a model whose calls are recorded.
func (h *Handler) Model(m llms.Model) llms.Model { return &recordedModel{m, h} }

type recordedModel struct {
	llms.Model
	h *Handler
}

func (m *recordedModel) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, m, prompt, options...)
}

func (m *recordedModel) GenerateContent(
	ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption,
) (response *llms.ContentResponse, err error) {
	var o llms.CallOptions
	for _, option := range options {
		option(&o)
	}
	model := m.h.model
	if o.Model != "" {
		model.ID = o.Model
	}
	system, question := asked(messages)
	ctx, turn, begun := m.h.sessions.StartTurn(ctx, question, agenttrace.TurnOptions{Model: model})
	defer begun.Done(&err)
	turn.SetSystemPrompt(system)
	turn.SetTools(toolsOf(&o))
	endTools(turn, messages)
	callCtx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{Model: model})
	response, err = m.Model.GenerateContent(callCtx, messages, options...)
	if err != nil || len(response.Choices) == 0 {
		call.End(agenttrace.ModelResult{}, err)
		return response, err
	}
	choices := response.Choices
	if o.N > 1 || o.CandidateCount > 1 {
		choices = choices[:1] // the others are alternatives
	}
	// The model of Anthropic has a choice for each block of one answer.
	for _, c := range choices {
		reasoning := c.ReasoningContent
		if reasoning == "" && c.Content == "" {
			reasoning, _ = c.GenerationInfo["ThinkingContent"].(string)
		}
		if reasoning != "" {
			call.Reasoning(reasoning)
		}
		if c.Content != "" {
			call.Text(c.Content)
		}
	}
	call.End(agenttrace.ModelResult{
		StopReason: choices[0].StopReason, Usage: usageOf(choices[0].GenerationInfo),
	}, nil)
	for _, c := range choices {
		for _, t := range c.ToolCalls {
			if t.FunctionCall != nil {
				turn.StartTool(ctx, agenttrace.ToolOptions{
					ID: t.ID, Name: t.FunctionCall.Name, Input: []byte(t.FunctionCall.Arguments), Inferred: true,
				})
			}
		}
	}
	return response, nil
}

// asked returns the system prompt of a request and the last message of the user.
func asked(messages []llms.MessageContent) (system string, question agenttrace.UserMessage) {
	for _, m := range messages {
		var user agenttrace.UserMessage
		for _, p := range m.Parts {
			switch p := p.(type) {
			case llms.TextContent:
				user.Text += p.Text
			case llms.ImageURLContent:
				user.Parts = append(user.Parts, agenttrace.FilePart(agenttrace.File{MediaType: "image/*", URL: p.URL}))
			case llms.BinaryContent:
				user.Parts = append(user.Parts, agenttrace.FilePart(agenttrace.File{MediaType: p.MIMEType, Bytes: p.Data}))
			}
		}
		switch m.Role {
		case llms.ChatMessageTypeSystem:
			system = adapter.After(system, user.Text)
		case llms.ChatMessageTypeHuman, llms.ChatMessageTypeGeneric:
			question = user
		}
	}
	return system, question
}

// endTools ends the calls whose results are in a request, if nobody else has. Some servers number the calls of each
// answer: of results with one id the last is that of the open call.
func endTools(turn *agenttrace.Turn, messages []llms.MessageContent) {
	for _, m := range slices.Backward(messages) {
		for _, p := range m.Parts {
			if r, ok := p.(llms.ToolCallResponse); ok {
				turn.Tool(r.ToolCallID).End([]byte(r.Content))
			}
		}
	}
}

func toolsOf(o *llms.CallOptions) (all []agenttrace.Tool) {
	functions := o.Functions
	for _, t := range o.Tools {
		if t.Function != nil {
			functions = append(functions[:len(functions):len(functions)], *t.Function)
		}
	}
	for _, f := range functions {
		all = append(all, adapter.ToolOf(f.Name, f.Description, f.Parameters))
	}
	return all
}

// usageOf returns the tokens of a call under the names that models of langchaingo use, or nil.
func usageOf(info map[string]any) agenttrace.Usage {
	n := func(key string) int64 {
		switch v := info[key].(type) {
		case int:
			return int64(v)
		case int32:
			return int64(v)
		case int64:
			return v
		}
		return 0
	}
	switch {
	case n("PromptTokens")+n("CompletionTokens") > 0:
		return agenttrace.InclusiveUsage{
			Input: n("PromptTokens"), CacheRead: n("PromptCachedTokens"),
			Output: n("CompletionTokens"), Reasoning: n("ReasoningTokens"),
		}
	case n("InputTokens")+n("OutputTokens") > 0: // Anthropic's input excludes the cache
		return agenttrace.ExclusiveUsage{
			Input: n("InputTokens"), CacheRead: n("CacheReadInputTokens"), CacheWrite: n("CacheCreationInputTokens"),
			Output: n("OutputTokens"),
		}
	case n("input_tokens")+n("output_tokens") > 0:
		return agenttrace.InclusiveUsage{Input: n("input_tokens"), Output: n("output_tokens")}
	}
	return nil
}
