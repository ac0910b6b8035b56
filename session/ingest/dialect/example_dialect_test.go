package dialect

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// What is between the marks is the example of docs/dialects.md.

// EXAMPLE:

// acmeCoder reads acme-coder. Its spans tell the tools and the tokens. What was
// said is in its records, where its user asked for it.
var acmeCoder = Dialect{
	Name:       "acme-coder",
	Prompts:    true, // the user's text comes by itself, in a record
	Spans:      func(s *Span) bool { return s.Scope.Name() == "acme-coder" },
	Records:    func(r *Record) bool { return r.Scope.Name() == "acme-coder" },
	ReadSpan:   readAcmeSpan,
	ReadRecord: readAcmeRecord,
}

func readAcmeSpan(s *Span, out *Emitter) {
	a := s.Attrs()
	switch s.Name() {
	case "acme.task":
		f := out.Add(fact.Turn)
		f.TurnID = a.Str("acme.task.id")
		f.Agent = a.Str("acme.agent")
	case "acme.completion":
		f := out.Add(fact.ModelCall)
		f.RequiresTurn = true // it is always below a task
		f.RequestID = a.Str("acme.request.id")
		if id := a.Str("acme.model"); id != "" {
			f.Model = &session.Model{ProviderID: a.Str("acme.provider"), ModelID: id}
		}
		f.Finish = a.Str("acme.stop_reason")
		// The input includes what was read from the cache.
		f.Usage = Counts{Input: a.IntPtr("acme.tokens.input"), Output: a.IntPtr("acme.tokens.output"),
			CacheRead: a.IntPtr("acme.tokens.cached")}.Usage(0)
	case "acme.tool":
		f := out.Add(fact.ToolCall) // Failed and Error are those of the span's status
		f.RequiresTurn = true
		f.CallID = a.Str("acme.call.id")
		f.Tool = &fact.Tool{Name: a.Str("acme.tool"), Input: a.JSON("acme.tool.arguments"),
			Output: a.JSON("acme.tool.result"), Succeeded: !f.Failed}
	}
}

func readAcmeRecord(r *Record, out *Emitter) {
	a := r.Attrs()
	switch r.Event {
	case "acme.prompt":
		f := out.Add(fact.Prompt)
		f.TurnID = a.Str("acme.task.id")
		f.Input = userMessages(a.Str("text"), "")
	case "acme.answer":
		f := out.Add(fact.Answer)
		f.RequestID = a.Str("acme.request.id") // joins it to the model call
		if text := a.Str("text"); text != "" {
			f.Output = []fact.Part{{Kind: fact.PartText, Text: text}}
		}
	}
}

// :EXAMPLE

// TestExampleDialect makes a session of what the example's client sends.
func TestExampleDialect(t *testing.T) {
	facts := acmeFacts(t)
	for i := range facts {
		facts[i].TraceRank = facts[i].SessionRank // as the store finds it: one key names them all
	}
	got := assemble.Assemble("trace", facts)
	want := []string{
		"user text: Fix the build.",
		"assistant text: I run the build.",
		`assistant tool-shell c1 output-available: {"command":"make"} → "ok"`,
		`assistant tool-shell c2 output-error: {"command":"make lint"} → exit status 2`,
		"assistant step-start",
		"assistant text: It builds.",
	}
	if diff := cmp.Diff(want, acmeParts(t, got)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	var m session.MessageMetadata
	testscale.Must(t, json.Unmarshal([]byte(got.Messages[1].MetadataJSON), &m))
	if diff := cmp.Diff(&session.Usage{Input: 250, Output: 30, CacheRead: 150}, m.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if m.Trace.ModelCalls != 2 || m.Trace.Incomplete {
		t.Errorf("trace %+v", m.Trace)
	}
	for i, p := range got.Attribution {
		if p.SessionID != "s1" {
			t.Errorf("%s is of session %q", facts[i].Name, p.SessionID)
		}
	}

	// In any other order it comes to the same.
	slices.Reverse(facts)
	if diff := cmp.Diff(got.Messages, assemble.Assemble("trace", facts).Messages); diff != "" {
		t.Errorf("in another order (-want +got):\n%s", diff)
	}
	// Without the task's span the rest is a turn all the same, which says that something is missing.
	lost := slices.DeleteFunc(facts, func(f fact.Fact) bool { return f.Kind == fact.Turn })
	rest := assemble.Assemble("trace", lost)
	if diff := cmp.Diff(want, acmeParts(t, rest)); diff != "" {
		t.Errorf("without the task (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(rest.Messages[1].MetadataJSON), &m); err != nil || !m.Trace.Incomplete {
		t.Errorf("without the task: %v, incomplete %v", err, m.Trace.Incomplete)
	}
}

// acmeFacts reads a task of two model calls and two tool calls, as package ingest
// does: it opens, reads, and says which span or record each fact is of.
func acmeFacts(t *testing.T) []fact.Fact {
	t.Helper()
	scope := pcommon.NewInstrumentationScope()
	scope.SetName("acme-coder")
	resource := pcommon.NewResource()
	resource.Attributes().PutStr("session.id", "s1")
	keys := NewKeys(nil)
	var facts []fact.Fact
	take := func(read *Emitter, source string) {
		t.Helper()
		if len(read.All) != 1 {
			t.Fatalf("%s gave %d facts", source, len(read.All))
		}
		read.All[0].Source = source
		facts = append(facts, read.All[0])
	}
	const start = 1_790_000_000_000_000_000
	id := byte(0)
	span := func(name string, from, to int64, attrs map[string]any) ptrace.Span {
		t.Helper()
		s := ptrace.NewSpan()
		s.SetName(name)
		s.SetTraceID(pcommon.TraceID{1})
		if id++; id > 1 {
			s.SetParentSpanID(pcommon.SpanID{1})
		}
		s.SetSpanID(pcommon.SpanID{id})
		s.SetStartTimestamp(pcommon.Timestamp(start + from*1e6))
		s.SetEndTimestamp(pcommon.Timestamp(start + to*1e6))
		testscale.Must(t, s.Attributes().FromRaw(attrs))
		return s
	}
	read := func(s ptrace.Span) {
		t.Helper()
		in := NewSpan(s, scope, resource)
		if d := OfSpan(&in); d != nil && d.Name != generic.Name || !acmeCoder.Spans(&in) {
			t.Fatalf("%s is recognized by %v", s.Name(), d)
		}
		var f Emitter
		f.OpenSpan(&acmeCoder, &in, keys)
		acmeCoder.ReadSpan(&in, &f)
		take(&f, s.SpanID().String())
	}
	record := func(event string, at int64, attrs map[string]any) {
		t.Helper()
		r := plog.NewLogRecord()
		r.SetEventName(event)
		r.SetTimestamp(pcommon.Timestamp(start + at*1e6))
		r.SetTraceID(pcommon.TraceID{1})
		testscale.Must(t, r.Attributes().FromRaw(attrs))
		in := NewRecord(r, scope, resource)
		if d := OfRecord(&in); d != nil && d.Name != generic.Name || !acmeCoder.Records(&in) {
			t.Fatalf("%s is recognized by %v", event, d)
		}
		var f Emitter
		f.OpenRecord(&acmeCoder, &in, keys)
		acmeCoder.ReadRecord(&in, &f)
		take(&f, fmt.Sprintf("%s%s-%d", fact.RecordPrefix, event, at))
	}

	read(span("acme.task", 0, 900, map[string]any{"acme.task.id": "t1", "acme.agent": "coder"}))
	record("acme.prompt", 1, map[string]any{"acme.task.id": "t1", "text": "Fix the build."})
	call := map[string]any{
		"acme.request.id": "r1", "acme.provider": "acme", "acme.model": "acme-1", "acme.stop_reason": "tool_use",
		"acme.tokens.input": 100, "acme.tokens.output": 20,
	}
	read(span("acme.completion", 10, 100, call))
	record("acme.answer", 101, map[string]any{"acme.request.id": "r1", "text": "I run the build."})
	read(span("acme.tool", 110, 200, map[string]any{
		"acme.call.id": "c1", "acme.tool": "shell", "acme.tool.arguments": `{"command":"make"}`,
		"acme.tool.result": "ok",
	}))
	failed := span("acme.tool", 210, 300, map[string]any{"acme.call.id": "c2", "acme.tool": "shell",
		"acme.tool.arguments": `{"command":"make lint"}`})
	failed.Status().SetCode(ptrace.StatusCodeError)
	failed.Status().SetMessage("exit status 2")
	read(failed)
	call["acme.request.id"], call["acme.stop_reason"] = "r2", "end_turn"
	call["acme.tokens.input"], call["acme.tokens.output"], call["acme.tokens.cached"] = 300, 10, 150
	read(span("acme.completion", 310, 890, call))
	record("acme.answer", 891, map[string]any{"acme.request.id": "r2", "text": "It builds."})
	return facts
}

// acmeParts writes each part behind its message's role.
func acmeParts(t *testing.T, a store.Assembly) []string {
	t.Helper()
	var parts []string
	for _, m := range a.Messages {
		for _, p := range m.Parts {
			var data struct {
				Text, ErrorText string
				Input, Output   json.RawMessage
			}
			testscale.Must(t, json.Unmarshal([]byte(p.DataJSON), &data))
			reported := m.Role + " " + p.Type
			switch {
			case p.ToolState != nil:
				reported += fmt.Sprintf(" %s %s: %s → %s%s", *p.ToolCallID, *p.ToolState, data.Input, data.Output,
					data.ErrorText)
			case data.Text != "":
				reported += ": " + data.Text
			}
			parts = append(parts, reported)
		}
	}
	return parts
}
