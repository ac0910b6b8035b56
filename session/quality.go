package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Quality states how much of what happened in a session its sources report.
type Quality struct {
	// Complete reports that nothing is missing. What there is may be doubtful all the same: see [Notices].
	Complete bool `json:"complete"`
	// Missing counts what no source reports, in messages that no rewind hides: texts of "prompts" and of "answers", "ends"
	// of turns, "tool_inputs" and "tool_outputs", "results" of calls of which no end is known, and "tokens" of answers of
	// a model. What counts 0 is left out.
	Missing map[string]int64 `json:"missing,omitempty"`
	// Inferred lists what no source states: "session", whose id is that of a trace, and "reading", of a client that no
	// dialect knows.
	Inferred []string `json:"inferred,omitempty"`
}

// lackWords are the names in Missing in words, for one and for several.
var lackWords = map[string][2]string{
	"prompts": {"prompt", "prompts"}, "answers": {"answer", "answers"}, "ends": {"end of a turn", "ends of turns"},
	"tool_inputs": {"tool input", "tool inputs"}, "tool_outputs": {"tool output", "tool outputs"},
	"results": {"result of a call", "results of calls"}, "tokens": {"answer's tokens", "answers' tokens"},
}

// String describes what is missing, such as "not reported: 1 prompt, 3 tool outputs", "" for nothing.
func (q *Quality) String() string {
	if q == nil || len(q.Missing) == 0 {
		return ""
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(q.Missing)) {
		words := lackWords[name]
		if q.Missing[name] == 1 {
			words[1] = words[0]
		}
		all = append(all, fmt.Sprint(q.Missing[name], " ", words[1]))
	}
	return "not reported: " + strings.Join(all, ", ")
}
