package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// MaxLine is the longest line in bytes that [Decode] accepts. It leaves room
// for a part of 64 MiB with every byte escaped twice, and bounds the memory
// that a file of another kind can take.
const MaxLine = 256 << 20

// The canonical beginning of a line of each type.
const (
	sessionPrefix  = `{"type":"session","data":`
	statePrefix    = `{"type":"session_state","data":`
	tracePrefix    = `{"type":"session_trace","data":`
	promptPrefix   = `{"type":"system_prompt","data":`
	catalogPrefix  = `{"type":"tool_catalog","data":`
	messagePrefix  = `{"type":"message","data":`
	partPrefix     = `{"type":"part","data":`
	indexPrefix    = `{"type":"requested_index","data":`
	decisionPrefix = `{"type":"permission_decision","data":`
	spanPrefix     = `{"type":"session_span","data":`
	notePrefix     = `{"type":"annotation","data":`
)

// lineType is a type of line and what becomes of its row.
type lineType struct {
	prefix string
	// take decodes the row and returns the session that it ended, if it did.
	take func(d *decoder, name string, data []byte) (*codec.Session, error)
}

// name is the type as the line has it.
func (t *lineType) name() string {
	return strings.TrimSuffix(strings.TrimPrefix(t.prefix, `{"type":"`), `","data":`)
}

// lineTypes are all of them, the frequent ones first.
var lineTypes = []lineType{
	{partPrefix, row((*session.Part).DecodeJSON, (*decoder).part)},
	{messagePrefix, row((*session.Message).DecodeJSON, (*decoder).message)},
	{spanPrefix, row((*store.SpanRef).DecodeJSON, func(d *decoder, l *store.SpanRef) error {
		return add(d, func(s *codec.Session) *[]store.SpanRef { return &s.SpanRefs }, *l, "span "+l.SpanID, l.SessionID)
	})},
	{sessionPrefix, (*decoder).session},
	{decisionPrefix, row((*store.Decision).DecodeJSON, func(d *decoder, o *store.Decision) error {
		return add(d, func(s *codec.Session) *[]store.Decision { return &s.Decisions }, *o, "decision "+o.ID,
			o.SessionID)
	})},
	{notePrefix, row((*store.Annotation).DecodeJSON, func(d *decoder, n *store.Annotation) error {
		return add(d, func(s *codec.Session) *[]store.Annotation { return &s.Annotations }, *n, "annotation "+n.ID,
			n.SessionID)
	})},
	{promptPrefix, row(decodeBlob(store.BlobSystemPrompt), (*decoder).blob)},
	{catalogPrefix, row(decodeBlob(store.BlobToolCatalog), (*decoder).blob)},
	{statePrefix, row((*stateRow).DecodeJSON, (*decoder).state)},
	{tracePrefix, row((*traceRow).DecodeJSON, func(d *decoder, t *traceRow) error {
		return add(d, func(s *codec.Session) *[]string { return &s.Traces }, t.TraceID, "trace "+t.TraceID,
			t.SessionID)
	})},
	{indexPrefix, row((*store.RequestedIndex).DecodeJSON, (*decoder).requestedIndex)},
}

// row returns how a line that ends no session is taken.
func row[T any](decode func(*T, []byte) error, take func(*decoder, *T) error) func(*decoder, string,
	[]byte) (*codec.Session, error) {
	return func(d *decoder, name string, data []byte) (*codec.Session, error) {
		v := new(T)
		if err := decode(v, data); err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		return nil, take(d, v)
	}
}

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
// of a file that was cut off, or that does not belong where it stands is reported and left out;
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
		lines := lineReader{r: bufio.NewReaderSize(r, 64<<10), maximum: MaxLine}
		var d decoder
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				if d.s != nil {
					yield(d.finish(), nil)
				}
				return
			}
			_, long := errors.AsType[tooLongError](err)
			failed := err != nil && !long
			var done *codec.Session
			if err == nil {
				done, err = d.line(line)
			}
			if done != nil && !yield(done, nil) {
				return
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
	long    []byte // a line longer than r's buffer
	n       int    // the number of the line last read, from 1
	// refused reports that the rest of that line is yet to be passed over.
	refused bool
}

// tooLongError is the error of a line that is longer than a lineReader takes.
type tooLongError int

func (e tooLongError) Error() string { return fmt.Sprintf("longer than %d bytes", int(e)) }

// next returns the next line without its newline, valid until the next call,
// or io.EOF. After a tooLongError it goes on with the line after that.
func (l *lineReader) next() ([]byte, error) {
	for l.refused {
		if _, err := l.r.ReadSlice('\n'); err == nil {
			l.refused = false
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	l.n++
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if l.long = append(l.long, line...); len(l.long) > l.maximum {
				l.refused = true
				return nil, tooLongError(l.maximum)
			}
			line, err = l.r.ReadSlice('\n')
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	if l.n == 1 {
		line = bytes.TrimPrefix(line, []byte("\uFEFF"))
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}

// decoder builds one session after the other.
type decoder struct {
	s        *codec.Session
	messages map[string]int // id to place in s.Messages
	blobs    blobMemory
}

// blobMemory holds the prompts and catalogs that were read of a file as long as a later
// line may name them.
type blobMemory struct {
	held  map[blobKey]heldBlob
	order []blobKey // as they were read
	text  int64     // that was read
}

type heldBlob struct {
	store.Blob
	at int64 // blobMemory.text when it was read
}

func (m *blobMemory) add(b store.Blob) {
	key := blobKey{kind: b.Kind, digest: b.Digest}
	if m.held == nil {
		m.held = make(map[blobKey]heldBlob)
	}
	m.text += int64(len(b.Body))
	m.held[key] = heldBlob{b, m.text}
	m.order = append(m.order, key)
	for len(m.order) > 1 {
		// One that was read again is in order twice.
		if first, ok := m.held[m.order[0]]; ok && m.text-first.at <= blobWindow {
			return
		}
		delete(m.held, m.order[0])
		m.order = m.order[1:]
	}
}

// line takes one line and returns the session that it ended, if it did.
func (d *decoder) line(line []byte) (*codec.Session, error) {
	if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
		return nil, nil
	}
	// A line as this package writes it needs no look at its envelope: what
	// is between the known beginning and the last brace is the row, if it is
	// one JSON value. If it is not, the line is read the long way.
	for i := range lineTypes {
		data, ok := bytes.CutPrefix(line, []byte(lineTypes[i].prefix))
		if !ok {
			continue
		}
		if data, ok = bytes.CutSuffix(data, []byte("}")); ok {
			done, err := lineTypes[i].take(d, lineTypes[i].name(), data)
			if _, bad := errors.AsType[*json.SyntaxError](err); bad {
				break
			}
			return done, err
		}
	}
	return d.anyLine(line)
}

// unknownTypeError is the error of a line of a type that is none of lineTypes.
type unknownTypeError string

func (e unknownTypeError) Error() string { return fmt.Sprintf("type %q is unknown", string(e)) }

// anyLine takes a line with its keys in any order and any space between them.
func (d *decoder) anyLine(line []byte) (*codec.Session, error) {
	var envelope struct {
		Type *string         `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(line, &envelope); err != nil {
		if _, bad := errors.AsType[*json.SyntaxError](err); bad {
			return nil, fmt.Errorf("not JSON: %w", err)
		}
		return nil, errors.New(`not an object with a "type" and "data"`)
	}
	switch {
	case envelope.Type == nil:
		return nil, errors.New(`"type" is missing`)
	case envelope.Data == nil:
		return nil, errors.New(`"data" is missing`)
	}
	for i := range lineTypes {
		if lineTypes[i].name() == *envelope.Type {
			return lineTypes[i].take(d, *envelope.Type, envelope.Data)
		}
	}
	return nil, unknownTypeError(*envelope.Type)
}

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

func (d *decoder) session(_ string, data []byte) (*codec.Session, error) {
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(data); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	var done *codec.Session
	if d.s != nil {
		done = d.finish()
	}
	d.s, d.messages = &codec.Session{Transcript: t}, make(map[string]int)
	return done, nil
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
	return add(d, func(s *codec.Session) *[]store.RequestedIndex { return &s.RequestedIndexes }, *c, what,
		d.s.Session.ID)
}

// stateRow is a row of session_state.
type stateRow struct {
	store.State
	id string
}

func (r *stateRow) DecodeJSON(data []byte) (err error) {
	r.id, err = r.State.DecodeJSON(data)
	return err
}

func (d *decoder) state(r *stateRow) error {
	if err := d.ofSession("a state", r.id); err != nil {
		return err
	}
	d.s.State = &r.State
	return nil
}

// traceRow is a row of session_traces.
type traceRow struct {
	TraceID   string `json:"trace_id"`
	SessionID string `json:"session_id"`
}

func (r *traceRow) DecodeJSON(data []byte) error {
	err := json.Unmarshal(data, r)
	if err == nil && r.TraceID == "" {
		err = errors.New("trace_id is missing")
	}
	return err
}

// blobRow is a row of system_prompts or tool_catalogs. One that is not whole has the digest of
// one above it.
type blobRow struct {
	store.Blob
	whole bool
}

func decodeBlob(kind store.BlobKind) func(*blobRow, []byte) error {
	return func(b *blobRow, data []byte) (err error) {
		b.Kind = kind
		b.whole, err = b.DecodeJSON(data)
		return err
	}
}

func (d *decoder) blob(b *blobRow) error {
	what := strings.TrimSuffix(string(b.Kind), "s") + " " + b.Digest
	if b.whole {
		d.blobs.add(b.Blob)
	} else {
		held, ok := d.blobs.held[blobKey{kind: b.Kind, digest: b.Digest}]
		if !ok {
			return fmt.Errorf("%s has no body, and there is none above it", what)
		}
		b.Blob = held.Blob
	}
	if d.s == nil {
		return orphan(what, "a session")
	}
	return add(d, func(s *codec.Session) *[]store.Blob { return &s.Blobs }, b.Blob, what, d.s.Session.ID)
}

// finish returns the session that was read, in canonical order.
func (d *decoder) finish() *codec.Session {
	s := d.s
	s.Transcript = s.Sorted()
	d.s, d.messages = nil, nil
	return s
}

// Adder adds rows to a session that are beside its transcript.
type Adder struct{ d decoder }

// NewAdder returns what adds rows to s, which has all of its messages.
func NewAdder(s *codec.Session) *Adder {
	a := &Adder{decoder{s: s, messages: make(map[string]int, len(s.Messages))}}
	for i := range s.Messages {
		a.d.messages[s.Messages[i].Message.ID] = i
	}
	return a
}

// Row adds the row that a line of the type would have. It does not retain data.
func (a *Adder) Row(kind string, data []byte) error {
	for i := range lineTypes {
		if lineTypes[i].name() == kind {
			_, err := lineTypes[i].take(&a.d, kind, data)
			return err
		}
	}
	return unknownTypeError(kind)
}
