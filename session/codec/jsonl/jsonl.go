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
	"slices"
	"strings"
	"unicode/utf8"

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
//   - Bytes that are not UTF-8 are an error.
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
			if !yield(cmp.Or(s, new(codec.Session)).Transcript, err) {
				return
			}
		}
	}
}

// Recover yields the sessions in r, all of each. A line that cannot be read, such as the last one
// of a file that was cut off, or whose row belongs elsewhere is reported and left out. Bytes that are not UTF-8 become
// U+FFFD, and are reported; report may be nil. Before the first session it is an error.
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
			fate := "; it is left out"
			if err == nil {
				if utf8.Valid(line) {
					continue
				}
				err, fate = errUTF8, ""
			}
			_, unknown := errors.AsType[unknownTypeError](err)
			p := codec.Problem{Line: n, Reason: err.Error() + fate}
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

// errUTF8 is of a line that is read as JSON is: what is no UTF-8 in it becomes U+FFFD.
var errUTF8 = errors.New("bytes that are not UTF-8 were replaced by U+FFFD")

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
// place, such as messages[3].parts[0]. Bytes that are not UTF-8 become U+FFFD, and report gets to know it.
func DecodeNested(r io.Reader, report func(codec.Problem)) (*codec.Session, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	if !utf8.Valid(data) {
		report(codec.Problem{Reason: errUTF8.Error()})
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
func DecodeNestedFile(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) { yield(DecodeNested(r, report)) }
}

// table is a table of the store, as both formats have its rows.
type table struct {
	// line is the type of its lines, and key has its rows in the nested shape.
	line, key string
	// rows are those of a session in their order. It is nil for messages and parts, which are below each other.
	rows func(s *codec.Session) []row
	// take decodes a row and adds it to the session that is being read.
	take func(d *decoder, data []byte) error
}

// row appends itself as a JSON object.
type row func(dst []byte) []byte

// tables are all of them, in the order of a file. Those up to the blobs are before the messages.
var tables = []table{
	{line: "session", take: (*decoder).session},
	{line: "session_state", key: "session_state", rows: func(s *codec.Session) []row {
		if s.State == nil {
			return nil
		}
		return []row{func(dst []byte) []byte { return s.State.AppendJSON(dst, s.Session.ID) }}
	}, take: (*decoder).state},
	{line: "session_trace", key: "session_traces", rows: func(s *codec.Session) (all []row) {
		for _, trace := range slices.Sorted(slices.Values(s.Traces)) {
			all = append(all, func(dst []byte) []byte {
				dst = jsonscan.AppendString(append(dst, `{"trace_id":`...), trace)
				return append(jsonscan.AppendString(append(dst, `,"session_id":`...), s.Session.ID), '}')
			})
		}
		return all
	}, take: (*decoder).trace},
	{line: "system_prompt", key: "system_prompts", rows: blobs(store.BlobSystemPrompt),
		take: takeBlob(store.BlobSystemPrompt)},
	{line: "tool_catalog", key: "tool_catalogs", rows: blobs(store.BlobToolCatalog),
		take: takeBlob(store.BlobToolCatalog)},
	{line: "message", take: take((*session.Message).DecodeJSON, (*decoder).message)},
	{line: "part", take: take((*session.Part).DecodeJSON, (*decoder).part)},
	{line: "requested_index", key: "requested_indexes", rows: func(s *codec.Session) []row {
		return rowsOf(sortedIndexes(s.RequestedIndexes), (*store.RequestedIndex).AppendJSON)
	}, take: take((*store.RequestedIndex).DecodeJSON, (*decoder).requestedIndex)},
	{line: "permission_decision", key: "permission_decisions", rows: func(s *codec.Session) []row {
		return rowsOf(SortedDecisions(s.Decisions), (*store.Decision).AppendJSON)
	}, take: take((*store.Decision).DecodeJSON, func(d *decoder, o *store.Decision) error {
		return add(d, func(s *codec.Session) *[]store.Decision { return &s.Decisions }, *o, "decision "+o.ID,
			o.SessionID)
	})},
	{line: "session_span", key: "session_spans", rows: func(s *codec.Session) []row {
		return rowsOf(session.SortedRows(s.SpanRefs, store.CompareSpans), (*store.SpanRef).AppendJSON)
	}, take: take((*store.SpanRef).DecodeJSON, func(d *decoder, l *store.SpanRef) error {
		return add(d, func(s *codec.Session) *[]store.SpanRef { return &s.SpanRefs }, *l, "span "+l.SpanID, l.SessionID)
	})},
	{line: "annotation", key: "annotations", rows: func(s *codec.Session) []row {
		return rowsOf(SortedAnnotations(s.Annotations), (*store.Annotation).AppendJSON)
	}, take: take((*store.Annotation).DecodeJSON, func(d *decoder, n *store.Annotation) error {
		return add(d, func(s *codec.Session) *[]store.Annotation { return &s.Annotations }, *n, "annotation "+n.ID,
			n.SessionID)
	})},
}

// beforeMessages is where the tables end whose rows are before the messages.
const beforeMessages = 5

func rowsOf[T any](all []T, appendJSON func(*T, []byte) []byte) (rows []row) {
	for i := range all {
		rows = append(rows, func(dst []byte) []byte { return appendJSON(&all[i], dst) })
	}
	return rows
}

// take decodes a row and gives it to add.
func take[T any](decode func(*T, []byte) error, add func(*decoder, *T) error) func(*decoder, []byte) error {
	return func(d *decoder, data []byte) error {
		v := new(T)
		if err := decode(v, data); err != nil {
			return fmt.Errorf("decode %s: %w", d.kind, err)
		}
		return add(d, v)
	}
}

func blobs(kind store.BlobKind) func(*codec.Session) []row {
	return func(s *codec.Session) []row { return rowsOf(sortedBlobs(s.Blobs, kind), (*store.Blob).AppendJSON) }
}

// sortedBlobs are the blobs of a kind in their order, those of a digest once: the exact one. It shares their bodies.
func sortedBlobs(all []store.Blob, kind store.BlobKind) []store.Blob {
	all = slices.DeleteFunc(slices.Clone(all), func(b store.Blob) bool { return b.Kind != kind })
	order := map[bool]int{true: -1} // exact ones first
	all = session.SortedRows(all, func(a, b *store.Blob) int {
		return cmp.Or(strings.Compare(a.Digest, b.Digest), order[a.Exact]-order[b.Exact], strings.Compare(a.Body, b.Body))
	})
	return slices.CompactFunc(all, func(a, b store.Blob) bool { return a.Digest == b.Digest })
}

// SortedDecisions are the decisions in the order in which canonical formats write them.
func SortedDecisions(all []store.Decision) []store.Decision {
	return session.SortedRows(all, func(a, b *store.Decision) int {
		return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), strings.Compare(a.ID, b.ID))
	})
}

// SortedAnnotations are the annotations in the order in which canonical formats write them.
func SortedAnnotations(all []store.Annotation) []store.Annotation {
	return session.SortedRows(all, store.CompareAnnotations)
}

func sortedIndexes(all []store.RequestedIndex) []store.RequestedIndex {
	return session.SortedRows(all, func(a, b *store.RequestedIndex) int {
		return cmp.Or(strings.Compare(a.MessageID, b.MessageID), strings.Compare(a.PartID, b.PartID))
	})
}

// decoder builds one session after the other.
type decoder struct {
	s        *codec.Session
	messages map[string]int           // id to place in s.Messages
	blobs    map[[2]string]store.Blob // those of the file, by kind and digest
	kind     string                   // of the row that is being taken
	done     *codec.Session           // that the last line ended
}

// takeRow takes a row of a table.
func (d *decoder) takeRow(kind string, data []byte) error {
	i := slices.IndexFunc(tables, func(t table) bool { return t.line == kind })
	if i < 0 {
		return unknownTypeError(kind)
	}
	d.kind = kind
	return tables[i].take(d, data)
}

// unknownTypeError is the error of a row of a type that is not in tables.
type unknownTypeError string

func (e unknownTypeError) Error() string { return fmt.Sprintf("type %q is unknown", string(e)) }

// orphan is the error of a row without what it belongs to.
func orphan(row, of string) error {
	return fmt.Errorf("%s belongs to %s, which is not above it", row, of)
}

// ofSession reports that a row belongs to the session that is being read.
func (d *decoder) ofSession(row, sessionID string) error {
	if d.s == nil || sessionID != d.s.Session.ID {
		return orphan(row, "session "+sessionID)
	}
	return nil
}

func (d *decoder) session(data []byte) error {
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode session: %w", err)
	}
	d.done = d.finish()
	d.s, d.messages = &codec.Session{Transcript: t}, make(map[string]int)
	return nil
}

// finish returns the session that was read, in canonical order, if there is one.
func (d *decoder) finish() *codec.Session {
	s := d.s
	if s != nil {
		s.Transcript = s.Sorted()
	}
	d.s, d.messages = nil, nil
	return s
}

func (d *decoder) message(m *session.Message) error {
	if err := d.ofSession("message "+m.ID, m.SessionID); err != nil {
		return err
	}
	if _, twice := d.messages[m.ID]; twice {
		return fmt.Errorf("message %s is there twice", m.ID)
	}
	d.messages[m.ID] = len(d.s.Messages)
	d.s.Messages = append(d.s.Messages, session.MessageAndParts{Message: *m})
	return nil
}

func (d *decoder) part(p *session.Part) error {
	i, ok := d.messages[p.MessageID]
	if !ok {
		return orphan("part "+p.ID, "message "+p.MessageID)
	}
	d.s.Messages[i].Parts = append(d.s.Messages[i].Parts, *p)
	return nil
}

// add adds a row that is in no transcript, of a session.
func add[T any](d *decoder, all func(*codec.Session) *[]T, row T, what, sessionID string) error {
	if err := d.ofSession(what, sessionID); err != nil {
		return err
	}
	*all(d.s) = append(*all(d.s), row)
	return nil
}

func (d *decoder) requestedIndex(c *store.RequestedIndex) error {
	what := "the requested index of part " + c.PartID
	if _, ok := d.messages[c.MessageID]; !ok {
		return orphan(what, "message "+c.MessageID)
	}
	d.s.RequestedIndexes = append(d.s.RequestedIndexes, *c)
	return nil
}

func (d *decoder) state(data []byte) error {
	var state store.State
	id, err := state.DecodeJSON(data)
	if err != nil {
		return fmt.Errorf("decode session_state: %w", err)
	}
	if err := d.ofSession("a state", id); err != nil {
		return err
	}
	d.s.State = &state
	return nil
}

func (d *decoder) trace(data []byte) error {
	var row struct {
		TraceID   string `json:"trace_id"`
		SessionID string `json:"session_id"`
	}
	err := json.Unmarshal(data, &row)
	if err == nil && row.TraceID == "" {
		err = errors.New("trace_id is missing")
	}
	if err != nil {
		return fmt.Errorf("decode session_trace: %w", err)
	}
	return add(d, func(s *codec.Session) *[]string { return &s.Traces }, row.TraceID, "trace "+row.TraceID,
		row.SessionID)
}

// takeBlob takes a prompt or a catalog. One without a body is one of those above it.
func takeBlob(kind store.BlobKind) func(*decoder, []byte) error {
	return func(d *decoder, data []byte) error {
		b := store.Blob{Kind: kind}
		whole, err := b.DecodeJSON(data)
		if err != nil {
			return fmt.Errorf("decode %s: %w", d.kind, err)
		}
		what, key := d.kind+" "+b.Digest, [2]string{string(kind), b.Digest}
		if d.blobs == nil {
			d.blobs = make(map[[2]string]store.Blob)
		}
		if whole {
			d.blobs[key] = b
		} else if b, whole = d.blobs[key]; !whole {
			return fmt.Errorf("%s has no body, and there is none above it", what)
		}
		if d.s == nil {
			return orphan(what, "a session")
		}
		d.s.Blobs = append(d.s.Blobs, b)
		return nil
	}
}
