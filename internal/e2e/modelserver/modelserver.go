// Package modelserver answers requests to models as the providers do, from a script. It is
// what programs on the providers' clients, and those without a client, are tested with: [Program] has one conversation
// with agents that are built in different ways, and checks that each of them has the same session.
package modelserver

import (
	"bytes"
	_ "embed" // of Weather
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/agenttrace/agenttrace/session/document"
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
}

// Call is a tool call with what the tool makes of it.
type Call struct {
	ID, Name, Input, Output string
	Failed                  bool
}

//go:embed weather.json
var weather []byte

// Weather is a conversation of two turns with calls at once, one that fails, and an output that is JSON.
var Weather = func() (s Script) {
	if err := json.Unmarshal(weather, &s); err != nil {
		panic(err) // a mistake in this package
	}
	return s
}()

// Server answers with the steps of a script, one after another. Use it as an [http.Handler].
type Server struct {
	API    *API
	Script *Script
	// Fail, if it is set, is asked before each request is answered and may answer it.
	Fail func(w http.ResponseWriter, r *http.Request, attempt int) bool

	requests, answered atomic.Int64
}

// ServeHTTP implements [http.Handler]. The request is streamed if its path or body says so.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	attempt := int(s.requests.Add(1) - 1)
	if s.Fail != nil && s.Fail(w, r, attempt) {
		return
	}
	n, steps := int(s.answered.Add(1)-1), s.Script.steps()
	if n >= len(steps) {
		http.Error(w, `{"error":{"message":"the script has ended"}}`, http.StatusBadRequest)
		return
	}
	var in struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &in) // some bodies do not say
	stream := in.Stream || strings.Contains(r.URL.Path, "stream")
	kind, chunks := s.API.Chunks(steps[n], fmt.Sprintf("resp_%04d", n), stream)
	w.Header().Set("Content-Type", kind)
	for _, c := range chunks {
		if _, err := w.Write(c); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok && stream {
			f.Flush()
		}
	}
}

func (s *Script) steps() (all []*Step) {
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
	for _, step := range s.steps() {
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

// Lines returns what is in a session, without what differs from run to run.
func Lines(d *document.Document, ids bool) (lines []string) {
	for _, p := range d.SystemPrompts {
		lines = append(lines, "system "+p.Body)
	}
	for _, c := range d.ToolCatalogs {
		for _, t := range c.Tools {
			lines = append(lines, "tool "+t.Name+" "+t.Description)
		}
	}
	for _, t := range d.Turns {
		for _, m := range t.Messages {
			for _, p := range m.Parts {
				lines = append(lines, partLine(m.Role, p, ids))
			}
		}
		in, out := int64(0), int64(0)
		if u := t.Usage; u != nil {
			in, out = u.Input+u.CacheRead+u.CacheWrite, u.Output+u.Reasoning
		}
		lines = append(lines, fmt.Sprintf("turn %d+%d %s %d calls", in, out, t.StopReason, t.ModelCalls))
	}
	return lines
}

func partLine(role string, p *document.Part, ids bool) string {
	line := role + " "
	switch {
	case p.Tool != nil:
		line += fmt.Sprintf("call %s %s", p.Tool.Name, p.Tool.Input)
		if ids {
			line += " " + p.Tool.CallID
		}
		switch {
		case p.Tool.State == "output-error":
			line += " error " + p.Tool.Error
		case len(p.Tool.Output) > 0:
			line += " output " + string(p.Tool.Output)
		default:
			line += " " + p.Tool.State
		}
	case p.Text != "":
		line += p.Type + " " + p.Text
	case len(p.Data) > 0:
		line += p.Type + " " + string(p.Data)
	default:
		line += p.Type
	}
	return line
}

// upTo returns the turns before a step of a turn, the steps of the turn before it included.
func (s *Script) upTo(turn, step int) []Turn {
	turns := slices.Clone(s.Turns[:turn+1])
	turns[turn].Steps = turns[turn].Steps[:step]
	return turns
}
