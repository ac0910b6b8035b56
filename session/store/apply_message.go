package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unsafe"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
)

// incompleteMetadata is that of a message of which no source has said more than
// that it exists.
const incompleteMetadata = `{"agenttrace":{"incomplete":true}}`

func (a *applier) applyMessage(w *sessionWork, mw *messageWork) error {
	old, err := a.tx.Message(mw.id)
	if err != nil {
		return err
	}
	if old != nil && old.SessionID != w.id {
		// The id belongs to another session: nothing of this one can be stored
		// under it.
		a.result.Refused += int64(len(mw.changes) + len(mw.parts))
		return nil
	}
	m, err := a.mergedMessage(w, mw, old)
	if err != nil {
		return err
	}
	if err := a.giveUpTurn(w, m); err != nil {
		return err
	}
	if err := a.putMessage(w, m, old); err != nil {
		return err
	}
	if err := a.applyParts(w, mw); err != nil {
		return err
	}
	if err := a.endAbandoned(w, m, old); err != nil {
		return err
	}
	if err := a.giveUpOthers(w, m, old); err != nil {
		return err
	}
	if old == nil && mw.contiguous() {
		return nil
	}
	return a.markGaps(w, m)
}

// contiguous says that the parts of a new message claim every place from 0 on.
func (mw *messageWork) contiguous() bool {
	for i, p := range mw.parts {
		if p.Index != int64(i) {
			return false
		}
	}
	return true
}

// mergedMessage is the row that results from what is stored and what is said.
func (a *applier) mergedMessage(w *sessionWork, mw *messageWork, old *session.Message) (*session.Message, error) {
	m := session.Message{ID: mw.id, SessionID: w.id, Role: session.RoleAssistant, MetadataJSON: incompleteMetadata}
	if old != nil {
		m = *old
		m.MetadataJSON = MarkGap(seenMetadata(m.MetadataJSON), false)
	}
	bound := func(created, updated int64) {
		m.CreatedAt = earlier(m.CreatedAt, created)
		m.UpdatedAt = max(m.UpdatedAt, updated, created)
	}
	declared := false
	for _, c := range mw.changes {
		bound(c.CreatedAt, c.UpdatedAt)
		if c.Rank != RankStub {
			declared, m.Role = true, max(m.Role, c.Role)
		}
	}
	for _, p := range mw.parts {
		bound(p.CreatedAt, p.UpdatedAt)
	}
	for _, l := range mw.links {
		// A turn begins before the user's message, and so before the one it tells of.
		bound(0, l.EndNano/1e6)
	}
	turnStats, err := a.factsOf(w, mw, old != nil && declared, old != nil)
	if err != nil {
		return nil, err
	}
	switch {
	case len(turnStats) > 0:
		// What the spans of a message measured stands above what was annotated.
		m.MetadataJSON = foldFacts(turnStats, false)
	case mw.reread && m.Role == session.RoleAssistant:
		m.MetadataJSON = incompleteMetadata // its spans speak of another message now
	default:
		for _, c := range mw.changes {
			m.MetadataJSON = preferredMetadata(m.MetadataJSON, c.metadata(m.Role))
		}
	}
	if old != nil && PositionOf(old) == PositionOf(&m) {
		// No rewind says more of it than before, or all is redrawn. What another program
		// has shown or hidden stays so.
		return &m, nil
	}
	m.HiddenAt, err = w.hidden(&m, old, a.tx)
	return &m, err
}

// metadata is what the change says of a message's metadata, or "".
func (c *MessageChange) metadata(role string) string {
	text := string(c.Metadata)
	switch {
	case c.Rank == RankStub || text == "" && role == session.RoleAssistant:
		return ""
	case text == "":
		text = "{}"
	}
	return canonicalMetadata(text, c.Rank == RankLive)
}

// preferredMetadata chooses between what two sources annotated: a message that is
// known whole before one that is not, then what was seen later, then the greater
// text.
func preferredMetadata(a, b string) string {
	rank := func(s string) int {
		switch {
		case s == "":
			return 0
		case s == incompleteMetadata:
			return 1
		case isIncomplete(s):
			return 2
		}
		return 3
	}
	if cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(seenAt(a), seenAt(b)), strings.Compare(a, b)) >= 0 {
		return a
	}
	return b
}

// seenAt is when metadata that was only seen live was so, in a form of which the
// later is the greater, or "".
func seenAt(metadata string) string {
	if !strings.Contains(metadata, `"seen":`) {
		return ""
	}
	var m struct {
		Agenttrace struct {
			Seen string `json:"seen"`
		} `json:"agenttrace"`
	}
	if json.Unmarshal([]byte(metadata), &m) != nil {
		return ""
	}
	return m.Agenttrace.Seen
}

// isIncomplete says whether metadata marks its message as incomplete.
func isIncomplete(metadata string) bool {
	if metadata == incompleteMetadata {
		return true
	}
	if !strings.Contains(metadata, `"incomplete"`) {
		return false
	}
	var m struct {
		Agenttrace struct {
			Incomplete bool `json:"incomplete"`
		} `json:"agenttrace"`
	}
	return json.Unmarshal([]byte(metadata), &m) == nil && m.Agenttrace.Incomplete
}

// canonicalMetadata is the one spelling of metadata: its keys in order, and
// those of its "agenttrace". Metadata that was seen live is marked incomplete.
func canonicalMetadata(metadata string, live bool) string {
	m := object(metadata)
	for key, value := range m {
		if text, ok := compact(string(value)); ok {
			m[key] = json.RawMessage(text)
		}
	}
	inner := object(string(m["agenttrace"]))
	if live {
		inner["incomplete"] = json.RawMessage("true")
	}
	if len(inner) > 0 {
		m["agenttrace"] = json.RawMessage(encodeObject(inner))
	}
	return encodeObject(m)
}

// MarkGap marks metadata of a message whose parts have a gap, or takes the mark
// back. Metadata that is incomplete anyway stays as it is.
func MarkGap(metadata string, gap bool) string {
	if gap && isIncomplete(metadata) || !gap && !strings.Contains(metadata, `"gap":true`) {
		return metadata
	}
	m := object(metadata)
	inner := object(string(m["agenttrace"]))
	if gap {
		inner["incomplete"], inner["gap"] = json.RawMessage("true"), json.RawMessage("true")
	} else if string(inner["gap"]) == "true" {
		delete(inner, "incomplete")
		delete(inner, "gap")
	}
	m["agenttrace"] = json.RawMessage(encodeObject(inner))
	if len(inner) == 0 {
		delete(m, "agenttrace")
	}
	return encodeObject(m)
}

// object reads a JSON object; what is none is an empty one.
func object(text string) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &m) != nil || m == nil {
		return make(map[string]json.RawMessage)
	}
	return m
}

// factsOf are the facts of a message with those of the batch: the new ones alone where
// no others are stored, and beside the sum of the steps where all of them are later ones.
func (a *applier) factsOf(w *sessionWork, mw *messageWork, declared, known bool) ([]*SpanRef, error) {
	turnStats, sum := mw.turnStats, w.row.State.Steps[mw.id]
	switch {
	case !mw.reread && (!known || !declared && len(turnStats) == 0):
	case !mw.reread && sum.precede(turnStats):
		turnStats = append([]*SpanRef{sum.link()}, turnStats...)
	default:
		w.forgetSteps(mw.id)
		var err error
		if turnStats, err = a.turnStats(w, mw.id); err != nil {
			return nil, err
		}
	}
	if len(turnStats) > 0 {
		w.sumSteps(mw.id, turnStats)
	}
	return turnStats, nil
}

// facts reads back what the spans of a message measured.
func (a *applier) turnStats(w *sessionWork, messageID string) ([]*SpanRef, error) {
	stored, err := a.tx.TurnStats(w.id, messageID)
	if err != nil {
		return nil, err
	}
	turnStats := make([]*SpanRef, len(stored))
	for i := range stored {
		turnStats[i] = &stored[i]
	}
	return turnStats, nil
}

// markGaps marks a message as incomplete as long as a part before one that it has
// is missing.
func (a *applier) markGaps(w *sessionWork, m *session.Message) error {
	if m.MetadataJSON == incompleteMetadata || w.row.State.Steps[m.ID] != nil {
		return nil // it is incomplete, with a gap or without
	}
	count, next, err := a.tx.Extent(m.ID)
	if err != nil {
		return err
	}
	gap := count != next
	if gap == isIncomplete(m.MetadataJSON) {
		return nil
	}
	turnStats, err := a.turnStats(w, m.ID)
	if err != nil {
		return err
	}
	old := *m
	if len(turnStats) > 0 {
		m.MetadataJSON = foldFacts(turnStats, gap)
	} else {
		m.MetadataJSON = MarkGap(m.MetadataJSON, gap)
	}
	return a.putMessage(w, m, &old)
}

// putMessage stores the row if it changed and keeps the session's rollup.
func (a *applier) putMessage(w *sessionWork, m, old *session.Message) error {
	if old != nil && equalMessages(m, old) {
		return nil
	}
	if err := a.tx.PutMessage(m, old == nil); err != nil {
		return a.wrote(false, err)
	}
	a.result.Rows++
	w.remember(m.ID, old)
	w.touched[m.ID] = true
	if old != nil {
		w.account(old, -1)
	}
	w.account(m, +1)
	w.recut = w.recut || old != nil && !sameTime(old.HiddenAt, m.HiddenAt)
	if s := &w.row.State; old == nil || PositionOf(old) != PositionOf(m) {
		w.tailMoved = w.tailMoved || m.ID == s.Tail
		// A message moves back, unless it was not dated before.
		w.recut = w.recut || m.ID == s.Marker.ID || old != nil && PositionOf(old).Before(PositionOf(m))
		w.redraw = w.redraw || w.awaitsRewind(m.ID)
		w.resync = w.resync || w.forksAt(m.ID)
	}
	return nil
}

// account adds a message's tokens and cost to what the rollup changes by.
func (w *sessionWork) account(m *session.Message, sign int64) {
	if m.Role != session.RoleAssistant {
		return
	}
	usage, cost := session.UsageOf(m.MetadataJSON)
	w.cost = AddCost(w.cost, float64(sign)*cost)
	if !w.counts(m) {
		return
	}
	if sign < 0 {
		w.usage = w.usage.Sub(usage)
	} else {
		w.usage = w.usage.Add(usage)
	}
}

func equalMessages(a, b *session.Message) bool {
	return a.Role == b.Role && a.MetadataJSON == b.MetadataJSON && sameTime(a.HiddenAt, b.HiddenAt) &&
		a.CreatedAt == b.CreatedAt && a.UpdatedAt == b.UpdatedAt
}

// mergeParts makes one change of those that speak of the same part, as a turn's
// stub and the tool call itself do. It keeps their order.
func mergeParts(parts []*PartChange) []*PartChange {
	if len(parts) < 2 {
		return parts
	}
	place := make(map[string]int, len(parts))
	merged := parts[:0]
	for _, p := range parts {
		i, known := place[p.ID]
		if !known {
			place[p.ID] = len(merged)
			merged = append(merged, p)
			continue
		}
		winner, loser := *p, merged[i]
		if comparePartChanges(p, loser) < 0 {
			winner, loser = *loser, p
		}
		winner.UpdatedAt = max(winner.CreatedAt, winner.UpdatedAt)
		winner.CreatedAt = earlier(winner.CreatedAt, loser.CreatedAt)
		winner.Index = min(winner.Index, loser.Index)
		merged[i] = &winner
	}
	return merged
}

// applyParts merges the parts of a message. Those whose place is taken, or who
// claim another than they have, are placed in the end, all at once.
func (a *applier) applyParts(w *sessionWork, mw *messageWork) error {
	var collided []*session.Part
	requestedIndexes := make(map[string]int64)
	for _, c := range mergeParts(mw.parts) {
		p := c.row()
		inserted, err := a.tx.InsertPart(p)
		changed := inserted
		if err == nil && !inserted {
			var old *session.Part
			old, err = a.tx.Part(p.ID)
			switch {
			case err != nil:
			case old == nil:
				collided, changed = append(collided, p), true
			case old.MessageID != p.MessageID:
				err = ErrRefused
			default:
				changed, err = a.mergePart(p, old, requestedIndexes)
			}
		}
		if err := a.wrote(changed, err); err != nil {
			return err
		}
		if changed {
			w.touched[mw.id] = true
			if p.Type == session.TypeCompaction {
				w.compacted = append(w.compacted, mw.id)
			}
		}
	}
	if len(collided) == 0 && len(requestedIndexes) == 0 {
		return nil
	}
	return a.placeParts(mw.id, collided, requestedIndexes)
}

// row is the part as a row. It shares the memory of Data, which the batch owns
// and nobody changes: a copy of every tool's output would be a good part of the
// cost of a span.
func (c *PartChange) row() *session.Part {
	p := &session.Part{
		ID: c.ID, MessageID: c.MessageID, SessionID: c.SessionID, Index: min(max(0, c.Index), MaxIndex), Type: c.Type, DataJSON: unsafe.String(unsafe.SliceData(c.Data), len(c.Data)),
		CreatedAt: c.CreatedAt, UpdatedAt: max(c.CreatedAt, c.UpdatedAt),
	}
	if c.ToolCallID != "" {
		p.ToolCallID = &c.ToolCallID
	}
	if c.ToolState != "" {
		p.ToolState = &c.ToolState
	}
	return p
}

// mergePart merges a part into the row that is stored, and notes in claims when
// it claims a place before that one's.
func (a *applier) mergePart(p, old *session.Part, requestedIndexes map[string]int64) (changed bool, _ error) {
	old = seenPart(old)
	merged := *old
	if compareParts(p, old) > 0 {
		merged = *p
		merged.Index = old.Index
	}
	merged.CreatedAt = earlier(p.CreatedAt, old.CreatedAt)
	if !equalParts(&merged, old) {
		changed = true
		if err := a.tx.PutPart(&merged); err != nil {
			return false, err
		}
	}
	if p.Index < old.Index {
		stored, err := a.tx.RequestedIndexes(p.MessageID)
		if err != nil {
			return false, err
		}
		if requested, displaced := stored[p.ID]; !displaced || p.Index < requested {
			requestedIndexes[p.ID], changed = p.Index, true
		}
	}
	return changed, nil
}

// placeParts gives every part of a message its index when two claim one place:
// in order of (claim, id), each has the place it claims or the next free one.
// displaced are parts that are not stored yet; claimed are new claims of parts
// that are.
func (a *applier) placeParts(messageID string, collided []*session.Part, requestedBefore map[string]int64) error {
	stored, err := a.tx.Places(messageID)
	if err != nil {
		return err
	}
	requestedIndexes, err := a.tx.RequestedIndexes(messageID)
	if err != nil {
		return err
	}
	type place struct {
		id               string
		requested, index int64
		part             *session.Part // nil when it is stored
	}
	places := make([]place, 0, len(stored)+len(collided))
	for _, s := range stored {
		requested, displaced := requestedIndexes[s.ID]
		if !displaced {
			requested = s.Index
		}
		if lower, ok := requestedBefore[s.ID]; ok {
			requested = min(requested, lower)
		}
		places = append(places, place{id: s.ID, requested: requested, index: s.Index})
	}
	for _, p := range collided {
		places = append(places, place{id: p.ID, requested: p.Index, index: -1, part: p})
	}
	slices.SortFunc(places, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.requested, y.requested), strings.Compare(x.id, y.id))
	})
	moved := make(map[string]int64)
	next := int64(0)
	for _, pl := range places {
		index := max(pl.requested, next)
		next = index + 1
		switch {
		case pl.part != nil:
			pl.part.Index = index
		case index != pl.index:
			moved[pl.id] = index
		}
		noted, has := requestedIndexes[pl.id]
		if (has || index != pl.requested) && (!has || noted != pl.requested) {
			if err := a.tx.PutRequestedIndex(messageID, pl.id, pl.requested); err != nil {
				return err
			}
		}
	}
	if err := a.tx.Move(messageID, moved); err != nil {
		return err
	}
	for _, p := range collided {
		inserted, err := a.tx.InsertPart(p)
		if err == nil && !inserted {
			err = ErrRefused
		}
		if err := a.wrote(false, err); err != nil {
			return err
		}
	}
	return nil
}

// PartRank tells from a part's data how much its source knew: a tool part says so
// under toolMetadata.agenttrace, a text under providerMetadata.agenttrace, by
// "stub":true or "live":true; one of TypeDamaged is a stub.
func PartRank(dataJSON string) Rank {
	if strings.HasPrefix(dataJSON, `{"type":"`+TypeDamaged+`"`) {
		return RankStub
	}
	if !strings.Contains(dataJSON, `"stub":true`) && !strings.Contains(dataJSON, `"live":true`) && !strings.Contains(dataJSON, abortedMark) {
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

// abortedMark stands in the data of a call that was ended because its agent had
// died. Who said so did not see it end, so what anybody did see stands above it.
const abortedMark = `"error_type":"` + semconv.ErrorTypeAborted + `"`

// settledRank is the rank by which a part is first compared. A span that ended
// before its call did, as when a turn ends to wait for a human, does not have the
// last word on it: the call may go on, and what is said of it then counts.
func settledRank(r Rank, state string) Rank {
	switch state {
	case session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested, session.StateApprovalResponded:
		return min(r, RankLive)
	}
	return r
}

// compareParts orders two descriptions of one part: by rank, then by the state
// of the call, then the later, then by their text.
func compareParts(p, q *session.Part) int {
	pRank, qRank := PartRank(p.DataJSON), PartRank(q.DataJSON)
	return cmp.Or(
		cmp.Compare(settledRank(pRank, text(p.ToolState)), settledRank(qRank, text(q.ToolState))),
		cmp.Compare(stateRank(p), stateRank(q)),
		cmp.Compare(pRank, qRank),
		cmp.Compare(p.UpdatedAt, q.UpdatedAt),
		strings.Compare(p.DataJSON, q.DataJSON),
		strings.Compare(p.Type, q.Type),
		strings.Compare(text(p.ToolCallID)+"\x00"+text(p.ToolState), text(q.ToolCallID)+"\x00"+text(q.ToolState)))
}

// comparePartChanges is compareParts before there are rows. What costs most is
// compared last.
func comparePartChanges(p, q *PartChange) int {
	if c := cmp.Or(
		cmp.Compare(settledRank(p.Rank, p.ToolState), settledRank(q.Rank, q.ToolState)), // Data says the rank too, at the cost of parsing it
		cmp.Compare(rankState(p.ToolState, p.Data), rankState(q.ToolState, q.Data)),
		cmp.Compare(p.Rank, q.Rank),
		cmp.Compare(max(p.CreatedAt, p.UpdatedAt), max(q.CreatedAt, q.UpdatedAt)),
	); c != 0 {
		return c
	}
	return cmp.Or(
		bytes.Compare(p.Data, q.Data),
		strings.Compare(p.Type, q.Type),
		strings.Compare(p.ToolCallID+"\x00"+p.ToolState, q.ToolCallID+"\x00"+q.ToolState))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func stateRank(p *session.Part) int {
	if p.ToolState == nil {
		return 0
	}
	return rankState(*p.ToolState, p.DataJSON)
}

// rankState orders states as session.StateRank does, with a call that was given up
// for dead before those that had an outcome.
func rankState[T string | json.RawMessage](state string, data T) int {
	if state == session.StateOutputError && strings.Contains(string(data), abortedMark) {
		return 2*session.StateRank(session.StateOutputAvailable) - 1
	}
	return 2 * session.StateRank(state)
}

func equalParts(p, q *session.Part) bool {
	return p.DataJSON == q.DataJSON && p.Type == q.Type && p.CreatedAt == q.CreatedAt && p.UpdatedAt == q.UpdatedAt &&
		equalStrings(p.ToolCallID, q.ToolCallID) && equalStrings(p.ToolState, q.ToolState)
}

func equalStrings(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

func compareLinks(l, o *SpanRef) int {
	return cmp.Or(
		cmp.Compare(l.EndNano, o.EndNano),
		cmp.Compare(l.StartNano, o.StartNano),
		bytes.Compare(l.EncodeFacts(), o.EncodeFacts()),
		strings.Compare(l.SessionID+"\x00"+l.MessageID+"\x00"+l.PartID, o.SessionID+"\x00"+o.MessageID+"\x00"+o.PartID),
		strings.Compare(l.Kind+"\x00"+l.Dialect+"\x00"+l.ParentSpanID, o.Kind+"\x00"+o.Dialect+"\x00"+o.ParentSpanID))
}

// EncodeFacts returns the facts as JSON, or nil.
func (l *SpanRef) EncodeFacts() []byte {
	if l.TurnStats == nil {
		return nil
	}
	b, err := json.Marshal(l.TurnStats)
	if err != nil {
		return nil
	}
	return b
}

func compareDecisions(d, o *Decision) int {
	settled := func(d *Decision) int {
		if d.Outcome == "allowed" || d.Outcome == "denied" {
			return 1
		}
		return 0
	}
	encode := func(d *Decision) []byte { b, _ := json.Marshal(d); return b }
	return cmp.Or(
		cmp.Compare(settled(d), settled(o)),
		cmp.Compare(d.DecidedAt, o.DecidedAt),
		bytes.Compare(encode(d), encode(o)))
}
