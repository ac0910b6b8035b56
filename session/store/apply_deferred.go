package store

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
)

// A turn is rebuilt whole. A turn of a thousand steps that arrives step by step would so be built a thousand times, and
// cost as much as half a million steps. So only a short turn is rebuilt in the transaction that stores its observations.
// Of a longer one that transaction marks the owner, and the engine has it rebuilt soon after, as often as that is cheap
// enough: it reads the turn in a transaction of its own ([FindUnbuilt]), assembles it in none ([Unbuilt.Assemble]), and
// has the rows replaced with a batch that has it as its Rebuilt. So nobody who stores something else waits for the
// first two. A crash loses nothing: the observations and the mark are stored. Until then the answer of the turn is
// incomplete, and shown as one that is still being written.
//
// The rows may be replaced though observations were added since the turn was read: those are marked, and no row depends
// on them yet. They may not when any row of the owner was built since, when an observation was replaced, or has another
// owner. All of that gives the mark another version.

// rebuiltAtOnce is how many observations a window has at most that is rebuilt with each that is added.
const rebuiltAtOnce = 256

// Unbuilt is a range of an owner's time that is marked, as it was read.
type Unbuilt struct {
	mark     UnbuiltTurns
	proofs   []UsageProof
	segments [][]Observation
	built    assembled
	assemble Assembler
	stale    bool
}

// Owner is whose turns they are.
func (u *Unbuilt) Owner() string { return u.mark.Owner }

// Stale reports, after a batch had u as its Rebuilt, that it must be read again.
func (u *Unbuilt) Stale() bool { return u.stale }

// FindUnbuilt reads what is marked of the first owner after another one, nil if there is none. It changes nothing. The
// functions are those of a batch.
func FindUnbuilt(tx Tx, functions *Batch, after string) (u *Unbuilt, err error) {
	err = run(tx, func(set *rows) {
		a := newApplier(set)
		o := newObserver(&a, functions)
		first := unbuilt{after: after}
		if o.ask(first.add); first.marked == nil {
			return
		}
		u = &Unbuilt{mark: *first.marked, assemble: functions.Assemble}
		owner := u.mark.Owner
		o.touch(owner, timeRange{u.mark.From, u.mark.To})
		o.rebuilt[owner] = true
		o.noteProofs(owner)
		windows := o.windows([]string{owner})
		o.read(windows)
		for i := range windows[owner] {
			u.segments = append(u.segments, o.changedSegments(owner, &windows[owner][i])...)
		}
		u.proofs = o.proofs[owner].proofs
	})
	return u, err
}

// Assemble makes of what was read what its rows are to be.
func (u *Unbuilt) Assemble() error {
	for _, rows := range u.segments {
		part, err := assembleRows(u.assemble, u.mark.Owner, u.proofs, rows)
		if err != nil {
			return err
		}
		u.built.rows = append(u.built.rows, rows...)
		u.built.add(&part)
	}
	return nil
}

// takeRebuilt has the rows of the batch's Rebuilt replaced, unless it is stale.
func (o *observer) takeRebuilt(parts map[string]*assembled) {
	u := o.batch.Rebuilt
	owner := u.mark.Owner
	own := o.unbuilt[owner]
	u.stale = false
	if own.marked == nil || own.marked.Version != u.mark.Version || !slices.Equal(u.proofs, o.proofs[owner].proofs) {
		u.stale, o.result.Unbuilt = true, true
		return
	}
	o.prove(owner, u.built.rows, &u.built.Assembly)
	*parts[owner] = u.built
	if own.marked.Added == u.mark.Added {
		o.unmark(owner)
	} else {
		o.result.Unbuilt = true
	}
}

// mark sets the mark of an owner.
func (o *observer) mark(m UnbuiltTurns) {
	o.unbuilt[m.Owner].marked = &m
	o.rows.mark(m)
}

// unmark deletes the mark of an owner.
func (o *observer) unmark(owner string) {
	o.unbuilt[owner].marked = nil
	o.rows.mark(UnbuiltTurns{Owner: owner})
}

// deferWindows takes the windows out that are not to be rebuilt now, and marks their owners.
func (o *observer) deferWindows(owners []string, windows map[string][]window) {
	for _, owner := range owners {
		if m := o.unbuilt[owner].marked; m != nil && len(windows[owner]) > 0 && (!o.batch.Defer || o.moving[owner]) {
			// All that the mark is of is rebuilt, with what was touched.
			o.touch(owner, timeRange{m.From, m.To})
			o.rebuilt[owner] = true
			windows[owner] = o.windows([]string{owner})[owner]
			o.unmark(owner)
		}
	}
	if !o.batch.Defer {
		return
	}
	var queries []query
	for _, owner := range owners {
		for i := range windows[owner] {
			if !o.moving[owner] {
				queries = append(queries, windows[owner][i].addSize)
			}
		}
	}
	o.ask(queries...)
	for _, owner := range owners {
		before := len(windows[owner])
		windows[owner] = slices.DeleteFunc(windows[owner], func(w window) bool { return o.deferWindow(owner, &w) })
		m := o.unbuilt[owner].marked
		if changed := len(windows[owner]) > 0 || o.replacing[owner]; m != nil && before > 0 && changed {
			renewed := *m
			renewed.Version = rand.Int64()
			o.mark(renewed)
		}
	}
}

// deferWindow marks the owner of a window, unless the window is rebuilt now.
func (o *observer) deferWindow(owner string, w *window) bool {
	m := UnbuiltTurns{Owner: owner, From: math.MaxInt64, To: math.MinInt64, Version: rand.Int64()}
	marked := o.unbuilt[owner].marked
	within := marked != nil && w.from <= marked.To && marked.From < w.to
	if o.moving[owner] || w.count <= rebuiltAtOnce && !within {
		return false
	}
	if marked != nil {
		m = *marked
	}
	m.Added++
	for _, at := range o.touched[owner] {
		if at.from < w.to && w.from <= at.to {
			m.From, m.To = min(m.From, at.from), max(m.To, at.to)
		}
	}
	o.mark(m)
	o.result.Unbuilt = true
	for i := range o.batch.Observations {
		if n := &o.batch.Observations[i]; w.from <= n.Start && n.Start < w.to && o.storedOwner(n) == owner {
			delete(o.pending, keyOf(n))
		}
	}
	if w.answer != "" {
		answering := &o.session(owner).observed
		answering.unbuilt = append(answering.unbuilt, w.answer)
	}
	return true
}

// storedOwner is where an observation of the batch is kept.
func (o *observer) storedOwner(n *Observation) string {
	if n.TraceID != "" {
		return o.owners[n.TraceID]
	}
	if row := o.rows.observation(keyOf(n)); row != nil {
		return row.Owner
	}
	return ""
}

// markUnbuilt marks answers as incomplete, as the turn that they are of is until it is rebuilt.
func (a *applier) markUnbuilt(w *sessionWork) {
	for _, id := range w.observed.unbuilt {
		old := a.rows.message(id)
		if old == nil || old.SessionID != w.id {
			continue
		}
		m := *old
		m.MetadataJSON = editTrace(object(m.MetadataJSON), func(ours map[string]json.RawMessage) {
			ours["incomplete"] = json.RawMessage("true")
		})
		a.putMessage(w, &m, old)
	}
}
