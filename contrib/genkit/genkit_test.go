package genkittrace_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	genkittrace "github.com/agenttrace/agenttrace/contrib/genkit"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

// TestACallThatInterruptsGoesOnWhenItIsAnswered by a restart of the tool, or by the response that it would have given.
func TestACallThatInterruptsGoesOnWhenItIsAnswered(t *testing.T) {
	for _, restart := range []bool{true, false} {
		server := httptest.NewServer(&e2e.Server{API: e2e.Named("chat"), Script: &e2e.Weather})
		defer server.Close()
		rec := agenttracetest.NewRecorder()
		h := genkittrace.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}),
			genkittrace.Options{SessionID: func(context.Context) string { return "ses_1" }})
		plugin := &compat_oai.OpenAICompatible{Provider: "openai", APIKey: "key", BaseURL: server.URL + "/v1"}
		g := genkit.Init(t.Context(), genkit.WithPlugins(plugin))
		model := plugin.DefineModel("openai", "gpt-x",
			ai.ModelOptions{Supports: &ai.ModelSupports{Multiturn: true, Tools: true}})
		tool := genkit.DefineTool(g, "get_weather", "x",
			genkittrace.Tool("get_weather", func(ctx *ai.ToolContext, _ place) (string, error) {
				if ctx.Resumed == nil {
					return "", ctx.Interrupt(nil)
				}
				return "Sun.", nil
			}))
		response, err := h.Generate(t.Context(), g, ai.WithModel(model), ai.WithTools(tool),
			ai.WithPrompt(e2e.Weather.Turns[0].User))
		if err != nil || len(response.Interrupts()) == 0 {
			t.Fatalf("no call interrupts: %v", err)
		}
		var answers []*ai.Part
		for _, p := range response.Interrupts() {
			answer, err := tool.RespondWith(p, "Sun.")
			if restart {
				answer, err = tool.RestartWith(p, ai.WithResumedMetadata[place](map[string]any{"ok": true}))
			}
			if answers = append(answers, answer); err != nil {
				t.Fatal(err)
			}
		}
		with := ai.WithToolResponses(answers...)
		if restart {
			with = ai.WithToolRestarts(answers...)
		}
		_, _ = h.Generate(t.Context(), g, ai.WithModel(model), ai.WithTools(tool),
			ai.WithMessages(response.History()...), with)
		turns, sun := rec.All().Turns(), 0
		for _, c := range rec.All().ToolCalls() {
			sun += strings.Count(string(c.Output), "Sun.")
			if c.Error != "" {
				t.Errorf("a call failed: %s", c.Error)
			}
		}
		if len(turns) < 2 || !turns[0].PendingApproval || turns[1].Assistant.ID != turns[0].Assistant.ID || sun == 0 {
			t.Errorf("%d calls have the result of %+v, want a turn that waits and goes on", sun, turns)
		}
	}
}

// TestAPanicOfAToolIsTheErrorOfItsCall, and goes on.
func TestAPanicOfAToolIsTheErrorOfItsCall(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})
	ctx, run := tracer.NewSession(t.Context(), agenttrace.SessionOptions{}).StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, _ = run.StartTurn(ctx, agenttrace.UserMessage{Text: "go"}, agenttrace.TurnOptions{})
	ctx, _ = genkittrace.New(tracer, genkittrace.Options{}).Start(ctx)
	defer func() {
		calls := rec.All().ToolCalls()
		if p := recover(); p != "boom" || len(calls) != 1 || calls[0].Error != "panic: boom" {
			t.Errorf("the panic is %v, the calls %+v", p, calls)
		}
	}()
	tool := genkittrace.Tool("break", func(*ai.ToolContext, place) (string, error) { panic("boom") })
	_, _ = tool(&ai.ToolContext{Context: ctx}, place{})
}
