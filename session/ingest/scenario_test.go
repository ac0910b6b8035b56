package ingest_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/spans"
)

// start is when every scenario begins, Unix milliseconds.
const start = 1_795_198_540_000

// scenario collects the spans of runs as an SDK would emit them.
type scenario struct {
	spans []ptrace.Span
	next  uint64
	trace uint64
}

func newScenario() *scenario { return &scenario{trace: 1} }

// add emits a record as a span between two times, in milliseconds after start.
func (s *scenario) add(r spans.SpanData, from, to int64) ptrace.Span {
	td := ptrace.NewTraces()
	sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	name := r.Kind()
	if m, ok := r.(*spans.ModelCall); ok {
		name += " " + m.Model.ModelID
	}
	sp.SetName(name)
	var traceID pcommon.TraceID
	binary.BigEndian.PutUint64(traceID[8:], s.trace)
	sp.SetTraceID(traceID)
	s.next++
	var spanID pcommon.SpanID
	binary.BigEndian.PutUint64(spanID[:], s.next)
	sp.SetSpanID(spanID)
	sp.SetStartTimestamp(pcommon.Timestamp((start + from) * 1e6))
	sp.SetEndTimestamp(pcommon.Timestamp((start + to) * 1e6))
	otlpfile.PutAttributes(sp.Attributes(), spans.Append(nil, r))
	s.spans = append(s.spans, sp)
	return sp
}

// traces packs spans into one request, each under a scope of its own.
func traces(all ...ptrace.Span) ptrace.Traces {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	for _, s := range all {
		s.CopyTo(ss.Spans().AppendEmpty())
	}
	return td
}

// id makes the nth id of a kind, stamped with a time after start.
func id(prefix string, n int, at int64) string {
	return spans.DeriveID(prefix, start+at, fmt.Sprint(n))
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func textPart(n int, index, at int64, partType, text string) spans.Part {
	// The type comes first, as the SDK writes it.
	data := []byte(`{"type":"` + partType + `","text":` + string(must(json.Marshal(text))) + `}`)
	return spans.Part{ID: id(spans.PrefixPart, n, at), Index: index, Type: partType, CreatedAt: start + at,
		UpdatedAt: start + at, Data: data}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

// run adds one run of a session: turns with reasoning, text, tool calls that
// work, fail and are denied, decisions, a model switch and a compaction.
func (s *scenario) run(sessionID string, first, turns int, at int64) (userIDs []string) {
	begin := at
	var tail string
	for turn := first; turn < first+turns; turn++ {
		base := turn * 100
		model := spans.Model{ProviderID: "openai", ModelID: []string{"gpt-5-mini", "gpt-5"}[turn%2], Variant: "high"}
		user := spans.Message{ID: id(spans.PrefixMessage, base, at), CreatedAt: start + at}
		user.Parts = []spans.Part{textPart(base, 0, at, "text", fmt.Sprintf("question %d", turn))}
		userIDs = append(userIDs, user.ID)
		if turn%3 == 2 {
			tail = user.ID
			message := id(spans.PrefixMessage, base+50, at+5)
			s.add(&spans.Compaction{SessionID: sessionID, SummarizedMessages: int64(2 * turn), InputTokens: 900,
				OutputTokens: 80,
				MessageID:    message, MessageCreatedAt: start + at + 5, PartID: id(spans.PrefixPart, base+50, at+5),
				Summary: "what happened so far", SummaryTokens: 75, Auto: true, TailStartID: tail}, at+2, at+5)
		}
		assistant := spans.Message{ID: id(spans.PrefixMessage, base+1, at+10), CreatedAt: start + at + 10}
		parts := []spans.Part{textPart(base+1, 0, at+10, "reasoning", "I should look first")}
		for call := range 3 {
			callID := fmt.Sprintf("call_%d_%d", turn, call)
			from := at + 20 + int64(call)*10
			tool := &spans.ToolCall{SessionID: sessionID, ToolID: "bash", CallID: callID, MessageID: assistant.ID,
				PartID: id(spans.PrefixPart, base+10+call, from), PartIndex: ptr(int64(call + 1)),
				State: "output-available",
				Input: `{"cmd":"ls"}`, Output: `{"stdout":"a\nb"}`, DurationMS: ptr(int64(8)),
				ACPKind: semconv.ToolKindExecute}
			decision := &spans.Permission{SessionID: sessionID, ID: id(spans.PrefixPermission, base+call, from),
				ToolID:    "bash",
				CallID:    callID,
				MessageID: assistant.ID, PartID: tool.PartID, Pattern: "*", Action: semconv.ActionAllow,
				Source: semconv.SourceSession, Outcome: semconv.OutcomeAllowed}
			switch call {
			case 1:
				tool.State, tool.Output, tool.Error = "output-error", "", "exit status 1"
			case 2:
				tool.State, tool.Output, tool.Error, tool.Denied = "output-error", "", "permission denied: no", true
				decision.Action, decision.Outcome, decision.Reason = semconv.ActionDeny, semconv.OutcomeDenied, "no"
			}
			s.add(decision, from, from)
			s.add(tool, from, from+8)
			parts = append(parts, spans.Part{ID: tool.PartID, Index: *tool.PartIndex, Type: "tool-bash",
				ToolCallID: callID,
				ToolState:  tool.State,
				CreatedAt:  start + from, UpdatedAt: start + from + 8})
		}
		s.add(&spans.ModelCall{SessionID: sessionID, MessageID: assistant.ID, Index: ptr(int64(0)), Model: model,
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 100, Output: 20, Reasoning: 5, CacheRead: 40}}}, at+10,
			at+20)
		parts = append(parts, textPart(base+2, 4, at+60, "text", fmt.Sprintf("answer %d", turn)))
		assistant.Parts = parts
		prompt := fmt.Sprintf("You are careful (%d)", turn/2)
		t := &spans.Turn{SessionID: sessionID, Agent: "coder", Index: ptr(int64(turn)), Model: model,
			Temperature: ptr(0.25),
			Usage: spans.Usage{Tokens: &spans.Tokens{Input: 100, Output: 20, Reasoning: 5, CacheRead: 40,
				CacheWrite: 2},
				Basis: semconv.BasisInclusive, CostUSD: ptr(0.001 * float64(turn))},
			ModelCalls: 2, StopReason: "stop", EndReason: semconv.EndFinish, DurationMS: ptr(int64(80)),
			SystemPromptDigest: digest(prompt), ToolCatalogDigest: digest("[]"), User: user, Assistant: assistant}
		if turn%2 == 0 {
			t.SystemPrompt, t.ToolCatalog = prompt, "[]"
		}
		s.add(t, at, at+80)
		at += 100
	}
	s.add(&spans.Run{SessionID: sessionID, Agent: "coder", Title: fmt.Sprintf("Fix it (%d)", first), UserID: "ann",
		WorkspaceRoot: "/w",
		Model:         spans.Model{ProviderID: "openai", ModelID: "gpt-5-mini"}, CreatedAt: start + begin,
		Outcome:     semconv.EndFinish,
		Permissions: json.RawMessage(`[{"permission":"bash","pattern":"*","action":"allow","source":"session"}]`),
		Metadata:    json.RawMessage(fmt.Sprintf(`{"ticket":"A-%d"}`, first))}, begin, at)
	s.trace++
	return userIDs
}

// whole is a scenario with everything: runs, a resume, a rewind that is undone and
// one that is not, a fork and a fork of it, a sub-agent, an archived session.
func whole() *scenario {
	s := newScenario()
	ses := id(spans.PrefixSession, 1, 0)
	users := s.run(ses, 0, 4, 0)
	s.add(&spans.Run{SessionID: ses, Agent: "coder", Operation: semconv.RunOperationRewind, TargetMessageID: users[1],
		TargetAt: start + 1000}, 1000, 1000)
	s.add(&spans.Run{SessionID: ses, Agent: "coder", Operation: semconv.RunOperationUnrewind, TargetMessageID: users[1],
		TargetAt: start + 1000}, 1010, 1010)
	s.add(&spans.Run{SessionID: ses, Agent: "coder", Operation: semconv.RunOperationRewind, TargetMessageID: users[2],
		TargetAt: start + 1020}, 1020, 1020)
	s.trace++
	s.run(ses, 4, 3, 1100)
	fork := id(spans.PrefixSession, 2, 2000)
	s.add(&spans.Run{SessionID: fork, Agent: "coder", Operation: semconv.RunOperationFork, Title: "Fix it (copy)",
		ParentID: ses, ParentMessageID: id(spans.PrefixMessage, 500, 1200),
		TargetMessageID: id(spans.PrefixMessage, 500, 1200), TargetAt: start + 2000, CreatedAt: start + 2000}, 2000,
		2000)
	s.trace++
	s.run(fork, 20, 1, 2100)
	again := id(spans.PrefixSession, 3, 2500)
	s.add(&spans.Run{SessionID: again, Agent: "coder", Operation: semconv.RunOperationFork, ParentID: fork,
		ParentMessageID: id(spans.PrefixMessage, 2000, 2100),
		TargetMessageID: id(spans.PrefixMessage, 2000, 2100), TargetAt: start + 2500}, 2500, 2500)
	s.run(id(spans.PrefixSession, 4, 3000), 30, 1, 3000)
	child := &spans.Run{SessionID: id(spans.PrefixSession, 5, 3010), Agent: "reviewer",
		ParentID: id(spans.PrefixSession, 4, 3000), ParentMessageID: id(spans.PrefixMessage, 3000, 3000),
		Outcome: semconv.EndError, Error: "gave up"}
	s.add(child, 3010, 3050)
	s.add(&spans.Run{SessionID: id(spans.PrefixSession, 4, 3000), Agent: "coder",
		Operation: semconv.RunOperationArchive},
		4000, 4000)
	return s
}

func shuffled(r *rand.Rand, in []ptrace.Span) []ptrace.Span {
	out := append([]ptrace.Span(nil), in...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
