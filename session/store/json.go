package store

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

// RequestedIndex is the index that a displaced part of a message asked for: a row of requested_indexes.
type RequestedIndex struct {
	MessageID      string `column:"message_id"`
	PartID         string `column:"part_id"`
	RequestedIndex int64  `column:"requested_index"`
}

// stateRow is a row of session_state.
type stateRow struct {
	SessionID  string `column:"session_id"`
	StateJSON  string `column:"state_json"`
	ForkedFrom string `column:"forked_from,omitempty"`
}

// As JSON, the rows of our own tables are like those of the canonical ones: see [session.Columns.AppendJSON].

// AppendJSON appends the row of requested_indexes as a JSON object.
func (c *RequestedIndex) AppendJSON(dst []byte) []byte {
	return IndexTable().Columns.AppendJSON(dst, c)
}

// DecodeJSON sets c to the row in data.
func (c *RequestedIndex) DecodeJSON(data []byte) error {
	*c = RequestedIndex{}
	return IndexTable().Columns.DecodeJSON(data, c, "message_id", "part_id", "requested_index")
}

// AppendJSON appends the row of permission_decisions as a JSON object.
func (d *Decision) AppendJSON(dst []byte) []byte { return DecisionTable().Columns.AppendJSON(dst, d) }

// DecodeJSON sets d to the row in data, which needs an id and a session_id.
func (d *Decision) DecodeJSON(data []byte) error {
	*d = Decision{}
	return DecisionTable().Columns.DecodeJSON(data, d, "id", "session_id")
}

// AppendJSON appends the row of system_prompts or tool_catalogs as a JSON object.
func (b *Blob) AppendJSON(dst []byte) []byte {
	return BlobTables[BlobSystemPrompt]().Columns.AppendJSON(dst, b)
}

// DecodeJSON sets b to the row in data, which needs a digest, and keeps its kind. A row without a body names a blob and
// is not ok. A body is exact unless the row reports that it is not.
func (b *Blob) DecodeJSON(data []byte) (ok bool, _ error) {
	*b = Blob{Kind: b.Kind, Exact: true}
	if err := BlobTables[BlobSystemPrompt]().Columns.DecodeJSON(data, b, "digest"); err != nil {
		return false, err
	}
	var row struct{ Body *string }
	err := json.Unmarshal(data, &row)
	return row.Body != nil, err
}

// AppendJSON appends the row as a JSON object.
func (l *SpanRef) AppendJSON(dst []byte) []byte { return SpanTable().Columns.AppendJSON(dst, l) }

// DecodeJSON sets l to the row in data, which needs a session_id, a trace_id and a span_id.
func (l *SpanRef) DecodeJSON(data []byte) error {
	*l = SpanRef{}
	return SpanTable().Columns.DecodeJSON(data, l, "session_id", "trace_id", "span_id")
}

var stateColumns = sync.OnceValue(session.ColumnsOf[stateRow])

// AppendJSON appends the row of session_state of the session as a JSON object.
func (s *State) AppendJSON(dst []byte, sessionID string) []byte {
	row := stateRow{SessionID: sessionID, StateJSON: string(s.Encode())}
	if s.Fork != nil {
		row.ForkedFrom = s.Fork.From
	}
	return stateColumns().AppendJSON(dst, &row)
}

// DecodeJSON sets s to the state in the row, and returns whose it is.
func (s *State) DecodeJSON(data []byte) (sessionID string, _ error) {
	var row stateRow
	if err := stateColumns().DecodeJSON(data, &row, "session_id"); err != nil {
		return "", err
	}
	*s = State{}
	if err := json.Unmarshal([]byte(row.StateJSON), s); err != nil {
		return "", fmt.Errorf("state_json of session %s: %w", row.SessionID, err)
	}
	return row.SessionID, nil
}
