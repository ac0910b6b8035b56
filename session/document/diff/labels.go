package diff

import (
	"cmp"
	"strconv"

	"github.com/agenttrace/agenttrace/session/printable"
)

// String reports where the sessions part ways.
func (f *Divergence) String() string {
	if f.Aspect == AspectUsage {
		return "only tokens differ, first in " + TurnPair(f.A, f.B)
	}
	return "first divergence: " + TurnPair(f.A, f.B) + ", " + f.Label()
}

// TurnPair names a turn of both sessions by its numbers; 0 where only the other
// session has it.
func TurnPair(a, b int) string { return Pair("turn", a, b, " and ") }

// Pair names something that both sessions have, such as a turn or a call, by its number in
// each: see [TurnPair].
func Pair(what string, a, b int, and string) string {
	inA, inB := what+" "+strconv.Itoa(a), strconv.Itoa(b)
	switch {
	case a == 0:
		return what + " " + inB + " of B"
	case b == 0:
		return inA + " of A"
	case a == b:
		return inA
	}
	return inA + " of A" + and + inB + " of B"
}

// RunLabel names a run of turns that are equal.
func RunLabel(turns []Turn) string {
	how := "equal"
	if turns[0].Copied {
		how = "equal, copied"
	}
	first, last := &turns[0], &turns[len(turns)-1]
	what := TurnPair(first.A, first.B)
	if len(turns) > 1 {
		what = "turns " + strconv.Itoa(first.A) + "–" + strconv.Itoa(last.A)
		if first.A != first.B || last.A != last.B {
			what += " of A and " + strconv.Itoa(first.B) + "–" + strconv.Itoa(last.B) + " of B"
		}
	}
	return what + ": " + how
}

var aspectLabels = map[string]string{
	AspectTurn: "only here", AspectUser: "user", AspectRewound: "rewound", AspectSystemPrompt: "system prompt", AspectModel: "model",
	AspectTools: "tools available", AspectReasoning: "reasoning", AspectCall: "only here", AspectInput: "input", AspectOutcome: "outcome",
	AspectOutput: "output", AspectAssistant: "assistant", AspectCompaction: "compaction", AspectEnd: "end", AspectUsage: "tokens",
}

// AspectLabel names an aspect.
func AspectLabel(aspect string) string { return aspectLabels[aspect] }

// Label names in one line what differs.
func (c *Change) Label() string {
	label := aspectLabels[c.Aspect]
	if c.Aspect == AspectTurn || c.Aspect == AspectCall {
		label = "only in A"
		if c.A == nil {
			label = "only in B"
		}
	}
	if c.CallA == 0 && c.CallB == 0 {
		return label
	}
	place := "call " + strconv.Itoa(cmp.Or(c.CallA, c.CallB))
	if c.CallA != 0 && c.CallB != 0 && c.CallA != c.CallB {
		place = "call " + strconv.Itoa(c.CallA) + "/" + strconv.Itoa(c.CallB)
	}
	return place + " " + cmp.Or(printable.OneLine(c.Tool), printable.Unnamed) + ", " + label
}
