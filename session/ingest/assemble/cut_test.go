package assemble

import (
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// TestWindowsAreBounded: however facts are connected, a window has at most maxFacts of them, and what is carried into
// the next one is of bounded size. So one more fact never costs as much as all before it.
func TestWindowsAreBounded(t *testing.T) {
	const n, maxCarry = 2*maxFacts + 100, 512 << 10
	for _, kind := range []fact.Kind{fact.Turn, fact.Step, fact.ModelCall, fact.ToolCall, fact.Compaction} {
		for shape, connect := range map[string]func(f *fact.Fact, i int){
			"chain":   func(f *fact.Fact, i int) { f.ParentID = fmt.Sprint(i - 1) },
			"fan":     func(f *fact.Fact, i int) { f.ParentID = "0" },
			"traces":  func(f *fact.Fact, i int) { f.TraceID = fmt.Sprint("t", i) },
			"answers": func(f *fact.Fact, _ int) { f.ResponseID, f.RequestID = "r", "q" },
			"at once": func(f *fact.Fact, _ int) { f.Start = 0 },
		} {
			facts := make([]fact.Fact, n)
			for i := range facts {
				f := &facts[i]
				f.Kind, f.Dialect, f.TraceID, f.SpanID, f.Source = kind, "d", "t", fmt.Sprint(i), fmt.Sprint(i)
				f.Start, f.End = int64(i)*1e6, int64(2*n-i)*1e6
				if kind == fact.ToolCall {
					f.CallID, f.Tool = fmt.Sprint("c", i), &fact.Tool{Name: "t"}
				}
				connect(f, i)
			}
			out, err := Windows{Owner: "s", Facts: facts}.Assemble()
			if err != nil || len(out.Attribution) != n {
				t.Fatalf("%v %s: %d attributions, %v", kind, shape, len(out.Attribution), err)
			}
			from := int64(0)
			for i := 0; i <= len(out.Cuts); i++ {
				to := int64(n) * 1e6
				if i < len(out.Cuts) {
					if to = out.Cuts[i].At; len(out.Cuts[i].Carry) > maxCarry {
						t.Errorf("%v %s: %d bytes are carried", kind, shape, len(out.Cuts[i].Carry))
					}
				}
				if facts := (to - from) / 1e6; facts > maxFacts && shape != "at once" {
					t.Errorf("%v %s: a window of %d facts", kind, shape, facts)
				}
				from = to
			}
		}
	}
}
