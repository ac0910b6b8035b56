package store

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

// A process that dies leaves tool calls open. The one that resumes the session ends
// those that it knows of, from the state that was saved; a call that began after that
// is known from live events only, and nobody would ever end it.
//
// So where a turn was given up, what is open in its message has ended with it. That
// is no change like others, but a view of the part as it was seen last, which can be
// taken back: when a later or fuller description arrives, it is merged with what was
// seen, and the view is made again. So the order of arrival does not matter here
// either.

// A turn of which not even the state knows is given up likewise. The turns of one
// process count up; so where a turn began later and counts no further, its process did
// not know of the one before, which is over unless its own span reports more. That is a view
// of the message's metadata, as the calls' is of their parts.

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
	parts := a.rows.partsOfMessage(m.ID)
	for i := range parts {
		want := seenPart(&parts[i])
		if ended {
			want = abandonedPart(want)
		}
		if equalParts(want, &parts[i]) {
			continue
		}
		a.wrote(true, a.rows.updatePart(want))
		w.touched[m.ID] = true
	}
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

// giveUpTurn keeps State.Open, and gives m the metadata of a turn that was given up where
// it is one. m is not stored yet.
func (a *applier) giveUpTurn(w *sessionWork, m *session.Message) {
	open := &w.row.State.Open
	at := slices.IndexFunc(*open, func(o OpenTurn) bool { return o.ID == m.ID })
	var was OpenTurn
	if at >= 0 {
		was = (*open)[at]
	}
	index, seen, ok := turnIndex(m)
	if !ok || !seen {
		if at >= 0 {
			*open, w.dirty = slices.Delete(*open, at, at+1), true
		}
		return
	}
	is := OpenTurn{Position: PositionOf(m), Index: index, Over: was.Over}
	if at < 0 || is != was {
		// Otherwise nothing has changed since it was looked at last.
		is.Over = a.turnIsOver(w, &is)
	}
	if is.Over {
		m.MetadataJSON = abandonedMetadata(m.MetadataJSON)
	}
	if at >= 0 && is == was {
		return
	}
	if at >= 0 {
		*open = slices.Delete(*open, at, at+1)
	}
	at = slices.IndexFunc(*open, func(o OpenTurn) bool { return is.Before(o.Position) })
	if at < 0 {
		at = len(*open)
	}
	*open, w.dirty = slices.Insert(*open, at, is), true
}

// turnIsOver looks for a turn that shows that an open one was given up, among those after
// it: few or none, for a turn is open when it is the last.
func (a *applier) turnIsOver(w *sessionWork, o *OpenTurn) bool {
	messages := a.rows.messagesFrom(w.id, o.Position)
	return slices.ContainsFunc(messages, func(m session.Message) bool {
		index, _, ok := turnIndex(&m)
		return ok && o.givenUpBy(PositionOf(&m), index)
	})
}

// givenUpBy reports whether another turn shows that this one is over.
func (o *OpenTurn) givenUpBy(at Position, index int64) bool {
	return at.ID != o.ID && o.Before(at) && index <= o.Index
}

// giveUpOthers gives up the turns which m, that was just stored, shows to be over, and
// takes that back where m did and does no more.
func (a *applier) giveUpOthers(w *sessionWork, m, old *session.Message) {
	open := w.row.State.Open
	if len(open) == 0 || len(open) == 1 && open[0].ID == m.ID {
		return
	}
	index, _, ok := turnIndex(m)
	moved := false
	if old != nil {
		before, _, was := turnIndex(old)
		if was == ok && before == index && PositionOf(old) == PositionOf(m) {
			return
		}
		moved = was
	}
	for i := range open {
		o := &open[i]
		over := o.Over
		if ok && o.givenUpBy(PositionOf(m), index) {
			over = true
		} else if over && moved {
			over = a.turnIsOver(w, o)
		}
		if over == o.Over {
			continue
		}
		o.Over, w.dirty = over, true
		a.showGivenUp(w, o)
	}
}

// showGivenUp writes the answer of an open turn as it is now.
func (a *applier) showGivenUp(w *sessionWork, o *OpenTurn) {
	old := a.rows.message(o.ID)
	if old == nil {
		return
	}
	m := *old
	if m.MetadataJSON = seenMetadata(m.MetadataJSON); o.Over {
		m.MetadataJSON = abandonedMetadata(m.MetadataJSON)
	}
	a.putMessage(w, &m, old)
	a.endAbandoned(w, &m, old)
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
	d := readLivePart(p)
	if d == nil {
		return p
	}
	was := map[string]json.RawMessage{"state": d.data["state"]}
	d.data["state"] = json.RawMessage(`"` + session.StateOutputError + `"`)
	d.data["errorText"] = json.RawMessage(`"` + semconv.AbortedByRestart + `"`)
	if approval, ok := d.data["approval"]; ok { // nobody will answer
		was["approval"] = approval
		delete(d.data, "approval")
	}
	d.ours["abandoned"] = json.RawMessage(encodeObject(was))
	d.ours["error_type"] = json.RawMessage(`"` + semconv.ErrorTypeAborted + `"`)
	out, state := *p, session.StateOutputError
	out.ToolState, out.DataJSON = &state, d.encode()
	return &out
}

// seenPart undoes abandonedPart. Any other part it returns as it is.
func seenPart(p *session.Part) *session.Part {
	if !strings.Contains(p.DataJSON, abandonedMark) {
		return p
	}
	d := readLivePart(p)
	if d == nil || d.ours["abandoned"] == nil {
		return p
	}
	was := object(string(d.ours["abandoned"]))
	var state string
	if json.Unmarshal(was["state"], &state) != nil {
		return p
	}
	delete(d.ours, "abandoned")
	delete(d.ours, "error_type")
	delete(d.data, "errorText")
	maps.Copy(d.data, was)
	out := *p
	out.ToolState, out.DataJSON = &state, d.encode()
	return &out
}

// livePart is the data of a tool call that was seen live.
type livePart struct {
	kind                 string
	data, metadata, ours map[string]json.RawMessage
}

// readLivePart reads the data of a part, nil when it is not written as live events
// are: it could not be written again as it was.
func readLivePart(p *session.Part) *livePart {
	d := &livePart{kind: p.Type, data: object(p.DataJSON)}
	d.metadata = object(string(d.data["toolMetadata"]))
	d.ours = object(string(d.metadata["agenttrace"]))
	if string(d.ours["live"]) != "true" || d.ours["seen"] == nil || d.encode() != p.DataJSON {
		return nil
	}
	return d
}

// encode writes the data as package ingest does: the type first, then when it was
// seen.
func (d *livePart) encode() string {
	b := jsonscan.AppendString([]byte(`{"type":`), d.kind)
	b = append(append(b, `,"toolMetadata":{"agenttrace":{"seen":`...), d.ours["seen"]...)
	b = append(b, `,"live":true`...)
	b = appendOthers(b, d.ours, "seen", "live")
	b = appendOthers(append(b, '}'), d.metadata, "agenttrace")
	b = appendOthers(append(b, '}'), d.data, "type", "toolMetadata")
	return string(append(b, '}'))
}

// appendOthers appends the members except those named, each after a comma.
func appendOthers(dst []byte, members map[string]json.RawMessage, but ...string) []byte {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(but, name) {
			dst = append(jsonscan.AppendString(append(dst, ','), name), ':')
			dst = append(dst, members[name]...)
		}
	}
	return dst
}
