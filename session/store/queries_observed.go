package store

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/session"
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

// attributionRow is the attribution of the observation with a key.
type attributionRow struct {
	Attribution
	ObservationKey
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
	reachingTable().put(s, &row, old == nil, refused)
	if old != nil {
		for _, call := range old.Calls {
			s.Exec(`DELETE FROM tool_call_requests
 WHERE call_id = ? AND start_nano = ? AND trace_id = ? AND source = ?`, call, old.Start, old.TraceID, old.Source)
		}
	}
	for _, call := range o.Calls {
		s.Exec(insertRequest, call, o.Start, o.TraceID, o.Source)
	}
}

// request notes that a span of the SDK requested a call, as an observation does.
func (r *rows) request(call string, l *SpanRef) {
	r.later = append(r.later, func(s Statements) {
		s.Name(NameCall, call)
		s.Exec(insertRequest, call, l.StartNano, l.TraceID, l.SpanID)
	})
}

const insertRequest = `INSERT INTO tool_call_requests(call_id, start_nano, trace_id, source) VALUES (?, ?, ?, ?)
 ON CONFLICT DO NOTHING`

// attribute changes what became of a stored observation, except for its UsageProof.
func (r *rows) attribute(o *Observation, attributed *Attribution) {
	row := attributionRow{*attributed, keyOf(o)}
	r.later = append(r.later, func(s Statements) { attributionTable().put(s, &row, false, nil) })
}

// prove changes what a stored observation proves.
func (r *rows) prove(o *Observation, p UsageProof) {
	var counter any
	if p.Counter != "" {
		counter = p.Counter
	}
	r.exec(`UPDATE observations SET usage_counter = ?, usage_proof = ? WHERE trace_id = ? AND source = ?`,
		counter, p.Proof, o.TraceID, o.Source)
}

// setOwner changes the owner of the observations of a trace; where there is no trace, of the one with the source.
func (r *rows) setOwner(trace, source, owner string) {
	r.later = append(r.later, func(s Statements) {
		s.Name(NameTrace, trace)
		s.Name(NameSession, owner)
		if trace != "" {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = ?`, owner, trace)
			if owner == "" { // what resumes shows when it is assembled, and may have been or not
				s.Exec(`UPDATE observations SET opens = ? WHERE trace_id = ? AND opens = ?`, Opens, trace, Resumes)
			}
		} else {
			s.Exec(`UPDATE observations SET owner = ? WHERE trace_id = '' AND source = ?`, owner, source)
		}
	})
}

// setUntil changes until when an observation lasts.
func (r *rows) setUntil(at spanTime) {
	r.exec(`UPDATE observations SET until_nano = ?, reach = ? WHERE trace_id = ? AND source = ?`,
		at.Until, Reach(at.Start, at.Until), at.TraceID, at.Source)
}

// mark marks an owner, or deletes its mark where nothing was added.
func (r *rows) mark(u UnbuiltTurns) {
	r.later = append(r.later, func(s Statements) {
		if s.Exec(unbuiltTable().Delete, u.Owner); u.Added > 0 {
			s.Exec(unbuiltTable().InsertNew, unbuiltTable().Values(&u)...)
		}
	})
}

// readMark returns a query for the mark of the owner; of one without an id, for that of the first owner after another.
func (w *ownerWork) readMark(after string) query {
	return func(s Statements) {
		s.Name(NameSession, w.id)
		s.Select(`SELECT `+unbuiltTable().List+` FROM unbuilt_turns
 WHERE owner = ?1 OR ?1 = '' AND owner > ?2 ORDER BY owner LIMIT 1`, func(row Row) error {
			w.mark = new(UnbuiltTurns)
			return unbuiltTable().Scan(row, w.mark)
		}, w.id, after)
	}
}

// readTrace returns queries for where the observations of a trace are kept, unless it is known.
func (o *observer) readTrace(id string) []query {
	if id == "" || o.traces[id] != nil {
		return nil
	}
	t := &traceWork{id: id}
	o.traces[id] = t
	return []query{func(s Statements) {
		s.Name(NameTrace, id)
		s.Select(`SELECT owner, default_session FROM observations WHERE trace_id = ? ORDER BY source LIMIT 1`,
			func(row Row) error {
				t.stored, t.owner, t.own = true, row.ColumnText(0), row.ColumnText(1)
				return nil
			}, id)
	}}
}

// orphanCall is a tool call, or a call of a model, that has no parent.
type orphanCall struct {
	Call  string `column:"orphan_call"`
	Start int64  `column:"start_nano"`
	End   int64  `column:"end_nano"`
}

// readIdentity reads what decides on the owner of the trace.
func (t *traceWork) readIdentity(s Statements) {
	t.read = true
	s.Name(NameTrace, t.id)
	s.Select(`SELECT declared_session FROM observations INDEXED BY idx_observations_declared
 WHERE trace_id = ?1 AND declared_session IS NOT NULL ORDER BY declared_rank, start_nano, declared_session LIMIT 1`,
		scanText(&t.named), t.id)
	s.Select(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 AND EXISTS (
 SELECT 1 FROM span_refs l WHERE l.session_id = t.session_id AND l.trace_id = ?1
  AND l.dialect = '`+DialectSDK+`') ORDER BY session_id`, appendText(&t.sessions), t.id)
	s.Select(`SELECT `+orphanTable().List+` FROM observations INDEXED BY idx_observations_orphan_trace
 WHERE trace_id = ?1 AND orphan_call IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM observations INDEXED BY idx_observations_declared
  WHERE trace_id = ?1 AND declared_session IS NOT NULL) ORDER BY start_nano, source`,
		orphanTable().AppendTo(&t.orphans), t.id)
}

func appendText(all *[]string) func(Row) error {
	return func(row Row) error {
		*all = append(*all, row.ColumnText(0))
		return nil
	}
}

// ofTrace returns the observations of a trace, without their data, by source.
func (r *rows) ofTrace(trace string) []ObservationRow {
	return selectRows(r, ObservationTable(), `SELECT `+ObservationTable().Prefixed("", "data")+` FROM observations
 WHERE trace_id = ? ORDER BY source`, NameTrace, trace)
}

// thread is a session that a dialect names.
type thread struct{ session, dialect string }

// guests are the observations of a dialect that name a session and are kept with another.
const guests = ` FROM observations INDEXED BY idx_observations_guest
 WHERE declared_session = ?1 AND declared_session <> owner AND dialect = ?2`

// recordsQuery selects the owner of a thread first, so that the observations of the session itself are read only if it
// is another.
var recordsQuery = sync.OnceValue(func() string {
	return `WITH main AS MATERIALIZED (SELECT coalesce((
 SELECT owner` + guests + ` AND trace_id <> '' AND owner <> ''
 ORDER BY start_nano, trace_id, source LIMIT 1), ?1) AS thread_owner)
 SELECT ` + ObservationTable().Prefixed("", "data") + `, thread_owner
 FROM main CROSS JOIN (SELECT *` + guests + ` AND trace_id = '') AS guests WHERE owner <> thread_owner
 UNION ALL SELECT ` + ObservationTable().Prefixed("", "data") + `, thread_owner
 FROM main CROSS JOIN observations INDEXED BY idx_observations_owner_start WHERE thread_owner <> ?1
 AND owner = ?1 AND declared_session = ?1 AND trace_id = '' AND dialect = ?2 ORDER BY source`
})

// ofThread returns where the observations of a thread belong: under the owner of the first, by (start, trace, source),
// that names it in a trace of another owner, or else with the session itself. records are those outside of any trace
// that are kept elsewhere; by source, without their data.
func (r *rows) ofThread(t thread) (owner string, records []ObservationRow) {
	r.ask(func(s Statements) {
		s.Name(NameSession, t.session)
		s.Select(recordsQuery(), func(row Row) error {
			var record ObservationRow
			err := ObservationTable().Scan(row, &record)
			owner, records = row.ColumnText(len(ObservationTable().Columns)), append(records, record)
			return err
		}, t.session, t.dialect)
	})
	return owner, records
}

// requester is an observation that requested a call.
type requester struct{ traceID, owner string }

// The requester of a call of a tool is found in the order of the index, however often an id was used. CROSS JOIN keeps
// SQLite from another order.
const requestedCalls = `SELECT c.trace_id, o.owner FROM tool_call_requests c CROSS JOIN observations o
 WHERE o.trace_id = c.trace_id AND o.source = c.source AND c.call_id = ?1 AND c.start_nano <= ?2
 AND c.start_nano > ?3 AND c.trace_id <> ?4 AND (c.trace_id <> '' OR o.owner <> '')`

// readRequester finds the last observation that requested an orphan of a trace by when it began, but no longer than
// callLife before, of those that have an owner and are not of the trace; by (start descending, trace, source). The call
// of a model was requested while that lasted, and first by those whose trace some key names a session for.
func readRequester(trace string, orphan *orphanCall, found **requester) query {
	return func(s Statements) {
		query, by := ` ORDER BY`, orphan.Start
		args := []any{orphan.Call, by, by - callLife, trace}
		if strings.HasPrefix(orphan.Call, ModelCallPrefix) {
			by += ClockTick
			query = ` AND o.end_nano >= ?5 ORDER BY o.owner = o.default_session,`
			args = []any{orphan.Call, by, by - callLife, trace, orphan.End - ClockTick}
		}
		s.Name(NameCall, orphan.Call)
		s.Select(requestedCalls+query+` c.start_nano DESC, c.trace_id, c.source LIMIT 1`, func(row Row) error {
			*found = &requester{row.ColumnText(0), row.ColumnText(1)}
			return nil
		}, args...)
	}
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

// orphansOf returns the traces with a call that has no parent and was asked for: those that begin from when it was
// asked for on, until callLife is over or observations of two other traces have requested it since. Those of the call
// of a model begin while that lasts, no matter which trace has requested it since.
func (o *observer) orphansOf(calls []asked) (traces []string) {
	var queries []query
	for _, call := range calls {
		query, before := orphansUntilAsked, call.at+callLife
		if call.until != 0 {
			query, before = orphansQuery+`?3 ORDER BY trace_id`, call.until+1
		}
		queries = append(queries, func(s Statements) {
			s.Name(NameCall, call.call)
			s.Select(query, appendText(&traces), call.call, call.at, before)
		})
	}
	o.rows.ask(queries...)
	return traces
}

// sourcesOf returns what observations that are attributed to a session report of it, and whether the session has spans
// of DialectSDK. Evaluations are about it and report nothing of it.
func (r *rows) sourcesOf(sessionID string) (all []sessionAttrs, sdk bool) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(`SELECT `+attrsTable().List+` FROM observations INDEXED BY idx_observations_spans
 WHERE session_id = ?1`, attrsTable().AppendTo(&all), sessionID)
		s.Select(`SELECT 1 FROM span_refs WHERE session_id = ? AND dialect = '`+DialectSDK+`' LIMIT 1`,
			func(Row) error {
				sdk = true
				return nil
			}, sessionID)
	})
	return slices.DeleteFunc(all, func(a sessionAttrs) bool { return a.Kind == KindEvaluation }), sdk
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

// readTimes reads the times of the observation whose source is a span.
func readTimes(key ObservationKey, times *[]spanTime) query {
	return func(s Statements) {
		s.Name(NameTrace, key.TraceID)
		s.Select(s.Dialect().SpanTimes, spanTimeTable().AppendTo(times), key.TraceID, key.Source)
	}
}

// opening returns the last time before at when an observation of an owner opens a turn, if before is set, and else the
// first one from at on. across is set to the bounds of the observations that begin before that and last until after it,
// if there are any. The cost depends on how many those are, not on how many come before or after.
func (r *rows) opening(owner string, at int64, before bool, across **timeRange) (start int64, ok bool) {
	r.ask(func(s Statements) {
		which, condition := "min", ">="
		if before {
			which, condition = "max", "<"
		}
		query := `SELECT ` + which + `(start_nano) AS at FROM observations INDEXED BY idx_observations_opens
 WHERE ` + s.Dialect().Opens + ` AND owner = ?1 AND start_nano ` + condition + ` ?2`
		s.Name(NameSession, owner)
		s.Select(query, func(row Row) error {
			start, ok = row.ColumnInt64(0), !row.ColumnIsNull(0)
			return nil
		}, owner, at)
		s.Select(`WITH opening AS MATERIALIZED (`+query+`)
 SELECT min(o.start_nano), max(o.until_nano) FROM opening CROSS JOIN `+reachingAcross, scanRange(across), owner, at)
	})
	return start, ok
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

// reachingAcross joins the observations o of the owner ?1 that begin before opening.at and last until after it. One
// whose reach is n is shorter than 2ⁿ nanoseconds and began no longer than that before the time: each reach is looked
// for by itself, so few are looked at wherever in a long session the time is. See [Reach].
const reachingAcross = `(VALUES (2), (4), (6), (8), (10), (12), (14), (16), (18), (20), (22), (24), (26), (28), (30),
 (32), (34), (36), (38), (40), (42), (44), (46), (48), (50), (52), (54), (56), (58), (60), (62)) AS r
 CROSS JOIN observations o INDEXED BY idx_observations_across
 WHERE o.owner = ?1 AND o.reach = r.column1 AND o.reach > 0 AND o.start_nano < opening.at
 AND o.start_nano > opening.at - (CAST(1 AS BIGINT) << r.column1) AND o.until_nano > opening.at`

// inWindow are the observations of an owner that begin in a range of time.
const inWindow = ` FROM observations o INDEXED BY idx_observations_owner_start
 WHERE owner = ?1 AND start_nano >= ?2 AND start_nano < ?3`

// size counts the observations of a window, up to a limit, and finds its answer: the message to which the last of
// them that is attributed to a message of the owner is, "" if there is none.
func (w *window) size(r *rows) (count int, answer string) {
	r.ask(func(s Statements) {
		s.Name(NameSession, w.owner)
		s.Select(`SELECT count(*) FROM (SELECT 1`+inWindow+` LIMIT ?4) AS w`, func(row Row) error {
			count = row.ColumnInt(0)
			return nil
		}, w.owner, w.from, w.to, rebuiltAtOnce+1)
		s.Select(`SELECT message_id`+inWindow+` AND message_id IS NOT NULL AND session_id = ?1
 ORDER BY start_nano DESC LIMIT 1`, scanText(&answer), w.owner, w.from, w.to)
	})
	return count, answer
}

// read returns the observations of a window, with their TraceRank.
func (w *window) read(r *rows) (all []Observation) {
	r.ask(func(s Statements) {
		s.Name(NameSession, w.owner)
		s.Select(`SELECT `+ObservationTable().Prefixed("o.")+`, (
 SELECT min(d.declared_rank) FROM observations d INDEXED BY idx_observations_declared
 WHERE d.trace_id = o.trace_id AND d.declared_session IS NOT NULL)`+inWindow, func(row Row) error {
			var o ObservationRow
			err := ObservationTable().Scan(row, &o)
			if o.isEvaluation() {
				return err // it is about a turn, and no part of it
			}
			switch rank := len(ObservationTable().Columns); {
			case o.TraceID == "":
				o.TraceRank = o.Rank
			case row.ColumnIsNull(rank):
				o.TraceRank = NoRank
			default:
				o.TraceRank = row.ColumnInt(rank)
			}
			all = append(all, o.Observation)
			return err
		}, w.owner, w.from, w.to)
	})
	return all
}

const counted = ` FROM observations INDEXED BY idx_observations_usage_proof
 WHERE owner = ?1 AND usage_counter IS NOT NULL`

// readCounted reads the bounds of the observations of an owner with a UsageProof that has a Counter.
func readCounted(owner string, bounds **timeRange) query {
	return func(s Statements) {
		s.Select(`SELECT min(start_nano), max(end_nano)`+counted, scanRange(bounds), owner)
	}
}

// readProofs reads what the observations of the owner prove, by Counter, without those of which nothing is proven.
func (w *ownerWork) readProofs(s Statements) {
	w.proofs = nil
	s.Name(NameSession, w.id)
	s.Select(`SELECT DISTINCT usage_counter, usage_proof`+counted+` AND usage_proof > 0
 ORDER BY usage_counter, usage_proof`, func(row Row) error {
		p := UsageProof{Counter: row.ColumnText(0), Proof: row.ColumnInt64(1)}
		if last := len(w.proofs) - 1; last >= 0 && w.proofs[last].Counter == p.Counter {
			w.proofs[last].Proof |= p.Proof
		} else {
			w.proofs = append(w.proofs, p)
		}
		return nil
	}, w.id)
}

// callLife is how long after the model asked for it a tool may run: a day, for a
// person may have to approve it. Ids of calls are not unique for longer.
const callLife = 24 * 60 * 60 * 1_000_000_000

// evaluations returns the evaluations that are about something, in order.
func (r *rows) evaluations(about map[string]bool) (all []Observation) {
	if len(about) == 0 {
		return nil
	}
	known := make(map[ObservationKey]bool)
	r.ask(func(s Statements) {
		keys := slices.Sorted(maps.Keys(about))
		s.Name(NameCall, keys...)
		s.SelectKeys(`SELECT `+ObservationTable().Prefixed("o.")+` FROM tool_call_requests c CROSS JOIN observations o
 WHERE c.call_id = ?1 AND o.trace_id = c.trace_id AND o.source = c.source`, func(row Row) error {
			var o ObservationRow
			err := ObservationTable().Scan(row, &o)
			if !known[keyOfObservation(&o)] {
				known[keyOfObservation(&o)] = true
				all = append(all, o.Observation)
			}
			return err
		}, keys)
	})
	all = session.SortedRows(all, compareObservations)
	return all
}

// responses returns the spans of the model calls with a response id, at most some.
func (r *rows) responses(id string) []ObservationKey {
	return selectRows(r, requestTable(), `SELECT `+requestTable().List+` FROM tool_call_requests WHERE call_id = ?
 ORDER BY start_nano, trace_id, source LIMIT 64`, NameCall, ResponsePrefix+id)
}

// attributedSpan is what a span came to.
type attributedSpan struct {
	SessionID    string   `column:"session_id,omitempty"`
	MessageID    string   `column:"message_id,omitempty"`
	PartID       string   `column:"part_id,omitempty"`
	ParentSpanID string   `column:"parent_span_id,omitempty"`
	Kind         string   `column:"kind,omitempty"`
	Others       []string `column:"others_json"`
}

// attributedQuery selects what a span, or a record, of the trace ?1 came to: by itself, by what the SDK reports, or by
// another record that was emitted in it.
var attributedQuery = sync.OnceValue(func() string {
	return `SELECT ` + attributedTable().List + `, 1 AS way, '' AS place FROM observations
  WHERE trace_id = ?1 AND source = ?2
 UNION ALL SELECT ` + attributedTable().Prefixed("", "others_json") + `, 2, session_id FROM span_refs
  WHERE span_id = ?2 AND trace_id = ?1 AND session_id IN (SELECT session_id FROM session_traces WHERE trace_id = ?1)
 UNION ALL SELECT ` + attributedTable().List + `, 3, source FROM observations
  WHERE trace_id = ?1 AND span_id = ?2 AND source <> ?2 AND message_id IS NOT NULL
 ORDER BY way, place LIMIT 1`
})

// sessionOfTrace returns the session of the trace of an evaluation: its owner, or else the first.
func (r *rows) sessionOfTrace(e *Observation) (id string) {
	if e.TraceID == "" {
		return ""
	}
	r.ask(func(s Statements) {
		s.Name(NameTrace, e.TraceID)
		s.Select(`SELECT session_id FROM session_traces t WHERE trace_id = ?1 ORDER BY NOT EXISTS (
 SELECT 1 FROM observations o WHERE o.trace_id = ?1 AND o.source = ?2 AND o.owner = t.session_id), session_id LIMIT 1`,
			scanText(&id), e.TraceID, e.Source)
	})
	return id
}
