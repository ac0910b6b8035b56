package assemble_test

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// steps returns the facts of a turn of n model calls and tools, as spans and records, from a time in milliseconds.
func steps(trace string, n int, from int64) []fact.Fact {
	at := func(ms int64) int64 { return epoch + (from+ms)*1e6 }
	text := func(s string) []fact.Part { return []fact.Part{{Kind: fact.PartText, Text: s}} }
	end := int64(n*100 + 100)
	asked := []fact.Message{{Role: "user", Parts: text("Work on it " + trace)}}
	facts := []fact.Fact{{
		Kind: fact.Turn, TraceID: trace, SpanID: "root", Source: "root", Start: at(0), End: at(end), Agent: "coder",
		Input: asked, Output: text("Done."),
	}}
	for i := range n {
		ms, id := int64(i*100+10), fmt.Sprintf("call_%s_%d", trace, i)
		input := json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
		call := fact.Fact{
			Kind: fact.ModelCall, TraceID: trace, SpanID: fmt.Sprint("m", i), ParentID: "root", Start: at(ms),
			End:    at(ms + 40),
			Finish: "tool_calls",
			Model:  &session.Model{ModelID: "m"}, Usage: &fact.Usage{Tokens: session.Usage{Input: 10, Output: 1}},
			Output: []fact.Part{{Kind: fact.PartText, Text: "Step " + id},
				{Kind: fact.PartCall, CallID: id, Name: "ls", Input: input}},
		}
		if i == n-1 {
			for j := range i {
				written := fmt.Sprintf("call_%s_%d", trace, j)
				asked = append(asked,
					fact.Message{Role: "assistant",
						Parts: []fact.Part{{Kind: fact.PartCall, CallID: written, Name: "ls"}}},
					fact.Message{Role: "tool",
						Parts: []fact.Part{{Kind: fact.PartResult, CallID: written, Name: "ls",
							Output: json.RawMessage(`"out"`)}}})
			}
			call.Input, call.Output, call.Finish = asked, text("Done."), "stop"
		}
		record := fact.Fact{Kind: fact.ModelCall, Start: at(ms + 41), End: at(ms + 41), Name: "api_request",
			Source: fmt.Sprintf("log-%s-%d", trace, i)}
		tool := fact.Fact{
			Kind: fact.ToolCall, TraceID: trace, SpanID: fmt.Sprint("t", i), ParentID: "root", Start: at(ms + 50),
			End:    at(ms + 80),
			CallID: id, Tool: &fact.Tool{Name: "ls", Input: input},
		}
		result := fact.Fact{
			Kind: fact.ToolCall, Start: at(ms + 81), End: at(ms + 81), Name: "tool_result",
			Source: fmt.Sprintf("log-%s-t%d", trace, i),
			Tool:   &fact.Tool{Name: "ls", Input: input, Output: json.RawMessage(`"out"`)},
		}
		call.Source, tool.Source = call.SpanID, tool.SpanID
		facts = append(facts, call, record, tool, result)
	}
	return facts
}
