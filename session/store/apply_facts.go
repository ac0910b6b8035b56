package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// MaxModelErrors is how many of them a message keeps, the last ones: agents try again.
const MaxModelErrors = 8

// CompareSpans orders spans by their start.
func CompareSpans(x, y SpanRef) int {
	return cmp.Or(cmp.Compare(x.StartNano, y.StartNano), strings.Compare(x.TraceID, y.TraceID),
		strings.Compare(x.SpanID, y.SpanID))
}

// FoldedMetadata is the metadata of a message as the spans with TurnStats know it, "" if none does. Spans are taken in
// order of start: counts are summed, of anything else the last report counts. Of steps the errors count even where a
// span describes the whole message. gap reports that parts of the message are missing.
func FoldedMetadata(spans []*SpanRef, gap bool) string {
	links := slices.DeleteFunc(slices.Clone(spans), func(l *SpanRef) bool { return l.TurnStats == nil })
	if len(links) == 0 {
		return ""
	}
	slices.SortFunc(links, func(x, y *SpanRef) int { return CompareSpans(*x, *y) })
	var failed []string
	for _, l := range links {
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
