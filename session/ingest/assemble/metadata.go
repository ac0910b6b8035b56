package assemble

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/spans"
)

// mostProblems bounds the flaws that a message keeps.
const mostProblems = 8

// metadata is what the turn's facts say of its message. elsewhere is the usage of
// sub-agents below it, which its root may have counted.
func (w *writer) metadata(calls []*call, lost bool, elsewhere session.Usage) string {
	t := w.turn
	var m session.MessageMetadata
	trace := &m.Trace
	var steps session.Usage
	var stepped, costs bool
	var cost float64
	var raws []json.RawMessage
	var finish string
	settleBasis(calls)
	whole := !lost // whether the calls tell of all that was used
	for _, c := range calls {
		if !c.guessed {
			trace.ModelCalls++
		}
		u := c.usage()
		whole = whole && !c.guessed && (u != nil || c.failed() != "")
		if u != nil {
			if u.Capped {
				w.problem(trace, "the source states more cached or reasoning tokens than the tokens that include them")
			}
			steps, stepped = steps.Add(u.Tokens), true
			trace.UsageBasis = cmp.Or(u.Basis, trace.UsageBasis)
			if u.Raw != nil {
				raws = append(raws, u.Raw)
			}
		}
		var stated *float64
		for _, n := range c.nodes {
			stated = cmp.Or(stated, n.CostUSD)
		}
		if stated != nil {
			cost, costs = cost+*stated, true
		}
		finish = ""
		for _, n := range c.nodes {
			finish = cmp.Or(finish, n.Finish)
			trace.Temperature = cmp.Or(n.Temperature, trace.Temperature)
			if len(calls) == 1 {
				trace.ResponseID = cmp.Or(trace.ResponseID, n.ResponseID)
			}
			trace.ResponseModel = cmp.Or(n.ResponseModel, trace.ResponseModel)
		}
		if text := c.failed(); text != "" && len(trace.ModelErrors) < mostProblems {
			trace.ModelErrors = append(trace.ModelErrors, text)
		}
	}
	if stepped {
		m.Usage = &steps
	}
	var root *node
	for _, n := range t.nodes {
		if n.Kind == fact.Turn && (root == nil || n.End > root.End) {
			root = n
		}
		if n.Kind == fact.Turn || n.Kind == fact.ModelCall {
			if n.Model != nil && n.Model.ModelID != "" && (m.Model == nil || n.Model.ProviderID != "" || m.Model.ProviderID == "") {
				m.Model = n.Model
			}
			m.Agent = cmp.Or(n.agent, m.Agent)
			m.SystemPromptDigest = cmp.Or(n.SystemPromptDigest, m.SystemPromptDigest)
			trace.ToolCatalogDigest = cmp.Or(n.ToolCatalogDigest, trace.ToolCatalogDigest)
		}
		for _, p := range n.Problems {
			w.problem(trace, p)
		}
	}
	if u := t.rootUsage(); u != nil {
		switch {
		case !stepped && !(len(calls) > 0 && whole), stepped && knowsMore(u, steps, elsewhere, whole):
			tokens := u.Tokens
			m.Usage, trace.UsageBasis, raws = &tokens, u.Basis, nil
			if u.Raw != nil {
				raws = append(raws, u.Raw)
			}
		case !w.accounted(u.Tokens, steps, elsewhere, calls):
			w.problem(trace, fmt.Sprintf("the agent's span states %d tokens, its model calls come to %d", u.Tokens.Total(), steps.Total()))
		}
	}
	for _, r := range t.roots {
		if r.CostUSD != nil && !costs {
			cost, costs = *r.CostUSD, true
		}
	}
	switch {
	case len(raws) == 1:
		trace.UsageRaw = raws[0]
	case len(raws) > 1:
		trace.UsageRaw, _ = json.Marshal(raws)
	}
	if costs && !math.IsInf(cost, 0) {
		if even := math.Round(cost*1e12) / 1e12; !math.IsInf(even, 0) {
			cost = even // no source counts what the sum of binary fractions adds
		}
		trace.CostUSD = &cost
	}
	if root != nil {
		if finish == "" || fact.FinishReason(finish) == "tool-calls" && !cutOff(root) {
			finish = cmp.Or(root.Finish, finish) // the last call may have been lost
		}
		duration := max(0, root.End-t.roots[0].Start) / 1e6
		trace.DurationMS = &duration
	} else {
		duration := int64(0)
		for _, n := range t.nodes {
			duration = max(duration, (n.End-t.start)/1e6)
		}
		trace.DurationMS = &duration
	}
	trace.StopReason = fact.FinishReason(finish)
	if trace.StopReason != finish {
		trace.StopReasonRaw = finish
	}
	trace.Sources = t.sources()
	trace.EndReason, trace.Error = w.ended(root, calls, trace.StopReason)
	trace.PendingApproval = slices.ContainsFunc(w.Parts, func(p session.Part) bool {
		return p.ToolState != nil && *p.ToolState == session.StateApprovalRequested
	})
	trace.Incomplete = lost || t.rootless()
	raw, err := marshal(m)
	if err != nil { // a raw value that is no JSON
		trace.UsageRaw = nil
		raw, _ = marshal(m)
	}
	return string(withExtra(raw, t.nodes))
}

// rootless says whether the span of the whole turn is known to exist and missing:
// nothing stands above what always has a turn above it.
func (t *turn) rootless() bool {
	if len(t.roots) == 0 {
		return slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Rooted })
	}
	return !slices.ContainsFunc(t.roots, func(n *node) bool { return !n.Rooted || n.above(fact.Turn) != nil })
}

// sources names the sources of a turn that a transcript and telemetry report.
func (t *turn) sources() []string {
	if !slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Transcript }) {
		return nil
	}
	var all []string
	for _, n := range t.nodes {
		name := n.Dialect
		if n.Transcript {
			name += " transcript"
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) < 2 {
		return nil
	}
	slices.Sort(all)
	return all
}

// cutOff says whether a root ended with an answer of which it does not know why it
// ended.
func cutOff(root *node) bool { return root.Finish == "other" || root.Finish == "unknown" }

// problem notes what is wrong with what the sources tell of the message.
func (w *writer) problem(trace *session.MessageTrace, problem string) {
	if len(trace.Problems) < mostProblems && !slices.Contains(trace.Problems, problem) {
		trace.Problems = append(trace.Problems, problem)
	}
}

// knowsMore says whether the root's count stands against the sum over the calls:
// where it tells more apart, or knows of calls that were lost or do not say what they
// used. Where the calls tell of all, whole, a root that counts more counts something
// else, such as all that its agent has ever done; and the calls of sub-agents are
// counted in their own sessions.
func knowsMore(root *fact.Usage, calls, elsewhere session.Usage, whole bool) bool {
	all, own := root.Tokens.Total(), calls.Total()
	switch {
	case all == own:
		return buckets(root.Tokens) > buckets(calls)
	case whole, elsewhere.Total() > 0 && all == own+elsewhere.Total():
		return false
	}
	return all > own
}

// accounted says whether the calls account for what the turn's root states: it is
// their sum, with or without that of sub-agents, or what the last of them used.
func (w *writer) accounted(stated, steps, elsewhere session.Usage, calls []*call) bool {
	all := stated.Total()
	if all == steps.Total() || all == steps.Total()+elsewhere.Total() {
		return true
	}
	for _, c := range slices.Backward(calls) {
		if u := c.usage(); u != nil {
			return u.Tokens.Total() == all
		}
	}
	return false
}

// usageElsewhere sums what the model calls of sub-agents below the turn used.
func (a *assembly) usageElsewhere(t *turn, seats []*seat) session.Usage {
	var sum session.Usage
	var below func(*node)
	below = func(n *node) {
		for _, k := range n.kids {
			if k.Kind == fact.ModelCall && k.session != t.session && k.Usage != nil && !k.record && !wraps(k) {
				sum = sum.Add(k.Usage.Tokens)
				continue
			}
			below(k)
		}
	}
	if t.rootUsage() == nil {
		return sum
	}
	for _, st := range seats {
		below(st.from)
	}
	return sum
}

// rootUsage is what the turn's roots counted. One that stands below another that
// counts is part of that one's.
func (t *turn) rootUsage() *fact.Usage {
	var sum *fact.Usage
	for _, r := range t.roots {
		if r.Usage == nil || r.Usage.Lifetime || slices.ContainsFunc(t.roots, func(o *node) bool { return o != r && o.Usage != nil && r.below(o) }) {
			continue
		}
		if sum == nil {
			u := *r.Usage
			sum = &u
			continue
		}
		sum.Tokens = sum.Tokens.Add(r.Usage.Tokens)
		both, err := json.Marshal([]json.RawMessage{soundJSON(sum.Raw, "null"), soundJSON(r.Usage.Raw, "null")})
		if err == nil {
			sum.Raw = both
		}
	}
	return sum
}

// ended says how the turn ended and by what error. What no source reports is not
// guessed.
func (w *writer) ended(root *node, calls []*call, stop string) (reason, text string) {
	aborted := slices.ContainsFunc(w.turn.nodes, func(n *node) bool { return n.Aborted && (n.Kind == fact.Turn || n.Kind == fact.ModelCall) })
	var last *call
	if len(calls) > 0 {
		last = calls[len(calls)-1]
	}
	// Some models say that they stopped when they ask for tools.
	asks := last != nil && slices.ContainsFunc(last.output, func(p fact.Part) bool { return p.Kind == fact.PartCall })
	switch {
	case aborted || stop == "abort":
		return "abort", ""
	case stop == "error", root != nil && root.Failed && (asks || last == nil || last.failed() != ""):
		reason = "error"
	case asks && root != nil && cutOff(root):
		return "", "" // an answer was cut off of which nothing is told
	case stop != "" && (root != nil || stop != "tool-calls"):
		return "finish", ""
	case last != nil && last.failed() != "":
		reason = "error"
	case root != nil && root.Failed:
		reason = "error"
	default:
		return "", ""
	}
	if last != nil {
		text = last.failed()
	}
	if root != nil && root.Failed {
		text = cmp.Or(text, root.Error, root.ErrorType)
	}
	return reason, text
}

// withExtra adds the keys that no column has.
func withExtra(metadata []byte, nodes []*node) []byte {
	var have map[string]json.RawMessage
	if json.Unmarshal(metadata, &have) != nil {
		return metadata
	}
	for _, n := range nodes {
		var extra map[string]json.RawMessage
		if n.Kind != fact.Turn && n.Kind != fact.ModelCall || len(n.Extra) == 0 || json.Unmarshal(n.Extra, &extra) != nil {
			continue
		}
		keys := make([]string, 0, len(extra))
		for key := range extra {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if _, taken := have[key]; taken || key == "usage" || key == "model" || key == "agent" || key == "agenttrace" || key == "system_prompt_digest" || key == "compaction" {
				continue
			}
			have[key] = extra[key]
			name := spans.AppendJSONString(nil, key)
			metadata = metadata[:len(metadata)-1]
			if len(metadata) > 1 {
				metadata = append(metadata, ',')
			}
			metadata = append(append(append(append(metadata, name...), ':'), extra[key]...), '}')
		}
	}
	return metadata
}
