// Package jsonl is the canonical line format of sessions: one JSON object per
// line, one line per row of the store's tables.
//
//	{"type":"session","data":{<chat_sessions row>}}
//	{"type":"session_state","data":{<session_state row>}}
//	{"type":"session_trace","data":{<session_traces row>}}
//	{"type":"system_prompt","data":{<system_prompts row>}}
//	{"type":"tool_catalog","data":{<tool_catalogs row>}}
//	{"type":"message","data":{<chat_messages row>}}
//	{"type":"part","data":{<chat_parts row>}}
//	{"type":"requested_index","data":{<requested_indexes row>}}
//	{"type":"permission_decision","data":{<permission_decisions row>}}
//	{"type":"session_span","data":{<session_spans row>}}
//	{"type":"annotation","data":{<annotations row>}}
//
// A session line starts a session and ends the one before it, so sessions can
// be concatenated with cat. Below it stand what the store remembers of the session and
// the traces that it has, then the prompts and catalogs that it names. Its messages
// follow in order of (created_at, id), each with its parts in order of index and the
// indexes that displaced parts asked for. Decisions are in order of (decided_at, id),
// spans of (start_nano, trace_id, span_id), annotations of (created_at, id). A session has lines of those types alone
// of which it has rows. What these tables are FORMAT.md of the store says.
//
// A prompt or catalog is written once per file: a later session names it by a line
// that has the digest alone. Where more than 64 MiB of other prompts and catalogs stand
// between the two it is written again, so that a reader need not keep more than that.
// A session that is alone in its file has all of its own.
//
// Rows are written by [session.Session.AppendJSON] and its siblings: every column,
// in the order of the table, JSON columns as text, and NULL as null.
//
// The format is canonical: a session has one encoding, byte for byte, and
// decoding and encoding it again gives the same bytes.
//
// What the package insists on is what it needs to build the tree: the types of
// lines, ids, and that what a row belongs to takes precedence over it. Whether the rows
// make a valid session is the business of [session.Check].
package jsonl

import (
	"bufio"
	"bytes"
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

const (
	// flushSize is how much is buffered before it is written.
	flushSize = 64 << 10
	// blobWindow is how much text of prompts and catalogs a line with a digest alone may
	// be away from the one with the text.
	blobWindow = 64 << 20
)

// Encoder writes sessions one after the other to a file. It is used by one goroutine.
type Encoder struct {
	w   *bufio.Writer
	buf []byte
	// written are the prompts and catalogs in the file, with how much text of them was
	// written when they were; text is how much it is now.
	written map[blobKey]int64
	text    int64
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
	return &Encoder{w: bufio.NewWriterSize(w, flushSize), written: make(map[blobKey]int64)}
}

// Encode writes all of a session. It does not change s, and sorts a copy if s is not in canonical order. It refuses
// what [Recover] would, and then writes nothing: rows without an id, under a row that they do not name (see
// [session.Transcript.CheckTree]), or of another session.
func (e *Encoder) Encode(s *codec.Session) error {
	if err := check(s); err != nil {
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
		if at, ok := e.written[key]; ok && e.text-at <= blobWindow {
			e.line(kind, func(dst []byte) []byte {
				return append(jsonscan.AppendString(append(dst, `{"digest":`...), b.Digest), '}')
			})
			continue
		}
		e.line(kind, b.AppendJSON)
		e.text += int64(len(b.Body))
		e.written[key] = e.text
	}
	if len(e.written) > 1<<16 { // of which none in reach need be forgotten, because it is written again then
		clear(e.written)
	}
}

// MaxLine is the longest line in bytes that [Decode] accepts. It leaves room
// for a part of 64 MiB with every byte escaped twice, and bounds the memory
// that a file of another kind can take.
const MaxLine = 256 << 20

// Decode yields the transcripts of the sessions in r, each when its last line has been
// read. The sequence can be ranged over once. The caller owns what it yields. Rows of
// other tables are read, and left out.
//
// Edge cases:
//   - an empty input yields nothing; empty lines and a byte order mark at the
//     start are skipped; a last line may lack its newline;
//   - keys of data that are no columns are ignored, absent columns have the
//     defaults of the table (see [session.Session.DecodeJSON]);
//   - rows may be in any order below what they belong to, and come out in
//     canonical order;
//   - an error names the line, is yielded once with a nil transcript, and ends
//     the sequence. The session it is in is not yielded; those before it are.
//     A file cut off between two lines cannot be distinguished from a whole one.
//
// [Recover] reads on instead, and yields all of a session.
func Decode(r io.Reader) iter.Seq2[*session.Transcript, error] {
	return transcripts(read(r, func(codec.Problem, error) bool { return false }))
}

// DecodeKnown is [Decode] that leaves out lines of an unknown type, which a newer writer may
// have added, and reports each by its line.
func DecodeKnown(r io.Reader, report func(codec.Problem)) iter.Seq2[*session.Transcript, error] {
	return transcripts(read(r, func(p codec.Problem, err error) bool {
		_, unknown := errors.AsType[unknownTypeError](err)
		if unknown {
			report(p)
		}
		return unknown
	}))
}

// Recover yields the sessions in r, all of each. A line that cannot be read, such as the last one
// of a file that was cut off, or whose row belongs elsewhere is reported and left out;
// report may be nil. Before the first session it is an error.
func Recover(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return read(r, func(p codec.Problem, _ error) bool {
		if report != nil {
			report(p)
		}
		return true
	})
}

func transcripts(all iter.Seq2[*codec.Session, error]) iter.Seq2[*session.Transcript, error] {
	return func(yield func(*session.Transcript, error) bool) {
		for s, err := range all {
			var t *session.Transcript
			if s != nil {
				t = s.Transcript
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// read yields the sessions in r. leaveOut reports whether a line with an error is left out;
// otherwise the error ends the sequence.
func read(r io.Reader, leaveOut func(codec.Problem, error) bool) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, flushSize), maximum: MaxLine}
		var d decoder
		for {
			line, err := lines.next()
			_, long := errors.AsType[tooLongError](err)
			failed := err != nil && !long
			switch {
			case errors.Is(err, io.EOF):
				if s := d.finish(); s != nil {
					yield(s, nil)
				}
				return
			case err == nil:
				err = d.line(line)
			}
			if done := d.done; done != nil {
				if d.done = nil; !yield(done, nil) {
					return
				}
			}
			if err == nil {
				continue
			}
			_, unknown := errors.AsType[unknownTypeError](err)
			p := codec.Problem{Line: lines.n, Reason: err.Error() + "; it is left out"}
			if failed || d.s == nil && !unknown || !leaveOut(p, err) {
				yield(nil, fmt.Errorf("line %d: %w", lines.n, err))
				return
			}
		}
	}
}

// lineReader reads lines of any length up to maximum.
type lineReader struct {
	r       *bufio.Reader
	maximum int
	buf     []byte
	n       int // the number of the line last read, from 1
}

// tooLongError is the error of a line that is longer than a lineReader takes.
type tooLongError int

func (e tooLongError) Error() string { return fmt.Sprintf("longer than %d bytes", int(e)) }

// next returns the next line without its newline, valid until the next call,
// or io.EOF. After a tooLongError it goes on with the line after that.
func (l *lineReader) next() ([]byte, error) {
	l.n++
	l.buf = l.buf[:0]
	for {
		chunk, err := l.r.ReadSlice('\n')
		if len(l.buf) <= l.maximum {
			l.buf = append(l.buf, bytes.TrimSuffix(chunk, []byte("\n"))...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(l.buf) == 0):
			return nil, err
		case len(l.buf) > l.maximum:
			return nil, tooLongError(l.maximum)
		case l.n == 1:
			return bytes.TrimPrefix(l.buf, []byte("\uFEFF")), nil
		}
		return l.buf, nil
	}
}

// line takes one line.
func (d *decoder) line(line []byte) error {
	if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
		return nil
	}
	// A line as this package writes it needs no look at its envelope: what
	// is between the known beginning and the last brace is the row, if it is
	// one JSON value. If it is not, the line is read the long way.
	rest, canonical := bytes.CutPrefix(line, []byte(`{"type":"`))
	kind, rest, _ := bytes.Cut(rest, []byte(`"`))
	data, ok := bytes.CutPrefix(rest, []byte(`,"data":`))
	data, ended := bytes.CutSuffix(data, []byte("}"))
	if canonical && ok && ended {
		err := d.takeRow(string(kind), data)
		_, unknown := errors.AsType[unknownTypeError](err)
		if _, bad := errors.AsType[*json.SyntaxError](err); !bad && !unknown {
			return err
		}
	}
	return d.anyLine(line)
}

// anyLine takes a line with its keys in any order and any space between them.
func (d *decoder) anyLine(line []byte) error {
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
