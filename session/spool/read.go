package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// Record is what was spooled at once.
type Record struct {
	// Traces and Logs hold what was spooled. They are never nil, and one of them is
	// empty. The caller owns them.
	Traces ptrace.Traces
	Logs   plog.Logs
	// Offset is where the record begins in the file, in bytes.
	Offset int64
}

// DamagedError is a piece of a file that cannot be read.
type DamagedError struct {
	// Offset is where the piece begins, Length how long it is, in bytes.
	Offset, Length int64
	// Missing is how many records are known to have been in it.
	Missing int
	// Tail says that the piece is the end of the file and no whole record, so that
	// it is what was being written when the process or the machine died. Nobody
	// acknowledged it, unless the file was not synced and the machine died.
	Tail bool
	// Err is what is wrong with the content of a record that is whole.
	Err error
}

func (e *DamagedError) Error() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("byte %d: %v", e.Offset, e.Err)
	case e.Tail:
		return fmt.Sprintf("byte %d: the last %d bytes are no whole record: its writer or the machine died", e.Offset, e.Length)
	case e.Missing > 0:
		return fmt.Sprintf("byte %d: %d bytes are damaged; the records in them, at least %d, are left out", e.Offset, e.Length, e.Missing)
	}
	return fmt.Sprintf("byte %d: %d bytes are damaged and left out", e.Offset, e.Length)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// ErrNewer is wrapped by the error for a file of a later version of the format.
var ErrNewer = errors.New("spool file is of a newer version")

// Read yields the records of a file in their order. The sequence can be ranged
// over once. Memory is bounded by the largest record, and by [MaxRecord] where a
// file is damaged.
//
// Edge cases:
//   - an empty file yields nothing;
//   - a [*DamagedError] stands for a piece that is no record, such as a tail that
//     was cut off or bytes that changed; whatever is whole behind it follows, so
//     that a file of another kind is one damaged piece;
//   - any other error ends the sequence: that of r, or one that wraps [ErrNewer];
//   - a record comes with no error, and an error with no record.
func Read(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for f, err := range frames(r) {
			var rec Record
			if err == nil {
				rec, err = f.decode()
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// positionedFrame is a record with its place. Its body is valid until the next.
type positionedFrame struct {
	frame
	offset int64
}

// decode returns what was spooled. Where the checksum is right it fails only if
// another program wrote the body.
func (f positionedFrame) decode() (_ Record, err error) {
	rec := Record{Traces: ptrace.NewTraces(), Logs: plog.NewLogs(), Offset: f.offset}
	body := f.body
	switch f.kind {
	case kindTraces:
		if body, _, err = nesting.Proto(nesting.SignalTraces, body, 0); err == nil {
			rec.Traces, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
		}
	case kindLogs:
		if body, _, err = nesting.Proto(nesting.SignalLogs, body, 0); err == nil {
			rec.Logs, err = (&plog.ProtoUnmarshaler{}).UnmarshalLogs(body)
		}
	}
	if err != nil {
		return Record{}, &DamagedError{Offset: f.offset, Length: int64(f.size()), Missing: 1, Err: fmt.Errorf("decode record: %w", err)}
	}
	return rec, nil
}

// frames yields the records of a file as they are, without the header.
func frames(r io.Reader) iter.Seq2[positionedFrame, error] {
	return func(yield func(positionedFrame, error) bool) { (&scanner{r: r}).run(yield) }
}

// scanner finds records. Of what it has read, buf is what is not done with, which
// begins at offset in the file.
type scanner struct {
	r      io.Reader
	buf    []byte
	offset int64
	eof    bool
	err    error // of r

	// id is that of the first record that was found, once known; next is the number
	// of the next one if none is missing.
	known bool
	id    fileID
	next  uint32
}

// chunk is how much is read at once.
const chunk = 64 << 10

// fill has n bytes in buf, or all that are left.
func (s *scanner) fill(n int) bool {
	for len(s.buf) < n && !s.eof && s.err == nil {
		from := len(s.buf)
		// It grows with what there is, not with what a length announces.
		s.buf = append(s.buf, make([]byte, max(chunk, min(n-from, 1<<20)))...)
		k, err := io.ReadAtLeast(s.r, s.buf[from:], 1)
		s.buf = s.buf[:from+k]
		if err == io.EOF {
			s.eof = true
		} else if err != nil {
			s.err = err
		}
	}
	return len(s.buf) >= n
}

// advance is done with n bytes.
func (s *scanner) advance(n int) {
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.offset += int64(n)
}

// at returns the record at position p of buf.
func (s *scanner) at(p int) (f frame, ok bool) {
	if !s.fill(p+lengthSize+1) || !plausible(s.buf[p:]) {
		return frame{}, false
	}
	if !s.fill(p + lengthSize + int(binary.BigEndian.Uint32(s.buf[p:]))) {
		return frame{}, false
	}
	f, ok = parse(s.buf[p:])
	return f, ok && (!s.known || f.id == s.id && f.seq >= s.next)
}

func (s *scanner) run(yield func(positionedFrame, error) bool) {
	for s.fill(1) {
		f, ok := s.at(0)
		var damage *DamagedError
		if !ok {
			if damage, f, ok = s.resync(); s.err != nil {
				break
			}
		}
		if ok {
			// The header has number 0 and is no record of anyone.
			if missing := int(f.seq) - int(max(s.next, 1)); missing > 0 {
				if damage == nil {
					damage = &DamagedError{Offset: s.offset}
				}
				damage.Missing = missing
			}
			s.known, s.id, s.next = true, f.id, f.seq+1
		}
		if damage != nil && !yield(positionedFrame{}, damage) {
			return
		}
		if !ok {
			return
		}
		switch {
		case f.kind != kindHeader:
			if !yield(positionedFrame{f, s.offset}, nil) {
				return
			}
		case !bytes.Equal(f.body, headerBody):
			yield(positionedFrame{}, fmt.Errorf("%w: %q; use a newer agenttrace", ErrNewer, f.body))
			return
		}
		s.advance(f.size())
	}
	if s.err != nil {
		yield(positionedFrame{}, s.err)
	}
}

// resync passes over what is no record, to the next one if there is one. What it
// passed over is returned.
func (s *scanner) resync() (*DamagedError, frame, bool) {
	damage := &DamagedError{Offset: s.offset, Tail: !s.whole()}
	for p := 1; ; p++ {
		if p > chunk {
			s.advance(p - trailerSize) // endsWhole wants to see one
			p = trailerSize
		}
		if !s.fill(p + lengthSize + 1) {
			break
		}
		// A body begins with its tag: look for that.
		i := bytes.IndexByte(s.buf[p+lengthSize:], 0x0a)
		if i < 0 {
			p = len(s.buf) - lengthSize - 1
			continue
		}
		p += i
		if f, ok := s.at(p); ok {
			s.advance(p)
			damage.Length, damage.Tail = s.offset-damage.Offset, false
			f.body = s.buf[lengthSize : lengthSize+len(f.body)]
			return damage, f, true
		}
	}
	if damage.Tail && s.known && s.endsWhole() {
		damage.Tail = false
	}
	s.advance(len(s.buf))
	damage.Length = s.offset - damage.Offset
	return damage, frame{}, false
}

// whole says whether as much is there as the record at hand announces.
func (s *scanner) whole() bool {
	return s.fill(lengthSize+1) && plausible(s.buf) && s.fill(lengthSize+int(binary.BigEndian.Uint32(s.buf)))
}

// endsWhole says whether a record ends where the file does: only its length is
// wrong, then.
func (s *scanner) endsWhole() bool {
	if len(s.buf) < trailerSize {
		return false
	}
	t := s.buf[len(s.buf)-trailerSize:]
	return t[0] == tag0 && t[1] == tag1 && t[2] == tag2 && bytes.Equal(t[4:12], s.id[:])
}
