package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/agenttrace/agenttrace/session"
)

// incompleteMetadata is that of a message of which no source has reported more than that it exists.
const incompleteMetadata = `{"agenttrace":{"incomplete":true}}`

func (a *applier) applyMessage(w *sessionWork, mw *messageWork) {
	old, known := a.rows.withParts(mw.id)
	if old != nil && old.SessionID != w.id {
		a.refuse(len(mw.changes)+len(mw.parts), otherMessage(old))
		return
	}
	m := a.mergedMessage(w, mw, old)
	if !w.asStored {
		w.giveUpTurn(m, old)
	}
	a.putMessage(w, m, old) // parts refer to it
	a.applyParts(w, mw, known)
	if !w.asStored {
		a.endAbandoned(w, m, old) // with the parts of this batch, which may be a call that its process left open
	}
	if gap := known.hasGap(); gap || old != nil {
		a.markGaps(w, m, gap)
	}
}

// mergedMessage is the row that results from what is stored and what is reported.
func (a *applier) mergedMessage(w *sessionWork, mw *messageWork, old *session.Message) *session.Message {
	m := session.Message{ID: mw.id, SessionID: w.id, Role: session.RoleAssistant, MetadataJSON: incompleteMetadata}
	if old != nil {
		// Marks of a gap and of an abandoned turn are views of what was reported. They are taken back before the merge
		// and made again after it. Otherwise they would be compared as if a source had reported them.
		if m = *old; w.asStored {
			m.MetadataJSON = markStoredGap(m.MetadataJSON, false)
		} else {
			m.MetadataJSON = MarkGap(seenMetadata(m.MetadataJSON), false)
		}
	}
	role, declared := m.Role, false
	for _, c := range mw.changes {
		if c.Rank != RankStub {
			declared, role = true, max(role, c.Role)
		}
	}
	for _, c := range mw.changes {
		m = mergeMessage(&m, &session.Message{Role: role, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt}, changes)
	}
	if !w.asStored {
		for _, p := range mw.parts {
			m = mergeMessage(&m, &session.Message{CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt}, changes)
		}
		for _, l := range mw.links {
			// A turn begins before the user's message, and so before the message that it describes.
			m.UpdatedAt = max(m.UpdatedAt, l.EndNano/1e6)
		}
	}
	turnStats := a.factsOf(w, mw, old != nil && declared, old != nil)
	switch {
	case len(turnStats) > 0:
		// What the spans of a message measured takes precedence over what was annotated.
		m.MetadataJSON = FoldedMetadata(turnStats, false)
	case mw.reread && m.Role == session.RoleAssistant:
		m.MetadataJSON = incompleteMetadata // its spans describe another message now
	default:
		for _, c := range mw.changes {
			m = mergeMessage(&m, &session.Message{MetadataJSON: c.metadata(m.Role)}, changes)
		}
	}
	if old == nil || PositionOf(old) != PositionOf(&m) {
		// Otherwise no rewind covers it that did not before, or all is redrawn. What another
		// program has shown or hidden stays so.
		m.HiddenAt = w.hidden(&m, old, a.rows)
	}
	for _, c := range mw.changes {
		if c.HiddenAt != nil && (m.HiddenAt == nil || *m.HiddenAt < *c.HiddenAt) {
			m.HiddenAt = c.HiddenAt
		}
	}
	return &m
}

// metadata is what the change reports of a message's metadata, or "".
func (c *MessageChange) metadata(role string) string {
	text := string(c.Metadata)
	switch {
	case c.AsStored && c.Rank != RankStub && text != "":
		return text
	case c.Rank == RankStub || text == "" && role == session.RoleAssistant:
		return ""
	case text == "":
		text = "{}"
	}
	return canonicalMetadata(text, c.Rank == RankLive)
}

// canonicalMetadata is the one spelling of metadata: its keys in order, and
// those of its "agenttrace". Metadata that was seen live is marked incomplete.
func canonicalMetadata(metadata string, live bool) string {
	m := session.Object(canonicalObject(metadata))
	ours := session.Object(m["agenttrace"])
	if live {
		ours["incomplete"] = json.RawMessage("true")
	}
	if len(ours) > 0 {
		m["agenttrace"] = json.RawMessage(encodeObject(ours))
	}
	return encodeObject(m)
}

// editTrace writes metadata with the members of its "agenttrace" as edit leaves them, without it if none is left.
func editTrace(text string, edit func(ours map[string]json.RawMessage)) string {
	metadata := session.Object(text)
	ours := session.Object(metadata["agenttrace"])
	edit(ours)
	metadata["agenttrace"] = json.RawMessage(encodeObject(ours))
	if len(ours) == 0 {
		delete(metadata, "agenttrace")
	}
	return encodeObject(metadata)
}

// MarkGap marks metadata of a message whose parts have a gap, or takes the mark
// back. Metadata that is incomplete anyway stays as it is.
func MarkGap(metadata string, gap bool) string {
	if gap && isIncomplete(metadata) || !gap && !strings.Contains(metadata, `"gap":true`) {
		return metadata
	}
	return editTrace(metadata, func(ours map[string]json.RawMessage) {
		if gap {
			ours["incomplete"], ours["gap"] = json.RawMessage("true"), json.RawMessage("true")
		} else if string(ours["gap"]) == "true" {
			delete(ours, "incomplete")
			delete(ours, "gap")
		}
	})
}

// markStoredGap is MarkGap for metadata that stays as another store spells it: the mark is a text that no other store
// writes there, and so can be taken out again.
func markStoredGap(metadata string, gap bool) string {
	const mark = `"incomplete":true,"gap":true`
	const alone = `"agenttrace":{ ` + mark + ` }`
	if !gap {
		for _, text := range []string{alone, mark} {
			if before, after, found := strings.Cut(metadata, text); found {
				return before + strings.TrimPrefix(after, ",")
			}
		}
		return metadata
	}
	d := json.NewDecoder(strings.NewReader(metadata))
	_, err := d.Token()
	at, text := d.InputOffset(), alone
	for err == nil && text == alone && d.More() {
		var key json.Token
		if key, err = d.Token(); key == "agenttrace" {
			_, err = d.Token()
			at, text = d.InputOffset(), mark
		} else if err == nil {
			err = d.Decode(new(json.RawMessage))
		}
	}
	if err != nil {
		return metadata
	}
	if d.More() || text == alone && len(session.Object(metadata)) > 0 {
		text += ","
	}
	return metadata[:at] + text + metadata[at:]
}

// factsOf are the facts of a message with those of the batch: the new ones alone where no others are stored.
func (a *applier) factsOf(w *sessionWork, mw *messageWork, declared, known bool) []*SpanRef {
	if !mw.reread && (!known || !declared && len(mw.turnStats) == 0) {
		return mw.turnStats
	}
	return a.rows.turnStats(w.id, mw.id)
}

// markGaps marks a message as incomplete as long as a part before one that it has is missing.
func (a *applier) markGaps(w *sessionWork, m *session.Message, gap bool) {
	if m.MetadataJSON == incompleteMetadata || gap == isIncomplete(m.MetadataJSON) {
		return // it is incomplete, with a gap or without
	}
	turnStats := a.rows.turnStats(w.id, m.ID)
	old := *m
	switch {
	case len(turnStats) > 0:
		m.MetadataJSON = FoldedMetadata(turnStats, gap)
	case w.asStored:
		m.MetadataJSON = markStoredGap(m.MetadataJSON, gap)
	default:
		m.MetadataJSON = MarkGap(m.MetadataJSON, gap)
	}
	a.putMessage(w, m, &old)
}

// putMessage stores the row if it changed and keeps the session's rollup.
func (a *applier) putMessage(w *sessionWork, m, old *session.Message) {
	if old != nil && equalMessages(m, old) {
		return
	}
	refused := a.rows.putMessage(*m)
	if a.wrote(true, refused); refused != nil {
		return
	}
	w.remember(m.ID, old)
	w.touched[m.ID] = true
	if old != nil {
		w.account(old, -1)
	}
	w.account(m, +1)
	w.recut = w.recut || old != nil && !equal(old.HiddenAt, m.HiddenAt)
	if s := &w.row.State; old == nil || PositionOf(old) != PositionOf(m) {
		// A message moves back, unless it was not dated before.
		w.recut = w.recut || m.ID == s.Tail || m.ID == s.Marker.ID || old != nil && PositionOf(old).Before(PositionOf(m))
		w.redraw = w.redraw || w.awaitsRewind(m.ID)
		w.resync = w.resync || a.forksAt(w, m.ID)
	}
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
	return a.Role == b.Role && a.MetadataJSON == b.MetadataJSON && equal(a.HiddenAt, b.HiddenAt) &&
		a.CreatedAt == b.CreatedAt && a.UpdatedAt == b.UpdatedAt
}

// applyParts merges the parts of a message: first those that describe one part, as a turn's
// stub and the tool call itself do, then those with what is stored.
func (a *applier) applyParts(w *sessionWork, mw *messageWork, m *message) {
	parts := make([]*session.Part, 0, len(mw.parts))
	known := make(map[string]*session.Part, len(mw.parts))
	for _, c := range mw.parts {
		p := c.row()
		if first := known[p.ID]; first != nil {
			merged, _ := mergePart(first, p, changes)
			merged.Index = min(first.Index, p.Index)
			*first = merged
		} else {
			parts, known[p.ID] = append(parts, p), p
		}
	}
	a.mergeParts(w, m, parts, nil, changes, a.wrotePart)
}

func (a *applier) wrotePart(_ *session.Part, changed bool, refused error) { a.wrote(changed, refused) }

// place is the index that the part requests.
func (c *PartChange) place() int64 { return min(max(0, c.Index), MaxIndex) }

// row is the part as a row. It shares the memory of Data, which the batch owns and nobody changes: a copy of every
// tool's output would be a good part of the cost of a span.
func (c *PartChange) row() *session.Part {
	p := &session.Part{
		ID: c.ID, MessageID: c.MessageID, SessionID: c.SessionID, Index: c.place(), Type: c.Type,
		DataJSON:  unsafe.String(unsafe.SliceData(c.Data), len(c.Data)),
		CreatedAt: c.CreatedAt, UpdatedAt: max(c.CreatedAt, c.UpdatedAt), ContinuationRunID: c.ContinuationRunID,
	}
	if c.ToolCallID != "" {
		p.ToolCallID = &c.ToolCallID
	}
	if c.ToolState != "" {
		p.ToolState = &c.ToolState
	}
	return p
}

// MaxModelErrors is how many of them a message keeps, the last ones: agents try again.
const MaxModelErrors = 8

// CompareSpans orders spans by their start.
func CompareSpans(x, y *SpanRef) int {
	return cmp.Or(cmp.Compare(x.StartNano, y.StartNano), strings.Compare(x.TraceID, y.TraceID),
		strings.Compare(x.SpanID, y.SpanID))
}

// FoldedMetadata is the metadata of a message as the spans with TurnStats know it, "" if none does. Spans are taken in
// order of start: counts are summed, of anything else the last report counts. Of steps the errors count even where a
// span describes the whole message, and their models where they are several. gap reports that parts of the message are
// missing.
func FoldedMetadata(spans []*SpanRef, gap bool) string {
	links := slices.DeleteFunc(slices.Clone(spans), func(l *SpanRef) bool { return l.TurnStats == nil })
	if len(links) == 0 {
		return ""
	}
	slices.SortFunc(links, CompareSpans)
	var failed []string
	var calls []session.Step
	for _, l := range links {
		if call, ok := l.Call(); ok {
			calls = append(calls, call)
		}
		switch {
		case !l.TurnStats.Step:
		case len(l.TurnStats.Trace.ModelErrors) > 0: // of all attempts
			failed = append(failed, l.TurnStats.Trace.ModelErrors...)
		case l.TurnStats.Trace.Error != "":
			failed = append(failed, l.TurnStats.Trace.Error)
		}
	}
	whole := slices.DeleteFunc(slices.Clone(links), func(l *SpanRef) bool { return l.TurnStats.Step })
	givenUp := slices.DeleteFunc(slices.Clone(whole), func(l *SpanRef) bool { return !l.TurnStats.GivenUp })
	known := slices.DeleteFunc(whole, func(l *SpanRef) bool { return l.TurnStats.GivenUp })
	if slices.ContainsFunc(known, func(l *SpanRef) bool { return !l.TurnStats.Trace.PendingApproval }) {
		givenUp = nil
	}
	steps := func(late bool, from int64) []*SpanRef {
		return slices.DeleteFunc(slices.Clone(links), func(l *SpanRef) bool {
			return !l.TurnStats.Step || l.TurnStats.Late != late || l.StartNano < from
		})
	}
	missing := len(known)+len(givenUp) == 0
	switch {
	case len(givenUp) > 0: // the process that gave it up knows nothing of the steps since it last waited
		from := int64(0)
		for _, l := range known {
			from = max(from, l.EndNano)
		}
		links = slices.Concat(known, steps(false, from), givenUp, steps(true, 0))
	case !missing:
		links = append(known, steps(true, 0)...)
	}
	sum := *links[0].TurnStats
	for _, l := range links[1:] {
		sum.add(l.TurnStats)
	}
	sum.Trace.Incomplete = gap || missing
	sum.Trace.Steps = session.StepsOfModels(sum.Model, sum.Usage, calls)
	sum.Trace.ModelErrors = failed[max(0, len(failed)-MaxModelErrors):]
	return sum.Metadata()
}

// Metadata is the metadata_json of a message: what was measured of it, and what was annotated besides.
func (f *TurnStats) Metadata() string {
	b, err := json.Marshal(session.MessageMetadata{
		Model: f.Model, Agent: f.Agent, Usage: f.Usage, SystemPromptDigest: f.SystemPromptDigest, Trace: f.Trace,
	})
	if err != nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(f.Extra)) {
		switch key {
		case "model", "agent", "usage", "system_prompt_digest", "agenttrace":
			continue // what is measured is not overwritten by what is annotated
		}
		name, _ := json.Marshal(key)
		b = b[:len(b)-1]
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, name...), ':'), f.Extra[key]...), '}')
	}
	return string(b)
}

// add folds what a later span reports into f.
func (f *TurnStats) add(o *TurnStats) {
	f.Usage = session.Sum(f.Usage, o.Usage, session.Usage.Add)
	f.Trace.ModelCalls += o.Trace.ModelCalls
	f.Trace.CostUSD = session.Sum(f.Trace.CostUSD, o.Trace.CostUSD, AddCost)
	if o.Late {
		return
	}
	f.Model = cmp.Or(o.Model, f.Model)
	f.Agent = cmp.Or(o.Agent, f.Agent)
	f.SystemPromptDigest = cmp.Or(o.SystemPromptDigest, f.SystemPromptDigest)
	t, u := &f.Trace, &o.Trace
	t.TurnIndex = cmp.Or(u.TurnIndex, t.TurnIndex)
	t.EndReason = cmp.Or(u.EndReason, t.EndReason)
	if u.StopReason != "" || u.StopReasonRaw != "" {
		t.StopReason, t.StopReasonRaw = cmp.Or(u.StopReason, t.StopReason), u.StopReasonRaw
	}
	t.PendingApproval = u.PendingApproval
	t.Temperature = cmp.Or(u.Temperature, t.Temperature)
	t.ToolCatalogDigest = cmp.Or(u.ToolCatalogDigest, t.ToolCatalogDigest)
	t.UsageBasis = cmp.Or(u.UsageBasis, t.UsageBasis)
	t.Error = u.Error
	t.ResponseID = cmp.Or(u.ResponseID, t.ResponseID)
	t.ResponseModel = cmp.Or(u.ResponseModel, t.ResponseModel)
	t.SourceID = cmp.Or(u.SourceID, t.SourceID)
	if u.UsageRaw != nil {
		t.UsageRaw = u.UsageRaw
	}
	t.DurationMS = session.Sum(t.DurationMS, u.DurationMS, func(a, b int64) int64 { return a + b })
	t.Problems = append(slices.Clone(t.Problems), u.Problems...)
	f.Extra = maps.Clone(f.Extra) // others have it too
	for key, value := range o.Extra {
		set(&f.Extra, key, value)
	}
}
