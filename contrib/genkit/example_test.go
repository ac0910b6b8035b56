package genkittrace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	genkittrace "github.com/agenttrace/agenttrace/contrib/genkit"
)

// A Generate is a turn.
func Example() {
	// A server of a model that requests a tool, and then answers.
	answers := []string{
		`{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"","tool_calls":[` +
			`{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]}}]}`,
		`{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"It is sunny."}}]}`,
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
	handler := genkittrace.New(tracer, genkittrace.Options{
		Agent: "weather", Model: agenttrace.Model{Provider: "openai", ID: "gpt-x"},
	})

	ctx := context.Background()
	plugin := &compat_oai.OpenAICompatible{Provider: "openai", APIKey: "key", BaseURL: model.URL + "/v1"}
	g := genkit.Init(ctx, genkit.WithPlugins(plugin))
	chat := plugin.DefineModel("openai", "gpt-x", ai.ModelOptions{
		Supports: &ai.ModelSupports{Multiturn: true, Tools: true, SystemRole: true},
	})
	type place struct {
		City string `json:"city"`
	}
	tool := genkit.DefineTool(g, "get_weather", "The weather of a city.", genkittrace.Tool("get_weather",
		func(*ai.ToolContext, place) (string, error) { return "sunny", nil }))
	if _, err := handler.Generate(ctx, g, ai.WithModel(chat), ai.WithTools(tool),
		ai.WithPrompt("How is the weather?")); err != nil {
		panic(err)
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
