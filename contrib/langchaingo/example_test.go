package langchaintrace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms/openai"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	langchaintrace "github.com/agenttrace/agenttrace/contrib/langchaingo"
)

// station is a tool.
type station struct{}

func (station) Name() string                                 { return "get_weather" }
func (station) Description() string                          { return "The weather of a city." }
func (station) Call(context.Context, string) (string, error) { return "sunny", nil }

// An executor and what it runs are recorded by a handler.
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
	handler := langchaintrace.New(tracer, langchaintrace.Options{
		Agent: "weather", Model: agenttrace.Model{Provider: "openai", ID: "gpt-x"},
	})

	llm, err := openai.New(openai.WithToken("key"), openai.WithModel("gpt-x"), openai.WithBaseURL(model.URL+"/v1"))
	if err != nil {
		panic(err)
	}
	agent := agents.NewOpenAIFunctionsAgent(handler.Model(llm), handler.Tools(station{}))
	chain := handler.Chain(agents.NewExecutor(agent, agents.WithCallbacksHandler(handler)))
	if _, err := chains.Run(context.Background(), chain, "How is the weather?"); err != nil {
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
