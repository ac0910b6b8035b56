package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session"
)

// What merging reads and writes, as statements: of rows, and at the end of this file of what hangs on a session or a
// message. queries_observed.go has those of observations.

var sessionQuery = sync.OnceValue(func() string {
	return `SELECT ` + SessionTable().Prefixed("s.") + `, st.state_json
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`
})

func scanSession(from Row, row *SessionRow) error {
	if err := SessionTable().Scan(from, &row.Session); err != nil {
		return err
	}
	if state := from.ColumnText(len(SessionTable().Columns)); state != "" {
		return ReadState(row.ID, state, &row.State)
	}
	return nil
}

// ReadState reads the state of a session from the text of its column.
func ReadState(sessionID, text string, state *State) error {
	if err := json.Unmarshal([]byte(text), state); err != nil {
		return fmt.Errorf("read state of session %s: %w", sessionID, err)
	}
	return nil
}

func putSession(s Statements, row, old *SessionRow, refused *error) {
	s.Name(NameSession, row.ID)
	var from any
	if fork := row.State.Fork; fork != nil {
		s.Name(NameSession, fork.From)
		from = fork.From
	}
	SessionTable().put(s, &row.Session, old == nil, refused)
	s.Put(refused, `INSERT INTO session_state(session_id, state_json, forked_from) VALUES (?, ?, ?)
 ON CONFLICT (session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`,
		row.ID, string(row.State.Encode()), from)
}

// removeSession deletes the state first, so that what is not attributed yet stays: see the trigger of SQLite's schema.
func removeSession(s Statements, id string) {
	s.Exec(`DELETE FROM session_state WHERE session_id = ?`, id)
	s.Exec(SessionTable().Delete, id)
}

// putDecision inserts what is updated, too: a decision may become another session's, and an engine that distributes
// sessions over nodes does not move a row.
func putDecision(s Statements, row, old *Decision, refused *error) {
	if old != nil {
		s.Exec(DecisionTable().Delete, row.ID)
	}
	DecisionTable().put(s, row, true, refused)
}

// readForks reads the ids of the sessions that were forked from some, which need not be stored.
func (r *rows) readForks(parents ...string) query {
	return func(s Statements) {
		readBelow(s, r.forksOf, parents, `SELECT forked_from, session_id FROM session_state WHERE forked_from = ?`)
	}
}

// readTranscripts reads the ids of the sessions below some that are transcripts, in order.
func (r *rows) readTranscripts(parents ...string) query {
	return func(s Statements) {
		readBelow(s, r.transcripts, parents, `SELECT parent_id, id FROM chat_sessions
 INDEXED BY idx_chat_sessions_transcripts WHERE parent_id = ?
 AND `+s.Dialect().Contains("metadata_json", `"transcript"`)+` ORDER BY id`)
	}
}

// readBelow reads into known the ids of what is below some sessions, whose ids are the first column of the query.
func readBelow(s Statements, known map[string][]string, parents []string, query string) {
	if len(parents) == 0 {
		return
	}
	for _, id := range parents {
		known[id] = nil
	}
	s.Name(NameSession, parents...)
	s.SelectKeys(query, func(row Row) error {
		parent := row.ColumnText(0)
		known[parent] = append(known[parent], row.ColumnText(1))
		return nil
	}, parents)
}

// MessagesQuery selects the messages of a session ?1 from a position on, the time ?2 and the id ?3.
var MessagesQuery = sync.OnceValue(func() string {
	return `SELECT ` + MessageTable().List + ` FROM chat_messages
 WHERE session_id = ?1 AND created_at >= ?2 AND (created_at > ?2 OR id >= ?3) ORDER BY created_at, id`
})

// annotationsQuery selects the annotations of a session.
var annotationsQuery = sync.OnceValue(func() string {
	return `SELECT ` + AnnotationTable().List + ` FROM annotations WHERE session_id = ? ORDER BY id`
})

// readParts reads the parts of messages, and which indexes displaced ones requested, unless they are known.
func (r *rows) readParts(ids ...string) query {
	return func(s Statements) {
		var unknown []string
		for _, id := range ids {
			if m := r.known(id); !m.whole {
				m.whole = true
				unknown = append(unknown, id)
			}
		}
		if len(unknown) == 0 {
			return
		}
		s.SelectKeys(`SELECT `+PartTable().List+`
 FROM chat_parts WHERE message_id = ? ORDER BY "index"`, func(row Row) error {
			var p session.Part
			err := PartTable().Scan(row, &p)
			m := r.known(p.MessageID)
			m.parts = append(m.parts, p)
			m.oldParts = m.parts
			return err
		}, unknown)
		s.SelectKeys(`SELECT `+IndexTable().List+` FROM requested_indexes WHERE message_id = ?`, func(row Row) error {
			var q RequestedIndex
			err := IndexTable().Scan(row, &q)
			m := r.known(q.MessageID)
			set(&m.requested, q.PartID, q.RequestedIndex)
			m.oldRequested = m.requested
			return err
		}, unknown)
	}
}

// readStats reads the spans of messages that have TurnStats. The session of each message is at its place.
func (r *rows) readStats(sessionIDs, messageIDs []string) query {
	return func(s Statements) {
		if len(messageIDs) == 0 {
			return
		}
		for _, id := range messageIDs {
			r.known(id).spansKnown = true
		}
		s.Name(NameSession, sessionIDs...)
		s.SelectKeys(`SELECT `+SpanTable().List+` FROM span_refs INDEXED BY idx_span_refs_message
 WHERE message_id = ?2 AND kind <> 'permission.evaluate'
 AND facts_json IS NOT NULL AND session_id = ?1`, func(row Row) error {
			l, err := r.spanRefs.learn(row)
			r.known(l.MessageID).addSpan(keyOfSpan(l))
			return err
		}, sessionIDs, messageIDs)
	}
}

// selectRows returns the rows of a query that begins with the columns of a table, and names something: its parameter,
// and those that follow.
func selectRows[R any](r *rows, t *Table[R], query string, kind NameKind, name string, args ...any) (all []R) {
	r.ask(func(s Statements) {
		s.Name(kind, name)
		s.Select(query, t.AppendTo(&all), append([]any{name}, args...)...)
	})
	return all
}

// scanText sets a text to the first column of a row.
func scanText(text *string) func(Row) error {
	return func(row Row) error {
		*text = row.ColumnText(0)
		return nil
	}
}

const (
	noteTrace = `INSERT INTO session_traces(trace_id, session_id)
 SELECT CAST(?1 AS TEXT), id FROM chat_sessions WHERE id = ?2 ON CONFLICT DO NOTHING`
	pruneTrace = `DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_spans
  WHERE session_id = ?2 AND trace_id = ?1)`
)

// touch notes in the outboxes when a session changed. Where writers do so, it empties the figures of the session.
func touch(s Statements, sessionID string) {
	d := s.Dialect()
	files, spans := s.Stamps()
	Note(s, "export_outbox", sessionID, files)
	Note(s, "span_outbox", sessionID, spans)
	if d.Figures && d.NewRows == "" {
		s.Exec(d.ClaimFigures, sessionID)
	}
}

// Note notes in an outbox, where there is one, when a session changed: later than before, whatever the clock says.
func Note(s Statements, outbox, sessionID string, stamp int64) {
	if stamp != 0 {
		s.Exec(`INSERT INTO `+outbox+`(session_id, touched_at) VALUES (?, ?) ON CONFLICT (session_id)
 DO UPDATE SET touched_at = `+s.Dialect().Greatest+`(excluded.touched_at, `+outbox+`.touched_at + 1)`, sessionID, stamp)
	}
}

// putSource replaces a source, and which sessions it is a source of.
func putSource(source *ImportSource) query {
	return func(s Statements) {
		s.Name(NamePath, source.Path)
		s.Exec(SourceTable().Delete, source.Path)
		s.Exec(`DELETE FROM import_source_sessions WHERE path = ?`, source.Path)
		s.Exec(SourceTable().InsertNew, SourceTable().Values(source)...)
		for _, id := range source.Sessions {
			s.Exec(`INSERT INTO import_source_sessions(session_id, path) VALUES (?, ?) ON CONFLICT DO NOTHING`,
				id, source.Path)
		}
	}
}

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
	r.sessions = working[string, SessionRow]{refusals: &r.refusals, byKey: sessionQuery(), columns: single,
		keyOf: keyOfSession, scan: scanSession, put: putSession, remove: removeSession, name: NameSession}
	r.messages = rowsOf(&r.refusals, MessageTable(), keyOfMessage, single)
	r.messages.name = NameMessage
	r.spanRefs = rowsOf(&r.refusals, SpanTable(), keyOfSpan,
		func(k SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} })
	r.decisions = rowsOf(&r.refusals, DecisionTable(), keyOfDecision, single)
	r.decisions.put = putDecision
	r.annotations = rowsOf(&r.refusals, AnnotationTable(), keyOfAnnotation,
		func(k AnnotationKey) []string { return []string{k.SessionID, k.ID} })
	r.blobs = make(map[BlobKind]*working[string, Blob])
	for kind, table := range BlobTables {
		blobs := rowsOf(&r.refusals, table(), keyOfBlob, single)
		r.blobs[kind] = &blobs
	}
	r.observations = rowsOf(&r.refusals, ObservationTable(), keyOfObservation,
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

func compareByPosition(x, y *session.Message) int {
	return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), strings.Compare(x.ID, y.ID))
}
