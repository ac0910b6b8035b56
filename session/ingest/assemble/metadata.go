package assemble

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// This file makes the metadata of a turn's message: what it used and cost, how it ended, what is wrong with it. The
// calls of the model count, each once; what the spans above them state is a sum over the same calls with most
// clients, over the last step with some, over all that the agent ever did with Strands. So it counts only where calls
// are missing or know less. What is stated differently becomes a problem, which check and show print.

// maxProblems bounds the problems that a message keeps, maxRaws the model calls whose
// usage it keeps as the source wrote it, maxRaw the bytes of what roots counted, maxExtra
// the keys that no column has, and maxSources the names of sources.
const (
	maxProblems = 8
	maxRaws     = 64
	maxRaw      = 16 << 10
	maxExtra    = 64
	maxSources  = 16
)

// summary is what the facts of a turn report of its message, beside the parts. It is gathered in three walks, over
// the calls, over all facts and over the roots, and settled when the parts are written: only then is it known whether
// the answer that a root has was a lost call's.
type summary struct {
	// Its usage is that of the model calls, or of the roots where these know more.
	session.MessageMetadata
	turn *turn
	// calls are those of a model, also those that were lost; what the program appended is none.
	calls []*call
	raws  []json.RawMessage // what the calls used, as the sources wrote it
	cost  *float64
	// extra are the keys that no column has, as JSON writes them behind other members; extraKeys are their names.
	extra     []byte
	extraKeys []string
	// latest is when the turn was last seen.
	latest int64
	// root is the one that ended last; rootUsage and rootCost are what the roots counted, elsewhere what sub-agents did.
	root      *node
	rootUsage *fact.Usage
	rootCost  *float64
	elsewhere session.Usage
	aborted   bool
	// lost reports that a call was lost, partial that not all calls report what they used.
	lost, partial bool
	sources       []string // see [node.source]
}

// summarize gathers what is reported of a turn whose answer began at a time.
func (t *turn) summarize(calls []*call, began int64) *summary {
	s := &summary{turn: t, latest: began}
	for _, c := range calls {
		if !c.appended {
			s.calls = append(s.calls, c)
			s.addCall(c)
		}
	}
	for _, n := range t.nodes {
		s.addFact(n)
	}
	for _, r := range t.roots {
		s.addRoot(r)
	}
	s.checkAsked()
	s.setHistory()
	return s
}

// last is the last model call, one of which nothing is known where there is none.
func (s *summary) last() *call {
	if len(s.calls) == 0 {
		return new(call)
	}
	return s.calls[len(s.calls)-1]
}

// asks reports whether the last call requested a tool. Some models report that they stopped when they do, so the
// reason to stop does not show it.
func (s *summary) asks() bool { return has(s.last().output, fact.PartCall) }

// finished reports whether a source saw the end of a call.
func (s *summary) finished() bool { return slices.ContainsFunc(s.calls, (*call).finished) }

// failure is the error of the last call that failed, or else that of a root, "" without one. It is shown in place of
// the answer of a turn that has none.
func (s *summary) failure() string {
	for _, c := range slices.Backward(s.calls) {
		if failed := c.failed(); failed != "" {
			return s.whole(failed)
		}
	}
	failed := s.text()
	for _, r := range s.turn.roots {
		if failed = cmp.Or(failed, r.ErrorType); failed == "" && r.Failed {
			failed = "error"
		}
	}
	return failed
}

// text is the error that a span above the calls reports, "" without one.
func (s *summary) text() string {
	for _, n := range of(s.turn.nodes, fact.Turn, fact.Step) {
		if text := n.errorText(); n.Failed && text != "" && (n.Kind == fact.Turn || n.above(fact.ToolCall) == nil) {
			return text
		}
	}
	return ""
}

// whole returns the error of a call. Of some only the kind is reported, and the text by what is above: a step whose
// status has the server's words.
func (s *summary) whole(failed string) string {
	for _, n := range of(s.turn.nodes, fact.ModelCall) {
		if n.Failed && n.errorText() == "" &&
			(failed == n.Error || failed == n.ErrorType || failed == "error") {
			return cmp.Or(s.text(), failed)
		}
	}
	return failed
}

// addCall adds what a model call reports.
func (s *summary) addCall(c *call) {
	trace := &s.Trace
	if !c.guessed {
		trace.ModelCalls++
	}
	failed, u := c.failed(), c.usage()
	// A call that failed used nothing that anybody reports. Any other one without a usage makes the sum too small.
	s.partial = s.partial || c.guessed || u == nil && failed == ""
	if u != nil {
		if u.Capped {
			s.problem("the source states more cached or reasoning tokens than the tokens that include them" +
				c.nodes[0].named())
		}
		s.Usage = session.Sum(s.Usage, &u.Tokens, session.Usage.Add)
		trace.UsageBasis = cmp.Or(u.Basis, trace.UsageBasis)
		if u.Raw != nil {
			s.raws = append(s.raws, u.Raw)
		}
	}
	c.disagreements(s.problem)
	var stated *float64
	trace.ResponseID = ""
	var step session.Step
	if u != nil {
		step.Usage = &u.Tokens
	}
	for _, n := range c.nodes {
		step.StartedAt = cmp.Or(step.StartedAt, n.Start/1e6)
		step.Model = cmp.Or(step.Model, n.Model)
		step.ResponseID, step.StopReason = cmp.Or(step.ResponseID, n.ResponseID), cmp.Or(step.StopReason, n.Finish)
		stated = cmp.Or(stated, n.CostUSD)
		trace.Temperature = cmp.Or(n.Temperature, trace.Temperature)
		trace.ResponseModel = cmp.Or(n.ResponseModel, trace.ResponseModel)
		if len(s.calls) == 1 { // else it would be one of several
			trace.ResponseID = cmp.Or(trace.ResponseID, n.ResponseID)
		}
	}
	if failed == "" || u != nil {
		trace.Steps = append(trace.Steps, step)
	}
	s.cost = session.Sum(s.cost, stated, func(a, b float64) float64 { return a + b })
	if failed != "" && len(trace.ModelErrors) < maxProblems {
		trace.ModelErrors = append(trace.ModelErrors, failed)
	}
}

// addFact adds what any fact of the turn reports. When the turn was last seen does not come of a prompt, which may be
// one that still waits.
func (s *summary) addFact(n *node) {
	if n.Kind != fact.Prompt {
		s.latest = max(s.latest, n.End)
	}
	s.sources = addNew(s.sources, n.source(), maxSources)
	for _, p := range n.Problems {
		s.problem(p + n.named())
	}
	if n.Kind != fact.Turn && n.Kind != fact.ModelCall {
		return
	}
	s.aborted = s.aborted || n.Aborted
	// The last model that was called, and of two names the one with its provider: prices are found by both.
	if n.Model != nil && n.Model.ModelID != "" && (s.Model == nil || n.Model.ProviderID != "" ||
		s.Model.ProviderID == "") {
		s.Model = n.Model
	}
	s.Agent = cmp.Or(n.agent, s.Agent)
	s.SystemPromptDigest = cmp.Or(n.SystemPromptDigest, s.SystemPromptDigest)
	s.Trace.ToolCatalogDigest = cmp.Or(n.ToolCatalogDigest, s.Trace.ToolCatalogDigest)
	s.addExtra(n.Extra)
}

// addExtra adds the keys that no column has. Those that this package writes itself are left out: a transcript's row
// may have them as another program wrote them.
func (s *summary) addExtra(raw json.RawMessage) {
	var extra map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &extra) != nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		switch key {
		case "usage", "model", "agent", "agenttrace", "system_prompt_digest", "compaction":
			continue
		}
		if keys := addNew(s.extraKeys, key, maxExtra); len(keys) > len(s.extraKeys) {
			s.extraKeys = keys
			s.extra = append(append(jsonscan.AppendString(append(s.extra, ','), key), ':'), extra[key]...)
		}
	}
}

// addRoot adds what a root reports. What one counts that is below another that counts is part of that one's. Roots
// beside each other, as those of a turn that goes on after an approval, count each its own.
func (s *summary) addRoot(r *node) {
	if s.root == nil || r.End > s.root.End {
		s.root = r
	}
	s.rootCost = cmp.Or(s.rootCost, r.CostUSD)
	if r.Usage == nil || r.Usage.Lifetime || s.turn.countsAbove(r) {
		return
	}
	sum := *r.Usage
	if s.rootUsage != nil {
		sum = *s.rootUsage
		sum.Tokens = sum.Tokens.Add(r.Usage.Tokens)
		if both, _ := json.Marshal([]json.RawMessage{sum.Raw, r.Usage.Raw}); len(both) <= maxRaw {
			sum.Raw = both
		}
	}
	s.rootUsage = &sum
}

// checkAsked notes a request that ends with words of the user that the turn does not have: it may be another turn's,
// and was given to this one by time alone. What is below the turn's root is its own, whatever it asks.
func (s *summary) checkAsked() {
	text := textOf(s.turn.asked)
	mine := squeeze(text)
	for _, n := range of(s.turn.nodes, fact.Turn, fact.ModelCall) {
		asked := textOf(askedBy(n.Fact))
		if mine == "" || len(n.Input) == 0 || n.record || n.side != "" || asked == text || n.above(fact.Turn) != nil {
			continue
		}
		if asked = squeeze(asked); !strings.Contains(asked, mine) && !strings.Contains(mine, asked) {
			s.problem("a request ends with words of the user that are not in the turn's message" + n.named())
			return
		}
	}
}

// countsAbove reports whether a root above one states what was used: two libraries may have a span each for the
// agent's work, one within the other, and both count all of it.
func (t *turn) countsAbove(r *node) bool {
	for p := r.parent; p != nil; p = p.parent {
		if p.turn == t && p.Kind == fact.Turn && p.Usage != nil {
			return true
		}
	}
	return false
}

// setHistory notes what the turn's first request repeats of the conversation before the turn, by what most is
// reported of it: what no message in the store has was never recorded. A client that resumes an old conversation
// repeats it in its first recorded request. By this number replay knows that the model was given more than the
// session has.
func (s *summary) setHistory() {
	var requests [][]*node
	for _, c := range s.calls {
		requests = append(requests, c.nodes)
	}
	for _, r := range s.turn.roots {
		requests = append(requests, []*node{r})
	}
	for _, nodes := range requests {
		var before session.History
		seen := false // later requests repeat the turn itself
		for _, n := range nodes {
			seen = seen || len(n.Input) > 0
			if int64(n.Before) > before.Messages {
				before = session.History{Messages: int64(n.Before), Turns: int64(n.BeforeTurns)}
			}
		}
		if before.Messages > 0 {
			s.Trace.History = &before
		}
		if seen {
			return
		}
	}
}

// metadata is what the message reports of the turn.
func (s *summary) metadata() string {
	s.setUsage()
	s.setEnd()
	trace := &s.Trace
	// What the calls cost, else what a root states: that may have the cost of sub-agents in it.
	if stated := cmp.Or(s.cost, s.rootCost); stated != nil && !math.IsInf(*stated, 0) {
		cost := *stated
		if even := math.Round(cost*1e12) / 1e12; !math.IsInf(even, 0) {
			cost = even // no source counts what the sum of binary fractions adds
		}
		trace.CostUSD = &cost
	}
	// Which sources there were is of interest where they may differ: a file of the client and its telemetry.
	if len(s.sources) > 1 && slices.ContainsFunc(s.turn.nodes, func(n *node) bool { return n.Transcript }) {
		trace.Sources = slices.Sorted(slices.Values(s.sources))
	}
	trace.Incomplete = s.incomplete()
	return strings.TrimSuffix(marshal(s.MessageMetadata), "}") + string(s.extra) + "}" // there is a duration at least
}

// incomplete reports whether something of the turn is known to exist and was not reported. That is often so for a
// while, because the root is what ends last, and for ever where an agent was killed. What counts is a call or its
// end, the end of a root, or the span of the whole turn, where nothing is above what always has a turn above it and
// no file of the client has its end.
func (s *summary) incomplete() bool {
	topped := slices.ContainsFunc(s.turn.roots, func(r *node) bool { return !r.RequiresTurn || r.above(fact.Turn) != nil })
	return s.lost || slices.ContainsFunc(s.calls, (*call).unfinished) ||
		!s.finished() && slices.ContainsFunc(s.turn.roots, func(r *node) bool { return r.Unfinished }) ||
		!topped && !s.filed() && slices.ContainsFunc(s.turn.nodes, func(n *node) bool { return n.RequiresTurn })
}

// filed reports whether the client's own file has the end of the turn: then no span that is missing leaves anything
// out.
func (s *summary) filed() bool {
	return slices.ContainsFunc(s.last().nodes, func(n *node) bool {
		return n.Transcript && n.Finish != "" && fact.FinishReason(n.Finish) != "tool-calls"
	})
}

// setUsage settles what was used: the sum of the model calls, or what the roots count where that knows more.
//
//	calls        root        used
//	10 + 20      30          30     the same, or the root's if it reports the cache apart
//	10 + 20      20          30     the root has its last step only
//	10 + (lost)  30          30     the root's
//	10 + 20      500         30     the root has all that its agent did, which is a problem
//	10 + 20      35          30     if 5 are those of sub-agents, which count in their sessions
func (s *summary) setUsage() {
	trace, raws := &s.Trace, s.raws
	if len(raws) > maxRaws {
		raws = nil
	}
	if u := s.rootUsage; u != nil {
		// Whether the calls report all that was used. After a failed call a turn goes well only by another one: VoltAgent
		// reports one call, and not that it was tried again. What its agent states is then all that is known.
		whole, stepped := !s.lost && !s.partial && (s.last().failed() == "" || s.root.Failed), s.Usage != nil
		steps := session.Deref(s.Usage)
		switch {
		case !stepped && !(len(s.calls) > 0 && whole), stepped && moreComplete(u, steps, s.elsewhere, whole):
			tokens := u.Tokens
			s.Usage, trace.UsageBasis, raws = &tokens, u.Basis, nil
			if u.Raw != nil {
				raws = append(raws, u.Raw)
			}
		case !s.accounted(u.Tokens.Total(), steps):
			s.problem(fmt.Sprintf("the agent's span states %d tokens, its model calls come to %d", u.Tokens.Total(),
				steps.Total()))
		}
	}
	trace.Steps = session.StepsOfModels(s.Model, s.Usage, trace.Steps)
	switch {
	case len(raws) == 1:
		trace.UsageRaw = raws[0]
	case len(raws) > 1:
		trace.UsageRaw, _ = json.Marshal(raws)
	}
}

// setEnd settles why the turn ended, and how long it took.
func (s *summary) setEnd() {
	trace, finish, end := &s.Trace, "", int64(0)
	for _, n := range s.last().nodes {
		finish = cmp.Or(finish, n.Finish)
	}
	for _, n := range s.turn.nodes {
		end = max(end, n.End)
	}
	// Without a span of the turn, from the first to the last of what is known of it.
	duration := max(0, (end-s.turn.start)/1e6)
	if root := s.root; root != nil {
		// A turn does not end with the request of a tool. The call that the result was given to may have been lost.
		if finish == "" || fact.FinishReason(finish) == "tool-calls" && !cutOff(root) {
			finish = cmp.Or(root.Finish, finish)
		}
		duration = max(0, root.End-s.turn.roots[0].Start) / 1e6
	}
	trace.DurationMS = &duration
	trace.StopReason = fact.FinishReason(finish)
	if trace.StopReason != finish {
		trace.StopReasonRaw = finish
	}
	trace.EndReason, trace.Error = s.ended(trace.StopReason)
}

// named is what to append to a problem so that its reader finds the span: in a session of twenty turns a problem
// without it has its reader search.
func (n *node) named() string {
	if n.SpanID == "" {
		return ""
	}
	return " (span " + n.SpanID + ")"
}

// problem notes what is wrong with what the sources report the message.
func (s *summary) problem(problem string) {
	s.Trace.Problems = addNew(s.Trace.Problems, problem, maxProblems)
}

// addNew adds a text to a list that does not have it, up to a number of them.
func addNew(list []string, text string, maximum int) []string {
	if len(list) >= maximum || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// cutOff reports whether a root ended with an answer of which it does not know why it ended: that of a stream that
// was cut off after a tool ran, and whose call left no span. The turn did not stop at the tool calls of the call
// before.
func cutOff(root *node) bool { return root.Finish == "other" || root.Finish == "unknown" }

// moreComplete reports whether the root's count takes precedence over the sum over the calls: where it reports more
// apart, or knows of calls that were lost or do not state what they used. Where the calls report all, whole, a root
// that counts more counts something else, such as all that its agent has ever done; and the calls of sub-agents are
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

// accounted reports whether the calls account for what the turn's root states: it is their sum, with or without that
// of sub-agents, or what the last of them used, as some agents report their last step alone.
func (s *summary) accounted(stated int64, steps session.Usage) bool {
	last := steps.Total()
	for _, c := range s.calls {
		if u := c.usage(); u != nil {
			last = u.Tokens.Total()
		}
	}
	return stated == steps.Total() || stated == steps.Total()+s.elsewhere.Total() || stated == last
}

// usageElsewhere sums what the model calls of sub-agents below the turn used. A root that counts them too states a
// sum that the calls of its own session do not come to, and that is neither a problem nor the turn's.
func (t *turn) usageElsewhere() session.Usage {
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
	for _, n := range t.nodes {
		if n.turnAbove() != t { // else it is below another one
			below(n)
		}
	}
	return sum
}

// ended states how the turn ended and by what error. What no source reports is not guessed. A root may fail because a
// tool did while the model went on and finished: then the turn has finished.
func (s *summary) ended(stop string) (reason, text string) {
	root, failed := s.root, s.last().failed()
	rootFailed := root != nil && root.Failed
	switch {
	case s.aborted || stop == "abort":
		return "abort", ""
	case stop == "error", rootFailed && (s.asks() || len(s.calls) == 0 || failed != ""):
	case s.asks() && root != nil && cutOff(root):
		return "", "" // an answer was cut off of which nothing is built
	case stop != "" && (root != nil || stop != "tool-calls"):
		return "finish", ""
	case failed == "" && !rootFailed:
		return "", ""
	}
	if text = s.whole(failed); rootFailed {
		text = cmp.Or(text, root.Error, root.ErrorType)
	}
	return "error", text
}
