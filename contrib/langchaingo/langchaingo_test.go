package langchaintrace_test

import (
	"fmt"
	"testing"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/anthropic"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	langchaintrace "github.com/agenttrace/agenttrace/contrib/langchaingo"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

// TestConformanceOfALoop has an agent without chains, on a model whose answers have a choice for
// each of their blocks. The tools do not get the ids of their calls.
func TestConformanceOfALoop(t *testing.T) {
	e2e.Test(t, e2e.Program{API: e2e.Named("anthropic"), Run: loop})
}

func loop(c *e2e.Console) error {
	h := langchaintrace.New(c.Tracer, langchaintrace.Options{Model: agenttrace.Model{Provider: "anthropic"}})
	llm, err := anthropic.New(anthropic.WithToken("key"), anthropic.WithModel("claude-x"),
		anthropic.WithBaseURL(c.URL+"/v1"), anthropic.WithHTTPClient(c.HTTP))
	if err != nil {
		return err
	}
	model, tools := h.Model(llm), h.Tools(getWeather{c})
	tool := c.Script.Tools[0]
	options := []llms.CallOption{llms.WithModel("claude-x"), llms.WithTools([]llms.Tool{{
		Type: "function", Function: &llms.FunctionDefinition{Name: tool.Name, Description: tool.Description},
	}})}
	session := c.Tracer.NewSession(c.Context, agenttrace.SessionOptions{})
	history := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeSystem, c.Script.System)}
	return c.Turns(func(question string) (err error) {
		ctx, run := session.StartRun(c.Context, agenttrace.RunOptions{})
		defer run.Done(&err)
		ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: question}, agenttrace.TurnOptions{})
		defer turn.Done(&err)
		history = append(history, llms.TextParts(llms.ChatMessageTypeHuman, question))
		for {
			answer, err := model.GenerateContent(ctx, history, options...)
			if err != nil {
				return err
			}
			called := false
			for _, choice := range answer.Choices {
				for _, call := range choice.ToolCalls {
					called = true
					output, err := tools[0].Call(ctx, call.FunctionCall.Arguments)
					if err != nil {
						output = err.Error()
					}
					history = append(history,
						llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
						llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{
							llms.ToolCallResponse{ToolCallID: call.ID, Name: tool.Name, Content: output},
						}})
				}
			}
			if !called {
				return nil
			}
		}
	})
}

// A turn whose model panics has failed, with its run and the call, and the panic goes on.
func TestAPanicOfAModelIsTheErrorOfItsTurn(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	h := langchaintrace.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), langchaintrace.Options{})
	defer func() {
		p, failed := recover(), 0
		for _, s := range rec.All() {
			if s.StatusText == fmt.Sprint("panic: ", p) {
				failed++
			}
		}
		if parts := rec.All().Turns()[0].User.Parts; len(parts) != 2 || parts[1].Type != "file" {
			t.Errorf("the user's message has %+v, want a text and a file", parts)
		}
		if p == nil || failed != 3 {
			t.Errorf("of %d spans, %d have the panic %v", len(rec.All()), failed, p)
		}
	}()
	_, _ = h.Model(nil).GenerateContent(t.Context(), []llms.MessageContent{{Role: llms.ChatMessageTypeHuman,
		Parts: []llms.ContentPart{llms.TextPart("What is it?"), llms.BinaryPart("image/png", []byte("x"))}}})
}
