package agenttracetest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

func TestRecorderKeepsSpans(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	tracer := rec.Tracer("x")
	start := time.Unix(1, 0)
	ctx, root := tracer.Start(context.Background(), "root", trace.WithTimestamp(start),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.Int("a", 1)))
	_, child := tracer.Start(ctx, "child", trace.WithLinks(trace.Link{SpanContext: root.SpanContext()}))
	_, other := tracer.Start(ctx, "other", trace.WithNewRoot())
	if open := fmt.Sprint(rec.Open()); open != "[child other root]" {
		t.Errorf("open = %s", open)
	}
	child.End()
	other.End()
	root.SetAttributes(attribute.Int("a", 2), attribute.Int("b", 3))
	root.SetStatus(codes.Error, "bad")
	root.SetName("renamed")
	root.End(trace.WithTimestamp(start.Add(time.Second)))
	root.End()
	root.SetAttributes(attribute.Int("late", 1))
	all := rec.All()
	if len(all) != 3 || len(rec.Open()) != 0 {
		t.Fatalf("%d spans, open %q", len(all), rec.Open())
	}
	got := all[2]
	if got.Name != "renamed" || got.Kind != trace.SpanKindServer || got.End.Sub(got.Start) != time.Second ||
		len(got.Attributes) != 2 || got.Attributes[0].Value.AsInt64() != 2 ||
		got.Status != codes.Error || got.StatusText != "bad" || got.Parent.IsValid() || got.Record != nil ||
		root.IsRecording() {
		t.Errorf("root = %+v", got)
	}
	if all[0].Parent.SpanID() != got.SpanContext.SpanID() ||
		all[0].SpanContext.TraceID() != got.SpanContext.TraceID() || len(all[0].Links) != 1 {
		t.Errorf("child = %+v", all[0])
	}
	if all[1].Parent.IsValid() || all[1].SpanContext.TraceID() == got.SpanContext.TraceID() {
		t.Errorf("other = %+v", all[1])
	}
	rec.Reset()
	if len(rec.All()) != 0 {
		t.Error("Reset keeps spans")
	}
}

func TestRecorderReportsSpansThatDoNotHold(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	tracer := rec.Tracer("x")
	_, span := tracer.Start(context.Background(), semconv.SpanToolCall,
		trace.WithAttributes(semconv.SessionIDKey.String("ses_1"), semconv.PartIndexKey.String("one")))
	span.End()
	err := rec.Err()
	if err == nil || !strings.Contains(err.Error(), "agenttrace.part.index: want int") ||
		!strings.Contains(err.Error(), "tool_call_id is missing") {
		t.Errorf("err = %v", err)
	}
	if got := rec.Session("ses_1").ToolCalls(); len(got) != 1 {
		t.Errorf("tool calls of the session = %v", got)
	}
}

func TestRecorderDropsLikeASampler(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	rec.Drop(func(name string) bool { return name == "session.run" })
	ctx := context.Background()
	ctx, run := agenttrace.New(agenttrace.Options{TracerProvider: rec}).NewSession(ctx,
		agenttrace.SessionOptions{Agent: "a"}).StartRun(ctx, agenttrace.RunOptions{})
	_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "x"}, agenttrace.TurnOptions{})
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	if n := len(rec.All()); n != 0 {
		t.Errorf("%d spans recorded of a run that was sampled out", n)
	}
	if sc := run.SpanContext(); !sc.IsValid() || sc.IsSampled() {
		t.Errorf("span context = %v", sc)
	}
}

func TestRecorderKeepsEvents(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	logger := rec.Logger("x")
	at := time.Unix(1, 0)
	emit := func(name string, at time.Time, attrs ...attribute.KeyValue) {
		var r log.Record
		r.SetEventName(name)
		r.SetTimestamp(at)
		r.AddAttributes(attrs...)
		logger.Emit(context.Background(), r)
	}
	session, message := semconv.SessionIDKey.String("ses_1"), semconv.MessageIDKey.String("msg_1")
	part := func(text string) attribute.KeyValue {
		p := spans.Part{ID: "prt_1", Type: "text", Data: []byte(`{"type":"text","text":"` + text + `"}`)}
		return semconv.MessagePartsKey.StringSlice([]string{string(p.AppendJSON(nil))})
	}
	emit(semconv.EventPart, at.Add(2), session, message, part("later"))
	emit(semconv.EventPart, at.Add(1), session, message, part("la"))
	emit(semconv.EventMessage, at, session, message, semconv.MessageRoleKey.String("assistant"),
		semconv.MessageMetadataKey.String(`{"a":1}`))
	emit(semconv.EventStatus, at, semconv.SessionIDKey.String("ses_2"), semconv.StatusKey.String("busy"))
	emit("", at) // no event
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
	if !logger.Enabled(context.Background(), log.EnabledParameters{EventName: semconv.EventStatus}) {
		t.Error("the logger is not enabled")
	}
	events := rec.Events()
	if len(events) != 4 || len(events.Session("ses_1")) != 3 || len(events.Named(semconv.EventPart)) != 2 ||
		len(events.Statuses()) != 1 || events.Statuses()[0].Status != "busy" {
		t.Errorf("events = %+v", events)
	}
	got := events.Messages()
	if len(got) != 1 || got[0].Role != "assistant" || got[0].Metadata != `{"a":1}` || len(got[0].Parts) != 1 ||
		!strings.Contains(string(got[0].Parts[0].Data), "later") {
		t.Errorf("messages = %+v", got)
	}
	rec.Drop(func(name string) bool { return name == semconv.EventStatus })
	if logger.Enabled(context.Background(), log.EnabledParameters{EventName: semconv.EventStatus}) {
		t.Error("the logger is enabled")
	}
	emit(semconv.EventStatus, at, semconv.StatusAttemptKey.String("one"))
	err := rec.Err()
	for _, want := range []string{"event agenttrace.status", "agenttrace.status.attempt: want int",
		"session.id is missing", "agenttrace.status is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q in it", err, want)
		}
	}
	rec.Reset()
	if len(rec.Events()) != 0 {
		t.Error("Reset keeps events")
	}
}

func ExampleRecorder() {
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec})

	// What the agent under test does:
	sess := tracer.NewSession(context.Background(), agenttrace.SessionOptions{Agent: "coder"})
	ctx, run := sess.StartRun(context.Background(), agenttrace.RunOptions{})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "list"}, agenttrace.TurnOptions{})
	ctx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "bash",
		Input: map[string]string{"cmd": "ls"}})
	tool.Authorize(ctx, "ls")
	turn.End(agenttrace.TurnResult{})
	run.End(nil)

	// What its test looks at:
	for _, call := range rec.All().ToolCalls("bash") {
		fmt.Println(call.Input, call.State, call.Denied)
	}
	for _, p := range rec.All().Permissions() {
		fmt.Println(p.Action, p.Outcome, p.Reason)
	}
	fmt.Println(rec.Err(), rec.Open())
	// Output:
	// {"cmd":"ls"} output-error true
	// ask denied nobody is there to approve it
	// <nil> []
}
