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
)

// lineType is a type of line and what becomes of its row.
type lineType struct {
	prefix string
	take   func(*decoder, []byte) (*codec.Session, error)
}

// name is the type as the line has it.
func (t *lineType) name() string {
	return strings.TrimSuffix(strings.TrimPrefix(t.prefix, `{"type":"`), `","data":`)
}

// lineTypes are all of them, the frequent ones first.
var lineTypes = []lineType{
	{partPrefix, below((*decoder).part)},
	{messagePrefix, below((*decoder).message)},
	{spanPrefix, below((*decoder).span)},
	{sessionPrefix, (*decoder).session},
	{decisionPrefix, below((*decoder).decision)},
	{promptPrefix, below(func(d *decoder, data []byte) error { return d.blob(store.BlobSystemPrompt, data) })},
	{catalogPrefix, below(func(d *decoder, data []byte) error { return d.blob(store.BlobToolCatalog, data) })},
	{statePrefix, below((*decoder).state)},
	{tracePrefix, below((*decoder).trace)},
	{indexPrefix, below((*decoder).requestedIndex)},
}

// below is what takes a line that ends no session.
func below(take func(*decoder, []byte) error) func(*decoder, []byte) (*codec.Session, error) {
	return func(d *decoder, data []byte) (*codec.Session, error) { return nil, take(d, data) }
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
//   - rows may stand in any order below what they belong to, and come out in
//     canonical order;
//   - an error names the line, is yielded once with a nil transcript, and ends
//     the sequence. The session it is in is not yielded; those before it are.
//     A file cut off between two lines cannot be told from a whole one.
//
// [Recover] reads on instead, and yields all of a session.
func Decode(r io.Reader) iter.Seq2[*session.Transcript, error] { return decode(r, nil) }

// DecodeKnown is [Decode] that leaves out lines of an unknown type, which a newer writer may
// have added, and reports each by its line.
func DecodeKnown(r io.Reader, report func(codec.Problem)) iter.Seq2[*session.Transcript, error] {
	return decode(r, report)
}

func decode(r io.Reader, unknown func(codec.Problem)) iter.Seq2[*session.Transcript, error] {
	return func(yield func(*session.Transcript, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, 64<<10), maximum: MaxLine}
		var d decoder
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			var done *codec.Session
			if err == nil {
				done, err = d.line(line)
			}
			if _, ok := errors.AsType[unknownTypeError](err); ok && unknown != nil {
				unknown(codec.Problem{Line: lines.n, Reason: err.Error() + "; it is left out"})
				continue
			}
			if err != nil {
				yield(nil, fmt.Errorf("line %d: %w", lines.n, err))
				return
			}
			if done != nil && !yield(done.Transcript, nil) {
				return
			}
		}
		if d.s != nil {
			yield(d.finish().Transcript, nil)
		}
	}
}

// lineReader reads lines of any length up to most.
type lineReader struct {
	r       *bufio.Reader
	maximum int
	long    []byte // a line longer than r's buffer
	n       int    // the number of the line last read, from 1
	// refused says that the rest of that line is yet to be passed over.
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
	// parts are the ids of the session's parts, nil where nobody wants to know whether
	// they are sound.
	parts map[string]bool
	// others are the rows of the session that are in no transcript, nil like parts.
	others map[otherKey]bool
	blobs  blobMemory
}

// otherKey names a row beside the transcript by its type of line and its ids.
type otherKey struct{ prefix, id string }

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
		// One that was read again stands in order twice.
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
	// stands between the known beginning and the last brace is the row, if it is
	// one JSON value. If it is not, the line is read the long way.
	for i := range lineTypes {
		data, ok := bytes.CutPrefix(line, []byte(lineTypes[i].prefix))
		if !ok {
			continue
		}
		if data, ok = bytes.CutSuffix(data, []byte("}")); ok {
			done, err := lineTypes[i].take(d, data)
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
			return lineTypes[i].take(d, envelope.Data)
		}
	}
	return nil, unknownTypeError(*envelope.Type)
}

// orphanError is a row without what it belongs to. above is what that belongs to in
// turn, where it is known to be missing too.
type orphanError struct{ row, of, above string }

func (e *orphanError) Error() string {
	return fmt.Sprintf("%s belongs to %s, which is not above it", e.row, e.of)
}

// ofSession says that a row belongs to the session that is being read.
func (d *decoder) ofSession(row, sessionID string) error {
	if d.s == nil || sessionID != d.s.Session.ID {
		return &orphanError{row: row, of: "session " + sessionID}
	}
	return nil
}

// once says that a row beside the transcript is not there twice.
func (d *decoder) once(prefix, id, row string) error {
	if d.others == nil {
		return nil
	}
	key := otherKey{prefix, id}
	if d.others[key] {
		return fmt.Errorf("%s is there twice", row)
	}
	d.others[key] = true
	return nil
}

func (d *decoder) session(data []byte) (*codec.Session, error) {
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(data); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	var done *codec.Session
	if d.s != nil {
		done = d.finish()
	}
	d.s, d.messages = &codec.Session{Transcript: t}, make(map[string]int)
	clear(d.parts)
	clear(d.others)
	return done, nil
}

func (d *decoder) message(data []byte) error {
	var m session.Message
	if err := m.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	if err := d.ofSession("message "+m.ID, m.SessionID); err != nil {
		return err
	}
	if _, twice := d.messages[m.ID]; twice {
		return fmt.Errorf("message %s is there twice", m.ID)
	}
	d.messages[m.ID] = len(d.s.Messages)
	d.s.Messages = append(d.s.Messages, session.MessageAndParts{Message: m})
	return nil
}

func (d *decoder) part(data []byte) error {
	var p session.Part
	if err := p.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode part: %w", err)
	}
	i, ok := d.messages[p.MessageID]
	if !ok {
		orphan := &orphanError{row: "part " + p.ID, of: "message " + p.MessageID}
		if d.s == nil || p.SessionID != d.s.Session.ID {
			orphan.above = "session " + p.SessionID
		}
		return orphan
	}
	if d.parts != nil {
		switch {
		case p.SessionID != d.s.Session.ID:
			return fmt.Errorf("part %s names session %s and stands under message %s of another", p.ID, p.SessionID, p.MessageID)
		case d.parts[p.ID]:
			return fmt.Errorf("part %s is there twice", p.ID)
		}
		d.parts[p.ID] = true
	}
	d.s.Messages[i].Parts = append(d.s.Messages[i].Parts, p)
	return nil
}

func (d *decoder) requestedIndex(data []byte) error {
	var c store.RequestedIndex
	if err := c.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode requested_index: %w", err)
	}
	row := "the requested index of part " + c.PartID
	if _, ok := d.messages[c.MessageID]; !ok {
		return &orphanError{row: row, of: "message " + c.MessageID}
	}
	if err := d.once(indexPrefix, c.PartID, row); err != nil {
		return err
	}
	d.s.RequestedIndexes = append(d.s.RequestedIndexes, c)
	return nil
}

func (d *decoder) decision(data []byte) error {
	var row store.Decision
	if err := row.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode permission_decision: %w", err)
	}
	if err := d.ofSession("decision "+row.ID, row.SessionID); err != nil {
		return err
	}
	if err := d.once(decisionPrefix, row.ID, "decision "+row.ID); err != nil {
		return err
	}
	d.s.Decisions = append(d.s.Decisions, row)
	return nil
}

func (d *decoder) span(data []byte) error {
	var l store.SpanRef
	if err := l.DecodeJSON(data); err != nil {
		return fmt.Errorf("decode session_span: %w", err)
	}
	if err := d.ofSession("span "+l.SpanID, l.SessionID); err != nil {
		return err
	}
	if err := d.once(spanPrefix, l.TraceID+" "+l.SpanID, "span "+l.SpanID); err != nil {
		return err
	}
	d.s.SpanRefs = append(d.s.SpanRefs, l)
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
	if err := d.once(statePrefix, id, "the state of session "+id); err != nil {
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
	if err := json.Unmarshal(data, &row); err != nil {
		return fmt.Errorf("decode session_trace: %w", err)
	}
	if row.TraceID == "" {
		return errors.New("decode session_trace: trace_id is missing")
	}
	if err := d.ofSession("trace "+row.TraceID, row.SessionID); err != nil {
		return err
	}
	if err := d.once(tracePrefix, row.TraceID, "trace "+row.TraceID); err != nil {
		return err
	}
	d.s.Traces = append(d.s.Traces, row.TraceID)
	return nil
}

// blob takes a prompt or a catalog, or the digest of one that stands above.
func (d *decoder) blob(kind store.BlobKind, data []byte) error {
	b := store.Blob{Kind: kind}
	whole, err := b.DecodeJSON(data)
	name := strings.TrimSuffix(string(kind), "s")
	if err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	if whole {
		d.blobs.add(b)
	} else {
		held, ok := d.blobs.held[blobKey{kind: kind, digest: b.Digest}]
		if !ok {
			return fmt.Errorf("%s %s has no body, and none stands above it", name, b.Digest)
		}
		b = held.Blob
	}
	if d.s == nil {
		return &orphanError{row: name + " " + b.Digest, of: "a session"}
	}
	if err := d.once(string(kind), b.Digest, name+" "+b.Digest); err != nil {
		return err
	}
	d.s.Blobs = append(d.s.Blobs, b)
	return nil
}

// finish returns the session that was read, in canonical order.
func (d *decoder) finish() *codec.Session {
	s := d.s
	s.Transcript = s.Sorted()
	d.s, d.messages = nil, nil
	return s
}

// Adder adds rows to a session that stand beside its transcript.
type Adder struct{ d decoder }

// NewAdder returns what adds rows to s, which has all of its messages.
func NewAdder(s *codec.Session) *Adder {
	a := &Adder{decoder{s: s, messages: make(map[string]int, len(s.Messages)), others: make(map[otherKey]bool)}}
	for i := range s.Messages {
		a.d.messages[s.Messages[i].Message.ID] = i
	}
	return a
}

// Row adds the row that a line of the type would have. It does not retain data.
func (a *Adder) Row(kind string, data []byte) error {
	for i := range lineTypes {
		if lineTypes[i].name() == kind {
			_, err := lineTypes[i].take(&a.d, data)
			return err
		}
	}
	return unknownTypeError(kind)
}
