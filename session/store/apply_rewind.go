package store

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// A rewind hides what comes after a user message and was there at its time. Another program hides and shows messages,
// too. So of each message it is known whether it was hidden before the batch, and a rewind hides only what it has not
// hidden yet.

func (w *sessionWork) mergeRewind(rw Rewind) {
	s := &w.row.State
	i, found := slices.BinarySearchFunc(s.Rewinds, rw, func(x, y Rewind) int {
		return cmp.Or(cmp.Compare(x.At, y.At), strings.Compare(x.To, y.To))
	})
	if !found {
		s.Rewinds = slices.Insert(s.Rewinds, i, rw)
		set(&w.fresh, rw, true)
	} else {
		old := s.Rewinds[i]
		rw.Undone, rw.ToAt = rw.Undone || old.Undone, max(rw.ToAt, old.ToAt)
		if rw == old {
			return
		}
		s.Rewinds[i] = rw
	}
	w.redraw, w.resync, w.dirty, w.news = true, true, true, true
}

// remember keeps a message as it was before the batch, nil when it was not there.
func (w *sessionWork) remember(id string, old *session.Message) {
	if _, known := w.before[id]; known {
		return
	}
	if old != nil {
		old = new(*old)
	}
	set(&w.before, id, old)
}

// covers reports whether the rewind hides a message, if it holds. to is the message that it goes back to, nil if it is
// not there: telemetry that arrived late may have given it another id.
func (r *Rewind) covers(to, m *session.Message) bool {
	if m == nil || m.ID == r.To || m.CreatedAt > r.At {
		return false
	}
	if to != nil && to.SessionID == m.SessionID {
		return PositionOf(to).Before(PositionOf(m))
	}
	return r.ToAt != 0 && r.ToAt < m.CreatedAt
}

// hidden is since when the message is hidden, nil when it is visible. old is the message as it is stored, nil when it
// is not. What another program has hidden stays hidden, and what it has shown again is hidden only by rewinds that did
// not hide it before: those that are new, and those that came to cover it in this batch.
func (w *sessionWork) hidden(m, old *session.Message, set *rows) *int64 {
	was, changed := w.before[m.ID]
	if !changed {
		was = old
	}
	old = cmp.Or(old, was) // it was deleted by the batch, and is there again
	since := int64(math.MaxInt64)
	if old != nil && old.HiddenAt != nil {
		if since = *old.HiddenAt; !w.hides(since) {
			return old.HiddenAt // by another program, or imported as hidden
		}
	}
	return w.hiddenBy(m, set, func(r *Rewind) bool {
		if was == nil || r.At >= since || w.fresh[*r] {
			return true
		}
		to := set.message(r.To)
		if to != nil {
			if before, changed := w.before[to.ID]; changed {
				to = before
			}
		}
		return !r.covers(to, was)
	})
}

// hiddenAt is when a rewind hid the message, or nil when it is visible. Rewinds
// after until (Unix milliseconds, 0 for never) do not count.
func (w *sessionWork) hiddenAt(m *session.Message, set *rows, until int64) *int64 {
	return w.hiddenBy(m, set, func(r *Rewind) bool { return until == 0 || r.At <= until })
}

// hiddenBy is hiddenAt where only some of the rewinds count that cover the message.
func (w *sessionWork) hiddenBy(m *session.Message, set *rows, counts func(*Rewind) bool) (hidden *int64) {
	for i := range w.row.State.Rewinds {
		r := &w.row.State.Rewinds[i]
		if r.Undone || !r.covers(set.message(r.To), m) || !counts(r) {
			continue
		}
		if w.noticeUndone(set); !r.Undone && (hidden == nil || r.At < *hidden) {
			hidden = new(r.At)
		}
	}
	return hidden
}

// noticeUndone marks, once per batch, the rewinds that another program has undone by showing again what they hid, so
// that they hide nothing that comes late. What the batch changed is looked at as it was before, and rewinds of the
// batch itself have not hidden anything yet.
func (w *sessionWork) noticeUndone(set *rows) {
	if w.noticed {
		return
	}
	w.noticed = true
	messages := slices.DeleteFunc(set.messagesFrom(w.id, Position{}), func(m session.Message) bool {
		_, changed := w.before[m.ID]
		return changed
	})
	for _, old := range w.before {
		if old != nil {
			messages = append(messages, *old)
		}
	}
	slices.SortFunc(messages, compareByPosition)
	for i, holds := range RewindsInForce(w.row.State.Rewinds, messages) {
		r := &w.row.State.Rewinds[i]
		if !holds && !r.Undone && !w.fresh[*r] {
			r.Undone, w.dirty = true, true
		}
	}
}

// RewindsInForce reports of each of a session's rewinds, which are in order of time, whether it
// holds: it is not undone, and not all of what it alone hides is seen, as another program
// leaves it that has undone the rewind. messages are those of the session in order. A rewind
// that has nothing to hide, or nothing but what an earlier one hides, holds.
func RewindsInForce(rewinds []Rewind, messages []session.Message) []bool {
	holds := make([]bool, len(rewinds))
	covered := make([]bool, len(messages))
	undone := make(map[int64]bool)
	for _, r := range rewinds {
		undone[r.At] = undone[r.At] || r.Undone
	}
	for i, r := range rewinds {
		if r.Undone {
			continue
		}
		var to *session.Message
		if k := slices.IndexFunc(messages, func(m session.Message) bool { return m.ID == r.To }); k >= 0 {
			to = &messages[k]
		}
		hides, shown := false, false
		var own []int
		for k := range messages {
			m := &messages[k]
			if covered[k] || !r.covers(to, m) {
				continue
			}
			own = append(own, k)
			// What is still hidden by a rewind that is undone was undone a moment ago, and is
			// yet to be computed again: it reports nothing of this rewind.
			switch {
			case m.HiddenAt != nil && *m.HiddenAt == r.At:
				hides = true
			case m.HiddenAt == nil || !undone[*m.HiddenAt]:
				shown = true
			}
		}
		if holds[i] = hides || !shown; holds[i] {
			for _, k := range own {
				covered[k] = true
			}
		}
	}
	return holds
}

// awaitsRewind reports whether a rewind goes back to the message.
func (w *sessionWork) awaitsRewind(id string) bool {
	return slices.ContainsFunc(w.row.State.Rewinds, func(r Rewind) bool { return r.To == id })
}

// hides reports whether a message hidden at that time was hidden by a rewind that
// telemetry reported. Another program's rewinds are left alone.
func (w *sessionWork) hides(at int64) bool {
	return slices.ContainsFunc(w.row.State.Rewinds, func(r Rewind) bool { return r.At == at })
}

// redrawHidden hides and shows messages as the rewinds want it.
func (a *applier) redrawHidden(w *sessionWork) {
	messages := a.rows.messagesFrom(w.id, Position{})
	for i := range messages {
		m := &messages[i]
		hidden := w.hidden(m, m, a.rows)
		if equal(hidden, m.HiddenAt) {
			continue
		}
		w.remember(m.ID, m)
		m.HiddenAt = hidden
		a.wrote(true, a.rows.putMessage(*m))
		w.touched[m.ID] = true
	}
	w.recut, w.resum = true, true
}
