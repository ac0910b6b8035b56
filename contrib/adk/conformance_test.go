package adktrace_test

import (
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model/gemini"
	"google.golang.org/adk/plugin"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"

	adktrace "github.com/agenttrace/agenttrace/contrib/adk"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

func TestConformance(t *testing.T) {
	e2e.Test(t, e2e.Program{API: e2e.Named("gemini with calls in one chunk"), Run: weather})
}

type place struct {
	City string `json:"city"`
}

func weather(c *e2e.Console) error {
	recorded, err := adktrace.New(c.Tracer, adktrace.Options{Agent: "weather"})
	if err != nil {
		return err
	}

	model, err := gemini.NewModel(c.Context, "gemini-x", &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPClient: c.HTTP,
		HTTPOptions: genai.HTTPOptions{BaseURL: c.URL},
	})
	if err != nil {
		return err
	}
	getWeather, err := functiontool.New(
		functiontool.Config{Name: "get_weather", Description: c.Script.Tools[0].Description},
		func(_ tool.Context, in place) (string, error) {
			input, err := json.Marshal(in)
			if err != nil {
				return "", err
			}
			output, failed := c.Call("get_weather", input)
			if failed {
				return "", errors.New(output)
			}
			return output, nil
		})
	if err != nil {
		return err
	}
	root, err := llmagent.New(llmagent.Config{
		Name: "weather", Model: model, Instruction: c.Script.System, Tools: []tool.Tool{getWeather},
	})
	if err != nil {
		return err
	}
	sessions := session.InMemoryService()
	if _, err := sessions.Create(c.Context, &session.CreateRequest{
		AppName: "weather", UserID: "user", SessionID: "session-1",
	}); err != nil {
		return err
	}
	r, err := runner.New(runner.Config{
		AppName: "weather", Agent: root, SessionService: sessions,
		PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{recorded}},
	})
	if err != nil {
		return err
	}
	config := agent.RunConfig{StreamingMode: agent.StreamingModeNone}
	if c.Stream {
		config.StreamingMode = agent.StreamingModeSSE
	}
	return c.Turns(func(question string) error {
		content := genai.NewContentFromText(question, genai.RoleUser)
		for _, err := range r.Run(c.Context, "user", "session-1", content, config) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}
