package document

import (
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// UserText is what the user of the turn said, with a line for each file. What a
// rewind hid is left out unless it hid the whole turn.
func (t *Turn) UserText() string {
	return turnText(t, func(m *Message) bool { return m.Role == session.RoleUser }, KindText)
}

// AnswerText is what was said besides: see [Turn.UserText].
func (t *Turn) AnswerText() string {
	return turnText(t, func(m *Message) bool { return m.Role != session.RoleUser }, KindText)
}

// SummaryText is what compactions made of the context, in order.
func (t *Turn) SummaryText() string {
	return turnText(t, func(m *Message) bool { return m.Compaction != nil }, KindCompaction)
}

// ReasoningText is the reasoning of the turn: see [Turn.UserText].
func (t *Turn) ReasoningText() string {
	return turnText(t, func(m *Message) bool { return m.Role != session.RoleUser }, KindReasoning)
}

// turnText joins the texts of one kind in those messages of a turn that are
// wanted, and files where texts are.
func turnText(t *Turn, wanted func(*Message) bool, kind Kind) string {
	var all []string
	for _, m := range t.Messages {
		if !wanted(m) || m.HiddenAt != nil && !t.Hidden {
			continue
		}
		for _, p := range m.Parts {
			switch {
			case p.Kind == kind && p.Text != "":
				all = append(all, p.Text)
			case p.Kind == KindFile && kind == KindText && p.File != nil:
				all = append(all, "["+strings.TrimSpace(p.File.Name+" "+p.File.MediaType)+"]")
			}
		}
		if m.Compaction != nil && kind == KindCompaction {
			all = append(all, m.Compaction.Summary)
		}
	}
	return strings.Join(all, "\n\n")
}

// ToolCalls are the calls of the turn, in order, without those that a rewind hid
// unless it hid the whole turn. They are what [Change] counts.
func (t *Turn) ToolCalls() []*ToolCall {
	var calls []*ToolCall
	for _, m := range t.Messages {
		if m.HiddenAt == nil || t.Hidden {
			for _, c := range m.ToolCalls() {
				calls = append(calls, c)
			}
		}
	}
	return calls
}
