package postgres

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// tx implements [sqlstore.Tx] on one connection. All statements of a call of Do are sent together and answered
// together: one round trip.
type tx struct {
	querying
	// begun reports that the server has a transaction. It is begun with the first statements.
	begun bool
	// needed are the keys that were locked in this transaction, or before it was undone or repeated; held those that
	// are locked now.
	needed, held lockKeys
	// now is the time that the outbox is stamped with, Unix milliseconds; 0 if there is no outbox.
	now int64
	// oneByOne has each row inserted by a statement of its own, to find out which is refused.
	oneByOne bool
}

var _ sqlstore.Tx = (*tx)(nil)

// Undo implements [store.Tx]. The locks are lost with the transaction; the next statements take them again, all at
// once.
func (t *tx) Undo() error {
	if !t.begun {
		return nil
	}
	t.begun, t.held = false, lockKeys{}
	_, err := t.conn.Exec(t.ctx, "ROLLBACK")
	return err
}

// begin begins the transaction, where no changes or queries have done so.
func (t *tx) begin() error {
	if t.begun {
		return nil
	}
	return t.Do(nil, nil)
}

// Query implements [sqlstore.Conn].
func (t *tx) Query(query string, fn func(sqlstore.Row) error, args ...any) error {
	if err := t.begin(); err != nil {
		return err
	}
	return t.querying.Query(query, fn, args...)
}

// Exec implements [sqlstore.Tx].
func (t *tx) Exec(query string, args ...any) (changed int64, err error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	tag, err := t.conn.Exec(t.ctx, numbered(query), args...)
	return tag.RowsAffected(), err
}

// Do implements [store.Tx].
func (t *tx) Do(c *store.Changes, queries []store.Query) error {
	distributed := t.dialect == distributedDialect
	b := &batch{dialect: t.dialect, oneByOne: t.oneByOne || distributed}
	if !t.begun {
		b.exec("BEGIN ISOLATION LEVEL READ COMMITTED")
	}
	if c != nil {
		c.Names(t.needed.add)
	}
	for _, q := range queries {
		store.NamesOf(q, t.needed.add)
	}
	if keys := t.needed.sorted(t.held); len(keys) > 0 {
		b.exec(lockQuery, keys)
	}
	if c != nil {
		b.write(c, t.now)
	}
	for _, q := range queries {
		if err := b.ask(q); err != nil {
			return err
		}
	}
	err := b.send(t.ctx, t.conn)
	t.begun = true
	maps.Copy(t.held, t.needed)
	if errors.Is(err, errRefusedRow) {
		return nil // the caller looks at the rows, and undoes everything
	}
	return err
}

// put adds a statement that inserts or updates a row. refused is the Refused of its Put.
func (b *batch) put(refused *error, query string, args []any) {
	b.add(query, args, func(r *pgconn.ResultReader) error {
		tag, err := r.Close()
		if err == nil && tag.RowsAffected() == 0 {
			*refused = store.ErrRefused // another row is in its place, or it is gone
		}
		return err
	})
	b.statements[len(b.statements)-1].refuse = func(err error) {
		*refused = fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
}

// statements write the rows of a table.
type statements[R any] struct {
	table          *sqlstore.Table[R]
	insert, update string
	// insertAll inserts rows of which each column is an array, of elements of these types. It has no ON CONFLICT, which
	// costs another look into each index: a row that is in the way of another one is an error, and rare.
	insertAll string
	types     []uint32
	// updated are the columns that the parameters of update have, in their order.
	updated []int
}

// newStatements returns those of a table. fixed are columns that an update leaves as they are.
func newStatements[R any](t *sqlstore.Table[R], fixed ...string) *statements[R] {
	s := &statements[R]{table: t, insert: numbered(t.InsertNew)}
	var set, where, arrays []string
	for i, column := range t.Columns.Names() {
		name, oid := "text", uint32(pgtype.TextOID)
		switch t.Columns.Field(new(R), i).(type) {
		case *int, *int64, **int64, *bool:
			name, oid = "bigint", pgtype.Int8OID
		case *float64:
			name, oid = "double precision", pgtype.Float8OID
		case *[]byte:
			name, oid = "bytea", pgtype.ByteaOID
		}
		arrays, s.types = append(arrays, fmt.Sprintf("unnest($%d::%s[])", i+1, name)), append(s.types, oid)
		if slices.Contains(fixed, column) {
			continue
		}
		s.updated = append(s.updated, i)
		assignment := fmt.Sprintf(`"%s" = $%d`, column, len(s.updated))
		if slices.Contains(t.Key, column) {
			where = append(where, assignment)
		} else {
			set = append(set, assignment)
		}
	}
	s.update = "UPDATE " + t.Name + " SET " + strings.Join(set, ", ") + " WHERE " + strings.Join(where, " AND ")
	s.insertAll = "INSERT INTO " + t.Name + "(" + t.List + ") SELECT " + strings.Join(arrays, ", ")
	return s
}

var (
	sessionRows     = newStatements(sqlstore.SessionTable)
	messageRows     = newStatements(sqlstore.MessageTable, "session_id")
	partRows        = newStatements(sqlstore.PartTable, "message_id", "session_id", "index")
	decisionRows    = newStatements(sqlstore.DecisionTable)
	annotationRows  = newStatements(sqlstore.AnnotationTable)
	spanRows        = newStatements(sqlstore.SpanTable)
	observationRows = newStatements(sqlstore.ReachingTable)
	attributionRows = newStatements(sqlstore.AttributionTable, "usage_counter", "usage_proof")
	proofRows       = newStatements(sqlstore.ProofTable)
	sourceRows      = newStatements(sqlstore.SourceTable)
	blobRows        = func() map[store.BlobKind]*statements[store.Blob] {
		all := make(map[store.BlobKind]*statements[store.Blob])
		for kind, table := range sqlstore.BlobTables {
			all[kind] = newStatements(table)
		}
		return all
	}()
)

// args are the parameters of insert, updateArgs those of update.
func (s *statements[R]) args(r *R) []any {
	return s.table.Args(r, make([]any, 0, len(s.table.Columns)))
}

func (s *statements[R]) updateArgs(r *R) []any {
	all := s.args(r)
	args := make([]any, len(s.updated))
	for i, column := range s.updated {
		args[i] = all[column]
	}
	return args
}

// puts adds the rows that are inserted or updated.
func puts[R any](b *batch, s *statements[R], rows []store.Put[R]) {
	inserted := s.inserts()
	for i := range rows {
		switch p := &rows[i]; p.Op {
		case store.Insert:
			inserted.add(p.Row, &p.Refused)
		case store.Update:
			b.put(&p.Refused, s.update, s.updateArgs(p.Row))
		}
	}
	inserted.addTo(b)
}

// inserts are rows that are inserted together.
type inserts[R any] struct {
	of   *statements[R]
	rows []*R
	// refused are the Refused of their Puts.
	refused []*error
	// encoded is how many rows are sent. counts has how many each of the statements has.
	encoded int
	counts  []int64
}

func (s *statements[R]) inserts() *inserts[R] { return &inserts[R]{of: s} }

func (i *inserts[R]) add(row *R, refused *error) {
	i.rows, i.refused = append(i.rows, row), append(i.refused, refused)
}

// addTo adds the statements that insert the rows.
func (i *inserts[R]) addTo(b *batch) {
	if len(i.rows) < 2 || b.oneByOne {
		for at, row := range i.rows {
			b.put(i.refused[at], i.of.insert, i.of.args(row))
		}
		return
	}
	b.add(i.of.insertAll, nil, func(r *pgconn.ResultReader) error {
		tag, err := r.Close()
		if err == nil && tag.RowsAffected() != i.counts[0] {
			err = errRefusedRows
		}
		i.counts = i.counts[1:]
		return err
	})
	b.statements[len(b.statements)-1].rows = i
}

// types implements [rowEncoder], and so do the other methods.
func (i *inserts[R]) types() []uint32 { return i.of.types }

func (i *inserts[R]) next(b sqlstore.Binder) (more bool) {
	i.of.table.Bind(b, i.rows[i.encoded])
	i.encoded++
	return i.encoded < len(i.rows)
}

func (i *inserts[R]) executed(n int64) { i.counts = append(i.counts, n) }

// deleted adds the deletion of the rows of a table that are to be deleted.
func deleted[R any](b *batch, table string, rows []store.Put[R], id func(*R) string) (ids []string) {
	for i := range rows {
		if rows[i].Op == store.Delete {
			ids = append(ids, id(rows[i].Row))
		}
	}
	if len(ids) > 0 {
		b.exec(`DELETE FROM `+table+` WHERE id = ANY($1::text[])`, ids)
	}
	return ids
}

// write adds changes. Deletions come first, for they make room.
func (b *batch) write(c *store.Changes, now int64) {
	deleted(b, "chat_sessions", c.Sessions, func(s *store.SessionRow) string { return s.ID })
	deleted(b, "chat_messages", c.Messages, func(m *session.Message) string { return m.ID })
	deleted(b, "chat_parts", c.Parts, func(p *session.Part) string { return p.ID })
	deleted(b, "permission_decisions", c.Decisions, func(d *store.Decision) string { return d.ID })
	b.putSessions(c.Sessions)
	puts(b, messageRows, c.Messages)
	// The parts go out of the way first, below zero, because their index is unique.
	for _, away := range []bool{true, false} {
		for _, p := range c.Moved {
			if away {
				p.Index = -1 - p.Index
			}
			b.exec(`UPDATE chat_parts SET "index" = $1 WHERE id = $2`, p.Index, p.ID)
		}
	}
	puts(b, partRows, c.Parts)
	for i := range c.Requested {
		r := &c.Requested[i]
		b.exec(`INSERT INTO requested_indexes(session_id, message_id, part_id, requested_index)
 SELECT session_id, id, $2::text, $3::bigint FROM chat_messages WHERE id = $1
 ON CONFLICT (message_id, part_id, session_id) DO UPDATE SET requested_index = excluded.requested_index`,
			r.MessageID, r.PartID, r.RequestedIndex)
	}
	puts(b, spanRows, c.SpanRefs)
	b.putDecisions(c.Decisions)
	puts(b, annotationRows, c.Annotations)
	// In the same order in every transaction: other sessions may have the same prompts.
	blobs := make([]*store.Put[store.Blob], len(c.Blobs))
	for i := range c.Blobs {
		blobs[i] = &c.Blobs[i]
	}
	slices.SortFunc(blobs, func(x, y *store.Put[store.Blob]) int { return strings.Compare(x.Row.Digest, y.Row.Digest) })
	for _, p := range blobs {
		if s := blobRows[p.Row.Kind]; p.Op == store.Insert {
			b.put(&p.Refused, s.insert, s.args(p.Row))
		} else if p.Op == store.Update {
			b.put(&p.Refused, s.update, s.updateArgs(p.Row))
		}
	}
	b.writeObservations(c)
	for _, t := range c.Traces {
		if t.Pruned {
			b.exec(`DELETE FROM session_traces WHERE trace_id = $1 AND session_id = $2
 AND NOT EXISTS (SELECT 1 FROM span_refs WHERE session_id = $2 AND trace_id = $1)
 AND NOT EXISTS (SELECT 1 FROM observations WHERE session_id = $2 AND trace_id = $1)`, t.TraceID, t.SessionID)
		} else {
			b.exec(`INSERT INTO session_traces(trace_id, session_id)
 SELECT $1::text, id FROM chat_sessions WHERE id = $2 ON CONFLICT DO NOTHING`, t.TraceID, t.SessionID)
		}
	}
	for _, s := range c.Sources {
		b.exec(`DELETE FROM import_sources WHERE path = $1`, s.Path)
		b.exec(`DELETE FROM import_source_sessions WHERE path = $1`, s.Path)
		b.exec(sourceRows.insert, sourceRows.args(s)...)
		if len(s.Sessions) > 0 {
			b.exec(`INSERT INTO import_source_sessions(session_id, path) SELECT unnest($1::text[]), $2::text
 ON CONFLICT DO NOTHING`, s.Sessions, s.Path)
		}
	}
	if now == 0 {
		return
	}
	for _, id := range c.Touched {
		b.exec(`INSERT INTO export_outbox(session_id, touched_at) VALUES ($1, $2) ON CONFLICT (session_id)
 DO UPDATE SET touched_at = greatest(excluded.touched_at, export_outbox.touched_at + 1)`, id, now)
	}
}

// putDecisions inserts what is updated, too: a decision may become another session's, and a distributed engine does not
// move a row to the place of another session.
func (b *batch) putDecisions(decisions []store.Put[store.Decision]) {
	var updated []string
	for i := range decisions {
		if decisions[i].Op == store.Update {
			updated = append(updated, decisions[i].Row.ID)
		}
	}
	if len(updated) > 0 {
		b.exec(`DELETE FROM permission_decisions WHERE id = ANY($1::text[])`, updated)
	}
	inserted := decisionRows.inserts()
	for i := range decisions {
		if p := &decisions[i]; p.Op != store.Delete {
			inserted.add(p.Row, &p.Refused)
		}
	}
	inserted.addTo(b)
}

func (b *batch) putSessions(sessions []store.Put[store.SessionRow]) {
	inserted := sessionRows.inserts()
	for i := range sessions {
		switch p := &sessions[i]; p.Op {
		case store.Insert:
			inserted.add(&p.Row.Session, &p.Refused)
		case store.Update:
			b.put(&p.Refused, sessionRows.update, sessionRows.updateArgs(&p.Row.Session))
		}
	}
	inserted.addTo(b)
	for i := range sessions {
		p := &sessions[i]
		if p.Op == store.Delete {
			continue
		}
		var forkedFrom any
		if p.Row.State.Fork != nil {
			forkedFrom = p.Row.State.Fork.From
		}
		b.put(&p.Refused, `INSERT INTO session_state(session_id, state_json, forked_from) VALUES ($1, $2, $3)
 ON CONFLICT (session_id) DO UPDATE SET state_json = excluded.state_json, forked_from = excluded.forked_from`,
			[]any{p.Row.ID, string(p.Row.State.Encode()), forkedFrom})
	}
}

func (b *batch) writeObservations(c *store.Changes) {
	inserted := observationRows.inserts()
	for i := range c.Observations {
		p := &c.Observations[i]
		o := sqlstore.Reaching(p.Row)
		if p.Op == store.Insert {
			inserted.add(&o, &p.Refused)
		} else {
			b.put(&p.Refused, observationRows.update, observationRows.updateArgs(&o))
		}
		if p.Old != nil && len(p.Old.Calls) > 0 {
			b.exec(`DELETE FROM tool_call_requests WHERE call_id = ANY($1::text[]) AND start_nano = $2 AND trace_id = $3
 AND source = $4`, p.Old.Calls, p.Old.Start, p.Old.TraceID, p.Old.Source)
		}
		if len(o.Calls) > 0 {
			b.exec(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source)
 SELECT unnest($1::text[]), $2::bigint, $3::text, $4::text ON CONFLICT DO NOTHING`,
				o.Calls, o.Start, o.TraceID, o.Source)
		}
	}
	inserted.addTo(b)
	for _, at := range c.SpanTimes {
		b.exec(`UPDATE observations SET until_nano = $1, reach = $2 WHERE trace_id = $3 AND source = $4`,
			at.Until, sqlstore.Reach(at.Start, at.Until), at.TraceID, at.Source)
	}
	for _, n := range c.Owners {
		if n.TraceID != "" {
			b.exec(`UPDATE observations SET owner = $1 WHERE trace_id = $2`, n.Owner, n.TraceID)
		} else {
			b.exec(`UPDATE observations SET owner = $1 WHERE trace_id = '' AND source = $2`, n.Owner, n.Source)
		}
	}
	for i := range c.Proofs {
		b.exec(proofRows.update, proofRows.updateArgs(&c.Proofs[i])...)
	}
	for _, n := range c.Attributed {
		b.exec(attributionRows.update,
			attributionRows.updateArgs(&sqlstore.AttributionRow{Attribution: *n.Attribution,
				ObservationKey: n.ObservationKey})...)
	}
	for i := range c.Cuts {
		r := &c.Cuts[i]
		at := make([]int64, len(r.Cuts))
		for i := range r.Cuts {
			at[i] = r.Cuts[i].At
		}
		b.exec(`DELETE FROM observation_windows WHERE owner = $1 AND at_nano >= $2 AND at_nano < $3
 AND at_nano <> ALL($4::bigint[])`, r.Owner, r.From, r.To, at)
		for _, cut := range r.Cuts {
			b.exec(`INSERT INTO observation_windows(owner, at_nano, carry) VALUES ($1, $2, $3)
 ON CONFLICT (owner, at_nano) DO UPDATE SET carry = excluded.carry
 WHERE observation_windows.carry <> excluded.carry`, r.Owner, cut.At,
				append([]byte{}, cut.Carry...))
		}
	}
}
