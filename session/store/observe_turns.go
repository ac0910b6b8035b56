package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// A turn is rebuilt whole. A turn of a thousand steps that arrives step by step would so be built a thousand times, and
// cost as much as half a million steps. So only a short turn is rebuilt in the transaction that stores its
// observations. Of a longer one that transaction marks the owner, and the engine has it rebuilt soon after, as often as
// that is cheap enough: see [Rebuild]. A crash loses nothing: the observations and the mark are stored. Until then the
// answer of the turn is incomplete, and shown as one that is still being written.

// rebuiltAtOnce is how many observations a window has at most that is rebuilt with each that is added.
const rebuiltAtOnce = 256

// Rebuild builds the turns that are marked of the first owner after another one, and returns whose they are, "" if
// there is none. The functions are those of a batch.
func Rebuild(tx Tx, functions *Batch, after string) (owner string, err error) {
	err = run(tx, func(set *rows) {
		a, b := newApplier(set), *functions
		b.Defer = false
		a.observer = newObserver(&a, &b)
		var w ownerWork
		if set.ask(w.readMark(after)); w.mark == nil {
			owner = ""
			return
		}
		owner = w.mark.Owner
		a.observer.touch(owner, timeRange{w.mark.From, w.mark.To})
		a.observer.rebuildAll()
		a.applySessions()
	})
	return owner, err
}

// assembled is what observations come to.
type assembled struct {
	rows []Observation
	Assembly
}

func (a *assembled) append(part *assembled) {
	a.rows = append(a.rows, part.rows...)
	a.Messages = append(a.Messages, part.Messages...)
	a.Decisions = append(a.Decisions, part.Decisions...)
	a.Attribution = append(a.Attribution, part.Attribution...)
}

// setMark sets the mark of an owner, or deletes it.
func (o *observer) setMark(w *ownerWork, m *UnbuiltTurns) {
	if w.mark = m; m == nil {
		m = &UnbuiltTurns{Owner: w.id}
	}
	o.rows.mark(*m)
}

// rebuildAll rebuilds every window that was touched. Where that shows that tokens were counted otherwise than was
// assumed, all that was counted is rebuilt, once: the proof is the same however the tokens are read.
func (o *observer) rebuildAll() {
	var owners []*ownerWork
	var queries []query
	for _, id := range slices.Sorted(maps.Keys(o.owners)) {
		if w := o.owners[id]; len(w.touched) > 0 {
			owners = append(owners, w)
			queries = append(queries, w.readMark(""), w.readProofs)
		}
	}
	o.rows.ask(queries...)
	for _, w := range owners {
		o.rebuild(w)
	}
	all := assembled{rows: o.left}
	all.Attribution = make([]Attribution, len(o.left))
	for i := range o.left {
		o.rows.prove(&o.left[i], UsageProof{})
	}
	for _, w := range owners {
		if o.reproven(w) {
			o.rebuild(w)
		}
		all.append(&w.built)
	}
	for i := range all.rows {
		if id := keyOf(&all.rows[i]); o.pending[id] {
			o.pending[id] = all.Attribution[i].SessionID == ""
		}
	}
	for _, pending := range o.pending {
		if pending && !o.result.Unbuilt { // otherwise it may wait for that alone
			o.result.Pending++
		}
	}
	o.replace(all.rows, &all.Assembly)
}

// reproven reports whether the observations of an owner prove something else than its windows were assembled with. It
// touches all of them that were counted then.
func (o *observer) reproven(w *ownerWork) bool {
	if !w.proves && !w.recount {
		return false
	}
	before := w.proofs
	if o.rows.ask(w.readProofs); !w.recount && slices.Equal(before, w.proofs) {
		return false
	}
	var counted *timeRange
	if o.rows.ask(readCounted(w.id, &counted)); counted == nil {
		return false
	}
	o.touch(w.id, *counted)
	return true
}

// rebuild assembles the windows of an owner that were touched, except those that are to be rebuilt later.
func (o *observer) rebuild(w *ownerWork) {
	windows := o.windows(w)
	defers := o.batch.Defer && !w.moving
	if m := w.mark; m != nil && len(windows) > 0 && !defers {
		// All that the mark is of is rebuilt, with what was touched.
		o.touch(w.id, timeRange{m.From, m.To})
		windows = o.windows(w)
		o.setMark(w, nil)
	}
	if defers {
		windows = o.postpone(w, windows)
	}
	w.built = assembled{}
	for i := range windows {
		for _, rows := range segments(windows[i].read(o.rows)) {
			part, err := o.batch.Assemble(&Window{Owner: w.id, Proofs: w.proofs, Observations: rows})
			if err == nil && len(part.Attribution) != len(rows) {
				err = fmt.Errorf("%d attributions for %d observations", len(part.Attribution), len(rows))
			}
			if err == nil {
				w.built.append(&assembled{rows, part})
			} else {
				o.rows.fail(fmt.Errorf("assemble session %s: %w", w.id, err))
			}
		}
	}
	news := false
	for i := range w.built.rows {
		n := &w.built.rows[i]
		if n.Opens != Continues && w.built.Attribution[i].Resumes != (n.Opens == Resumes) {
			o.rows.exec(`UPDATE observations SET opens = ? WHERE trace_id = ? AND source = ?`, Opens+Resumes-n.Opens,
				n.TraceID, n.Source)
			o.touch(w.id, timeRange{n.Start, n.Until})
			news = true
		}
	}
	if news {
		o.rebuild(w) // together with what it goes on from, also where that is what came last
		return
	}
	o.prove(w)
}

// prove stores what observations prove that were assembled.
func (o *observer) prove(w *ownerWork) {
	for i := range w.built.rows {
		n := &w.built.rows[i]
		if proof := w.built.Attribution[i].UsageProof; proof != n.Attribution.UsageProof {
			o.rows.prove(n, proof)
			w.proves = true
		}
	}
}

// window is a range of an owner's time that must be rebuilt.
type window struct {
	timeRange
	owner string
}

// windows are those of an owner that must be rebuilt because of what was touched, in order of time: from where a turn
// opens to where another one does, where nothing reaches across.
func (o *observer) windows(w *ownerWork) (found []window) {
	for _, at := range session.SortedRows(w.touched, func(x, y *timeRange) int { return cmp.Compare(x.from, y.from) }) {
		if n := len(found); n > 0 && at.to < found[n-1].to {
			continue // it is in a window that was found
		}
		next := window{timeRange{o.boundary(w.id, at.from, true), o.boundary(w.id, at.to+1, false)}, w.id}
		for n := len(found); n > 0 && next.from < found[n-1].to; n = len(found) {
			next.from, next.to = min(next.from, found[n-1].from), max(next.to, found[n-1].to)
			found = found[:n-1]
		}
		found = append(found, next)
	}
	return found
}

// boundary is the last time before at when an observation opens a turn and none reaches across, or the first one from
// at on. Where there is none, it is the least time or the greatest.
func (o *observer) boundary(owner string, at int64, before bool) int64 {
	for o.rows.err == nil {
		var across *timeRange
		start, ok := o.rows.opening(owner, at, before, &across)
		switch {
		case ok && across == nil:
			return start
		case ok && before:
			at = min(start, across.from+1)
		case ok:
			at = max(start+1, across.to)
		case before:
			return math.MinInt64
		default:
			return math.MaxInt64
		}
	}
	return at
}

// segments cuts observations where one opens and none reaches across. It sorts them.
func segments(all []Observation) [][]Observation {
	copy(all, session.SortedRows(all, compareObservations))
	var cut [][]Observation
	from, reach := 0, int64(math.MinInt64)
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
		if rest[i].Opens == Opens {
			return true
		}
	}
	return false
}

// postpone marks the owner for the windows that are to be rebuilt later, and returns the others, which are short.
func (o *observer) postpone(w *ownerWork, windows []window) (now []window) {
	for _, win := range windows {
		count, answer := win.size(o.rows)
		if count <= rebuiltAtOnce {
			now = append(now, win)
			continue
		}
		m := UnbuiltTurns{Owner: w.id, From: math.MaxInt64, To: math.MinInt64}
		if w.mark != nil {
			m = *w.mark
		}
		m.Added++
		for _, at := range w.touched {
			if at.from < win.to && win.from <= at.to {
				m.From, m.To = min(m.From, at.from), max(m.To, at.to)
			}
		}
		o.setMark(w, &m)
		o.result.Unbuilt = true
		if answer != "" {
			answering := &o.session(w.id).observed
			answering.unbuilt = append(answering.unbuilt, answer)
		}
	}
	return now
}

// markUnbuilt marks answers as incomplete, as the turn that they are of is until it is rebuilt.
func (a *applier) markUnbuilt(w *sessionWork) {
	for _, id := range w.observed.unbuilt {
		old := a.rows.message(id)
		if old == nil || old.SessionID != w.id {
			continue
		}
		m := *old
		m.MetadataJSON = editTrace(m.MetadataJSON, func(ours map[string]json.RawMessage) {
			ours["incomplete"] = json.RawMessage("true")
		})
		a.putMessage(w, &m, old)
	}
}
