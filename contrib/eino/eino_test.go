package einotrace_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/callbacks"
	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	einotrace "github.com/agenttrace/agenttrace/contrib/eino"
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
