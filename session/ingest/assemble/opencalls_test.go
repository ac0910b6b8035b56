package assemble_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
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
			if err := json.Unmarshal([]byte(p.DataJSON), &data); err != nil {
				t.Fatal(err)
			}
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

// TestAToolCallIsOnePartHoweverLateItsResult: a call and its result are one part, in
// whatever windows of the turn they are.
func TestAToolCallIsOnePartHoweverLateItsResult(t *testing.T) {
	const late = 2_000 // 20 steps and 80 facts after the call
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
			facts := background(25, c.facts...)
			rankTraces(facts)
			got := goesOn(t, facts)
			if len(got.Cuts) < 18 {
				t.Errorf("%d cuts", len(got.Cuts))
			}
			p := callsOf(t, &got)["bg"]
			if p["state"] != c.state || c.output != "" && p["output"] != c.output {
				t.Errorf("the part of the call is %v", p)
			}
			for _, cut := range got.Cuts {
				if len(cut.Carry) > 8<<10 {
					t.Fatalf("%d bytes are carried", len(cut.Carry))
				}
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
			out, err := assemble.Windows{Owner: "home", Facts: facts}.Assemble()
			if err != nil {
				t.Fatal(err)
			}
			verify(t, facts, &out)
			calls := callsOf(t, &out)
			unanswered := 0
			for _, id := range ids {
				switch p := calls[id]; {
				case p["state"] == "input-available":
					unanswered++
				case p["output"] != "of "+id:
					t.Errorf("the part of call %s is %v", id, p)
				}
			}
			if unanswered > 0 && apart < 1900 {
				t.Errorf("%d calls have no result", unanswered)
			}
			if d := gocmp.Diff(out.Messages, shuffledWindows(t, facts)); d != "" {
				t.Errorf("in another order (-want +got):\n%s", d)
			}
		})
	}
}

func shuffledWindows(t *testing.T, facts []fact.Fact) []store.AssembledMessage {
	t.Helper()
	mixed := make([]fact.Fact, len(facts))
	for i, j := range rand.New(rand.NewPCG(3, 4)).Perm(len(facts)) {
		mixed[i] = facts[j]
	}
	out, err := assemble.Windows{Owner: "home", Facts: mixed}.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	return out.Messages
}

// TestCallsWithoutResultsCarryNoMoreAndMore: where no result is ever reported, a turn
// is cut as often as another, and what its cuts carry does not grow.
func TestCallsWithoutResultsCarryNoMoreAndMore(t *testing.T) {
	var facts []fact.Fact
	for i := range 1500 {
		facts = append(facts, requested(fmt.Sprint("m", i), int64(i*10), fmt.Sprint("lost", i)))
	}
	rankTraces(facts)
	out, err := assemble.Windows{Owner: "home", Facts: facts}.Assemble()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(callsOf(t, &out)); n != 1500 || len(out.Cuts) < 1500/assemble.DefaultSize*9/10 {
		t.Fatalf("%d calls, %d cuts", n, len(out.Cuts))
	}
	maximum := len(out.Cuts[len(out.Cuts)/2].Carry)
	for i, cut := range out.Cuts {
		if len(cut.Carry) > maximum*11/10 {
			t.Fatalf("cut %d carries %d bytes, %d half way", i, len(cut.Carry), maximum)
		}
	}
	if strings.Count(string(out.Cuts[len(out.Cuts)-1].Carry), `"lost`) == 0 {
		t.Error("no open call is carried")
	}
	t.Logf("%d cuts carry %d bytes each", len(out.Cuts), maximum)
}
