package sqlstore

import (
	"fmt"
	"strings"

	"github.com/agenttrace/agenttrace/session/store"
)

// askWindow is Ask for queries about the timeline of an owner.
func askWindow(s Statements, q store.Query) bool {
	switch q := q.(type) {
	case *store.SpanTimes:
		for _, key := range q.Keys {
			SelectRows(s, SpanTimeTable, &q.Rows, s.Dialect().SpanTimes, key.TraceID, key.Source)
		}
	case *store.Opening:
		askOpening(s, q)
	case *store.ObservationsIn:
		askObservationsIn(s, q)
	case *store.WindowSize:
		s.Select(`SELECT count(*) FROM (SELECT 1`+inWindow+` LIMIT ?4) AS w`, func(row Row) error {
			q.Count = row.ColumnInt(0)
			return nil
		}, q.Owner, q.From, q.To, q.Limit)
		s.Select(`SELECT message_id`+inWindow+` AND message_id IS NOT NULL AND session_id = ?1
 ORDER BY start_nano DESC LIMIT 1`, func(row Row) error {
			q.Answer = row.ColumnText(0)
			return nil
		}, q.Owner, q.From, q.To)
	case *store.UnbuiltOf:
		selectOne(s, UnbuiltTable, &q.Unbuilt, `SELECT `+UnbuiltTable.List+` FROM unbuilt_turns
 WHERE owner = ?1 OR ?1 = '' AND owner > ?2 ORDER BY owner LIMIT 1`, q.Owner, q.After)
	case *store.Proven:
		askProven(s, q)
	default:
		return false
	}
	return true
}

// inWindow are the observations of an owner that begin in a range of time.
const inWindow = ` FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ?1 AND start_nano >= ?2 AND start_nano < ?3`

// across joins the observations o of the owner ?1 that begin before a time and last until after it. One whose reach is
// n is shorter than 2ⁿ nanoseconds and began no longer than that before the time: each reach is looked for by itself, so
// few are looked at wherever in a long session the time is. See [Reach].
func across(at string) string {
	return reaches + ` CROSS JOIN observations o INDEXED BY idx_observations_across
 WHERE o.owner = ?1 AND o.reach = r.column1 AND o.reach > 0 AND o.start_nano < ` + at + `
 AND o.start_nano > ` + at + ` - (CAST(1 AS BIGINT) << r.column1) AND o.until_nano > ` + at
}

// reaches are all that there are, as the column column1 of rows r.
var reaches = func() string {
	var all []string
	for n := 2; n <= 62; n += 2 {
		all = append(all, fmt.Sprintf("(%d)", n))
	}
	return `(VALUES ` + strings.Join(all, ", ") + `) AS r`
}()

// askOpening finds where a turn opens, and the bounds of what is across it.
func askOpening(s Statements, q *store.Opening) {
	which, condition := "min", ">="
	if q.Before {
		which, condition = "max", "<"
	}
	query := `SELECT ` + which + `(start_nano) AS at FROM observations INDEXED BY idx_observations_opens
 WHERE ` + s.Dialect().Opens + ` AND owner = ?1 AND start_nano ` + condition + ` ?2`
	s.Select(query, func(row Row) error {
		q.Start, q.OK = row.ColumnInt64(0), !row.ColumnIsNull(0)
		return nil
	}, q.Owner, q.At)
	selectRange(s, func(across *store.TimeRange) { q.Across = across }, `WITH opening AS MATERIALIZED (`+query+`)
 SELECT min(o.start_nano), max(o.until_nano) FROM opening CROSS JOIN `+across("opening.at"), q.Owner, q.At)
}

// selectRange selects one row, whose two columns are NULL or the bounds of a time.
func selectRange(s Statements, found func(*store.TimeRange), query string, args ...any) {
	s.Select(query, func(row Row) error {
		if !row.ColumnIsNull(0) {
			found(&store.TimeRange{From: row.ColumnInt64(0), To: row.ColumnInt64(1)})
		}
		return nil
	}, args...)
}

// askObservationsIn finds the ranks of the traces first, and then the observations, which take them. An engine may answer
// all statements together, so neither depends on what the other one finds.
func askObservationsIn(s Statements, q *store.ObservationsIn) {
	ranks := make(map[string]int)
	s.Select(`SELECT t.trace_id, (
 SELECT min(d.declared_rank) FROM observations d INDEXED BY idx_observations_declared
 WHERE d.trace_id = t.trace_id AND d.declared_session IS NOT NULL)
 FROM (SELECT DISTINCT trace_id`+inWindow+`) t`, func(row Row) error {
		if !row.ColumnIsNull(1) {
			ranks[row.ColumnText(0)] = row.ColumnInt(1)
		}
		return nil
	}, q.Owner, q.From, q.To)
	s.Select(`SELECT `+ObservationTable.List+inWindow, func(row Row) error {
		var o store.ObservationRow
		err := ObservationTable.Scan(row, &o)
		if o.TraceRank = o.Rank; o.TraceID != "" {
			rank, named := ranks[o.TraceID]
			if !named {
				rank = store.NoRank
			}
			o.TraceRank = rank
		}
		q.Rows = append(q.Rows, o.Observation)
		return err
	}, q.Owner, q.From, q.To)
}

// askProven goes from each counter and proof to the next one in the index. An engine that distributes rows over nodes
// has no recursive queries, and reads them all.
func askProven(s Statements, q *store.Proven) {
	const counted = ` FROM observations INDEXED BY idx_observations_usage_proof
 WHERE owner = ?1 AND usage_counter IS NOT NULL`
	query := `SELECT DISTINCT usage_counter, usage_proof` + counted + ` ORDER BY usage_counter, usage_proof`
	if !s.Dialect().Distributed {
		const of = ` FROM observations INDEXED BY idx_observations_usage_proof WHERE owner = ?1 AND usage_counter `
		const more = of + `= p.counter AND usage_proof > p.proof`
		query = `WITH RECURSIVE proofs(counter, proof) AS (
  SELECT min(usage_counter), CAST(0 AS BIGINT)` + counted + `
  UNION ALL
  SELECT CASE WHEN EXISTS (SELECT 1` + more + `) THEN p.counter
   ELSE (SELECT min(usage_counter)` + of + `> p.counter) END,
   coalesce((SELECT min(usage_proof)` + more + `), 0) FROM proofs p WHERE p.counter IS NOT NULL
 ) SELECT counter, proof FROM proofs WHERE proof > 0 ORDER BY counter, proof`
	}
	s.Select(query, func(row Row) error {
		p := store.UsageProof{Counter: row.ColumnText(0), Proof: row.ColumnInt64(1)}
		switch last := len(q.Proofs) - 1; {
		case p.Proof == 0:
		case last >= 0 && q.Proofs[last].Counter == p.Counter:
			q.Proofs[last].Proof |= p.Proof
		default:
			q.Proofs = append(q.Proofs, p)
		}
		return nil
	}, q.Owner)
	if q.WithCounted {
		selectRange(s, func(at *store.TimeRange) { q.Counted = at },
			`SELECT min(start_nano), max(end_nano)`+counted, q.Owner)
	}
}
