package assemble_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// steps returns the facts of a turn of n model calls and tools, as spans and
// records, from a time in milliseconds.
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

// turns returns the facts of n turns of three steps each. Without spans every turn
// is built by records alone.
func turns(n int, records bool) []fact.Fact {
	var all []fact.Fact
	for i := range n {
		for _, f := range steps(fmt.Sprint("t", i), 3, int64(i)*1000) {
			if records {
				if f.Kind == fact.Turn {
					f.Kind, f.Name = fact.Prompt, "user_prompt"
				}
				f.Source = fact.RecordPrefix + f.TraceID + f.Source
				f.End, f.TraceID, f.SpanID, f.ParentID = f.Start, "", "", ""
			}
			all = append(all, f)
		}
	}
	return all
}

// TestManyTurns checks what the benchmarks assemble.
func TestManyTurns(t *testing.T) {
	for _, records := range []bool{false, true} {
		facts := turns(50, records)
		out := assemble.Assemble("home", facts)
		verify(t, facts, &out)
		if got, want := len(out.Messages), 100; got != want {
			t.Errorf("records %v: %d messages, want %d", records, got, want)
		}
		for i := range out.Messages {
			if m := &out.Messages[i]; m.Role == session.RoleAssistant && len(m.Parts) < 7 {
				t.Errorf("records %v: message %d has %d parts", records, i, len(m.Parts))
			}
		}
	}
}
