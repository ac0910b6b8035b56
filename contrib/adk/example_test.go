package adktrace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model/gemini"
	"google.golang.org/adk/plugin"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	adktrace "github.com/agenttrace/agenttrace/contrib/adk"
)

// An agent is recorded by a plugin of its runner.
func Example() {
	// A server of a model that requests a tool, and then answers.
	answers := []string{
		`{"candidates":[{"finishReason":"STOP","content":{"role":"model","parts":[` +
			`{"functionCall":{"id":"call_1","name":"get_weather","args":{"city":"Paris"}}}]}}]}`,
		`{"candidates":[{"finishReason":"STOP","content":{"role":"model","parts":[{"text":"It is sunny."}]}}]}`,
	}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, answers[0])
		answers = answers[1:]
	}))
	defer model.Close()

	// The recorder is a tracer provider for tests. A program calls setup.Init of agenttrace/setup instead.
	recorder := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: recorder})
	recorded, err := adktrace.New(tracer, adktrace.Options{Agent: "weather"})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	llm, err := gemini.NewModel(ctx, "gemini-x", &genai.ClientConfig{
		APIKey: "key", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: model.URL},
	})
	if err != nil {
		panic(err)
	}
	type place struct {
		City string `json:"city"`
	}
	weather, err := functiontool.New(
		functiontool.Config{Name: "get_weather", Description: "The weather of a city."},
		func(tool.Context, place) (string, error) { return "sunny", nil })
	if err != nil {
		panic(err)
	}
	root, err := llmagent.New(llmagent.Config{Name: "weather", Model: llm, Tools: []tool.Tool{weather}})
	if err != nil {
		panic(err)
	}
	sessions := session.InMemoryService()
	if _, err := sessions.Create(ctx, &session.CreateRequest{
		AppName: "weather", UserID: "user", SessionID: "session-1",
	}); err != nil {
		panic(err)
	}
	r, err := runner.New(runner.Config{
		AppName: "weather", Agent: root, SessionService: sessions,
		PluginConfig: runner.PluginConfig{Plugins: []*plugin.Plugin{recorded}},
	})
	if err != nil {
		panic(err)
	}
	question := genai.NewContentFromText("How is the weather?", genai.RoleUser)
	for _, err := range r.Run(ctx, "user", "session-1", question, agent.RunConfig{}) {
		if err != nil {
			panic(err)
		}
	}
	for _, call := range recorder.All().ToolCalls() {
		fmt.Println(call.ToolID, call.CallID, call.Input, call.Output)
	}
	for _, turn := range recorder.All().Turns() {
		fmt.Println(turn.EndReason, turn.ModelCalls, "model calls")
	}
	// Output:
	// get_weather call_1 {"city":"Paris"} "sunny"
	// finish 2 model calls
}
