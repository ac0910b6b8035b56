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

// manySteps is from how many steps on their sum is kept.
const manySteps = 16

// StepSum is what all steps of a message come to, in order of their starts.
type StepSum struct {
	// StartNano, TraceID and SpanID are those of the last of them.
	StartNano int64  `json:"start_nano"`
	TraceID   string `json:"trace_id"`
	SpanID    string `json:"span_id"`
	Facts     Facts  `json:"facts"`
}

// precede says whether the sum can be continued by facts: each is a step that begins
// after those in the sum.
func (s *StepSum) precede(facts []*Link) bool {
	return s != nil && !slices.ContainsFunc(facts, func(l *Link) bool { return !l.Facts.Step || compareStarts(s.link(), l) >= 0 })
}

// link is the sum as if it were one span.
func (s *StepSum) link() *Link {
	return &Link{StartNano: s.StartNano, TraceID: s.TraceID, SpanID: s.SpanID, Facts: &s.Facts}
}

// sumSteps keeps the sum of a message's steps where there are many and nothing else, and
// forgets it as soon as a span describes the message as a whole.
func (w *sessionWork) sumSteps(messageID string, facts []*Link) {
	steps := w.row.State.Steps
	if steps[messageID] == nil && len(facts) < manySteps {
		return
	}
	if slices.ContainsFunc(facts, func(l *Link) bool { return !l.Facts.Step }) {
		w.forgetSteps(messageID)
		return
	}
	sum, last := sumFacts(facts, false), slices.MaxFunc(facts, compareStarts)
	if steps == nil {
		steps = make(map[string]*StepSum)
		w.row.State.Steps = steps
	}
	steps[messageID] = &StepSum{StartNano: last.StartNano, TraceID: last.TraceID, SpanID: last.SpanID, Facts: sum}
	w.dirty = true
}

func (w *sessionWork) forgetSteps(messageID string) {
	if w.row.State.Steps[messageID] != nil {
		delete(w.row.State.Steps, messageID)
		w.dirty = true
	}
}

// compareStarts orders spans by their start.
func compareStarts(x, y *Link) int {
	return cmp.Or(cmp.Compare(x.StartNano, y.StartNano), strings.Compare(x.TraceID, y.TraceID), strings.Compare(x.SpanID, y.SpanID))
}

// foldFacts is the metadata of a message as its spans know it. Spans are taken
// in order of start: counts are summed, anything else stands as said last. Of
// steps the errors count even where a span describes the whole message. gap says
// that parts of the message are missing.
func foldFacts(links []*Link, gap bool) string {
	sum := sumFacts(links, gap)
	return sum.Metadata()
}

func sumFacts(links []*Link, gap bool) Facts {
	links = slices.Clone(links)
	slices.SortFunc(links, compareStarts)
	var failed []string
	for _, l := range links {
		switch {
		case !l.Facts.Step:
		case len(l.Facts.Trace.ModelErrors) > 0: // a sum of steps
			failed = append(failed, l.Facts.Trace.ModelErrors...)
		case l.Facts.Trace.Error != "":
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
	return sum
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
