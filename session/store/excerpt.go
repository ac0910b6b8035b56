package store

import "github.com/agenttrace/agenttrace/session"

// ExcerptQuery selects messages of a session, and what is read of them. The zero value selects all messages with all
// their parts.
type ExcerptQuery struct {
	// Messages, if not nil, are the ids of the messages.
	Messages []string `json:"messages"`
	// From is the first message. With LastTurns, the first is the nth last user message that is neither hidden nor
	// queued, or the first of the session if it has fewer.
	From      Position `json:"from,omitzero"`
	LastTurns int      `json:"last_turns,omitempty"`
	// Turns, if not zero, selects the messages of turns in place of Messages.
	Turns TurnRange `json:"turns,omitzero"`
	// Outline leaves out the parts that turns can be told apart without: it reads those of messages with a compaction,
	// and tool calls that have no result; with LastTurns also texts that are streaming.
	Outline bool `json:"outline,omitempty"`
	// Spans also reads the spans of the messages. It needs Messages or Turns.
	Spans bool `json:"spans,omitempty"`
}

// TurnRange is a number of turns of a session that follow each other: see [session.Turns].
type TurnRange struct {
	// First and Last are their numbers, from 1.
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
	// Of is the id of a message, of which the turn is meant in place of First and Last.
	Of string `json:"of,omitempty"`
	// Before is the number of turns before First that belong to the range, as far as there are any.
	Before int `json:"before,omitempty"`
}

// Excerpt is a part of a session.
type Excerpt struct {
	// Transcript is the session's row, and the messages in order with their parts.
	*session.Transcript
	// From is the first message that was selected: of the last turns where they begin.
	From Position
	// Decisions are those about the messages, their parts and their calls. Without Messages in the query, they are
	// those made since From or since the first of the last turns, in order of time. An outline has none.
	Decisions []Decision
	// Spans are those of the messages, as [Reader].Spans returns them.
	Spans []SpanRef
	// ToolCalls counts the tool calls of the session, in an outline of all of it.
	ToolCalls int
	// Found is where the turns of the query are.
	Found FoundTurns
}

// FoundTurns is where turns are in their session.
type FoundTurns struct {
	// First and Last are the numbers of the turns that were asked for, both 0 if the session does not have them. Begin
	// is that of the first that was read: of those before First.
	First, Last, Begin int
	// Lost reports that the user's message of the turn Begin was lost.
	Lost bool
	// Total is the number of turns of the session.
	Total int
	// Began is when the first message of the session was created, in Unix milliseconds.
	Began int64
	// Queued are the ids of the messages that wait and belong to no turn.
	Queued []string
}
