// Package codeagent is a small coding agent that is instrumented with agenttrace. It is meant to be read and
// copied: agent.go has the loop of an agent and the calls that record it, review.go starts a sub-agent, compact.go
// keeps the context small, and codeagent.go has the permissions.
//
// Without a real model it plays a conversation from a script: the model's answers are
// scripted; tools, tests and telemetry are real.
package codeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// Config configures the agent. The zero Config runs the demo.
type Config struct {
	// TracerProvider and LoggerProvider receive the telemetry; the caller flushes them. Nil means the global ones.
	TracerProvider trace.TracerProvider
	LoggerProvider log.LoggerProvider

	// Workspace is the directory of a Go project. Empty means a copy of a small project
	// with a failing test, which is removed at the end.
	Workspace string

	// Prompts are the user messages, one per turn. A prompt that begins with a slash is a command: /plan and /build
	// change the mode, "/model NAME [VARIANT]" the model. Nil means the prompts of the demo.
	Prompts []string

	// BaseURL and APIKey select a server with the OpenAI Chat Completions API. With
	// APIKey only, it is OpenAI's own server. With neither, the model is a script.
	BaseURL, APIKey string
	// Model is the name of the model. Empty means gpt-5-mini.
	Model string
	// ContextTokens is the size of the model's context above which it is compacted. 0
	// means 100000 for a real model, and less for the script, so the demo is compacted.
	ContextTokens int64

	// Approve is called for a tool call that no rule allows or denies. Nil means that
	// such calls are denied, except those of the script, which are approved.
	Approve agenttrace.Approver

	// Progress receives the conversation as text; it may be nil.
	Progress io.Writer
}

// Result is the outcome of a run.
type Result struct {
	SessionID       string
	ChildSessionIDs []string
	// TraceIDs are the trace ids of the run, none if it was not recorded.
	TraceIDs []string
	// TestsPass reports that "go test ./..." passed in the workspace at the end.
	TestsPass bool
	// Workspace is the directory in which the agent worked. It no longer exists if it was a copy.
	Workspace string
}

const (
	defaultModel   = "gpt-5-mini"
	openAI         = "https://api.openai.com/v1"
	contextTokens  = 100_000
	scriptedTokens = 1_200
	scriptedPace   = 3 * time.Millisecond
)

// rules lists the calls that are allowed or denied without a question. All others need approval.
var rules = []agenttrace.Rule{
	{Permission: "read", Pattern: "*", Action: agenttrace.ActionAllow, Source: agenttrace.SourceManifest},
	{Permission: "search", Pattern: "*", Action: agenttrace.ActionAllow, Source: agenttrace.SourceManifest},
	{Permission: "edit", Pattern: "*", Action: agenttrace.ActionAllow, Source: agenttrace.SourceManifest},
	{Permission: "review", Pattern: "*", Action: agenttrace.ActionAllow, Source: agenttrace.SourceManifest},
	{Permission: "run", Pattern: "go test*", Action: agenttrace.ActionAllow, Source: agenttrace.SourceProject},
	{Permission: "run", Pattern: "git push*", Action: agenttrace.ActionDeny, Source: agenttrace.SourceProject},
}

// watchdog denies some calls that the rules allow.
func watchdog(_ context.Context, call agenttrace.ToolRequest) agenttrace.Verdict {
	if program, _, _ := strings.Cut(call.Subject, " "); call.ToolID == "run" && program == "rm" {
		return agenttrace.Deny("files are deleted by people, not by the agent")
	}
	return agenttrace.Allow()
}

// ApproveAll is an [agenttrace.Approver] that allows each call.
func ApproveAll(context.Context, agenttrace.Question) (agenttrace.Answer, error) {
	return agenttrace.Answer{Reply: agenttrace.ReplyOnce}, nil
}

// Run processes the prompts and then runs the project's tests. The error is the reason
// why the agent could not continue; the result has what it reached. A tool that fails or
// is denied is not an error of Run, because the model handles it.
func Run(ctx context.Context, c Config) (result Result, err error) {
	scripted := c.BaseURL == "" && c.APIKey == ""
	c.Model = cmp.Or(c.Model, defaultModel)
	if c.Prompts == nil {
		c.Prompts = demoPrompts(c.Model)
	}
	if scripted {
		c.ContextTokens = cmp.Or(c.ContextTokens, scriptedTokens)
		if c.Approve == nil {
			c.Approve = ApproveAll
		}
	}

	ws, err := openWorkspace(c.Workspace)
	if err != nil {
		return result, err
	}
	result.Workspace = ws.dir
	defer func() {
		err = errors.Join(err, ws.root.Close())
		if c.Workspace == "" {
			err = errors.Join(err, os.RemoveAll(ws.dir))
		}
	}()

	say := stdlog.New(cmp.Or(c.Progress, io.Discard), "", 0).Printf // which tools that run concurrently may call
	if c.Workspace == "" {
		say("[If Go's build cache is empty, the first command of the demo takes a minute or more.]\n")
	}
	tracer := agenttrace.New(agenttrace.Options{
		TracerProvider: c.TracerProvider, LoggerProvider: c.LoggerProvider,
		Rules: rules, Watchdog: watchdog, Approver: c.Approve,
	})
	a := &agent{
		tracer: tracer, ws: ws, say: say,
		model: agenttrace.Model{Provider: "openai", ID: c.Model},
		limit: cmp.Or(c.ContextTokens, contextTokens),
	}
	if scripted {
		a.client = &scriptedModel{pace: scriptedPace, asked: make(map[string]int64)}
	} else {
		remote := &client{baseURL: cmp.Or(c.BaseURL, openAI), apiKey: c.APIKey}
		remote.http.Transport = http.DefaultTransport.(*http.Transport).Clone()
		defer remote.http.CloseIdleConnections()
		a.client = remote
	}
	a.session = tracer.NewSession(ctx, agenttrace.SessionOptions{
		Agent: "codeagent", WorkspaceRoot: ws.dir, Mode: "build",
	})
	result.SessionID = a.session.ID()
	a.equip("build")

	ctx, run := a.session.StartRun(ctx, agenttrace.RunOptions{Model: a.model})
	defer run.Done(&err)
	if id := run.SpanContext().TraceID(); id.IsValid() {
		result.TraceIDs = []string{id.String()}
	}
	for _, prompt := range c.Prompts {
		err := a.hear(ctx, run, prompt)
		result.ChildSessionIDs = a.children
		if err != nil {
			return result, err
		}
	}
	out, err := ws.run(ctx, "go test ./...")
	result.TestsPass = err == nil
	a.say("\n%s", out)
	return result, ctx.Err()
}

// hear processes a user message: a command to the agent or a prompt for the model. The
// first prompt becomes the session's title.
func (a *agent) hear(ctx context.Context, run *agenttrace.Run, text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case words[0] == "/plan" || words[0] == "/build":
		a.session.SetMode(ctx, words[0][1:])
		a.equip(words[0][1:])
	case words[0] == "/model" && len(words) > 1:
		a.model.ID, a.model.Variant = words[1], strings.Join(words[2:], " ")
	case words[0][0] == '/':
		return fmt.Errorf("read command %q: want /plan, /build or /model NAME [VARIANT]", text)
	default:
		if a.session.Title() == "" {
			a.session.SetTitle(ctx, firstLine(text))
		}
		_, err := a.turn(ctx, run, text)
		return err
	}
	return nil
}

// equip sets the prompt and the tools of a mode. The tools of plan mode do not change files.
func (a *agent) equip(mode string) {
	a.prompt = "You are codeagent, a careful programmer. You work on a Go project with the tools that you have. " +
		"Look before you change anything, call tools that do not depend on each other at once, and be brief."
	a.tools = append(readTools(a.ws), runTool(a.ws))
	if mode == "plan" {
		a.prompt += "\n\nYou are in plan mode: find out and explain, but change nothing."
		return
	}
	a.tools = append(a.tools, editTool(a.ws), reviewTool(a))
}
