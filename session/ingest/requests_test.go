package ingest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// filler makes n bytes that look like program output.
func filler(r *rand.Rand, n int) string {
	const words = "the quick func returns error nil while reading file main.go line value string expected got test passed "
	var b strings.Builder
	for b.Len() < n {
		i := r.IntN(len(words) - 12)
		b.WriteString(words[i : i+12])
	}
	return b.String()[:n]
}

// agentSession is the work that the targets are set for: ten turns of a 500 byte
// question, 1 KB of reasoning, four 3 KB tool calls and a 1 KB answer, with a
// few decisions and a compaction, as 54 spans of all five kinds.
func agentSession(r *rand.Rand, n, turns int) []ptrace.Span {
	s := newScenario()
	s.trace = uint64(n)*1_000_000 + 1
	s.next = uint64(n) * 1_000_000
	at := int64(n) * 1000 % 1_000_000_000
	begin := at
	sessionID := id(spans.PrefixSession, n, at)
	model := spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}
	for turn := range turns {
		k := n*100_000_000 + turn*100
		user := spans.Message{ID: id(spans.PrefixMessage, k, at), CreatedAt: start + at,
			Parts: []spans.Part{textPart(k, 0, at, "text", filler(r, 500))}}
		assistant := spans.Message{ID: id(spans.PrefixMessage, k+1, at+1), CreatedAt: start + at + 1}
		assistant.Parts = append(assistant.Parts, textPart(k+1, 0, at+1, "reasoning", filler(r, 1000)))
		for call := range 4 {
			from := at + 10 + int64(call)*10
			tool := &spans.ToolCall{SessionID: sessionID, ToolID: "bash", CallID: fmt.Sprintf("call_%x", r.Uint64()),
				MessageID: assistant.ID,
				PartID:    id(spans.PrefixPart, k+10+call, from), PartIndex: ptr(int64(call + 1)),
				State: "output-available",
				Input: `{"cmd":"` + filler(r, 200) + `"}`, Output: `{"stdout":"` + filler(r, 2700) + `"}`,
				DurationMS: ptr(int64(8))}
			if turn%5 == 0 && call == 0 {
				s.add(&spans.Permission{SessionID: sessionID, ID: id(spans.PrefixPermission, k, from), ToolID: "bash",
					CallID: tool.CallID, MessageID: assistant.ID,
					PartID: tool.PartID, Pattern: "*", Action: semconv.ActionAllow, Source: semconv.SourceSession,
					Outcome: semconv.OutcomeAllowed}, from, from)
			}
			s.add(tool, from, from+8)
			assistant.Parts = append(assistant.Parts, spans.Part{ID: tool.PartID, Index: *tool.PartIndex, Type: "tool-bash",
				ToolCallID: tool.CallID, ToolState: tool.State, CreatedAt: start + from, UpdatedAt: start + from + 8})
		}
		assistant.Parts = append(assistant.Parts, textPart(k+2, 5, at+60, "text", filler(r, 1000)))
		s.add(&spans.Turn{SessionID: sessionID, Agent: "coder", Index: ptr(int64(turn)), Model: model,
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 1000, Output: 20, Reasoning: 5, CacheRead: 40},
				Basis: semconv.BasisInclusive}, ModelCalls: 2, StopReason: "stop",
			EndReason: semconv.EndFinish, DurationMS: ptr(int64(80)), SystemPromptDigest: digest("p"),
			ToolCatalogDigest: digest("c"), User: user, Assistant: assistant}, at, at+80)
		if turn%10 == 7 {
			s.add(&spans.Compaction{SessionID: sessionID, SummarizedMessages: 10,
				MessageID: id(spans.PrefixMessage, k+50, at+90), MessageCreatedAt: start + at + 90,
				PartID: id(spans.PrefixPart, k+50, at+90), Summary: filler(r, 800), SummaryTokens: 200, Auto: true,
				TailStartID: user.ID}, at+85, at+90)
		}
		at += 100
	}
	s.add(&spans.Run{SessionID: sessionID, Agent: "coder", Title: "a title", Model: model, Outcome: semconv.EndFinish,
		CreatedAt: start + begin}, begin, at)
	return s.spans
}

type nothing struct{}

func (nothing) Apply(context.Context, *store.Batch) (store.Result, error) { return store.Result{}, nil }
