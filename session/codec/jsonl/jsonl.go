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
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	// flushSize is how much is buffered before it is written.
	flushSize = 64 << 10
	// keepSize is the most that a buffer may hold to be used again.
	keepSize = 256 << 10
)

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Encode writes the rows of the transcript as lines to w, in chunks of 64 KiB or one
// row, whichever is longer; an [Encoder] writes the rest of a session too. It does not
// change t, and sorts a copy if t is not in canonical order.
//
// Encode refuses what [Decode] would, and then writes nothing: rows without an
// id or under a row that they do not name (see [session.Transcript.CheckTree]).
func Encode(w io.Writer, t *session.Transcript) error {
	return NewEncoder(w).Encode(&codec.Session{Transcript: t})
}

// blobWindow is how much text of prompts and catalogs a line with a digest alone may
// be away from the one with the text.
const blobWindow = 64 << 20

// Encoder writes sessions one after the other to a file. It is used by one goroutine.
type Encoder struct {
	w   io.Writer
	buf []byte
	err error // of w, while a session is written
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
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w, written: make(map[blobKey]int64)} }

// Encode writes all of a session, as the function [Encode] writes a transcript. It
// refuses decisions, spans and annotations of another session, too. It does not retain s.
func (e *Encoder) Encode(s *codec.Session) error {
	if err := s.CheckTree(); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	if err := CheckOthers(s); err != nil {
		return fmt.Errorf("encode session %s: %w", s.Session.ID, err)
	}
	pooled := buffers.Get().(*[]byte)
	e.buf = (*pooled)[:0]
	err := e.session(s)
	if cap(e.buf) <= keepSize {
		*pooled = e.buf
		buffers.Put(pooled)
	}
	e.buf, e.err = nil, nil
	if err != nil {
		return fmt.Errorf("write session %s: %w", s.Session.ID, err)
	}
	return nil
}

// CheckOthers reports the first row beside the transcript that has no id, or that belongs
// to another session: what no canonical format can hold.
func CheckOthers(s *codec.Session) error {
	id := s.Session.ID
	for i := range s.Decisions {
		if d := &s.Decisions[i]; d.ID == "" || d.SessionID != id {
			return fmt.Errorf("decision %q belongs to session %q", d.ID, d.SessionID)
		}
	}
	for i := range s.Annotations {
		if n := &s.Annotations[i]; n.ID == "" || n.SessionID != id {
			return fmt.Errorf("annotation %q belongs to session %q", n.ID, n.SessionID)
		}
	}
	for i := range s.SpanRefs {
		if l := &s.SpanRefs[i]; l.TraceID == "" || l.SpanID == "" || l.SessionID != id {
			return fmt.Errorf("span %q of trace %q belongs to session %q", l.SpanID, l.TraceID, l.SessionID)
		}
	}
	for i := range s.Blobs {
		if b := &s.Blobs[i]; b.Digest == "" || b.Kind != store.BlobSystemPrompt && b.Kind != store.BlobToolCatalog {
			return fmt.Errorf("a text of kind %q has digest %q", b.Kind, b.Digest)
		}
	}
	return nil
}

func (e *Encoder) session(s *codec.Session) error {
	t := s.Sorted()
	e.row(sessionPrefix, t.Session.AppendJSON)
	if s.State != nil {
		e.row(statePrefix, func(dst []byte) []byte { return s.State.AppendJSON(dst, t.Session.ID) })
	}
	for _, trace := range slices.Sorted(slices.Values(s.Traces)) {
		e.row(tracePrefix, func(dst []byte) []byte { return AppendTrace(dst, trace, t.Session.ID) })
	}
	for _, b := range SortedBlobs(s.Blobs) {
		e.blob(&b)
	}
	indexes := SortedIndexes(s.RequestedIndexes)
	for i := range t.Messages {
		m := &t.Messages[i]
		e.row(messagePrefix, m.Message.AppendJSON)
		for j := range m.Parts {
			e.row(partPrefix, m.Parts[j].AppendJSON)
		}
		from, _ := slices.BinarySearchFunc(indexes, m.Message.ID, func(c store.RequestedIndex, id string) int {
			return strings.Compare(c.MessageID, id)
		})
		for k := from; k < len(indexes) && indexes[k].MessageID == m.Message.ID; k++ {
			e.row(indexPrefix, indexes[k].AppendJSON)
		}
	}
	for _, d := range SortedDecisions(s.Decisions) {
		e.row(decisionPrefix, d.AppendJSON)
	}
	for _, l := range SortedSpanRefs(s.SpanRefs) {
		e.row(spanPrefix, l.AppendJSON)
	}
	for _, n := range SortedAnnotations(s.Annotations) {
		e.row(notePrefix, n.AppendJSON)
	}
	e.flush(1)
	return e.err
}

// blob writes a prompt or a catalog, or where the file has it its digest alone.
func (e *Encoder) blob(b *store.Blob) {
	prefix := promptPrefix
	if b.Kind == store.BlobToolCatalog {
		prefix = catalogPrefix
	}
	key := blobKey{b.Kind, b.Digest, b.Exact, len(b.Body)}
	if at, ok := e.written[key]; ok && e.text-at <= blobWindow {
		e.row(prefix, func(dst []byte) []byte {
			return append(jsonscan.AppendString(append(dst, `{"digest":`...), b.Digest), '}')
		})
		return
	}
	e.row(prefix, b.AppendJSON)
	e.text += int64(len(b.Body))
	e.written[key] = e.text
	if len(e.written) > 1<<16 { // of which none in reach need be forgotten, because it is written again then
		clear(e.written)
	}
}

// AppendTrace appends a row of session_traces as a JSON object.
func AppendTrace(dst []byte, traceID, sessionID string) []byte {
	dst = jsonscan.AppendString(append(dst, `{"trace_id":`...), traceID)
	dst = jsonscan.AppendString(append(dst, `,"session_id":`...), sessionID)
	return append(dst, '}')
}

// SortedBlobs are the blobs in the order in which canonical formats write them, those
// of a digest once. It shares their bodies.
func SortedBlobs(all []store.Blob) []store.Blob {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b store.Blob) int {
		exact := 0
		if a.Exact != b.Exact {
			if exact = 1; a.Exact {
				exact = -1
			}
		}
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Digest, b.Digest),
			exact, strings.Compare(a.Body, b.Body))
	})
	return slices.CompactFunc(all, func(a, b store.Blob) bool { return a.Kind == b.Kind && a.Digest == b.Digest })
}

// SortedDecisions are the decisions in the order in which canonical formats write them.
func SortedDecisions(all []store.Decision) []store.Decision {
	return sorted(all, func(a, b store.Decision) int {
		return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), strings.Compare(a.ID, b.ID))
	})
}

// SortedAnnotations are the annotations in the order in which canonical formats write them.
func SortedAnnotations(all []store.Annotation) []store.Annotation {
	return sorted(all, store.CompareAnnotations)
}

// SortedSpanRefs are the spans in the order in which canonical formats write them.
func SortedSpanRefs(all []store.SpanRef) []store.SpanRef {
	return sorted(all, func(a, b store.SpanRef) int {
		return cmp.Or(cmp.Compare(a.StartNano, b.StartNano),
			strings.Compare(a.TraceID, b.TraceID), strings.Compare(a.SpanID, b.SpanID))
	})
}

// SortedIndexes are the requested indexes by message and part.
func SortedIndexes(all []store.RequestedIndex) []store.RequestedIndex {
	return sorted(all, func(a, b store.RequestedIndex) int {
		return cmp.Or(strings.Compare(a.MessageID, b.MessageID), strings.Compare(a.PartID, b.PartID))
	})
}

// sorted returns all in order: itself, or a copy.
func sorted[T any](all []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(all, compare) {
		return all
	}
	return slices.SortedStableFunc(slices.Values(all), compare)
}

// row writes a line. After an error of the writer it writes nothing.
func (e *Encoder) row(prefix string, appendJSON func([]byte) []byte) {
	e.buf = append(appendJSON(append(e.buf, prefix...)), "}\n"...)
	e.flush(flushSize)
}

// flush writes the buffer if it holds at least atLeast bytes.
func (e *Encoder) flush(atLeast int) {
	if len(e.buf) < atLeast {
		return
	}
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}
