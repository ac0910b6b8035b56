package sqlite

import (
	"encoding/binary"
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/spans"
)

// sdkSpans are spans of one turn of the SDK.
type sdkSpans struct{ td ptrace.Traces }

func newSDKSpans() sdkSpans {
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Scope().SetName(semconv.ScopeName)
	return sdkSpans{td}
}

// add adds a span of a record, the nth of the turn.
func (s sdkSpans) add(name string, n int, attrs []attribute.KeyValue) {
	span := s.td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty()
	span.SetName(name)
	span.SetTraceID(pcommon.TraceID{1})
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], uint64(n+1))
	span.SetSpanID(id)
	span.SetStartTimestamp(pcommon.Timestamp((at + int64(n)) * 1e6))
	span.SetEndTimestamp(pcommon.Timestamp((at + int64(n) + 1) * 1e6))
	for _, kv := range attrs {
		switch v := kv.Value; v.Type() {
		case attribute.STRING:
			span.Attributes().PutStr(string(kv.Key), v.AsString())
		case attribute.INT64:
			span.Attributes().PutInt(string(kv.Key), v.AsInt64())
		}
	}
}

// step adds the nth model call, and a tool call that it asked for.
func (s sdkSpans) step(n int) {
	call := spans.ModelCall{SessionID: "ses_1", MessageID: "msg_1",
		Model: spans.Model{ProviderID: "openai", ModelID: "m"},
		Usage: spans.Usage{Tokens: &spans.Tokens{Input: 10, Output: 1}}}
	if n%40 == 7 {
		call.Error = fmt.Sprint("overloaded ", n)
	}
	s.add("chat m", 2*n, call.Append(nil))
	index := int64(n)
	tool := spans.ToolCall{SessionID: "ses_1", MessageID: "msg_1", PartID: fmt.Sprintf("prt_%d", n), PartIndex: &index,
		CallID: fmt.Sprint("call", n),
		ToolID: "bash", State: session.StateOutputAvailable, Input: `{}`, Output: `"ok"`}
	s.add(semconv.SpanToolCall, 2*n+1, tool.Append(nil))
}

// TestAModelCallOfALongTurnCostsWhatTheFirstOnesDo: the work that a model call and a tool
// call of the SDK come to does not grow with their turn, span by span and in requests.
func TestAModelCallOfALongTurnCostsWhatTheFirstOnesDo(t *testing.T) {
	last := testscale.Rounds(500, 5000)
	for name, size := range map[string]int{"span by span": 1, "in requests of 40": 40} {
		t.Run(name, func(t *testing.T) {
			s := open(t, newPath(t), Options{})
			in := ingest.New(s, ingest.Options{})
			next := 0
			deliver := func(until int) {
				for next < until {
					all := newSDKSpans()
					for range size {
						all.step(next)
						next++
					}
					if _, err := in.Traces(t.Context(), all.td); err != nil {
						t.Fatal(err)
					}
				}
			}
			costs := make(map[int]int64)
			for _, after := range []int{50, 500, 5000} {
				if after > last {
					break
				}
				deliver(after)
				steps(t, s)
				before := next
				deliver(next + 40)
				costs[after] = steps(t, s) / int64(next-before)
				t.Logf("after %d: %d SQLite steps each", after, costs[after])
				if costs[after] > costs[50]*13/10 {
					t.Errorf("a model call costs %d SQLite steps after %d, %d after 50", costs[after], after, costs[50])
				}
			}
			row, err := s.Session(t.Context(), "ses_1")
			if err != nil || row.PromptTokens != int64(10*next) {
				t.Errorf("%d calls: %d prompt tokens, %v", next, row.PromptTokens, err)
			}
		})
	}
}
