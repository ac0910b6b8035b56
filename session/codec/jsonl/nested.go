package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// The canonical nested shape of one session is one JSON object per file.
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
// (created_at, id), parts in order of index, other rows in the order of JSON lines,
// and all are written by [session.Session.AppendJSON] and its siblings.
//
// The format is canonical: a session has one encoding, byte for byte, and
// decoding and encoding it again gives the same bytes.

// EncodeNested writes the session to w, in chunks of 64 KiB or one row, whichever is
// longer. It does not change s, and sorts a copy if s is not in canonical order.
//
// It refuses what [DecodeNested] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func EncodeNested(w io.Writer, s *codec.Session) error {
	err := s.CheckTree()
	if err == nil {
		err = CheckOthers(s)
	}
	if err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	e := nestedEncoder{w: w}
	if err := e.session(s); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

type nestedEncoder struct {
	w   io.Writer
	buf []byte
	err error
}

// flush writes what there is once it is worth it.
func (e *nestedEncoder) flush() {
	if len(e.buf) >= flushSize && e.err == nil {
		_, e.err = e.w.Write(e.buf)
		e.buf = e.buf[:0]
	}
}

// writeRows writes a key with its rows, and nothing where there are none.
func writeRows[T any](e *nestedEncoder, key string, all []T, row func(*T, []byte) []byte) {
	if len(all) == 0 {
		return
	}
	e.buf = append(e.buf, ",\n\""+key+"\":["...)
	for i := range all {
		e.buf = row(&all[i], append(e.buf, separator(i)...))
		e.flush()
	}
	e.buf = append(e.buf, "\n]"...)
}

func (e *nestedEncoder) session(s *codec.Session) error {
	t := s.Sorted()
	e.buf = t.Session.AppendJSON(append(e.buf, "{\n\"session\":"...))
	if s.State != nil {
		e.buf = s.State.AppendJSON(append(e.buf, ",\n\"session_state\":"...), t.Session.ID)
	}
	writeRows(e, "session_traces", slices.Sorted(slices.Values(s.Traces)), func(trace *string, dst []byte) []byte {
		return AppendTrace(dst, *trace, t.Session.ID)
	})
	prompts, catalogs := SortedBlobs(s.Blobs), []store.Blob(nil)
	if i := slices.IndexFunc(prompts, func(b store.Blob) bool { return b.Kind == store.BlobToolCatalog }); i >= 0 {
		prompts, catalogs = prompts[:i], prompts[i:]
	}
	writeRows(e, "system_prompts", prompts, (*store.Blob).AppendJSON)
	writeRows(e, "tool_catalogs", catalogs, (*store.Blob).AppendJSON)

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

	writeRows(e, "requested_indexes", SortedIndexes(s.RequestedIndexes), (*store.RequestedIndex).AppendJSON)
	writeRows(e, "permission_decisions", SortedDecisions(s.Decisions), (*store.Decision).AppendJSON)
	writeRows(e, "session_spans", SortedSpanRefs(s.SpanRefs), (*store.SpanRef).AppendJSON)
	writeRows(e, "annotations", SortedAnnotations(s.Annotations), (*store.Annotation).AppendJSON)
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

// DecodeNested reads the one session in r, in any layout. It holds all of r in memory.
// The caller owns the result.
//
// Edge cases: keys that it does not know are ignored; absent columns have the
// defaults of the table (see [session.Session.DecodeJSON]); keys but "session" may be
// absent or null; rows come out in canonical order whatever theirs was; anything after
// the object, and a row that does not belong where it stands, is an error that names
// the place, such as messages[3].parts[0].
func DecodeNested(r io.Reader) (*codec.Session, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return decodeNested(data)
}

// DecodeNestedFile is [DecodeNested] as a format has it.
func DecodeNestedFile(r io.Reader, _ func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) { yield(DecodeNested(r)) }
}

// nested is the file.
type nested struct {
	Session  json.RawMessage `json:"session"`
	State    json.RawMessage `json:"session_state"`
	Messages []struct {
		Message json.RawMessage   `json:"message"`
		Parts   []json.RawMessage `json:"parts"`
	} `json:"messages"`
	Traces    []json.RawMessage `json:"session_traces"`
	Prompts   []json.RawMessage `json:"system_prompts"`
	Catalogs  []json.RawMessage `json:"tool_catalogs"`
	Indexes   []json.RawMessage `json:"requested_indexes"`
	Decisions []json.RawMessage `json:"permission_decisions"`
	Spans     []json.RawMessage `json:"session_spans"`
	Notes     []json.RawMessage `json:"annotations"`
}

func decodeNested(data []byte) (*codec.Session, error) {
	var f nested
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\uFEFF")), &f); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("read session: line %d: %w", lineAt(data, e.Offset), e)
		}
		return nil, errors.New(`read session: not an object with a "session" and "messages"`)
	}
	if f.Session == nil {
		return nil, errors.New(`read session: "session" is missing`)
	}
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(f.Session); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	for i, m := range f.Messages {
		var mp session.MessageAndParts
		if m.Message == nil {
			return nil, fmt.Errorf(`decode messages[%d]: "message" is missing`, i)
		}
		if err := mp.Message.DecodeJSON(m.Message); err != nil {
			return nil, fmt.Errorf("decode messages[%d]: %w", i, err)
		}
		for k, row := range m.Parts {
			var p session.Part
			if err := p.DecodeJSON(row); err != nil {
				return nil, fmt.Errorf("decode messages[%d].parts[%d]: %w", i, k, err)
			}
			mp.Parts = append(mp.Parts, p)
		}
		t.Messages = append(t.Messages, mp)
	}
	if err := t.CheckTree(); err != nil {
		return nil, fmt.Errorf("decode session %s: %w", t.Session.ID, err)
	}
	s := &codec.Session{Transcript: t.Sorted()}
	if err := f.others(s); err != nil {
		return nil, err
	}
	return s, nil
}

// others adds the rows beside the transcript, which have the types that their lines have in JSONL.
func (f *nested) others(s *codec.Session) error {
	add := NewAdder(s)
	var state []json.RawMessage
	if f.State != nil && string(f.State) != "null" {
		state = []json.RawMessage{f.State}
	}
	for _, table := range []struct {
		key, kind string
		rows      []json.RawMessage
	}{
		{"session_state", "session_state", state}, {"session_traces", "session_trace", f.Traces},
		{"system_prompts", "system_prompt", f.Prompts}, {"tool_catalogs", "tool_catalog", f.Catalogs},
		{"requested_indexes", "requested_index", f.Indexes},
		{"permission_decisions", "permission_decision", f.Decisions}, {"session_spans", "session_span", f.Spans},
		{"annotations", "annotation", f.Notes},
	} {
		for i, row := range table.rows {
			if err := add.Row(table.kind, row); err != nil {
				return fmt.Errorf("decode session %s: decode %s[%d]: %w", s.Session.ID, table.key, i, err)
			}
		}
	}
	return nil
}

// lineAt is the number, from 1, of the line that the offset is in.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}
