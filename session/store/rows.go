package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	sessions     working[string, SessionRow]
	messages     working[string, session.Message]
	parts        working[string, session.Part]
	spanRefs     working[SpanKey, SpanRef]
	decisions    working[string, Decision]
	annotations  working[AnnotationKey, Annotation]
	blobs        map[BlobKind]*working[string, Blob]
	observations working[ObservationKey, ObservationRow]

	// What is known of the rows of a session or message, and of all that hang on a session.
	ofMessage   map[string]*messageRows
	forksOf     map[string][]string
	transcripts map[string][]string
	// forks are sessions that were put as forks.
	forks map[string]bool

	// What is to be written of what the working set has no rows of: parts that get another index, the indexes that
	// displaced parts requested, and statements for after the rows, and for after all else, in order.
	moved       []partIndex
	requested   []RequestedIndex
	later, last []query

	// err is the first error of the engine, which ends the merge: see [run].
	err error
}

// partIndex is the index of a part.
type partIndex struct {
	id    string
	index int64
}

// messageRows is what is known of the rows of a message.
type messageRows struct {
	// parts are the ids of all parts by their indexes, ids the same, requested the indexes that displaced ones
	// requested. whole is set if all parts are in the working set.
	parts     map[int64]string
	ids       map[string]bool
	requested map[string]int64
	whole     bool
	// spans are those with TurnStats of the message, and may have some that have none any more. They are
	// all of them if spansKnown is set.
	spans      []SpanKey
	spansKnown bool
}

func newRows(tx Tx) *rows {
	r := &rows{tx: tx, parts: rowsOf(PartTable, keyOfPart, single, nil)}
	r.sessions = working[string, SessionRow]{byKey: sessionQuery, columns: single, keyOf: keyOfSession,
		name: func(s Statements, id string) { s.Name(NameSession, id) },
		scan: scanSession, put: putSession, remove: removeSession}
	r.messages = rowsOf(MessageTable, keyOfMessage, single, func(s Statements, id string) { s.Name(NameMessage, id) })
	r.spanRefs = rowsOf(SpanTable, keyOfSpan,
		func(k SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} },
		func(s Statements, k SpanKey) { s.Name(NameSession, k.SessionID) })
	r.decisions = rowsOf(DecisionTable, keyOfDecision, single, nil)
	r.decisions.put = putDecision
	r.annotations = rowsOf(AnnotationTable, keyOfAnnotation,
		func(k AnnotationKey) []string { return []string{k.SessionID, k.ID} },
		func(s Statements, k AnnotationKey) { s.Name(NameSession, k.SessionID) })
	r.blobs = make(map[BlobKind]*working[string, Blob])
	for kind, table := range BlobTables {
		blobs := rowsOf(table, keyOfBlob, single, nil)
		r.blobs[kind] = &blobs
	}
	r.observations = rowsOf(ObservationTable, keyOfObservation,
		func(k ObservationKey) []string { return []string{k.TraceID, k.Source} },
		func(s Statements, k ObservationKey) { s.Name(NameTrace, k.TraceID) })
	r.observations.put = putObservation
	return r
}

// table is a working set of any type.
type table interface {
	reset()
	isDirty() bool
	writeDeleted(Statements)
	writePut(Statements)
	written() bool
}

// tables are all working sets, in the order in which they are written: a row follows what it refers to.
func (r *rows) tables() []table {
	return []table{&r.sessions, &r.messages, &r.parts, &r.spanRefs, &r.decisions, &r.annotations,
		r.blobs[BlobSystemPrompt], r.blobs[BlobToolCatalog], &r.observations}
}

// errRefusedRow is the error of a working set of which the engine refused a row that merging took for accepted. The
// whole is done again, and then the row is refused at once.
var errRefusedRow = errors.New("a row was refused")

// run does something with the rows of an engine, and again without those that the engine refuses.
//
// No step of a merge can do anything about an engine that fails, so none of them returns its error. As in a
// [bufio.Writer], the working set keeps the first one: after it nothing is read or written any more, rows that are not
// known are not there, and run returns it. What a step does return is the refusal of a row, which ends nothing.
func run(tx Tx, do func(*rows)) error {
	r := newRows(tx)
	for {
		r.reset()
		do(r)
		r.ask()
		if !errors.Is(r.err, errRefusedRow) {
			return r.err
		}
		if err := tx.Undo(); err != nil {
			return err
		}
	}
}

// fail ends the merge with an error, unless another one has.
func (r *rows) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// within adds to the error with which f ends the merge what was done, and to which row.
func (r *rows) within(what, id string, f func()) {
	if r.err != nil {
		return
	}
	if f(); r.err != nil {
		r.err = fmt.Errorf("%s %s: %w", what, id, r.err)
	}
}

// reset forgets everything except what was refused.
func (r *rows) reset() {
	for _, t := range r.tables() {
		t.reset()
	}
	r.ofMessage, r.forks = make(map[string]*messageRows), make(map[string]bool)
	r.forksOf, r.transcripts = make(map[string][]string), make(map[string][]string)
	r.moved, r.requested, r.later, r.last, r.err = nil, nil, nil, nil, nil
}

// ask writes what is to be written, and has queries answered.
func (r *rows) ask(queries ...query) {
	if r.err != nil || len(queries) == 0 && !r.isDirty() {
		return
	}
	r.err = r.tx.Do(func(s Statements) {
		r.write(s)
		for _, q := range queries {
			q(s)
		}
	})
	ok := true
	for _, t := range r.tables() {
		ok = t.written() && ok
	}
	r.moved, r.requested, r.later, r.last = nil, nil, nil, nil
	if r.err == nil && !ok {
		r.err = errRefusedRow
	}
}

func (r *rows) isDirty() bool {
	return len(r.moved)+len(r.requested)+len(r.later)+len(r.last) > 0 ||
		slices.ContainsFunc(r.tables(), func(t table) bool { return t.isDirty() })
}

// write adds the statements that write what was changed. Deletions make room, and a row follows what it refers to. A
// row whose session or message is refused is left out without an error of its own, because all is undone then.
func (r *rows) write(s Statements) {
	r.orderBlobs()
	for _, t := range r.tables() {
		t.writeDeleted(s)
	}
	r.sessions.writePut(s)
	r.messages.writePut(s)
	moveParts(s, r.moved)
	r.parts.writePut(s)
	for _, q := range r.requested {
		s.Exec(s.Dialect().PutRequested, q.MessageID, q.PartID, q.RequestedIndex)
	}
	for _, t := range r.tables()[3:] {
		t.writePut(s)
	}
	for _, change := range slices.Concat(r.later, r.last) {
		change(s)
	}
}

// session returns a session, nil when there is none.
func (r *rows) session(id string) *SessionRow { return find(r, &r.sessions, id) }

// find returns the row with a key, which is read if it is not known.
func find[Key comparable, R any](r *rows, t *working[Key, R], key Key) *R {
	if t.entries[key] == nil {
		r.ask(t.read(key))
	}
	return t.row(key)
}

func (r *rows) putSession(row *SessionRow) error {
	if row.State.Fork != nil {
		r.forks[row.ID] = true
	}
	return r.sessions.set(row)
}

// deleteSession deletes a session, and all rows that refer to it except its observations.
func (r *rows) deleteSession(id string) {
	r.sessions.delete(id, false)
	r.messages.follow(func(m *session.Message) bool {
		if m.SessionID == id {
			delete(r.ofMessage, m.ID)
		}
		return m.SessionID == id
	})
	r.requested = slices.DeleteFunc(r.requested, func(c RequestedIndex) bool {
		return r.messages.row(c.MessageID) == nil
	})
	r.parts.follow(func(p *session.Part) bool { return p.SessionID == id })
	r.spanRefs.follow(func(l *SpanRef) bool { return l.SessionID == id })
	r.decisions.follow(func(d *Decision) bool { return d.SessionID == id })
	r.annotations.follow(func(n *Annotation) bool { return n.SessionID == id })
}

// forksFrom returns the ids of the sessions that may have been forked from one, in order.
func (r *rows) forksFrom(parentID string) []string {
	if _, known := r.forksOf[parentID]; !known {
		r.ask(r.readForks(parentID))
	}
	ids := slices.AppendSeq(slices.Clone(r.forksOf[parentID]), maps.Keys(r.forks))
	slices.Sort(ids)
	return slices.Compact(ids)
}

// touch notes that a session changed, for exports that follow the store.
func (r *rows) touch(sessionID string) { r.last = append(r.last, touch(sessionID)) }

// noteTrace notes that a trace has spans of a session, pruneTrace that it may have none any more.
func (r *rows) noteTrace(traceID, sessionID string) {
	r.last = append(r.last, func(s Statements) { s.Exec(noteTrace, traceID, sessionID) })
}

func (r *rows) pruneTrace(traceID, sessionID string) {
	r.last = append(r.last, func(s Statements) { s.Exec(pruneTrace, traceID, sessionID) })
}

// message returns a message, nil when there is none.
func (r *rows) message(id string) *session.Message { return find(r, &r.messages, id) }

// loadMessages reads those of some messages that are not known, in one round trip.
func (r *rows) loadMessages(ids ...string) {
	ids = slices.DeleteFunc(r.messages.unknown(ids...), func(id string) bool { return id == "" })
	if len(ids) > 0 {
		r.ask(r.messages.read(ids...))
	}
}

func (r *rows) putMessage(m *session.Message) error {
	if old := r.messages.row(m.ID); old != nil && old.SessionID != m.SessionID {
		return ErrRefused
	}
	row := *m
	return r.messages.set(&row)
}

// dropMessage deletes a message with its parts.
func (r *rows) dropMessage(id string) {
	r.messages.delete(id, false)
	if of := r.ofMessage[id]; of != nil && of.parts != nil {
		for part := range of.ids {
			r.parts.delete(part, true)
		}
	}
	r.parts.follow(func(p *session.Part) bool { return p.MessageID == id })
	delete(r.ofMessage, id)
	r.requested = slices.DeleteFunc(r.requested, func(c RequestedIndex) bool { return c.MessageID == id })
}

// messagesFrom returns the session's messages at and after the position, in order.
func (r *rows) messagesFrom(sessionID string, from Position) (messages []session.Message) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(MessagesQuery, func(row Row) error {
			m, err := r.messages.learn(row)
			messages = append(messages, *m)
			return err
		}, sessionID, from.At, from.ID)
	})
	return messages
}

func compareByPosition(x, y session.Message) int {
	return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), strings.Compare(x.ID, y.ID))
}

// partsOf is what is known of the parts of a message.
func (r *rows) partsOf(messageID string) *messageRows {
	of := r.ofMessage[messageID]
	if of == nil {
		of = new(messageRows)
		if r.messages.isNew(messageID) {
			of.known()
			of.whole = true
		}
		r.ofMessage[messageID] = of
	}
	return of
}

// indexesOf is partsOf, with the indexes of all parts.
func (r *rows) indexesOf(messageID string) *messageRows {
	if of := r.partsOf(messageID); of.parts != nil {
		return of
	}
	r.ask(r.readIndexes(messageID))
	of := r.partsOf(messageID)
	if of.parts == nil { // the engine failed
		of.known()
	}
	return of
}

// known notes that all parts are known: those that are added.
func (of *messageRows) known() {
	of.parts, of.ids, of.requested = make(map[int64]string), make(map[string]bool), make(map[string]int64)
}

func (of *messageRows) add(id string, index int64) { of.parts[index], of.ids[id] = id, true }

// part returns a part, nil when there is none.
func (r *rows) part(id string) *session.Part { return find(r, &r.parts, id) }

// insertPart adds a part, unless there is one with its id or at its index. An id that no part of the message has is
// taken for new, because most are; the engine refuses it otherwise.
func (r *rows) insertPart(p *session.Part) (inserted bool, _ error) {
	of := r.indexesOf(p.MessageID)
	if _, refused := r.parts.refused[p.ID]; refused {
		r.part(p.ID)
	}
	if of.parts[p.Index] != "" || of.ids[p.ID] || r.parts.row(p.ID) != nil {
		return false, nil
	}
	if e := r.parts.entries[p.ID]; e != nil && e.deleted && e.old.MessageID == p.MessageID && e.old.Index == p.Index {
		e.deleted = false // it is replaced
	}
	if err := r.parts.set(p); err != nil {
		return false, err
	}
	of.add(p.ID, p.Index)
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
	return r.parts.set(p)
}

func (r *rows) deletePart(p *session.Part) {
	of := r.indexesOf(p.MessageID)
	delete(of.parts, p.Index)
	delete(of.ids, p.ID)
	r.parts.delete(p.ID, false)
}

// partsOfMessage returns the parts of a message, by index.
func (r *rows) partsOfMessage(messageID string) (parts []session.Part) {
	if !r.partsOf(messageID).whole {
		r.ask(r.readParts(messageID))
	}
	of := r.indexesOf(messageID)
	for _, index := range slices.Sorted(maps.Keys(of.parts)) {
		if p := r.parts.row(of.parts[index]); p != nil {
			parts = append(parts, *p)
		}
	}
	return parts
}

// hasGap reports whether a part before one that a message has is missing.
func (r *rows) hasGap(messageID string) bool {
	of := r.indexesOf(messageID)
	for index := range of.parts {
		if index >= int64(len(of.parts)) {
			return true
		}
	}
	return false
}

// requestedIndexes returns the indexes that displaced parts of a message requested.
func (r *rows) requestedIndexes(messageID string) map[string]int64 {
	return r.indexesOf(messageID).requested
}

// request notes the index that a displaced part requested.
func (r *rows) request(messageID, partID string, index int64) {
	r.indexesOf(messageID).requested[partID] = index
	r.requested = append(r.requested, RequestedIndex{messageID, partID, index})
}

// moveParts sets the indexes of parts of one message, all of them at once.
func (r *rows) moveParts(messageID string, index map[string]int64) {
	of := r.indexesOf(messageID)
	for id := range index {
		if at := r.parts.row(id).Index; of.parts[at] == id {
			delete(of.parts, at)
		}
	}
	for id, i := range index {
		e := r.parts.entries[id]
		moved := *e.row
		moved.Index = i
		e.row, of.parts[i] = &moved, id
		if e.old != nil && !e.deleted { // otherwise it is inserted there
			if !e.dirty {
				e.old = &moved
			}
			r.moved = append(r.moved, partIndex{id, i})
		}
	}
}

// putSpan adds or replaces a span.
func (r *rows) putSpan(l *SpanRef) error {
	if l.reports() {
		r.partsOf(l.MessageID).addSpan(keyOfSpan(l))
	}
	return r.spanRefs.set(l)
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
		r.ask(r.readStats(sessionID, messageID))
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

// deleteDecision deletes a decision that the engine may have.
func (r *rows) deleteDecision(id string) {
	r.decisions.found(&Decision{ID: id})
	r.decisions.delete(id, false)
}

// observation returns an observation, nil when there is none.
func (r *rows) observation(key ObservationKey) *ObservationRow { return find(r, &r.observations, key) }
