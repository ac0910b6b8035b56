package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
func removeSession(s Statements, row *SessionRow) {
	s.Exec(`DELETE FROM session_state WHERE session_id = ?`, row.ID)
	s.Exec(SessionTable.Delete, row.ID)
}

// putDecision inserts what is updated, too: a decision may become another session's, and an engine that distributes
// sessions over nodes does not move a row.
func putDecision(s Statements, row, old *Decision, refused *error) {
	if old != nil {
		s.Exec(DecisionTable.Delete, row.ID)
	}
	DecisionTable.put(s, row, true, refused)
}

// orderBlobs orders the blobs that are to be written. They are put in the same order in every transaction, so that two
// that have the same ones do not wait for each other.
func (r *rows) orderBlobs() {
	for _, blobs := range r.blobs {
		slices.SortFunc(blobs.dirty, func(x, y *entry[string, Blob]) int { return strings.Compare(x.key, y.key) })
	}
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
	indexesQuery     = `SELECT id, "index" FROM chat_parts WHERE message_id = ?`
	requestedQuery   = `SELECT part_id, requested_index FROM requested_indexes WHERE message_id = ?`
	compactionsQuery = `SELECT ` + PartTable.List + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE type = 'data-compaction' AND session_id = ?1`
	turnStatsQuery = `SELECT ` + SpanTable.List + ` FROM span_refs INDEXED BY idx_span_refs_message
 WHERE message_id = ?2 AND kind <> 'permission.evaluate' AND facts_json IS NOT NULL AND session_id = ?1`
	annotationsQuery = `SELECT ` + AnnotationTable.List + ` FROM annotations WHERE session_id = ? ORDER BY id`
)

// readIndexes reads which parts a message has, and which indexes displaced ones requested.
func (r *rows) readIndexes(messageID string) query {
	return func(s Statements) {
		of := r.partsOf(messageID)
		if of.parts != nil {
			return
		}
		of.known()
		s.Select(indexesQuery, func(row Row) error {
			of.add(row.ColumnText(0), row.ColumnInt64(1))
			return nil
		}, messageID)
		s.Select(requestedQuery, func(row Row) error {
			of.requested[row.ColumnText(0)] = row.ColumnInt64(1)
			return nil
		}, messageID)
	}
}

// readParts reads the parts of a message, unless they are known.
func (r *rows) readParts(messageID string) query {
	return func(s Statements) {
		of := r.partsOf(messageID)
		if of.whole {
			return
		}
		of.whole = true
		r.readIndexes(messageID)(s)
		s.Select(partsQuery, r.parts.take, messageID)
	}
}

// readStats reads the spans of a message that have TurnStats.
func (r *rows) readStats(sessionID, messageID string) query {
	return func(s Statements) {
		of := r.partsOf(messageID)
		of.spansKnown = true
		s.Name(NameSession, sessionID)
		s.Select(turnStatsQuery, func(row Row) error {
			l, err := r.spanRefs.learn(row)
			of.addSpan(keyOfSpan(l))
			return err
		}, sessionID, messageID)
	}
}

// compactions returns the compactions of a session.
func (r *rows) compactions(sessionID string) (all []session.Part) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(compactionsQuery, PartTable.AppendTo(&all), sessionID)
	})
	return all
}

// annotationsOf returns the annotations of a session.
func (r *rows) annotationsOf(sessionID string) (all []Annotation) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(annotationsQuery, AnnotationTable.AppendTo(&all), sessionID)
	})
	return all
}

// moveParts moves the parts out of the way first, below zero, because their index is unique, row by row.
func moveParts(s Statements, moved []partIndex) {
	const move = `UPDATE chat_parts SET "index" = ? WHERE id = ?`
	for _, p := range moved {
		s.Exec(move, -1-p.index, p.id)
	}
	for _, p := range moved {
		s.Exec(move, p.index, p.id)
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

// touch notes in the outbox when a session changed: later than before, whatever the clock says.
func touch(sessionID string) query {
	return func(s Statements) {
		if stamp := s.Stamp(); stamp != 0 {
			s.Exec(`INSERT INTO export_outbox(session_id, touched_at) VALUES (?, ?) ON CONFLICT (session_id)
 DO UPDATE SET touched_at = `+s.Dialect().Greatest+`(excluded.touched_at, export_outbox.touched_at + 1)`,
				sessionID, stamp)
		}
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
