package store

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// window is a part of an owner's time, in Unix nanoseconds. An owner is the session
// under which a trace's observations are kept together; those of sub-agents are
// kept with their parent's.
type timeRange struct{ from, to int64 }

// source identifies an observation.
type source struct{ traceID, source string }

// asked is that the model asked for a tool call, and when.
type asked struct {
	call string
	at   int64
	// until is when the call of a model ended, 0 of a tool's.
	until int64
}

// askedBy is that an observation asked for a call.
func askedBy(call string, n *Observation) asked {
	if strings.HasPrefix(call, ModelCallPrefix) {
		return asked{call, n.Start - ClockTick, n.End}
	}
	return asked{call: call, at: n.Start}
}

// observer is the part of an Apply that stores observations and tells their
// sessions again.
type observer struct {
	*applier
	assemble Assembler
	// owners are the owners of the traces of the batch, best the keys by which their
	// observations in the batch name sessions.
	owners map[string]string
	best   map[string]*Observation
	// told are the sessions of which the SDK's spans in the batch tell, by trace.
	reported map[string][]string
	// unsettled are traces whose owner may be another, asked the calls that the model
	// asked for, or no longer did, where that is news, and orphans the traces which that may concern.
	unsettled map[string]bool
	asked     []asked
	orphans   map[asked]*OrphanTraces
	// traces are those that were looked at when the batch's observations were stored.
	traces map[string]*Trace
	// spans are those that may last longer or shorter than before.
	spans map[ObservationKey]bool
	// fresh are observations that were not stored before the batch, pending those of
	// the batch of which nothing tells.
	fresh, pending map[source]bool
	// changed are the windows that changed, by trace; one of no trace has an owner
	// of its own.
	changed map[string][]timeRange
	touched map[string][]timeRange
	// rebuilt are owners where more has changed than that observations were added.
	rebuilt map[string]bool
	// proofs are what the observations of owners proved before the batch, unread those of them that are not read yet.
	// proofNews has the owners whose observations may prove something else now.
	proofs    map[string]*Proven
	unread    []Query
	proofNews map[string]bool
	// threads are the sessions that observations of the batch's Threads name, or traces that
	// moved, by the dialect.
	threads  map[thread]bool
	isThread func(dialect string) bool
	// moved are observations that left an owner: what was told of them there goes.
	moved []Observation
}

// observe stores the batch's observations and adds what they come to to the work
// on sessions.
func (a *applier) observe(b *Batch) error {
	if b.Assemble == nil {
		if len(b.Observations) > 0 {
			return fmt.Errorf("store observations: the batch has no Assemble")
		}
		return nil
	}
	o := observer{
		applier: a, assemble: b.Assemble, owners: make(map[string]string), best: make(map[string]*Observation),
		reported: make(map[string][]string), unsettled: make(map[string]bool), orphans: make(map[asked]*OrphanTraces),
		traces: make(map[string]*Trace), spans: make(map[ObservationKey]bool), fresh: make(map[source]bool),
		pending: make(map[source]bool), changed: make(map[string][]timeRange), touched: make(map[string][]timeRange),
		rebuilt: make(map[string]bool), proofs: make(map[string]*Proven), proofNews: make(map[string]bool),
		threads: make(map[thread]bool), isThread: b.Threads,
	}
	o.reportsOf(b.SpanRefs)
	for i := range b.Observations {
		if n := &b.Observations[i]; n.Session != "" && (o.best[n.TraceID] == nil || compareKeys(n, o.best[n.TraceID]) < 0) {
			o.best[n.TraceID] = n
		}
	}
	for i := range b.Observations {
		changed, err := o.put(&b.Observations[i])
		if err := a.wrote(changed, err); err != nil {
			return err
		}
	}
	if err := o.tie(); err != nil {
		return err
	}
	if err := o.resolveOwners(); err != nil {
		return err
	}
	if err := o.resolveThreads(); err != nil {
		return err
	}
	for trace, ranges := range o.changed {
		o.touch(o.owners[trace], ranges...)
	}
	return o.rebuildAll()
}

// compareKeys orders observations by how well they name a session.
func compareKeys(x, y *Observation) int {
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Start, y.Start), strings.Compare(x.Session, y.Session))
}

// reportsOf notes the traces that the SDK's spans are of.
func (o *observer) reportsOf(links []SpanRef) {
	for i := range links {
		l := &links[i]
		if l.TraceID == "" || l.Dialect != DialectSDK || slices.Contains(o.reported[l.TraceID], l.SessionID) {
			continue
		}
		if stored, ok := o.stored[l.TraceID]; ok && o.reported[l.TraceID] == nil {
			o.owners[l.TraceID], o.unsettled[l.TraceID] = stored.Owner, true
		}
		o.reported[l.TraceID] = append(o.reported[l.TraceID], l.SessionID)
	}
}

// put stores an observation, and reports whether that changed anything.
func (o *observer) put(n *Observation) (bool, error) {
	id := source{n.TraceID, n.Source}
	old, err := o.rows.observation(keyOf(n))
	if err != nil {
		return false, err
	}
	o.pending[id] = old == nil || old.Attribution.SessionID == ""
	if old != nil && !n.takesPrecedence(&old.Observation) {
		return false, nil
	}
	o.nameThread(n)
	row := &ObservationRow{Observation: *n, Owner: o.ownerFor(n)}
	row.Attribution, row.Until = Attribution{}, n.End
	o.noteProofs(row.Owner)
	var before *Observation
	if old == nil {
		o.fresh[id] = true
	} else {
		o.noteProofs(old.Owner)
		before, row.Attribution = &old.Observation, old.Attribution
		o.replaced(old, row)
	}
	for _, call := range n.Calls {
		o.asked = append(o.asked, askedBy(call, n))
	}
	if n.TraceID == "" {
		o.touch(row.Owner, timeRange{n.Start, n.End})
	} else {
		o.changed[n.TraceID] = append(o.changed[n.TraceID], timeRange{n.Start, n.End})
		if n.isSpan() {
			o.spans[ObservationKey{n.TraceID, n.SpanID}] = true
		}
		o.spans[ObservationKey{n.TraceID, n.parent()}] = true
		if before != nil {
			o.spans[ObservationKey{n.TraceID, before.parent()}] = true
		}
	}
	return true, o.rows.observations.put(keyOf(n), row)
}

// tie makes a span last until the last of what is below it begins: the spans of the batch's
// observations, those above them, and those that were above them before. Where a program
// stores the last message of a turn in a span that begins after the turn's own has ended,
// the next turn may have begun: no boundary separates the two spans then.
//
// In the same round trip it reads what decides on the owners of the traces.
func (o *observer) tie() error {
	times := &SpanTimes{}
	for key := range o.spans {
		if key.Source != "" {
			times.Keys = append(times.Keys, key)
		}
	}
	var queries []Query
	if len(times.Keys) > 0 {
		queries = append(queries, times)
	}
	for _, trace := range slices.Sorted(maps.Keys(o.unsettled)) {
		o.traces[trace] = &Trace{TraceID: trace}
		queries = append(queries, o.traces[trace])
	}
	if err := o.ask(append(queries, o.orphansOf(o.asked)...)...); err != nil {
		return err
	}
	for i := range times.Rows {
		at := &times.Rows[i]
		before := at.Until
		if at.Until = max(at.End, min(at.LastBelow, math.MaxInt64-1)+1); at.Until != before {
			o.changed[at.TraceID] = append(o.changed[at.TraceID], timeRange{min(before, at.Until), max(before, at.Until)})
			o.rows.changes.SpanTimes = append(o.rows.changes.SpanTimes, *at)
		}
	}
	return nil
}

// ask has queries answered, and reads the proofs that were noted.
func (o *observer) ask(queries ...Query) error {
	queries = append(queries, o.unread...)
	o.unread = nil
	return o.rows.ask(queries...)
}

// noteProofs keeps what the observations of an owner prove before any of them changes. It is read with the next
// query, which must be before that.
func (o *observer) noteProofs(owner string) {
	if owner != "" && o.proofs[owner] == nil {
		o.proofs[owner] = &Proven{Owner: owner}
		o.unread = append(o.unread, o.proofs[owner])
	}
}

// ownerFor is where an observation is kept before the owners of the batch's traces
// are settled. A record outside of any trace is where it reports.
func (o *observer) ownerFor(n *Observation) string {
	if n.TraceID == "" {
		if t := o.recordThreads[thread{n.Session, n.Dialect}]; t != nil && t.OK {
			return t.Owner
		}
		return cmp.Or(n.Session, n.Own)
	}
	owner, known := o.owners[n.TraceID]
	if !known {
		stored, known := o.stored[n.TraceID]
		if owner = stored.Owner; !known {
			owner, o.unsettled[n.TraceID] = n.Own, true
			if best := o.best[n.TraceID]; best != nil {
				owner = best.Session
			}
		}
		o.owners[n.TraceID] = owner
	}
	if n.Call != "" || n.Session != "" && n.Session != owner {
		o.unsettled[n.TraceID] = true
	}
	return owner
}

// replaced notes that a stored observation gives way to a better version.
func (o *observer) replaced(old, row *ObservationRow) {
	for _, call := range old.Calls {
		o.asked = append(o.asked, askedBy(call, &old.Observation))
	}
	if s := old.Attribution.SessionID; s != "" && (old.Start < row.Start || old.End > row.End) {
		w := o.session(s)
		w.observed.lost = append(w.observed.lost, lostAbout{bounds: timeRange{old.Start, old.End}})
	}
	o.rebuilt[old.Owner], o.rebuilt[row.Owner] = true, true
	switch {
	case old.TraceID != "":
		o.unsettled[old.TraceID] = true
		o.changed[old.TraceID] = append(o.changed[old.TraceID], timeRange{old.Start, old.Until})
	case old.Owner != row.Owner:
		o.moved = append(o.moved, old.Observation)
		fallthrough
	default:
		o.touch(old.Owner, timeRange{old.Start, old.Until})
	}
}

func (o *observer) touch(owner string, ranges ...timeRange) {
	if owner != "" {
		o.touched[owner] = append(o.touched[owner], ranges...)
	}
}

// resolveOwners finds the owners of the traces that may have another. Traces of tool
// calls without a parent follow the one that asked for the call, and those that it
// asked for follow it.
func (o *observer) resolveOwners() error {
	settled, followed := make(map[string]bool), 0
	for traces := slices.Sorted(maps.Keys(o.unsettled)); ; {
		for _, trace := range traces {
			settled[trace] = true
		}
		if err := o.rows.inStep(len(traces), func(i int) error { return o.resolveOwner(traces[i]) }); err != nil {
			return err
		}
		news := o.asked[followed:] // those that follow are appended
		if len(news) == 0 {
			return nil
		}
		if err := o.ask(o.orphansOf(news)...); err != nil {
			return err
		}
		traces = nil
		for _, call := range news {
			for _, trace := range o.orphans[call].TraceIDs {
				if !settled[trace] && !slices.Contains(traces, trace) {
					traces = append(traces, trace)
				}
			}
		}
		followed += len(news)
	}
}

// orphansOf are queries for the traces that may belong to calls, those that were not asked yet.
func (o *observer) orphansOf(calls []asked) (queries []Query) {
	for _, call := range calls {
		if o.orphans[call] == nil {
			o.orphans[call] = &OrphanTraces{CallID: call.call, At: call.at, Until: call.until}
			queries = append(queries, o.orphans[call])
		}
	}
	return queries
}

// resolveOwner moves the observations of a trace to the session that it is built in,
// where that is another than before.
func (o *observer) resolveOwner(trace string) error {
	owner, err := o.ownerOf(trace)
	if err != nil {
		return err
	}
	before, known := o.owners[trace]
	if !known {
		t, err := o.trace(trace)
		if err != nil {
			return err
		}
		before = t.Owner
	}
	if owner == before {
		return nil
	}
	o.owners[trace] = owner
	if _, stored := o.stored[trace]; known && !stored {
		// All of it is in the batch, and known to have changed.
		o.rows.changes.Owners = append(o.rows.changes.Owners, NewOwner{TraceID: trace, Owner: owner})
		return nil
	}
	o.noteProofs(before)
	o.noteProofs(owner)
	q := &TraceObservations{TraceID: trace}
	if err := o.ask(q); err != nil {
		return err
	}
	for i := range q.Rows {
		r := &q.Rows[i]
		o.touch(owner, timeRange{r.Start, r.Until})
		o.nameThread(&r.Observation)
		if !o.fresh[source{r.TraceID, r.Source}] {
			o.touch(before, timeRange{r.Start, r.Until})
			o.moved = append(o.moved, r.Observation)
			o.rebuilt[before], o.rebuilt[owner] = true, true
		}
		for _, call := range r.Calls {
			o.asked = append(o.asked, askedBy(call, &r.Observation))
		}
	}
	o.rows.changes.Owners = append(o.rows.changes.Owners, NewOwner{TraceID: trace, Owner: owner})
	return nil
}

// trace is what decides on the owner of a trace.
func (o *observer) trace(id string) (*Trace, error) {
	t := o.traces[id]
	if t == nil {
		t = &Trace{TraceID: id}
		if err := o.ask(t); err != nil {
			return nil, err
		}
		o.traces[id] = t
	}
	return t, nil
}

// thread is a session that a dialect names.
type thread struct{ session, dialect string }

// nameThread notes the session that an observation names, where it may be that of a
// sub-agent which its client names in the trace of another.
func (o *observer) nameThread(n *Observation) {
	if n.Session != "" && o.isThread != nil && o.isThread(n.Dialect) {
		o.threads[thread{n.Session, n.Dialect}] = true
	}
}

// resolveThreads moves what sessions report outside of any trace to the owner of the trace
// that their other observations are of. The spans of a sub-agent may be in the trace of
// the session that started it, while some of its records, and its transcript, are in none.
func (o *observer) resolveThreads() error {
	all := slices.SortedFunc(maps.Keys(o.threads), func(x, y thread) int {
		return cmp.Or(strings.Compare(x.session, y.session), strings.Compare(x.dialect, y.dialect))
	})
	return o.rows.inStep(len(all), func(i int) error {
		t := &Thread{SessionID: all[i].session, Dialect: all[i].dialect, WithRecords: true}
		if err := o.ask(t); err != nil {
			return err
		}
		owner := t.SessionID
		if t.OK {
			owner = t.Owner
		}
		for i := range t.Records {
			if err := o.moveRecord(&t.Records[i], owner); err != nil {
				return err
			}
		}
		return nil
	})
}

// moveRecord gives an observation outside of any trace another owner.
func (o *observer) moveRecord(r *ObservationRow, owner string) error {
	o.noteProofs(r.Owner)
	o.noteProofs(owner)
	if err := o.ask(); err != nil {
		return err
	}
	at := timeRange{r.Start, r.Until}
	o.touch(r.Owner, at)
	o.touch(owner, at)
	if !o.fresh[source{r.TraceID, r.Source}] {
		o.moved = append(o.moved, r.Observation)
		o.rebuilt[r.Owner], o.rebuilt[owner] = true, true
	}
	o.rows.changes.Owners = append(o.rows.changes.Owners, NewOwner{Source: r.Source, Owner: owner})
	return nil
}

// ownerOf is where all of a trace's observations are built: in the session that the
// best key among them names; else where the model asked for a tool call of the
// trace that has no parent; else in a session of its own. What the SDK tells is
// not told again: a trace of its that names no other session has no owner.
func (o *observer) ownerOf(trace string) (string, error) {
	for path := []string{trace}; ; path = append(path, trace) {
		t, err := o.trace(trace)
		if err != nil {
			return "", err
		}
		reported := slices.Concat(t.Sessions, o.reported[trace])
		switch {
		case t.Named != "" && !slices.Contains(reported, t.Named):
			return t.Named, nil
		case len(reported) > 0:
			return "", nil
		}
		from, err := o.requester(t)
		switch {
		case err != nil:
			return "", err
		case from == nil:
			return t.Own, nil
		case from.TraceID == "":
			return from.Owner, nil
		}
		trace = from.TraceID
		if i := slices.Index(path, trace); i >= 0 {
			// Each asked for a call of the next: no source reports that, but any may send it.
			t, err := o.trace(slices.Min(path[i:]))
			if err != nil {
				return "", err
			}
			return t.Own, nil
		}
	}
}

// requester is who asked for the first call of a trace that has no parent and
// that anybody asked for. Most are the first one's.
func (o *observer) requester(t *Trace) (*Requester, error) {
	for rest, n := t.Orphans, 1; len(rest) > 0; rest, n = rest[n:], len(rest)-n {
		found := make([]RequesterOf, n)
		queries := make([]Query, n)
		for i := range found {
			by, until := rest[i].Start, int64(0)
			if strings.HasPrefix(rest[i].Call, ModelCallPrefix) {
				by, until = by+ClockTick, rest[i].End-ClockTick
			}
			found[i] = RequesterOf{CallID: rest[i].Call, NotTrace: t.TraceID, By: by, Until: until}
			queries[i] = &found[i]
		}
		if err := o.ask(queries...); err != nil {
			return nil, err
		}
		for i := range found {
			if found[i].Requester != nil {
				return found[i].Requester, nil
			}
		}
	}
	return nil, nil
}

// assembled is what the observations of an owner come to that were rebuilt.
type assembled struct {
	rows []Observation
	Assembly
}

// rebuildAll rebuilds every window that was touched. Where that shows that tokens were
// counted otherwise than was assumed, all that was counted is rebuilt, once: the proof is
// the same however the tokens are read.
func (o *observer) rebuildAll() error {
	owners := slices.Sorted(maps.Keys(o.touched))
	for _, owner := range owners {
		o.noteProofs(owner)
	}
	parts := make(map[string]*assembled)
	if err := o.rebuildOwners(owners, parts); err != nil {
		return err
	}
	again, err := o.provenAnew(owners)
	if err != nil {
		return err
	}
	if err := o.rebuildOwners(again, parts); err != nil {
		return err
	}
	var all assembled
	for _, owner := range owners {
		all.rows = append(all.rows, parts[owner].rows...)
		all.add(&parts[owner].Assembly)
	}
	if len(o.moved) > 0 {
		among := make(map[source]bool, len(all.rows))
		for i := range all.rows {
			among[source{all.rows[i].TraceID, all.rows[i].Source}] = true
		}
		for _, m := range o.moved {
			// One whose new owner was told is among the rows; one that has none is not.
			if id := (source{m.TraceID, m.Source}); !among[id] {
				among[id] = true
				all.rows, all.Attribution = append(all.rows, m), append(all.Attribution, Attribution{})
				o.rows.prove(&m, UsageProof{})
			}
		}
	}
	for i := range all.rows {
		if id := (source{all.rows[i].TraceID, all.rows[i].Source}); o.pending[id] {
			o.pending[id] = all.Attribution[i].SessionID == ""
		}
	}
	for _, pending := range o.pending {
		if pending {
			o.result.Pending++
		}
	}
	return o.replace(all.rows, &all.Assembly)
}

// provenAnew returns the owners whose observations prove something else than before, and touches all of theirs that
// were counted.
func (o *observer) provenAnew(owners []string) (anew []string, _ error) {
	proven := make(map[string]*Proven)
	read := func(owner string, counted bool) Query {
		proven[owner] = &Proven{Owner: owner, WithCounted: counted}
		return proven[owner]
	}
	var queries []Query
	for _, owner := range owners {
		if o.proofNews[owner] || o.rebuilt[owner] {
			queries = append(queries, read(owner, false))
		}
	}
	if err := o.ask(queries...); err != nil {
		return nil, err
	}
	queries = nil
	for _, owner := range owners {
		if p := proven[owner]; p != nil && !slices.Equal(p.Proofs, o.proofs[owner].Proofs) {
			anew = append(anew, owner)
			queries = append(queries, read(owner, true))
		}
	}
	if err := o.ask(queries...); err != nil {
		return nil, err
	}
	for _, owner := range anew {
		if at := proven[owner].Counted; at != nil {
			o.touch(owner, timeRange{at.From, at.To})
		}
		o.proofs[owner], o.rebuilt[owner] = proven[owner], true
	}
	return anew, nil
}

// rebuildOwners assembles the windows of owners that were touched.
func (o *observer) rebuildOwners(owners []string, parts map[string]*assembled) error {
	windows, err := o.windows(owners)
	if err != nil {
		return err
	}
	var queries []Query
	for _, owner := range owners {
		for i := range windows[owner] {
			w := &windows[owner][i]
			w.in = &ObservationsIn{Owner: owner, From: w.from, To: w.to, Around: w.cut != nil}
			queries = append(queries, w.in)
		}
	}
	if err := o.ask(queries...); err != nil {
		return err
	}
	for _, owner := range owners {
		part := new(assembled)
		for i := range windows[owner] {
			segments := o.changedSegments(owner, &windows[owner][i])
			for k := range segments {
				some, err := o.rebuild(owner, &segments[k])
				if err != nil {
					return fmt.Errorf("assemble session %s: %w", owner, err)
				}
				part.rows = append(part.rows, segments[k].Observations...)
				part.add(&some)
			}
		}
		parts[owner] = part
	}
	return nil
}

// add appends what further observations come to. Their cuts are stored by then.
func (a *Assembly) add(part *Assembly) {
	a.Messages = append(a.Messages, part.Messages...)
	a.Decisions = append(a.Decisions, part.Decisions...)
	a.Attribution = append(a.Attribution, part.Attribution...)
}

// rebuild assembles a segment and stores where it may be cut, and what it proves.
func (o *observer) rebuild(owner string, s *segment) (part Assembly, err error) {
	if len(s.Observations) > 0 {
		s.Proofs = o.proofs[owner].Proofs
		if part, err = o.assemble(&s.Window); err != nil {
			return part, err
		}
		if len(part.Attribution) != len(s.Observations) {
			return part, fmt.Errorf("%d placements for %d observations", len(part.Attribution), len(s.Observations))
		}
		for i := range s.Observations {
			n := &s.Observations[i]
			if proof := part.Attribution[i].UsageProof; proof != n.Attribution.UsageProof {
				o.rows.prove(n, proof)
				o.proofNews[owner] = o.proofNews[owner] || n.Attribution.UsageProof != (UsageProof{}) || !o.isProven(owner, proof)
			}
		}
	}
	from := s.from
	if s.Carry != nil {
		from++ // the cut where it begins stays
	}
	o.rows.changes.Cuts = append(o.rows.changes.Cuts, CutRange{owner, from, s.to, part.Cuts})
	return part, nil
}

// isProven reports whether something was proven before the batch.
func (o *observer) isProven(owner string, p UsageProof) bool {
	return p.Proof == 0 || slices.ContainsFunc(o.proofs[owner].Proofs, func(q UsageProof) bool {
		return q.Counter == p.Counter && q.Proof|p.Proof == q.Proof
	})
}

// window is a range of an owner's time that must be rebuilt. It begins at a cut, where
// that is not nil.
type window struct {
	timeRange
	cut *Cut
	in  *ObservationsIn
}

// windows are the windows of owners that must be rebuilt because of what was touched, in order of time: from an
// opening or a cut to another opening, where nothing reaches across.
//
// What is in a window that was found need not be looked for. So one is looked for first, then a few of what is left,
// spread over the time, then many.
func (o *observer) windows(owners []string) (map[string][]window, error) {
	type search struct {
		owner string
		at    timeRange
		window
	}
	left, found := make(map[string][]timeRange), make(map[string][]window)
	for _, owner := range owners {
		left[owner] = union(o.touched[owner])
	}
	for most := 1; ; most *= 8 {
		var searches []search
		for _, owner := range owners {
			n := min(most, len(left[owner]))
			for i := range n {
				searches = append(searches, search{owner: owner, at: left[owner][i*len(left[owner])/n]})
			}
		}
		if len(searches) == 0 {
			return found, nil
		}
		err := o.rows.inStep(len(searches), func(i int) (err error) {
			searches[i].window, err = o.window(searches[i].owner, searches[i].at)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, s := range searches {
			found[s.owner] = append(found[s.owner], s.window)
		}
		for _, owner := range owners {
			found[owner] = unionWindows(found[owner])
			left[owner] = slices.DeleteFunc(left[owner], func(at timeRange) bool {
				return slices.ContainsFunc(found[owner], func(w window) bool { return w.from <= at.from && at.to < w.to })
			})
		}
	}
}

// union joins ranges that overlap, and returns them in order.
func union(ranges []timeRange) []timeRange {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(x, y timeRange) int { return cmp.Compare(x.from, y.from) })
	var all []timeRange
	for _, r := range ranges {
		if n := len(all); n > 0 && r.from <= all[n-1].to {
			all[n-1].to = max(all[n-1].to, r.to)
		} else {
			all = append(all, r)
		}
	}
	return all
}

func unionWindows(windows []window) (all []window) {
	slices.SortFunc(windows, func(x, y window) int { return cmp.Compare(x.from, y.from) })
	for _, w := range windows {
		if n := len(all); n > 0 && w.from < all[n-1].to {
			all[n-1].to = max(all[n-1].to, w.to)
		} else {
			all = append(all, w)
		}
	}
	return all
}

// window is the range from the last opening or cut before s to the first opening
// after it. A cut that what changed in s may have a say in is none.
func (o *observer) window(owner string, s timeRange) (window, error) {
	w := window{timeRange: timeRange{math.MinInt64, math.MaxInt64}}
	from, to := &WindowFrom{Owner: owner, CutAt: s.from, At: s.from}, &WindowTo{Owner: owner, At: s.to + 1}
	for from != nil || to != nil {
		var queries []Query
		if from != nil {
			queries = append(queries, from)
		}
		if to != nil {
			queries = append(queries, to)
		}
		if err := o.ask(queries...); err != nil {
			return w, err
		}
		switch {
		case from == nil:
		case from.Cut != nil && (!from.OK || from.Start <= from.Cut.At):
			w.from, w.cut, from = from.Cut.At, from.Cut, nil
		case !from.OK:
			from = nil
		case from.Across == nil:
			w.from, from = from.Start, nil
		default:
			from = &WindowFrom{Owner: owner, CutAt: s.from, At: min(from.Start, from.Across.From+1)}
		}
		switch {
		case to == nil:
		case !to.OK:
			to = nil
		case to.Across == nil:
			w.to, to = to.Start, nil
		default:
			to = &WindowTo{Owner: owner, At: max(to.Start+1, to.Across.To)}
		}
	}
	return w, nil
}

// segment is a part of a window that is assembled by itself, and the range of time
// that it stands for.
type segment struct {
	timeRange
	Window
}

// changedSegments cuts a window into segments and leaves out those that were the
// same before the batch.
func (o *observer) changedSegments(owner string, w *window) []segment {
	all := w.in.Rows
	first := Window{Owner: owner}
	if w.cut != nil {
		first.Carry, first.Around = w.cut.Carry, w.in.AroundRows
	}
	reach := int64(math.MinInt64)
	for i := range first.Around {
		reach = max(reach, first.Around[i].Until)
	}
	slices.SortFunc(all, func(x, y Observation) int { return compareObservations(&x, &y) })
	cut := segments(all, reach)
	if len(cut) == 0 {
		return []segment{{w.timeRange, first}} // what was there has moved
	}
	segmented := make([]segment, len(cut))
	for i := range cut {
		segmented[i] = segment{timeRange{cut[i][0].Start, w.to}, Window{Owner: owner, Observations: cut[i]}}
		if i > 0 {
			segmented[i-1].to = cut[i][0].Start
		}
	}
	segmented[0].from = w.from
	segmented[0].Carry, segmented[0].Around = first.Carry, first.Around
	if o.rebuilt[owner] || len(cut) == 1 {
		return segmented
	}
	isFresh := func(x Observation) bool { return o.fresh[source{x.TraceID, x.Source}] }
	before := make(map[source]int) // the first of each segment that there was, and its length
	for _, s := range segments(slices.DeleteFunc(slices.Clone(all), isFresh), reach) {
		before[source{s[0].TraceID, s[0].Source}] = len(s)
	}
	return slices.DeleteFunc(segmented, func(s segment) bool {
		first := s.Observations[0]
		return before[source{first.TraceID, first.Source}] == len(s.Observations) &&
			!slices.ContainsFunc(s.Observations, isFresh)
	})
}

// segments cuts observations, which are in order, where one opens and none reaches
// across. What began before them reaches to a time.
func segments(all []Observation, reach int64) [][]Observation {
	var cut [][]Observation
	from := 0
	for i := range all {
		// All that begin together are on one side of the cut.
		if i > from && all[i].Start > all[i-1].Start && reach <= all[i].Start && opensAt(all[i:]) {
			cut = append(cut, all[from:i:i])
			from = i
		}
		reach = max(reach, all[i].Until)
	}
	if from < len(all) {
		cut = append(cut, all[from:])
	}
	return cut
}

// opensAt reports whether one of those that begin with the first opens a turn.
func opensAt(rest []Observation) bool {
	for i := range rest {
		if rest[i].Start != rest[0].Start {
			break
		}
		if rest[i].Opens {
			return true
		}
	}
	return false
}
