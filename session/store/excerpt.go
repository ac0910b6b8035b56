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
	// Outline leaves out the parts that do not show where turns begin and end: it reads those of messages with a
	// compaction, and tool calls that have no result; with LastTurns also texts that are streaming.
	Outline bool `json:"outline,omitempty"`
	// Spans also reads the spans of the messages. It needs Messages.
	Spans bool `json:"spans,omitempty"`
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
}
