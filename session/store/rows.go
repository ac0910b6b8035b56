package store

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// rows is the working set of an [Apply] or [Import]: the rows that were loaded, and those that were changed.
// Merging reads and writes it and nothing else. What it lacks it asks the engine for, with what is not
// written yet in the same round trip; so the engine's answer always has what was changed before.
//
// Rows that it returns are not changed by callers, who put others in their place. Only sessions are: a row
// that was put is written as it is when it is written.
type rows struct {
	tx           Tx
	sessions     table[string, SessionRow]
	messages     table[string, session.Message]
	parts        table[string, session.Part]
	spanRefs     table[SpanKey, SpanRef]
	decisions    table[string, Decision]
	annotations  table[AnnotationKey, Annotation]
	blobs        table[blobKey, Blob]
	observations table[ObservationKey, ObservationRow]

	// What is known of the rows of a session or message, and of all that hang on a session.
	ofSession   map[string]*sessionRows
	ofMessage   map[string]*messageRows
	forksOf     map[string][]ForkRef
	transcripts map[string][]string
	// forks are sessions that were put as forks.
	forks map[string]bool

	// changes are those of what the working set has no rows of, in order.
	changes Changes
	noted   map[SessionTrace]bool // of changes.Traces and changes.Touched

	// err is the first error of the engine, which ends the merge: see [run].
	err error
}

type blobKey struct {
	kind   BlobKind
	digest string
}

// sessionRows are the messages of a session at and after a position, which are all in the working set.
type sessionRows struct {
	from Position
	ids  map[string]bool
}

// messageRows is what is known of the rows of a message.
type messageRows struct {
	// from is the index from which on all parts are in the working set. places are the parts of the message
	// by their indexes, nil where it is known that there is none.
	from   int64
	places map[int64]*session.Part
	// counted is set if count and next are those of [Extent].
	counted     bool
	count, next int64
	// requested are the indexes that displaced parts requested, nil when they are not known.
	requested map[string]int64
	// spans are those with TurnStats of the message, and may have some that have none any more. They are
	// all of them if spansKnown is set.
	spans      []SpanKey
	spansKnown bool
}

// nowhere is the index from which on nothing is known of the parts of a message.
const nowhere = math.MaxInt64

// reset forgets everything except what was refused.
func (r *rows) reset() {
	r.sessions.reset()
	r.messages.reset()
	r.parts.reset()
	r.spanRefs.reset()
	r.decisions.reset()
	r.annotations.reset()
	r.blobs.reset()
	r.observations.reset()
	r.ofSession, r.ofMessage = make(map[string]*sessionRows), make(map[string]*messageRows)
	r.forksOf, r.transcripts = make(map[string][]ForkRef), make(map[string][]string)
	r.forks, r.noted = make(map[string]bool), make(map[SessionTrace]bool)
	r.changes, r.err = Changes{}, nil
}

// ask writes what is to be written, and has queries answered.
func (r *rows) ask(queries ...Query) {
	if r.err != nil {
		return
	}
	c := &r.changes
	c.Sessions, c.Messages, c.Parts = r.sessions.collect(), r.messages.collect(), r.parts.collect()
	c.SpanRefs, c.Decisions, c.Blobs = r.spanRefs.collect(), r.decisions.collect(), r.blobs.collect()
	c.Annotations, c.Observations = r.annotations.collect(), r.observations.collect()
	if c.empty() && len(queries) == 0 {
		return
	}
	if r.err = r.tx.Do(c, queries); r.err != nil {
		return
	}
	ok := r.sessions.written(c.Sessions, keyOfSession)
	ok = r.messages.written(c.Messages, keyOfMessage) && ok
	ok = r.parts.written(c.Parts, keyOfPart) && ok
	ok = r.spanRefs.written(c.SpanRefs, keyOfSpan) && ok
	ok = r.decisions.written(c.Decisions, keyOfDecision) && ok
	ok = r.blobs.written(c.Blobs, keyOfBlob) && ok
	ok = r.annotations.written(c.Annotations, keyOfAnnotation) && ok
	ok = r.observations.written(c.Observations, keyOfObservation) && ok
	if *c = (Changes{}); !ok {
		r.err = errRefusedRow
		return
	}
	r.learn(queries)
}

// empty reports whether there is nothing to be written.
func (c *Changes) empty() bool {
	return len(c.Sessions)+len(c.Messages)+len(c.Moved)+len(c.Parts)+len(c.Requested)+len(c.SpanRefs)+
		len(c.Decisions)+len(c.Blobs)+len(c.Observations)+len(c.SpanTimes)+len(c.Owners)+len(c.Attributed)+
		len(c.Proofs)+len(c.Unbuilt)+len(c.Traces)+len(c.Touched)+len(c.Sources)+
		len(c.Annotations) == 0
}

// learn takes over the rows that the engine found.
func (r *rows) learn(queries []Query) {
	for _, q := range queries {
		switch q := q.(type) {
		case *SessionsByID:
			r.sessions.loaded(q.IDs, q.Rows, keyOfSession)
			for _, id := range q.IDs {
				if q.Forks {
					r.forksOf[id] = q.ForksOf[id]
				}
				if q.Children {
					r.transcripts[id] = q.Transcripts[id]
				}
			}
		case *MessagesByID:
			r.messages.loaded(q.IDs, q.Rows, keyOfMessage)
		case *MessagesFrom:
			r.messages.loaded(nil, q.Rows, keyOfMessage)
			r.ofSession[q.SessionID] = &sessionRows{from: q.From, ids: make(map[string]bool, len(q.Rows))}
			for i := range q.Rows {
				r.ofSession[q.SessionID].ids[q.Rows[i].ID] = true
			}
		case *PartsByKey:
			r.learnPlaces(q)
		case *PartsFrom:
			r.learnParts(nil, q.Rows)
			of := r.partsOf(q.MessageID)
			of.from = min(of.from, q.From)
		case *Extent:
			r.learnExtent(q)
		case *SpanRefsByKey:
			r.spanRefs.loaded(q.Keys, q.Rows, keyOfSpan)
		case *StatsOf:
			r.spanRefs.loaded(nil, q.Rows, keyOfSpan)
			of := r.partsOf(q.MessageID)
			of.spansKnown = true
			for i := range q.Rows {
				of.addSpan(keyOfSpan(&q.Rows[i]))
			}
		case *DecisionsByID:
			r.decisions.loaded(q.IDs, q.Rows, keyOfDecision)
		case *AnnotationsByKey:
			r.annotations.loaded(q.Keys, q.Rows, keyOfAnnotation)
		case *AnnotationsOf:
			r.annotations.loaded(nil, q.Rows, keyOfAnnotation)
		case *BlobsByDigest:
			for i := range q.Rows {
				q.Rows[i].Kind = q.Kind
			}
			r.blobs.loaded(nil, q.Rows, keyOfBlob)
			for _, digest := range q.Digests {
				r.blobs.loaded([]blobKey{{q.Kind, digest}}, nil, keyOfBlob)
			}
		case *ObservationsByKey:
			r.observations.loaded(q.Keys, q.Rows, keyOfObservation)
		}
	}
}

func (r *rows) learnPlaces(q *PartsByKey) {
	ids := make([]string, len(q.Keys))
	for i := range q.Keys {
		ids[i] = q.Keys[i].ID
	}
	r.learnParts(ids, q.Rows)
	if q.MessageID == "" {
		return
	}
	of := r.partsOf(q.MessageID)
	for _, k := range q.Keys {
		if _, known := of.places[k.Index]; !known && r.parts.isNew(k.ID) {
			of.place(k.Index, nil)
		}
	}
}

func (r *rows) learnExtent(q *Extent) {
	of := r.partsOf(q.MessageID)
	of.counted, of.count, of.next = true, q.Count, q.Next
	if q.WithRequested {
		of.requested = make(map[string]int64, len(q.Requested))
		for _, c := range q.Requested {
			of.requested[c.PartID] = c.RequestedIndex
		}
	}
}

func (r *rows) learnParts(ids []string, rows []session.Part) {
	for i := range rows {
		if p := &rows[i]; r.parts.entries[p.ID] == nil {
			r.partsOf(p.MessageID).place(p.Index, p)
		}
	}
	r.parts.loaded(ids, rows, keyOfPart)
}

// find returns the row with a key, which q finds if it is not known.
func find[Key comparable, Row any](r *rows, t *table[Key, Row], key Key, q func() Query) *Row {
	if t.entries[key] == nil {
		r.ask(q())
	}
	return t.row(key)
}

// session returns a session, nil when there is none.
func (r *rows) session(id string) *SessionRow {
	return find(r, &r.sessions, id, func() Query { return &SessionsByID{IDs: []string{id}} })
}

func (r *rows) putSession(row *SessionRow) error {
	if r.sessions.isNew(row.ID) && r.ofSession[row.ID] == nil {
		r.ofSession[row.ID] = &sessionRows{ids: make(map[string]bool)}
	}
	if row.State.Fork != nil {
		r.forks[row.ID] = true
	}
	return r.sessions.put(row.ID, row)
}

// deleteSession deletes a session, and all rows that refer to it except its observations.
func (r *rows) deleteSession(id string) {
	r.sessions.delete(id, false)
	for key, e := range r.messages.entries {
		if e.row != nil && e.row.SessionID == id {
			r.dropMessage(key, true)
		}
	}
	r.parts.follow(func(p *session.Part) bool { return p.SessionID == id })
	r.spanRefs.follow(func(l *SpanRef) bool { return l.SessionID == id })
	r.decisions.follow(func(d *Decision) bool { return d.SessionID == id })
	r.annotations.follow(func(n *Annotation) bool { return n.SessionID == id })
	delete(r.ofSession, id)
	clear(r.noted)
}

// forksFrom returns the sessions whose State.Fork.From is a session, by id, and the message where each left.
func (r *rows) forksFrom(parentID string) []ForkRef {
	if _, known := r.forksOf[parentID]; !known {
		r.ask(&SessionsByID{IDs: []string{parentID}, Forks: true})
	}
	refs := slices.DeleteFunc(slices.Clone(r.forksOf[parentID]), func(ref ForkRef) bool { return r.forks[ref.Session] })
	for id := range r.forks {
		if row := r.sessions.row(id); row != nil && row.State.Fork != nil && row.State.Fork.From == parentID {
			refs = append(refs, ForkRef{id, row.State.Fork.Message})
		}
	}
	slices.SortFunc(refs, func(x, y ForkRef) int { return strings.Compare(x.Session, y.Session) })
	return refs
}

// touch notes that a session changed.
func (r *rows) touch(sessionID string) {
	if t := (SessionTrace{SessionID: sessionID}); !r.noted[t] {
		r.noted[t] = true
		r.changes.Touched = append(r.changes.Touched, sessionID)
	}
}

// noteTrace notes that a trace has spans of a session, or that it may have none any more.
func (r *rows) noteTrace(t SessionTrace) {
	if !t.Pruned && r.noted[t] {
		return
	}
	r.noted[SessionTrace{TraceID: t.TraceID, SessionID: t.SessionID}] = !t.Pruned
	r.changes.Traces = append(r.changes.Traces, t)
}

// message returns a message, nil when there is none.
func (r *rows) message(id string) *session.Message {
	return find(r, &r.messages, id, func() Query { return &MessagesByID{IDs: []string{id}} })
}

// loadMessages reads those of some messages that are not known, in one round trip.
func (r *rows) loadMessages(ids ...string) {
	q := &MessagesByID{}
	for _, id := range ids {
		if id != "" && r.messages.entries[id] == nil && !slices.Contains(q.IDs, id) {
			q.IDs = append(q.IDs, id)
		}
	}
	if len(q.IDs) > 0 {
		r.ask(q)
	}
}

func (r *rows) putMessage(m *session.Message) error {
	if e := r.messages.entries[m.ID]; e != nil && e.row != nil && e.row.SessionID != m.SessionID {
		return ErrRefused
	}
	row := *m
	if err := r.messages.put(m.ID, &row); err != nil {
		return err
	}
	if of := r.ofSession[m.SessionID]; of != nil {
		of.ids[m.ID] = true
	}
	return nil
}

// dropMessage deletes a message with its parts. It follows if the engine deletes it by itself.
func (r *rows) dropMessage(id string, follows bool) {
	r.messages.delete(id, follows)
	if of := r.ofMessage[id]; of != nil {
		for _, p := range of.places {
			if p != nil {
				r.parts.delete(p.ID, true)
			}
		}
		delete(r.ofMessage, id)
	}
	ofMessage := func(c RequestedIndex) bool { return c.MessageID == id }
	r.changes.Requested = slices.DeleteFunc(r.changes.Requested, ofMessage)
}

// messagesFrom returns the session's messages at and after the position, in order.
func (r *rows) messagesFrom(sessionID string, from Position) []session.Message {
	of := r.ofSession[sessionID]
	if of == nil || from.Before(of.from) {
		r.ask(&MessagesFrom{SessionID: sessionID, From: from})
		if of = r.ofSession[sessionID]; of == nil {
			return nil
		}
	}
	var messages []session.Message
	for id := range of.ids {
		if m := r.messages.row(id); m != nil && m.SessionID == sessionID && !PositionOf(m).Before(from) {
			messages = append(messages, *m)
		}
	}
	slices.SortFunc(messages, compareByPosition)
	return messages
}

func compareByPosition(x, y session.Message) int {
	return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), strings.Compare(x.ID, y.ID))
}

// partsOf is what is known of the parts of a message.
func (r *rows) partsOf(messageID string) *messageRows {
	of := r.ofMessage[messageID]
	if of == nil {
		of = &messageRows{from: nowhere}
		if r.messages.isNew(messageID) {
			of.from, of.requested = 0, make(map[string]int64)
		}
		r.ofMessage[messageID] = of
	}
	return of
}

func (of *messageRows) place(index int64, p *session.Part) {
	set(&of.places, index, p)
}

// part returns a part, nil when there is none.
func (r *rows) part(id string) *session.Part {
	return find(r, &r.parts, id, func() Query { return &PartsByKey{Keys: []PartIndex{{ID: id}}} })
}

// insertPart adds a part, unless there is one with its id or at its index. Of a message whose parts are known from
// its index on, an id that is not known is taken for new: the engine refuses it otherwise.
func (r *rows) insertPart(p *session.Part) (inserted bool, _ error) {
	of := r.partsOf(p.MessageID)
	_, refused := r.parts.refused[p.ID]
	e, all := r.parts.entries[p.ID], of.from <= p.Index
	if _, known := of.places[p.Index]; e == nil && (!all || refused) || !known && !all && e.row == nil {
		r.ask(&PartsByKey{MessageID: p.MessageID, Keys: []PartIndex{{p.ID, p.Index}}})
		e = r.parts.entries[p.ID]
	}
	if e != nil && e.row != nil || of.places[p.Index] != nil {
		return false, nil
	}
	if e != nil && e.deleted && e.old.MessageID == p.MessageID && e.old.Index == p.Index {
		e.deleted = false // it is replaced
	}
	if err := r.parts.put(p.ID, p); err != nil {
		return false, err
	}
	of.place(p.Index, p)
	of.count, of.next = of.count+1, max(of.next, p.Index+1)
	return true, nil
}

// updatePart replaces a part, which keeps its message and index.
func (r *rows) updatePart(p *session.Part) error {
	old := r.parts.entries[p.ID].row
	if p.Index != old.Index || p.SessionID != old.SessionID {
		kept := *p
		kept.Index, kept.SessionID = old.Index, old.SessionID
		p = &kept
	}
	r.partsOf(p.MessageID).place(p.Index, p)
	return r.parts.put(p.ID, p)
}

func (r *rows) deletePart(p *session.Part) {
	of := r.partsOf(p.MessageID)
	of.place(p.Index, nil)
	of.counted = false
	r.parts.delete(p.ID, false)
}

// partsFrom returns the parts of a message from an index on, by index.
func (r *rows) partsFrom(messageID string, from int64) []session.Part {
	of := r.partsOf(messageID)
	if of.from > from {
		r.ask(&PartsFrom{MessageID: messageID, From: from})
	}
	var parts []session.Part
	for index, p := range of.places {
		if p != nil && index >= from {
			parts = append(parts, *p)
		}
	}
	slices.SortFunc(parts, func(x, y session.Part) int { return cmp.Compare(x.Index, y.Index) })
	return parts
}

// extent returns how many parts a message has and the index after the last.
func (r *rows) extent(messageID string) (count, next int64) {
	of := r.partsOf(messageID)
	if of.from == 0 {
		for index, p := range of.places {
			if p != nil {
				count, next = count+1, max(next, index+1)
			}
		}
		return count, next
	}
	if !of.counted {
		r.ask(&Extent{MessageID: messageID})
	}
	return of.count, of.next
}

// requestedIndexes returns the indexes that displaced parts of a message requested.
func (r *rows) requestedIndexes(messageID string) map[string]int64 {
	of := r.partsOf(messageID)
	if of.requested == nil {
		r.ask(&Extent{MessageID: messageID, WithRequested: true})
	}
	return of.requested
}

// request notes the index that a displaced part requested.
func (r *rows) request(messageID, partID string, index int64) {
	if of := r.partsOf(messageID); of.requested != nil {
		of.requested[partID] = index
	}
	r.changes.Requested = append(r.changes.Requested, RequestedIndex{messageID, partID, index})
}

// moveParts sets the indexes of parts of one message, all of them at once.
func (r *rows) moveParts(messageID string, index map[string]int64) {
	of := r.partsOf(messageID)
	of.counted = of.counted && len(index) == 0
	for id := range index {
		if e := r.parts.entries[id]; of.places[e.row.Index] == e.row {
			of.places[e.row.Index] = nil
		}
	}
	for id, i := range index {
		e := r.parts.entries[id]
		moved := *e.row
		moved.Index = i
		e.row = &moved
		of.place(i, &moved)
		if e.old != nil && !e.deleted { // otherwise it is inserted there
			if !e.dirty {
				e.old = &moved
			}
			r.changes.Moved = append(r.changes.Moved, PartIndex{id, i})
		}
	}
}

// compactions returns the compactions of a session.
func (r *rows) compactions(sessionID string) []session.Part {
	q := &Compactions{SessionID: sessionID}
	r.ask(q)
	return q.Rows
}

// spanRef returns a span, nil when there is none.
func (r *rows) spanRef(key SpanKey) *SpanRef {
	return find(r, &r.spanRefs, key, func() Query { return &SpanRefsByKey{Keys: []SpanKey{key}} })
}

// insertSpan adds a span unless there is one. One of which nothing is known is taken for new, because most are; the
// engine refuses it otherwise.
func (r *rows) insertSpan(l *SpanRef) (inserted bool, _ error) {
	key := keyOfSpan(l)
	e := r.spanRefs.entries[key]
	if _, refused := r.spanRefs.refused[key]; e == nil && refused {
		r.spanRef(key)
		e = r.spanRefs.entries[key]
	}
	if e != nil && e.row != nil {
		return false, nil
	}
	if err := r.spanRefs.put(key, l); err != nil {
		return false, err
	}
	if l.reports() {
		of := r.partsOf(l.MessageID)
		of.spans = append(of.spans, key)
	}
	return true, nil
}

func (r *rows) updateSpan(l *SpanRef) error {
	if l.reports() {
		r.partsOf(l.MessageID).addSpan(keyOfSpan(l))
	}
	return r.spanRefs.put(keyOfSpan(l), l)
}

func (of *messageRows) addSpan(key SpanKey) {
	if !slices.Contains(of.spans, key) {
		of.spans = append(of.spans, key)
	}
}

// turnStats returns the spans of a message that have some.
func (r *rows) turnStats(sessionID, messageID string) []*SpanRef {
	of := r.partsOf(messageID)
	if !of.spansKnown && !r.sessions.isNew(sessionID) {
		r.ask(&StatsOf{SessionID: sessionID, MessageID: messageID})
	}
	var all []*SpanRef
	for _, key := range of.spans {
		if l := r.spanRefs.row(key); l != nil && l.reports() &&
			l.MessageID == messageID && l.SessionID == sessionID {
			all = append(all, l)
		}
	}
	return all
}

// annotation returns an annotation, nil when there is none.
func (r *rows) annotation(key AnnotationKey) *Annotation {
	return find(r, &r.annotations, key, func() Query { return &AnnotationsByKey{Keys: []AnnotationKey{key}} })
}

// decision returns a decision, nil when there is none.
func (r *rows) decision(id string) *Decision {
	return find(r, &r.decisions, id, func() Query { return &DecisionsByID{IDs: []string{id}} })
}

// deleteDecision deletes a decision that the engine may have.
func (r *rows) deleteDecision(id string) {
	r.decisions.loaded(nil, []Decision{{ID: id}}, keyOfDecision)
	r.decisions.delete(id, false)
}

// blob returns a prompt or catalog, nil when there is none.
func (r *rows) blob(kind BlobKind, digest string) *Blob {
	return find(r, &r.blobs, blobKey{kind, digest}, func() Query {
		return &BlobsByDigest{Kind: kind, Digests: []string{digest}}
	})
}

// observation returns an observation, nil when there is none.
func (r *rows) observation(key ObservationKey) *ObservationRow {
	return find(r, &r.observations, key, func() Query { return &ObservationsByKey{Keys: []ObservationKey{key}} })
}

// attribute changes what became of a stored observation.
func (r *rows) attribute(o *Observation, attributed *Attribution) {
	r.changes.Attributed = append(r.changes.Attributed, Attributed{keyOf(o), attributed})
}

// prove changes what a stored observation proves.
func (r *rows) prove(o *Observation, p UsageProof) {
	r.changes.Proofs = append(r.changes.Proofs, Proof{keyOf(o), p})
}
