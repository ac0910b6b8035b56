package assemble

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// maxProblems bounds the problems that a message keeps, maxRaws the model calls whose
// usage it keeps as the source wrote it, maxRaw the bytes of what roots counted.
const (
	maxProblems = 8
	maxRaws     = 64
	maxRaw      = 16 << 10
)

// measures is what the facts of a turn report of its message. Facts are added in order of time.
type measures struct {
	// Message is that of the whole turn, its usage that of the model calls.
	Message session.MessageMetadata
	Calls   int
	Raws    []json.RawMessage
	// ManyRaws reports that there are more than are kept, or that one is not JSON: then none is kept.
	ManyRaws bool
	Cost     *float64
	Finish   string
	// Asks reports that the last call requested a tool, Failed the error that ended it.
	Asks    bool
	Failed  string
	Aborted bool
	Extra   []pair

	// Latest is when the turn was last seen, FirstRoot when its first root began.
	Latest    int64
	End       int64
	FirstRoot *int64
	// Root is what counts of the root that ended last; RootUsage and RootCost are what
	// the roots counted, Elsewhere what sub-agents did.
	Root      *rootEnd
	RootUsage *fact.Usage
	RootCost  *float64
	Elsewhere session.Usage

	// RequiresTurn reports that there is always a root above one of the facts, Topped that there
	// is one above which there need not be another.
	RequiresTurn bool
	Topped       bool
	// Unfinished reports that a call was not seen to end, RootUnfinished that a root was not.
	Unfinished     bool
	RootUnfinished bool
	// Lost reports that a call was lost, Partial that not all calls report what they used,
	// LastUsed that of the last one that reports it.
	Lost     bool
	Partial  bool
	LastUsed *int64

	// Sources are the names of the sources, Transcript reports that one is a transcript.
	Sources    []string
	Transcript bool
	// HiddenAt is when the user took the answer back.
	HiddenAt *int64
	// CallFailed and RootFailed are errors of any call and root, Finished reports that a
	// source saw the end of a call, RootWent that a root was not aborted.
	CallFailed string
	RootFailed string
	Finished   bool
	RootWent   bool
	Pending    bool
	// Asked reports that a request of the turn was seen: later ones repeat the turn itself.
	Asked bool
}

// pair is a key that no column has, and its value.
type pair struct {
	Key   string
	Value json.RawMessage
}

// rootEnd is how a root ended.
type rootEnd struct {
	End       int64
	Finish    string
	Failed    bool
	Error     string
	ErrorType string
}

// addCalls adds what model calls report.
func (m *measures) addCalls(calls []*call) {
	trace := &m.Message.Trace
	for _, c := range calls {
		if c.appended {
			continue
		}
		m.Calls++
		if !c.guessed {
			trace.ModelCalls++
		}
		u := c.usage()
		m.Partial = m.Partial || c.guessed || u == nil && c.failed() == ""
		if u != nil {
			if u.Capped {
				m.problem("the source states more cached or reasoning tokens than the tokens that include them" +
					c.nodes[0].named())
			}
			total := u.Tokens.Total()
			m.LastUsed = &total
			m.Message.Usage = session.Sum(m.Message.Usage, &u.Tokens, session.Usage.Add)
			trace.UsageBasis = cmp.Or(u.Basis, trace.UsageBasis)
			if u.Raw != nil && !m.ManyRaws {
				m.Raws = append(m.Raws, u.Raw)
			}
			if len(m.Raws) > maxRaws || u.Raw != nil && !json.Valid(u.Raw) {
				m.Raws, m.ManyRaws = nil, true
			}
		}
		var stated *float64
		for _, n := range c.nodes {
			stated = cmp.Or(stated, n.CostUSD)
		}
		m.Cost = session.Sum(m.Cost, stated, func(a, b float64) float64 { return a + b })
		m.Finish = ""
		for _, n := range c.nodes {
			m.Finish = cmp.Or(m.Finish, n.Finish)
			trace.Temperature = cmp.Or(n.Temperature, trace.Temperature)
			trace.ResponseID = cmp.Or(trace.ResponseID, n.ResponseID)
			trace.ResponseModel = cmp.Or(n.ResponseModel, trace.ResponseModel)
		}
		if m.Calls > 1 {
			trace.ResponseID = "" // it would be one of several
		}
		m.addHistory(c.nodes)
		m.Failed = c.failed()
		m.CallFailed = cmp.Or(m.Failed, m.CallFailed)
		m.Finished = m.Finished || c.finished()
		m.Unfinished = m.Unfinished || c.unfinished()
		if m.Failed != "" && len(trace.ModelErrors) < maxProblems {
			trace.ModelErrors = append(trace.ModelErrors, m.Failed)
		}
		// Some models report that they stopped when they request tools.
		m.Asks = slices.ContainsFunc(c.output, func(p fact.Part) bool { return p.Kind == fact.PartCall })
	}
}

// addHistory notes what the turn's first request repeats of the conversation before the
// turn, by what most is reported of it: what no message in the store has was never recorded.
func (m *measures) addHistory(nodes []*node) {
	if m.Asked {
		return
	}
	var before session.History
	for _, n := range nodes {
		m.Asked = m.Asked || len(n.Input) > 0
		if int64(n.Before) > before.Messages {
			before = session.History{Messages: int64(n.Before), Turns: int64(n.BeforeTurns)}
		}
	}
	if before.Messages > 0 {
		m.Message.Trace.History = &before
	}
}

// addFacts adds what other facts report.
func (m *measures) addFacts(nodes []*node) {
	trace := &m.Message.Trace
	for _, n := range nodes {
		if n.Kind != fact.Prompt {
			m.Latest = max(m.Latest, n.End)
		}
		m.End = max(m.End, n.End)
		m.RequiresTurn = m.RequiresTurn || n.RequiresTurn
		m.addSource(n)
		for _, p := range n.Problems {
			m.problem(p + n.named())
		}
		if n.Kind == fact.Turn {
			m.FirstRoot = cmp.Or(m.FirstRoot, &n.Start)
			m.Topped = m.Topped || !n.RequiresTurn || n.above(fact.Turn) != nil
		}
		if n.Kind == fact.ModelCall && m.HiddenAt == nil {
			m.HiddenAt = n.hiddenAt()
		}
		if n.Kind != fact.Turn && n.Kind != fact.ModelCall {
			continue
		}
		m.Aborted = m.Aborted || n.Aborted
		if n.Model != nil && n.Model.ModelID != "" && (m.Message.Model == nil || n.Model.ProviderID != "" ||
			m.Message.Model.ProviderID == "") {
			m.Message.Model = n.Model
		}
		m.Message.Agent = cmp.Or(n.agent, m.Message.Agent)
		m.Message.SystemPromptDigest = cmp.Or(n.SystemPromptDigest, m.Message.SystemPromptDigest)
		trace.ToolCatalogDigest = cmp.Or(n.ToolCatalogDigest, trace.ToolCatalogDigest)
		m.addExtra(n.Extra)
	}
}

// maxExtra bounds the keys that no column has.
const maxExtra = 64

// addExtra adds the keys that no column has.
func (m *measures) addExtra(raw json.RawMessage) {
	var extra map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &extra) != nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		switch key {
		case "usage", "model", "agent", "agenttrace", "system_prompt_digest", "compaction":
			continue
		}
		if len(m.Extra) < maxExtra && !slices.ContainsFunc(m.Extra, func(p pair) bool { return p.Key == key }) {
			m.Extra = append(m.Extra, pair{key, extra[key]})
		}
	}
}

// addRoots adds what the roots report. One that is below another that counts is part of that one's.
func (m *measures) addRoots(t *turn) {
	for _, r := range t.roots {
		if m.Root == nil || r.End > m.Root.End {
			m.Root = &rootEnd{End: r.End, Finish: r.Finish, Failed: r.Failed, Error: r.Error, ErrorType: r.ErrorType}
		}
		m.addHistory([]*node{r})
		m.RootCost = cmp.Or(m.RootCost, r.CostUSD)
		if m.RootFailed = cmp.Or(m.RootFailed, r.Error, r.ErrorType); m.RootFailed == "" && r.Failed {
			m.RootFailed = "error"
		}
		m.RootWent = m.RootWent || !r.Aborted && !r.Unfinished
		m.RootUnfinished = m.RootUnfinished || r.Unfinished
		if r.Usage == nil || r.Usage.Lifetime || t.countsAbove(r) {
			continue
		}
		sum := *r.Usage
		sum.Stated, sum.Counter, sum.Proof = nil, "", 0
		if !json.Valid(sum.Raw) {
			sum.Raw = nil
		}
		if m.RootUsage != nil {
			sum = *m.RootUsage
			sum.Tokens = sum.Tokens.Add(r.Usage.Tokens)
			both, err := json.Marshal([]json.RawMessage{validJSON(sum.Raw, "null"), validJSON(r.Usage.Raw, "null")})
			if err == nil && len(both) <= maxRaw {
				sum.Raw = both
			}
		}
		m.RootUsage = &sum
	}
}

// countsAbove reports whether a root above one states what was used.
func (t *turn) countsAbove(r *node) bool {
	for p := r.parent; p != nil; p = p.parent {
		if p.turn == t && p.Kind == fact.Turn && p.Usage != nil {
			return true
		}
	}
	return false
}

// metadata is what the message reports of the turn.
func (m measures) metadata(t *turn) string {
	m.setUsage()
	m.setEnd(t)
	trace := &m.Message.Trace
	if stated := cmp.Or(m.Cost, m.RootCost); stated != nil && !math.IsInf(*stated, 0) {
		cost := *stated
		if even := math.Round(cost*1e12) / 1e12; !math.IsInf(even, 0) {
			cost = even // no source counts what the sum of binary fractions adds
		}
		trace.CostUSD = &cost
	}
	trace.Sources = m.sources()
	trace.PendingApproval = m.Pending
	// The span of the whole turn is known to exist and missing where nothing is above what
	// always has a turn above it.
	trace.Incomplete = m.Lost || m.Unfinished || m.RootUnfinished && !m.Finished || m.RequiresTurn && !m.Topped
	raw, err := marshal(m.Message)
	if err != nil { // a raw value that is not JSON
		trace.UsageRaw = nil
		raw, _ = marshal(m.Message)
	}
	return string(withExtra(raw, m.Extra))
}

// setUsage settles what was used: the sum of the model calls, or what the roots count where
// that knows more.
func (m *measures) setUsage() {
	message, trace, raws := &m.Message, &m.Message.Trace, m.Raws
	if u := m.RootUsage; u != nil {
		// Whether the calls report all that was used. After a failed call a turn goes well
		// only by another one: VoltAgent reports one call, and not that it was tried again.
		whole, stepped := !m.Lost && !m.Partial && (m.Failed == "" || m.Root.Failed), message.Usage != nil
		var steps session.Usage
		if stepped {
			steps = *message.Usage
		}
		switch {
		case !stepped && !(m.Calls > 0 && whole), stepped && moreComplete(u, steps, m.Elsewhere, whole):
			tokens := u.Tokens
			message.Usage, trace.UsageBasis, raws = &tokens, u.Basis, nil
			if u.Raw != nil {
				raws = append(raws, u.Raw)
			}
		case !m.accounted(u.Tokens, steps):
			m.problem(fmt.Sprintf("the agent's span states %d tokens, its model calls come to %d", u.Tokens.Total(),
				steps.Total()))
		}
	}
	switch {
	case len(raws) == 1:
		trace.UsageRaw = raws[0]
	case len(raws) > 1:
		trace.UsageRaw, _ = json.Marshal(raws)
	}
}

// setEnd settles why the turn ended, and how long it took.
func (m *measures) setEnd(t *turn) {
	trace, finish, root := &m.Message.Trace, m.Finish, m.Root
	duration := max(0, (m.End-t.start)/1e6)
	if root != nil {
		if finish == "" || fact.FinishReason(finish) == "tool-calls" && !root.cutOff() {
			finish = cmp.Or(root.Finish, finish) // the last call may have been lost
		}
		duration = max(0, root.End-*m.FirstRoot) / 1e6
	}
	trace.DurationMS = &duration
	trace.StopReason = fact.FinishReason(finish)
	if trace.StopReason != finish {
		trace.StopReasonRaw = finish
	}
	trace.EndReason, trace.Error = m.ended(trace.StopReason)
}

// maxSources bounds the names of sources that a message keeps.
const maxSources = 16

// addSource notes by which source the turn is reported.
func (m *measures) addSource(n *node) {
	name := n.Dialect
	if n.Transcript {
		name += " transcript"
		m.Transcript = true
	}
	if len(m.Sources) < maxSources && !slices.Contains(m.Sources, name) {
		m.Sources = append(m.Sources, name)
	}
}

// sources names the sources of a turn that a transcript and telemetry report.
func (m *measures) sources() []string {
	if !m.Transcript || len(m.Sources) < 2 {
		return nil
	}
	return slices.Sorted(slices.Values(m.Sources))
}

// named is what to append to a problem so that its reader finds the span.
func (n *node) named() string {
	if n.SpanID == "" {
		return ""
	}
	return " (span " + n.SpanID + ")"
}

// problem notes what is wrong with what the sources report the message.
func (m *measures) problem(problem string) {
	trace := &m.Message.Trace
	if len(trace.Problems) < maxProblems && !slices.Contains(trace.Problems, problem) {
		trace.Problems = append(trace.Problems, problem)
	}
}

// cutOff reports whether a root ended with an answer of which it does not know why it
// ended.
func (root *rootEnd) cutOff() bool { return root.Finish == "other" || root.Finish == "unknown" }

// moreComplete reports whether the root's count takes precedence over the sum over the calls:
// where it reports more apart, or knows of calls that were lost or do not state what they
// used. Where the calls report all, whole, a root that counts more counts something
// else, such as all that its agent has ever done; and the calls of sub-agents are
// counted in their own sessions.
func moreComplete(root *fact.Usage, calls, elsewhere session.Usage, whole bool) bool {
	all, own := root.Tokens.Total(), calls.Total()
	switch {
	case all == own:
		return root.Tokens.Buckets() > calls.Buckets()
	case whole, elsewhere.Total() > 0 && all == own+elsewhere.Total():
		return false
	}
	return all > own
}

// accounted reports whether the calls account for what the turn's root states: it is
// their sum, with or without that of sub-agents, or what the last of them used.
func (m *measures) accounted(stated, steps session.Usage) bool {
	all := stated.Total()
	return all == steps.Total() || all == steps.Total()+m.Elsewhere.Total() || m.LastUsed != nil && *m.LastUsed == all
}

// usageElsewhere sums what the model calls of sub-agents below the turn used.
func (a *assembly) usageElsewhere(t *turn, parentRefs []*parentRef) session.Usage {
	var sum session.Usage
	var below func(*node)
	below = func(n *node) {
		for _, k := range n.kids {
			if k.Kind == fact.ModelCall && k.session != t.session && k.Usage != nil && !k.record && !isWrapper(k) {
				sum = sum.Add(k.Usage.Tokens)
				continue
			}
			below(k)
		}
	}
	for _, st := range parentRefs {
		below(st.from)
	}
	return sum
}

// ended states how the turn ended and by what error. What no source reports is not
// guessed.
func (m *measures) ended(stop string) (reason, text string) {
	root := m.Root
	switch {
	case m.Aborted || stop == "abort":
		return "abort", ""
	case stop == "error", root != nil && root.Failed && (m.Asks || m.Calls == 0 || m.Failed != ""):
		reason = "error"
	case m.Asks && root != nil && root.cutOff():
		return "", "" // an answer was cut off of which nothing is built
	case stop != "" && (root != nil || stop != "tool-calls"):
		return "finish", ""
	case m.Failed != "":
		reason = "error"
	case root != nil && root.Failed:
		reason = "error"
	default:
		return "", ""
	}
	text = m.Failed
	if root != nil && root.Failed {
		text = cmp.Or(text, root.Error, root.ErrorType)
	}
	return reason, text
}

// withExtra adds the keys that no column has.
func withExtra(metadata []byte, extra []pair) []byte {
	for _, p := range extra {
		metadata = metadata[:len(metadata)-1]
		if len(metadata) > 1 {
			metadata = append(metadata, ',')
		}
		metadata = append(append(append(append(metadata, jsonscan.AppendString(nil, p.Key)...), ':'), p.Value...), '}')
	}
	return metadata
}
