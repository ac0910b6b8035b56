package ingest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// TestModelCallsOfALongTurnInAnyOrder: the many model calls of one turn give the same bytes
// in every table in any order and in any requests, before the turn's own span and after it.
func TestModelCallsOfALongTurnInAnyOrder(t *testing.T) {
	s := newScenario()
	const session = "ses_many"
	message := id(spans.PrefixMessage, 1, 1)
	var calls int64
	for n := range int64(70) {
		call := &spans.ModelCall{SessionID: session, MessageID: message,
			Model:      spans.Model{ProviderID: "openai", ModelID: "m"},
			StopReason: "tool_use", ResponseID: fmt.Sprint("r", n),
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 10 + n, Output: 1}, CostUSD: ptr(0.001)}}
		if n%5 == 2 {
			call.Error, call.StopReason = fmt.Sprint("overloaded ", n), ""
		}
		s.add(call, 10*n, 10*n+5)
		calls++
	}
	chats := slices.Clone(s.spans)
	s.add(&spans.Turn{SessionID: session, Agent: "coder", Index: ptr(int64(0)),
		Model: spans.Model{ProviderID: "openai", ModelID: "m"}, ModelCalls: calls,
		Usage:     spans.Usage{Tokens: &spans.Tokens{Input: 3000, Output: 70}, Basis: semconv.BasisInclusive},
		EndReason: semconv.EndFinish, User: spans.Message{ID: id(spans.PrefixMessage, 0, 0), CreatedAt: start,
			Parts: []spans.Part{textPart(0, 0, 0, "text", "go")}},
		Assistant: spans.Message{ID: message, CreatedAt: start + 1,
			Parts: []spans.Part{textPart(1, 0, 1, "text", "done")}}},
		0, 800)
	for name, all := range map[string]int{"model calls alone": len(chats), "with their turn": len(s.spans)} {
		whole := s.spans[:all]
		reference := openStore(t)
		ingestAll(t, reference, traces(whole...))
		storetest.CheckSessions(t, reference)
		want := dump(t, reference.Path())
		if !strings.Contains(want, "overloaded 67") || strings.Contains(want, `"model_errors":["overloaded 2"`) {
			t.Errorf("%s: the last errors are not reported:\n%s", name, want)
		}
		testOrder(t, []request{{traces: traces(whole...)}}, 8)
	}
}
