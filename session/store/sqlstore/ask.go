package sqlstore

import (
	"strconv"

	"github.com/agenttrace/agenttrace/session/store"
)

// Statements are those of one call of [store.Tx.Do]. An engine executes each at once, or sends all of them together:
// none depends on the result of another, and none is executed after one that failed.
type Statements interface {
	// Select calls fn for each row of the result: see [Conn]. INDEXED BY is for SQLite; other engines leave it out.
	Select(query string, fn func(Row) error, args ...any)
	// SelectKeys is Select for each of some keys, whose columns the query compares with parameters: WHERE a = ?1 AND
	// b = ?2. Each list has the values of a column. An engine may find rows with other combinations of them, too.
	SelectKeys(query string, fn func(Row) error, columns ...[]string)
	// Exec executes a statement without a result.
	Exec(query string, args ...any)
	// Put executes a statement that inserts or updates the row that bind binds. It sets refused, which may be nil,
	// where the engine cannot hold the row, or no row is changed: another is in its place, or it is gone.
	Put(refused *error, query string, bind func(Binder))
	// Dialect states in what the SQL of the engine differs.
	Dialect() *Dialect
}

// SelectRows selects the columns of a table.
func SelectRows[R any](s Statements, t *Table[R], rows *[]R, query string, args ...any) {
	s.Select(query, appendTo(t, rows), args...)
}

// selectByID selects the rows with some keys, of a table whose key is one column.
func selectByID[R any](s Statements, t *Table[R], rows *[]R, ids []string) {
	if len(ids) > 0 {
		s.SelectKeys(t.ByKey, appendTo(t, rows), ids)
	}
}

// selectByKeys selects the rows with some keys, of a table whose key has several columns.
func selectByKeys[R any, K comparable](s Statements, t *Table[R], rows *[]R, keys []K, columns func(K) []string,
	keyOf func(*R) K) {
	if len(keys) == 0 {
		return
	}
	wanted, values := make(map[K]bool, len(keys)), make([][]string, len(t.Key))
	for _, key := range keys {
		wanted[key] = true
		for i, value := range columns(key) {
			values[i] = append(values[i], value)
		}
	}
	s.SelectKeys(t.ByKey, func(from Row) error {
		var row R
		err := t.Scan(from, &row)
		if err == nil && wanted[keyOf(&row)] {
			*rows = append(*rows, row)
		}
		return err
	}, values...)
}

func appendTo[R any](t *Table[R], rows *[]R) func(Row) error {
	return func(row Row) error {
		*rows = append(*rows, *new(R))
		return t.Scan(row, &(*rows)[len(*rows)-1])
	}
}

// selectOne is SelectRows of a query that has one row at most.
func selectOne[R any](s Statements, t *Table[R], found **R, query string, args ...any) {
	s.Select(query, func(row Row) error {
		*found = new(R)
		return t.Scan(row, *found)
	}, args...)
}

// selectTexts selects a text.
func selectTexts(s Statements, all *[]string, query string, args ...any) {
	s.Select(query, func(row Row) error {
		*all = append(*all, row.ColumnText(0))
		return nil
	}, args...)
}

// Ask adds the statements that answer a query. It reports whether the query is known.
func Ask(s Statements, q store.Query) bool {
	switch q := q.(type) {
	case *store.SessionsByID:
		askSessions(s, q)
	case *store.MessagesByID:
		selectByID(s, MessageTable, &q.Rows, q.IDs)
	case *store.DecisionsByID:
		selectByID(s, DecisionTable, &q.Rows, q.IDs)
	case *store.BlobsByDigest:
		if table := BlobTables[q.Kind]; table != nil {
			selectByID(s, table, &q.Rows, q.Digests)
		}
	case *store.PartsByKey:
		askParts(s, q)
	case *store.SpanRefsByKey:
		selectByKeys(s, SpanTable, &q.Rows, q.Keys,
			func(k store.SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} },
			func(l *store.SpanRef) store.SpanKey {
				return store.SpanKey{SessionID: l.SessionID, TraceID: l.TraceID, SpanID: l.SpanID}
			})
	case *store.AnnotationsByKey:
		selectByKeys(s, AnnotationTable, &q.Rows, q.Keys,
			func(k store.AnnotationKey) []string { return []string{k.SessionID, k.ID} },
			func(n *store.Annotation) store.AnnotationKey {
				return store.AnnotationKey{SessionID: n.SessionID, ID: n.ID}
			})
	case *store.AnnotationsOf:
		SelectRows(s, AnnotationTable, &q.Rows, annotationsQuery, q.SessionID)
	case *store.MessagesFrom:
		SelectRows(s, MessageTable, &q.Rows, MessagesQuery, q.SessionID, q.From.At, q.From.ID)
	case *store.PartsFrom:
		SelectRows(s, PartTable, &q.Rows, partsQuery, q.MessageID, q.From)
	case *store.Extent:
		s.Select(`SELECT count(*), coalesce(max("index") + 1, 0) FROM chat_parts WHERE message_id = ?`,
			func(row Row) error {
				q.Count, q.Next = row.ColumnInt64(0), row.ColumnInt64(1)
				return nil
			}, q.MessageID)
		if q.WithRequested {
			SelectRows(s, IndexTable, &q.Requested, requestedQuery, q.MessageID)
		}
	case *store.Compactions:
		SelectRows(s, PartTable, &q.Rows, compactionPartsQuery, q.SessionID)
	case *store.StatsOf:
		SelectRows(s, SpanTable, &q.Rows, turnStatsQuery, q.SessionID, q.MessageID)
	default:
		return askTraces(s, q)
	}
	return true
}

// askTraces is Ask for queries about observations.
func askTraces(s Statements, q store.Query) bool {
	switch q := q.(type) {
	case *store.ObservationsByKey:
		selectByKeys(s, ObservationTable, &q.Rows, q.Keys,
			func(k store.ObservationKey) []string { return []string{k.TraceID, k.Source} },
			func(o *store.ObservationRow) store.ObservationKey {
				return store.ObservationKey{TraceID: o.TraceID, Source: o.Source}
			})
	case *store.TraceOwners:
		for _, id := range q.TraceIDs {
			SelectRows(s, OwnerTable, &q.Rows, ownerQuery, id)
		}
	case *store.Trace:
		askTrace(s, q)
	case *store.TraceObservations:
		SelectRows(s, ObservationTable, &q.Rows, traceQuery, q.TraceID)
	case *store.Thread:
		s.Select(guestsOwner, func(row Row) error {
			q.Owner, q.OK = row.ColumnText(0), true
			return nil
		}, q.SessionID, q.Dialect)
		if q.WithRecords {
			SelectRows(s, ObservationTable, &q.Records, recordsQuery, q.SessionID, q.Dialect)
		}
	case *store.RequesterOf:
		query, args := requesterQuery, []any{q.CallID, q.By, q.By - store.CallLife, q.NotTrace}
		if q.Until != 0 {
			query, args = modelRequesterQuery, append(args, q.Until)
		}
		selectOne(s, RequesterTable, &q.Requester, query, args...)
	case *store.OrphanTraces:
		if q.Until != 0 {
			selectTexts(s, &q.TraceIDs, orphansQuery+`?3 ORDER BY trace_id`, q.CallID, q.At, q.Until+1)
		} else {
			selectTexts(s, &q.TraceIDs, orphansUntilAsked, q.CallID, q.At, q.At+store.CallLife)
		}
	case *store.Sources:
		askSources(s, q)
	default:
		return askWindow(s, q)
	}
	return true
}

var (
	annotationsQuery = `SELECT ` + AnnotationTable.List + ` FROM annotations WHERE session_id = ? ORDER BY id`
	partsQuery       = `SELECT ` + PartTable.List + ` FROM chat_parts
 WHERE message_id = ? AND "index" >= ? ORDER BY "index"`
	requestedQuery       = `SELECT ` + IndexTable.List + ` FROM requested_indexes WHERE message_id = ?`
	compactionPartsQuery = `SELECT ` + PartTable.List + ` FROM chat_parts INDEXED BY idx_chat_parts_compaction
 WHERE type = 'data-compaction' AND session_id = ?1`
	turnStatsQuery = `SELECT ` + SpanTable.List + ` FROM span_refs INDEXED BY idx_span_refs_message
 WHERE message_id = ?2 AND kind <> 'permission.evaluate' AND facts_json IS NOT NULL AND session_id = ?1`
	ownerQuery = `SELECT ` + OwnerTable.List + ` FROM observations WHERE trace_id = ? ORDER BY source LIMIT 1`
	traceQuery = `SELECT ` + ObservationTable.Prefixed("", "data") + ` FROM observations
 WHERE trace_id = ? ORDER BY source`
)

// askParts finds parts by their ids, and then those at the indexes that have none of the ids.
func askParts(s Statements, q *store.PartsByKey) {
	if len(q.Keys) == 0 {
		return
	}
	ids, indexes := make([]string, len(q.Keys)), make([]string, len(q.Keys))
	for i, k := range q.Keys {
		ids[i], indexes[i] = k.ID, strconv.FormatInt(k.Index, 10)
	}
	selectByID(s, PartTable, &q.Rows, ids)
	if q.MessageID != "" {
		list := func(value, param string) string {
			return `(SELECT ` + value + ` FROM ` + s.Dialect().Elements(param, "wanted") + `)`
		}
		SelectRows(s, PartTable, &q.Rows, `SELECT `+PartTable.List+` FROM chat_parts WHERE message_id = ?1
 AND "index" IN `+list("CAST(value AS BIGINT)", "?2")+` AND id NOT IN `+list("value", "?3"),
			q.MessageID, listOf(indexes), listOf(ids))
	}
}

func askSessions(s Statements, q *store.SessionsByID) {
	if len(q.IDs) == 0 {
		return
	}
	s.SelectKeys(sessionQuery, func(row Row) error {
		q.Rows = append(q.Rows, store.SessionRow{})
		r := &q.Rows[len(q.Rows)-1]
		if err := SessionTable.Scan(row, &r.Session); err != nil {
			return err
		}
		if state := row.ColumnText(len(SessionTable.Columns)); state != "" {
			return ReadState(r.ID, state, &r.State)
		}
		return nil
	}, q.IDs)
	if q.Forks {
		q.ForksOf = make(map[string][]store.ForkRef)
		s.SelectKeys(`SELECT forked_from, session_id, state_json FROM session_state WHERE forked_from = ?
 ORDER BY session_id`, func(row Row) error {
			parent, ref := row.ColumnText(0), store.ForkRef{Session: row.ColumnText(1)}
			var state store.State
			if err := ReadState(ref.Session, row.ColumnText(2), &state); err != nil {
				return err
			}
			if state.Fork != nil {
				ref.Message = state.Fork.Message
			}
			q.ForksOf[parent] = append(q.ForksOf[parent], ref)
			return nil
		}, q.IDs)
	}
	if q.Children {
		q.Transcripts = make(map[string][]string)
		s.SelectKeys(`SELECT parent_id, id FROM chat_sessions INDEXED BY idx_chat_sessions_transcripts
 WHERE parent_id = ? AND `+s.Dialect().Contains("metadata_json", `"transcript"`)+` ORDER BY id`, func(row Row) error {
			parent := row.ColumnText(0)
			q.Transcripts[parent] = append(q.Transcripts[parent], row.ColumnText(1))
			return nil
		}, q.IDs)
	}
}

var sessionQuery = `SELECT ` + SessionTable.Prefixed("s.") + `, st.state_json
 FROM chat_sessions s LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ?`

func askTrace(s Statements, q *store.Trace) {
	s.Select(ownerQuery, func(row Row) error {
		q.Owner, q.Own = row.ColumnText(1), row.ColumnText(2)
		return nil
	}, q.TraceID)
	s.Select(declaredQuery, func(row Row) error {
		q.Named = row.ColumnText(0)
		return nil
	}, q.TraceID)
	selectTexts(s, &q.Sessions, `SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = ?1
  AND l.dialect = '`+store.DialectSDK+`') ORDER BY session_id`, q.TraceID)
	if q.Named == "" && len(q.Sessions) == 0 { // or it is not known yet
		SelectRows(s, OrphanTable, &q.Orphans, orphanTraceQuery, q.TraceID)
	}
}

const declaredQuery = `SELECT declared_session FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ?1 AND declared_session IS NOT NULL ORDER BY declared_rank, start_nano, declared_session LIMIT 1`

var orphanTraceQuery = `SELECT ` + OrphanTable.List + ` FROM observations INDEXED BY idx_observations_orphan_trace
 WHERE trace_id = ?1 AND orphan_call IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_declared
  WHERE trace_id = ?1 AND declared_session IS NOT NULL) ORDER BY start_nano, source`

// guests are the observations of a dialect that name a session and are kept with another.
const (
	guests = ` FROM observations INDEXED BY idx_observations_guest
 WHERE declared_session = ?1 AND declared_session <> owner AND dialect = ?2`
	guestsOwner = `SELECT owner` + guests + ` AND trace_id <> '' AND owner <> ''
 ORDER BY start_nano, trace_id, source LIMIT 1`
)

// recordsQuery joins the owner first, so that the observations of the session itself are read only if it has another.
var recordsQuery = `WITH main AS MATERIALIZED (SELECT coalesce((` + guestsOwner + `), ?1) AS thread_owner)
 SELECT ` + ObservationTable.Prefixed("", "data") + guests + ` AND trace_id = ''
 AND owner <> (SELECT thread_owner FROM main)
 UNION ALL SELECT ` + ObservationTable.Prefixed("", "data") + `
 FROM main CROSS JOIN observations INDEXED BY idx_observations_owner_start WHERE thread_owner <> ?1
 AND owner = ?1 AND declared_session = ?1 AND trace_id = '' AND dialect = ?2 ORDER BY source`

// The requester of a call of a tool is found in the order of the index, however often an id was used. CROSS JOIN keeps
// SQLite from another order.
const (
	requested = `SELECT c.trace_id, o.owner FROM tool_call_requests c CROSS JOIN observations o
 WHERE o.trace_id = c.trace_id AND o.source = c.source AND c.call_id = ?1 AND c.start_nano <= ?2
 AND c.start_nano > ?3 AND c.trace_id <> ?4 AND (c.trace_id <> '' OR o.owner <> '')`
	requesterQuery      = requested + ` ORDER BY c.start_nano DESC, c.trace_id, c.source LIMIT 1`
	modelRequesterQuery = requested + ` AND o.end_nano >= ?5
 ORDER BY o.owner = o.default_session, c.start_nano DESC, c.trace_id, c.source LIMIT 1`
)

// orphansUntilAsked looks at a few of those that requested the call later: if they are all of one trace, it finds more
// orphans than need be, and none too few. The first of them may be of the orphan's own trace, which does not count.
const (
	orphansQuery = `SELECT DISTINCT trace_id FROM observations INDEXED BY idx_observations_orphan
 WHERE orphan_call = ?1 AND start_nano >= ?2 AND trace_id <> '' AND start_nano < `
	orphansUntilAsked = `WITH later AS MATERIALIZED (SELECT start_nano, trace_id FROM tool_call_requests
  WHERE call_id = ?1 AND start_nano > ?2 AND start_nano < ?3 AND trace_id <> ''
  ORDER BY start_nano, trace_id LIMIT 64)
 ` + orphansQuery + `(SELECT coalesce(min(start_nano), ?3) FROM later
  WHERE trace_id <> (SELECT trace_id FROM later ORDER BY start_nano, trace_id LIMIT 1)) ORDER BY trace_id`
)

func askSources(s Statements, q *store.Sources) {
	SelectRows(s, AttrsTable, &q.Rows, `SELECT `+AttrsTable.List+` FROM observations INDEXED BY idx_observations_spans
 WHERE session_id = ?1`, q.SessionID)
	s.Select(`SELECT 1 FROM span_refs WHERE session_id = ? AND dialect = '`+store.DialectSDK+`' LIMIT 1`,
		func(Row) error {
			q.SDK = true
			return nil
		}, q.SessionID)
}
