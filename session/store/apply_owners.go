package store

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// resolveOwners finds the owners of the traces that may have another. Traces of tool
// calls without a parent follow the one that asked for the call, and those that it
// asked for follow it.
func (o *observer) resolveOwners() {
	settled, followed := make(map[string]bool), 0
	for traces := slices.Sorted(maps.Keys(o.unsettled)); ; {
		for _, trace := range traces {
			settled[trace] = true
		}
		for _, trace := range traces {
			o.resolveOwner(trace)
		}
		news := o.asked[followed:] // those that follow are appended
		if len(news) == 0 {
			return
		}
		o.ask(o.orphansOf(news)...)
		traces = nil
		for _, call := range news {
			for _, trace := range o.orphans[call].traces {
				if !settled[trace] && !slices.Contains(traces, trace) {
					traces = append(traces, trace)
				}
			}
		}
		followed += len(news)
	}
}

// orphansOf are queries for the traces that may belong to calls, those that were not asked yet.
func (o *observer) orphansOf(calls []asked) (queries []query) {
	for _, call := range calls {
		if o.orphans[call] == nil {
			o.orphans[call] = &orphanTraces{asked: call}
			queries = append(queries, o.orphans[call].add)
		}
	}
	return queries
}

// resolveOwner moves the observations of a trace to the session that it is built in,
// where that is another than before.
func (o *observer) resolveOwner(trace string) {
	owner := o.ownerOf(trace)
	before, known := o.owners[trace]
	if !known {
		before = o.trace(trace).Owner
	}
	if owner == before {
		return
	}
	o.owners[trace] = owner
	if _, stored := o.stored[trace]; known && !stored {
		// All of it is in the batch, and known to have changed.
		o.rows.setOwner(trace, "", owner)
		return
	}
	o.noteProofs(before)
	o.noteProofs(owner)
	o.ask()
	all := o.rows.ofTrace(trace)
	for i := range all {
		r := &all[i]
		o.nameThread(&r.Observation)
		o.move(r, before, owner)
		for _, call := range r.Calls {
			o.asked = append(o.asked, askedBy(call, &r.Observation))
		}
	}
	o.rows.setOwner(trace, "", owner)
}

// trace is what decides on the owner of a trace.
func (o *observer) trace(id string) *traced {
	t := o.traces[id]
	if t == nil {
		t = &traced{traceOwner: traceOwner{Trace: id}}
		o.ask(t.add)
		o.traces[id] = t
	}
	return t
}

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
func (o *observer) resolveThreads() {
	all := slices.SortedFunc(maps.Keys(o.threads), func(x, y thread) int {
		return cmp.Or(strings.Compare(x.session, y.session), strings.Compare(x.dialect, y.dialect))
	})
	for _, thread := range all {
		t := &threadOwner{thread: thread, withRecords: true}
		o.ask(t.add)
		owner := t.session
		if t.ok {
			owner = t.owner
		}
		for i := range t.records {
			o.moveRecord(&t.records[i], owner)
		}
	}
}

// moveRecord gives an observation outside of any trace another owner.
func (o *observer) moveRecord(r *ObservationRow, owner string) {
	o.noteProofs(r.Owner)
	o.noteProofs(owner)
	o.ask()
	o.touch(r.Owner, timeRange{r.Start, r.Until})
	o.move(r, r.Owner, owner)
	o.rows.setOwner("", r.Source, owner)
}

// move has an observation rebuilt for its new owner. One that is new to the store was never part of what the former
// owner has, so nothing of that is taken back.
func (o *observer) move(r *ObservationRow, before, owner string) {
	at := timeRange{r.Start, r.Until}
	o.touch(owner, at)
	if o.fresh[keyOf(&r.Observation)] {
		return
	}
	o.touch(before, at)
	o.moved = append(o.moved, r.Observation)
	o.rebuilt[before], o.rebuilt[owner] = true, true
	o.moving[before], o.moving[owner] = true, true
}

// ownerOf is where all of a trace's observations are built: in the session that the
// best key among them names; else where the model asked for a tool call of the
// trace that has no parent; else in a session of its own. What the SDK reports is
// not built again: a trace of its spans that names no other session has no owner.
func (o *observer) ownerOf(trace string) string {
	for path := []string{trace}; ; path = append(path, trace) {
		t := o.trace(trace)
		reported := slices.Concat(t.sessions, o.reported[trace])
		switch {
		case t.named != "" && !slices.Contains(reported, t.named):
			return t.named
		case len(reported) > 0:
			return ""
		}
		from := o.requester(t)
		switch {
		case from == nil:
			return t.Own
		case from.traceID == "":
			return from.owner
		}
		trace = from.traceID
		if i := slices.Index(path, trace); i >= 0 {
			// Each asked for a call of the next: no source reports that, but any may send it.
			return o.trace(slices.Min(path[i:])).Own
		}
	}
}

// requester is who asked for the first call of a trace that has no parent and
// that anybody asked for. Most are the first one's.
func (o *observer) requester(t *traced) *requesterOf {
	for rest, n := t.orphans, 1; len(rest) > 0; rest, n = rest[n:], len(rest)-n {
		found := make([]requesterOf, n)
		queries := make([]query, n)
		for i := range found {
			by, until := rest[i].Start, int64(0)
			if strings.HasPrefix(rest[i].Call, ModelCallPrefix) {
				by, until = by+ClockTick, rest[i].End-ClockTick
			}
			found[i] = requesterOf{call: rest[i].Call, notTrace: t.Trace, by: by, until: until}
			queries[i] = found[i].add
		}
		o.ask(queries...)
		for i := range found {
			if found[i].found {
				return &found[i]
			}
		}
	}
	return nil
}
