// Package jsonfile is the canonical nested shape of one session: one JSON object
// per file.
//
//	{
//	"session":{<chat_sessions row>},
//	"session_state":{<session_state row>},
//	"session_traces":[
//	{<session_traces row>}
//	],
//	"system_prompts":[
//	{<system_prompts row>}
//	],
//	"tool_catalogs":[
//	{<tool_catalogs row>}
//	],
//	"messages":[
//	{"message":{<chat_messages row>},"parts":[
//	{<chat_parts row>},
//	{<chat_parts row>}
//	]},
//	{"message":{<chat_messages row>},"parts":[]}
//	],
//	"requested_indexes":[
//	{<requested_indexes row>}
//	],
//	"permission_decisions":[
//	{<permission_decisions row>}
//	],
//	"session_spans":[
//	{<session_spans row>}
//	],
//	"annotations":[
//	{<annotations row>}
//	]
//	}
//
// Of the keys beside "session" and "messages" there are those of which the session has
// rows. They are tables of the store, which FORMAT.md of it describes.
//
// Rows are compact and have a line each, so that diff and grep work on the file
// as they do on JSON lines; "jq ." indents it. Messages are in order of
// (created_at, id), parts in order of index, other rows in the order of package jsonl,
// and all are written by [session.Session.AppendJSON] and its siblings.
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
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// flushSize is how much is buffered before it is written.
const flushSize = 64 << 10

// Encode writes the session to w, in chunks of 64 KiB or one row, whichever is
// longer. It does not change s, and sorts a copy if s is not in canonical order.
//
// Encode refuses what [Decode] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func Encode(w io.Writer, s *codec.Session) error {
	err := s.CheckTree()
	if err == nil {
		err = jsonl.CheckOthers(s)
	}
	if err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	e := encoder{w: w}
	if err := e.session(s); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

type encoder struct {
	w   io.Writer
	buf []byte
	err error
}

// flush writes what there is once it is worth it.
func (e *encoder) flush() {
	if len(e.buf) >= flushSize && e.err == nil {
		_, e.err = e.w.Write(e.buf)
		e.buf = e.buf[:0]
	}
}

// rows writes a key with n rows, and nothing where there are none.
func (e *encoder) rows(key string, n int, row func(i int, dst []byte) []byte) {
	if n == 0 {
		return
	}
	e.buf = append(e.buf, ",\n\""+key+"\":["...)
	for i := range n {
		e.buf = row(i, append(e.buf, separator(i)...))
		e.flush()
	}
	e.buf = append(e.buf, "\n]"...)
}

func (e *encoder) session(s *codec.Session) error {
	t := s.Sorted()
	e.buf = t.Session.AppendJSON(append(e.buf, "{\n\"session\":"...))
	if s.State != nil {
		e.buf = s.State.AppendJSON(append(e.buf, ",\n\"session_state\":"...), t.Session.ID)
	}
	traces := slices.Sorted(slices.Values(s.Traces))
	e.rows("session_traces", len(traces), func(i int, dst []byte) []byte {
		return jsonl.AppendTrace(dst, traces[i], t.Session.ID)
	})
	blobs := jsonl.SortedBlobs(s.Blobs)
	catalogs := slices.IndexFunc(blobs, func(b store.Blob) bool { return b.Kind == store.BlobToolCatalog })
	if catalogs < 0 {
		catalogs = len(blobs)
	}
	e.rows("system_prompts", catalogs, func(i int, dst []byte) []byte { return blobs[i].AppendJSON(dst) })
	blobs = blobs[catalogs:]
	e.rows("tool_catalogs", len(blobs), func(i int, dst []byte) []byte { return blobs[i].AppendJSON(dst) })

	e.buf = append(e.buf, ",\n\"messages\":["...)
	for i := range t.Messages {
		e.buf = append(append(e.buf, separator(i)...), `{"message":`...)
		e.buf = append(t.Messages[i].Message.AppendJSON(e.buf), `,"parts":[`...)
		for j := range t.Messages[i].Parts {
			e.buf = t.Messages[i].Parts[j].AppendJSON(append(e.buf, separator(j)...))
			e.flush()
		}
		if len(t.Messages[i].Parts) > 0 {
			e.buf = append(e.buf, '\n')
		}
		e.buf = append(e.buf, "]}"...)
	}
	if len(t.Messages) > 0 {
		e.buf = append(e.buf, '\n')
	}
	e.buf = append(e.buf, ']')

	indexes := jsonl.SortedIndexes(s.RequestedIndexes)
	e.rows("requested_indexes", len(indexes), func(i int, dst []byte) []byte { return indexes[i].AppendJSON(dst) })
	decisions := jsonl.SortedDecisions(s.Decisions)
	e.rows("permission_decisions", len(decisions),
		func(i int, dst []byte) []byte { return decisions[i].AppendJSON(dst) })
	refs := jsonl.SortedSpanRefs(s.SpanRefs)
	e.rows("session_spans", len(refs), func(i int, dst []byte) []byte { return refs[i].AppendJSON(dst) })
	notes := jsonl.SortedAnnotations(s.Annotations)
	e.rows("annotations", len(notes), func(i int, dst []byte) []byte { return notes[i].AppendJSON(dst) })
	e.buf = append(e.buf, "\n}\n"...)
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	return e.err
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
// defaults of the table (see [session.Session.DecodeJSON]); keys but "session" may be
// absent or null; rows come out in canonical order whatever theirs was; anything after
// the object, and a row that does not belong where it stands, is an error that names
// the place, such as messages[3].parts[0].
func Decode(r io.Reader) (*codec.Session, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	s, _, err := decode(data)
	return s, err
}

// file is the shape of the whole file.
type file struct {
	Session  json.RawMessage `json:"session"`
	Messages []struct {
		Message json.RawMessage   `json:"message"`
		Parts   []json.RawMessage `json:"parts"`
	} `json:"messages"`

	State            json.RawMessage   `json:"session_state"`
	Traces           []json.RawMessage `json:"session_traces"`
	Prompts          []json.RawMessage `json:"system_prompts"`
	Catalogs         []json.RawMessage `json:"tool_catalogs"`
	RequestedIndexes []json.RawMessage `json:"requested_indexes"`
	Decisions        []json.RawMessage `json:"permission_decisions"`
	Spans            []json.RawMessage `json:"session_spans"`
	Annotations      []json.RawMessage `json:"annotations"`
}

// decode returns the session and how many rows it has beside the transcript.
func decode(data []byte) (_ *codec.Session, others int, _ error) {
	var f file
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\uFEFF")), &f); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, 0, fmt.Errorf("read session: line %d: %w", lineAt(data, e.Offset), err)
		}
		return nil, 0, errors.New(`read session: not an object with a "session" and "messages"`)
	}
	if f.Session == nil {
		return nil, 0, errors.New(`read session: "session" is missing`)
	}
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(f.Session); err != nil {
		return nil, 0, fmt.Errorf("decode session: %w", err)
	}
	if len(f.Messages) > 0 {
		t.Messages = make([]session.MessageAndParts, len(f.Messages))
	}
	for i, fm := range f.Messages {
		m := &t.Messages[i]
		if fm.Message == nil {
			return nil, 0, fmt.Errorf(`decode messages[%d]: "message" is missing`, i)
		}
		if err := m.Message.DecodeJSON(fm.Message); err != nil {
			return nil, 0, fmt.Errorf("decode messages[%d]: %w", i, err)
		}
		if len(fm.Parts) > 0 {
			m.Parts = make([]session.Part, len(fm.Parts))
		}
		for j, row := range fm.Parts {
			if err := m.Parts[j].DecodeJSON(row); err != nil {
				return nil, 0, fmt.Errorf("decode messages[%d].parts[%d]: %w", i, j, err)
			}
		}
	}
	if err := t.CheckTree(); err != nil {
		return nil, 0, fmt.Errorf("decode session %s: %w", t.Session.ID, err)
	}
	s := &codec.Session{Transcript: t.Sorted()}
	others, err := f.others(s)
	if err != nil {
		return nil, 0, fmt.Errorf("decode session %s: %w", t.Session.ID, err)
	}
	return s, others, nil
}

// tables are the keys of the rows that are in no transcript, and the type that a line
// of JSONL has for such a row.
var tables = []struct {
	key, line string
	rows      func(*file) []json.RawMessage
}{
	{"session_state", "session_state", func(f *file) []json.RawMessage {
		if len(f.State) == 0 || string(f.State) == "null" {
			return nil
		}
		return []json.RawMessage{f.State}
	}},
	{"session_traces", "session_trace", func(f *file) []json.RawMessage { return f.Traces }},
	{"system_prompts", "system_prompt", func(f *file) []json.RawMessage { return f.Prompts }},
	{"tool_catalogs", "tool_catalog", func(f *file) []json.RawMessage { return f.Catalogs }},
	{"requested_indexes", "requested_index", func(f *file) []json.RawMessage { return f.RequestedIndexes }},
	{"permission_decisions", "permission_decision", func(f *file) []json.RawMessage { return f.Decisions }},
	{"session_spans", "session_span", func(f *file) []json.RawMessage { return f.Spans }},
	{"annotations", "annotation", func(f *file) []json.RawMessage { return f.Annotations }},
}

// lineType is the type of line for a row below the key, "" where there is none.
func lineType(key string) string {
	for _, t := range tables {
		if t.key == key {
			return t.line
		}
	}
	return ""
}

// others adds the rows that are in no transcript, and states how many there are.
func (f *file) others(s *codec.Session) (n int, _ error) {
	add := jsonl.NewAdder(s)
	for _, t := range tables {
		for i, row := range t.rows(f) {
			if err := add.Row(t.line, row); err != nil {
				return n, fmt.Errorf("decode %s[%d]: %w", t.key, i, err)
			}
			n++
		}
	}
	return n, nil
}

// lineAt is the number, from 1, of the line that the offset is in.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}
