// Package quickstart is the example in docs/instrument.md: everything that is needed to instrument an agent.
package quickstart

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
)

// Agent is the agent that the example instruments: it has a model and a tool.
type Agent interface {
	Ask(ctx context.Context, question string, results []string) (Answer, error)
	Execute(ctx context.Context, c Call) string
}

// Answer is a model's answer.
type Answer struct {
	Text, FinishReason        string
	InputTokens, CachedTokens int64
	OutputTokens              int64
	Calls                     []Call
}

// Call is a tool call that a model requested.
type Call struct{ ID, Name, Command string }

// AnswerQuestion answers a question about the project in dir. It sends its spans and
// events to the collector at the default endpoint.
func AnswerQuestion(
	ctx context.Context, agent Agent, dir, question, prompt string, tools []agenttrace.Tool, guard agenttrace.Watchdog,
) (err error) {
	// begin example
	// Spans and live events go to `agenttrace collect` on localhost:4317; OTEL_* variables can change that.
	shutdown, err := setup.Init(ctx)
	if err != nil {
		return err
	}
	// Deliver what is queued even if the agent was cancelled; an error counts what no collector accepted.
	defer func() { err = errors.Join(err, shutdown(context.WithoutCancel(ctx))) }()

	// A call that no rule allows needs approval; without an approver it is denied.
	rules := []agenttrace.Rule{{Permission: "bash", Pattern: "go test*", Action: agenttrace.ActionAllow}}
	tracer := agenttrace.New(agenttrace.Options{
		LoggerProvider: otel.GetLoggerProvider(), Watchdog: guard, Rules: rules,
	})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder", WorkspaceRoot: dir})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	defer run.Done(&err)

	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question},
		agenttrace.TurnOptions{SystemPrompt: prompt, Tools: tools})
	defer turn.Done(&err) // an error or a panic ends the turn as failed
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
			toolCtx, tool := turn.StartTool(ctx,
				agenttrace.ToolOptions{ID: c.ID, Name: c.Name, Input: map[string]any{"command": c.Command}})
			if d := tool.Authorize(toolCtx, c.Command); !d.Allowed() {
				results = append(results, d.Err().Error()) // the reason is the result that the model reads
				continue
			}
			output := agent.Execute(toolCtx, c)
			tool.End(output)
			results = append(results, output)
		}
	}
	// end example
}
