package answers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Script is a conversation: what the user asks, and what the model answers.
type Script struct {
	System string
	Tools  []Tool
	Turns  []Turn
}

// Tool is a tool that the model may call.
type Tool struct{ Name, Description, Schema string }

// Turn is a question and the answers to it, all but the last of which call tools.
type Turn struct {
	User  string
	Steps []Step
}

// Step is one answer of the model.
type Step struct {
	Reasoning, Text string
	Calls           []Call
	Input, Output   int
	// Model is the one that answers, by default the API's. CacheRead and Reasoned are among Input and Output.
	Model               string
	CacheRead, Reasoned int
}

// Call is a tool call with what the tool makes of it.
type Call struct {
	ID, Name, Input, Output string
	Failed                  bool
}

// Steps are those of all turns, in order.
func (s *Script) Steps() (all []*Step) {
	for i := range s.Turns {
		for k := range s.Turns[i].Steps {
			all = append(all, &s.Turns[i].Steps[k])
		}
	}
	return all
}

// Call executes a tool of the script.
func (s *Script) Call(name, input string) (output string, failed bool) {
	var want, have any
	for _, step := range s.Steps() {
		for _, c := range step.Calls {
			if json.Unmarshal([]byte(c.Input), &want) == nil && json.Unmarshal([]byte(input), &have) == nil &&
				c.Name == name && bytes.Equal(encode(want), encode(have)) {
				return c.Output, c.Failed
			}
		}
	}
	return "unknown call", true
}

// Want returns the session that the script makes with an API, in the form of [Lines].
func (s *Script) Want(a *API) []string {
	lines := []string{"system " + s.System}
	for _, t := range s.Tools {
		lines = append(lines, "tool "+t.Name+" "+t.Description)
	}
	for _, t := range s.Turns {
		lines = append(lines, "user text "+t.User)
		in, out := 0, 0
		for i, step := range t.Steps {
			if i > 0 {
				lines = append(lines, "assistant step-start")
			}
			if step.Reasoning != "" && a.Reasons {
				lines = append(lines, "assistant reasoning "+step.Reasoning)
			}
			if step.Text != "" {
				lines = append(lines, "assistant text "+step.Text)
			}
			for _, c := range step.Calls {
				line := fmt.Sprintf("assistant call %s %s", c.Name, c.Input)
				if a.IDs {
					line += " " + c.ID
				}
				if c.Failed && a.Errors {
					line += " error " + c.Output
				} else if json.Valid([]byte(c.Output)) {
					line += " output " + c.Output
				} else {
					line += fmt.Sprintf(" output %q", c.Output)
				}
				lines = append(lines, line)
			}
			in, out = in+step.Input, out+step.Output
		}
		lines = append(lines, fmt.Sprintf("turn %d+%d %s %d calls", in, out, a.Stop, len(t.Steps)))
	}
	return lines
}

// upTo returns the turns before a step of a turn, the steps of the turn before it included.
func (s *Script) upTo(turn, step int) []Turn {
	turns := slices.Clone(s.Turns[:turn+1])
	turns[turn].Steps = turns[turn].Steps[:step]
	return turns
}
