package store

import (
	"fmt"
	"math/bits"
	"strings"
)

// Statements for observations, the traces that they are of, and the timeline of their owners.

// reachingRow is an observation as it is written when it is put.
type reachingRow struct {
	ObservationRow
	Reach int64 `column:"reach"`
}

// Reach is the least even n for which a time is shorter than 2ⁿ nanoseconds, 62 at most; 0 if it is an instant.
// Observations that last across a given time are looked for reach by reach: those that are shorter than 2ⁿ began
// no longer than that before it, wherever in a long session the time is.
func Reach(from, until int64) int64 {
	if until <= from {
		return 0
	}
	n := bits.Len64(uint64(until - from))
	return int64(min(n+n%2, 62))
}

// attributionRow is the attribution of the observation with a key, proofRow its UsageProof.
type attributionRow struct {
	Attribution
	ObservationKey
}

type proofRow struct {
	ObservationKey
	UsageProof
}

// putObservation puts an observation, and the calls that it requests in the place of those that it requested before. It
// lasts until its end.
func putObservation(s Statements, o, old *ObservationRow, refused *error) {
	s.Name(NameTrace, o.TraceID)
	s.Name(NameSession, o.Owner, o.Session)
	s.Name(NameCall, o.Call)
	s.Name(NameCall, o.Calls...)
	row := reachingRow{*o, Reach(o.Start, o.End)}
	row.Until = o.End
	reachingTable.put(s, &row, old == nil, refused)
	if old != nil {
		for _, call := range old.Calls {
			s.Exec(`DELETE FROM tool_call_requests
 WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`, call, old.Start, old.TraceID, old.Source)
		}
	}
	for _, call := range o.Calls {
		s.Exec(`INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?, ?, ?, ?)
 ON CONFLICT DO NOTHING`, call, o.Start, o.TraceID, o.Source)
	}
}

// attribute changes what became of a stored observation, except for its UsageProof.
func (r *rows) attribute(o *Observation, attributed *Attribution) {
	row := attributionRow{*attributed, keyOf(o)}
	r.later = append(r.later, func(s Statements) { attributionTable.put(s, &row, false, nil) })
}

// prove changes what a stored observation proves.
func (r *rows) prove(o *Observation, p UsageProof) {
	row := proofRow{keyOf(o), p}
	r.later = append(r.later, func(s Statements) { proofTable.put(s, &row, false, nil) })
}

// setOwner changes the owner of the observations of a trace; where there is no trace, of the one with the source.
func (r *rows) setOwner(trace, source, owner string) {
	r.later = append(r.later, func(s Statements) {
		s.Name(NameTrace, trace)
		s.Name(NameSession, owner)
		if trace != "" {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = ?`, owner, trace)
		} else {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = '' AND source = ?`, owner, source)
		}
	})
}

// setUntil changes until when an observation lasts.
func (r *rows) setUntil(at spanTime) {
	r.later = append(r.later, func(s Statements) {
		s.Exec(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`,
			at.Until, Reach(at.Start, at.Until), at.TraceID, at.Source)
	})
}

// mark marks an owner, or deletes its mark where nothing was added.
func (r *rows) mark(u UnbuiltTurns) {
	r.later = append(r.later, func(s Statements) {
		if s.Exec(unbuiltTable.Delete, u.Owner); u.Added > 0 {
			s.Put(nil, unbuiltTable.InsertNew, func(b Binder) { unbuiltTable.Bind(b, &u) })
		}
	})
}

// unbuilt finds the mark of an owner; if that is "", the mark of the first owner after another.
type unbuilt struct {
	owner, after string

	marked *UnbuiltTurns
}

func (q *unbuilt) add(s Statements) {
	s.Name(NameSession, q.owner)
	s.Select(`SELECT `+unbuiltTable.List+` FROM unbuilt_turns
 WHERE owner = ?1 OR ?1 = '' AND owner > ?2 ORDER BY owner LIMIT 1`, func(row Row) error {
		q.marked = new(UnbuiltTurns)
		return unbuiltTable.Scan(row, q.marked)
	}, q.owner, q.after)
}

// traceOwner has the session under which the observations of a trace are kept, "" if it has none because the SDK
// reports the trace. Own is the trace's own session.
type traceOwner struct {
	Trace string `column:"trace_id"`
	Owner string `column:"owner"`
	Own   string `column:"default_session"`
}

// ownerOfTrace adds the statement that reads the owner of a trace. found is not called for a trace without
// observations.
func ownerOfTrace(s Statements, trace string, found func(traceOwner)) {
	s.Name(NameTrace, trace)
	s.Select(`SELECT `+ownerTable.List+` FROM observations WHERE trace_id = ? ORDER BY source LIMIT 1`,
		func(row Row) error {
			var t traceOwner
			err := ownerTable.Scan(row, &t)
			found(t)
			return err
		}, trace)
}

// traced is what decides on the owner of a trace.
type traced struct {
	traceOwner
	// named is the session that the observations of the trace name by the best key, of the least rank, then
	// the earliest, then the least; "" if none names one.
	named string
	// sessions are those of which the trace has spans of DialectSDK, in order.
	sessions []string
	// orphans are the tool calls, and the calls of models, that have no parent, by (start, source). They may
	// be left out if there is a name, or a session.
	orphans []orphanCall
}

// orphanCall is a tool call, or a call of a model, that has no parent.
type orphanCall struct {
	Call  string `column:"orphan_call"`
	Start int64  `column:"start_nano"`
	End   int64  `column:"end_nano"`
}

func (q *traced) add(s Statements) {
	trace := q.Trace
	ownerOfTrace(s, trace, func(t traceOwner) { q.traceOwner = t })
	s.Select(`SELECT declared_session FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ?1 AND declared_session IS NOT NULL ORDER BY declared_rank, start_nano, declared_session LIMIT 1`,
		func(row Row) error {
			q.named = row.ColumnText(0)
			return nil
		}, trace)
	s.Select(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = ?1
  AND l.dialect = '`+DialectSDK+`') ORDER BY session_id`, appendText(&q.sessions), trace)
	s.Select(`SELECT `+orphanTable.List+` FROM observations INDEXED BY idx_observations_orphan_trace
 WHERE trace_id = ?1 AND orphan_call IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_declared
  WHERE trace_id = ?1 AND declared_session IS NOT NULL) ORDER BY start_nano, source`,
		orphanTable.AppendTo(&q.orphans), trace)
}

func appendText(all *[]string) func(Row) error {
	return func(row Row) error {
		*all = append(*all, row.ColumnText(0))
		return nil
	}
}

// ofTrace returns the observations of a trace, without their data, by source.
func (r *rows) ofTrace(trace string) (all []ObservationRow) {
	r.ask(func(s Statements) {
		s.Name(NameTrace, trace)
		s.Select(`SELECT `+ObservationTable.Prefixed("", "data")+` FROM observations
 WHERE trace_id = ? ORDER BY source`, ObservationTable.AppendTo(&all), trace)
	})
	return all
}

// thread is a session that a dialect names.
type thread struct{ session, dialect string }

// threadOwner is where the observations of a thread are kept: under the owner of the first, by (start, trace, source),
// that names it in a trace of another owner. withRecords also reads those outside of any trace with an owner other than
// that, or than the session if there is none; by source, without their data.
type threadOwner struct {
	thread
	withRecords bool

	owner   string
	ok      bool
	records []ObservationRow
}

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

func (q *threadOwner) add(s Statements) {
	s.Name(NameSession, q.session)
	s.Select(guestsOwner, func(row Row) error {
		q.owner, q.ok = row.ColumnText(0), true
		return nil
	}, q.session, q.dialect)
	if q.withRecords {
		s.Select(recordsQuery, ObservationTable.AppendTo(&q.records), q.session, q.dialect)
	}
}

// requesterOf is the last observation that requested the call by the time, but no longer than callLife before,
// of those that have an owner and are not of the trace; by (start descending, trace, source). If until is
// not 0, it is one of those that ended then or later, and first of those whose trace some key names a session for.
type requesterOf struct {
	call, notTrace string
	by, until      int64

	// traceID and owner are those of the observation.
	found          bool
	traceID, owner string
}

// The requester of a call of a tool is found in the order of the index, however often an id was used. CROSS JOIN keeps
// SQLite from another order.
const requestedCalls = `SELECT c.trace_id, o.owner FROM tool_call_requests c CROSS JOIN observations o
 WHERE o.trace_id = c.trace_id AND o.source = c.source AND c.call_id = ?1 AND c.start_nano <= ?2
 AND c.start_nano > ?3 AND c.trace_id <> ?4 AND (c.trace_id <> '' OR o.owner <> '')`

func (q *requesterOf) add(s Statements) {
	query, args := ` ORDER BY`, []any{q.call, q.by, q.by - callLife, q.notTrace}
	if q.until != 0 {
		query, args = ` AND o.end_nano >= ?5 ORDER BY o.owner = o.default_session,`, append(args, q.until)
	}
	s.Name(NameCall, q.call)
	s.Select(requestedCalls+query+` c.start_nano DESC, c.trace_id, c.source LIMIT 1`, func(row Row) error {
		q.found, q.traceID, q.owner = true, row.ColumnText(0), row.ColumnText(1)
		return nil
	}, args...)
}

// orphanTraces are the traces with a tool call of that id that has no parent, and for which one that was requested
// at the time may be the requester, in order: those that begin from then on, until callLife is over or observations
// of two other traces have requested it since. If until is not 0, they are those that begin by then instead,
// no matter which others have requested it since.
type orphanTraces struct {
	asked

	traces []string
}

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

func (q *orphanTraces) add(s Statements) {
	query, before := orphansUntilAsked, q.at+callLife
	if q.until != 0 {
		query, before = orphansQuery+`?3 ORDER BY trace_id`, q.until+1
	}
	s.Name(NameCall, q.call)
	s.Select(query, appendText(&q.traces), q.call, q.at, before)
}

// sessionAttrs is what an attributed observation reports of its session's row.
type sessionAttrs struct {
	Start        int64          `column:"start_nano"`
	End          int64          `column:"end_nano"`
	SessionAttrs *SessionChange `column:"session_attrs_json"`
}

// sourcesOf returns what observations that are attributed to a session report of it, and whether the session has spans
// of DialectSDK.
func (r *rows) sourcesOf(sessionID string) (all []sessionAttrs, sdk bool) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(`SELECT `+attrsTable.List+` FROM observations INDEXED BY idx_observations_spans
 WHERE session_id = ?1`, attrsTable.AppendTo(&all), sessionID)
		s.Select(`SELECT 1 FROM span_refs WHERE session_id = ? AND dialect = '`+DialectSDK+`' LIMIT 1`,
			func(Row) error {
				sdk = true
				return nil
			}, sessionID)
	})
	return all, sdk
}

// spanTime has the times of an observation whose source is a span of its trace. LastBelow is when the last of those
// that are below it and do not open a turn begins, 0 where there is none.
type spanTime struct {
	ObservationKey
	Start     int64 `column:"start_nano"`
	End       int64 `column:"end_nano"`
	Until     int64 `column:"until_nano"`
	LastBelow int64 `column:"last_below"`
}

// readTimes reads the times of observations whose sources are spans of their traces.
func readTimes(keys []ObservationKey, times *[]spanTime) query {
	return func(s Statements) {
		for _, key := range keys {
			s.Name(NameTrace, key.TraceID)
			s.Select(s.Dialect().SpanTimes, spanTimeTable.AppendTo(times), key.TraceID, key.Source)
		}
	}
}

// opening looks for where a window may begin or end: start is the last time before at when an observation that opens
// a turn begins if before is set, and else the first at at or after it. across bounds the observations that begin
// before start and last until after it, nil if there are none. The cost depends on how many those are, not on how
// many come before or after.
type opening struct {
	owner  string
	at     int64
	before bool

	ok     bool
	start  int64
	across *timeRange
}

func (q *opening) add(s Statements) {
	which, condition := "min", ">="
	if q.before {
		which, condition = "max", "<"
	}
	s.Name(NameSession, q.owner)
	query := `SELECT ` + which + `(start_nano) AS at FROM observations INDEXED BY idx_observations_opens
 WHERE ` + s.Dialect().Opens + ` AND owner = ?1 AND start_nano ` + condition + ` ?2`
	s.Select(query, func(row Row) error {
		q.start, q.ok = row.ColumnInt64(0), !row.ColumnIsNull(0)
		return nil
	}, q.owner, q.at)
	s.Select(`WITH opening AS MATERIALIZED (`+query+`)
 SELECT min(o.start_nano), max(o.until_nano) FROM opening CROSS JOIN `+across("opening.at"), scanRange(&q.across),
		q.owner, q.at)
}

// scanRange reads a row whose two columns are NULL or the bounds of a time.
func scanRange(found **timeRange) func(Row) error {
	return func(row Row) error {
		if !row.ColumnIsNull(0) {
			*found = &timeRange{row.ColumnInt64(0), row.ColumnInt64(1)}
		}
		return nil
	}
}

// across joins the observations o of the owner ?1 that begin before a time and last until after it. One whose reach is
// n is shorter than 2ⁿ nanoseconds and began no longer than that before the time: each reach is looked for by itself,
// so few are looked at wherever in a long session the time is. See [Reach].
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

// inWindow are the observations of an owner that begin in a range of time.
const inWindow = ` FROM observations INDEXED BY idx_observations_owner_start
 WHERE owner = ?1 AND start_nano >= ?2 AND start_nano < ?3`

// addSize counts the observations of a window, up to a limit, and finds its answer: the message to which the last of
// them that is attributed to a message of the owner is, "" if there is none.
func (w *window) addSize(s Statements) {
	s.Name(NameSession, w.owner)
	s.Select(`SELECT count(*) FROM (SELECT 1`+inWindow+` LIMIT ?4) AS w`, func(row Row) error {
		w.count = row.ColumnInt(0)
		return nil
	}, w.owner, w.from, w.to, rebuiltAtOnce+1)
	s.Select(`SELECT message_id`+inWindow+` AND message_id IS NOT NULL AND session_id = ?1
 ORDER BY start_nano DESC LIMIT 1`, func(row Row) error {
		w.answer = row.ColumnText(0)
		return nil
	}, w.owner, w.from, w.to)
}

// addRows reads the observations of a window, with their TraceRank: first the ranks of the traces.
func (w *window) addRows(s Statements) {
	s.Name(NameSession, w.owner)
	ranks := make(map[string]int)
	s.Select(`SELECT t.trace_id, (
 SELECT min(d.declared_rank) FROM observations d INDEXED BY idx_observations_declared
 WHERE d.trace_id = t.trace_id AND d.declared_session IS NOT NULL)
 FROM (SELECT DISTINCT trace_id`+inWindow+`) t`, func(row Row) error {
		if !row.ColumnIsNull(1) {
			ranks[row.ColumnText(0)] = row.ColumnInt(1)
		}
		return nil
	}, w.owner, w.from, w.to)
	s.Select(`SELECT `+ObservationTable.List+inWindow, func(row Row) error {
		var o ObservationRow
		err := ObservationTable.Scan(row, &o)
		if o.TraceRank = o.Rank; o.TraceID != "" {
			rank, named := ranks[o.TraceID]
			if !named {
				rank = NoRank
			}
			o.TraceRank = rank
		}
		w.rows = append(w.rows, o.Observation)
		return err
	}, w.owner, w.from, w.to)
}

// proven is what the observations of an owner prove, by Counter, without those of which nothing is proven. The cost
// does not depend on how many prove the same. counted, if withCounted is set, bounds the observations with a
// UsageProof that has a Counter.
type proven struct {
	owner       string
	withCounted bool

	proofs  []UsageProof
	counted *timeRange
}

// add goes from each counter and proof to the next one in the index. An engine that distributes rows over nodes
// has no recursive queries, and reads them all.
func (q *proven) add(s Statements) {
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
	s.Name(NameSession, q.owner)
	s.Select(query, func(row Row) error {
		p := UsageProof{Counter: row.ColumnText(0), Proof: row.ColumnInt64(1)}
		switch last := len(q.proofs) - 1; {
		case p.Proof == 0:
		case last >= 0 && q.proofs[last].Counter == p.Counter:
			q.proofs[last].Proof |= p.Proof
		default:
			q.proofs = append(q.proofs, p)
		}
		return nil
	}, q.owner)
	if q.withCounted {
		s.Select(`SELECT min(start_nano), max(end_nano)`+counted, scanRange(&q.counted), q.owner)
	}
}

// callLife is how long after the model asked for it a tool may run: a day, for a
// person may have to approve it. Ids of calls are not unique for longer.
const callLife = 24 * 60 * 60 * 1_000_000_000
