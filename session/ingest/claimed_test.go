package ingest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// TestASpanStaysWithItsFirstSession: a later span with the ids of a stored one and another session, or a decision with a
// stored one's id, changes nothing of the first session, in the same request too, and is counted.
func TestASpanStaysWithItsFirstSession(t *testing.T) {
	foreign := func(session, text string) ptrace.Traces {
		td := manySpans("chain", "chat", 1)
		s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		s.Attributes().PutStr("gen_ai.conversation.id", session)
		s.Attributes().PutStr("gen_ai.input.messages",
			`[{"role":"user","parts":[{"type":"text","content":"`+text+`"}]}]`)
		s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(1e9*len(text)))
		return td
	}
	decision := func(session, text string) ptrace.Traces {
		s := newScenario()
		s.add(&spans.Permission{SessionID: session, ID: id(spans.PrefixPermission, 1, 1), ToolID: text, Pattern: "*",
			Action: semconv.ActionAllow, Source: semconv.SourceSession, Outcome: semconv.OutcomeAllowed}, 1,
			1+int64(len(text)))
		return traces(s.spans...)
	}
	turn := func(session, text string) ptrace.Traces {
		s := newScenario()
		s.add(&spans.Turn{SessionID: session, Agent: "coder",
			User:      spans.Message{ID: id(spans.PrefixMessage, 1, 1), CreatedAt: 1, Parts: []spans.Part{textPart(1, 0, 1, "text", text)}},
			Assistant: spans.Message{ID: id(spans.PrefixMessage, 1, 2), CreatedAt: 2}}, 1, 1+int64(len(text)))
		return traces(s.spans...)
	}
	call := func(session, text string) ptrace.Traces {
		s := newScenario()
		s.add(&spans.ToolCall{SessionID: session, MessageID: id(spans.PrefixMessage, 1, 2), CallID: "c-1", ToolID: "read",
			PartID: id(spans.PrefixPart, 1, 1), Input: `{"path":"` + text + `"}`, Output: `"x"`}, 1,
			1+int64(len(text)))
		return traces(s.spans...)
	}
	event := func(session, text string) plog.Logs {
		return logs(record(&spans.Event{Name: semconv.EventMessage, SessionID: session, Role: "user",
			MessageID: id(spans.PrefixMessage, 1, 1), MessageCreatedAt: 1, Parts: []spans.Part{textPart(1, 0, 1, "text", text)}},
			1e6+int64(len(text))))
	}
	clientRecord := func(session, text string) plog.Logs {
		ld := plog.NewLogs()
		r := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		r.SetEventName("gen_ai.client.inference.operation.details")
		r.SetTimestamp(1_760_000_000_000_000_000 + pcommon.Timestamp(len(text)))
		r.SetTraceID(pcommon.TraceID{1})
		r.SetSpanID(pcommon.SpanID{2})
		r.Attributes().PutStr("gen_ai.operation.name", "chat")
		r.Attributes().PutStr("gen_ai.conversation.id", session)
		r.Attributes().PutStr("gen_ai.response.id", "r-1")
		r.Attributes().PutStr("gen_ai.input.messages",
			`[{"role":"user","parts":[{"type":"text","content":"`+text+`"}]}]`)
		return ld
	}
	ofSpans := func(make func(string, string) ptrace.Traces) func(string, string) request {
		return func(session, text string) request { return request{traces: make(session, text)} }
	}
	ofRecords := func(make func(string, string) plog.Logs) func(string, string) request {
		return func(session, text string) request { return request{logs: make(session, text), isLogs: true} }
	}
	for name, make := range map[string]func(session, text string) request{
		"a client's span": ofSpans(foreign), "the SDK's decision": ofSpans(decision), "the SDK's turn": ofSpans(turn),
		"the SDK's tool call": ofSpans(call), "the SDK's event": ofRecords(event),
		"a client's record": ofRecords(clientRecord),
	} {
		alone := openStore(t)
		deliver(t, alone, []request{make("victim", "hi")})
		want := storetest.Transcript(t, alone, "victim")
		for _, together := range []bool{false, true} {
			all := []request{make("victim", "hi"), make("evil", "a longer text")}
			if together {
				all = join(all)
			}
			s := openStore(t)
			report := deliver(t, s, all)
			// A record has no id of its own: another session's is another record.
			if report.Refused == 0 && name != "a client's record" {
				t.Errorf("%s: the later claim is not counted", name)
			}
			got, err := s.Transcript(t.Context(), "victim")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: the first session differs (-want +got):\n%s", name, diff)
			}
		}
	}
}
