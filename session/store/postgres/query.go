package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// ask adds the statements that answer a query. None depends on the answer of another, so all are sent at once.
func (b *batch) ask(q store.Query) error {
	switch q := q.(type) {
	case *store.SessionsByID:
		b.sessions(q)
	case *store.MessagesByID:
		into(b, sqlstore.MessageTable, &q.Rows, selectByKeys(sqlstore.MessageTable, "id"), q.IDs)
	case *store.PartsByKey:
		b.parts(q)
	case *store.SpanRefsByKey:
		byKeys(b, sqlstore.SpanTable, &q.Rows, q.Keys,
			func(k store.SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} },
			func(l *store.SpanRef) store.SpanKey {
				return store.SpanKey{SessionID: l.SessionID, TraceID: l.TraceID, SpanID: l.SpanID}
			})
	case *store.DecisionsByID:
		into(b, sqlstore.DecisionTable, &q.Rows, selectByKeys(sqlstore.DecisionTable, "id"), q.IDs)
	case *store.AnnotationsOf:
		into(b, sqlstore.AnnotationTable, &q.Rows, `SELECT `+sqlstore.AnnotationTable.List+` FROM annotations
 WHERE session_id = $1 ORDER BY id`, q.SessionID)
	case *store.AnnotationsByKey:
		byKeys(b, sqlstore.AnnotationTable, &q.Rows, q.Keys,
			func(k store.AnnotationKey) []string { return []string{k.SessionID, k.ID} },
			func(n *store.Annotation) store.AnnotationKey {
				return store.AnnotationKey{SessionID: n.SessionID, ID: n.ID}
			})
	case *store.BlobsByDigest:
		if table := sqlstore.BlobTables[q.Kind]; table != nil {
			into(b, table, &q.Rows, selectByKeys(table, "digest"), q.Digests)
		}
	case *store.MessagesFrom:
		into(b, sqlstore.MessageTable, &q.Rows, `SELECT `+sqlstore.MessageTable.List+` FROM chat_messages
 WHERE session_id = $1 AND (created_at, id) >= ($2, $3) ORDER BY created_at, id`, q.SessionID, q.From.At, q.From.ID)
	case *store.PartsFrom:
		into(b, sqlstore.PartTable, &q.Rows, `SELECT `+sqlstore.PartTable.List+` FROM chat_parts
 WHERE message_id = $1 AND "index" >= $2 ORDER BY "index"`, q.MessageID, q.From)
	case *store.Extent:
		b.query(func(r *row) error {
			q.Count, q.Next = r.ColumnInt64(0), r.ColumnInt64(1)
			return nil
		}, `SELECT count(*), coalesce(max("index") + 1, 0) FROM chat_parts WHERE message_id = $1`, q.MessageID)
		if q.WithRequested {
			into(b, sqlstore.IndexTable, &q.Requested, `SELECT `+sqlstore.IndexTable.List+
				` FROM requested_indexes WHERE message_id = $1`, q.MessageID)
		}
	case *store.Compactions:
		query := `SELECT ` + sqlstore.PartTable.List + ` FROM chat_parts
 WHERE session_id = $1 AND type = 'data-compaction'`
		args := []any{q.SessionID}
		if len(q.MessageIDs) > 0 {
			query, args = query+` AND message_id = ANY($2::text[])`, append(args, q.MessageIDs)
		}
		into(b, sqlstore.PartTable, &q.Rows, query, args...)
	case *store.StatsOf:
		into(b, sqlstore.SpanTable, &q.Rows, `SELECT `+sqlstore.SpanTable.List+` FROM span_refs
 WHERE message_id = $2 AND kind <> 'permission.evaluate' AND facts_json IS NOT NULL AND session_id = $1`,
			q.SessionID, q.MessageID)
	default:
		return b.askObservations(q)
	}
	return nil
}

// into adds a query for rows of a table.
func into[R any](b *batch, table *sqlstore.Table[R], rows *[]R, query string, args ...any) {
	b.query(func(r *row) error {
		*rows = append(*rows, *new(R))
		return table.Scan(r, &(*rows)[len(*rows)-1])
	}, query, args...)
}

// intoOne adds a query that has one row at most.
func intoOne[R any](b *batch, table *sqlstore.Table[R], found **R, query string, args ...any) {
	b.query(func(r *row) error {
		*found = new(R)
		return table.Scan(r, *found)
	}, query, args...)
}

// texts adds a query for the first column of its rows.
func texts(b *batch, all *[]string, query string, args ...any) {
	b.query(func(r *row) error {
		*all = append(*all, r.ColumnText(0))
		return nil
	}, query, args...)
}

// timeRange adds a query with one row, whose two columns are NULL or the bounds of a time.
func timeRange(b *batch, found **store.TimeRange, query string, args ...any) {
	b.query(func(r *row) error {
		if !r.ColumnIsNull(0) {
			*found = &store.TimeRange{From: r.ColumnInt64(0), To: r.ColumnInt64(1)}
		}
		return nil
	}, query, args...)
}

// selectByKeys selects the rows of which a column is one of $1.
func selectByKeys[R any](table *sqlstore.Table[R], column string) string {
	return `SELECT ` + table.List + ` FROM ` + table.Name + ` WHERE ` + column + ` = ANY($1::text[])`
}

func (b *batch) sessions(q *store.SessionsByID) {
	b.query(func(r *row) error {
		q.Rows = append(q.Rows, store.SessionRow{})
		s := &q.Rows[len(q.Rows)-1]
		if err := sqlstore.SessionTable.Scan(r, &s.Session); err != nil {
			return err
		}
		if state := r.ColumnText(len(sqlstore.SessionTable.Columns)); state != "" {
			return sqlstore.ReadState(s.ID, state, &s.State)
		}
		return nil
	}, `SELECT `+sqlstore.SessionTable.Prefixed("s.")+`, st.state_json FROM chat_sessions s
 LEFT JOIN session_state st ON st.session_id = s.id WHERE s.id = ANY($1::text[])`, q.IDs)
	if q.Forks {
		q.ForksOf = make(map[string][]store.ForkRef)
		b.query(func(r *row) error {
			ref := store.ForkRef{Session: r.ColumnText(1)}
			var state store.State
			if err := sqlstore.ReadState(ref.Session, r.ColumnText(2), &state); err != nil {
				return err
			}
			if state.Fork != nil {
				ref.Message = state.Fork.Message
			}
			parent := r.ColumnText(0)
			q.ForksOf[parent] = append(q.ForksOf[parent], ref)
			return nil
		}, `SELECT forked_from, session_id, state_json FROM session_state
 WHERE forked_from = ANY($1::text[]) ORDER BY session_id`, q.IDs)
	}
	if q.Children {
		q.Transcripts = make(map[string][]string)
		b.query(func(r *row) error {
			parent := r.ColumnText(0)
			q.Transcripts[parent] = append(q.Transcripts[parent], r.ColumnText(1))
			return nil
		}, `SELECT parent_id, id FROM chat_sessions
 WHERE parent_id = ANY($1::text[]) AND strpos(metadata_json, '"transcript"') > 0 ORDER BY id`, q.IDs)
	}
}

func (b *batch) parts(q *store.PartsByKey) {
	ids, indexes := make([]string, len(q.Keys)), make([]int64, len(q.Keys))
	for i, k := range q.Keys {
		ids[i], indexes[i] = k.ID, k.Index
	}
	into(b, sqlstore.PartTable, &q.Rows, selectByKeys(sqlstore.PartTable, "id"), ids)
	if q.MessageID == "" {
		return
	}
	var inPlace []session.Part
	into(b, sqlstore.PartTable, &inPlace, `SELECT `+sqlstore.PartTable.List+` FROM chat_parts
 WHERE message_id = $1 AND "index" = ANY($2::bigint[])`, q.MessageID, indexes)
	b.then(func() {
		found := make(map[string]bool, len(q.Rows))
		for i := range q.Rows {
			found[q.Rows[i].ID] = true
		}
		wanted := make(map[int64]bool)
		for _, k := range q.Keys {
			wanted[k.Index] = wanted[k.Index] || !found[k.ID]
		}
		for i := range inPlace {
			if wanted[inPlace[i].Index] {
				q.Rows = append(q.Rows, inPlace[i])
			}
		}
	})
}

// byKeys adds a query for the rows with one of the keys, which have several columns. A distributed engine finds rows by
// a list of values for each column; those with other combinations of the values are left out afterwards.
func byKeys[R any, K comparable](b *batch, table *sqlstore.Table[R], rows *[]R, keys []K, columns func(K) []string,
	keyOf func(*R) K) {
	wanted := make(map[K]bool, len(keys))
	values := make([][]string, len(table.Key))
	for _, key := range keys {
		wanted[key] = true
		for i, value := range columns(key) {
			values[i] = append(values[i], value)
		}
	}
	conditions, args := make([]string, len(values)), make([]any, len(values))
	for i, column := range table.Key {
		conditions[i] = fmt.Sprintf("%s = ANY($%d::text[])", column, i+1)
		slices.Sort(values[i])
		args[i] = slices.Compact(values[i])
	}
	into(b, table, rows, `SELECT `+table.List+` FROM `+table.Name+` WHERE `+strings.Join(conditions, " AND "), args...)
	b.then(func() { *rows = slices.DeleteFunc(*rows, func(r R) bool { return !wanted[keyOf(&r)] }) })
}

// askObservations is ask for queries about observations.
func (b *batch) askObservations(q store.Query) error {
	switch q := q.(type) {
	case *store.ObservationsByKey:
		byKeys(b, sqlstore.ObservationTable, &q.Rows, q.Keys,
			func(k store.ObservationKey) []string { return []string{k.TraceID, k.Source} },
			func(o *store.ObservationRow) store.ObservationKey {
				return store.ObservationKey{TraceID: o.TraceID, Source: o.Source}
			})
	case *store.SpanTimes:
		b.spanTimes(q)
	case *store.TraceOwners:
		for _, id := range q.TraceIDs {
			into(b, sqlstore.OwnerTable, &q.Rows, traceOwner, id)
		}
	case *store.Trace:
		b.trace(q)
	case *store.TraceObservations:
		into(b, sqlstore.ObservationTable, &q.Rows, `SELECT `+sqlstore.ObservationTable.Prefixed("", "data")+
			` FROM observations WHERE trace_id = $1 ORDER BY source`, q.TraceID)
	case *store.Thread:
		b.thread(q)
	case *store.RequesterOf:
		b.requester(q)
	case *store.OrphanTraces:
		b.orphans(q)
	case *store.WindowFrom:
		intoOne(b, sqlstore.CutTable, &q.Cut, `SELECT at_nano, carry FROM observation_windows
 WHERE owner = $1 AND at_nano < (
  SELECT start_nano FROM observations WHERE owner = $1 AND start_nano < $2
  ORDER BY start_nano DESC LIMIT 1 OFFSET $3) ORDER BY at_nano DESC LIMIT 1`, q.Owner, q.CutAt, store.CutLookahead-1)
		b.opening(&q.Start, &q.OK, &q.Across, "max(start_nano)", "start_nano < $2", q.Owner, q.At)
		b.then(func() {
			if q.Cut != nil && q.Start <= q.Cut.At {
				q.Across = nil
			}
		})
	case *store.WindowTo:
		b.opening(&q.Start, &q.OK, &q.Across, "min(start_nano)", "start_nano >= $2", q.Owner, q.At)
	case *store.ObservationsIn:
		b.observationsIn(q)
	case *store.Proven:
		b.proven(q)
	case *store.Sources:
		b.sources(q)
	default:
		return fmt.Errorf("unknown query %T", q)
	}
	return nil
}

var traceOwner = `SELECT ` + sqlstore.OwnerTable.List + ` FROM observations WHERE trace_id = $1 ORDER BY source LIMIT 1`

func (b *batch) spanTimes(q *store.SpanTimes) {
	for _, key := range q.Keys {
		into(b, sqlstore.SpanTimeTable, &q.Rows, `SELECT trace_id, source, start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations WHERE trace_id = $1 AND opens = 0
   AND (CASE WHEN source = span_id THEN parent_span_id ELSE span_id END) = $2)
 FROM observations WHERE trace_id = $1 AND source = $2`, key.TraceID, key.Source)
	}
}

func (b *batch) trace(q *store.Trace) {
	b.query(func(r *row) error {
		q.Owner, q.Own = r.ColumnText(1), r.ColumnText(2)
		return nil
	}, traceOwner, q.TraceID)
	b.query(func(r *row) error {
		q.Named = r.ColumnText(0)
		return nil
	}, `SELECT declared_session FROM observations WHERE trace_id = $1 AND declared_session IS NOT NULL
 ORDER BY declared_rank, start_nano, declared_session LIMIT 1`, q.TraceID)
	texts(b, &q.Sessions, `SELECT session_id FROM session_traces t WHERE trace_id = $1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = $1
  AND l.dialect = '`+store.DialectSDK+`') ORDER BY session_id`, q.TraceID)
	into(b, sqlstore.OrphanTable, &q.Orphans, `SELECT `+sqlstore.OrphanTable.List+`
 FROM observations WHERE trace_id = $1 AND orphan_call IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM observations WHERE trace_id = $1 AND declared_session IS NOT NULL)
 ORDER BY start_nano, source`, q.TraceID)
}

func (b *batch) thread(q *store.Thread) {
	const guests = ` FROM observations WHERE declared_session = $1 AND declared_session <> owner AND dialect = $2`
	const owner = `SELECT owner` + guests + ` AND trace_id <> '' AND owner <> ''
 ORDER BY start_nano, trace_id, source LIMIT 1`
	b.query(func(r *row) error {
		q.Owner, q.OK = r.ColumnText(0), true
		return nil
	}, owner, q.SessionID, q.Dialect)
	if !q.WithRecords {
		return
	}
	columns := sqlstore.ObservationTable.Prefixed("", "data")
	into(b, sqlstore.ObservationTable, &q.Records, `WITH main AS MATERIALIZED (SELECT coalesce((`+owner+`), $1) AS id)
 SELECT `+columns+guests+` AND trace_id = '' AND owner <> (SELECT id FROM main)
 UNION ALL SELECT `+columns+` FROM observations WHERE (SELECT id FROM main) <> $1
 AND owner = $1 AND declared_session = $1 AND trace_id = '' AND dialect = $2 ORDER BY source`, q.SessionID, q.Dialect)
}

func (b *batch) requester(q *store.RequesterOf) {
	order := `c.start_nano DESC, c.trace_id, c.source`
	if q.Until != 0 {
		order = `o.owner = o.default_session, ` + order
	}
	intoOne(b, sqlstore.RequesterTable, &q.Requester, `SELECT c.trace_id, o.owner
 FROM tool_call_requests c JOIN observations o USING (trace_id, source)
 WHERE c.call_id = $1 AND c.start_nano <= $2 AND c.start_nano > $3 AND c.trace_id <> $4
 AND (c.trace_id <> '' OR o.owner <> '') AND ($5::bigint = 0 OR o.end_nano >= $5) ORDER BY `+order+` LIMIT 1`,
		q.CallID, q.By, q.By-store.CallLife, q.NotTrace, q.Until)
}

// orphans looks, where there is no other limit, at a few of those that requested the call later: if they are all of
// one trace, it finds more orphans than need be, and none too few.
func (b *batch) orphans(q *store.OrphanTraces) {
	const traces = `SELECT DISTINCT trace_id FROM observations
 WHERE orphan_call = $1 AND start_nano >= $2 AND trace_id <> '' AND start_nano < `
	if q.Until != 0 {
		texts(b, &q.TraceIDs, traces+`$3 ORDER BY trace_id`, q.CallID, q.At, q.Until+1)
		return
	}
	texts(b, &q.TraceIDs, `WITH later AS MATERIALIZED (SELECT start_nano, trace_id FROM tool_call_requests
  WHERE call_id = $1 AND start_nano > $2 AND start_nano < $3 AND trace_id <> '' ORDER BY start_nano, trace_id LIMIT 64)
 `+traces+`(SELECT coalesce(min(start_nano), $3) FROM later
  WHERE trace_id <> (SELECT trace_id FROM later ORDER BY start_nano, trace_id LIMIT 1)) ORDER BY trace_id`,
		q.CallID, q.At, q.At+store.CallLife)
}

// across is the condition for observations o of the owner $1 to begin before a time and last until after it. One whose
// reach is n is shorter than 2ⁿ nanoseconds and began no longer than that before the time: each reach is looked for by
// itself. See [sqlstore.Reach].
func across(at string) string {
	return ` (VALUES ` + reaches + `) r(n) JOIN observations o ON o.reach = r.n AND o.owner = $1
 WHERE o.reach > 0 AND o.start_nano < ` + at + ` AND o.start_nano > ` + at + ` - (1::bigint << r.n)
 AND o.until_nano > ` + at
}

// reaches are all that there are, as the rows of VALUES.
var reaches = func() string {
	var all []string
	for n := 2; n <= 62; n += 2 {
		all = append(all, "("+strconv.Itoa(n)+")")
	}
	return strings.Join(all, ",")
}()

// opening finds where a turn opens, and the bounds of what is across it.
func (b *batch) opening(start *int64, ok *bool, bounds **store.TimeRange, which, condition, owner string, at int64) {
	opening := `SELECT ` + which + ` AS at FROM observations WHERE opens = 1 AND owner = $1 AND ` + condition
	b.query(func(r *row) error {
		*start, *ok = r.ColumnInt64(0), !r.ColumnIsNull(0)
		return nil
	}, opening, owner, at)
	timeRange(b, bounds, `WITH opening AS MATERIALIZED (`+opening+`)
 SELECT min(o.start_nano), max(o.until_nano) FROM opening,`+across("opening.at"), owner, at)
}

func (b *batch) observationsIn(q *store.ObservationsIn) {
	const in = ` FROM observations WHERE owner = $1 AND start_nano >= $2 AND start_nano < $3`
	const rank = `, (SELECT min(d.declared_rank) FROM observations d
  WHERE d.trace_id = t.trace_id AND d.declared_session IS NOT NULL)
 FROM (SELECT DISTINCT trace_id`
	var rows, around []store.ObservationRow
	ranks := make(map[string]int)
	ranked := func(r *row) error {
		if !r.ColumnIsNull(1) {
			ranks[r.ColumnText(0)] = r.ColumnInt(1)
		}
		return nil
	}
	into(b, sqlstore.ObservationTable, &rows, `SELECT `+sqlstore.ObservationTable.List+in, q.Owner, q.From, q.To)
	b.query(ranked, `SELECT t.trace_id`+rank+in+`) t`, q.Owner, q.From, q.To)
	if q.Around {
		into(b, sqlstore.ObservationTable, &around, `SELECT `+sqlstore.ObservationTable.Prefixed("o.")+
			` FROM`+across("$2")+` ORDER BY o.start_nano, o.trace_id, o.source`, q.Owner, q.From)
		rank := strings.Replace(rank, "DISTINCT trace_id", "DISTINCT o.trace_id", 1)
		b.query(ranked, `SELECT t.trace_id`+rank+` FROM`+across("$2")+`) t`, q.Owner, q.From)
	}
	b.then(func() {
		q.Rows, q.AroundRows = withRanks(rows, ranks), withRanks(around, ranks)
	})
}

// withRanks are observations with the rank of their traces.
func withRanks(rows []store.ObservationRow, ranks map[string]int) []store.Observation {
	all := make([]store.Observation, len(rows))
	for i := range rows {
		o := &rows[i].Observation
		if o.TraceRank = o.Rank; o.TraceID != "" {
			rank, named := ranks[o.TraceID]
			if !named {
				rank = store.NoRank
			}
			o.TraceRank = rank
		}
		all[i] = *o
	}
	return all
}

// proven goes from each counter and proof to the next one in the index. A distributed engine, which has no recursive
// queries, reads them all.
func (b *batch) proven(q *store.Proven) {
	const counted = ` FROM observations WHERE owner = $1 AND usage_counter IS NOT NULL`
	const first = ` ORDER BY usage_counter, usage_proof LIMIT 1`
	query := `WITH RECURSIVE proofs(counter, proof) AS (
  (SELECT usage_counter, usage_proof` + counted + first + `)
  UNION ALL
  SELECT n.* FROM proofs CROSS JOIN LATERAL (SELECT usage_counter, usage_proof` + counted + `
   AND (usage_counter, usage_proof) > (counter, proof)` + first + `) n
 ) SELECT counter, proof FROM proofs ORDER BY counter, proof`
	if b.distributed {
		query = `SELECT DISTINCT usage_counter, usage_proof` + counted + ` ORDER BY usage_counter, usage_proof`
	}
	b.query(func(r *row) error {
		p := store.UsageProof{Counter: r.ColumnText(0), Proof: r.ColumnInt64(1)}
		switch last := len(q.Proofs) - 1; {
		case p.Proof == 0:
		case last >= 0 && q.Proofs[last].Counter == p.Counter:
			q.Proofs[last].Proof |= p.Proof
		default:
			q.Proofs = append(q.Proofs, p)
		}
		return nil
	}, query, q.Owner)
	if q.WithCounted {
		timeRange(b, &q.Counted, `SELECT min(start_nano), max(end_nano)`+counted, q.Owner)
	}
}

func (b *batch) sources(q *store.Sources) {
	var limit any
	if q.Limit >= 0 {
		limit = int64(q.Limit)
	}
	into(b, sqlstore.AttrsTable, &q.Rows, `SELECT `+sqlstore.AttrsTable.List+` FROM observations WHERE session_id = $1
 ORDER BY greatest(start_nano, end_nano) DESC LIMIT $2`, q.SessionID, limit)
	b.query(func(r *row) error {
		q.SDK = r.ColumnBool(0)
		return nil
	}, `SELECT EXISTS (
 SELECT 1 FROM span_refs WHERE session_id = $1 AND dialect = '`+store.DialectSDK+`')`, q.SessionID)
}
