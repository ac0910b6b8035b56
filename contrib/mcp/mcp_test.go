package mcptrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
	mcptrace "github.com/agenttrace/agenttrace/contrib/mcp"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

func TestConformance(t *testing.T) {
	e2e.Test(t, e2e.Program{API: chat(), Run: agent})
}

// weather returns a session with a server of one tool, which handle is, and what a turn of an
// agent that uses it is recorded in.
func weather(t *testing.T, o mcptrace.Options, handle mcp.ToolHandler) (
	context.Context, *mcp.ClientSession, *agenttrace.Turn, *agenttracetest.Recorder,
) {
	t.Helper()
	rec := agenttracetest.NewRecorder()
	server := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	server.AddTool(&mcp.Tool{Name: "get_weather", InputSchema: json.RawMessage(`{"type":"object"}`)}, handle)
	server.AddReceivingMiddleware(mcptrace.Server(o))
	client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
	client.AddSendingMiddleware(mcptrace.Client(o))
	here, there := mcp.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	session, err := client.Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	ctx, run := agenttrace.New(agenttrace.Options{TracerProvider: rec}).
		NewSession(t.Context(), agenttrace.SessionOptions{}).StartRun(t.Context(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "?"}, agenttrace.TurnOptions{})
	return ctx, session, turn, rec
}

func says(output string, failed bool) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: output}}, IsError: failed}, nil
	}
}

// TestACallSeenInTheAnswerHasTheTimesOfItsExecution has two equal calls and another one, that
// wait for longer than they last. One of them is found by its id.
func TestACallSeenInTheAnswerHasTheTimesOfItsExecution(t *testing.T) {
	synctest.Test(t, callsThatWait)
}

func callsThatWait(t *testing.T) {
	const waits, lasts = 200 * time.Millisecond, 20 * time.Millisecond
	ctx, session, turn, rec := weather(t, mcptrace.Options{},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(lasts)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}}, nil
		})
	inputs := map[string]string{
		"call_1": `{"city": "Paris", "at": 1}`, "call_2": `{"city":"Rome"}`, "call_3": `{"city":"Rome"}`,
	}
	for _, id := range []string{"call_1", "call_2", "call_3"} {
		turn.StartTool(ctx, agenttrace.ToolOptions{
			ID: id, Name: "get_weather", Input: json.RawMessage(inputs[id]), Inferred: true,
		})
	}
	time.Sleep(waits)
	for _, params := range []any{
		map[string]any{"at": 1, "city": "Paris"}, map[string]any{"city": "Rome"}, json.RawMessage(`{ "city": "Rome" }`),
	} {
		if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: params}); err != nil {
			t.Fatal(err)
		}
	}
	turn.End(agenttrace.TurnResult{})
	calls := rec.All().ToolCalls()
	if len(calls) != 3 {
		t.Fatalf("have %d tool calls, want 3", len(calls))
	}
	for i, c := range calls {
		if want := []string{"call_1", "call_2", "call_3"}[i]; c.CallID != want || c.Output != `"sunny"` || c.Inferred {
			t.Errorf("call %d is %s with %s, inferred %v; want %s with sunny", i, c.CallID, c.Output, c.Inferred, want)
		}
		if d := time.Duration(*c.DurationMS) * time.Millisecond; d != lasts {
			t.Errorf("%s took %s, want %s", c.CallID, d, lasts)
		}
	}
}

// TestACallIsFoundByItsID has a call whose arguments the agent changed.
func TestACallIsFoundByItsID(t *testing.T) {
	ctx, session, turn, rec := weather(t, mcptrace.Options{}, says("no such station", true))
	turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "get_weather", Input: "Rome", Inferred: true})
	params := &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Rome", "unit": "C"}}
	if _, err := session.CallTool(mcptrace.WithCallID(ctx, "call_1"), params); err != nil {
		t.Fatal(err)
	}
	turn.End(agenttrace.TurnResult{})
	calls := rec.All().ToolCalls()
	if len(calls) != 1 || calls[0].Error != "no such station" || calls[0].ErrorType != "tool_error" {
		t.Errorf("have %+v, want one call that failed", calls)
	}
	if _, changed := params.Meta["traceparent"]; changed {
		t.Errorf("the caller's params have _meta %v", params.Meta)
	}
}

// TestAToolOfTheAgentsOwnIsOneCall has a tool that is implemented by a server.
func TestAToolOfTheAgentsOwnIsOneCall(t *testing.T) {
	ctx, session, turn, rec := weather(t, mcptrace.Options{}, says("sunny", false))
	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "get_weather", Input: "{}"})
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"}); err != nil {
		t.Fatal(err)
	}
	tool.EndText("It is sunny.")
	turn.End(agenttrace.TurnResult{})
	if calls := rec.All().ToolCalls(); len(calls) != 1 || calls[0].Output != `"It is sunny."` {
		t.Errorf("have %+v, want the agent's own call", calls)
	}
}

// TestServersJoinTheTrace has a server whose spans are children of the client's, with and without
// a turn, and a request that the server does not know.
func TestServersJoinTheTrace(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory))
	var inTool trace.SpanContext
	ctx, session, turn, rec := weather(t, mcptrace.Options{TracerProvider: provider},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			inTool = trace.SpanContextFromContext(ctx)
			return nil, errors.New("broken")
		})
	memory.Reset()
	params := &mcp.CallToolParams{Name: "get_weather", Meta: mcp.Meta{"traceparent": "of another request"}}
	if _, err := session.CallTool(ctx, params); err == nil {
		t.Error("the call did not fail")
	}
	turn.End(agenttrace.TurnResult{})
	span := rec.All().Named("tool.call")[0]
	if inTool.TraceID() != span.SpanContext.TraceID() {
		t.Errorf("the tool ran in trace %s, want %s", inTool.TraceID(), span.SpanContext.TraceID())
	}
	if _, err := session.CallTool(t.Context(), params); err == nil {
		t.Error("the call did not fail")
	}
	names := map[string]trace.SpanID{}
	for i, s := range memory.GetSpans() {
		names[s.SpanKind.String()] = s.SpanContext.SpanID()
		if s.Name != "tools/call get_weather" || s.Status.Description == "" {
			t.Errorf("span %q with status %q", s.Name, s.Status.Description)
		}
		if want := span.SpanContext.SpanID(); i == 0 && s.Parent.SpanID() != want {
			t.Errorf("the server's span is a child of %s, want %s", s.Parent.SpanID(), want)
		}
		if i == 2 && memory.GetSpans()[1].Parent.SpanID() != s.SpanContext.SpanID() {
			t.Error("the server's span is no child of the client's")
		}
	}
	if len(memory.GetSpans()) != 3 || len(names) != 2 {
		t.Errorf("have %d spans, want two of the server and one of the client", len(memory.GetSpans()))
	}
}

// TestASessionInAServerIsASubAgents has a tool that begins a session, in a server of one's own and
// in one of somebody else.
func TestASessionInAServerIsASubAgents(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		var rec *agenttracetest.Recorder
		ctx, session, turn, recorder := weather(t, mcptrace.Options{Foreign: foreign},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if _, sent := req.Params.Meta["baggage"]; sent == foreign {
					t.Errorf("foreign %v: baggage is sent: %v", foreign, sent)
				}
				ctx, run := agenttrace.New(agenttrace.Options{TracerProvider: rec}).
					NewSession(ctx, agenttrace.SessionOptions{ID: "child"}).StartRun(ctx, agenttrace.RunOptions{})
				_, inner := run.StartTurn(ctx, agenttrace.UserMessage{Text: "?"}, agenttrace.TurnOptions{})
				inner.End(agenttrace.TurnResult{})
				run.End(nil)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			})
		rec = recorder
		if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"}); err != nil {
			t.Fatal(err)
		}
		want := agenttrace.SessionFromContext(ctx).ID()
		turn.End(agenttrace.TurnResult{})
		if foreign {
			want = ""
		}
		if runs := rec.Session("child").Runs(); len(runs) != 1 || runs[0].ParentID != want {
			t.Errorf("foreign %v: have the runs %+v, want one with the parent %q", foreign, runs, want)
		}
	}
}

// TestWithoutATurnACallIsTheOneThatTheModelRequested has an agent whose model calls are recorded by its HTTP client
// and whose tools by the middleware, and that begins no turn.
func TestWithoutATurnACallIsTheOneThatTheModelRequested(t *testing.T) {
	_, session, _, _ := weather(t, mcptrace.Options{}, says("no such station", true))
	rec := agenttracetest.NewRecorder()
	answers := []string{
		`{"choices":[{"message":{"role":"assistant","tool_calls":[{"id":"call_0123456789","type":"function",` +
			`"function":{"name":"get_weather","arguments":"{\"city\": \"Rome\"}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"role":"assistant","content":"I do not know."},"finish_reason":"stop"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	client := &http.Client{Transport: modelhttp.New(
		agenttrace.New(agenttrace.Options{TracerProvider: rec}), modelhttp.Options{Base: server.Client().Transport})}
	ask := func(messages string) {
		resp, err := client.Post(server.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"weather?"}`+messages+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	ask("")
	params := &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Rome"}}
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	ask(`,{"role":"assistant","tool_calls":[{"id":"call_0123456789","type":"function","function":{"name":"get_weather",` +
		`"arguments":"{\"city\": \"Rome\"}"}}]},{"role":"tool","tool_call_id":"call_0123456789","content":"no such station"}`)
	calls := rec.All().ToolCalls()
	if len(calls) != 1 || calls[0].CallID != "call_0123456789" || calls[0].Error != "no such station" ||
		calls[0].Inferred {
		t.Errorf("have %+v, want the model's call, which failed", calls)
	}
}
