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
	tx Tx
	refusals
	sessions     working[string, SessionRow]
	messages     working[string, session.Message]
	spanRefs     working[SpanKey, SpanRef]
	decisions    working[string, Decision]
	annotations  working[AnnotationKey, Annotation]
	blobs        map[BlobKind]*working[string, Blob]
	observations working[ObservationKey, ObservationRow]

	// whole is what is known of the parts and spans of messages, changed are those whose parts are to be written.
	whole   map[string]*message
	changed []*message

	// What is known of the sessions that hang on one, and the sessions that were put as forks.
	forksOf, transcripts map[string][]string
	forks                map[string]bool

	// later are statements for after the rows, in order; touched are the sessions that changed, for exports that follow
	// the store.
	later   []query
	touched map[string]bool

	// err is the first error of the engine, which ends the merge: see [run].
	err error
}

func newRows(tx Tx) *rows {
	r := &rows{tx: tx}
	r.sessions = working[string, SessionRow]{refusals: &r.refusals, byKey: sessionQuery, columns: single,
		keyOf: keyOfSession, scan: scanSession, put: putSession, remove: removeSession, name: NameSession}
	r.messages = rowsOf(&r.refusals, MessageTable, keyOfMessage, single)
	r.messages.name = NameMessage
	r.spanRefs = rowsOf(&r.refusals, SpanTable, keyOfSpan,
		func(k SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} })
	r.decisions = rowsOf(&r.refusals, DecisionTable, keyOfDecision, single)
	r.decisions.put = putDecision
	r.annotations = rowsOf(&r.refusals, AnnotationTable, keyOfAnnotation,
		func(k AnnotationKey) []string { return []string{k.SessionID, k.ID} })
	r.blobs = make(map[BlobKind]*working[string, Blob])
	for kind, table := range BlobTables {
		blobs := rowsOf(&r.refusals, table, keyOfBlob, single)
		r.blobs[kind] = &blobs
	}
	r.observations = rowsOf(&r.refusals, ObservationTable, keyOfObservation,
		func(k ObservationKey) []string { return []string{k.TraceID, k.Source} })
	r.observations.put = putObservation
	return r
}

// table is a working set of any type.
type table interface {
	reset()
	// isDirty reports whether rows are to be written or read.
	isDirty() bool
	read(Statements)
	writeDeleted(Statements)
	writePut(Statements)
}

// tables are all working sets, in the order in which they are written: a row follows what it refers to. Parts come
// after the second.
func (r *rows) tables() []table {
	return []table{&r.sessions, &r.messages, &r.spanRefs, &r.decisions, &r.annotations, r.blobs[BlobSystemPrompt],
		r.blobs[BlobToolCatalog], &r.observations}
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
		r.forget()
		r.sessions.reset()
		r.forks, r.forksOf, r.transcripts = make(map[string]bool), make(map[string][]string), make(map[string][]string)
		r.later, r.touched, r.err = nil, nil, nil
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

// forget forgets all rows except sessions.
func (r *rows) forget() {
	for _, t := range r.tables()[1:] {
		t.reset()
	}
	r.whole, r.changed = make(map[string]*message), nil
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

// ask writes what is to be written, reads the rows that are wanted, and has queries answered.
func (r *rows) ask(queries ...query) {
	dirty := len(r.changed)+len(r.later)+len(r.touched) > 0 ||
		slices.ContainsFunc(r.tables(), func(t table) bool { return t.isDirty() })
	if r.err != nil || len(queries) == 0 && !dirty {
		return
	}
	r.err = r.tx.Do(func(s Statements) {
		r.write(s)
		for _, t := range r.tables() {
			t.read(s)
		}
		for _, q := range queries {
			q(s)
		}
	})
	if refused := r.news(); refused && r.err == nil {
		r.err = errRefusedRow
	}
}

// write adds the statements that write what was changed. Deletions make room, and a row follows what it refers to. A
// row whose session or message is refused is left out without an error of its own, because all is undone then.
func (r *rows) write(s Statements) {
	for _, blobs := range r.blobs {
		// In the same order in every transaction, so that two that have the same ones do not wait for each other.
		slices.SortFunc(blobs.dirty, func(x, y *entry[Blob]) int { return strings.Compare(x.row.Digest, y.row.Digest) })
	}
	for _, t := range r.tables() {
		t.writeDeleted(s)
	}
	r.deleteParts(s)
	for i, t := range r.tables() {
		if t.writePut(s); i == 1 {
			r.putParts(s)
		}
	}
	for _, change := range r.later {
		change(s)
	}
	for _, id := range slices.Sorted(maps.Keys(r.touched)) {
		touch(s, id)
	}
	r.later, r.touched = nil, nil
}

// session returns a session, nil when there is none.
func (r *rows) session(id string) *SessionRow { return find(r, &r.sessions, id) }

func (r *rows) putSession(row *SessionRow) error {
	if row.State.Fork != nil {
		r.forks[row.ID] = true
	}
	return r.sessions.set(row)
}

// deleteSession deletes a session, and all rows that refer to it except its observations.
func (r *rows) deleteSession(id string) {
	r.sessions.delete(id)
	r.ask() // the engine deletes what follows, which is not known any more
	r.forget()
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

func (r *rows) touch(sessionID string) { set(&r.touched, sessionID, true) }

// exec adds a statement for after the rows.
func (r *rows) exec(query string, args ...any) {
	r.later = append(r.later, func(s Statements) { s.Exec(query, args...) })
}

// turnStats returns the spans of a message that have some.
func (r *rows) turnStats(sessionID, messageID string) []*SpanRef {
	m := r.known(messageID)
	if !m.spansKnown && !r.sessions.entries[sessionID].isNew() {
		r.ask(r.readStats([]string{sessionID}, []string{messageID}))
	}
	var all []*SpanRef
	for _, key := range m.spans {
		if l := r.spanRefs.row(key); l != nil && l.reports() &&
			l.MessageID == messageID && l.SessionID == sessionID {
			all = append(all, l)
		}
	}
	return all
}

// deleteDecision deletes a decision that the engine may have.
func (r *rows) deleteDecision(id string) {
	if e := r.decisions.entry(id); e.old == nil {
		e.old = &Decision{ID: id}
	}
	r.decisions.delete(id)
}

func compareByPosition(x, y session.Message) int {
	return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), strings.Compare(x.ID, y.ID))
}
