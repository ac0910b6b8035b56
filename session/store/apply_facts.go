package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// MostModelErrors is how many of them a message keeps, the last ones: agents try again.
const MostModelErrors = 8

// foldFacts is the metadata of a message as its spans know it. Spans are taken
// in order of start: counts are summed, anything else stands as said last. Of
// steps the errors count even where a span describes the whole message. gap says
// that parts of the message are missing.
func foldFacts(links []*Link, gap bool) string {
	links = slices.Clone(links)
	slices.SortFunc(links, func(x, y *Link) int {
		return cmp.Or(cmp.Compare(x.StartNano, y.StartNano), strings.Compare(x.TraceID, y.TraceID), strings.Compare(x.SpanID, y.SpanID))
	})
	var failed []string
	for _, l := range links {
		if l.Facts.Step && l.Facts.Trace.Error != "" {
			failed = append(failed, l.Facts.Trace.Error)
		}
	}
	whole := slices.DeleteFunc(slices.Clone(links), func(l *Link) bool { return l.Facts.Step })
	if slices.ContainsFunc(whole, func(l *Link) bool { return !l.Facts.GivenUp && !l.Facts.Trace.PendingApproval }) {
		whole = slices.DeleteFunc(whole, func(l *Link) bool { return l.Facts.GivenUp })
	}
	if len(whole) > 0 {
		links = whole
	}
	sum := *links[0].Facts
	for _, l := range links[1:] {
		sum.add(l.Facts)
	}
	sum.Trace.Incomplete = gap || len(whole) == 0
	sum.Trace.ModelErrors = failed[max(0, len(failed)-MostModelErrors):]
	return sum.Metadata()
}

// Metadata is what a message says in its metadata_json of what was measured of it, and
// what was annotated besides, as JSON.
func (f *Facts) Metadata() string {
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

// add folds what a later span says into f.
func (f *Facts) add(o *Facts) {
	f.Model = cmp.Or(o.Model, f.Model)
	f.Agent = cmp.Or(o.Agent, f.Agent)
	f.SystemPromptDigest = cmp.Or(o.SystemPromptDigest, f.SystemPromptDigest)
	if o.Usage != nil {
		total := *o.Usage
		if f.Usage != nil {
			total = total.Add(*f.Usage)
		}
		f.Usage = &total
	}
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
	t.ModelCalls += u.ModelCalls
	if u.UsageRaw != nil {
		t.UsageRaw = u.UsageRaw
	}
	if u.DurationMS != nil {
		total := *u.DurationMS
		if t.DurationMS != nil {
			total += *t.DurationMS
		}
		t.DurationMS = &total
	}
	if u.CostUSD != nil {
		total := *u.CostUSD
		if t.CostUSD != nil {
			total = AddCost(total, *t.CostUSD)
		}
		t.CostUSD = &total
	}
	t.Problems = append(slices.Clone(t.Problems), u.Problems...)
	if len(o.Extra) > 0 {
		f.Extra = maps.Clone(f.Extra)
		if f.Extra == nil {
			f.Extra = make(map[string]json.RawMessage)
		}
		maps.Copy(f.Extra, o.Extra)
	}
}
