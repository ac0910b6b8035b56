package session

import (
	"encoding/json"
)

// This file is the only place that defines how the tokens of a session are counted.
// Commands, statistics and exports use it, so they all agree.
//
// There are two figures, and everything that shows one names it:
//
//   - Used: the usage of the model calls behind the session's messages, including
//     messages that a rewind hid or a compaction replaced, and of the call that made a
//     compaction's summary, if its source reports it. Messages that a fork copied from its
//     parent count in the parent only, even if the parent is not stored.
//   - Context: the usage of the messages that are now in the model's context, and the size of a summary. It is the
//     rollup of the guide, in the row of the session: see [Session.Usage]. What each call repeats counts each time.
//
// The size of a context, such as that of the summary of a compaction, is never usage.

// MessageTokens has the tokens of one message.
type MessageTokens struct {
	// Used is the usage of the model calls behind the message; nil if no source reports it.
	Used *Usage
	// Context is what the message adds to the session's context: the size of a summary, or otherwise what was used.
	Context Usage
	// CostUSD is the cost that the source reported; nil if it reported none.
	CostUSD *float64
}

// Tokens returns the tokens in the metadata of a message. Only an assistant message has any. marker reports that the
// message consists of data-compaction parts only: see [MessageAndParts.IsMarker].
//
// The usage of a compaction's message is the size of its summary in the context, as a number of input tokens, as in
// the agent guide's reference program. The usage of the call that made the summary is below agenttrace, as usage or,
// if the source counts only these, as input_tokens and output_tokens. If a usage has more than input, it is that of a
// call, whatever program wrote it.
func (m *MessageMetadata) Tokens(role string, marker bool) MessageTokens {
	if role != RoleAssistant {
		return MessageTokens{}
	}
	t := MessageTokens{CostUSD: m.Trace.CostUSD}
	if m.Usage != nil {
		t.Context = m.Usage.counted()
	}
	switch trace := &m.Trace; {
	case !m.Compaction && !marker, t.Context.Total() > t.Context.Input:
		if m.Usage != nil {
			t.Used = new(t.Context)
		}
	case trace.Usage != nil:
		t.Used = new(trace.Usage.counted())
	case trace.InputTokens != nil || trace.OutputTokens != nil:
		t.Used = new(Usage{Input: Deref(trace.InputTokens), Output: Deref(trace.OutputTokens)}.counted())
	}
	return t
}

// counted returns u with 0 for negative counts, which are invalid.
func (u Usage) counted() Usage {
	return Usage{max(u.Input, 0), max(u.Output, 0), max(u.Reasoning, 0), max(u.CacheRead, 0), max(u.CacheWrite, 0)}
}

// ParseMessageMetadata reads a message's metadata_json. A value that is absent or of the
// wrong type stays unset and does not affect the others.
func ParseMessageMetadata(metadataJSON []byte) MessageMetadata {
	var m MessageMetadata
	_ = json.Unmarshal(metadataJSON, &m) // reads what is of the right type
	return m
}

// IsMarker reports whether the message consists of data-compaction parts only.
func (m *MessageAndParts) IsMarker() bool {
	for i := range m.Parts {
		if m.Parts[i].Type != TypeCompaction {
			return false
		}
	}
	return len(m.Parts) > 0
}

// Copied reports whether a message that began at a time (Unix milliseconds) is a copy from the parent of the session,
// a fork. Copies keep their times, so they are older than the fork. The session of a sub-agent has no copies.
func (s *Session) Copied(createdAt int64) bool {
	return s.ParentID != nil && *s.ParentID != "" && createdAt < s.CreatedAt
}

// Tokens has the tokens of a session.
type Tokens struct {
	// Used is what the session used; nil if no source reports any usage.
	Used *Usage
	// Copied is what the parent used for the messages that the session, a fork, copied.
	// It is not included in Used; nil if there is none.
	Copied *Usage
	// CostUSD is the sum of the costs of the session's messages, without copies; nil if no message has one. Some
	// sources report the cost of a session as a whole: see [Tokens.Cost].
	CostUSD *float64
	// CopiedUSD is the sum of the costs of the copied messages.
	CopiedUSD float64
}

// Cost returns the cost of the session with the tokens t, as its source reports it; nil
// if it reports none. whole means that the cost was reported for the session and not for
// its messages. Unlike [Session.CostUSD], it excludes the messages that a fork copied.
func (t *Tokens) Cost(s *Session) (usd *float64, whole bool) {
	const least = 1e-9 // sums of fractions may differ by less
	if s.CostUSD-(t.CopiedUSD+Deref(t.CostUSD)) > least {
		return new(s.CostUSD - t.CopiedUSD), true
	}
	return t.CostUSD, false
}

// Add counts a message of the session s that began at a time (Unix milliseconds). It
// reports whether the message counts as a copy.
func (t *Tokens) Add(s *Session, createdAt int64, m MessageTokens) (copied bool) {
	if s.Copied(createdAt) {
		t.Copied = Sum(t.Copied, m.Used, Usage.Add)
		t.CopiedUSD += Deref(m.CostUSD)
		return true
	}
	t.Used = Sum(t.Used, m.Used, Usage.Add)
	t.CostUSD = Sum(t.CostUSD, m.CostUSD, func(a, b float64) float64 { return b + a })
	return false
}

// Tokens counts the session's tokens. It does not change t.
func (t *Transcript) Tokens() Tokens {
	var sum Tokens
	for i := range t.Messages {
		m := &t.Messages[i]
		metadata := ParseMessageMetadata([]byte(m.Message.MetadataJSON))
		sum.Add(&t.Session, m.Message.CreatedAt, metadata.Tokens(m.Message.Role, m.IsMarker()))
	}
	return sum
}

// Turns finds the beginnings of turns in the messages of a session, in order. It is the only definition of a turn:
// commands and statistics use it. The zero value is ready for the first message.
//
// A turn begins with a user message. It also begins with an answer that no user message precedes, or that cannot
// belong to the turn before; the user message was then lost. Where prompts are not recorded, each answer after one
// that ended begins a turn. System messages and compactions are part of a turn and do not begin one. A user message
// that still waits in a queue is not part of any turn. Turns may be open at once: see [Turns.Together].
type Turns struct {
	open             bool
	question, answer *TurnMessage
	// questions counts those since each had an answer, the first with that turn index; answers to them have indexes, from
	// low to high.
	questions        int
	indexes          map[int64]bool
	first, low, high int64
	together         bool
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

// Next reports whether a turn begins with the next message, and whether the user message of that turn was lost.
func (t *Turns) Next(m TurnMessage) (begins, lost bool) {
	switch {
	case m.Role == RoleUser && m.Queued:
	case m.Role == RoleUser:
		before := *t
		*t = Turns{open: true, question: &m, questions: before.questions + 1, indexes: before.indexes, first: before.first,
			low: before.low, high: before.high}
		if n := len(before.indexes); n > 0 && n >= before.questions {
			t.questions, t.indexes, t.first = 1, nil, before.high+1
		}
		return true, false
	case m.Role == RoleAssistant && !m.Compaction:
		if i := m.Trace.TurnIndex; i != nil {
			if len(t.indexes) == 0 {
				t.indexes, t.low, t.high = map[int64]bool{}, *i, *i
			}
			t.indexes[*i], t.low, t.high = true, min(t.low, *i), max(t.high, *i)
		}
		lost = t.open && t.endsBefore(&m)
		if t.together = (lost || t.together) && m.Trace.TurnIndex != nil && t.fit(); t.together {
			lost = false
		} else if begins = !t.open || lost || t.question == nil && t.answer.ended() && m.Trace.TurnIndex == nil; begins {
			*t = Turns{open: true, first: t.first, indexes: t.indexes, low: t.low, high: t.high}
		}
		t.answer = &m
		return begins, lost
	}
	return false, false
}

// fit reports whether each answer can be that of the question at the place of its turn index. A program that goes on
// with a session may count from 0 again.
func (t *Turns) fit() bool {
	if t.questions < 2 {
		return false
	}
	if t.low < t.first {
		t.first = 0
	}
	return t.high-t.first < int64(t.questions)
}

// Together returns, after an answer, how many of the last turns were open at once, 0 where it shows no such thing, and
// the turn index of the first. The answers to their questions, in any order, belong to the turns of their index.
func (t *Turns) Together() (turns int, first int64) {
	if t.together {
		return t.questions, t.first
	}
	return 0, 0
}

// endsBefore reports whether an answer that no user message precedes cannot belong to the
// turn: its source reports another turn index, or the turn was already answered
// completely and the message is what a crash left of another answer.
//
// An answer that replaces one that a rewind hid belongs to the turn while its user message is visible.
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
