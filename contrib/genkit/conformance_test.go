package genkittrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"
	"github.com/openai/openai-go/option"

	"github.com/agenttrace/agenttrace/agenttrace"
	genkittrace "github.com/agenttrace/agenttrace/contrib/genkit"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

func TestConformance(t *testing.T) {
	e2e.Test(t, e2e.Program{API: chat(), Run: weather})
}

// chat is the API of the agent's model. The framework knows that a tool failed; its plugin does not
// read the reasoning.
func chat() *e2e.API {
	api := *e2e.Named("chat")
	api.Errors, api.Reasons = true, false
	return &api
}

type place struct {
	City string `json:"city"`
}

// explained gives the model the error of a tool, with which Generate would fail.
func explained(tool ai.ToolFunc[place, string]) ai.ToolFunc[place, string] {
	return func(ctx *ai.ToolContext, in place) (string, error) {
		output, err := tool(ctx, in)
		if err != nil {
			return err.Error(), nil
		}
		return output, nil
	}
}

func weather(c *e2e.Console) error {
	h := genkittrace.New(c.Tracer, genkittrace.Options{
		Agent: "weather", Model: agenttrace.Model{Provider: "openai", ID: "gpt-x"},
		SessionID: func(context.Context) string { return "session-1" },
	})

	plugin := &compat_oai.OpenAICompatible{
		Provider: "openai", APIKey: "key", BaseURL: c.URL + "/v1",
		Opts: []option.RequestOption{option.WithHTTPClient(c.HTTP)},
	}
	g := genkit.Init(c.Context, genkit.WithPlugins(plugin))
	model := plugin.DefineModel("openai", "gpt-x", ai.ModelOptions{
		Supports: &ai.ModelSupports{Multiturn: true, Tools: true, SystemRole: true},
	})
	getWeather := func(_ *ai.ToolContext, in place) (string, error) {
		input, err := json.Marshal(in)
		if err != nil {
			return "", err
		}
		output, failed := c.Call("get_weather", input)
		if failed {
			return "", errors.New(output)
		}
		return output, nil
	}
	tool := genkit.DefineTool(g, "get_weather", c.Script.Tools[0].Description,
		explained(genkittrace.Tool("get_weather", getWeather)))

	var history []*ai.Message
	return c.Turns(func(question string) error {
		options := []ai.GenerateOption{
			ai.WithModel(model), ai.WithSystem(c.Script.System), ai.WithTools(tool),
			ai.WithMessages(history...), ai.WithPrompt(question),
		}
		if c.Stream {
			options = append(options, ai.WithStreaming(
				func(context.Context, *ai.ModelResponseChunk) error { return nil }))
		}
		response, err := h.Generate(c.Context, g, options...)
		if err == nil {
			history = append(history, ai.NewUserTextMessage(question), response.Message)
		}
		return err
	})
}
