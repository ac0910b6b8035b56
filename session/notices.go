package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
)

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
	// TraceID, SpanID and SpanKind identify the span that reported the place. [Notices] does not set them.
	TraceID  string `json:"trace_id,omitempty"`
	SpanID   string `json:"span_id,omitempty"`
	SpanKind string `json:"span_kind,omitempty"`
	// Detail describes the doubt, Remedy what can be done about it.
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// NewNotice returns a notice without a place.
func NewNotice(rule, detail string) Notice {
	return Notice{Rule: rule, Detail: detail, Remedy: ruleTexts().remedies[rule]}
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
	n := noticer{calls: make(map[string]string), responses: make(map[string]string),
		prompts: make(map[string]bool), messages: make(map[string]string),
		telemetry: strings.Contains(t.Session.MetadataJSON, `"dialect"`)}
	for i := range t.Messages {
		n.message(&t.Messages[i])
	}
	return n.found
}

type noticer struct {
	found []Notice
	// calls has the message of each tool call, by id, tool and input; responses the message of each response id.
	calls, responses map[string]string
	// prompts has the texts of the user, and messages each message by what is in it and when it began.
	prompts  map[string]bool
	messages map[string]string
	// telemetry reports that the session was built from the telemetry of another agent.
	telemetry bool
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
	if m.Message.HiddenAt != nil {
		return
	}
	n.again(m)
	if m.Message.Role == RoleUser && n.telemetry {
		n.prompt(m)
	}
	if m.Message.Role != RoleAssistant {
		return
	}
	trace := ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace // a wrong type is reported by Check
	for _, problem := range trace.Problems {
		n.note("telemetry", m, nil, "%s", problem)
	}
	if trace.Incomplete {
		n.note("whole", m, nil, "the end of the turn, or a part of it, did not arrive")
	}
	if used, _ := UsageOf(m.Message.MetadataJSON); used.Total() == 0 && tokenCount().Match(trace.UsageRaw) {
		n.note("tokens", m, nil, "the source states tokens, and the message has no usage")
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
	n.parts(m, trace.EndReason == "finish" && trace.StopReason == "stop" && !trace.Incomplete && !trace.PendingApproval)
}

// tokenCount finds a count of tokens that is not zero in what a source states.
var tokenCount = lazy.Regexp(`(?i)tokens?(count)?"\s*:\s*"?[1-9]`)

// again notices a message that begins when an earlier one does, and has the same in it.
func (n *noticer) again(m *MessageAndParts) {
	if len(m.Parts) == 0 || m.Message.CreatedAt == 0 {
		return
	}
	var key strings.Builder
	fmt.Fprint(&key, m.Message.Role, m.Message.CreatedAt)
	for i := range m.Parts {
		key.WriteString("\x00" + m.Parts[i].DataJSON)
	}
	if other := n.messages[key.String()]; other != "" {
		n.note("once", m, nil, "the message is there as %s as well", other)
	}
	n.messages[key.String()] = m.Message.ID
}

// prompt examines a message of the user: what a program repeats of the conversation in a request is no part of it.
func (n *noticer) prompt(m *MessageAndParts) {
	var texts []string
	for i := range m.Parts {
		if data, err := ParseUIPart(m.Parts[i].DataJSON); err == nil && m.Parts[i].Type == "text" && data.Text != nil {
			if text := strings.Join(strings.Fields(*data.Text), " "); text != "" {
				texts = append(texts, text)
			}
		}
	}
	for i, text := range texts {
		if len(texts) > 1 && (n.prompts[text] || slices.Contains(texts[:i], text)) {
			n.note("prompts", m, &m.Parts[0], "the message repeats %q, which is in it before or in an earlier one",
				text[:min(len(text), 40)])
			break
		}
	}
	for _, text := range texts {
		n.prompts[text] = true
	}
}

// parts examines the parts of a message. over means that no call of it can be open.
func (n *noticer) parts(m *MessageAndParts, over bool) {
	texts, calls := make(map[string]bool), make(map[string]*Part) // of one step
	for i := range m.Parts {
		p := &m.Parts[i]
		var data struct {
			Text         string          `json:"text"`
			Input        json.RawMessage `json:"input"`
			ToolMetadata struct {
				Trace struct{ Problems []string } `json:"agenttrace"`
			}
		}
		_ = json.Unmarshal([]byte(p.DataJSON), &data)
		for _, problem := range data.ToolMetadata.Trace.Problems {
			n.note("telemetry", m, p, "%s", problem)
		}
		switch {
		case p.Type == "step-start":
			clear(texts)
			clear(calls)
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
			if calls[key] != nil {
				n.note("once", m, p, "the tool call is in the same answer before")
			} else if other := calls[string(data.Input)]; n.telemetry && len(data.Input) > 4 && other != nil &&
				Deref(other.ToolState) != Deref(p.ToolState) && (IsOpenCall(other) || IsOpenCall(p)) && alike(other.Type, p.Type) {
				n.note("once", m, p, "the tool call has the input of another one, and one of the two has no result")
			}
			calls[key], calls[string(data.Input)] = p, p
			if over && IsOpenCall(p) {
				n.note("results", m, p, "the tool call has no result")
			}
		}
	}
}

// alike reports whether two types of tool calls may be of one tool, which one source calls by more words than another.
func alike(x, y string) bool {
	x, y = strings.TrimPrefix(x, "tool-"), strings.TrimPrefix(y, "tool-")
	return strings.Contains(x, y) || strings.Contains(y, x)
}

// IsOpenCall reports whether the part is a tool call of which no end is known.
func IsOpenCall(p *Part) bool { return Deref(p.ToolState) == StateInputAvailable }

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
