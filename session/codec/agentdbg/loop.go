package agentdbg

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// How many events the detector looks at, and how often a pattern repeats to be a loop: the
// defaults of AgentDbg.
const (
	loopWindow      = 12
	loopRepetitions = 3
)

// loopDetector gives the warnings that AgentDbg's detector would have given. The zero value has seen no event.
type loopDetector struct {
	recent []seen
	warned []string // patterns
}

// seen is an event of the window.
type seen struct{ signature, id string }

// signature is what the detector compares events by: the arguments of a call
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
	if over := len(d.recent) - loopWindow; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
	n := len(d.recent)
	for m := 1; m*loopRepetitions <= n; m++ {
		tail := d.recent[n-m*loopRepetitions:]
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
		if slices.Contains(d.warned, pattern) {
			return nil
		}
		d.warned = append(d.warned, pattern)
		return rows.Of("pattern", pattern, "repetitions", loopRepetitions, "window_size", n,
			"evidence_event_ids", evidence)
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
