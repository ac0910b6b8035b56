package store

import (
	"cmp"
	"math"
	"slices"
)

// window is a range of an owner's time that must be rebuilt.
type window struct {
	timeRange
	size *WindowSize
	in   *ObservationsIn
}

// windows are the windows of owners that must be rebuilt because of what was touched, in order of time: from an
// opening to another, where nothing reaches across.
//
// What is in a window that was found need not be looked for. So one is looked for first, then a few of what is left,
// spread over the time, then many.
func (o *observer) windows(owners []string) map[string][]window {
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
		if len(searches) == 0 || o.rows.err != nil {
			return found
		}
		for i := range searches {
			searches[i].window = o.window(searches[i].owner, searches[i].at)
		}
		for _, s := range searches {
			found[s.owner] = append(found[s.owner], s.window)
		}
		for _, owner := range owners {
			found[owner] = unionWindows(found[owner])
			left[owner] = slices.DeleteFunc(left[owner], func(at timeRange) bool {
				within := func(w window) bool { return w.from <= at.from && at.to < w.to }
				return slices.ContainsFunc(found[owner], within)
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

// window is the range from the last opening before s to the first opening after it.
func (o *observer) window(owner string, s timeRange) window {
	w := window{timeRange: timeRange{math.MinInt64, math.MaxInt64}}
	from, to := &WindowFrom{Owner: owner, At: s.from}, &WindowTo{Owner: owner, At: s.to + 1}
	for from != nil || to != nil {
		var queries []Query
		if from != nil {
			queries = append(queries, from)
		}
		if to != nil {
			queries = append(queries, to)
		}
		o.ask(queries...)
		switch {
		case from == nil:
		case !from.OK:
			from = nil
		case from.Across == nil:
			w.from, from = from.Start, nil
		default:
			from = &WindowFrom{Owner: owner, At: min(from.Start, from.Across.From+1)}
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
	return w
}

// changedSegments cuts a window into those that may be assembled by themselves and leaves out those that were the
// same before the batch.
func (o *observer) changedSegments(owner string, w *window) [][]Observation {
	all := w.in.Rows
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
