package store

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
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
	messages = session.SortedRows(messages, compareByPosition)
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

// A process that dies leaves tool calls open. The one that resumes the session ends those that it knows of, from the
// state that was saved; a call that began after that is known from live events only, and nobody would ever end it.
//
// So where a turn was given up, what is open in its message has ended with it. That is no change like others, but a
// view of the part as it was seen last, which can be taken back: when a later or fuller description arrives, it is
// merged with what was seen, and the view is made again. So the order of arrival does not matter here either.

// A turn of which not even the state knows is given up likewise. The turns of one process count up; so where a turn
// began later and counts no further, its process did not know of the one before, which is over unless its own span
// reports more. That is a view of the message's metadata, as the calls' is of their parts.

// abandonedMark is in the data of a part, and the metadata of a message, that is such a view.
const abandonedMark = `"abandoned":`

// givenUp reports whether metadata is that of a turn which a later process ended.
func givenUp(metadata string) bool {
	if !strings.Contains(metadata, semconv.AbortedByRestart) {
		return false
	}
	m := marksOf(metadata)
	return m.EndReason == semconv.EndAbort && m.Error == semconv.AbortedByRestart
}

// endAbandoned makes the calls of a message end with its turn, or takes that back.
func (a *applier) endAbandoned(w *sessionWork, m, old *session.Message) {
	ended := givenUp(m.MetadataJSON)
	if !ended && (old == nil || !givenUp(old.MetadataJSON)) {
		return
	}
	_, known := a.rows.withParts(m.ID)
	parts := slices.Clone(known.parts)
	for i := range parts {
		want := seenPart(&parts[i])
		if ended {
			want = abandonedPart(want)
		}
		if equalParts(want, &parts[i]) || a.rows.refusedPart(m.ID, want.ID) != nil {
			continue
		}
		parts[i] = *want
		a.result.Rows++
		w.touched[m.ID] = true
	}
	a.rows.setParts(known, parts, known.requested)
}

// turnIndex is the count of the turn that an assistant message is the answer of. seen reports
// that the message was only seen live.
func turnIndex(m *session.Message) (index int64, seen, ok bool) {
	if m.Role != session.RoleAssistant || !strings.Contains(m.MetadataJSON, `"turn_index":`) {
		return 0, false, false
	}
	trace := marksOf(m.MetadataJSON)
	if trace.TurnIndex == nil {
		return 0, false, false
	}
	return *trace.TurnIndex, trace.Incomplete && trace.Seen != "", true
}

// giveUpTurn gives m the metadata of a turn that was given up if it was so before, and notes whether it may show so of
// others, or others of it. m is not stored yet.
func (w *sessionWork) giveUpTurn(m, old *session.Message) {
	index, seen, ok := turnIndex(m)
	same := false
	if old != nil {
		before, wasSeen, was := turnIndex(old)
		same = was == ok && before == index && wasSeen == seen && PositionOf(old) == PositionOf(m)
		if seen && seenMetadata(old.MetadataJSON) != old.MetadataJSON {
			m.MetadataJSON = abandonedMetadata(m.MetadataJSON)
		}
	}
	w.reopen = w.reopen || !same && (seen || len(w.row.State.Open) > 0)
}

// giveUpTurns finds the turns that were only seen live, and gives up those of them that a later one shows to be over:
// one that counts no further. There are few, for a turn is open when it is the last.
func (a *applier) giveUpTurns(w *sessionWork) {
	if !w.reopen {
		return
	}
	w.reopen = false
	from := Position{At: math.MaxInt64}
	for _, open := range w.row.State.Open {
		if open.Before(from) {
			from = open
		}
	}
	for _, mw := range w.order {
		if m := a.rows.message(mw.id); m != nil && m.SessionID == w.id && PositionOf(m).Before(from) {
			if _, seen, _ := turnIndex(m); seen {
				from = PositionOf(m)
			}
		}
	}
	var open []Position
	least := int64(math.MaxInt64) // of the turns that come later
	for _, old := range slices.Backward(a.rows.messagesFrom(w.id, from)) {
		index, seen, ok := turnIndex(&old)
		if seen {
			open = append(open, PositionOf(&old))
			m := old
			if m.MetadataJSON = seenMetadata(m.MetadataJSON); least <= index {
				m.MetadataJSON = abandonedMetadata(m.MetadataJSON)
			}
			a.putMessage(w, &m, &old)
			a.endAbandoned(w, &m, &old)
		}
		if ok {
			least = min(least, index)
		}
	}
	slices.Reverse(open)
	if !slices.Equal(open, w.row.State.Open) {
		w.row.State.Open, w.dirty = open, true
	}
}

// abandonedMetadata is what was seen of a message, as that of a turn that was given up.
func abandonedMetadata(metadata string) string {
	ours := session.Object(session.Object(metadata)["agenttrace"])
	if ours["end_reason"] != nil || ours["error"] != nil {
		return metadata
	}
	return editTrace(metadata, func(ours map[string]json.RawMessage) {
		ours["abandoned"] = json.RawMessage("true")
		ours["end_reason"] = json.RawMessage(`"` + semconv.EndAbort + `"`)
		ours["error"] = json.RawMessage(`"` + semconv.AbortedByRestart + `"`)
	})
}

// seenMetadata undoes abandonedMetadata.
func seenMetadata(metadata string) string {
	if !strings.Contains(metadata, abandonedMark) {
		return metadata
	}
	if ours := session.Object(session.Object(metadata)["agenttrace"]); string(ours["abandoned"]) != "true" {
		return metadata
	}
	return editTrace(metadata, func(ours map[string]json.RawMessage) {
		for _, key := range []string{"abandoned", "end_reason", "error"} {
			delete(ours, key)
		}
	})
}

// abandonedPart returns the part as it is when its turn was given up.
func abandonedPart(p *session.Part) *session.Part {
	if p.ToolState == nil || PartRank(p.DataJSON) != RankLive {
		return p
	}
	switch *p.ToolState {
	case session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested,
		session.StateApprovalResponded:
	default:
		return p
	}
	data := session.Object(p.DataJSON)
	metadata := session.Object(data["toolMetadata"])
	ours := session.Object(metadata["agenttrace"])
	was, err := json.Marshal(p.DataJSON)
	if err != nil {
		return p
	}
	ours["abandoned"] = was
	ours["error_type"] = json.RawMessage(`"` + semconv.ErrorTypeAborted + `"`)
	metadata["agenttrace"] = json.RawMessage(encodeObject(ours))
	data["toolMetadata"] = json.RawMessage(encodeObject(metadata))
	data["state"] = json.RawMessage(`"` + session.StateOutputError + `"`)
	data["errorText"] = json.RawMessage(`"` + semconv.AbortedByRestart + `"`)
	delete(data, "approval") // nobody will answer
	out, state := *p, session.StateOutputError
	out.ToolState, out.DataJSON = &state, encodeObject(data)
	return &out
}

// seenPart undoes abandonedPart. Any other part it returns as it is.
func seenPart(p *session.Part) *session.Part {
	if !strings.Contains(p.DataJSON, abandonedMark) {
		return p
	}
	var view struct {
		ToolMetadata struct{ Agenttrace struct{ Abandoned string } }
	}
	var was struct{ State string }
	_ = json.Unmarshal([]byte(p.DataJSON), &view)
	seen := view.ToolMetadata.Agenttrace.Abandoned
	if json.Unmarshal([]byte(seen), &was) != nil {
		return p
	}
	out := *p
	out.ToolState, out.DataJSON = &was.State, seen
	return &out
}
