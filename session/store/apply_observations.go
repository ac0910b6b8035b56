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
	// asked for, or no longer did, where that is news.
	unsettled map[string]bool
	asked     []asked
	// ranks are those of the best keys of traces.
	ranks map[string]int
	// fresh are observations that were not stored before the batch, pending those of
	// the batch of which nothing tells.
	fresh, pending map[source]bool
	// changed are the windows that changed, by trace; one of no trace has an owner
	// of its own.
	changed map[string][]timeRange
	touched map[string][]timeRange
	// rebuilt are owners where more has changed than that observations were added.
	rebuilt map[string]bool
	// proofs are what the observations of owners proved before the batch.
	proofs map[string][]UsageProof
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
		applier: a, assemble: b.Assemble, owners: make(map[string]string), best: make(map[string]*Observation), reported: make(map[string][]string),
		unsettled: make(map[string]bool), fresh: make(map[source]bool), pending: make(map[source]bool), changed: make(map[string][]timeRange),
		touched: make(map[string][]timeRange), rebuilt: make(map[string]bool), ranks: make(map[string]int),
		proofs:  make(map[string][]UsageProof),
		threads: make(map[thread]bool), isThread: b.Threads,
	}
	if err := o.reportsOf(b.SpanRefs); err != nil {
		return err
	}
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
func (o *observer) reportsOf(links []SpanRef) error {
	for i := range links {
		l := &links[i]
		if l.TraceID == "" || l.Dialect != DialectSDK || slices.Contains(o.reported[l.TraceID], l.SessionID) {
			continue
		}
		if o.reported[l.TraceID] == nil {
			owner, _, ok, err := o.tx.TraceOwner(l.TraceID)
			if err != nil {
				return err
			}
			if ok {
				o.owners[l.TraceID], o.unsettled[l.TraceID] = owner, true
			}
		}
		o.reported[l.TraceID] = append(o.reported[l.TraceID], l.SessionID)
	}
	return nil
}

// put stores an observation, and reports whether that changed anything.
func (o *observer) put(n *Observation) (bool, error) {
	id := source{n.TraceID, n.Source}
	old, err := o.tx.Observation(n.TraceID, n.Source)
	if err != nil {
		return false, err
	}
	o.pending[id] = old == nil || old.Attribution.SessionID == ""
	if old != nil && !n.takesPrecedence(&old.Observation) {
		return false, nil
	}
	o.nameThread(n)
	row := ObservationRow{Observation: *n}
	row.Attribution = Attribution{}
	if row.Owner, err = o.ownerFor(n); err != nil {
		return false, err
	}
	if err := o.noteProofs(row.Owner); err != nil {
		return false, err
	}
	var before *Observation
	if old == nil {
		o.fresh[id] = true
	} else {
		if err := o.noteProofs(old.Owner); err != nil {
			return false, err
		}
		before, row.Attribution = &old.Observation, old.Attribution
		o.replaced(old, &row)
	}
	for _, call := range n.Calls {
		o.asked = append(o.asked, askedBy(call, n))
	}
	if n.TraceID == "" {
		o.touch(row.Owner, timeRange{n.Start, n.End})
	} else {
		o.changed[n.TraceID] = append(o.changed[n.TraceID], timeRange{n.Start, n.End})
	}
	if err := o.tx.PutObservation(&row, before); err != nil {
		return false, err
	}
	return true, o.tie(n, before)
}

// tie makes a span last until the last of what is below it begins: the span of an
// observation, the one above it, and the one that was above it before. Where a program
// stores the last message of a turn in a span that begins after the turn's own has ended,
// the next turn may have begun: no boundary separates the two spans then.
func (o *observer) tie(n, old *Observation) error {
	spans := make([]string, 0, 3)
	if n.isSpan() {
		spans = append(spans, n.SpanID)
	}
	spans = append(spans, n.parent())
	if old != nil && old.parent() != n.parent() {
		spans = append(spans, old.parent())
	}
	for _, span := range spans {
		if n.TraceID == "" || span == "" {
			continue
		}
		at, err := o.tx.SpanTime(n.TraceID, span)
		if err != nil {
			return err
		}
		if at == nil {
			continue
		}
		before := at.Until
		if at.Until = max(at.End, min(at.LastBelow, math.MaxInt64-1)+1); at.Until == before {
			continue
		}
		o.changed[n.TraceID] = append(o.changed[n.TraceID], timeRange{min(before, at.Until), max(before, at.Until)})
		if err := o.tx.SetUntil(n.TraceID, span, at); err != nil {
			return err
		}
	}
	return nil
}

// noteProofs keeps what the observations of an owner prove before any of them changes.
func (o *observer) noteProofs(owner string) error {
	if _, known := o.proofs[owner]; known || owner == "" {
		return nil
	}
	var err error
	o.proofs[owner], err = o.tx.UsageProofs(owner)
	return err
}

// ownerFor is where an observation is kept before the owners of the batch's traces
// are settled. A record outside of any trace is where it reports.
func (o *observer) ownerFor(n *Observation) (string, error) {
	if n.TraceID == "" {
		if n.Session != "" && o.isThread != nil && o.isThread(n.Dialect) {
			if owner, ok, err := o.tx.ThreadOwner(n.Session, n.Dialect); ok || err != nil {
				return owner, err
			}
		}
		return cmp.Or(n.Session, n.Own), nil
	}
	owner, known := o.owners[n.TraceID]
	if !known {
		var err error
		if owner, _, known, err = o.tx.TraceOwner(n.TraceID); err != nil {
			return "", err
		}
		if !known {
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
	return owner, nil
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
	settled := make(map[string]bool)
	settle := func(trace string) error {
		if settled[trace] {
			return nil
		}
		settled[trace] = true
		return o.resolveOwner(trace)
	}
	for _, trace := range slices.Sorted(maps.Keys(o.unsettled)) {
		if err := settle(trace); err != nil {
			return err
		}
	}
	followed := make(map[asked]bool)
	for i := 0; i < len(o.asked); i++ { // those that follow are appended
		if followed[o.asked[i]] {
			continue
		}
		followed[o.asked[i]] = true
		orphans, err := o.tx.OrphanTraces(o.asked[i].call, o.asked[i].at, o.asked[i].until)
		if err != nil {
			return err
		}
		for _, trace := range orphans {
			if err := settle(trace); err != nil {
				return err
			}
		}
	}
	return nil
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
		if before, _, known, err = o.tx.TraceOwner(trace); err != nil || !known {
			return err
		}
	}
	if owner == before {
		return nil
	}
	o.owners[trace] = owner
	for _, of := range []string{before, owner} {
		if err := o.noteProofs(of); err != nil {
			return err
		}
	}
	rows, err := o.tx.TraceObservations(trace)
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
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
	return o.tx.SetTraceOwner(trace, owner)
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
	for _, t := range all {
		owner, ok, err := o.tx.ThreadOwner(t.session, t.dialect)
		if err != nil {
			return err
		}
		if !ok {
			owner = t.session
		}
		records, err := o.tx.ThreadRecords(t.session, t.dialect, owner)
		if err != nil {
			return err
		}
		for i := range records {
			if err := o.moveRecord(&records[i], owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveRecord gives an observation outside of any trace another owner.
func (o *observer) moveRecord(r *ObservationRow, owner string) error {
	for _, of := range []string{r.Owner, owner} {
		if err := o.noteProofs(of); err != nil {
			return err
		}
	}
	at := timeRange{r.Start, r.Until}
	o.touch(r.Owner, at)
	o.touch(owner, at)
	if !o.fresh[source{r.TraceID, r.Source}] {
		o.moved = append(o.moved, r.Observation)
		o.rebuilt[r.Owner], o.rebuilt[owner] = true, true
	}
	return o.tx.SetRecordOwner(r.Source, owner)
}

// ownerOf is where all of a trace's observations are built: in the session that the
// best key among them names; else where the model asked for a tool call of the
// trace that has no parent; else in a session of its own. What the SDK tells is
// not told again: a trace of its that names no other session has no owner.
func (o *observer) ownerOf(trace string) (string, error) {
	for path := []string{trace}; ; path = append(path, trace) {
		reported, err := o.tx.TraceSessions(trace)
		if err != nil {
			return "", err
		}
		reported = append(reported, o.reported[trace]...)
		named, _, err := o.tx.TraceKey(trace)
		switch {
		case err != nil:
			return "", err
		case named != "" && !slices.Contains(reported, named):
			return named, nil
		case len(reported) > 0:
			return "", nil
		}
		from, err := o.requester(trace)
		switch {
		case err != nil:
			return "", err
		case from == nil:
			_, own, _, err := o.tx.TraceOwner(trace)
			return own, err
		case from.TraceID == "":
			return from.Owner, nil
		}
		trace = from.TraceID
		if i := slices.Index(path, trace); i >= 0 {
			// Each asked for a call of the next: no source reports that, but any may send it.
			_, own, _, err := o.tx.TraceOwner(slices.Min(path[i:]))
			return own, err
		}
	}
}

// requester is who asked for the first call of a trace that has no parent and
// that anybody asked for.
func (o *observer) requester(trace string) (*Requester, error) {
	orphans, err := o.tx.OrphanCalls(trace)
	for i := 0; i < len(orphans) && err == nil; i++ {
		var from *Requester
		by, until := orphans[i].Start, int64(0)
		if strings.HasPrefix(orphans[i].Call, ModelCallPrefix) {
			by, until = by+ClockTick, orphans[i].End-ClockTick
		}
		if from, err = o.tx.Requester(orphans[i].Call, trace, by, until); from != nil {
			return from, err
		}
	}
	return nil, err
}

// rankTraces tells each observation the rank of the best key of its trace, which
// may be in another window.
func (o *observer) rankTraces(segment []Observation) error {
	for i := range segment {
		n := &segment[i]
		if n.TraceRank = n.Rank; n.TraceID == "" {
			continue
		}
		rank, known := o.ranks[n.TraceID]
		if !known {
			var err error
			named := ""
			if named, rank, err = o.tx.TraceKey(n.TraceID); err != nil {
				return err
			}
			if named == "" {
				rank = NoRank
			}
			o.ranks[n.TraceID] = rank
		}
		n.TraceRank = rank
	}
	return nil
}

// tell tells every window that was touched again.
func (o *observer) rebuildAll() error {
	var rows []Observation
	var assembled Assembly
	for _, owner := range slices.Sorted(maps.Keys(o.touched)) {
		some, part, err := o.rebuildOwner(owner)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
		assembled.add(&part)
	}
	if len(o.moved) > 0 {
		among := make(map[source]bool, len(rows))
		for i := range rows {
			among[source{rows[i].TraceID, rows[i].Source}] = true
		}
		for _, m := range o.moved {
			// One whose new owner was told is among the rows; one that has none is not.
			if id := (source{m.TraceID, m.Source}); !among[id] {
				among[id] = true
				rows, assembled.Attribution = append(rows, m), append(assembled.Attribution, Attribution{})
				if err := o.tx.PutUsageProof(&m, UsageProof{}); err != nil {
					return err
				}
			}
		}
	}
	for i := range rows {
		if id := (source{rows[i].TraceID, rows[i].Source}); o.pending[id] {
			o.pending[id] = assembled.Attribution[i].SessionID == ""
		}
	}
	for _, pending := range o.pending {
		if pending {
			o.result.Pending++
		}
	}
	return o.replace(rows, &assembled)
}

// rebuildOwner rebuilds what was touched of an owner. Where that shows that tokens were
// counted otherwise than was assumed, all that was counted is rebuilt, once: the proof is
// the same however the tokens are read.
func (o *observer) rebuildOwner(owner string) ([]Observation, Assembly, error) {
	if err := o.noteProofs(owner); err != nil {
		return nil, Assembly{}, err
	}
	rows, assembled, err := o.rebuildTouched(owner)
	if err != nil {
		return nil, Assembly{}, err
	}
	proofs, err := o.tx.UsageProofs(owner)
	if err != nil || slices.Equal(proofs, o.proofs[owner]) {
		return rows, assembled, err
	}
	from, to, ok, err := o.tx.Counted(owner)
	if err != nil {
		return nil, Assembly{}, err
	}
	if ok {
		o.touch(owner, timeRange{from, to})
	}
	o.proofs[owner], o.rebuilt[owner] = proofs, true
	return o.rebuildTouched(owner)
}

// rebuildTouched assembles the windows of an owner that were touched.
func (o *observer) rebuildTouched(owner string) (rows []Observation, assembled Assembly, err error) {
	windows, err := o.windows(owner, o.touched[owner])
	if err != nil {
		return nil, assembled, err
	}
	for _, w := range windows {
		segments, err := o.changedSegments(owner, w)
		if err != nil {
			return nil, assembled, err
		}
		for i := range segments {
			segment := &segments[i]
			part, err := o.rebuild(owner, segment)
			if err != nil {
				return nil, assembled, fmt.Errorf("assemble session %s: %w", owner, err)
			}
			rows = append(rows, segment.Observations...)
			assembled.add(&part)
		}
	}
	return rows, assembled, nil
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
		for _, some := range [][]Observation{s.Around, s.Observations} {
			if err := o.rankTraces(some); err != nil {
				return part, err
			}
		}
		s.Proofs = o.proofs[owner]
		if part, err = o.assemble(&s.Window); err != nil {
			return part, err
		}
		if len(part.Attribution) != len(s.Observations) {
			return part, fmt.Errorf("%d placements for %d observations", len(part.Attribution), len(s.Observations))
		}
		for i := range s.Observations {
			n := &s.Observations[i]
			if proof := part.Attribution[i].UsageProof; proof != n.Attribution.UsageProof {
				if err := o.tx.PutUsageProof(n, proof); err != nil {
					return part, err
				}
			}
		}
	}
	from := s.from
	if s.Carry != nil {
		from++ // the cut where it begins stays
	}
	return part, o.tx.ReplaceCuts(owner, from, s.to, part.Cuts)
}

// window is a range of an owner's time that must be rebuilt. It begins at a cut, where
// that is not nil.
type window struct {
	timeRange
	cut *Cut
}

// windows are the windows of an owner that must be rebuilt where the touched windows
// changed, in order of time: from an opening or a cut to another opening, where
// nothing reaches across.
func (o *observer) windows(owner string, touched []timeRange) ([]window, error) {
	slices.SortFunc(touched, func(x, y timeRange) int { return cmp.Compare(x.from, y.from) })
	var all []window
	for _, s := range touched {
		n := len(all)
		if n > 0 && s.to < all[n-1].to {
			continue
		}
		w, err := o.window(owner, s)
		switch {
		case err != nil:
			return nil, err
		case n > 0 && w.from < all[n-1].to:
			all[n-1].to = w.to
		default:
			all = append(all, w)
		}
	}
	return all, nil
}

// window is the range from the last opening or cut before s to the first opening
// after it. A cut that what changed in s may have a say in is none.
func (o *observer) window(owner string, s timeRange) (window, error) {
	w := window{timeRange: timeRange{math.MinInt64, math.MaxInt64}}
	cut, err := o.cutBefore(owner, s.from)
	if err != nil {
		return w, err
	}
	for before := s.from; ; {
		at, ok, err := o.tx.Start(owner, before, -1, true)
		if err != nil {
			return w, err
		}
		if cut != nil && (!ok || at <= cut.At) {
			w.from, w.cut = cut.At, cut
			break
		}
		if !ok {
			break
		}
		first, _, across, err := o.tx.Across(owner, at)
		if err != nil {
			return w, err
		}
		if !across {
			w.from = at
			break
		}
		before = min(at, first+1)
	}
	for from := s.to + 1; ; {
		at, ok, err := o.tx.Start(owner, from, 1, true)
		if err != nil {
			return w, err
		}
		if !ok {
			break
		}
		_, last, across, err := o.tx.Across(owner, at)
		if err != nil {
			return w, err
		}
		if !across {
			w.to = at
			break
		}
		from = max(at+1, last)
	}
	return w, nil
}

// cutBefore returns the last cut in which nothing that begins at the time or later
// has a say, or nil.
func (o *observer) cutBefore(owner string, at int64) (*Cut, error) {
	settled, ok, err := o.tx.Start(owner, at, -CutLookahead, false)
	if err != nil || !ok {
		return nil, err
	}
	return o.tx.CutBefore(owner, settled)
}

// segment is a part of a window that is assembled by itself, and the range of time
// that it stands for.
type segment struct {
	timeRange
	Window
}

// changedSegments cuts a window into segments and leaves out those that were the
// same before the batch.
func (o *observer) changedSegments(owner string, w window) ([]segment, error) {
	all, err := o.tx.Observations(owner, w.from, w.to)
	if err != nil {
		return nil, err
	}
	first := Window{Owner: owner}
	if w.cut != nil {
		first.Carry = w.cut.Carry
		if first.Around, err = o.tx.Around(owner, w.from); err != nil {
			return nil, err
		}
	}
	reach := int64(math.MinInt64)
	for i := range first.Around {
		reach = max(reach, first.Around[i].Until)
	}
	slices.SortFunc(all, func(x, y Observation) int { return compareObservations(&x, &y) })
	cut := segments(all, reach)
	if len(cut) == 0 {
		return []segment{{w.timeRange, first}}, nil // what was there has moved
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
		return segmented, nil
	}
	isFresh := func(x Observation) bool { return o.fresh[source{x.TraceID, x.Source}] }
	before := make(map[source]int) // the first of each segment that there was, and its length
	for _, s := range segments(slices.DeleteFunc(slices.Clone(all), isFresh), reach) {
		before[source{s[0].TraceID, s[0].Source}] = len(s)
	}
	return slices.DeleteFunc(segmented, func(s segment) bool {
		first := s.Observations[0]
		return before[source{first.TraceID, first.Source}] == len(s.Observations) && !slices.ContainsFunc(s.Observations, isFresh)
	}), nil
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
