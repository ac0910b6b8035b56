package store

import (
	"encoding/json"
	"math"
	"slices"
)

// A turn is rebuilt whole. A turn of a thousand steps that arrives step by step would so be built a thousand times, and
// cost as much as half a million steps. So a long turn is rebuilt at once only when it has grown by a part of itself.
// Otherwise the transaction that stores the observations marks its owner as unbuilt, and whoever wrote it has the turn
// rebuilt soon after, with [Batch.Rebuild]. A crash loses nothing: the observations and the mark are stored. Until then
// the answer of the turn is incomplete, and shown as one that is still being written.

const (
	// A turn of at most rebuiltAtOnce observations is rebuilt with each that is added, a longer one when one part in
	// growth was added since.
	rebuiltAtOnce = 128
	growth        = 8
)

// touchUnbuilt touches the turns of an owner that is marked, and notes whether others are.
func (o *observer) touchUnbuilt() {
	first := &UnbuiltOf{}
	o.ask(first)
	if first.Unbuilt == nil {
		return
	}
	owner := first.Unbuilt.Owner
	own := &UnbuiltOf{Owner: owner} // which locks it, too
	if o.ask(own); own.Unbuilt != nil {
		o.touch(owner, timeRange{own.Unbuilt.From, own.Unbuilt.To})
		o.rebuilt[owner] = true
	}
	o.result.Unbuilt = true
}

// deferWindows takes the windows out that are not to be rebuilt now, and marks their owners.
func (o *observer) deferWindows(owners []string, windows map[string][]window) {
	if !o.batch.Defer {
		return
	}
	added := make(map[string][]*Observation)
	for i := range o.batch.Observations {
		n := &o.batch.Observations[i]
		owner := o.owners[n.TraceID]
		if n.TraceID == "" {
			owner = ""
			if row := o.rows.observation(keyOf(n)); row != nil {
				owner = row.Owner
			}
		}
		added[owner] = append(added[owner], n)
	}
	var queries []Query
	for _, owner := range owners {
		for i := range windows[owner] {
			w := &windows[owner][i]
			w.size = &WindowSize{Owner: owner, From: w.from, To: w.to}
			if !o.rebuilt[owner] {
				queries = append(queries, w.size)
			}
		}
	}
	o.ask(queries...)
	for _, owner := range owners {
		windows[owner] = slices.DeleteFunc(windows[owner], func(w window) bool {
			mark := UnbuiltTurns{Owner: owner, From: math.MaxInt64, To: math.MinInt64}
			opens := false
			for _, n := range added[owner] {
				if w.from <= n.Start && n.Start < w.to {
					mark.Added++
					mark.From, mark.To = min(mark.From, n.Start), max(mark.To, n.Start)
					opens = opens || n.Opens
				}
			}
			of := o.unbuilt[owner]
			before := of.Unbuilt
			if before != nil {
				mark.Added += before.Added
				mark.From, mark.To = min(mark.From, before.From), max(mark.To, before.To)
			}
			if opens || mark.Added == 0 || w.size.Count <= max(rebuiltAtOnce, growth*mark.Added) {
				return false
			}
			of.Unbuilt = &mark
			o.rows.changes.Unbuilt = append(o.rows.changes.Unbuilt, mark)
			o.result.Unbuilt = true
			for _, n := range added[owner] {
				if w.from <= n.Start && n.Start < w.to {
					delete(o.pending, keyOf(n))
				}
			}
			if w.size.Answer != "" && (before == nil || before.From >= w.to || before.To < w.from) {
				answering := &o.session(owner).observed
				answering.unbuilt = append(answering.unbuilt, w.size.Answer)
			}
			return true
		})
	}
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
