package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/agenttrace/agenttrace/session"
)

// The rows of our own tables as JSON objects. As those of the canonical tables,
// which [session.Session.AppendJSON] writes, they have every column in the order of
// the table, NULL as null, and JSON columns as text. Columns that hold 0 or 1 are
// false or true.

// RequestedIndex is the index that a displaced part of a message asked for: a row of
// requested_indexes.
type RequestedIndex struct {
	MessageID      string
	PartID         string
	RequestedIndex int64
}

// AppendJSON appends the row of requested_indexes as a JSON object.
func (c *RequestedIndex) AppendJSON(dst []byte) []byte {
	dst = appendText(dst, `{"message_id":`, c.MessageID)
	dst = appendText(dst, `,"part_id":`, c.PartID)
	dst = appendInt(dst, `,"requested_index":`, c.RequestedIndex)
	return append(dst, '}')
}

// DecodeJSON sets c to the row in data.
func (c *RequestedIndex) DecodeJSON(data []byte) error {
	var row struct {
		MessageID      string `json:"message_id"`
		PartID         string `json:"part_id"`
		RequestedIndex *int64 `json:"requested_index"`
	}
	if err := json.Unmarshal(data, &row); err != nil {
		return err
	}
	if row.MessageID == "" || row.PartID == "" || row.RequestedIndex == nil {
		return errors.New("message_id, part_id or requested_index is missing")
	}
	*c = RequestedIndex{row.MessageID, row.PartID, *row.RequestedIndex}
	return nil
}

// AppendJSON appends the row of permission_decisions as a JSON object.
func (d *Decision) AppendJSON(dst []byte) []byte {
	dst = appendText(dst, `{"id":`, d.ID)
	dst = appendText(dst, `,"session_id":`, d.SessionID)
	dst = appendOptional(dst, `,"message_id":`, d.MessageID)
	dst = appendOptional(dst, `,"part_id":`, d.PartID)
	dst = appendOptional(dst, `,"tool_call_id":`, d.ToolCallID)
	dst = appendText(dst, `,"tool_id":`, d.ToolID)
	dst = appendOptional(dst, `,"pattern":`, d.Pattern)
	dst = appendText(dst, `,"action":`, d.Action)
	dst = appendOptional(dst, `,"source":`, d.Source)
	dst = appendOptional(dst, `,"outcome":`, d.Outcome)
	dst = appendOptional(dst, `,"reply":`, d.Reply)
	dst = appendOptional(dst, `,"reason":`, d.Reason)
	if d.WaitedMS == nil {
		dst = append(dst, `,"waited_ms":null`...)
	} else {
		dst = appendInt(dst, `,"waited_ms":`, *d.WaitedMS)
	}
	dst = appendInt(dst, `,"decided_at":`, d.DecidedAt)
	dst = appendOptional(dst, `,"trace_id":`, d.TraceID)
	dst = appendOptional(dst, `,"span_id":`, d.SpanID)
	return append(dst, '}')
}

// DecodeJSON sets d to the row in data, which needs an id and a session_id.
func (d *Decision) DecodeJSON(data []byte) error {
	*d = Decision{}
	if err := json.Unmarshal(data, d); err != nil {
		return err
	}
	switch {
	case d.ID == "":
		return errors.New("id is missing")
	case d.SessionID == "":
		return fmt.Errorf("session_id of decision %s is missing", d.ID)
	}
	return nil
}

// AppendJSON appends the row of system_prompts or tool_catalogs as a JSON object.
func (b *Blob) AppendJSON(dst []byte) []byte {
	dst = appendText(dst, `{"digest":`, b.Digest)
	dst = appendText(dst, `,"body":`, b.Body)
	dst = appendBool(dst, `,"exact":`, b.Exact)
	return append(dst, '}')
}

// DecodeJSON sets b to the row in data, which needs a digest, and keeps its kind. A
// row without a body names a blob and is not ok. A body is exact unless the row says
// that it is not.
func (b *Blob) DecodeJSON(data []byte) (ok bool, _ error) {
	var row struct {
		Digest string  `json:"digest"`
		Body   *string `json:"body"`
		Exact  *bool   `json:"exact"`
	}
	if err := json.Unmarshal(data, &row); err != nil {
		return false, err
	}
	if row.Digest == "" {
		return false, errors.New("digest is missing")
	}
	b.Digest, b.Body, b.Exact = row.Digest, "", row.Exact == nil || *row.Exact
	if row.Body == nil {
		return false, nil
	}
	b.Body = *row.Body
	return true, nil
}

// AppendJSON appends the row as a JSON object.
func (l *SpanRef) AppendJSON(dst []byte) []byte {
	dst = appendText(dst, `{"session_id":`, l.SessionID)
	dst = appendText(dst, `,"trace_id":`, l.TraceID)
	dst = appendText(dst, `,"span_id":`, l.SpanID)
	dst = appendOptional(dst, `,"parent_span_id":`, l.ParentSpanID)
	dst = appendOptional(dst, `,"message_id":`, l.MessageID)
	dst = appendOptional(dst, `,"part_id":`, l.PartID)
	dst = appendText(dst, `,"kind":`, l.Kind)
	dst = appendText(dst, `,"dialect":`, l.Dialect)
	dst = appendInt(dst, `,"start_nano":`, l.StartNano)
	dst = appendInt(dst, `,"end_nano":`, l.EndNano)
	dst = appendBool(dst, `,"error":`, l.Error)
	dst = appendOptional(dst, `,"facts_json":`, string(l.EncodeFacts()))
	return append(dst, '}')
}

// DecodeJSON sets l to the row in data, which needs a session_id, a trace_id and a
// span_id.
func (l *SpanRef) DecodeJSON(data []byte) error {
	var row struct {
		SessionID    string `json:"session_id"`
		TraceID      string `json:"trace_id"`
		SpanID       string `json:"span_id"`
		ParentSpanID string `json:"parent_span_id"`
		MessageID    string `json:"message_id"`
		PartID       string `json:"part_id"`
		Kind         string `json:"kind"`
		Dialect      string `json:"dialect"`
		StartNano    int64  `json:"start_nano"`
		EndNano      int64  `json:"end_nano"`
		Error        bool   `json:"error"`
		FactsJSON    string `json:"facts_json"`
	}
	if err := json.Unmarshal(data, &row); err != nil {
		return err
	}
	if row.SessionID == "" || row.TraceID == "" || row.SpanID == "" {
		return errors.New("session_id, trace_id or span_id is missing")
	}
	*l = SpanRef{
		TraceID: row.TraceID, SpanID: row.SpanID, ParentSpanID: row.ParentSpanID, SessionID: row.SessionID,
		MessageID: row.MessageID, PartID: row.PartID, Kind: row.Kind, Dialect: row.Dialect,
		StartNano: row.StartNano, EndNano: row.EndNano, Error: row.Error,
	}
	if row.FactsJSON != "" {
		l.TurnStats = new(TurnStats)
		if err := json.Unmarshal([]byte(row.FactsJSON), l.TurnStats); err != nil {
			return fmt.Errorf("facts_json of span %s: %w", row.SpanID, err)
		}
	}
	return nil
}

// AppendJSON appends the row of session_state of the session as a JSON object.
func (s *State) AppendJSON(dst []byte, sessionID string) []byte {
	dst = appendText(dst, `{"session_id":`, sessionID)
	dst = appendText(dst, `,"state_json":`, string(s.Encode()))
	forkedFrom := ""
	if s.Fork != nil {
		forkedFrom = s.Fork.From
	}
	dst = appendOptional(dst, `,"forked_from":`, forkedFrom)
	return append(dst, '}')
}

// DecodeJSON sets s to the state in the row, and returns whose it is.
func (s *State) DecodeJSON(data []byte) (sessionID string, _ error) {
	var row struct {
		SessionID string `json:"session_id"`
		StateJSON string `json:"state_json"`
	}
	if err := json.Unmarshal(data, &row); err != nil {
		return "", err
	}
	if row.SessionID == "" {
		return "", errors.New("session_id is missing")
	}
	*s = State{}
	if err := json.Unmarshal([]byte(row.StateJSON), s); err != nil {
		return "", fmt.Errorf("state_json of session %s: %w", row.SessionID, err)
	}
	return row.SessionID, nil
}

func appendText(dst []byte, key, v string) []byte {
	return session.AppendString(append(dst, key...), v)
}

// appendOptional writes null for what the table has NULL for.
func appendOptional(dst []byte, key, v string) []byte {
	if v == "" {
		return append(append(dst, key...), "null"...)
	}
	return appendText(dst, key, v)
}

func appendInt(dst []byte, key string, v int64) []byte {
	return strconv.AppendInt(append(dst, key...), v, 10)
}

func appendBool(dst []byte, key string, v bool) []byte {
	return strconv.AppendBool(append(dst, key...), v)
}
