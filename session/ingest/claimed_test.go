package ingest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
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
	for name, make := range map[string]func(session, text string) ptrace.Traces{
		"a client's span": foreign, "the SDK's decision": decision,
	} {
		alone := openStore(t)
		deliver(t, alone, []request{{traces: make("victim", "hi")}})
		want, err := alone.Transcript(t.Context(), "victim")
		if err != nil {
			t.Fatal(err)
		}
		for _, together := range []bool{false, true} {
			all := []request{{traces: make("victim", "hi")}, {traces: make("evil", "a longer text")}}
			if together {
				all = join(all)
			}
			s := openStore(t)
			report := deliver(t, s, all)
			if report.Refused == 0 {
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
