package e2e

import (
	_ "embed" // of Weather
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/agenttrace/agenttrace/internal/modelapi/answers"
	"github.com/agenttrace/agenttrace/session/document"
)

// These are what a script is, and how it is written in the APIs of providers.
type (
	// API is a provider's API.
	API = answers.API
	// Script is a conversation.
	Script = answers.Script
	// Tool is a tool that the model may call.
	Tool = answers.Tool
	// Turn is a question and the answers to it.
	Turn = answers.Turn
	// Step is one answer of the model.
	Step = answers.Step
	// Call is a tool call with what the tool makes of it.
	Call = answers.Call
)

// APIs are those of the providers.
var APIs = answers.APIs

// Named returns the API of the name.
func Named(name string) *API { return answers.Named(name) }

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
	n, steps := int(s.answered.Add(1)-1), s.Script.Steps()
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
