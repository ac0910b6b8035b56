package agenttrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
)

// A whole turn: the model asks for a tool, the tool may run, the model answers.
func Example() {
	rec := agenttracetest.NewRecorder() // a tracer provider
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})
	ctx := context.Background()

	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{
		Agent: "coder",
		Rules: []agenttrace.Rule{{Permission: "bash", Pattern: "go test *", Action: agenttrace.ActionAllow}},
	})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "do the tests pass?"},
		agenttrace.TurnOptions{SystemPrompt: "You test."})

	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Text("Let me see.")
	call.End(agenttrace.ModelResult{StopReason: "tool_calls",
		Usage: agenttrace.InclusiveUsage{Input: 900, Output: 40, CacheRead: 800}}, nil)

	toolCtx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash",
		Input: json.RawMessage(`{"cmd":"go test ./..."}`)})
	if d := tool.Authorize(toolCtx, "go test ./..."); d.Allowed() {
		tool.End("ok")
	}

	_, call = turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Text("They pass.")
	call.End(agenttrace.ModelResult{StopReason: "stop",
		Usage: agenttrace.InclusiveUsage{Input: 950, Output: 10, CacheRead: 900}}, nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	got := rec.All().Turns()[0]
	for _, part := range got.Assistant.Parts {
		fmt.Printf("%d %s %q\n", part.Index, part.Type, part.ToolState)
	}
	fmt.Printf("%+v %s\n", *got.Usage.Tokens, got.StopReason)
	// Output:
	// 0 text ""
	// 1 tool-bash "output-available"
	// 2 step-start ""
	// 3 text ""
	// {Input:150 Output:50 Reasoning:0 CacheRead:1700 CacheWrite:0} stop
}

func ExampleTracer_ResumeSession() {
	ctx := context.Background()
	tracer := agenttrace.New(agenttrace.Options{})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{ID: "ses_42", Agent: "coder", Title: "Fix the test"})
	stored, _ := json.Marshal(sess.State())

	// Later, in another process:
	var state agenttrace.State
	if err := json.Unmarshal(stored, &state); err != nil {
		fmt.Println(err)
		return
	}
	sess, err := tracer.ResumeSession(ctx, state)
	fmt.Println(sess.ID(), sess.Title(), err)
	// Output: ses_42 Fix the test <nil>
}

func ExampleSession_Fork() {
	rec := agenttracetest.NewRecorder()
	ctx := context.Background()
	sess := agenttrace.New(agenttrace.Options{TracerProvider: rec}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "coder", Title: "Fix the test"})
	_, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "try A"}, agenttrace.TurnOptions{})

	_, err := sess.Fork(ctx, turn.UserMessageID(), agenttrace.ForkOptions{})
	fmt.Println(errors.Is(err, agenttrace.ErrBusy))
	turn.End(agenttrace.TurnResult{})

	child, err := sess.Fork(ctx, turn.UserMessageID(), agenttrace.ForkOptions{})
	fmt.Println(child.Title(), err)
	// Output:
	// true
	// Fix the test (copy) <nil>
}

func ExampleTextStream() {
	rec := agenttracetest.NewRecorder()
	ctx := context.Background()
	sess := agenttrace.New(agenttrace.Options{TracerProvider: rec}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	text := call.StreamText()
	io.Copy(text, strings.NewReader("Hello, "))
	text.WriteString("wor")
	turn.Abort() // the user pressed stop
	run.End(agenttrace.ErrAborted)
	fmt.Println(string(rec.All().Turns()[0].Assistant.Parts[0].Data))
	// Output: {"type":"text","text":"Hello, wor","state":"streaming"}
}

func ExampleModelCall_End() {
	rec := agenttracetest.NewRecorder()
	ctx := context.Background()
	sess := agenttrace.New(agenttrace.Options{TracerProvider: rec}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.Text("hello")
	call.End(agenttrace.ModelResult{
		StopReason: "stop",
		// OpenAI counts cached tokens into the input, and reasoning into the output.
		Usage:    agenttrace.InclusiveUsage{Input: 100, Output: 30, Reasoning: 20, CacheRead: 60},
		RawUsage: json.RawMessage(`{"prompt_tokens":100,"completion_tokens":30}`),
	}, nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	usage := rec.All().ModelCalls()[0].Usage
	fmt.Printf("%+v %s\n", *usage.Tokens, usage.Basis)
	// Output: {Input:40 Output:10 Reasoning:20 CacheRead:60 CacheWrite:0} inclusive
}

func ExampleToolCall_Authorize() {
	ctx := context.Background()
	tracer := agenttrace.New(agenttrace.Options{
		Rules: []agenttrace.Rule{
			{Permission: "bash", Pattern: "*", Action: agenttrace.ActionAllow},
			{Permission: "bash", Pattern: "git push*", Action: agenttrace.ActionDeny},
		},
		Watchdog: func(_ context.Context, call agenttrace.ToolRequest) agenttrace.Verdict {
			if strings.Contains(call.Input, "/etc/") {
				return agenttrace.Deny("outside the workspace")
			}
			return agenttrace.Allow()
		},
	})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	for _, cmd := range []string{"ls", "git push", "cat /etc/passwd"} {
		ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash", Input: map[string]string{"cmd": cmd}})
		if err := tool.Authorize(ctx, cmd).Err(); err != nil {
			fmt.Println(err) // for the model
			continue
		}
		tool.End("ran " + cmd)
		fmt.Println("ran", cmd)
	}
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	// Output:
	// ran ls
	// permission denied: the manifest denies bash git push*
	// permission denied: outside the workspace
}

func ExampleRun_ContinueTurn() {
	rec := agenttracetest.NewRecorder()
	ctx := context.Background()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec,
		Approver: func(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
			return agenttrace.Answer{Reply: agenttrace.ReplyLater}, nil // nobody is at the keyboard
		}})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder"})
	runCtx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	turnCtx, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "deploy"}, agenttrace.TurnOptions{})
	toolCtx, tool := turn.StartTool(turnCtx, agenttrace.ToolOptions{ID: "call_1", Name: "deploy",
		Input: json.RawMessage(`{}`)})
	fmt.Println(tool.Authorize(toolCtx, "prod").Pending())
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	// Days later, with sess resumed from its state:
	runCtx, run = sess.StartRun(ctx, agenttrace.RunOptions{})
	turnCtx, turn, _ = run.ContinueTurn(runCtx, agenttrace.TurnOptions{})
	for _, waiting := range turn.PendingTools() {
		_, tool, decision, _ := turn.ResumeTool(turnCtx, waiting.CallID, agenttrace.Answer{Reply: agenttrace.ReplyOnce})
		if decision.Allowed() {
			tool.End("deployed")
		}
	}
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	for _, t := range rec.All().Turns() {
		fmt.Println(*t.Index, t.PendingApproval, t.Assistant.Parts[0].ToolState)
	}
	// Output:
	// true
	// 0 true approval-requested
	// 0 false output-available
}

func ExampleStartTool() {
	rec := agenttracetest.NewRecorder()
	ctx := context.Background()
	sess := agenttrace.New(agenttrace.Options{TracerProvider: rec}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})

	// A helper needs nothing but the context.
	readFile := func(ctx context.Context, path string) {
		_, tool := agenttrace.StartTool(ctx,
			agenttrace.ToolOptions{Name: "read", Input: map[string]string{"path": path}, Kind: agenttrace.ToolRead})
		tool.End("package main")
	}
	readFile(ctx, "main.go")

	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	fmt.Println(rec.All().ToolCalls("read")[0].Input)
	// Output: {"path":"main.go"}
}

// An agent that may call tools three times asks whether it should stop.
func ExampleTurn_Err() {
	ctx := context.Background()
	tracer := agenttrace.New(agenttrace.Options{Limits: agenttrace.Limits{MaxToolCalls: 3}})
	ctx, run := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder"}).StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	for {
		_, tool := turn.StartTool(ctx, agenttrace.ToolOptions{Name: "bash", Input: map[string]string{"cmd": "ls"}})
		if err := turn.Err(); err != nil {
			fmt.Println(err)
			turn.Fail(err)
			run.End(err)
			break
		}
		tool.End("a.go")
	}
	// Output: limit passed: MaxToolCalls is 3, have 4
}
