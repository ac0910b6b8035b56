package session

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// notices has the rules of [Notices], each with a remedy for the reader.
var notices = []struct{ rule, doc, remedy string }{
	{"telemetry",
		"The telemetry of a message has no problem: values of the wrong type, " +
			"totals of an agent that disagree with the sum over its model calls.",
		"compare the spans of the turn (show --provenance); " +
			"of totals that disagree, the sum over the model calls counts"},
	{"whole", "All telemetry of a message arrived: the span of its turn, and the ends of its model calls.",
		"let the client flush its telemetry before it exits; what arrives later completes the turn"},
	{"content", "An assistant message that has ended has a part.",
		"enable the capture of message content in the client"},
	{"results", "In a turn that finished, every tool call has a result.",
		"export the span of the tool call too, or the next request of the model; what arrives later adds the result"},
	{"once", "No tool call and no response id is in two messages, " +
		"and no text is twice in what one model call answered.",
		"if two instrumentations report the turn (show --provenance), disable one of them"},
	{"history", "The requests of a session repeat no messages that the session does not have.",
		"import the telemetry or the transcript of the earlier part, if there is one"},
	{"attributed", "Every span of a turn, a model call or a tool call belongs to a message.",
		"export the spans above it too; what arrives later gives it its place"},
}

// NoticeRules returns the rules of [Notices]. The caller owns the slice.
func NoticeRules() []RuleDoc {
	docs := make([]RuleDoc, len(notices))
	for i, n := range notices {
		docs[i] = RuleDoc{n.rule, n.doc}
	}
	return docs
}

// Notice reports something doubtful in a session with valid rows, and its place if known.
type Notice struct {
	// Rule is the name of one of [NoticeRules].
	Rule string `json:"rule"`
	// Turn is the number of the turn, from 1. [Notices] does not set it.
	Turn       int    `json:"turn,omitempty"`
	MessageID  string `json:"message_id,omitempty"`
	PartID     string `json:"part_id,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Tool       string `json:"tool,omitempty"`
	// TraceID, SpanID and SpanKind identify the span that reported the place. [Notices]
	// does not set them.
	TraceID  string `json:"trace_id,omitempty"`
	SpanID   string `json:"span_id,omitempty"`
	SpanKind string `json:"span_kind,omitempty"`
	// Detail describes the doubt, Remedy what can be done about it.
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// NewNotice returns a notice without a place.
func NewNotice(rule, detail string) Notice {
	n := Notice{Rule: rule, Detail: detail}
	for _, r := range notices {
		if r.rule == rule {
			n.Remedy = r.remedy
		}
	}
	return n
}

// Where describes the place, such as "turn 2, tool call call_1 (bash), span
// 00f067aa0ba902b7 of trace 4bf92f3577b34da6a3ce929d0e0e4736".
func (n *Notice) Where() string {
	var where []string
	if n.Turn > 0 {
		where = append(where, "turn "+strconv.Itoa(n.Turn))
	}
	switch {
	case n.ToolCallID != "" && n.Tool != "":
		where = append(where, "tool call "+n.ToolCallID+" ("+n.Tool+")")
	case n.ToolCallID != "":
		where = append(where, "tool call "+n.ToolCallID)
	}
	if n.MessageID != "" {
		where = append(where, "message "+n.MessageID)
	}
	if n.SpanID != "" && n.SpanKind == "chat" {
		where = append(where, "model call "+n.SpanID+" of trace "+n.TraceID)
	} else if n.SpanID != "" {
		where = append(where, "span "+n.SpanID+" of trace "+n.TraceID)
	}
	return strings.Join(where, ", ")
}

// String returns "where: detail; remedy [rule]".
func (n *Notice) String() string {
	return n.Where() + ": " + n.Detail + "; " + n.Remedy + " [" + n.Rule + "]"
}

// Notices returns what is doubtful in a session, above all in one that was built from an
// agent's telemetry: its rows are valid, but may differ from what happened. The notices
// have the order of the messages. Notices needs time in proportion to t and never panics.
func Notices(t *Transcript) []Notice {
	if t == nil {
		return nil
	}
	n := noticer{calls: make(map[string]string), responses: make(map[string]string)}
	for i := range t.Messages {
		n.message(&t.Messages[i])
	}
	return n.found
}

type noticer struct {
	found []Notice
	// calls has the message of each tool call, by id, tool and input; responses the
	// message of each response id.
	calls, responses map[string]string
}

func (n *noticer) note(rule string, m *MessageAndParts, p *Part, format string, args ...any) {
	notice := NewNotice(rule, fmt.Sprintf(format, args...))
	notice.MessageID = m.Message.ID
	if p != nil {
		notice.PartID = p.ID
		if p.ToolCallID != nil {
			notice.ToolCallID, notice.Tool = *p.ToolCallID, toolName(p)
		}
	}
	n.found = append(n.found, notice)
}

// toolName returns the name of the tool that a part calls.
func toolName(p *Part) string {
	data, _ := ParseUIPart(p.DataJSON) // without a name, use the id
	return ToolName(p.Type, data.ToolName)
}

func (n *noticer) message(m *MessageAndParts) {
	if m.Message.Role != RoleAssistant || m.Message.HiddenAt != nil {
		return
	}
	trace := ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace // a wrong type is reported by Check
	for _, problem := range trace.Problems {
		n.note("telemetry", m, nil, "%s", problem)
	}
	if trace.Incomplete {
		n.note("whole", m, nil, "the end of the turn, or a part of it, did not arrive")
	}
	if len(m.Parts) == 0 && trace.EndReason != "" {
		n.note("content", m, nil, "the message ended by %q and has no part", trace.EndReason)
	}
	if id := trace.ResponseID; id != "" {
		if other := n.responses[id]; other != "" && other != m.Message.ID {
			n.note("once", m, nil, "the model's response %q is in message %s as well", id, other)
		}
		n.responses[id] = m.Message.ID
	}
	n.parts(m, trace.EndReason == "finish" && trace.StopReason == "stop" && !trace.Incomplete)
}

// parts examines the parts of a message. over means that no call of it can be open.
func (n *noticer) parts(m *MessageAndParts, over bool) {
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
				n.note("once", m, p, "the text of part %d is in the same answer before", p.Index)
			} else {
				texts[text] = true
			}
		case p.ToolCallID != nil:
			key := *p.ToolCallID + "\x00" + p.Type + "\x00" + string(data.Input)
			if other := n.calls[key]; other != "" && other != m.Message.ID {
				n.note("once", m, p, "the tool call is in message %s as well", other)
			}
			n.calls[key] = m.Message.ID
			if over && p.ToolState != nil && *p.ToolState == StateInputAvailable {
				n.note("results", m, p, "the tool call has no result")
			}
		}
	}
}
