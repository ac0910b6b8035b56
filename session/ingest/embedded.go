package ingest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// RowsKey is the attribute with [EmbeddedRows] as JSON, which a span has that was written from a stored session and
// not by an agent: the rows as they are, beside the attributes that report the same for any back end of traces.
//
// An agent reports of a message what it knows, and rows are made of it. Of a row that another agent's telemetry, an
// import or another program came to, the SDK's attributes cannot report all: a message of the system, an answer
// without a turn_index, a time that no clock gave.
const RowsKey = string(semconv.ReplayKey)

// EmbeddedRows are those that a span was made of. What its record reports as well need not be
// repeated: the parts of a session.turn that have data, and prompts and catalogs,
// are taken from the record.
type EmbeddedRows struct {
	// Span is how the store has the span itself, nil if it is as [Described].
	Span *EmbeddedSpan `json:"span,omitempty"`
	// From and To are created_at and updated_at of the session, in Unix milliseconds.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
	// Session is the session's row. Its id is the span's; a fork in it is ignored.
	Session *store.SessionChange `json:"session,omitempty"`
	// Messages are rows of messages without their parts.
	Messages []EmbeddedMessage `json:"messages,omitempty"`
	// TurnStats are what the span measured of its message.
	TurnStats *store.TurnStats `json:"facts,omitempty"`
	// Parts are rows of parts.
	Parts []EmbeddedPart `json:"parts,omitempty"`
	// Blobs are prompts and catalogs that no other span of the session has.
	Blobs []EmbeddedBlob `json:"blobs,omitempty"`
	// Decision is a row of permission_decisions.
	Decision *store.Decision `json:"decision,omitempty"`
	// Annotations are rows of annotations.
	Annotations []store.Annotation `json:"annotations,omitempty"`
}

// EmbeddedSpan is a row of span_refs, without what the span itself has.
type EmbeddedSpan struct {
	Kind      string `json:"kind"`
	Dialect   string `json:"dialect"`
	MessageID string `json:"message_id,omitempty"`
	PartID    string `json:"part_id,omitempty"`
}

// Described is what a span's own attributes report of it: its session, and the row of span_refs of a span
// of the SDK.
func Described(record spans.SpanData) (sessionID string, s EmbeddedSpan) {
	s = EmbeddedSpan{Kind: record.Kind(), Dialect: store.DialectSDK}
	switch r := record.(type) {
	case *spans.Run:
		sessionID = r.SessionID
	case *spans.Turn:
		sessionID, s.MessageID = r.SessionID, r.Assistant.ID
	case *spans.ToolCall:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.Compaction:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.Permission:
		sessionID, s.MessageID, s.PartID = r.SessionID, r.MessageID, r.PartID
	case *spans.ModelCall:
		sessionID, s.MessageID = r.SessionID, r.MessageID
	}
	return sessionID, s
}

// EmbeddedBlob is a row of system_prompts or tool_catalogs.
type EmbeddedBlob struct {
	Kind   store.BlobKind `json:"kind"`
	Digest string         `json:"digest"`
	Body   string         `json:"body"`
}

// EmbeddedMessage is a row of chat_messages.
type EmbeddedMessage struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	// CreatedAt and UpdatedAt are in Unix milliseconds; 0 is unknown.
	CreatedAt int64  `json:"created_at,omitempty"`
	UpdatedAt int64  `json:"updated_at,omitempty"`
	HiddenAt  *int64 `json:"hidden_at,omitempty"`
	// Metadata is a JSON object as text, empty when it follows from the facts of spans.
	Metadata string `json:"metadata,omitempty"`
}

// EmbeddedPart is a row of chat_parts. The values of "input" and "output" in Data may be cut
// out and are in the span's gen_ai.tool.call.arguments and result alone: what is
// big is not sent twice.
type EmbeddedPart struct {
	ID         string `json:"id"`
	MessageID  string `json:"message_id"`
	Index      int64  `json:"index"`
	Type       string `json:"type"`
	Data       string `json:"data"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	ToolState  string `json:"tool_state,omitempty"`
	CreatedAt  int64  `json:"created_at,omitempty"`
	UpdatedAt  int64  `json:"updated_at,omitempty"`

	ContinuationRunID *string `json:"continuation_run_id,omitempty"`
}

// The bytes in Data in the place of values that were cut out: no JSON has them.
const inputMark, outputMark = "\x01", "\x02"

// Encode returns the attribute.
func (r *EmbeddedRows) Encode() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write rows: %w", err)
	}
	return string(b), nil
}

// Cut takes the raw JSON values of input and output, each of which may be empty, out
// of Data. at are the bytes of Data at which they begin.
func (p *EmbeddedPart) Cut(input string, inputAt int, output string, outputAt int) {
	cut := func(value string, at int, mark string) {
		if value != "" {
			p.Data = p.Data[:at] + mark + p.Data[at+len(value):]
		}
	}
	if inputAt < outputAt { // the one that is further on comes first, so that the other's place stands
		cut(output, outputAt, outputMark)
		cut(input, inputAt, inputMark)
		return
	}
	cut(input, inputAt, inputMark)
	cut(output, outputAt, outputMark)
}

// Whole returns Data with the values that were cut out, and whether any were.
func (p *EmbeddedPart) Whole(input, output string) (data string, cut bool) {
	return strings.NewReplacer(inputMark, input, outputMark, output).Replace(p.Data),
		strings.ContainsAny(p.Data, inputMark+outputMark)
}
