//go:build e2e

package agents_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// absent is what the telemetry of a client does not report.
type absent struct {
	// prompt is what the user said in a turn that failed, failure why a tool did.
	prompt, failure bool
	// calls is how often the model was called: one span covers all calls of a turn.
	calls bool
}

// clients are the programs of the project clients.
var clients = map[string]absent{
	"langfuse": {}, "langgraph": {}, "mastra": {}, "openai-agents": {prompt: true, failure: true},
	"openinference-anthropic": {}, "strands": {},
	"voltagent": {calls: true},
}

// TestClients: what a model server answered to a program and what the program's tools
// returned is what the store holds, whatever client package the program uses and
// a program that instrumented it. The script has calls of equal input beside each other, a
// tool and a turn that fail, and the same words twice.
func TestClients(t *testing.T) {
	programs := make(map[string]*Program)
	for name := range clients {
		programs[name] = others.Variant(name)
	}
	saw, reader := collect(t, programs)
	for name, lacks := range clients {
		t.Run(name, func(t *testing.T) {
			turns := saw[name]
			if len(turns) != 5 {
				t.Fatalf("the program had %d turns, want 5", len(turns))
			}
			transcript, err := reader.Transcript(t.Context(), turns[0].Session)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range session.Check(transcript) {
				t.Errorf("session.Check: %s", v)
			}
			if d := cmp.Diff(happened(turns, lacks), recorded(t, transcript, lacks)); d != "" {
				t.Errorf("session (-happened +stored):\n%s", d)
			}
		})
	}
}

// crews are the programs whose agent asks another one by a tool.
var crews = []string{"adk", "langgraph", "mastra", "openai-agents", "strands", "voltagent"}

// TestCrews: what the model server answered to a sub-agent is in a session of its own,
// below the tool call that asked it; what it was asked is no turn of the parent's, and
// what it used and did is not the parent's.
func TestCrews(t *testing.T) {
	programs := make(map[string]*Program)
	for _, name := range crews {
		programs[name] = others.Variant(name + "-crew")
	}
	saw, reader := collect(t, programs)
	for _, name := range crews {
		t.Run(name, func(t *testing.T) {
			var pilot, scout []Turn
			for _, turn := range saw[name] {
				if turn.Run == "Scout" {
					scout = append(scout, turn)
				} else {
					pilot = append(pilot, turn)
				}
			}
			if len(pilot) != 3 || len(scout) != 3 {
				t.Fatalf("the pilot had %d turns and the scout %d, want 3 each", len(pilot), len(scout))
			}
			lacks := clients[name]
			transcript, err := reader.Transcript(t.Context(), pilot[0].Session)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(happened(pilot, lacks), recorded(t, transcript, lacks)); d != "" {
				t.Errorf("session (-happened +stored):\n%s", d)
			}
			for _, child := range children(t, transcript) {
				compareChild(t, reader, transcript.Session.ID, child, &scout, lacks)
			}
			if len(scout) > 0 {
				t.Errorf("no session has what the scout did for %q", scout[0].User)
			}
		})
	}
}

// asked is a tool call that started a session.
type asked struct{ session, message, input string }

// children returns the calls that started sessions.
func children(t *testing.T, transcript *session.Transcript) (all []asked) {
	t.Helper()
	for _, m := range transcript.Messages {
		for _, row := range m.Parts {
			var part struct {
				Input json.RawMessage
				Meta  struct {
					Trace session.ToolTrace `json:"agenttrace"`
				} `json:"toolMetadata"`
			}
			if err := json.Unmarshal([]byte(row.DataJSON), &part); err != nil {
				t.Fatal(err)
			}
			if id := part.Meta.Trace.ChildSessionID; id != "" {
				all = append(all, asked{id, m.Message.ID, string(part.Input)})
			}
		}
	}
	return all
}

// compareChild compares a call's session with the turn of the scout's that answered it,
// and takes that turn away.
func compareChild(t *testing.T, reader store.Reader, parent string, call asked, scout *[]Turn, lacks absent) {
	t.Helper()
	transcript, err := reader.Transcript(t.Context(), call.session)
	if err != nil {
		t.Fatal(err)
	}
	if p := transcript.Session.ParentID; p == nil || *p != parent {
		t.Errorf("the session that %s started has the parent %v", call.input, p)
	}
	if p := transcript.Session.ParentMessageID; p == nil || *p != call.message {
		t.Errorf("the session that %s started is not below the message of the call", call.input)
	}
	got := recorded(t, transcript, lacks)
	for i, turn := range *scout {
		if strings.Contains(call.input, turn.User) && cmp.Equal(happened([]Turn{turn}, lacks), got) {
			*scout = append((*scout)[:i:i], (*scout)[i+1:]...)
			return
		}
	}
	t.Errorf("what %s started is no turn of the scout's: %q", call.input, got)
}

// happened is a line for everything that a person would want to find in the session.
func happened(turns []Turn, lacks absent) []string {
	var lines []string
	for _, turn := range turns {
		if turn.Error == "" || !lacks.prompt {
			lines = append(lines, "user: "+turn.User)
		}
		for _, step := range turn.Steps {
			if step.Text != "" {
				lines = append(lines, "text: "+step.Text)
			}
			for _, c := range step.Calls {
				lines = append(lines, fmt.Sprintf("call %s %s %s -> %s", c.ID, c.Name, plain(c.Input),
					outcome(c.Output, lacks)))
			}
		}
		if turn.Error != "" {
			lines = append(lines, "error: the model is on fire")
			continue
		}
		if lacks.calls {
			turn.Calls = 1
		}
		lines = append(lines, fmt.Sprintf("%d calls, usage %+v", turn.Calls, *turn.Usage))
	}
	return lines
}

// recorded is the same of what is stored.
func recorded(t *testing.T, transcript *session.Transcript, lacks absent) []string {
	t.Helper()
	var lines []string
	for _, m := range transcript.Messages {
		var meta session.MessageMetadata
		if err := json.Unmarshal([]byte(m.Message.MetadataJSON), &meta); err != nil {
			t.Fatal(err)
		}
		for _, row := range m.Parts {
			p := storedPart(t, row)
			switch {
			case m.Message.Role == session.RoleUser:
				lines = append(lines, "user: "+p.Text)
			case p.Type == "text":
				lines = append(lines, "text: "+p.Text)
			case p.CallID != "":
				output, _ := json.Marshal(p.Output)
				if p.State == session.StateOutputError {
					output, _ = json.Marshal(p.Error)
				}
				input, _ := json.Marshal(p.Input)
				lines = append(lines, fmt.Sprintf("call %s %s %s -> %s", p.CallID, strings.TrimPrefix(p.Type, "tool-"),
					plain(input), outcome(output, lacks)))
			case p.Type != "step-start" && p.Type != session.TypeError:
				lines = append(lines, p.Type)
			}
		}
		switch {
		case m.Message.Role != session.RoleAssistant:
		case meta.Trace.EndReason == "error":
			if !strings.Contains(meta.Trace.Error, "fire") {
				t.Errorf("error %q", meta.Trace.Error)
			}
			lines = append(lines, "error: the model is on fire")
		case meta.Usage == nil:
			lines = append(lines, fmt.Sprintf("%d calls, no usage", meta.Trace.ModelCalls))
		default:
			lines = append(lines, fmt.Sprintf("%d calls, usage %+v", meta.Trace.ModelCalls, *meta.Usage))
		}
	}
	return lines
}

// plain is JSON with the keys in order.
func plain(raw json.RawMessage) string {
	text, _ := json.Marshal(value(raw))
	return string(text)
}

// outcome is what a tool returned, whatever a client wraps it in.
func outcome(raw json.RawMessage, lacks absent) string {
	text := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`\" {}`, r) {
			return -1
		}
		return r
	}, string(raw))
	switch i := strings.Index(text, "reading:"); {
	case strings.Contains(text, "Calm"):
		return "answered" // by the scout, in the words of the client
	case i >= 0:
		digits := strings.IndexFunc(text[i+8:]+"x", func(r rune) bool { return r < '0' || r > '9' })
		return text[i : i+8+digits]
	case strings.Contains(text, "noberthfree"),
		lacks.failure && (strings.Contains(text, "failed") || strings.Contains(text, "erroroccurred")):
		return "failed"
	}
	return text
}
