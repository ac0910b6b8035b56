package store

import (
	"cmp"
	"math"
	"slices"
)

// window is a range of an owner's time that must be rebuilt.
type window struct {
	timeRange
	owner string
	// count is how many observations it has, up to a limit, answer the message that it comes to. rows are the
	// observations.
	count  int
	answer string
	rows   []Observation
}

// windows are the windows of owners that must be rebuilt because of what was touched, in order of time: from an
// opening to another, where nothing reaches across.
func (o *observer) windows(owners []string) map[string][]window {
	all := make(map[string][]window)
	for _, owner := range owners {
		touched := slices.Clone(o.touched[owner])
		slices.SortFunc(touched, func(x, y timeRange) int { return cmp.Compare(x.from, y.from) })
		var found []window
		for _, at := range touched {
			if n := len(found); n > 0 && at.to < found[n-1].to {
				continue // it is in a window that was found
			}
			w := o.window(owner, at)
			for n := len(found); n > 0 && w.from < found[n-1].to; n = len(found) {
				w.from, w.to = min(w.from, found[n-1].from), max(w.to, found[n-1].to)
				found = found[:n-1]
			}
			found = append(found, w)
		}
		all[owner] = found
	}
	return all
}

// window is the range from the last opening before s to the first opening after it.
func (o *observer) window(owner string, s timeRange) window {
	w := window{timeRange: timeRange{math.MinInt64, math.MaxInt64}, owner: owner}
	from, to := &opening{owner: owner, at: s.from, before: true}, &opening{owner: owner, at: s.to + 1}
	for o.ask(from.add, to.add); from.ok && from.across != nil; o.ask(from.add) {
		from = &opening{owner: owner, at: min(from.start, from.across.from+1), before: true}
	}
	for ; to.ok && to.across != nil; o.ask(to.add) {
		to = &opening{owner: owner, at: max(to.start+1, to.across.to)}
	}
	if from.ok {
		w.from = from.start
	}
	if to.ok {
		w.to = to.start
	}
	return w
}

// changedSegments cuts a window into those that may be assembled by themselves and leaves out those that were the
// same before the batch.
func (o *observer) changedSegments(owner string, w *window) [][]Observation {
	all := w.rows
	slices.SortFunc(all, func(x, y Observation) int { return compareObservations(&x, &y) })
	cut := segments(all)
	// Where observations were only added, segments without a new one are as they were, unless a new one moved their
	// bounds. Of other changes it is not known what they may have been part of.
	if o.rebuilt[owner] || len(cut) == 1 {
		return cut
	}
	isFresh := func(x Observation) bool { return o.fresh[keyOf(&x)] }
	before := make(map[ObservationKey]int) // the first of each segment that there was, and its length
	for _, s := range segments(slices.DeleteFunc(slices.Clone(all), isFresh)) {
		before[keyOf(&s[0])] = len(s)
	}
	return slices.DeleteFunc(cut, func(s []Observation) bool {
		return before[keyOf(&s[0])] == len(s) && !slices.ContainsFunc(s, isFresh)
	})
}

// segments cuts observations, which are in order, where one opens and none reaches across.
func segments(all []Observation) [][]Observation {
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
		if rest[i].Opens {
			return true
		}
	}
	return false
}
