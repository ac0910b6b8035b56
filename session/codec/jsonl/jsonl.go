// Package jsonl is the canonical line format of sessions: one JSON object per
// line, one line per row.
//
//	{"type":"session","data":{<chat_sessions row>}}
//	{"type":"message","data":{<chat_messages row>}}
//	{"type":"part","data":{<chat_parts row>}}
//
// A session line starts a session and ends the one before it, so sessions can
// be concatenated with cat. Its messages follow in order of (created_at, id),
// each with its parts in order of index. Rows are written by
// [session.Session.AppendJSON] and its siblings: every column, in the order of
// the table, JSON columns as text.
//
// The format is canonical: a session has one encoding, byte for byte, and
// decoding and encoding it again gives the same bytes.
//
// What the package insists on is what it needs to build the tree: the types of
// lines, ids, and that what a row belongs to stands above it. Whether the rows
// make a sound session is the business of [session.Check].
package jsonl

import (
	"fmt"
	"io"
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

const (
	// flushSize is how much is buffered before it is written.
	flushSize = 64 << 10
	// keepSize is the most that a buffer may hold to be used again.
	keepSize = 256 << 10
)

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Encode writes the session as lines to w, in chunks of 64 KiB or one row,
// whichever is longer. It does not change t, and sorts a copy if t is not in
// canonical order.
//
// Encode refuses what [Decode] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func Encode(w io.Writer, t *session.Transcript) error {
	if err := t.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", t.Session.ID, err)
	}
	t = t.Sorted()
	pooled := buffers.Get().(*[]byte)
	e := encoder{w: w, buf: (*pooled)[:0]}
	err := e.transcript(t)
	if cap(e.buf) <= keepSize {
		*pooled = e.buf
		buffers.Put(pooled)
	}
	if err != nil {
		return fmt.Errorf("write session %s: %w", t.Session.ID, err)
	}
	return nil
}

type encoder struct {
	w   io.Writer
	buf []byte
}

func (e *encoder) transcript(t *session.Transcript) error {
	e.buf = append(e.buf, sessionPrefix...)
	e.buf = t.Session.AppendJSON(e.buf)
	e.buf = append(e.buf, "}\n"...)
	for i := range t.Messages {
		e.buf = append(e.buf, messagePrefix...)
		e.buf = t.Messages[i].Message.AppendJSON(e.buf)
		e.buf = append(e.buf, "}\n"...)
		if err := e.flush(flushSize); err != nil {
			return err
		}
		for j := range t.Messages[i].Parts {
			e.buf = append(e.buf, partPrefix...)
			e.buf = t.Messages[i].Parts[j].AppendJSON(e.buf)
			e.buf = append(e.buf, "}\n"...)
			if err := e.flush(flushSize); err != nil {
				return err
			}
		}
	}
	return e.flush(1)
}

// flush writes the buffer if it holds at least atLeast bytes.
func (e *encoder) flush(atLeast int) error {
	if len(e.buf) < atLeast {
		return nil
	}
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}
