package ingest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
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

// EmbeddedRows are those that a span was made of. What its record reports as well need not be repeated: the parts of a
// session.turn that have data, and prompts and catalogs, are taken from the record.
type EmbeddedRows struct {
	// Span is how the store has the span itself, nil if it is as [Described].
	Span *EmbeddedSpan `json:"span,omitempty"`
	// From and To are created_at and updated_at of the session, in Unix milliseconds.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
	// Session is the session's row. Its id is the span's; a fork in it is ignored.
	Session *store.SessionChange `json:"session,omitempty"`
	// Messages are rows of messages, whose metadata is empty where it follows from the facts of spans.
	Messages []session.Message `json:"messages,omitempty"`
	// TurnStats are what the span measured of its message.
	TurnStats *store.TurnStats `json:"facts,omitempty"`
	// Parts are rows of parts. The values of "input" and "output" in their data may be cut out and are in the span's
	// gen_ai.tool.call.arguments and result alone: what is big is not sent twice. See [CutPart].
	Parts []session.Part `json:"parts,omitempty"`
	// Blobs are prompts and catalogs that no other span of the session has.
	Blobs []store.Blob `json:"blobs,omitempty"`
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

// Described is what a span's own attributes report of it: its session, and the row of span_refs of a span of the SDK.
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

// Encode returns the attribute.
func (r *EmbeddedRows) Encode() (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write rows: %w", err)
	}
	return string(b), nil
}

// The bytes in the data of a part in the place of values that were cut out: no JSON has them.
const inputMark, outputMark = "\x01", "\x02"

// CutPart takes the raw JSON values of input and output, each of which may be empty, out of the data of a part. Where
// another member has the same text, that is cut out instead, which comes to the same when it is put back.
func CutPart(p *session.Part, input, output string) {
	for _, v := range [][3]string{{`"input":`, input, inputMark}, {`"output":`, output, outputMark}} {
		if v[1] != "" {
			p.DataJSON = strings.Replace(p.DataJSON, v[0]+v[1], v[0]+v[2], 1)
		}
	}
}

// wholePart returns the data of a part with the values that were cut out, and whether any were.
func wholePart(p *session.Part, input, output string) (data string, cut bool) {
	if !strings.ContainsAny(p.DataJSON, inputMark+outputMark) {
		return p.DataJSON, false
	}
	return strings.NewReplacer(inputMark, input, outputMark, output).Replace(p.DataJSON), true
}
