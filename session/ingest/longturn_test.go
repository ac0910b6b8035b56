package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// backgroundTurn is a turn of n steps, one span a request, in which the first call
// has its result at the end: as two spans, of which the first runs all the time.
func backgroundTurn(n int) []request {
	const begin = pcommon.Timestamp(1_760_000_000_000_000_000)
	span := func(id int, name string, from, to int, attributes map[string]string) request {
		td := ptrace.NewTraces()
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(name)
		s.SetTraceID(pcommon.TraceID{7: 1, 15: 1})
		s.SetSpanID(pcommon.SpanID{6: byte(id >> 8), 7: byte(id)})
		if id > 1 {
			s.SetParentSpanID(pcommon.SpanID{7: 1})
		}
		s.SetStartTimestamp(begin + pcommon.Timestamp(from)*1e6)
		s.SetEndTimestamp(begin + pcommon.Timestamp(to)*1e6)
		for key, value := range attributes {
			s.Attributes().PutStr(key, value)
		}
		s.Attributes().PutStr("gen_ai.operation.name", strings.Fields(name)[0])
		s.Attributes().PutStr("gen_ai.conversation.id", "long")
		return request{traces: td}
	}
	asks := func(ids ...string) map[string]string {
		var parts []string
		for _, id := range ids {
			parts = append(parts, fmt.Sprintf(`{"type":"tool_call","id":%q,"name":"build","arguments":{"id":%q}}`, id,
				id))
		}
		return map[string]string{"gen_ai.output.messages": `[{"role":"assistant","parts":[` + strings.Join(parts, ",") +
			`],"finish_reason":"tool_call"}]`}
	}
	ran := func(id, output string) map[string]string {
		m := map[string]string{"gen_ai.tool.name": "build", "gen_ai.tool.call.id": id}
		if output != "" {
			m["gen_ai.tool.call.result"] = fmt.Sprintf("%q", output)
		}
		return m
	}
	root := map[string]string{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text",` +
		`"content":"Build it."}]}]`}
	all := []request{
		span(2, "chat m", 10, 20, asks("slow", "late")),
		span(3, "execute_tool build", 21, n*100-30, ran("slow", "built slow")),
	}
	for i := 1; i < n; i++ {
		id := fmt.Sprint("call", i)
		all = append(all, span(2*i+2, "chat m", i*100, i*100+20, asks(id)),
			span(2*i+3, "execute_tool build", i*100+21, i*100+30, ran(id, "built "+id)))
	}
	all = append(all, span(2*n+4, "execute_tool build", n*100-40, n*100-35, ran("late", "built late")))
	return append(all, span(1, "invoke_agent coder", 0, n*100, root))
}

// TestResultsOfBackgroundToolsInAnyOrder: a turn with tools that run in the background
// comes to the same bytes in any order, and each of its calls is one part.
func TestResultsOfBackgroundToolsInAnyOrder(t *testing.T) {
	n := testscale.Rounds(60, 120)
	all := backgroundTurn(n)
	s := openStore(t)
	deliver(t, s, join(all))
	parts := make(map[string]int)
	for _, row := range storetest.Sessions(t, s) {
		id := row.ID
		tr := storetest.Transcript(t, s, id)
		for _, m := range tr.Messages {
			for _, p := range m.Parts {
				if p.ToolCallID == nil {
					continue
				}
				if parts[*p.ToolCallID]++; !strings.Contains(p.DataJSON, "built "+*p.ToolCallID) {
					t.Errorf("the part of call %s has no result: %s", *p.ToolCallID, p.DataJSON)
				}
			}
		}
	}
	if len(parts) != n+1 || parts["slow"] != 1 || parts["late"] != 1 {
		t.Errorf("parts of calls: %v", parts)
	}
	testOrder(t, all, testscale.Rounds(2, 8))
}
