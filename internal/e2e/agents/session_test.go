//go:build e2e

package agents_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// outline is what can be compared of a session: without times, ids of ours,
// and what its source counted in its own words.
type outline struct {
	ID       string
	Messages []message
	// Rollup is the session's own sum.
	Rollup session.Usage
}

type message struct {
	Role, Agent string
	Model       session.Model
	System      string
	Tools       []string
	Parts       []part
	Usage       *session.Usage
	// End is why the request ended and Stop why the model stopped.
	End, Stop string
	Error     string
	// Calls counts the requests to the model, Failures those that came to nothing.
	Calls, Failures int
}

type part struct {
	Type, Text    string
	CallID, State string
	Input, Output any
	Error         string
}

// expect is the session that the turns of one run come to. What streamed before
// an abort is not in it: no version reports it.
func expect(turns []Turn, agent string) outline {
	s := outline{ID: turns[0].Session}
	for _, t := range turns {
		m := message{
			Role: session.RoleAssistant, Agent: agent, Model: session.Model{ProviderID: "scripted", ModelID: "mock-1"},
			System: t.System, Tools: slices.Sorted(slices.Values(t.Tools)), Usage: t.Usage, Stop: t.Finish,
			Error: t.Error,
			Calls: t.Calls, Failures: t.Failures,
		}
		switch {
		case t.Error != "":
			m.End = "error"
		case t.Finish != "":
			m.End = "finish"
		}
		for i, step := range t.Steps {
			if i > 0 { // steps are distinguished by what is between them
				m.Parts = append(m.Parts, part{Type: "step-start"})
			}
			if step.Reasoning != "" {
				m.Parts = append(m.Parts, part{Type: "reasoning", Text: step.Reasoning})
			}
			if step.Text != "" {
				m.Parts = append(m.Parts, part{Type: "text", Text: step.Text})
			}
			for _, c := range step.Calls {
				p := part{Type: "tool-" + c.Name, CallID: c.ID, State: session.StateOutputAvailable,
					Input:  value(c.Input),
					Output: value(c.Output), Error: c.Error}
				if c.Error != "" {
					p.State = session.StateOutputError
				}
				m.Parts = append(m.Parts, p)
			}
		}
		if len(m.Parts) == 0 { // what is missing is shown
			switch {
			case t.Error != "":
				m.Parts = []part{{Type: session.TypeError}}
			case t.Aborted:
				m.Parts = []part{{Type: session.TypeUnfinished}}
			}
		}
		s.Messages = append(s.Messages, message{Role: session.RoleUser, Parts: []part{{Type: "text", Text: t.User}}}, m)
	}
	s.sum()
	return s
}

func (s *outline) sum() {
	s.Rollup = session.Usage{}
	for _, m := range s.Messages {
		if m.Usage != nil {
			s.Rollup = s.Rollup.Add(*m.Usage)
		}
	}
}

// stored is what the store has of a session, which must be valid.
func stored(t *testing.T, reader store.Reader, id string) outline {
	t.Helper()
	transcript := storetest.Transcript(t, reader, id)
	for _, v := range session.Check(transcript) {
		t.Errorf("session.Check: %s", v)
	}
	s := outline{ID: id, Rollup: transcript.Session.Usage()}
	for _, row := range transcript.Messages {
		m := message{Role: row.Message.Role}
		if m.Role == session.RoleAssistant {
			m = storedMetadata(t, reader, row.Message)
		}
		for _, p := range row.Parts {
			m.Parts = append(m.Parts, storedPart(t, p))
		}
		s.Messages = append(s.Messages, m)
	}
	return s
}

func storedMetadata(t *testing.T, reader store.Reader, row session.Message) message {
	t.Helper()
	var meta session.MessageMetadata
	testscale.Must(t, json.Unmarshal([]byte(row.MetadataJSON), &meta))
	trace := meta.Trace
	if len(trace.Problems) > 0 || trace.Incomplete && trace.EndReason == "finish" {
		t.Errorf("message %s is incomplete (%v) or has problems: %q", row.ID, trace.Incomplete, trace.Problems)
	}
	m := message{
		Role: row.Role, Agent: meta.Agent, Usage: meta.Usage, End: trace.EndReason, Stop: trace.StopReason,
		Error: trace.Error,
		Calls: int(trace.ModelCalls), Failures: len(trace.ModelErrors),
		System: blob(t, reader, store.BlobSystemPrompt, meta.SystemPromptDigest),
	}
	if meta.Model != nil {
		m.Model = *meta.Model
	}
	if catalog := blob(t, reader, store.BlobToolCatalog, trace.ToolCatalogDigest); catalog != "" {
		var tools []struct{ Name string }
		if err := json.Unmarshal([]byte(catalog), &tools); err != nil {
			t.Errorf("tool catalog %s: %v", catalog, err)
		}
		for _, tool := range tools {
			m.Tools = append(m.Tools, tool.Name)
		}
		slices.Sort(m.Tools)
	}
	return m
}

func storedPart(t *testing.T, row session.Part) part {
	t.Helper()
	var data struct {
		Type, Text, ToolCallID, State, ErrorText string
		Input, Output                            json.RawMessage
	}
	testscale.Must(t, json.Unmarshal([]byte(row.DataJSON), &data))
	p := part{Type: data.Type, Text: data.Text, CallID: data.ToolCallID, Input: value(data.Input),
		Output: value(data.Output), Error: data.ErrorText}
	if p.CallID != "" {
		p.State = data.State
	}
	return p
}

func blob(t *testing.T, reader store.Reader, kind store.BlobKind, digest string) string {
	t.Helper()
	if digest == "" {
		return ""
	}
	b, err := reader.Blob(t.Context(), kind, digest)
	testscale.Must(t, err)
	return b.Body
}

func value(raw json.RawMessage) (v any) {
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &v)
	}
	return v
}

// resolve returns the session of a run, which each of its traces leads to.
func resolve(t *testing.T, reader store.Reader, turns []Turn) string {
	t.Helper()
	var ids []string
	for _, turn := range turns {
		for _, trace := range turn.Traces {
			id, err := reader.Resolve(t.Context(), trace)
			if err != nil {
				t.Fatalf("resolve trace %s: %v", trace, err)
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) != 1 {
		t.Fatalf("the traces of the run lead to the sessions %q, want one", ids)
	}
	return ids[0]
}

// runs groups the turns of a program by what it did, in order.
func runs(turns []Turn) (names []string, byName map[string][]Turn) {
	byName = make(map[string][]Turn)
	for _, t := range turns {
		name := cmp.Or(t.Run, "nameless")
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], t)
	}
	return names, byName
}
