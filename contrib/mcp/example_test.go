package mcptrace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	mcptrace "github.com/agenttrace/agenttrace/contrib/mcp"
)

// An agent has its tools from a server. Its model calls are recorded by its HTTP client.
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
	client := &http.Client{Transport: modelhttp.New(tracer, modelhttp.Options{Agent: "weather"})}
	ask := func(messages string) {
		resp, err := client.Post(model.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"gpt-x","messages":[{"role":"user","content":"How is the weather?"}`+messages+`]}`))
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	server.AddTool(&mcp.Tool{Name: "get_weather", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}}, nil
		})
	server.AddReceivingMiddleware(mcptrace.Server(mcptrace.Options{TracerProvider: recorder}))
	tools := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
	tools.AddSendingMiddleware(mcptrace.Client(mcptrace.Options{TracerProvider: recorder}))

	ctx := context.Background()
	here, there := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, there, nil); err != nil {
		panic(err)
	}
	session, err := tools.Connect(ctx, here, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()

	ask("")
	params := &mcp.CallToolParams{Name: "get_weather", Arguments: json.RawMessage(`{"city":"Paris"}`)}
	if _, err := session.CallTool(ctx, params); err != nil {
		panic(err)
	}
	ask(`,{"role":"assistant","tool_calls":[{"id":"call_1","type":"function",` +
		`"function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1","content":"sunny"}`)
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
