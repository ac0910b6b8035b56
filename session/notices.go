package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// notices describes what [Notices] reports.
var notices = []RuleDoc{
	{"telemetry", "The telemetry of a message has no problem: values of the wrong type, totals of an agent that disagree with the sum over its model calls."},
	{"whole", "All telemetry of a message arrived: the span of its turn, and the ends of its model calls."},
	{"content", "An assistant message that has ended has a part."},
	{"results", "In a turn that finished, every tool call has a result."},
	{"once", "No tool call is in two messages, and no text is twice in what one model call answered."},
}

// NoticeRules returns what [Notices] looks for. The caller owns the slice.
func NoticeRules() []RuleDoc { return slices.Clone(notices) }

// Notices tells what is doubtful in a session, above all in one that is known from
// an agent's telemetry: the rows are valid, and may not be what happened. The order
// is that of the messages. It needs time in proportion to t and never panics.
func Notices(t *Transcript) []Violation {
	if t == nil {
		return nil
	}
	n := noticer{calls: make(map[string]string)}
	for i := range t.Messages {
		n.message(&t.Messages[i])
	}
	return n.found
}

type noticer struct {
	found []Violation
	calls map[string]string // the message that a tool call was in, by id, tool and input
}

func (n *noticer) note(rule, where, format string, args ...any) {
	n.found = append(n.found, Violation{rule, where, fmt.Sprintf(format, args...)})
}

func (n *noticer) message(m *MessageAndParts) {
	if m.Message.Role != RoleAssistant || m.Message.HiddenAt != nil {
		return
	}
	where := "message " + m.Message.ID
	var meta struct {
		Trace struct {
			Incomplete bool     `json:"incomplete"`
			EndReason  string   `json:"end_reason"`
			StopReason string   `json:"stop_reason"`
			Problems   []string `json:"problems"`
		} `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(m.Message.MetadataJSON), &meta) // what is of another kind is a violation, and said there
	trace := &meta.Trace
	for _, problem := range trace.Problems {
		n.note("telemetry", where, "%s", problem)
	}
	if trace.Incomplete {
		n.note("whole", where, "the end of the turn, or a part of it, did not arrive")
	}
	if len(m.Parts) == 0 && trace.EndReason != "" {
		n.note("content", where, "the message ended by %q and has no part", trace.EndReason)
	}
	n.parts(m, where, trace.EndReason == "finish" && trace.StopReason == "stop" && !trace.Incomplete)
}

// parts looks at the parts of a message. over says that nothing is open in it.
func (n *noticer) parts(m *MessageAndParts, where string, over bool) {
	texts := make(map[string]bool) // of one step
	for i := range m.Parts {
		p := &m.Parts[i]
		var data struct {
			Text  string          `json:"text"`
			Input json.RawMessage `json:"input"`
		}
		_ = json.Unmarshal([]byte(p.DataJSON), &data)
		switch {
		case p.Type == "step-start":
			clear(texts)
		case p.Type == "text":
			if text := strings.TrimSpace(data.Text); text != "" && texts[text] {
				n.note("once", where, "the text of part %d is in the same answer before", p.Index)
			} else {
				texts[text] = true
			}
		case p.ToolCallID != nil:
			key := *p.ToolCallID + "\x00" + p.Type + "\x00" + string(data.Input)
			if other := n.calls[key]; other != "" && other != m.Message.ID {
				n.note("once", where, "tool call %q is in message %s as well", *p.ToolCallID, other)
			}
			n.calls[key] = m.Message.ID
			if over && p.ToolState != nil && *p.ToolState == StateInputAvailable {
				n.note("results", where, "tool call %q has no result", *p.ToolCallID)
			}
		}
	}
}
