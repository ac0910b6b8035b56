package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

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

// observer is the part of an Apply that stores observations and rebuilds their
// sessions.
type observer struct {
	*applier
	assemble Assembler
	// owners are the owners of the traces of the batch, best the keys by which their
	// observations in the batch name sessions.
	owners map[string]string
	best   map[string]*Observation
	// reported are the sessions that the SDK's spans in the batch report, by trace.
	reported map[string][]string
	// unsettled are traces whose owner may be another, asked the calls that the model
	// asked for, or no longer did, where that is news, and orphans the traces which that may concern.
	unsettled map[string]bool
	asked     []asked
	orphans   map[asked]*orphanTraces
	// traces are those that were looked at when the batch's observations were stored.
	traces map[string]*traced
	// spans are those that may last longer or shorter than before.
	spans map[ObservationKey]bool
	// fresh are observations that were not stored before the batch, pending those of
	// the batch that nothing is built of.
	fresh, pending map[ObservationKey]bool
	// changed are the windows that changed, by trace; one of no trace has an owner
	// of its own.
	changed map[string][]timeRange
	touched map[string][]timeRange
	// rebuilt are owners where more has changed than that observations were added: replacing has those where one was
	// replaced, moving those to or from which one moved.
	rebuilt, replacing, moving map[string]bool
	// proofs are what the observations of owners proved before the batch, unread those of them that are not read yet.
	// proofNews has the owners whose observations may prove something else now.
	proofs    map[string]*proven
	unread    []query
	proofNews map[string]bool
	// threads are the sessions that observations of the batch's Threads name, or traces that
	// moved, by the dialect.
	threads  map[thread]bool
	isThread func(dialect string) bool
	// moved are observations that left an owner: what was built of them there is removed.
	moved []Observation
	// batch is what is stored, unbuilt are the marks of owners whose turns lack observations.
	batch   *Batch
	unbuilt map[string]*unbuilt
}

// observe stores the batch's observations and adds what they come to to the work
// on sessions.
func (a *applier) observe(b *Batch) {
	if b.Assemble == nil {
		if len(b.Observations) > 0 {
			a.rows.fail(errors.New("store observations: the batch has no Assemble"))
		}
		return
	}
	o := newObserver(a, b)
	o.reportsOf(b.SpanRefs)
	for i := range b.Observations {
		if n := &b.Observations[i]; n.Session != "" &&
			(o.best[n.TraceID] == nil || compareKeys(n, o.best[n.TraceID]) < 0) {
			o.best[n.TraceID] = n
		}
	}
	for i := range b.Observations {
		a.wrote(o.put(&b.Observations[i]))
	}
	// Windows are found by when observations end and under which owner they are kept, so both are settled before.
	o.tie()
	o.resolveOwners()
	o.resolveThreads()
	for trace, ranges := range o.changed {
		o.touch(o.owners[trace], ranges...)
	}
	if b.Rebuilt != nil {
		o.touch(b.Rebuilt.Owner(), timeRange{b.Rebuilt.mark.From, b.Rebuilt.mark.To})
	}
	o.rebuildAll()
}

func newObserver(a *applier, b *Batch) *observer {
	return &observer{
		applier: a, assemble: b.Assemble, owners: make(map[string]string), best: make(map[string]*Observation),
		reported: make(map[string][]string), unsettled: make(map[string]bool), orphans: make(map[asked]*orphanTraces),
		traces: make(map[string]*traced), spans: make(map[ObservationKey]bool), fresh: make(map[ObservationKey]bool),
		pending: make(map[ObservationKey]bool), changed: make(map[string][]timeRange),
		touched: make(map[string][]timeRange), rebuilt: make(map[string]bool), replacing: make(map[string]bool),
		moving: make(map[string]bool), proofs: make(map[string]*proven),
		proofNews: make(map[string]bool), threads: make(map[thread]bool), isThread: b.Threads,
		batch: b, unbuilt: make(map[string]*unbuilt),
	}
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
func (o *observer) put(n *Observation) (changed bool, refused error) {
	id := keyOf(n)
	old := o.rows.observation(id)
	o.pending[id] = old == nil || old.Attribution.SessionID == ""
	if old != nil && n.Session != old.Session && (old.Session != "" || n.version() <= old.version()) {
		return false, ErrRefused // an id that two sessions use stays with the first
	}
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
	return true, o.rows.observations.set(row)
}

// tie makes a span last until the last of what is below it begins: the spans of the batch's
// observations, those above them, and those that were above them before. Where a program
// stores the last message of a turn in a span that begins after the turn's own has ended,
// the next turn may have begun: no boundary separates the two spans then.
//
// In the same round trip it reads what decides on the owners of the traces.
func (o *observer) tie() {
	var keys []ObservationKey
	for key := range o.spans {
		if key.Source != "" {
			keys = append(keys, key)
		}
	}
	var times []spanTime
	queries := []query{readTimes(keys, &times)}
	for _, trace := range slices.Sorted(maps.Keys(o.unsettled)) {
		o.traces[trace] = &traced{traceOwner: traceOwner{Trace: trace}}
		queries = append(queries, o.traces[trace].add)
	}
	o.ask(append(queries, o.orphansOf(o.asked)...)...)
	for i := range times {
		at := &times[i]
		before := at.Until
		if at.Until = max(at.End, min(at.LastBelow, math.MaxInt64-1)+1); at.Until != before {
			o.changed[at.TraceID] = append(o.changed[at.TraceID],
				timeRange{min(before, at.Until), max(before, at.Until)})
			o.rows.setUntil(*at)
		}
	}
}

// ask has queries answered, and reads the proofs that were noted.
func (o *observer) ask(queries ...query) {
	queries = append(queries, o.unread...)
	o.unread = nil
	o.rows.ask(queries...)
}

// noteProofs keeps what the observations of an owner prove before any of them changes. It is read with the next
// query, which must be before that.
func (o *observer) noteProofs(owner string) {
	if owner != "" && o.proofs[owner] == nil {
		o.proofs[owner] = &proven{owner: owner}
		o.unread = append(o.unread, o.proofs[owner].add)
	}
}

// ownerFor is where an observation is kept before the owners of the batch's traces
// are settled. A record outside of any trace is where it reports.
func (o *observer) ownerFor(n *Observation) string {
	if n.TraceID == "" {
		if t := o.recordThreads[thread{n.Session, n.Dialect}]; t != nil && t.ok {
			return t.owner
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

// replaced notes that a stored observation is replaced by a version that takes precedence.
func (o *observer) replaced(old, row *ObservationRow) {
	for _, call := range old.Calls {
		o.asked = append(o.asked, askedBy(call, &old.Observation))
	}
	if s := old.Attribution.SessionID; s != "" && (old.Start < row.Start || old.End > row.End) {
		w := o.session(s)
		w.observed.lost = append(w.observed.lost, lostAbout{bounds: timeRange{old.Start, old.End}})
	}
	o.rebuilt[old.Owner], o.rebuilt[row.Owner] = true, true
	o.replacing[old.Owner], o.replacing[row.Owner] = true, true
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

// assembled is what the observations of an owner come to that were rebuilt.
type assembled struct {
	rows []Observation
	Assembly
}

// rebuildAll rebuilds every window that was touched. Where that shows that tokens were
// counted otherwise than was assumed, all that was counted is rebuilt, once: the proof is
// the same however the tokens are read.
func (o *observer) rebuildAll() {
	owners := slices.Sorted(maps.Keys(o.touched))
	for _, owner := range owners {
		o.noteProofs(owner)
		o.unbuilt[owner] = &unbuilt{owner: owner}
		o.unread = append(o.unread, o.unbuilt[owner].add)
	}
	parts := make(map[string]*assembled)
	for _, owner := range owners {
		parts[owner] = new(assembled)
	}
	if o.batch.Rebuilt != nil {
		o.ask()
		o.takeRebuilt(parts)
	} else {
		o.rebuildOwners(owners, parts)
	}
	again := o.reproven(owners)
	o.rebuildOwners(again, parts)
	var all assembled
	for _, owner := range owners {
		all.rows = append(all.rows, parts[owner].rows...)
		all.add(&parts[owner].Assembly)
	}
	if len(o.moved) > 0 {
		among := make(map[ObservationKey]bool, len(all.rows))
		for i := range all.rows {
			among[keyOf(&all.rows[i])] = true
		}
		for _, m := range o.moved {
			// One whose new owner was rebuilt is among the rows; one that has none is not.
			if id := keyOf(&m); !among[id] {
				among[id] = true
				all.rows, all.Attribution = append(all.rows, m), append(all.Attribution, Attribution{})
				o.rows.prove(&m, UsageProof{})
			}
		}
	}
	for i := range all.rows {
		if id := keyOf(&all.rows[i]); o.pending[id] {
			o.pending[id] = all.Attribution[i].SessionID == ""
		}
	}
	for _, pending := range o.pending {
		if pending {
			o.result.Pending++
		}
	}
	o.replace(all.rows, &all.Assembly)
}

// reproven returns the owners whose observations prove something else than before, and touches all of theirs that
// were counted.
func (o *observer) reproven(owners []string) (changed []string) {
	now := make(map[string]*proven)
	read := func(owner string, counted bool) query {
		now[owner] = &proven{owner: owner, withCounted: counted}
		return now[owner].add
	}
	var queries []query
	for _, owner := range owners {
		if o.proofNews[owner] || o.rebuilt[owner] {
			queries = append(queries, read(owner, false))
		}
	}
	o.ask(queries...)
	queries = nil
	for _, owner := range owners {
		if p := now[owner]; p != nil && !slices.Equal(p.proofs, o.proofs[owner].proofs) {
			changed = append(changed, owner)
			queries = append(queries, read(owner, true))
		}
	}
	o.ask(queries...)
	for _, owner := range changed {
		if at := now[owner].counted; at != nil {
			o.touch(owner, *at)
		}
		o.proofs[owner], o.rebuilt[owner] = now[owner], true
	}
	return changed
}

// rebuildOwners assembles the windows of owners that were touched.
func (o *observer) rebuildOwners(owners []string, parts map[string]*assembled) {
	windows := o.windows(owners)
	o.deferWindows(owners, windows)
	o.read(windows)
	for _, owner := range owners {
		if len(windows[owner]) == 0 {
			continue
		}
		part := new(assembled)
		for i := range windows[owner] {
			for _, rows := range o.changedSegments(owner, &windows[owner][i]) {
				some, err := assembleRows(o.assemble, owner, o.proofs[owner].proofs, rows)
				if err != nil {
					o.rows.fail(err)
					some.Attribution = make([]Attribution, len(rows))
				}
				o.prove(owner, rows, &some)
				part.rows = append(part.rows, rows...)
				part.add(&some)
			}
		}
		parts[owner] = part
	}
}

// read reads the observations of windows.
func (o *observer) read(windows map[string][]window) {
	var queries []query
	for _, all := range windows {
		for i := range all {
			queries = append(queries, all[i].addRows)
		}
	}
	o.ask(queries...)
}

// add appends what further observations come to.
func (a *Assembly) add(part *Assembly) {
	a.Messages = append(a.Messages, part.Messages...)
	a.Decisions = append(a.Decisions, part.Decisions...)
	a.Attribution = append(a.Attribution, part.Attribution...)
}

// assembleRows assembles observations of an owner.
func assembleRows(assemble Assembler, owner string, proofs []UsageProof, rows []Observation) (Assembly, error) {
	part, err := assemble(&Window{Owner: owner, Proofs: proofs, Observations: rows})
	if err == nil && len(part.Attribution) != len(rows) {
		err = fmt.Errorf("%d attributions for %d observations", len(part.Attribution), len(rows))
	}
	if err != nil {
		return Assembly{}, fmt.Errorf("assemble session %s: %w", owner, err)
	}
	return part, nil
}

// prove stores what observations prove that were assembled.
func (o *observer) prove(owner string, rows []Observation, part *Assembly) {
	for i := range rows {
		n := &rows[i]
		if proof := part.Attribution[i].UsageProof; proof != n.Attribution.UsageProof {
			o.rows.prove(n, proof)
			o.proofNews[owner] = o.proofNews[owner] || n.Attribution.UsageProof != (UsageProof{}) ||
				!o.isProven(owner, proof)
		}
	}
}

// isProven reports whether something was proven before the batch.
func (o *observer) isProven(owner string, p UsageProof) bool {
	return p.Proof == 0 || slices.ContainsFunc(o.proofs[owner].proofs, func(q UsageProof) bool {
		return q.Counter == p.Counter && q.Proof|p.Proof == q.Proof
	})
}
