package assemble_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/assemble"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// FuzzAssemble assembles facts that no agent would send: nothing may panic, every
// rule of a session holds, and the order of the facts has no meaning.
func FuzzAssemble(f *testing.F) {
	for seed := range 32 {
		f.Add(uint64(seed), uint64(seed%4), 5+seed)
	}
	f.Fuzz(func(t *testing.T, seed, shape uint64, n int) {
		facts := randomFacts(rand.New(rand.NewPCG(seed, shape)), max(0, n)%120)
		rankTraces(facts)
		out := assemble.Assemble("home", facts)
		verify(t, facts, &out)
		if d := gocmp.Diff(out, shuffled("home", facts, seed)); d != "" {
			t.Errorf("in another order (-want +got):\n%s", d)
		}
	})
}

// TestDamagedScenarios loses facts of the scenarios, one by one and half of them, and
// moves clocks: what is left must still be valid.
func TestDamagedScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	testscale.Must(t, err)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		testscale.Must(t, err)
		facts, err := parseFacts(section(archive, "facts"))
		if err != nil {
			t.Fatal(file, err)
		}
		try := func(left []fact.Fact) {
			rankTraces(left)
			out := assemble.Assemble("home", left)
			verify(t, left, &out)
			if d := gocmp.Diff(out, shuffled("home", left, 1)); d != "" {
				t.Errorf("in another order (-want +got):\n%s", d)
			}
			if t.Failed() {
				t.Fatalf("%s: of %d facts %d", file, len(facts), len(left))
			}
		}
		for i := range facts {
			try(append(facts[:i:i], facts[i+1:]...))
		}
		for seed := range 10 {
			r := rand.New(rand.NewPCG(uint64(seed), 11))
			var left []fact.Fact
			for _, f := range facts {
				if seed%2 == 1 {
					f.Start += r.Int64N(20e6) - 10e6
					f.End = max(f.End+r.Int64N(20e6)-10e6, 0)
				} else if r.IntN(2) == 0 {
					continue
				}
				left = append(left, f)
			}
			try(left)
		}
	}
}

// randomFacts makes facts of few ids, so that they meet.
func randomFacts(r *rand.Rand, n int) []fact.Fact {
	kinds := []fact.Kind{
		fact.Turn, fact.Step, fact.ModelCall, fact.ModelCall, fact.ModelCall, fact.ToolCall, fact.ToolCall,
		fact.Permission,
		fact.Compaction, fact.Prompt,
		fact.Answer, fact.Session, "unknown",
	}
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	few := func(prefix string, some int) string {
		if i := r.IntN(2 * some); i < some {
			return fmt.Sprint(prefix, i)
		}
		return ""
	}
	yes := func(in int) bool { return r.IntN(in) == 0 }
	raw := func() json.RawMessage {
		if yes(8) {
			return nil
		}
		return json.RawMessage(one(`{}`, `{"a":1,"b":[2]}`, `{"b":[2],"a":1}`, `"text"`, `null`, `[]`,
			`{"type":"compaction"}`, `"<no object"`))
	}
	text := func() string { return one("", "yes", "no", "yes\nno", "Generate a title for this", "<&> ☃", " ") }
	part := func() fact.Part {
		return fact.Part{
			Kind: one(fact.PartText, fact.PartText, fact.PartReasoning, fact.PartCall, fact.PartCall, fact.PartResult,
				fact.PartFile, fact.PartSource, fact.PartCompaction, fact.PartOther, "?"),
			Text: text(), CallID: few("c", 3), Name: one("", "ls", "cat", "über tool"), Input: raw(), Output: raw(),
			Error:  one("", "", "failed"),
			Denied: yes(8), Provider: yes(8), URL: one("", "https://example.com"), MediaType: one("", "image/png"),
			Data: raw(),
		}
	}
	parts := func() (all []fact.Part) {
		for range r.IntN(4) {
			all = append(all, part())
		}
		return all
	}
	unit := []int64{1, 1e3, 1e6, 1e9}[r.IntN(4)]
	seen := make(map[[2]string]bool)
	var facts []fact.Fact
	for i := range n {
		f := fact.Fact{
			Kind: kinds[r.IntN(len(kinds))], Dialect: "fuzz", TraceID: few("t", 2), Name: one("a", "b"),
			Start:   epoch + r.Int64N(50)*unit,
			Session: few("s", 2), SessionRank: r.IntN(3), TurnID: few("u", 2), RequestID: few("r", 3),
			CallID:       few("c", 3),
			RequiresTurn: yes(3),
			Agent:        one("", "", "x", "y"), Service: one("", "svc"), Output: parts(),
			Finish: one("", "", "stop", "tool_use", "abort", "error"), Aborted: yes(10),
			ResponseID: few("resp", 2), Purpose: one("", "", "", "", "title", "compaction"),
		}
		if f.End = f.Start + r.Int64N(20)*unit; yes(12) {
			f.End = 0
		}
		if yes(20) {
			f.Start = 0
		}
		if yes(3) {
			f.End, f.SpanID, f.Source = f.Start, few("p", 12), fmt.Sprint(fact.RecordPrefix, i)
		} else if f.SpanID = fmt.Sprint("p", r.IntN(12)); yes(6) {
			f.Source = fmt.Sprintf("%s#%d", f.SpanID, i)
		} else {
			f.Source, f.ParentID = f.SpanID, few("p", 12)
		}
		if key := [2]string{f.TraceID, f.Source}; seen[key] {
			continue
		} else {
			seen[key] = true
		}
		for range r.IntN(5) {
			f.Input = append(f.Input,
				fact.Message{Role: one("user", "user", "assistant", "assistant", "tool", "system"),
					Parts: parts(), ID: few("m", 2)})
		}
		if yes(2) {
			f.Model = &session.Model{ProviderID: one("", "p"), ModelID: one("", "m1", "m2")}
		}
		if yes(2) {
			f.Usage = &fact.Usage{Tokens: session.Usage{Input: r.Int64N(1 << 50), Output: r.Int64N(9),
				CacheRead: r.Int64N(9)},
				Raw: raw(), Basis: one("", fact.Mixed)}
		}
		if yes(4) {
			f.CostUSD = new(float64(r.IntN(9)) * 1e300)
		}
		if yes(5) {
			f.Failed, f.Error, f.ErrorType = true, text(), one("", "E")
		}
		if f.Kind == fact.ToolCall || yes(8) {
			f.Tool = &fact.Tool{Name: one("", "ls", "cat"), Input: raw(), Output: raw(), Succeeded: yes(3),
				Denied:    yes(6),
				Truncated: yes(6), OutputSize: r.Int64N(9)}
		}
		if f.Kind == fact.Permission && !yes(8) {
			f.Decision = &fact.Decision{ToolName: one("", "ls"), Action: one("allow", "deny", "ask"),
				Outcome: one("", "allowed", "denied", "pending"), Reply: one("", "once"), Reason: text()}
		}
		if f.Kind == fact.Compaction && !yes(4) {
			f.Compacted = &fact.Compacted{Summary: text(), TokensBefore: r.Int64N(9), TokensAfter: r.Int64N(9)}
		}
		if yes(6) {
			f.SessionAttrs = &fact.SessionAttrs{Title: text(), ParentSession: few("s", 2), Rules: raw(), Mode: text()}
		}
		if yes(6) {
			f.Extra, f.Problems = raw(), []string{text()}
		}
		facts = append(facts, f)
	}
	return facts
}

// TestCostOfManyToolCalls: what a turn costs grows with its calls of tools.
func TestCostOfManyToolCalls(t *testing.T) {
	testscale.Linear(t, 2000, func(n int) {
		facts := make([]fact.Fact, n)
		for i := range facts {
			id := fmt.Sprint("s", i)
			facts[i] = fact.Fact{Kind: fact.ToolCall, TraceID: "t", SpanID: id, Source: id, ParentID: "s0", CallID: id,
				Start: int64(i), End: int64(i + 1), Session: "home", Tool: &fact.Tool{Name: "ls"}}
		}
		facts[0].Kind, facts[0].ParentID, facts[0].End = fact.Turn, "", int64(n)
		assemble.Assemble("home", facts)
	})
}
