package store

import (
	"encoding/json"
	"fmt"

	"github.com/agenttrace/agenttrace/session"
)

// What merging reads and writes, as statements: of rows, and at the end of this file of what hangs on a session or a
// message. queries_observed.go has those of observations.

var sessionQuery = `SELECT ` + SessionTable.Prefixed("s.") + `, st.state_json
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`

func scanSession(from Row, row *SessionRow) error {
	if err := SessionTable.Scan(from, &row.Session); err != nil {
		return err
	}
	if state := from.ColumnText(len(SessionTable.Columns)); state != "" {
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
	SessionTable.put(s, &row.Session, old == nil, refused)
	s.Put(refused, `INSERT INTO session_state(session_id, state_json, forked_from) VALUES (?, ?, ?)
 ON CONFLICT (session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`,
		row.ID, string(row.State.Encode()), from)
}

// removeSession deletes the state first, so that what is not attributed yet stays: see the trigger of SQLite's schema.
func removeSession(s Statements, id string) {
	s.Exec(`DELETE FROM session_state WHERE session_id = ?`, id)
	s.Exec(SessionTable.Delete, id)
}

// putDecision inserts what is updated, too: a decision may become another session's, and an engine that distributes
// sessions over nodes does not move a row.
func putDecision(s Statements, row, old *Decision, refused *error) {
	if old != nil {
		s.Exec(DecisionTable.Delete, row.ID)
	}
	DecisionTable.put(s, row, true, refused)
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
var MessagesQuery = `SELECT ` + MessageTable.List + ` FROM chat_messages
 WHERE session_id = ?1 AND created_at >= ?2 AND (created_at > ?2 OR id >= ?3) ORDER BY created_at, id`

var (
	partsQuery       = `SELECT ` + PartTable.List + ` FROM chat_parts WHERE message_id = ? ORDER BY "index"`
	requestedQuery   = `SELECT ` + IndexTable.List + ` FROM requested_indexes WHERE message_id = ?`
	compactionsQuery = `SELECT ` + PartTable.List + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE type = 'data-compaction' AND session_id = ?1`
	turnStatsQuery = `SELECT ` + SpanTable.List + ` FROM span_refs INDEXED BY idx_span_refs_message
 WHERE message_id = ?2 AND kind <> 'permission.evaluate' AND facts_json IS NOT NULL AND session_id = ?1`
	annotationsQuery = `SELECT ` + AnnotationTable.List + ` FROM annotations WHERE session_id = ? ORDER BY id`
)

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
		s.SelectKeys(partsQuery, func(row Row) error {
			var p session.Part
			err := PartTable.Scan(row, &p)
			m := r.known(p.MessageID)
			m.parts = append(m.parts, p)
			m.oldParts = m.parts
			return err
		}, unknown)
		s.SelectKeys(requestedQuery, func(row Row) error {
			var q RequestedIndex
			err := IndexTable.Scan(row, &q)
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
		s.SelectKeys(turnStatsQuery, func(row Row) error {
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

// scanFound notes that there is a row.
func scanFound(found *bool) func(Row) error {
	return func(Row) error {
		*found = true
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

// touch notes in the outboxes when a session changed: later than before, whatever the clock says. Where writers do so,
// it empties the figures of the session.
func touch(s Statements, sessionID string) {
	d := s.Dialect()
	note := func(outbox string, stamp int64) {
		if stamp != 0 {
			s.Exec(`INSERT INTO `+outbox+`(session_id, touched_at) VALUES (?, ?) ON CONFLICT (session_id)
 DO UPDATE SET touched_at = `+d.Greatest+`(excluded.touched_at, `+outbox+`.touched_at + 1)`, sessionID, stamp)
		}
	}
	files, spans := s.Stamps()
	note("export_outbox", files)
	note("span_outbox", spans)
	if d.Figures && d.NewRows == "" {
		s.Exec(d.ClaimFigures, sessionID)
	}
}

// putSource replaces a source, and which sessions it is a source of.
func putSource(source *ImportSource) query {
	return func(s Statements) {
		s.Name(NamePath, source.Path)
		s.Exec(SourceTable.Delete, source.Path)
		s.Exec(`DELETE FROM import_source_sessions WHERE path = ?`, source.Path)
		s.Exec(SourceTable.InsertNew, SourceTable.Values(source)...)
		for _, id := range source.Sessions {
			s.Exec(`INSERT INTO import_source_sessions(session_id, path) VALUES (?, ?) ON CONFLICT DO NOTHING`,
				id, source.Path)
		}
	}
}
