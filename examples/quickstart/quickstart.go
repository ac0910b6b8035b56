// Package quickstart is the example of the README: all that it takes to
// instrument an agent.
package quickstart

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/session/otlpbatch"
)

// Agent is what the example instruments: a model to ask and a tool to run.
type Agent interface {
	Ask(ctx context.Context, question string, results []string) (Answer, error)
	Execute(ctx context.Context, c Call) string
}

// Answer is what a model said.
type Answer struct {
	Text, FinishReason        string
	InputTokens, CachedTokens int64
	OutputTokens              int64
	Calls                     []Call
}

// Call is a tool call that a model wants made.
type Call struct{ ID, Name, Command string }

// AnswerQuestion answers a question about the project in dir and sends its spans and
// events to the collector at the usual place.
func AnswerQuestion(ctx context.Context, agent Agent, dir, question, prompt string, tools []agenttrace.Tool, guard agenttrace.Watchdog) (err error) {
	// README:
	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure()) // localhost:4317, where `agenttrace collect` listens
	if err != nil {
		return err
	}
	events, err := otlploggrpc.New(ctx, otlploggrpc.WithInsecure()) // what goes on now, also of an agent that is killed
	if err != nil {
		return err
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(otlpbatch.Spans(spans), sdktrace.WithMaxQueueSize(1<<16))) // in requests that receivers take
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(otlpbatch.Logs(events), sdklog.WithExportInterval(time.Second/4))))
	defer func() {
		ctx := context.WithoutCancel(ctx) // what is still queued is delivered, also when the agent was stopped
		err = errors.Join(err, tp.Shutdown(ctx), lp.Shutdown(ctx))
	}()

	tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp, LoggerProvider: lp, Watchdog: guard, Rules: []agenttrace.Rule{
		{Permission: "bash", Pattern: "go test*", Action: agenttrace.ActionAllow}, // what no rule allows asks a human; with none there, it is denied
	}})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder", WorkspaceRoot: dir})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	defer run.Done(&err)

	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question}, agenttrace.TurnOptions{SystemPrompt: prompt, Tools: tools})
	defer turn.Done(&err) // an error fails it, a panic too
	var results []string
	for {
		callCtx, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
		answer, err := agent.Ask(callCtx, question, results)
		call.Text(answer.Text)
		call.End(agenttrace.ModelResult{StopReason: answer.FinishReason, Usage: agenttrace.InclusiveUsage{
			Input: answer.InputTokens, CacheRead: answer.CachedTokens, Output: answer.OutputTokens,
		}}, err)
		if err != nil || len(answer.Calls) == 0 {
			return err
		}
		for _, c := range answer.Calls {
			toolCtx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: c.ID, Name: c.Name, Input: map[string]any{"command": c.Command}})
			if d := tool.Authorize(toolCtx, c.Command); !d.Allowed() {
				results = append(results, d.Err().Error()) // the model reads why
				continue
			}
			output := agent.Execute(toolCtx, c)
			tool.End(output)
			results = append(results, output)
		}
	}
	// :README
}
