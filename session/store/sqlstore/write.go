package sqlstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Write adds the statements that apply changes. stamp is the time of the outbox, 0 where there is none.
//
// The order is that of [store.Tx.Do]: deletions make room, and a row follows what it refers to. A row whose session or
// message is refused is left out without an error of its own, because the caller undoes everything then.
func Write(s Statements, c *store.Changes, stamp int64) {
	sessionID := func(r *store.SessionRow) string { return r.ID }
	// The state goes first, so that what is not attributed yet stays: see the trigger of SQLite's schema.
	deleteRows(s, `DELETE FROM session_state WHERE session_id = ?`, c.Sessions, sessionID)
	deleteRows(s, `DELETE FROM chat_sessions WHERE id = ?`, c.Sessions, sessionID)
	deleteRows(s, `DELETE FROM chat_messages WHERE id = ?`, c.Messages, func(m *session.Message) string { return m.ID })
	deleteRows(s, `DELETE FROM chat_parts WHERE id = ?`, c.Parts, func(p *session.Part) string { return p.ID })
	deleteRows(s, deleteDecision, c.Decisions, func(d *store.Decision) string { return d.ID })
	for i := range c.Sessions {
		putSession(s, &c.Sessions[i])
	}
	putRows(s, MessageTable, c.Messages)
	moveParts(s, c.Moved)
	putRows(s, PartTable, c.Parts)
	for _, r := range c.Requested {
		s.Exec(s.Dialect().PutRequested, r.MessageID, r.PartID, r.RequestedIndex)
	}
	putRows(s, SpanTable, c.SpanRefs)
	for i := range c.Decisions {
		putDecision(s, &c.Decisions[i])
	}
	putRows(s, AnnotationTable, c.Annotations)
	putBlobs(s, c.Blobs)
	writeObservations(s, c)
	for _, t := range c.Traces {
		if t.Pruned {
			s.Exec(pruneTrace, t.TraceID, t.SessionID)
		} else {
			s.Exec(noteTrace, t.TraceID, t.SessionID)
		}
	}
	for _, source := range c.Sources {
		putSource(s, source)
	}
	if stamp != 0 {
		touch := s.Dialect().touch()
		for _, id := range c.Touched {
			s.Exec(touch, id, stamp)
		}
	}
}

const (
	deleteDecision = `DELETE FROM permission_decisions WHERE id = ?`
	putState       = `INSERT INTO session_state(session_id, state_json, forked_from) VALUES (?, ?, ?)
 ON CONFLICT (session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`
	noteTrace = `INSERT INTO session_traces(trace_id, session_id)
 SELECT CAST(?1 AS TEXT), id FROM chat_sessions WHERE id = ?2 ON CONFLICT DO NOTHING`
	pruneTrace = `DELETE FROM session_traces WHERE trace_id = ?1 AND session_id = ?2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = ?2 AND trace_id = ?1)
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_spans
  WHERE session_id = ?2 AND trace_id = ?1)`
)

// deleteRows deletes the rows that are to be deleted by a statement whose parameter is their id.
func deleteRows[R any](s Statements, statement string, rows []store.Put[R], id func(*R) string) {
	for i := range rows {
		if rows[i].Op == store.Delete {
			s.Exec(statement, id(rows[i].Row))
		}
	}
}

// putRows inserts and updates rows.
func putRows[R any](s Statements, t *Table[R], rows []store.Put[R]) {
	for i := range rows {
		if p := &rows[i]; p.Op != store.Delete {
			put(s, t, p.Row, p.Op, &p.Refused)
		}
	}
}

// put inserts or updates a row.
func put[R any](s Statements, t *Table[R], row *R, op store.Op, refused *error) {
	if op == store.Insert {
		s.Put(refused, t.InsertNew, func(b Binder) { t.Bind(b, row) })
	} else {
		s.Put(refused, t.Update, func(b Binder) { t.bindUpdate(b, row) })
	}
}

func putSession(s Statements, p *store.Put[store.SessionRow]) {
	if p.Op == store.Delete {
		return
	}
	put(s, SessionTable, &p.Row.Session, p.Op, &p.Refused)
	s.Put(&p.Refused, putState, func(b Binder) {
		b.BindText(1, p.Row.ID)
		b.BindText(2, string(p.Row.State.Encode()))
		if fork := p.Row.State.Fork; fork != nil {
			b.BindText(3, fork.From)
		} else {
			b.BindNull(3)
		}
	})
}

// moveParts moves the parts out of the way first, below zero, because their index is unique, row by row.
func moveParts(s Statements, moved []store.PartIndex) {
	const move = `UPDATE chat_parts SET "index" = ? WHERE id = ?`
	for _, p := range moved {
		s.Exec(move, -1-p.Index, p.ID)
	}
	for _, p := range moved {
		s.Exec(move, p.Index, p.ID)
	}
}

// putDecision inserts what is updated, too: a decision may become another session's, and an engine that distributes
// sessions over nodes does not move a row.
func putDecision(s Statements, p *store.Put[store.Decision]) {
	if p.Op == store.Update {
		s.Exec(deleteDecision, p.Row.ID)
	}
	if p.Op != store.Delete {
		put(s, DecisionTable, p.Row, store.Insert, &p.Refused)
	}
}

// putBlobs puts blobs in the same order in every transaction, so that two that have the same ones do not wait for each
// other.
func putBlobs(s Statements, blobs []store.Put[store.Blob]) {
	order := make([]*store.Put[store.Blob], len(blobs))
	for i := range blobs {
		order[i] = &blobs[i]
	}
	slices.SortFunc(order, func(x, y *store.Put[store.Blob]) int {
		return cmp.Or(strings.Compare(string(x.Row.Kind), string(y.Row.Kind)), strings.Compare(x.Row.Digest, y.Row.Digest))
	})
	for _, p := range order {
		if table := BlobTables[p.Row.Kind]; table == nil {
			p.Refused = fmt.Errorf("%w: unknown kind of blob %s", store.ErrRefused, p.Row.Kind)
		} else if p.Op != store.Delete {
			put(s, table, p.Row, p.Op, &p.Refused)
		}
	}
}

// putSource replaces a source, and which sessions it is a source of.
func putSource(s Statements, source *store.ImportSource) {
	s.Exec(`DELETE FROM import_sources WHERE path = ?`, source.Path)
	s.Exec(`DELETE FROM import_source_sessions WHERE path = ?`, source.Path)
	s.Exec(SourceTable.InsertNew, SourceTable.Args(source, nil)...)
	for _, id := range source.Sessions {
		s.Exec(`INSERT INTO import_source_sessions(session_id, path) VALUES (?, ?) ON CONFLICT DO NOTHING`,
			id, source.Path)
	}
}

// writeObservations adds the statements that apply the changes of observations.
func writeObservations(s Statements, c *store.Changes) {
	for i := range c.Observations {
		putObservation(s, &c.Observations[i])
	}
	for _, at := range c.SpanTimes {
		s.Exec(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`,
			at.Until, Reach(at.Start, at.Until), at.TraceID, at.Source)
	}
	for _, n := range c.Owners {
		if n.TraceID != "" {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = ?`, n.Owner, n.TraceID)
		} else {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = '' AND source = ?`, n.Owner, n.Source)
		}
	}
	for i := range c.Proofs {
		put(s, ProofTable, &c.Proofs[i], store.Update, nil)
	}
	for _, n := range c.Attributed {
		row := AttributionRow{Attribution: *n.Attribution, ObservationKey: n.ObservationKey}
		put(s, AttributionTable, &row, store.Update, nil)
	}
	for _, u := range c.Unbuilt {
		if u.Added == 0 {
			s.Exec(`DELETE FROM unbuilt_turns WHERE owner = ?`, u.Owner)
			continue
		}
		s.Exec(`INSERT INTO unbuilt_turns(owner, from_nano, to_nano, added, version) VALUES (?, ?, ?, ?, ?)
 ON CONFLICT (owner) DO UPDATE SET from_nano = excluded.from_nano, to_nano = excluded.to_nano, added = excluded.added,
 version = excluded.version`,
			u.Owner, u.From, u.To, u.Added, u.Version)
	}
}

// putObservation puts an observation, and the calls that it requests in the place of those that it requested before.
func putObservation(s Statements, p *store.Put[store.ObservationRow]) {
	row := Reaching(p.Row)
	put(s, ReachingTable, &row, p.Op, &p.Refused)
	if old := p.Old; old != nil {
		for _, call := range old.Calls {
			s.Exec(`DELETE FROM tool_call_requests
 WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`, call, old.Start, old.TraceID, old.Source)
		}
	}
	for _, call := range row.Calls {
		s.Exec(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?, ?, ?, ?)
 ON CONFLICT DO NOTHING`, call, row.Start, row.TraceID, row.Source)
	}
}
