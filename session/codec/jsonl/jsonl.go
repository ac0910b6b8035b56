// Package jsonl is the canonical line format of sessions: one JSON object per
// line, one line per row of the store's tables.
//
//	{"type":"session","data":{<chat_sessions row>}}
//	{"type":"system_prompt","data":{<system_prompts row>}}
//	{"type":"message","data":{<chat_messages row>}}
//	{"type":"part","data":{<chat_parts row>}}
//
// A session line starts a session and ends the one before it, so sessions can be concatenated with cat. FORMAT.md of
// the store lists the types of lines and their order. The format is canonical: a session has one encoding, byte for
// byte, and decoding and encoding it again gives the same bytes. The nested shape, one JSON object for a session, has
// the same rows, each on a line of its own.
//
// What the package insists on is what it needs to build the tree: the types of lines, ids, and that what a row belongs
// to takes precedence over it. Whether the rows make a valid session is the business of [session.Check].
package jsonl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// Encode writes the rows of the transcript as lines to w; an [Encoder] writes the rest of a session too.
func Encode(w io.Writer, t *session.Transcript) error {
	return NewEncoder(w).Encode(&codec.Session{Transcript: t})
}

// flushSize is how much is buffered before it is written.
const flushSize = 64 << 10

// Encoder writes sessions one after the other to a file. It is used by one goroutine.
type Encoder struct {
	w       *bufio.Writer
	buf     []byte
	written map[blobKey]bool // prompts and catalogs in the file
}

// blobKey identifies a blob. Bodies of one digest differ where one arrived damaged.
type blobKey struct {
	kind   store.BlobKind
	digest string
	exact  bool
	size   int
}

// NewEncoder returns an encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder {
	return &Encoder{w: bufio.NewWriterSize(w, flushSize), written: make(map[blobKey]bool)}
}

// Encode writes all of a session. It does not change s, and sorts a copy if s is not in canonical order. It refuses
// what [Recover] would, and then writes nothing: rows without an id or under a row that they do not name (see
// [session.Transcript.CheckTree]).
func (e *Encoder) Encode(s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	e.session(s)
	if err := e.w.Flush(); err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

func (e *Encoder) session(s *codec.Session) {
	t := s.Sorted()
	for i := range tables {
		switch table := &tables[i]; table.line {
		case "session":
			e.line(table.line, t.Session.AppendJSON)
		case "system_prompt":
			e.blobs(table.line, sortedBlobs(s.Blobs, store.BlobSystemPrompt))
		case "tool_catalog":
			e.blobs(table.line, sortedBlobs(s.Blobs, store.BlobToolCatalog))
		case "message":
			e.messages(s, t)
		case "part", "requested_index": // each below its message
		default:
			for _, r := range table.rows(s) {
				e.line(table.line, r)
			}
		}
	}
}

func (e *Encoder) messages(s *codec.Session, t *session.Transcript) {
	indexes := make(map[string][]store.RequestedIndex) // by message
	for _, c := range sortedIndexes(s.RequestedIndexes) {
		indexes[c.MessageID] = append(indexes[c.MessageID], c)
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		e.line("message", m.Message.AppendJSON)
		for j := range m.Parts {
			e.line("part", m.Parts[j].AppendJSON)
		}
		for _, c := range indexes[m.Message.ID] {
			e.line("requested_index", c.AppendJSON)
		}
	}
}

// line writes a line. After an error of the writer it writes nothing.
func (e *Encoder) line(kind string, r row) {
	e.buf = append(append(append(e.buf[:0], `{"type":"`...), kind...), `","data":`...)
	e.buf = append(r(e.buf), "}\n"...)
	_, _ = e.w.Write(e.buf) // an error is that of Flush
}

// blobs writes prompts or catalogs, and of those that the file has the digest alone.
func (e *Encoder) blobs(kind string, all []store.Blob) {
	for _, b := range all {
		key := blobKey{b.Kind, b.Digest, b.Exact, len(b.Body)}
		if e.written[key] {
			e.line(kind, func(dst []byte) []byte {
				return append(jsonscan.AppendString(append(dst, `{"digest":`...), b.Digest), '}')
			})
			continue
		}
		e.line(kind, b.AppendJSON)
		e.written[key] = true
	}
}

// MaxLine is the longest line in bytes that [Decode] accepts. It leaves room for a part of 64 MiB with every byte
// escaped twice, and bounds the memory that a file of another kind can take.
const MaxLine = 256 << 20

// Decode yields the transcripts of the sessions in r, each when its last line has been read. The sequence can be ranged
// over once. The caller owns what it yields. Rows of other tables are read, and left out.
//
//   - Empty lines and a byte order mark at the start are skipped; a last line may lack its newline.
//   - Keys of data that are not columns are ignored, absent columns have the defaults of the table.
//   - Rows may be in any order below what they belong to, and come out in canonical order.
//   - Lines of an unknown type, which a newer writer may have added, are given to newer and left out, if it is set.
//   - An error names the line, is yielded once, and ends the sequence without the session that it is in. A file cut off
//     between two lines cannot be distinguished from a whole one.
//
// [Recover] reads on instead, and yields all of a session.
func Decode(r io.Reader, newer func(codec.Problem)) iter.Seq2[*session.Transcript, error] {
	all := read(r, func(p codec.Problem, unknown bool) bool {
		if unknown = unknown && newer != nil; unknown {
			newer(p)
		}
		return unknown
	})
	return func(yield func(*session.Transcript, error) bool) {
		for s, err := range all {
			if s == nil {
				s = new(codec.Session)
			}
			if !yield(s.Transcript, err) {
				return
			}
		}
	}
}

// Recover yields the sessions in r, all of each. A line that cannot be read, such as the last one
// of a file that was cut off, or whose row belongs elsewhere is reported and left out;
// report may be nil. Before the first session it is an error.
func Recover(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return read(r, func(p codec.Problem, _ bool) bool {
		if report != nil {
			report(p)
		}
		return true
	})
}

// read yields the sessions in r. leaveOut reports whether a line with an error, which may be that its type is unknown,
// is left out; otherwise the error ends the sequence.
func read(r io.Reader, leaveOut func(p codec.Problem, unknown bool) bool) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, MaxLine)
		var d decoder
		n := 1
		for ; lines.Scan() && lines.Err() == nil; n++ { // with an error, the line is cut off
			line := lines.Bytes()
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			}
			err := d.line(line)
			if done := d.done; done != nil {
				if d.done = nil; !yield(done, nil) {
					return
				}
			}
			if err == nil {
				continue
			}
			_, unknown := errors.AsType[unknownTypeError](err)
			p := codec.Problem{Line: n, Reason: err.Error() + "; it is left out"}
			if d.s == nil && !unknown || !leaveOut(p, unknown) {
				yield(nil, fmt.Errorf("line %d: %w", n, err))
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(nil, fmt.Errorf("line %d: %w", n, err))
		} else if s := d.finish(); s != nil {
			yield(s, nil)
		}
	}
}

// line takes one line.
func (d *decoder) line(line []byte) error {
	if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
		return nil
	}
	var envelope struct {
		Type *string         `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(line, &envelope); err != nil {
		if _, bad := errors.AsType[*json.SyntaxError](err); bad {
			return fmt.Errorf("not JSON: %w", err)
		}
		return errors.New(`not an object with a "type" and "data"`)
	}
	switch {
	case envelope.Type == nil:
		return errors.New(`"type" is missing`)
	case envelope.Data == nil:
		return errors.New(`"data" is missing`)
	}
	return d.takeRow(*envelope.Type, envelope.Data)
}

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
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("read session: %w", codec.AtLine(data, err))
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
