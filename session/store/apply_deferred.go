package store

import (
	"encoding/json"
	"math"
	"slices"
)

// A turn is rebuilt whole. A turn of a thousand steps that arrives step by step would so be built a thousand times, and
// cost as much as half a million steps. So only a short turn is rebuilt in the transaction that stores its observations.
// Of a longer one that transaction marks the owner, and the engine has it rebuilt soon after ([RebuildTurns]), as often
// as that is cheap enough. A crash loses nothing: the observations and the mark are stored. Until then the answer of the
// turn is incomplete, and shown as one that is still being written.

// rebuiltAtOnce is how many observations a window has at most that is rebuilt with each that is added.
const rebuiltAtOnce = 256

// RebuildTurns rebuilds what is marked of the first owner after another one, which it returns; "" if there is none. The
// functions are those of a batch.
func RebuildTurns(tx Tx, functions *Batch, after string) (owner string, err error) {
	err = run(tx, func(set *rows) {
		a, all := newApplier(set), *functions
		all.Defer, owner = false, ""
		o, first := newObserver(&a, &all), unbuilt{after: after}
		if set.ask(first.add); first.marked == nil {
			return
		}
		owner = first.marked.Owner
		o.touch(owner, timeRange{first.marked.From, first.marked.To})
		o.rebuildAll()
		a.finish()
	})
	return owner, err
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
		windows[owner] = slices.DeleteFunc(windows[owner], func(w window) bool { return o.deferWindow(owner, &w) })
	}
}

// deferWindow marks the owner of a window, unless the window is rebuilt now.
func (o *observer) deferWindow(owner string, w *window) bool {
	m := UnbuiltTurns{Owner: owner, From: math.MaxInt64, To: math.MinInt64}
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
