package jsonl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

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
		return rowsOf(slices.SortedStableFunc(slices.Values(s.SpanRefs), store.CompareSpans), (*store.SpanRef).AppendJSON)
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
	slices.SortFunc(all, func(a, b store.Blob) int {
		return cmp.Or(strings.Compare(a.Digest, b.Digest), order[a.Exact]-order[b.Exact], strings.Compare(a.Body, b.Body))
	})
	return slices.CompactFunc(all, func(a, b store.Blob) bool { return a.Digest == b.Digest })
}

// SortedDecisions are the decisions in the order in which canonical formats write them.
func SortedDecisions(all []store.Decision) []store.Decision {
	return slices.SortedStableFunc(slices.Values(all), func(a, b store.Decision) int {
		return cmp.Or(cmp.Compare(a.DecidedAt, b.DecidedAt), strings.Compare(a.ID, b.ID))
	})
}

// SortedAnnotations are the annotations in the order in which canonical formats write them.
func SortedAnnotations(all []store.Annotation) []store.Annotation {
	return slices.SortedStableFunc(slices.Values(all), store.CompareAnnotations)
}

func sortedIndexes(all []store.RequestedIndex) []store.RequestedIndex {
	return slices.SortedStableFunc(slices.Values(all), func(a, b store.RequestedIndex) int {
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
