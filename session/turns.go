package session

// Turns finds where the turns of a session begin, over its messages in order. It is the
// one place that says what a turn is: commands and statistics count with it. The zero
// value stands before the first message.
//
// A turn begins with a message of the user. It also begins with an answer that no
// message of the user precedes, or that cannot belong to the turn before: then what the
// user asked was lost. System messages and compactions are part of a turn and begin none.
// A message of the user that still waits in a queue is not part of any.
type Turns struct {
	open     bool
	question *TurnMessage
	answer   *TurnMessage
}

// TurnMessage is what of a message decides where turns begin.
type TurnMessage struct {
	Role string
	// Compaction says that the message is a compaction's.
	Compaction, Hidden bool
	// Queued says that the user's message waits.
	Queued bool
	Trace  *MessageTrace
}

// Next reports whether a turn begins with the message that follows those before, and
// whether the user's message of that turn was lost.
func (t *Turns) Next(m TurnMessage) (begins, lost bool) {
	switch {
	case m.Role == RoleUser && m.Queued:
	case m.Role == RoleUser:
		*t = Turns{open: true, question: &m}
		return true, false
	case m.Role == RoleAssistant && !m.Compaction:
		if begins, lost = !t.open, t.open && t.endsBefore(&m); begins || lost {
			*t = Turns{open: true}
		}
		t.answer = &m
		return begins || lost, lost
	}
	return false, false
}

// endsBefore says that an answer, which no message of the user precedes, cannot belong to
// the turn: its source counts another turn, or the turn was answered to its end and the
// message is what a crash left of a further answer.
//
// An answer that takes the place of one that a rewind hid belongs to the turn as long as
// its question is visible.
func (t *Turns) endsBefore(m *TurnMessage) bool {
	if t.answer == nil || t.answer.Hidden && t.question != nil && !t.question.Hidden {
		return false
	}
	before := t.answer.Trace
	if before.TurnIndex != nil && m.Trace.TurnIndex != nil {
		return *before.TurnIndex != *m.Trace.TurnIndex
	}
	ended := !before.Incomplete && !before.PendingApproval && (before.EndReason == "finish" || before.EndReason == "abort" || before.EndReason == "error")
	return ended && m.Trace.Incomplete
}
