package store

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// stretch is a part of a home's time, in Unix nanoseconds. A home is the session
// under which a trace's observations are kept together; those of sub-agents are
// kept with their parent's.
type stretch struct{ from, to int64 }

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
// sessions anew.
type observer struct {
	*applier
	assemble Assembler
	// homes are the homes of the traces of the batch, best the keys by which their
	// observations in the batch name sessions.
	homes map[string]string
	best  map[string]*Observation
	// told are the sessions of which the SDK's spans in the batch tell, by trace.
	told map[string][]string
	// unsettled are traces whose home may be another, asked the calls that the model
	// asked for, or no longer did, where that is news.
	unsettled map[string]bool
	asked     []asked
	// ranks are those of the best keys of traces.
	ranks map[string]int
	// fresh are observations that were not stored before the batch, parked those of
	// the batch of which nothing tells.
	fresh, parked map[source]bool
	// changed are the stretches that changed, by trace; one of no trace has a home
	// of its own.
	changed map[string][]stretch
	touched map[string][]stretch
	// redone are homes where more has changed than that observations were added.
	redone map[string]bool
	// moved are observations that left a home: what was told of them there goes.
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
		applier: a, assemble: b.Assemble, homes: make(map[string]string), best: make(map[string]*Observation), told: make(map[string][]string),
		unsettled: make(map[string]bool), fresh: make(map[source]bool), parked: make(map[source]bool), changed: make(map[string][]stretch),
		touched: make(map[string][]stretch), redone: make(map[string]bool), ranks: make(map[string]int),
	}
	if err := o.tellsOf(b.Links); err != nil {
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
	if err := o.settleHomes(); err != nil {
		return err
	}
	for trace, stretches := range o.changed {
		o.touch(o.homes[trace], stretches...)
	}
	return o.tell()
}

// compareKeys orders observations by how well they name a session.
func compareKeys(x, y *Observation) int {
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Start, y.Start), strings.Compare(x.Session, y.Session))
}

// tellsOf notes the traces that the SDK's spans are of.
func (o *observer) tellsOf(links []Link) error {
	for i := range links {
		l := &links[i]
		if l.TraceID == "" || l.Dialect != DialectSDK || slices.Contains(o.told[l.TraceID], l.SessionID) {
			continue
		}
		if o.told[l.TraceID] == nil {
			home, ok, err := o.tx.TraceHome(l.TraceID)
			if err != nil {
				return err
			}
			if ok {
				o.homes[l.TraceID], o.unsettled[l.TraceID] = home, true
			}
		}
		o.told[l.TraceID] = append(o.told[l.TraceID], l.SessionID)
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
	o.parked[id] = old == nil || old.Placed.SessionID == ""
	if old != nil && !n.better(&old.Observation) {
		return false, nil
	}
	row := ObservationRow{Observation: *n}
	row.Placed = Placement{}
	if row.Home, err = o.homeFor(n); err != nil {
		return false, err
	}
	var before *Observation
	if old == nil {
		o.fresh[id] = true
	} else {
		before, row.Placed = &old.Observation, old.Placed
		o.replaced(old, &row)
	}
	for _, call := range n.Calls {
		o.asked = append(o.asked, askedBy(call, n))
	}
	if n.TraceID == "" {
		o.touch(row.Home, stretch{n.Start, n.End})
	} else {
		o.changed[n.TraceID] = append(o.changed[n.TraceID], stretch{n.Start, n.End})
	}
	return true, o.tx.PutObservation(&row, before)
}

// homeFor is where an observation is kept before the homes of the batch's traces
// are settled. A record outside of any trace is where it says.
func (o *observer) homeFor(n *Observation) (string, error) {
	if n.TraceID == "" {
		return cmp.Or(n.Session, n.Own), nil
	}
	home, known := o.homes[n.TraceID]
	if !known {
		var err error
		if home, known, err = o.tx.TraceHome(n.TraceID); err != nil {
			return "", err
		}
		if !known {
			home, o.unsettled[n.TraceID] = n.Own, true
			if best := o.best[n.TraceID]; best != nil {
				home = best.Session
			}
		}
		o.homes[n.TraceID] = home
	}
	if n.Call != "" || n.Session != "" && n.Session != home {
		o.unsettled[n.TraceID] = true
	}
	return home, nil
}

// replaced notes that a stored observation gives way to a better version.
func (o *observer) replaced(old, row *ObservationRow) {
	for _, call := range old.Calls {
		o.asked = append(o.asked, askedBy(call, &old.Observation))
	}
	if s := old.Placed.SessionID; s != "" && (old.Start < row.Start || old.End > row.End) {
		w := o.session(s)
		w.observed.lost = append(w.observed.lost, lostAbout{bounds: stretch{old.Start, old.End}})
	}
	o.redone[old.Home], o.redone[row.Home] = true, true
	switch {
	case old.TraceID != "":
		o.unsettled[old.TraceID] = true
		o.changed[old.TraceID] = append(o.changed[old.TraceID], stretch{old.Start, old.End})
	case old.Home != row.Home:
		o.moved = append(o.moved, old.Observation)
		fallthrough
	default:
		o.touch(old.Home, stretch{old.Start, old.End})
	}
}

func (o *observer) touch(home string, stretches ...stretch) {
	if home != "" {
		o.touched[home] = append(o.touched[home], stretches...)
	}
}

// settleHomes finds the homes of the traces that may have another. Traces of tool
// calls without a parent follow the one that asked for the call, and those that it
// asked for follow it.
func (o *observer) settleHomes() error {
	settled := make(map[string]bool)
	settle := func(trace string) error {
		if settled[trace] {
			return nil
		}
		settled[trace] = true
		return o.settleHome(trace)
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
		strays, err := o.tx.StrayTraces(o.asked[i].call, o.asked[i].at, o.asked[i].until)
		if err != nil {
			return err
		}
		for _, trace := range strays {
			if err := settle(trace); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleHome moves the observations of a trace to the session that it is told in,
// where that is another than before.
func (o *observer) settleHome(trace string) error {
	home, err := o.homeOf(trace)
	if err != nil {
		return err
	}
	before, known := o.homes[trace]
	if !known {
		if before, known, err = o.tx.TraceHome(trace); err != nil || !known {
			return err
		}
	}
	if home == before {
		return nil
	}
	o.homes[trace] = home
	rows, err := o.tx.TraceObservations(trace)
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		o.touch(home, stretch{r.Start, r.End})
		if !o.fresh[source{r.TraceID, r.Source}] {
			o.touch(before, stretch{r.Start, r.End})
			o.moved = append(o.moved, r.Observation)
			o.redone[before], o.redone[home] = true, true
		}
		for _, call := range r.Calls {
			o.asked = append(o.asked, askedBy(call, &r.Observation))
		}
	}
	return o.tx.SetHome(trace, home)
}

// homeOf is where all of a trace's observations are told: in the session that the
// best key among them names; else where the model asked for a tool call of the
// trace that has no parent; else in a session of its own. What the SDK tells is
// not told again: a trace of its that names no other session has no home.
func (o *observer) homeOf(trace string) (string, error) {
	for path := []string{trace}; ; path = append(path, trace) {
		told, err := o.tx.TraceTold(trace)
		if err != nil {
			return "", err
		}
		told = append(told, o.told[trace]...)
		named, _, err := o.tx.TraceKey(trace)
		switch {
		case err != nil:
			return "", err
		case named != "" && !slices.Contains(told, named):
			return named, nil
		case len(told) > 0:
			return "", nil
		}
		from, err := o.announcer(trace)
		switch {
		case err != nil:
			return "", err
		case from == nil:
			return o.tx.TraceOwn(trace)
		case from.TraceID == "":
			return from.Home, nil
		}
		trace = from.TraceID
		if i := slices.Index(path, trace); i >= 0 {
			// Each asked for a call of the next: no source says that, but any may send it.
			return o.tx.TraceOwn(slices.Min(path[i:]))
		}
	}
}

// announcer is who asked for the first call of a trace that has no parent and
// that anybody asked for.
func (o *observer) announcer(trace string) (*Announcer, error) {
	strays, err := o.tx.TraceStrays(trace)
	for i := 0; i < len(strays) && err == nil; i++ {
		var from *Announcer
		by, until := strays[i].Start, int64(0)
		if strings.HasPrefix(strays[i].Call, ModelCallPrefix) {
			by, until = by+ClockTick, strays[i].End-ClockTick
		}
		if from, err = o.tx.Announcer(strays[i].Call, trace, by, until); from != nil {
			return from, err
		}
	}
	return nil, err
}

// rankTraces tells each observation the rank of the best key of its trace, which
// may stand in another stretch.
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

// tell tells every stretch that was touched anew.
func (o *observer) tell() error {
	var rows []Observation
	var assembled Assembly
	for _, home := range slices.Sorted(maps.Keys(o.touched)) {
		windows, err := o.windows(home, o.touched[home])
		if err != nil {
			return err
		}
		for _, w := range windows {
			segments, err := o.changedSegments(home, w)
			if err != nil {
				return err
			}
			for i := range segments {
				segment := &segments[i]
				part, err := o.rebuild(home, segment)
				if err != nil {
					return fmt.Errorf("assemble session %s: %w", home, err)
				}
				rows = append(rows, segment.Observations...)
				assembled.Messages = append(assembled.Messages, part.Messages...)
				assembled.Decisions = append(assembled.Decisions, part.Decisions...)
				assembled.Placed = append(assembled.Placed, part.Placed...)
			}
		}
	}
	if len(o.moved) > 0 {
		among := make(map[source]bool, len(rows))
		for i := range rows {
			among[source{rows[i].TraceID, rows[i].Source}] = true
		}
		for _, m := range o.moved {
			// One whose new home was told is among the rows; one that has none is not.
			if id := (source{m.TraceID, m.Source}); !among[id] {
				among[id] = true
				rows, assembled.Placed = append(rows, m), append(assembled.Placed, Placement{})
			}
		}
	}
	for i := range rows {
		if id := (source{rows[i].TraceID, rows[i].Source}); o.parked[id] {
			o.parked[id] = assembled.Placed[i].SessionID == ""
		}
	}
	for _, parked := range o.parked {
		if parked {
			o.result.Parked++
		}
	}
	return o.replace(rows, &assembled)
}

// rebuild assembles a segment and stores where it may be cut.
func (o *observer) rebuild(home string, s *segment) (part Assembly, err error) {
	if len(s.Observations) > 0 {
		for _, some := range [][]Observation{s.Around, s.Observations} {
			if err := o.rankTraces(some); err != nil {
				return part, err
			}
		}
		if part, err = o.assemble(&s.Window); err != nil {
			return part, err
		}
		if len(part.Placed) != len(s.Observations) {
			return part, fmt.Errorf("%d placements for %d observations", len(part.Placed), len(s.Observations))
		}
	}
	old, err := o.tx.Cuts(home, s.from, s.to)
	if err != nil {
		return part, err
	}
	if s.Carry != nil && len(old) > 0 && old[0].At == s.from {
		old = old[1:] // where it begins
	}
	stored := make(map[int64]*Cut, len(old))
	for i := range old {
		stored[old[i].At] = &old[i]
	}
	for i := range part.Cuts {
		c := &part.Cuts[i]
		before := stored[c.At]
		delete(stored, c.At)
		if before != nil && bytes.Equal(before.Carry, c.Carry) {
			continue
		}
		if err := o.tx.PutCut(home, c); err != nil {
			return part, err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(stored)) {
		if err := o.tx.DeleteCut(home, at); err != nil {
			return part, err
		}
	}
	return part, nil
}

// window is a range of a home's time that must be rebuilt. It begins at a cut, where
// that is not nil.
type window struct {
	stretch
	cut *Cut
}

// windows are the windows of a home that must be rebuilt where the touched stretches
// changed, in order of time: from an opening or a cut to another opening, where
// nothing reaches across.
func (o *observer) windows(home string, touched []stretch) ([]window, error) {
	slices.SortFunc(touched, func(x, y stretch) int { return cmp.Compare(x.from, y.from) })
	var all []window
	for _, s := range touched {
		n := len(all)
		if n > 0 && s.to < all[n-1].to {
			continue
		}
		w, err := o.window(home, s)
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
func (o *observer) window(home string, s stretch) (window, error) {
	w := window{stretch: stretch{math.MinInt64, math.MaxInt64}}
	cut, err := o.cutBefore(home, s.from)
	if err != nil {
		return w, err
	}
	for before := s.from; ; {
		at, ok, err := o.tx.OpenerBefore(home, before)
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
		first, _, across, err := o.tx.Across(home, at)
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
		at, ok, err := o.tx.OpenerFrom(home, from)
		if err != nil {
			return w, err
		}
		if !ok {
			break
		}
		_, last, across, err := o.tx.Across(home, at)
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
func (o *observer) cutBefore(home string, at int64) (*Cut, error) {
	settled, ok, err := o.tx.NthBefore(home, at, CutLookahead)
	if err != nil || !ok {
		return nil, err
	}
	return o.tx.CutBefore(home, settled)
}

// segment is a part of a window that is assembled by itself, and the range of time
// that it stands for.
type segment struct {
	stretch
	Window
}

// changedSegments cuts a window into segments and leaves out those that were the
// same before the batch.
func (o *observer) changedSegments(home string, w window) ([]segment, error) {
	all, err := o.tx.Observations(home, w.from, w.to)
	if err != nil {
		return nil, err
	}
	first := Window{Home: home}
	if w.cut != nil {
		first.Carry = w.cut.Carry
		if first.Around, err = o.tx.Around(home, w.from); err != nil {
			return nil, err
		}
	}
	reach := int64(math.MinInt64)
	for i := range first.Around {
		reach = max(reach, first.Around[i].End)
	}
	slices.SortFunc(all, func(x, y Observation) int { return compareObservations(&x, &y) })
	cut := segments(all, reach)
	if len(cut) == 0 {
		return []segment{{w.stretch, first}}, nil // what was there has moved
	}
	segmented := make([]segment, len(cut))
	for i := range cut {
		segmented[i] = segment{stretch{cut[i][0].Start, w.to}, Window{Home: home, Observations: cut[i]}}
		if i > 0 {
			segmented[i-1].to = cut[i][0].Start
		}
	}
	segmented[0].from = w.from
	segmented[0].Carry, segmented[0].Around = first.Carry, first.Around
	if o.redone[home] || len(cut) == 1 {
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
		// All that begin together stand on one side of the cut.
		if i > from && all[i].Start > all[i-1].Start && reach <= all[i].Start && opensAt(all[i:]) {
			cut = append(cut, all[from:i:i])
			from = i
		}
		reach = max(reach, all[i].End)
	}
	if from < len(all) {
		cut = append(cut, all[from:])
	}
	return cut
}

// opensAt says whether one of those that begin with the first opens a turn.
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
