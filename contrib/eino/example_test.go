package einotrace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	einotrace "github.com/agenttrace/agenttrace/contrib/eino"
)

// A ReAct agent is recorded by a handler.
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
	handler := einotrace.New(tracer, einotrace.Options{Agent: "weather"})

	ctx := context.Background()
	chat, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{
		APIKey: "key", BaseURL: model.URL + "/v1", Model: "gpt-x",
	})
	if err != nil {
		panic(err)
	}
	type place struct {
		City string `json:"city"`
	}
	weather, err := utils.InferTool("get_weather", "The weather of a city.",
		func(context.Context, place) (string, error) { return "sunny", nil })
	if err != nil {
		panic(err)
	}
	weatherAgent, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: chat, ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{weather}},
	})
	if err != nil {
		panic(err)
	}
	if _, err := weatherAgent.Generate(ctx, []*schema.Message{schema.UserMessage("How is the weather?")},
		agent.WithComposeOptions(compose.WithCallbacks(handler))); err != nil {
		panic(err)
	}
	handler.Close()
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
