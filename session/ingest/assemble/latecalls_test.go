package assemble_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// background is a turn of n steps with the facts of other calls in it.
func background(n int, more ...fact.Fact) []fact.Fact { return append(steps("t", n, 0), more...) }

func at(ms int64) int64 { return epoch + ms*1e6 }

// requested is a model call that asks for tool calls by id.
func requested(span string, ms int64, ids ...string) fact.Fact {
	f := fact.Fact{
		Kind: fact.ModelCall, TraceID: "t", SpanID: span, Source: span, ParentID: "root", Start: at(ms),
		End:    at(ms + 1),
		Finish: "tool_calls",
		Model:  &session.Model{ModelID: "m"},
	}
	for _, id := range ids {
		f.Output = append(f.Output, fact.Part{Kind: fact.PartCall, CallID: id, Name: "build",
			Input: json.RawMessage(`{"target":"all"}`)})
	}
	return f
}

// ran is the span of a tool, reported a record of its result.
func ran(id string, from, to int64, output string) fact.Fact {
	return fact.Fact{
		Kind: fact.ToolCall, TraceID: "t", SpanID: "run-" + id, Source: "run-" + id, ParentID: "root", Start: at(from),
		End: at(to), CallID: id,
		Tool: &fact.Tool{Name: "build", Output: quoted(output)},
	}
}

func reported(id string, ms int64, output string) fact.Fact {
	return fact.Fact{
		Kind: fact.ToolCall, TraceID: "t", SpanID: "root", Source: fmt.Sprint(fact.RecordPrefix, id, ms),
		Name:  "tool_result",
		Start: at(ms), End: at(ms),
		CallID: id, Tool: &fact.Tool{Name: "build", Output: quoted(output)},
	}
}

func quoted(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(fmt.Sprintf("%q", text))
}

// callsOf returns the tool parts of an assembly by the id of the call.
func callsOf(t *testing.T, out *store.Assembly) map[string]map[string]any {
	t.Helper()
	all := make(map[string]map[string]any)
	for _, m := range out.Messages {
		for _, p := range m.Parts {
			var data map[string]any
			testscale.Must(t, json.Unmarshal([]byte(p.DataJSON), &data))
			id, _ := data["toolCallId"].(string)
			if id == "" {
				continue
			}
			if all[id] != nil {
				t.Errorf("call %s has two parts:\n%v\n%v", id, all[id], data)
			}
			all[id] = data
		}
	}
	return all
}

// TestAToolCallIsOnePartHoweverLateItsResult: a call and its result are one part, however much
// of the turn is between them.
func TestAToolCallIsOnePartHoweverLateItsResult(t *testing.T) {
	const late = 20_000 // 200 steps and 800 facts after the call
	decision := fact.Fact{
		Kind: fact.Permission, TraceID: "t", SpanID: "asked", Source: "asked", ParentID: "root", Start: at(late),
		End: at(late + 1), CallID: "bg",
		Decision: &fact.Decision{ToolName: "build", Action: "ask", Outcome: "denied", Reason: "not now"},
	}
	written := requested("reported", late)
	written.Input = []fact.Message{
		{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: "Work on it t"}}},
		{Role: "tool", Parts: []fact.Part{{Kind: fact.PartResult, CallID: "bg", Name: "build",
			Output: json.RawMessage(`"built"`)}}},
	}
	failed := ran("bg", late, late+1, "")
	failed.Failed, failed.Error = true, "no space left"
	twice := []fact.Fact{requested("ask", 5, "bg"), ran("bg", 7, 8, "built"), reported("bg", late, "built"),
		reported("bg", late-900, "built")}
	for _, c := range []struct {
		name, state, output string
		facts               []fact.Fact
	}{
		{"the tool starts late", "output-available", "built",
			[]fact.Fact{requested("ask", 5, "bg"), ran("bg", late, late+1, "built")}},
		{"a record has the result", "output-available", "built",
			[]fact.Fact{requested("ask", 5, "bg"), reported("bg", late, "built")}},
		{
			"the tool runs all the time", "output-available", "built",
			[]fact.Fact{requested("ask", 5, "bg"), ran("bg", 7, late, ""), reported("bg", late, "built")},
		},
		{"a request repeats the result", "output-available", "built", []fact.Fact{requested("ask", 5, "bg"), written}},
		{"it fails late", "output-error", "", []fact.Fact{requested("ask", 5, "bg"), failed}},
		{"it is denied late", "output-error", "", []fact.Fact{requested("ask", 5, "bg"), decision}},
		{"there is no result", "input-available", "", []fact.Fact{requested("ask", 5, "bg")}},
		{"the result is reported again", "output-available", "built", twice},
		{"it ran before it was requested", "output-available", "built",
			[]fact.Fact{ran("bg", 5, 6, "built"), requested("ask", late, "bg")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			facts := background(250, c.facts...)
			rankTraces(facts)
			got := assemble.Assemble("home", facts)
			verify(t, facts, &got)
			if d := gocmp.Diff(got, shuffled("home", facts, 1)); d != "" {
				t.Errorf("in another order (-want +got):\n%s", d)
			}
			p := callsOf(t, &got)["bg"]
			if p["state"] != c.state || c.output != "" && p["output"] != c.output {
				t.Errorf("the part of the call is %v", p)
			}
		})
	}
}

// TestHundredsOfToolCallsInOneStep: each call is one part with its own result, in
// whatever order the results come and whatever happens between them.
func TestHundredsOfToolCallsInOneStep(t *testing.T) {
	const many = 300
	for _, apart := range []int64{1, 70, 1900} { // milliseconds between results
		t.Run(fmt.Sprintf("%d ms apart", apart), func(t *testing.T) {
			var ids []string
			var more []fact.Fact
			order := rand.New(rand.NewPCG(1, 1)).Perm(many)
			for i := range many {
				id := fmt.Sprint("p", i)
				ids = append(ids, id)
				more = append(more, reported(id, 20+int64(order[i])*apart, "of "+id))
			}
			n := 120
			if apart == 70 {
				n = 260
			}
			facts := background(n, append(more, requested("ask", 5, ids...))...)
			rankTraces(facts)
			out := assemble.Assemble("home", facts)
			verify(t, facts, &out)
			calls := callsOf(t, &out)
			for _, id := range ids {
				if p := calls[id]; p["output"] != "of "+id {
					t.Errorf("the part of call %s is %v", id, p)
				}
			}
			if d := gocmp.Diff(out, shuffled("home", facts, 3)); d != "" {
				t.Errorf("in another order (-want +got):\n%s", d)
			}
		})
	}
}

// TestALostCallOfALongTurnIsRestored: requests repeat the end of a long turn only, and each call that was lost is known
// from those that followed it.
func TestALostCallOfALongTurnIsRestored(t *testing.T) {
	const n, lost = 200, 20
	output := json.RawMessage(`"built` + strings.Repeat(" and built", 90) + `"`)
	var facts []fact.Fact
	asked := []fact.Message{{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: "Build it."}}}}
	for i := range n {
		f := requested(fmt.Sprint("m", i), int64(i*10), fmt.Sprint("c", i))
		f.ParentID = ""
		f.Input, f.History = dialect.Recent(asked)
		if i != lost {
			facts = append(facts, f)
		}
		asked = append(asked, fact.Message{Role: "assistant", Parts: f.Output}, fact.Message{Role: "tool", Parts: []fact.Part{
			{Kind: fact.PartResult, CallID: fmt.Sprint("c", i), Name: "build", Output: output}}})
	}
	rankTraces(facts)
	out := assemble.Assemble("home", facts)
	verify(t, facts, &out)
	var ids []string
	for _, p := range out.Messages[len(out.Messages)-1].Parts {
		if p.ToolCallID != nil {
			ids = append(ids, *p.ToolCallID)
		}
	}
	if len(ids) != n || ids[lost] != fmt.Sprint("c", lost) {
		t.Errorf("calls %v", ids)
	}
}
