package agentdbg

import (
	"cmp"
	"slices"
	"strings"

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
	return &loopDetector{
		window:      max(cmp.Or(o.LoopWindow, DefaultLoopWindow), minLoopWindow),
		repetitions: max(cmp.Or(o.LoopRepetitions, DefaultLoopRepetitions), minLoopRepetitions),
		warned:      make(map[string]bool),
	}
}

// signature is what the detector tells events apart by: the arguments of a call
// do not count.
func signature(typ string, payload rows.Object) string {
	key := map[string]string{llmCall: "model", toolCall: "tool_name"}[typ]
	if key == "" {
		return typ
	}
	return typ + ":" + cmp.Or(payload.Text(key), "UNKNOWN")
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
		same := func(a, b seen) bool { return a.signature == b.signature }
		if !slices.EqualFunc(tail[m:], tail[:len(tail)-m], same) {
			continue
		}
		block := make([]string, m)
		evidence := make([]string, len(tail))
		for i := range tail {
			if i < m {
				block[i] = tail[i].signature
			}
			evidence[i] = cmp.Or(tail[i].id, "__MISSING__")
		}
		pattern := strings.Join(block, " -> ")
		if d.warned[pattern] {
			return nil
		}
		d.warned[pattern] = true
		return rows.Of("pattern", pattern, "repetitions", d.repetitions, "window_size", n, "evidence_event_ids", evidence)
	}
	return nil
}

// loopName is the name of a warning's event.
func loopName(pattern string) string {
	const maximum = 80
	if name := []rune(pattern); len(name) > maximum {
		return string(name[:maximum-1]) + "..."
	}
	return pattern
}
