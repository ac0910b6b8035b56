//go:build e2e

package npm_test

import (
	"encoding/json"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/spans"
)

// start is the beginning of the scenario, in Unix milliseconds.
const start = 1_795_198_540_000

// scenario collects the spans of a session as the SDK would emit them.
type scenario struct {
	traces ptrace.Traces
	spans  ptrace.SpanSlice
	id     string
	turns  int64
	parts  int
	at     int64
}

func newScenario() *scenario {
	traces := ptrace.NewTraces()
	ss := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	return &scenario{traces: traces, spans: ss.Spans(), id: spans.DeriveID(spans.PrefixSession, start, "aisdk"),
		at: start}
}

// add emits a span that lasts until now.
func (s *scenario) add(r spans.SpanData) {
	sp := s.spans.AppendEmpty()
	sp.SetName(r.Kind())
	sp.SetTraceID(pcommon.TraceID{15: 1})
	n := s.spans.Len()
	sp.SetSpanID(pcommon.SpanID{6: byte(n >> 8), 7: byte(n)})
	sp.SetStartTimestamp(pcommon.Timestamp((s.at - 1) * 1e6))
	sp.SetEndTimestamp(pcommon.Timestamp(s.at * 1e6))
	otlpfile.PutAttributes(sp.Attributes(), spans.Append(nil, r))
}

func (s *scenario) partID() string {
	s.parts++
	return spans.DeriveID(spans.PrefixPart, s.at, fmt.Sprint(s.parts))
}

// message returns a message of AI SDK parts.
func (s *scenario) message(role string, data ...string) spans.Message {
	s.at++
	m := spans.Message{ID: spans.DeriveID(spans.PrefixMessage, s.at, role), CreatedAt: s.at}
	for i, d := range data {
		var head struct{ Type, ToolCallID, State string }
		if err := json.Unmarshal([]byte(d), &head); err != nil {
			panic(fmt.Sprintf("part %s: %v", d, err))
		}
		p := spans.Part{ID: s.partID(), Index: int64(i), Type: head.Type, CreatedAt: s.at, UpdatedAt: s.at,
			Data: json.RawMessage(d)}
		if head.ToolCallID != "" {
			p.ToolCallID, p.ToolState = head.ToolCallID, head.State
		}
		m.Parts = append(m.Parts, p)
	}
	return m
}

// turn emits a turn with a question and an answer of the parts.
func (s *scenario) turn(end string, answer spans.Message) {
	user := s.message("user", fmt.Sprintf(`{"type":"text","text":"question %d"}`, s.turns))
	user.CreatedAt = answer.CreatedAt - 1
	index := s.turns
	s.turns++
	s.at += 10
	s.add(&spans.Turn{SessionID: s.id, Agent: "coder", Index: &index,
		Model: spans.Model{ProviderID: "openai", ModelID: "gpt-5"},
		Usage: spans.Usage{Tokens: &spans.Tokens{Input: 10, Output: 5}}, EndReason: end, User: user, Assistant: answer})
}

// states are those of a tool call; the empty one is that of a source that does not report any.
var states = []string{
	"", session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested,
	session.StateApprovalResponded,
	session.StateOutputAvailable, session.StateOutputError, session.StateOutputDenied,
}

// calls emits a turn with a tool call in every state, each with a span of its own. fill
// sets further attributes of the span.
func (s *scenario) calls(dynamic bool, fill func(t *spans.ToolCall)) {
	answer := s.message("assistant")
	for i, state := range states {
		index := int64(i)
		t := &spans.ToolCall{SessionID: s.id, ToolID: "bash", CallID: fmt.Sprintf("call_%d_%d", s.turns, i),
			MessageID: answer.ID,
			PartID:    s.partID(), PartIndex: &index, State: state, Dynamic: dynamic}
		fill(t)
		s.at++
		s.add(t)
	}
	s.turn(semconv.EndFinish, answer)
}

// lost emits a turn whose calls have no spans: only its list of them arrived.
func (s *scenario) lost() {
	answer := s.message("assistant")
	for i, state := range append(states[1:], "nonsense") {
		for j, partType := range []string{"tool-bash", "dynamic-tool"} {
			answer.Parts = append(answer.Parts, spans.Part{ID: s.partID(), Index: int64(2*i + j), Type: partType,
				ToolCallID: fmt.Sprintf("lost_%d_%d", i, j), ToolState: state, CreatedAt: s.at, UpdatedAt: s.at})
		}
	}
	answer.Parts = append(answer.Parts, spans.Part{ID: s.partID(), Index: int64(len(answer.Parts)), Type: "text",
		CreatedAt: s.at, UpdatedAt: s.at})
	s.turn(semconv.EndFinish, answer)
}

// everyKind is a scenario with every kind of part, tools in every state with complete and
// incomplete telemetry, interrupted turns, and compactions.
func everyKind() ptrace.Traces {
	s := newScenario()
	s.turn(semconv.EndFinish, s.message("assistant",
		`{"type":"step-start"}`,
		`{"type":"reasoning","text":"hm","state":"done","providerMetadata":{"openai":{"itemId":"rs_1"}}}`,
		`{"type":"text","text":"","state":"streaming"}`,
		`{"type":"text","text":"\u0000 \u2028 <b> 😀","state":"done"}`,
		`{"type":"source-url","sourceId":"s1","url":"https://example.com","title":"t"}`,
		`{"type":"source-document","sourceId":"s2","mediaType":"application/pdf","title":"d","filename":"d.pdf"}`,
		`{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,iVBORw0KGgo="}`,
		`{"type":"data-plan","id":"1","data":{"steps":[1,null,true]}}`,
		`{"type":"tool-read","toolCallId":"i0","state":"output-available","input":{"p":1},"output":"x",`+
			`"approval":{"id":"a","approved":true},"preliminary":true}`,
		`{"type":"dynamic-tool","toolName":"gh_search","toolCallId":"i1","state":"output-error","input":{"p":1},`+
			`"errorText":"no","providerExecuted":true,"callProviderMetadata":{"x":{"y":1}}}`,
	))
	for _, dynamic := range []bool{false, true} {
		s.calls(dynamic, func(t *spans.ToolCall) { // as the SDK reports it
			t.Input = `{"cmd":"ls"}`
			switch t.State {
			case session.StateOutputAvailable:
				t.Output = `{"stdout":"a"}`
			case session.StateOutputError:
				t.Error = "exit status 1"
			case session.StateApprovalRequested, session.StateApprovalResponded:
				t.ApprovalID = "perm_1"
			case session.StateOutputDenied:
				t.ApprovalID, t.Denied = "perm_1", true
			}
		})
		s.calls(dynamic, func(*spans.ToolCall) {}) // the state only
		s.calls(dynamic, func(t *spans.ToolCall) { // all attributes, in every state
			t.Input, t.Output, t.Error, t.ErrorType, t.ApprovalID = `{"a":1}`, `"out"`, "failed", "timeout", "perm_1"
			t.ProviderExecuted, t.Denied, t.Truncated, t.OutputPath, t.OutputSize = true, true, true, "/out", 9
			t.ChildSessionID, t.ACPKind = "ses_child", semconv.ToolKindExecute
		})
		s.calls(dynamic, func(t *spans.ToolCall) { // JSON that a limit truncated
			t.Input, t.Output, t.ApprovalID = `{"cmd":"l`, `[1,`, "perm_1"
		})
	}
	s.lost()
	s.turn(semconv.EndAbort, s.message("assistant", `{"type":"text","text":"I was go"}`))
	s.turn(semconv.EndError, s.message("assistant")) // refused before the first word
	tail := ""
	for range 2 { // one without a tail, one with a tail
		marker := s.message("compaction")
		s.add(&spans.Compaction{SessionID: s.id, MessageID: marker.ID, MessageCreatedAt: s.at, PartID: s.partID(),
			Summary: "so far", SummaryTokens: 3, TailStartID: tail, Auto: tail != ""})
		answer := s.message("assistant", `{"type":"text","text":"go on"}`)
		tail = answer.ID
		s.turn(semconv.EndFinish, answer)
	}
	s.add(&spans.Run{SessionID: s.id, Agent: "coder", Title: "Every kind", CreatedAt: start,
		Outcome: semconv.EndFinish})
	return s.traces
}
