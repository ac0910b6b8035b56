package agentdbg

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// The detector's defaults and least values, those of AgentDbg.
const (
	DefaultLoopWindow      = 12
	DefaultLoopRepetitions = 3

	minLoopWindow      = 4
	minLoopRepetitions = 2
)

// loopDetector says after each event what AgentDbg's would have.
type loopDetector struct {
	window, repetitions int

	recent []seen
	warned map[string]bool // patterns
}

// seen is an event of the window.
type seen struct{ signature, id string }

func newLoopDetector(o Options) *loopDetector {
	d := &loopDetector{window: o.LoopWindow, repetitions: o.LoopRepetitions, warned: make(map[string]bool)}
	if d.window == 0 {
		d.window = DefaultLoopWindow
	}
	if d.repetitions == 0 {
		d.repetitions = DefaultLoopRepetitions
	}
	d.window, d.repetitions = max(d.window, minLoopWindow), max(d.repetitions, minLoopRepetitions)
	return d
}

// signature is what the detector tells events apart by: the arguments of a call
// do not count.
func signature(typ string, payload rows.Object) string {
	name := ""
	switch typ {
	case llmCall:
		name = payload.Text("model")
	case toolCall:
		name = payload.Text("tool_name")
	default:
		return typ
	}
	if name == "" {
		name = "UNKNOWN"
	}
	return typ + ":" + name
}

// see takes an event and returns the payload of the warning that follows it, or
// nil. Of the patterns that the window ends with it is the shortest, and a
// pattern is warned of once.
func (d *loopDetector) see(typ, id string, payload rows.Object) rows.Object {
	if typ != llmCall && typ != toolCall && typ != stateUpdate {
		return nil
	}
	d.recent = append(d.recent, seen{signature(typ, payload), id})
	if over := len(d.recent) - d.window; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
	n := len(d.recent)
	for m := 1; m*d.repetitions <= n; m++ {
		tail := d.recent[n-m*d.repetitions:]
		if !repeats(tail, m) {
			continue
		}
		block := make([]string, m)
		evidence := make([]string, len(tail))
		for i := range tail {
			if i < m {
				block[i] = tail[i].signature
			}
			if evidence[i] = tail[i].id; evidence[i] == "" {
				evidence[i] = "__MISSING__"
			}
		}
		pattern := strings.Join(block, " -> ")
		if d.warned[pattern] {
			return nil
		}
		d.warned[pattern] = true
		var o rows.Object
		o.Set("pattern", pattern)
		o.Set("repetitions", d.repetitions)
		o.Set("window_size", n)
		o.Set("evidence_event_ids", evidence)
		return o
	}
	return nil
}

func repeats(tail []seen, m int) bool {
	for i := m; i < len(tail); i++ {
		if tail[i].signature != tail[i-m].signature {
			return false
		}
	}
	return true
}

// loopName is the name of a warning's event.
func loopName(pattern string) string {
	const maximum = 80
	if utf8.RuneCountInString(pattern) <= maximum {
		return pattern
	}
	n := 0
	for i := range pattern {
		if n == maximum-1 {
			return pattern[:i] + "..."
		}
		n++
	}
	return pattern
}
