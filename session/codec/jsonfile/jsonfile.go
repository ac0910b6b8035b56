// Package jsonfile is the canonical nested shape of one session: one JSON object
// per file.
//
//	{
//	"session":{<chat_sessions row>},
//	"messages":[
//	{"message":{<chat_messages row>},"parts":[
//	{<chat_parts row>},
//	{<chat_parts row>}
//	]},
//	{"message":{<chat_messages row>},"parts":[]}
//	]
//	}
//
// Rows are compact and have a line each, so that diff and grep work on the file
// as they do on JSON lines; "jq ." indents it. Messages stand in order of
// (created_at, id), parts in order of index, and rows are written by
// [session.Session.AppendJSON] and its siblings.
//
// The format is canonical: a session has one encoding, byte for byte, and
// decoding and encoding it again gives the same bytes.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/agenttrace/agenttrace/session"
)

// flushSize is how much is buffered before it is written.
const flushSize = 64 << 10

// Encode writes the session to w, in chunks of 64 KiB or one row, whichever is
// longer. It does not change t, and sorts a copy if t is not in canonical order.
//
// Encode refuses what [Decode] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func Encode(w io.Writer, t *session.Transcript) error {
	if err := t.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", t.Session.ID, err)
	}
	if err := encode(w, t.Sorted()); err != nil {
		return fmt.Errorf("write session %s: %w", t.Session.ID, err)
	}
	return nil
}

func encode(w io.Writer, t *session.Transcript) error {
	buf := append([]byte(nil), "{\n\"session\":"...)
	buf = t.Session.AppendJSON(buf)
	buf = append(buf, ",\n\"messages\":["...)
	for i := range t.Messages {
		buf = append(buf, separator(i)...)
		buf = append(buf, `{"message":`...)
		buf = t.Messages[i].Message.AppendJSON(buf)
		buf = append(buf, `,"parts":[`...)
		for j := range t.Messages[i].Parts {
			buf = append(buf, separator(j)...)
			buf = t.Messages[i].Parts[j].AppendJSON(buf)
			if len(buf) >= flushSize {
				if _, err := w.Write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
		if len(t.Messages[i].Parts) > 0 {
			buf = append(buf, '\n')
		}
		buf = append(buf, "]}"...)
	}
	if len(t.Messages) > 0 {
		buf = append(buf, '\n')
	}
	_, err := w.Write(append(buf, "]\n}\n"...))
	return err
}

func separator(i int) string {
	if i == 0 {
		return "\n"
	}
	return ",\n"
}

// Decode reads the one session in r, in any layout. It holds all of r in memory.
// The caller owns the result.
//
// Edge cases: keys that it does not know are ignored; absent columns have the
// defaults of the table (see [session.Session.DecodeJSON]); "messages" and
// "parts" may be absent or null; rows come out in canonical order whatever
// theirs was; anything after the object, and a row that does not belong where
// it stands, is an error that names the place, such as messages[3].parts[0].
func Decode(r io.Reader) (*session.Transcript, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return decode(data)
}

func decode(data []byte) (*session.Transcript, error) {
	var file struct {
		Session  json.RawMessage `json:"session"`
		Messages []struct {
			Message json.RawMessage   `json:"message"`
			Parts   []json.RawMessage `json:"parts"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\uFEFF")), &file); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("read session: line %d: %w", lineAt(data, e.Offset), err)
		}
		return nil, errors.New(`read session: not an object with a "session" and "messages"`)
	}
	if file.Session == nil {
		return nil, errors.New(`read session: "session" is missing`)
	}
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(file.Session); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	if len(file.Messages) > 0 {
		t.Messages = make([]session.MessageAndParts, len(file.Messages))
	}
	for i, fm := range file.Messages {
		m := &t.Messages[i]
		if fm.Message == nil {
			return nil, fmt.Errorf(`decode messages[%d]: "message" is missing`, i)
		}
		if err := m.Message.DecodeJSON(fm.Message); err != nil {
			return nil, fmt.Errorf("decode messages[%d]: %w", i, err)
		}
		if len(fm.Parts) > 0 {
			m.Parts = make([]session.Part, len(fm.Parts))
		}
		for j, row := range fm.Parts {
			if err := m.Parts[j].DecodeJSON(row); err != nil {
				return nil, fmt.Errorf("decode messages[%d].parts[%d]: %w", i, j, err)
			}
		}
	}
	if err := t.CheckTree(); err != nil {
		return nil, fmt.Errorf("decode session %s: %w", t.Session.ID, err)
	}
	return t.Sorted(), nil
}

// lineAt is the number, from 1, of the line that the offset is in.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}
