package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/agenttrace/agenttrace/session"
)

// MaxLine is the longest line in bytes that [Decode] accepts. It leaves room
// for a part of 64 MiB with every byte escaped twice, and bounds the memory
// that a file of another kind can take.
const MaxLine = 256 << 20

// The canonical beginning of a line of each type.
const (
	sessionPrefix = `{"type":"session","data":`
	messagePrefix = `{"type":"message","data":`
	partPrefix    = `{"type":"part","data":`
)

// Decode yields the sessions in r, each when its last line has been read. The
// sequence can be ranged over once. The caller owns what it yields.
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
// [Salvage] reads on instead.
func Decode(r io.Reader) iter.Seq2[*session.Transcript, error] {
	return func(yield func(*session.Transcript, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, 64<<10), most: MaxLine}
		var d decoder
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			var done *session.Transcript
			if err == nil {
				done, err = d.line(line)
			}
			if err != nil {
				yield(nil, fmt.Errorf("line %d: %w", lines.n, err))
				return
			}
			if done != nil && !yield(done, nil) {
				return
			}
		}
		if d.t != nil {
			yield(d.finish(), nil)
		}
	}
}

// lineReader reads lines of any length up to most.
type lineReader struct {
	r    *bufio.Reader
	most int
	long []byte // a line longer than r's buffer
	n    int    // the number of the line last read, from 1
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
			if l.long = append(l.long, line...); len(l.long) > l.most {
				l.refused = true
				return nil, tooLongError(l.most)
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
	t        *session.Transcript
	messages map[string]int // id to place in t.Messages
	// parts are the ids of the session's parts, nil where nobody wants to know whether
	// they are sound.
	parts map[string]bool
}

// line takes one line and returns the session that it ended, if it did.
func (d *decoder) line(line []byte) (*session.Transcript, error) {
	if line = bytes.Trim(line, " \t\r"); len(line) == 0 {
		return nil, nil
	}
	// A line as this package writes it needs no look at its envelope: what
	// stands between the known beginning and the last brace is the row, if it is
	// one JSON value. If it is not, the line is read the long way.
	for _, c := range []struct {
		prefix string
		take   func(*decoder, []byte) (*session.Transcript, error)
	}{
		{partPrefix, (*decoder).part},
		{messagePrefix, (*decoder).message},
		{sessionPrefix, (*decoder).session},
	} {
		data, ok := bytes.CutPrefix(line, []byte(c.prefix))
		if !ok {
			continue
		}
		if data, ok = bytes.CutSuffix(data, []byte("}")); ok {
			done, err := c.take(d, data)
			if _, bad := errors.AsType[*json.SyntaxError](err); bad {
				break
			}
			return done, err
		}
	}
	return d.anyLine(line)
}

// anyLine takes a line with its keys in any order and any space between them.
func (d *decoder) anyLine(line []byte) (*session.Transcript, error) {
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
	switch *envelope.Type {
	case "session":
		return d.session(envelope.Data)
	case "message":
		return d.message(envelope.Data)
	case "part":
		return d.part(envelope.Data)
	}
	return nil, fmt.Errorf("type %q is not session, message or part", *envelope.Type)
}

// orphanError is a row without what it belongs to. above is what that belongs to in
// turn, where it is known to be missing too.
type orphanError struct{ row, of, above string }

func (e *orphanError) Error() string {
	return fmt.Sprintf("%s belongs to %s, which is not above it", e.row, e.of)
}

func (d *decoder) session(data []byte) (*session.Transcript, error) {
	t := new(session.Transcript)
	if err := t.Session.DecodeJSON(data); err != nil {
		return nil, fmt.Errorf("decode session: %w", err)
	}
	var done *session.Transcript
	if d.t != nil {
		done = d.finish()
	}
	d.t, d.messages = t, make(map[string]int)
	clear(d.parts)
	return done, nil
}

func (d *decoder) message(data []byte) (*session.Transcript, error) {
	var m session.Message
	if err := m.DecodeJSON(data); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	if d.t == nil || m.SessionID != d.t.Session.ID {
		return nil, &orphanError{row: "message " + m.ID, of: "session " + m.SessionID}
	}
	if _, twice := d.messages[m.ID]; twice {
		return nil, fmt.Errorf("message %s is there twice", m.ID)
	}
	d.messages[m.ID] = len(d.t.Messages)
	d.t.Messages = append(d.t.Messages, session.MessageAndParts{Message: m})
	return nil, nil
}

func (d *decoder) part(data []byte) (*session.Transcript, error) {
	var p session.Part
	if err := p.DecodeJSON(data); err != nil {
		return nil, fmt.Errorf("decode part: %w", err)
	}
	i, ok := d.messages[p.MessageID]
	if !ok {
		orphan := &orphanError{row: "part " + p.ID, of: "message " + p.MessageID}
		if d.t == nil || p.SessionID != d.t.Session.ID {
			orphan.above = "session " + p.SessionID
		}
		return nil, orphan
	}
	if d.parts != nil {
		switch {
		case p.SessionID != d.t.Session.ID:
			return nil, fmt.Errorf("part %s names session %s and stands under message %s of another", p.ID, p.SessionID, p.MessageID)
		case d.parts[p.ID]:
			return nil, fmt.Errorf("part %s is there twice", p.ID)
		}
		d.parts[p.ID] = true
	}
	d.t.Messages[i].Parts = append(d.t.Messages[i].Parts, p)
	return nil, nil
}

func (d *decoder) finish() *session.Transcript {
	t := d.t.Sorted()
	d.t, d.messages = nil, nil
	return t
}
