package jsonl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

// EncodeNested writes the session to w as one JSON object: its row, its messages with their parts, and the rows of
// other tables under their names, where there are some. It does not change s, and sorts a copy if s is not in canonical
// order.
//
// It refuses what [DecodeNested] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func EncodeNested(w io.Writer, s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	t := s.Sorted()
	buf := t.Session.AppendJSON([]byte("{\n\"session\":"))
	buf = appendTables(buf, tables[:beforeMessages], s)
	buf = append(buf, ",\n\"messages\":["...)
	for i := range t.Messages {
		m := &t.Messages[i]
		buf = append(append(buf, separator(i)...), `{"message":`...)
		buf = append(m.Message.AppendJSON(buf), `,"parts":[`...)
		buf = append(appendRows(buf, rowsOf(m.Parts, (*session.Part).AppendJSON)), "]}"...)
	}
	if len(t.Messages) > 0 {
		buf = append(buf, '\n')
	}
	buf = append(appendTables(append(buf, ']'), tables[beforeMessages:], s), "\n}\n"...)
	if _, err := w.Write(buf); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// appendTables appends keys with their rows, and nothing where there are none.
func appendTables(buf []byte, some []table, s *codec.Session) []byte {
	for _, t := range some {
		if t.rows == nil {
			continue
		}
		rows := t.rows(s)
		if len(rows) == 0 {
			continue
		}
		buf = append(buf, ",\n\""+t.key+"\":"...)
		if t.key == "session_state" {
			buf = rows[0](buf)
		} else {
			buf = append(appendRows(append(buf, '['), rows), ']')
		}
	}
	return buf
}

// appendRows appends rows, each on a line of its own.
func appendRows(buf []byte, rows []row) []byte {
	for i, r := range rows {
		buf = r(append(buf, separator(i)...))
	}
	if len(rows) > 0 {
		buf = append(buf, '\n')
	}
	return buf
}

func separator(i int) string {
	if i == 0 {
		return "\n"
	}
	return ",\n"
}

// DecodeNested reads the one session in r, in any layout. It holds all of r in memory. The caller owns the result.
//
// Keys that it does not know are ignored, absent columns have the defaults of the table, and keys but "session" may be
// absent or null. Anything after the object, and a row that does not belong where it is, is an error that names the
// place, such as messages[3].parts[0].
func DecodeNested(r io.Reader) (*codec.Session, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	var f struct {
		Session  json.RawMessage `json:"session"`
		Messages []struct {
			Message json.RawMessage   `json:"message"`
			Parts   []json.RawMessage `json:"parts"`
		} `json:"messages"`
	}
	var others map[string]json.RawMessage
	if err = cmp.Or(json.Unmarshal(data, &f), json.Unmarshal(data, &others)); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			before := data[:min(e.Offset, int64(len(data)))]
			return nil, fmt.Errorf("read session: line %d: %w", 1+bytes.Count(before, []byte("\n")), e)
		}
		return nil, errNested
	}
	if f.Session == nil {
		return nil, errors.New(`read session: "session" is missing`)
	}
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(f.Session); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	d := decoder{s: &codec.Session{Transcript: t}, messages: make(map[string]int)}
	for i, m := range f.Messages {
		var mp session.MessageAndParts
		if m.Message == nil {
			return nil, fmt.Errorf(`decode messages[%d]: "message" is missing`, i)
		}
		if err := mp.Message.DecodeJSON(m.Message); err != nil {
			return nil, fmt.Errorf("decode messages[%d]: %w", i, err)
		}
		mp.Parts = make([]session.Part, len(m.Parts))
		for k, row := range m.Parts {
			if err := mp.Parts[k].DecodeJSON(row); err != nil {
				return nil, fmt.Errorf("decode messages[%d].parts[%d]: %w", i, k, err)
			}
		}
		d.messages[mp.Message.ID] = i
		t.Messages = append(t.Messages, mp)
	}
	if err := t.CheckTree(); err != nil {
		return nil, fmt.Errorf("decode session %s: %w", t.Session.ID, err)
	}
	for _, t := range tables {
		raw := others[t.key]
		if t.rows == nil || raw == nil || string(raw) == "null" {
			continue
		}
		rows := []json.RawMessage{raw}
		if t.key != "session_state" && json.Unmarshal(raw, &rows) != nil {
			return nil, errNested
		}
		for i, row := range rows {
			if err := d.takeRow(t.line, row); err != nil {
				return nil, fmt.Errorf("decode session %s: decode %s[%d]: %w", d.s.Session.ID, t.key, i, err)
			}
		}
	}
	return d.finish(), nil
}

var errNested = errors.New(`read session: not an object with a "session" and "messages"`)

// DecodeNestedFile is [DecodeNested] as a format has it.
func DecodeNestedFile(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) { yield(DecodeNested(r)) }
}
