// Package adktrace records agents that are built with google.golang.org/adk: one plugin.
//
//	recorded, err := adktrace.New(tracer, adktrace.Options{Agent: "coder"})
//	runner.New(runner.Config{PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{recorded, …}}, …})
//
// Each run of the runner is a turn of the session that has the id of ADK's session. The calls of
// models and tools in it, also those of sub-agents, are those of the turn.
//
// Where ADK's own spans are exported, too, the calls of models are in their trace: a collector stores them once. What a
// person answers to a tool that runs longer than its turn is in the message of the user that brings it.
//
// Make it the first plugin: a plugin that returns a value hides the callback from those after it.
package adktrace

import (
	"context"
	"errors"
	"strings"
	"sync"

	"google.golang.org/adk/agent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/plugin"
	"google.golang.org/adk/tool"
	"google.golang.org/genai"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/contrib/internal/adapter"
)

// Options configures a plugin. The zero value is ready to use.
type Options struct {
	// Agent names the agent; empty means the name of the program.
	Agent string
}

type recorder struct {
	sessions *adapter.Sessions

	mu   sync.Mutex
	work map[string]*work // by the id of the invocation
}

// work is an invocation, which is a turn.
type work struct {
	ctx   context.Context
	turn  *agenttrace.Turn
	begun adapter.Begun

	mu    sync.Mutex
	err   error                // of the last call of a model
	code  *agenttrace.ToolCall // that the provider executed last
	calls map[string]*answer   // by the agent that calls: those of an invocation may do so at the same time
}

// answer is a call of a model by an agent of the invocation.
type answer struct {
	adapter.Answer
	result  agenttrace.ModelResult
	partial bool // pieces come before the whole
}

// New returns a plugin that records with the tracer.
func New(tracer *agenttrace.Tracer, o Options) (*plugin.Plugin, error) {
	r := &recorder{work: make(map[string]*work)}
	r.sessions = adapter.NewSessions(tracer, o.Agent, func(ctx context.Context) string {
		return ctx.(agent.InvocationContext).Session().ID()
	})
	return plugin.New(plugin.Config{
		Name: "agenttrace", BeforeRunCallback: r.beforeRun, AfterRunCallback: r.afterRun,
		BeforeModelCallback: r.beforeModel, AfterModelCallback: r.afterModel, OnModelErrorCallback: r.modelError,
		BeforeToolCallback: r.beforeTool, AfterToolCallback: r.afterTool, OnToolErrorCallback: r.toolError,
	})
}

func (r *recorder) beforeRun(ctx agent.InvocationContext) (*genai.Content, error) {
	w := newWork(ctx)
	w.ctx, w.turn, w.begun = r.sessions.StartTurn(ctx, userMessage(ctx.UserContent()), agenttrace.TurnOptions{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work[ctx.InvocationID()] = w
	return nil, nil
}

func (r *recorder) afterRun(ctx agent.InvocationContext) {
	r.mu.Lock()
	w := r.work[ctx.InvocationID()]
	delete(r.work, ctx.InvocationID())
	r.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil && w.err == nil {
		w.err = err
	}
	for _, a := range w.calls {
		a.End(a.result, w.err)
	}
	w.begun.Done(&w.err)
}

// of returns the invocation of a callback; one that the plugin does not know records nothing.
func (r *recorder) of(ctx agent.ReadonlyContext) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.work[ctx.InvocationID()]; w != nil {
		return w
	}
	return newWork(ctx)
}

func newWork(ctx context.Context) *work {
	return &work{ctx: ctx, calls: make(map[string]*answer)}
}

// caller identifies an agent.
func caller(ctx agent.ReadonlyContext) string { return ctx.Branch() + "/" + ctx.AgentName() }

func (r *recorder) beforeModel(ctx agent.CallbackContext, req *model.LLMRequest) (*model.LLMResponse, error) {
	w := r.of(ctx)
	m := agenttrace.Model{ID: req.Model}
	if strings.HasPrefix(m.ID, "gemini") {
		m.Provider = "gcp.gemini"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := req.Config; c != nil {
		w.turn.SetSystemPrompt(textOf(c.SystemInstruction))
		w.turn.SetTools(toolsOf(c.Tools))
	}
	w.endCall(ctx, nil)
	a := &answer{}
	_, a.Call = adapter.StartModelCall(ctx, w.turn, agenttrace.ModelCallOptions{Model: m})
	w.calls[caller(ctx)] = a
	return nil, nil
}

// afterModel takes an answer, or a piece of one. Of a streamed answer there are partial pieces, the
// same content once more as a whole, and the tool calls, before the end of which tools may begin.
func (r *recorder) afterModel(
	ctx agent.CallbackContext, resp *model.LLMResponse, err error,
) (*model.LLMResponse, error) {
	w := r.of(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.calls[caller(ctx)]
	if a == nil || resp == nil {
		return nil, nil
	}
	if resp.FinishReason != "" {
		a.result.StopReason = string(resp.FinishReason)
	}
	if resp.UsageMetadata != nil {
		a.result.Usage = usageOf(resp.UsageMetadata)
	}
	if resp.Content != nil {
		a.partial = a.partial || resp.Partial
		for _, p := range resp.Content.Parts {
			switch {
			case !resp.Partial && a.partial: // once more
			case p.Thought:
				a.Reasoning(p.Text)
			default:
				a.Text(p.Text)
			}
			if resp.Partial {
				continue
			}
			w.provided(p)
			if f := p.FunctionCall; f != nil {
				w.turn.StartTool(w.ctx, agenttrace.ToolOptions{
					ID: f.ID, Name: f.Name, Input: inputOf(f.Args), Inferred: true,
				})
			}
		}
	}
	if resp.ErrorCode != "" && err == nil {
		err = errors.New(strings.TrimSpace(resp.ErrorCode + " " + resp.ErrorMessage))
	}
	if err != nil || !resp.Partial && resp.FinishReason != "" {
		w.endCall(ctx, err)
	}
	return nil, nil
}

// provided records files in an answer, and the code that the provider executed for it. The caller holds mu.
func (w *work) provided(p *genai.Part) {
	switch code := p.ExecutableCode; {
	case code != nil:
		_, w.code = w.turn.StartTool(w.ctx, agenttrace.ToolOptions{
			Name: "code_execution", ProviderExecuted: true,
			Input: map[string]any{"code": code.Code, "language": code.Language},
		})
	case p.CodeExecutionResult != nil && p.CodeExecutionResult.Outcome != genai.OutcomeOK:
		w.code.Fail(errors.New(p.CodeExecutionResult.Output))
	case p.CodeExecutionResult != nil:
		w.code.EndText(p.CodeExecutionResult.Output)
	case p.InlineData != nil || p.FileData != nil:
		w.turn.File(fileOf(p))
	}
}

// endCall ends the call of an agent, if one is open. The caller holds mu.
func (w *work) endCall(ctx agent.ReadonlyContext, err error) {
	w.err = err
	if a := w.calls[caller(ctx)]; a != nil {
		delete(w.calls, caller(ctx))
		a.End(a.result, err)
	}
}

func (r *recorder) modelError(
	ctx agent.CallbackContext, _ *model.LLMRequest, err error,
) (*model.LLMResponse, error) {
	w := r.of(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endCall(ctx, err)
	return nil, nil
}

func (r *recorder) beforeTool(ctx tool.Context, t tool.Tool, args map[string]any) (map[string]any, error) {
	w := r.of(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endCall(ctx, nil)
	w.turn.StartTool(w.ctx, agenttrace.ToolOptions{ID: ctx.FunctionCallID(), Name: t.Name(), Input: inputOf(args)})
	return nil, nil
}

func (r *recorder) afterTool(
	ctx tool.Context, _ tool.Tool, _, result map[string]any, err error,
) (map[string]any, error) {
	call := r.of(ctx).turn.Tool(ctx.FunctionCallID())
	if err == nil {
		err = errorOf(result)
	}
	switch {
	case err != nil:
		call.Fail(err)
	case result != nil: // without a result, the tool goes on
		call.End(outputOf(result))
	}
	return nil, nil
}

// toolError records the error of a tool, or that there is none of the name.
func (r *recorder) toolError(ctx tool.Context, _ tool.Tool, _ map[string]any, err error) (map[string]any, error) {
	r.of(ctx).turn.Tool(ctx.FunctionCallID()).Fail(err)
	return nil, nil
}

// errorOf returns the error that a result reports to the model, or nil.
func errorOf(result map[string]any) error {
	switch e := result["error"].(type) {
	case error:
		return e
	case string:
		return errors.New(e)
	}
	return nil
}

// outputOf returns the output of a tool: ADK puts what is not an object under a key.
func outputOf(result map[string]any) any {
	output := any(result)
	for _, key := range [...]string{"result", "output"} {
		if v, ok := result[key]; ok && len(result) == 1 {
			output = v
		}
	}
	return adapter.Output(output) // JSON is recorded as such
}

func inputOf(args map[string]any) map[string]any {
	if args == nil {
		return map[string]any{}
	}
	return args
}

func userMessage(c *genai.Content) (user agenttrace.UserMessage) {
	if c == nil {
		return user
	}
	for _, p := range c.Parts {
		switch {
		case p.Text != "":
			user.Parts = append(user.Parts, agenttrace.TextPart(p.Text))
		case p.FunctionResponse != nil: // what a person or a job answers to a tool that runs longer than its turn
			user.Parts = append(user.Parts, agenttrace.DataPart("tool-response", p.FunctionResponse.ID, map[string]any{
				"tool": p.FunctionResponse.Name, "response": p.FunctionResponse.Response,
			}))
		case p.InlineData != nil || p.FileData != nil:
			user.Parts = append(user.Parts, agenttrace.FilePart(fileOf(p)))
		}
	}
	return user
}

func fileOf(p *genai.Part) agenttrace.File {
	if f := p.FileData; f != nil {
		return agenttrace.File{MediaType: f.MIMEType, URL: f.FileURI, Filename: f.DisplayName}
	}
	f := p.InlineData
	return agenttrace.File{MediaType: f.MIMEType, Bytes: f.Data, Filename: f.DisplayName}
}

func textOf(c *genai.Content) string {
	if c == nil {
		return ""
	}
	text := ""
	for _, p := range c.Parts {
		text = adapter.After(text, p.Text)
	}
	return text
}

func toolsOf(all []*genai.Tool) (tools []agenttrace.Tool) {
	for _, t := range all {
		for _, f := range t.FunctionDeclarations {
			schema := f.ParametersJsonSchema
			if schema == nil {
				schema = f.Parameters
			}
			tools = append(tools, adapter.ToolOf(f.Name, f.Description, schema))
		}
	}
	return tools
}

func usageOf(u *genai.GenerateContentResponseUsageMetadata) agenttrace.Usage {
	return agenttrace.GeminiUsage{
		Prompt: int64(u.PromptTokenCount), Cached: int64(u.CachedContentTokenCount),
		ToolUsePrompt: int64(u.ToolUsePromptTokenCount), Candidates: int64(u.CandidatesTokenCount),
		Thoughts: int64(u.ThoughtsTokenCount),
	}
}
