package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

// How a stored row and an incoming one with the same id become one row. There is one function for each kind of row,
// whatever the source of the incoming row. What depends on the source is in these functions, too, so that
// docs/decisions/0002-merge-rules.md can be compared with them.
//
// Every rule is an order of values, of which the greatest is kept, and the order goes on until two values that are
// not equal have one that is greater: by the text itself in the end. So it does not matter which of two reports comes
// first, nor how often each does:
//
//	live event  "Hel"      final span  "Hello."        stored: "Hello."
//	final span  "Hello."   live event  "Hel" (late)    stored: "Hello."
//
// With the last one that came the second line would end with half of the text.

// origin is where an incoming row comes from.
type origin uint8

const (
	// changes are what spans and live events of the SDK report: the best report of a value
	// takes precedence, whenever it arrives.
	changes origin = iota
	// rebuilt rows replace those that were built from the same observations. What these came to then is no report: a
	// span that came late may have shown that a message ends earlier, and nothing of the longer one may stay.
	rebuilt
	// imports are rows of another store or program: of two the later takes precedence. They are what the other one has
	// made of all reports, so they are compared as a whole, and not value by value.
	imports
)

// refusal is an [ErrRefused] with a reason.
type refusal string

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// otherMessage refuses what has the id of another session's message.
func otherMessage(m *session.Message) error {
	return refuse("message %s: its id belongs to session %s; it is left out with its parts", m.ID, m.SessionID)
}

func (r refusal) Error() string { return string(r) }

// Is reports whether the target is ErrRefused: callers count what was refused, and go on with the other rows.
func (refusal) Is(target error) bool { return target == ErrRefused }

// mergeMessage merges a message into the stored one. What depends on more than the two rows is not merged here: the
// metadata that the spans of a message measured (see [FoldedMetadata]), and what rewinds hide.
func mergeMessage(stored, m *session.Message, from origin) session.Message {
	out := *stored
	switch from {
	case imports:
		if compareMessages(m, stored) > 0 {
			out = *m
		}
		// Apart from the rest: the store in which the user hid the message need not have the longer version of it.
		if out.HiddenAt = stored.HiddenAt; compareHidden(m, stored) > 0 {
			out.HiddenAt = m.HiddenAt
		}
	case changes:
		out.CreatedAt = earlier(stored.CreatedAt, m.CreatedAt)
		out.UpdatedAt = max(stored.UpdatedAt, m.UpdatedAt, m.CreatedAt)
		out.Role = max(stored.Role, m.Role) // "user" is greater than "system", and both than "assistant", the default
		if m.MetadataJSON != "" && compareMetadata(m.MetadataJSON, stored.MetadataJSON, from) > 0 {
			out.MetadataJSON = m.MetadataJSON
		}
	}
	return out
}

// compareMessages orders two imported versions of a message, hidden or not, by time, then by their metadata.
func compareMessages(m, o *session.Message) int {
	if c := cmp.Compare(m.UpdatedAt, o.UpdatedAt); c != 0 {
		return c
	}
	encode := func(m session.Message) []byte {
		m.HiddenAt = nil
		return m.AppendJSON(nil)
	}
	return cmp.Or(compareMetadata(m.MetadataJSON, o.MetadataJSON, imports), bytes.Compare(encode(*m), encode(*o)))
}

// compareMetadata orders what two sources know of a message: that of a message that is known whole after that of one
// that is not, then the one that was seen live later, then by [compareTexts]. A tool's span may create the message
// that its turn's span describes later: what was made for it is incomplete, and must not take precedence by its text.
func compareMetadata(a, b string, from origin) int {
	if a == b {
		return 0
	}
	rank := func(s string) (whole int, seen string) {
		switch {
		case s == "":
			return 0, ""
		case s == incompleteMetadata:
			return 1, ""
		case isIncomplete(s):
			return 2, marksOf(s).Seen
		}
		return 3, ""
	}
	aWhole, aSeen := rank(a)
	bWhole, bSeen := rank(b)
	return cmp.Or(cmp.Compare(aWhole, bWhole), strings.Compare(aSeen, bSeen), compareTexts(a, b, from))
}

// compareHidden orders two versions of a message by what they report of its being
// hidden: the later, the hidden one, the one that was hidden later.
func compareHidden(m, o *session.Message) int {
	at := func(m *session.Message) int64 {
		if m.HiddenAt == nil {
			return math.MinInt64 // a message that is shown is as late as its last change
		}
		return *m.HiddenAt
	}
	return cmp.Or(
		cmp.Compare(max(m.UpdatedAt, at(m)), max(o.UpdatedAt, at(o))),
		cmp.Compare(at(m), at(o)))
}

// marks are what the merge has to know of a message's metadata.
type marks struct {
	Incomplete bool `json:"incomplete"`
	// Seen is when a message was that was only seen live, in a form of which the later is the greater.
	Seen      string `json:"seen"`
	TurnIndex *int64 `json:"turn_index"`
	EndReason string `json:"end_reason"`
	Error     string `json:"error"`
}

// marksOf reads the marks in metadata. What cannot be read is not set.
func marksOf(metadata string) marks {
	var m struct {
		Agenttrace marks `json:"agenttrace"`
	}
	_ = json.Unmarshal([]byte(metadata), &m)
	return m.Agenttrace
}

// isIncomplete reports whether metadata marks its message as incomplete.
func isIncomplete(metadata string) bool {
	return metadata == incompleteMetadata || strings.Contains(metadata, `"incomplete"`) && marksOf(metadata).Incomplete
}

// mergePart merges a part into the stored one. The incoming one takes precedence if by is
// greater than 0. They are the same if it is 0.
func mergePart(stored, p *session.Part, from origin) (merged session.Part, by int) {
	merged = *stored
	if by = compareParts(p, stored, from); by > 0 {
		merged = *p
	}
	// The index is settled with the other parts of the message, and the earliest report knows best when the part began.
	if from != imports {
		merged.Index, merged.CreatedAt = stored.Index, earlier(p.CreatedAt, stored.CreatedAt)
	}
	return merged, by
}

// compareParts orders two descriptions of one part by rank, state of the call, time and text; imported ones by time
// before all else. Their indexes do not count, because a part may have been displaced.
//
// The parts of one call of a tool, from the least to the greatest:
//
//	stub of its turn's span         the turn lists the call, and knows neither input nor output
//	live, input-available           an event of the SDK while the call runs
//	live, output-error, aborted     the process that resumed the session has ended it, for the agent had died
//	live, output-available          an event of the SDK, from the process that was taken for dead
//	final                           the span of the call
func compareParts(p, q *session.Part, from origin) int {
	if c := cmp.Compare(p.UpdatedAt, q.UpdatedAt); c != 0 && from == imports {
		return c
	}
	if equalParts(p, q) && equal(p.ContinuationRunID, q.ContinuationRunID) && p.SessionID == q.SessionID {
		return 0
	}
	pRank, qRank := PartRank(p.DataJSON), PartRank(q.DataJSON)
	if c := cmp.Or(
		cmp.Compare(settledRank(pRank, session.Deref(p.ToolState)), settledRank(qRank, session.Deref(q.ToolState))),
		cmp.Compare(stateRank(p), stateRank(q)),
		cmp.Compare(pRank, qRank),
		cmp.Compare(isLive(q), isLive(p)), // the span of a call that was aborted says more
		cmp.Compare(p.UpdatedAt, q.UpdatedAt),
		compareTexts(p.DataJSON, q.DataJSON, from),
		strings.Compare(p.Type, q.Type),
	); c != 0 {
		return c
	}
	// No source is known to report two that differ in nothing but these. The order must be total all the same.
	c := strings.Compare(session.Deref(p.ToolCallID)+"\x00"+session.Deref(p.ToolState),
		session.Deref(q.ToolCallID)+"\x00"+session.Deref(q.ToolState))
	if c != 0 || from != imports {
		return c
	}
	// Imported rows may differ in any column, and of two that differ the same one is kept.
	encode := func(p session.Part) []byte {
		p.Index = 0
		return p.AppendJSON(nil)
	}
	return bytes.Compare(encode(*p), encode(*q))
}

// compareTexts orders the JSON of two versions that are equal otherwise. That of a live event
// begins with the time at which it was seen, so the later one is the greater; its length
// proves nothing, because the last event of a part has no state.
func compareTexts(a, b string, from origin) int {
	if from == imports {
		return compareGrown(a, b)
	}
	return strings.Compare(a, b)
}

// compareGrown orders texts of which one may have grown out of the other, such as those of a log without times.
func compareGrown(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// requests reports whether a part requests its index in the place of the one that the stored part requested: a lesser
// one, because parts before it were not known; and of an imported part that takes precedence (by) any other.
func requests(p *session.Part, requested int64, by int, from origin) bool {
	if from == imports && by != 0 {
		return by > 0 && p.Index != requested
	}
	return p.Index < requested
}

// mergeParts merges parts of a message, each of another id, into those that are stored. displaced are the indexes
// that some of them requested in the store they come from. done is called for each part.
func (a *applier) mergeParts(
	w *sessionWork, m *message, incoming []*session.Part, displaced map[string]int64, from origin,
	done func(p *session.Part, changed bool, refused error),
) {
	parts, before, requested := slices.Clone(m.parts), maps.Clone(m.requested), maps.Clone(m.requested)
	places, taken := make(map[string]int, len(parts)), make(map[int64]bool, len(parts))
	for i := range parts {
		places[parts[i].ID], taken[parts[i].Index] = i, true
	}
	// Most parts are added at the end, or are there already. Placing all of them anew is for the few messages in which
	// two parts meet: two processes of an agent that was restarted may each report what they believe is the first part.
	place := false // whether parts request the place of another
	for _, p := range incoming {
		refused := a.rows.refusedPart(p.MessageID, p.ID)
		if a.rows.messages.row(m.id) == nil {
			refused = ErrRefused
		}
		i, stored := places[p.ID]
		changed := false
		switch {
		case refused != nil:
		case stored:
			var asks bool
			changed, asks = mergeStored(&parts[i], p, from, &requested)
			place = place || asks
		default:
			changed = true
			index, was := displaced[p.ID]
			switch {
			// An imported part that was displaced keeps the index that it has, if that is free here, so that an export
			// to a store and back has the same rows.
			case !taken[p.Index] && was:
				set(&before, p.ID, index)
				set(&requested, p.ID, index)
			case taken[p.Index] && was:
				p.Index = index
				fallthrough
			case taken[p.Index]:
				place = true
			}
			taken[p.Index] = true
			places[p.ID], parts = len(parts), append(parts, *p)
		}
		if changed {
			w.changedPart(p)
		}
		done(p, changed, refused)
	}
	if place {
		requested = placeParts(parts, before, requested)
	} else {
		parts = session.SortedRows(parts, func(x, y *session.Part) int { return cmp.Compare(x.Index, y.Index) })
	}
	a.rows.setParts(m, parts, requested)
}

// mergeStored merges a part into the one that is stored under its id, and notes if it asks for another index.
func mergeStored(stored, p *session.Part, from origin, requested *map[string]int64) (changed, asks bool) {
	old := *stored
	if from != imports {
		old = *seenPart(stored) // a call that was ended for its dead agent is compared as it was reported
	}
	merged, by := mergePart(&old, p, from)
	if changed = by > 0 || merged.CreatedAt != old.CreatedAt; changed {
		merged.Index, merged.SessionID = old.Index, old.SessionID
		*stored = merged
	}
	if asks = requests(p, wanted(stored, *requested), by, from); asks {
		set(requested, p.ID, p.Index)
	}
	return changed || asks, asks
}

// wanted is the index that a part of a message requests: the one that it has, unless it was displaced.
func wanted(p *session.Part, requested map[string]int64) int64 {
	if index, is := requested[p.ID]; is {
		return index
	}
	return p.Index
}

// placeParts gives every part of a message its index: in order of (request, id), each has the index that it requests
// or the next free one. It returns the requests of those that are displaced, or were so before.
//
//	requests   a 0, b 0, c 1         indexes   a 0, b 1, c 2
//	c comes last, or first:                    the same
func placeParts(parts []session.Part, before, requested map[string]int64) (displaced map[string]int64) {
	copy(parts, session.SortedRows(parts, func(x, y *session.Part) int {
		// A part that represents missing content comes after content that somebody reports in its place: a process
		// that restarted an agent knows nothing of an answer that the one before it streamed.
		return cmp.Or(cmp.Compare(wanted(x, requested), wanted(y, requested)),
			compareBools(session.IsAbsence(x.Type), session.IsAbsence(y.Type)), strings.Compare(x.ID, y.ID))
	}))
	displaced = maps.Clone(before)
	next := int64(0)
	for i := range parts {
		p := &parts[i]
		want := wanted(p, requested)
		p.Index = max(want, next)
		next = p.Index + 1
		if _, was := before[p.ID]; was || p.Index != want {
			set(&displaced, p.ID, want)
		}
	}
	return displaced
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// PartRank returns how much the source of a part knew, by its data: a tool part reports so
// under toolMetadata.agenttrace, a text under providerMetadata.agenttrace, by
// "stub":true or "live":true; one of TypeDamaged is a stub.
func PartRank(dataJSON string) Rank {
	if strings.HasPrefix(dataJSON, `{"type":"`+TypeDamaged+`"`) {
		return RankStub
	}
	if !strings.Contains(dataJSON, `"stub":true`) && !strings.Contains(dataJSON, `"live":true`) &&
		!strings.Contains(dataJSON, abortedMark) {
		return RankFinal
	}
	part, err := session.ParseUIPart(dataJSON)
	if err != nil {
		return RankFinal
	}
	switch trace := part.Trace(); {
	case trace.Stub:
		return RankStub
	case trace.Live || trace.ErrorType == semconv.ErrorTypeAborted:
		return RankLive
	}
	return RankFinal
}

// isLive returns 1 for a part that an event reported, otherwise 0.
func isLive(p *session.Part) int {
	if strings.Contains(p.DataJSON, `"live":true`) {
		if part, err := session.ParseUIPart(p.DataJSON); err == nil && part.Trace().Live {
			return 1
		}
	}
	return 0
}

// abortedMark is in the data of a call that was ended because its agent had died. The process that reported it did
// not see it end, so any other report of its end takes precedence.
const abortedMark = `"error_type":"` + semconv.ErrorTypeAborted + `"`

// settledRank is the rank by which a part is first compared. A span that ended before its call did, as when a turn
// ends to wait for a human, does not have the last word on it: the call may go on, and what is reported of it then
// counts.
func settledRank(r Rank, state string) Rank {
	switch state {
	case session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested,
		session.StateApprovalResponded:
		return min(r, RankLive)
	}
	return r
}

// stateRank orders states as session.StateRank does, with a call that was given up
// for dead before those that had an outcome.
func stateRank(p *session.Part) int {
	state := session.Deref(p.ToolState)
	if state == session.StateOutputError && strings.Contains(p.DataJSON, abortedMark) {
		return 2*session.StateRank(session.StateOutputAvailable) - 1
	}
	return 2 * session.StateRank(state)
}

func equalParts(p, q *session.Part) bool {
	return p.DataJSON == q.DataJSON && p.Type == q.Type && p.CreatedAt == q.CreatedAt && p.UpdatedAt == q.UpdatedAt &&
		equal(p.ToolCallID, q.ToolCallID) && equal(p.ToolState, q.ToolState)
}

// mergeDecision stores a decision, and reports whether that changed anything: one with an outcome takes precedence,
// then the later. One that was rebuilt replaces any other. The SDK reports a decision that a person takes by two
// spans with one id, when it is asked and when it is answered, and they may come in any order.
func (a *applier) mergeDecision(d *Decision, from origin) (changed bool, _ error) {
	old := find(a.rows, &a.rows.decisions, d.ID)
	if old != nil && from != rebuilt && old.SessionID != d.SessionID {
		return false, refuse("its id belongs to session %s; it is left out", old.SessionID)
	}
	if old != nil {
		if c := compareDecisions(d, old); c == 0 || c < 0 && from != rebuilt {
			return false, nil
		}
	}
	return true, a.rows.decisions.set(d)
}

// mergeBlob stores the body of a prompt or catalog: of two an exact one, then the longer, then the greater. One that
// a limit on attributes has cut has the digest of the whole, and is kept only until that comes.
func (a *applier) mergeBlob(b *Blob) (changed bool, err error) {
	stored := a.rows.blobs[b.Kind]
	if stored == nil {
		return false, fmt.Errorf("%w: unknown kind of blob %s", ErrRefused, b.Kind)
	}
	changed, _, err = keep(a.rows, stored, b, compareBlobs)
	return changed, err
}

func compareBlobs(b, o *Blob) int {
	return cmp.Or(compareBools(b.Exact, o.Exact), compareGrown(b.Body, o.Body))
}

func compareDecisions(d, o *Decision) int {
	settled := func(d *Decision) bool { return d.Outcome == "allowed" || d.Outcome == "denied" }
	encode := func(d *Decision) []byte { b, _ := json.Marshal(d); return b }
	return cmp.Or(
		compareBools(settled(d), settled(o)),
		cmp.Compare(d.DecidedAt, o.DecidedAt),
		bytes.Compare(encode(d), encode(o)))
}

// mergeSpan stores a span: of two with one id the one that ended later, then the one that began later. old is the one
// that was stored, nil if there was none. A host may amend a span that it had sent, and send it again: what both
// measured must not be added up.
func (a *applier) mergeSpan(l *SpanRef) (changed bool, old *SpanRef, err error) {
	changed, old, err = keep(a.rows, &a.rows.spanRefs, l, compareSpanVersions)
	if changed && l.reports() {
		a.rows.known(l.MessageID).addSpan(keyOfSpan(l))
	}
	return changed, old, err
}

// compareSpanVersions orders two versions of a span; see mergeSpan.
func compareSpanVersions(l, o *SpanRef) int {
	facts := func(l *SpanRef) []byte { b, _ := json.Marshal(l.TurnStats); return b }
	return cmp.Or(
		cmp.Compare(l.EndNano, o.EndNano),
		cmp.Compare(l.StartNano, o.StartNano),
		bytes.Compare(facts(l), facts(o)),
		strings.Compare(l.SessionID+"\x00"+l.MessageID+"\x00"+l.PartID, o.SessionID+"\x00"+o.MessageID+"\x00"+o.PartID),
		strings.Compare(l.Kind+"\x00"+l.Dialect+"\x00"+l.ParentSpanID, o.Kind+"\x00"+o.Dialect+"\x00"+o.ParentSpanID))
}
