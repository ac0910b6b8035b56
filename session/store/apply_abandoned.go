package store

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

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
	m := object(metadata)
	if ours := object(string(m["agenttrace"])); ours["end_reason"] != nil || ours["error"] != nil {
		return metadata
	}
	return editTrace(m, func(ours map[string]json.RawMessage) {
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
	m := object(metadata)
	if ours := object(string(m["agenttrace"])); string(ours["abandoned"]) != "true" {
		return metadata
	}
	return editTrace(m, func(ours map[string]json.RawMessage) {
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
	data := object(p.DataJSON)
	metadata := object(string(data["toolMetadata"]))
	ours := object(string(metadata["agenttrace"]))
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
