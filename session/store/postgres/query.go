package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
)

// ask adds the statements that answer a query. None depends on the answer of another, so all are sent at once.
func (b *batch) ask(q store.Query) error {
	if sqlstore.Ask(b, q) {
		return nil
	}
	return b.askObservations(q)
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

// askObservations is ask for queries about observations.
func (b *batch) askObservations(q store.Query) error {
	switch q := q.(type) {
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
