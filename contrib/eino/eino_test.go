package einotrace_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	einotrace "github.com/agenttrace/agenttrace/contrib/eino"
	"github.com/agenttrace/agenttrace/internal/e2e"
)

// TestAModelWithoutAGraph calls a model that refuses, by itself and in a turn of the program's own.
func TestAModelWithoutAGraph(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusBadRequest)
	}))
	defer server.Close()
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})
	handler := einotrace.New(tracer, einotrace.Options{})
	model, err := openai.NewChatModel(t.Context(), &openai.ChatModelConfig{
		APIKey: "key", BaseURL: server.URL + "/v1", Model: "gpt-x",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := callbacks.InitCallbacks(t.Context(), nil, handler)
	if _, err := model.Generate(ctx, []*schema.Message{schema.UserMessage("hi")}); err == nil {
		t.Fatal("the model did not refuse")
	}
	ctx, run := tracer.NewSession(ctx, agenttrace.SessionOptions{}).StartRun(ctx, agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hello"}, agenttrace.TurnOptions{})
	if _, err := model.Stream(ctx, []*schema.Message{schema.UserMessage("hi")}); err == nil {
		t.Fatal("the model did not refuse")
	}
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	_ = handler.Close()
	turns, calls := rec.All().Turns(), rec.All().ModelCalls()
	if len(turns) != 2 || turns[0].EndReason != "error" || turns[1].EndReason != "finish" {
		t.Errorf("have the turns %+v, want one that failed and one that did not", turns)
	}
	if len(calls) != 2 || calls[0].Error == "" || calls[1].Error == "" {
		t.Errorf("have the calls %+v, want two that failed", calls)
	}
	if open := rec.Open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
}

// A graph that fails at the first words of an answer returns then, although the answer goes on.
func TestAGraphThatFailsDoesNotWaitForTheAnswer(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	h := einotrace.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), einotrace.Options{})
	asks := &callbacks.RunInfo{Component: components.ComponentOfChatModel}
	graph := h.OnStart(t.Context(), &callbacks.RunInfo{Component: compose.ComponentOfGraph}, nil)
	ctx := h.OnStart(graph, asks, &model.CallbackInput{Messages: []*schema.Message{schema.UserMessage("hi")}})
	answer, writer := schema.Pipe[callbacks.CallbackOutput](1)
	h.OnEndWithStreamOutput(ctx, asks, answer)
	h.OnError(graph, nil, errors.New("enough"))
	writer.Close()
	_ = h.Close()
	if turns := rec.All().Turns(); len(turns) != 1 || turns[0].EndReason != "error" {
		t.Errorf("turns %+v", turns)
	}
}

// TestACallThatInterruptsGoesOnWhenItsGraphIsResumed: the call waits for a human, and nothing has failed.
func TestACallThatInterruptsGoesOnWhenItsGraphIsResumed(t *testing.T) {
	server := httptest.NewServer(&e2e.Server{API: e2e.Named("chat"), Script: &e2e.Weather})
	defer server.Close()
	rec, saved := agenttracetest.NewRecorder(), checkpoints{}
	h := einotrace.New(agenttrace.New(agenttrace.Options{TracerProvider: rec}),
		einotrace.Options{SessionID: func(context.Context) string { return "ses_1" }})
	chat, err := openai.NewChatModel(t.Context(), &openai.ChatModelConfig{
		APIKey: "key", BaseURL: server.URL + "/v1", Model: "gpt-x"})
	must(t, err)
	ask, err := utils.InferTool("get_weather", "x", func(ctx context.Context, _ map[string]any) (string, error) {
		if asked, _, _ := tool.GetInterruptState[any](ctx); !asked {
			return "", tool.Interrupt(ctx, "May I?")
		}
		return "Sun.", nil
	})
	must(t, err)
	agent, err := react.NewAgent(t.Context(), &react.AgentConfig{ToolCallingModel: chat,
		ToolsConfig: compose.ToolsNodeConfig{Tools: []tool.BaseTool{ask}}})
	must(t, err)
	graph, options := agent.ExportGraph()
	g := compose.NewGraph[[]*schema.Message, *schema.Message]()
	must(t, errors.Join(g.AddGraphNode("a", graph, options...), g.AddEdge(compose.START, "a"),
		g.AddEdge("a", compose.END)))
	r, err := g.Compile(t.Context(), compose.WithCheckPointStore(saved))
	must(t, err)
	with := []compose.Option{compose.WithCallbacks(h), compose.WithCheckPointID("c")}
	_, err = r.Invoke(t.Context(), []*schema.Message{schema.UserMessage(e2e.Weather.Turns[0].User)}, with...)
	info, ok := compose.ExtractInterruptInfo(err)
	if !ok {
		t.Fatalf("the graph ended with %v", err)
	}
	_, _ = r.Invoke(compose.Resume(t.Context(), info.InterruptContexts[0].ID), nil, with...)
	_ = h.Close()
	turns, calls := rec.All().Turns(), rec.All().ToolCalls()
	if len(turns) < 2 || !turns[0].PendingApproval || turns[0].Error != "" ||
		turns[1].Assistant.ID != turns[0].Assistant.ID {
		t.Errorf("have the turns %+v, want one that waits and goes on", turns)
	}
	sun := 0
	for _, c := range calls {
		sun += strings.Count(string(c.Output), "Sun.")
		if c.Error != "" {
			t.Errorf("a call failed: %s", c.Error)
		}
	}
	if sun != 2 { // the script asks for two
		t.Errorf("%d of %d calls have the result", sun, len(calls))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type checkpoints map[string][]byte

func (c checkpoints) Get(_ context.Context, id string) ([]byte, bool, error) {
	return c[id], c[id] != nil, nil
}

func (c checkpoints) Set(_ context.Context, id string, b []byte) error { c[id] = b; return nil }
