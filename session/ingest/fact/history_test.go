package fact_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// TestCutHistory: a request of a long turn keeps what the user asked and the last
// messages, and counts those that it leaves out.
func TestCutHistory(t *testing.T) {
	history := func(steps int, id func(int) string) fact.Fact {
		var f fact.Fact
		f.Input = []fact.Message{{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: "Go on"}}}}
		for i := range steps {
			f.Input = append(f.Input,
				fact.Message{Role: "assistant", Parts: []fact.Part{{Kind: fact.PartCall, CallID: id(i), Name: "ls"}}},
				fact.Message{Role: "tool",
					Parts: []fact.Part{{Kind: fact.PartResult, CallID: id(i), Output: json.RawMessage(fmt.Sprint(i))}}})
		}
		return f
	}
	own := func(i int) string { return fmt.Sprint("call_", i) }
	f := history(1000, own)
	f.History = 7
	f.CutHistory()
	if got := len(f.Input); got != 65 || f.Input[0].Role != "user" || f.Input[1].Role != "assistant" {
		t.Errorf("%d messages are kept, the first two of %s and %s", got, f.Input[0].Role, f.Input[1].Role)
	}
	if got, want := f.History+len(f.Input), 7+2001; got != want {
		t.Errorf("%d messages are kept or counted, want %d", got, want)
	}
	if got := string(f.Input[64].Parts[0].Output); got != "999" {
		t.Errorf("the last result is %s", got)
	}
	for name, f := range map[string]fact.Fact{
		"short":            history(32, own),
		"without ids":      history(1000, func(int) string { return "" }),
		"with one id only": history(1000, func(int) string { return "call_0" }),
	} {
		n := len(f.Input)
		if f.CutHistory(); len(f.Input) != n || f.History != 0 {
			t.Errorf("%s: %d of %d messages are kept", name, len(f.Input), n)
		}
	}
}
