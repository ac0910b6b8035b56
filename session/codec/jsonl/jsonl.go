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
// Encode refuses what [Decode] would: a row without an id, a message that
// belongs to another session, a part that belongs to another message, and two
// messages with one id. Lines written before such a row stay written.
func Encode(w io.Writer, t *session.Transcript) error {
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
	if t.Session.ID == "" {
		return fmt.Errorf("session has no id")
	}
	e.buf = append(e.buf, sessionPrefix...)
	e.buf = t.Session.AppendJSON(e.buf)
	e.buf = append(e.buf, "}\n"...)
	seen := make(map[string]struct{}, len(t.Messages))
	for i := range t.Messages {
		m := &t.Messages[i].Message
		switch _, twice := seen[m.ID]; {
		case m.ID == "":
			return fmt.Errorf("messages[%d] has no id", i)
		case m.SessionID != t.Session.ID:
			return fmt.Errorf("message %s belongs to session %q", m.ID, m.SessionID)
		case twice:
			return fmt.Errorf("message %s is there twice", m.ID)
		}
		seen[m.ID] = struct{}{}
		e.buf = append(e.buf, messagePrefix...)
		e.buf = m.AppendJSON(e.buf)
		e.buf = append(e.buf, "}\n"...)
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			switch {
			case p.ID == "":
				return fmt.Errorf("messages[%d].parts[%d] has no id", i, j)
			case p.MessageID != m.ID:
				return fmt.Errorf("part %s belongs to message %q, and stands under %s", p.ID, p.MessageID, m.ID)
			case p.SessionID == "":
				return fmt.Errorf("part %s has no session_id", p.ID)
			}
			e.buf = append(e.buf, partPrefix...)
			e.buf = p.AppendJSON(e.buf)
			e.buf = append(e.buf, "}\n"...)
			if err := e.flush(flushSize); err != nil {
				return err
			}
		}
		if err := e.flush(flushSize); err != nil {
			return err
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
