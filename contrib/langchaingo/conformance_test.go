package langchaintrace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms/openai"
	"github.com/tmc/langchaingo/tools"

	"github.com/agenttrace/agenttrace/agenttrace"
	langchaintrace "github.com/agenttrace/agenttrace/contrib/langchaingo"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

func TestConformance(t *testing.T) {
	e2e.Test(t, e2e.Program{API: chat(), Run: weather})
}

// chat is the API of the agent's model. The framework knows that a tool failed.
func chat() *e2e.API {
	api := *e2e.Named("chat")
	api.Errors = true
	return &api
}

// getWeather is the tool.
type getWeather struct{ *e2e.Console }

func (w getWeather) Name() string        { return w.Script.Tools[0].Name }
func (w getWeather) Description() string { return w.Script.Tools[0].Description }

func (w getWeather) Call(_ context.Context, input string) (string, error) {
	output, failed := w.Console.Call("get_weather", []byte(input))
	if failed {
		return "", errors.New(output)
	}
	return output, nil
}

// explained gives the model the error of a tool, with which the executor would fail.
type explained struct{ tools.Tool }

func (e explained) Call(ctx context.Context, input string) (string, error) {
	output, err := e.Tool.Call(ctx, input)
	if err != nil {
		return err.Error(), nil
	}
	return output, nil
}

func weather(c *e2e.Console) error {
	h := langchaintrace.New(c.Tracer, langchaintrace.Options{
		Agent: "weather", Model: agenttrace.Model{Provider: "openai", ID: "gpt-x"},
		SessionID: func(context.Context) string { return "session-1" },
	})

	llm, err := openai.New(openai.WithToken("key"), openai.WithModel("gpt-x"), openai.WithBaseURL(c.URL+"/v1"),
		openai.WithHTTPClient(c.HTTP))
	if err != nil {
		return err
	}
	recorded := h.Tools(getWeather{c})
	agent := agents.NewOpenAIFunctionsAgent(h.Model(llm), []tools.Tool{explained{recorded[0]}},
		agents.NewOpenAIOption().WithSystemMessage(c.Script.System))
	chain := h.Chain(agents.NewExecutor(agent, agents.WithCallbacksHandler(h)))
	var options []chains.ChainCallOption
	if c.Stream {
		options = append(options, chains.WithStreamingFunc(func(context.Context, []byte) error { return nil }))
	}
	return c.Turns(func(question string) error {
		_, err := chains.Run(c.Context, chain, question, options...)
		return err
	})
}
