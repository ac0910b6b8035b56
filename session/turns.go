package session

// Turns finds the beginnings of turns in the messages of a session, in order. It is the
// only definition of a turn: commands and statistics use it. The zero value is ready for
// the first message.
//
// A turn begins with a user message. It also begins with an answer that no user message
// precedes, or that cannot belong to the turn before; the user message was then lost. Where
// prompts are not recorded, each answer after one that ended begins a turn.
// System messages and compactions are part of a turn and do not begin one. A user message
// that still waits in a queue is not part of any turn.
type Turns struct {
	open     bool
	question *TurnMessage
	answer   *TurnMessage
}

// TurnMessage has the properties of a message that decide where turns begin.
type TurnMessage struct {
	Role string
	// Compaction reports that the message is a compaction's.
	Compaction, Hidden bool
	// Queued reports that the user message still waits.
	Queued bool
	Trace  *MessageTrace
}

// Next reports whether a turn begins with the next message, and whether the user message
// of that turn was lost.
func (t *Turns) Next(m TurnMessage) (begins, lost bool) {
	switch {
	case m.Role == RoleUser && m.Queued:
	case m.Role == RoleUser:
		*t = Turns{open: true, question: &m}
		return true, false
	case m.Role == RoleAssistant && !m.Compaction:
		lost = t.open && t.endsBefore(&m)
		if begins = !t.open || lost || t.question == nil && t.answer.ended() && m.Trace.TurnIndex == nil; begins {
			*t = Turns{open: true}
		}
		t.answer = &m
		return begins, lost
	}
	return false, false
}

// endsBefore reports whether an answer that no user message precedes cannot belong to the
// turn: its source reports another turn index, or the turn was already answered
// completely and the message is what a crash left of another answer.
//
// An answer that replaces one that a rewind hid belongs to the turn while its user
// message is visible.
func (t *Turns) endsBefore(m *TurnMessage) bool {
	if t.answer == nil || t.answer.Hidden && t.question != nil && !t.question.Hidden {
		return false
	}
	before := t.answer.Trace
	if before.TurnIndex != nil && m.Trace.TurnIndex != nil {
		return *before.TurnIndex != *m.Trace.TurnIndex
	}
	return t.answer.ended() && m.Trace.Incomplete
}

// ended reports whether the message is an answer that is complete.
func (m *TurnMessage) ended() bool {
	return m != nil && !m.Trace.Incomplete && !m.Trace.PendingApproval &&
		(m.Trace.EndReason == "finish" || m.Trace.EndReason == "abort" || m.Trace.EndReason == "error")
}

// What ended badly in a session is one of two things, and never both:
//
//   - A denied call is a tool call that a rule or a person refused. It did not run.
//   - A failure is a tool call that ended in an error and was not denied, a model call that ended in an error, or a turn
//     that did. An agent may have recovered from the first two. A turn mostly ends because of its last model call, so
//     the two count once.
//
// Whatever counts errors counts failures; denied calls have a count of their own. The functions below are the only
// definition: lists, figures, documents, pages and exports use them.

// CallDenied reports whether a tool call was denied: by its state, and by the mark in its metadata.
func CallDenied(state string, marked bool) bool {
	return state == StateOutputDenied || marked && state != StateOutputAvailable
}

// CallFailed reports whether a tool call failed. It is not both denied and failed.
func CallFailed(state string, marked bool) bool { return state == StateOutputError && !marked }

// Failures counts the failures of an answer or compaction besides those of its tool calls: those of its model calls, of
// which the last few are known, and of its turn.
func Failures(endReason string, modelErrors []string) int {
	if endReason == "error" {
		return max(1, len(modelErrors))
	}
	return len(modelErrors)
}
