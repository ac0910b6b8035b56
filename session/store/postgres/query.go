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
	if sqlstore.Ask(b, q) {
		return nil
	}
	switch q := q.(type) {
	case *store.PartsByKey:
		b.parts(q)
	case *store.SpanRefsByKey:
		byKeys(b, sqlstore.SpanTable, &q.Rows, q.Keys,
			func(k store.SpanKey) []string { return []string{k.SessionID, k.TraceID, k.SpanID} },
			func(l *store.SpanRef) store.SpanKey {
				return store.SpanKey{SessionID: l.SessionID, TraceID: l.TraceID, SpanID: l.SpanID}
			})
	case *store.AnnotationsByKey:
		byKeys(b, sqlstore.AnnotationTable, &q.Rows, q.Keys,
			func(k store.AnnotationKey) []string { return []string{k.SessionID, k.ID} },
			func(n *store.Annotation) store.AnnotationKey {
				return store.AnnotationKey{SessionID: n.SessionID, ID: n.ID}
			})
	default:
		return b.askObservations(q)
	}
	return nil
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

func (b *batch) parts(q *store.PartsByKey) {
	ids, indexes := make([]string, len(q.Keys)), make([]int64, len(q.Keys))
	for i, k := range q.Keys {
		ids[i], indexes[i] = k.ID, k.Index
	}
	sqlstore.SelectByKeys(b, sqlstore.PartTable, &q.Rows, ids)
	if q.MessageID == "" {
		return
	}
	var inPlace []session.Part
	sqlstore.SelectRows(b, sqlstore.PartTable, &inPlace, `SELECT `+sqlstore.PartTable.List+` FROM chat_parts
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
	query := `SELECT ` + table.List + ` FROM ` + table.Name + ` WHERE ` + strings.Join(conditions, " AND ")
	sqlstore.SelectRows(b, table, rows, query, args...)
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
	case *store.WindowFrom:
		sqlstore.SelectOne(b, sqlstore.CutTable, &q.Cut, `SELECT at_nano, carry FROM observation_windows
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
	default:
		return fmt.Errorf("unknown query %T", q)
	}
	return nil
}

func (b *batch) spanTimes(q *store.SpanTimes) {
	for _, key := range q.Keys {
		sqlstore.SelectRows(b, sqlstore.SpanTimeTable, &q.Rows, `
 SELECT trace_id, source, start_nano, end_nano, until_nano, (
  SELECT max(start_nano) FROM observations WHERE trace_id = $1 AND opens = 0
   AND (CASE WHEN source = span_id THEN parent_span_id ELSE span_id END) = $2)
 FROM observations WHERE trace_id = $1 AND source = $2`, key.TraceID, key.Source)
	}
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
	sqlstore.SelectRows(b, sqlstore.ObservationTable, &rows, `SELECT `+sqlstore.ObservationTable.List+in,
		q.Owner, q.From, q.To)
	b.query(ranked, `SELECT t.trace_id`+rank+in+`) t`, q.Owner, q.From, q.To)
	if q.Around {
		sqlstore.SelectRows(b, sqlstore.ObservationTable, &around, `SELECT `+sqlstore.ObservationTable.Prefixed("o.")+
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
	if b.dialect == distributedDialect {
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
