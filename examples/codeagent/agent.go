package codeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// agent is a conversation between a user and a model about a workspace.
type agent struct {
	tracer  *agenttrace.Tracer
	session *agenttrace.Session
	ws      *workspace
	client  model
	say     func(format string, args ...any)

	model  agenttrace.Model
	prompt string // system prompt
	tools  []tool

	messages []message
	// turns has the index in messages at which each turn begins, and the id of that message.
	turns []turnStart
	// summary replaces the messages that were compacted.
	summary string
	// used is the number of tokens that were last in the model's context. Above limit the context is compacted.
	used, limit int64

	mu       sync.Mutex // guards the fields below
	children []string   // session ids of sub-agents
}

type turnStart struct {
	at            int
	userMessageID string
}

// maxSteps is the maximum number of model calls of a turn.
const maxSteps = 50

// turn processes one user message and returns the finished answer.
func (a *agent) turn(ctx context.Context, run *agenttrace.Run, text string) (answer string, err error) {
	if err := a.compactIfFull(ctx, run); err != nil {
		return "", err
	}
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: text}, agenttrace.TurnOptions{
		Model: a.model, SystemPrompt: a.prompt, Tools: a.catalog(),
	})
	defer turn.Done(&err) // an error or a panic ends the turn as failed

	a.say("\n> %s\n", text)
	a.turns = append(a.turns, turnStart{len(a.messages), turn.UserMessageID()})
	a.messages = append(a.messages, message{Role: "user", Content: text})
	for range maxSteps {
		said, err := a.ask(ctx, turn)
		if err != nil {
			return "", err
		}
		a.messages = append(a.messages, said)
		if len(said.ToolCalls) == 0 {
			return said.Content, nil
		}
		a.messages = append(a.messages, a.callTools(ctx, turn, said.ToolCalls)...)
	}
	return "", fmt.Errorf("answer %q: no end after %d model calls", text, maxSteps)
}

// ask calls the model once and records its output while it arrives.
func (a *agent) ask(ctx context.Context, turn *agenttrace.Turn) (message, error) {
	ctx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	done, err := complete(ctx, a.client, a.request(), call, a.retrying)
	call.End(done.result(), err)
	if err != nil {
		return message{}, err // an open stream is recorded as interrupted
	}
	if a.used = 0; done.usage != nil {
		a.used = done.usage.Input + done.usage.Output
	}
	if done.message.Content != "" {
		a.say("%s\n", done.message.Content)
	}
	return done.message, nil
}

// retrying prints that the model is called again.
func (a *agent) retrying(err error, wait time.Duration) {
	a.say("[%v Trying again in %v.]\n", err, wait)
}

// callTools runs the calls of one step concurrently and returns their results in order.
func (a *agent) callTools(ctx context.Context, turn *agenttrace.Turn, calls []toolCall) []message {
	results := make([]message, len(calls))
	var running sync.WaitGroup
	for i, c := range calls {
		t := a.tool(c.Function.Name)
		ctx, call := turn.StartTool(ctx, agenttrace.ToolOptions{
			ID: c.ID, Name: t.name, Kind: t.kind, Input: json.RawMessage(c.Function.Arguments),
		})
		running.Go(func() {
			output, err := a.callTool(ctx, call, t, c.Function.Arguments)
			if err != nil {
				output = err.Error() // which is what the model gets
			}
			results[i] = message{Role: "tool", ToolCallID: c.ID, Content: output}
		})
	}
	running.Wait()
	for i, c := range calls {
		a.say("  %s %s -> %s\n", c.Function.Name, c.Function.Arguments, firstLine(results[i].Content))
	}
	return results
}

// callTool makes one call, if it is permitted.
func (a *agent) callTool(ctx context.Context, call *agenttrace.ToolCall, t tool, text string) (_ string, err error) {
	defer call.Done(&err) // an error or a panic ends the call as failed
	var args arguments
	if t.call == nil {
		return "", fmt.Errorf("there is no tool %q now", t.name)
	}
	if err := args.read(text); err != nil {
		return "", err
	}
	if d := call.Authorize(ctx, t.subject(args)); !d.Allowed() {
		return d.Err().Error(), nil
	}
	output, err := t.call(ctx, args)
	if err != nil {
		return "", err
	}
	output, truncated, err := a.ws.clip(call.ID(), output)
	if err == nil && truncated != nil {
		call.EndTruncated(output, *truncated)
	} else if err == nil {
		call.End(output)
	}
	return output, err
}

// tool returns the tool with a name. One that the model invented cannot be called.
func (a *agent) tool(name string) tool {
	if i := slices.IndexFunc(a.tools, func(t tool) bool { return t.name == name }); i >= 0 {
		return a.tools[i]
	}
	return tool{name: name, kind: agenttrace.ToolOther}
}

// catalog returns the tools that the model may call now.
func (a *agent) catalog() []agenttrace.Tool {
	tools := make([]agenttrace.Tool, len(a.tools))
	for i, t := range a.tools {
		tools[i] = agenttrace.Tool{Name: t.name, Description: t.description, Parameters: t.schema()}
	}
	return tools
}

// request returns the model's input: prompt, summary, the messages since, and tools.
func (a *agent) request() chatRequest {
	req := chatRequest{Model: a.model.ID, ReasoningEffort: a.model.Variant}
	req.Messages = append(req.Messages, message{Role: "system", Content: a.prompt})
	if a.summary != "" {
		before := "What happened before, in short: " + a.summary
		req.Messages = append(req.Messages, message{Role: "user", Content: before})
	}
	req.Messages = append(req.Messages, a.messages...)
	for _, t := range a.tools {
		req.Tools = append(req.Tools, map[string]any{"type": "function", "function": map[string]any{
			"name": t.name, "description": t.description, "parameters": t.schema(),
		}})
	}
	return req
}

// result converts a completion for the trace. OpenAI counts inclusively.
func (c completion) result() agenttrace.ModelResult {
	r := agenttrace.ModelResult{StopReason: c.finishReason, ResponseID: c.id, ResponseModel: c.model}
	if u := c.usage; u != nil {
		r.RawUsage = u.Raw
		r.Usage = agenttrace.InclusiveUsage{
			Input: u.Input, CacheRead: u.CacheRead, Output: u.Output, Reasoning: u.Reasoning,
		}
	}
	return r
}

func firstLine(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more {
		line += " …"
	}
	return line
}
