package assemble

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// call is one request to a model: the span that describes it, and what records
// and spans below it add.
type call struct {
	nodes      []*node
	span       *node // the outermost span, nil when only records tell of it
	start, end int64
	output     []fact.Part
	// guessed says that no fact tells of the call itself: it was lost, and what it
	// said is known from what the next one was asked.
	guessed bool
}

// tool is one call of a tool: what is known of its execution.
type tool struct {
	id, name   string
	nodes      []*node
	decisions  []*node
	start, end int64
	used       bool
}

// findCalls gathers the turn's model calls, in order of time.
func (t *turn) findCalls() []*call {
	var calls []*call
	of := make(map[*node]*call)
	var loose []*node
	for _, n := range t.nodes {
		if n.Kind != fact.ModelCall && n.Kind != fact.Answer {
			continue
		}
		if n.record || n.Kind == fact.Answer {
			loose = append(loose, n)
			continue
		}
		if len(modelCallsBelow(n)) > 1 {
			continue // it wraps several, and is no call of its own
		}
		if p := n.above(fact.ModelCall, fact.ToolCall); p != nil && p.Kind == fact.ModelCall && of[p] != nil {
			of[p].nodes = append(of[p].nodes, n)
			of[n] = of[p]
			continue
		}
		if c := sameRequest(calls, n); c != nil {
			c.nodes = append(c.nodes, n)
			c.end = max(c.end, n.End)
			of[n] = c
			continue
		}
		c := &call{nodes: []*node{n}, span: n, start: n.Start, end: n.End}
		calls, of[n] = append(calls, c), c
	}
	spans := slices.Clone(calls)
	for _, n := range loose {
		c := sameRequest(calls, n)
		if c == nil {
			for p := n.parent; p != nil && c == nil; p = p.parent {
				c = of[p]
			}
		}
		if c == nil && len(spans) > 0 {
			c = nearest(spans, n)
		}
		if c == nil && len(spans) == 0 && len(calls) > 0 {
			// Records alone: what has not been said of the last call yet is said of it.
			if last := calls[len(calls)-1]; !last.heard(n.Name) && n.RequestID == "" {
				c = last
			}
		}
		if c == nil {
			c = &call{start: n.Start, end: n.End}
			calls = append(calls, c)
		}
		c.nodes = append(c.nodes, n)
		if c.span == nil {
			c.start, c.end = min(c.start, n.Start), max(c.end, n.End)
		}
	}
	for _, c := range calls {
		c.read()
	}
	slices.SortStableFunc(calls, func(x, y *call) int { return cmp.Compare(x.start, y.start) })
	return calls
}

// modelCallsBelow returns the calls of a model that were made within n, tools and
// sub-agents left out, as long as none of them wraps others.
func modelCallsBelow(n *node) []*node {
	var found []*node
	for _, k := range n.kids {
		if k.session != n.session || k.Kind == fact.ToolCall || k.record || k.side != "" {
			continue
		}
		if k.Kind == fact.ModelCall {
			found = append(found, k)
			continue
		}
		found = append(found, modelCallsBelow(k)...)
	}
	return found
}

func sameRequest(calls []*call, n *node) *call {
	if n.RequestID == "" {
		return nil
	}
	for _, c := range calls {
		for _, o := range c.nodes {
			if o.RequestID == n.RequestID {
				return c
			}
		}
	}
	return nil
}

// heard says whether a record of the name already speaks of the call.
func (c *call) heard(name string) bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool { return n.record && n.Name == name })
}

// nearest returns the call that was going on when a record without any id was
// written, or the one that ended nearest to it, of those of which no record of the
// name speaks yet.
func nearest(calls []*call, n *node) *call {
	var best *call
	distance := func(c *call) int64 {
		switch {
		case n.Start < c.start:
			return c.start - n.Start
		case n.Start > c.end:
			return n.Start - c.end
		}
		return 0
	}
	for _, c := range calls {
		if !c.heard(n.Name) && (best == nil || distance(c) < distance(best)) {
			best = c
		}
	}
	return best
}

// read finds what the model said: as the outermost span has it, else another span,
// else a record; text that is told apart comes first.
func (c *call) read() {
	slices.SortStableFunc(c.nodes, func(x, y *node) int {
		return cmp.Or(cmp.Compare(truth(x.record), truth(y.record)), compareNodes(x, y))
	})
	var answers []fact.Part
	for _, n := range c.nodes {
		if n.Kind == fact.Answer {
			answers = append(answers, n.Output...)
			continue
		}
		if len(c.output) == 0 {
			c.output = n.Output
		} else if textOf(c.output) == "" && textOf(n.Output) != "" {
			answers = append(answers, n.Output...)
		}
	}
	if len(answers) > 0 && !saysText(c.output) {
		said := slices.DeleteFunc(slices.Clone(answers), func(p fact.Part) bool { return p.Kind == fact.PartCall || p.Kind == fact.PartResult })
		c.output = append(said, c.output...)
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func saysText(parts []fact.Part) bool {
	return slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == fact.PartText })
}

// failed returns the error of a call that came to nothing, or "".
func (c *call) failed() string {
	for _, n := range c.nodes {
		if n.Failed {
			return cmp.Or(n.Error, n.ErrorType, "error")
		}
	}
	return ""
}

// usage is what the call cost, as the one of its facts that knows most says.
func (c *call) usage() *fact.Usage {
	var best *fact.Usage
	for _, n := range c.nodes {
		if u := n.Usage; u != nil && (best == nil || u.Tokens.Total() > best.Tokens.Total() || u.Tokens.Total() == best.Tokens.Total() && buckets(u) > buckets(best)) {
			best = u
		}
	}
	return best
}

// buckets counts those of a usage that are not zero.
func buckets(u *fact.Usage) int {
	n := 0
	for _, v := range []int64{u.Tokens.Input, u.Tokens.Output, u.Tokens.Reasoning, u.Tokens.CacheRead, u.Tokens.CacheWrite} {
		if v != 0 {
			n++
		}
	}
	return n
}

// findTools gathers what is known of the executions of tools. Facts that name no
// call are of the one in whose span they stand.
func (t *turn) findTools() []*tool {
	var tools []*tool
	byID, of := make(map[string]*tool), make(map[*node]*tool)
	var unnamed []*node
	for _, n := range t.nodes {
		p := n.above(fact.ToolCall)
		if n.Kind == fact.Step && n.Failed && p != nil && of[p] != nil {
			of[p].nodes = append(of[p].nodes, n) // what went wrong within a call
			continue
		}
		if n.Kind != fact.ToolCall && n.Kind != fact.Permission {
			continue
		}
		id := n.CallID
		if p != nil && p.session == n.session && (id == "" || p.CallID == "" || p.CallID == id) && of[p] != nil {
			of[p].add(n)
			of[n] = of[p]
			continue
		}
		if id == "" {
			unnamed = append(unnamed, n)
			continue
		}
		x := byID[id]
		if x == nil {
			x = &tool{id: id}
			byID[id] = x
			tools = append(tools, x)
		}
		x.add(n)
		of[n] = x
	}
	// A span comes before the records that may speak of it.
	slices.SortStableFunc(unnamed, func(x, y *node) int { return cmp.Compare(truth(x.record), truth(y.record)) })
	for _, n := range unnamed {
		x := like(tools, n)
		if p := n.above(fact.ToolCall); x == nil && p != nil {
			x = of[p]
		}
		if x == nil {
			if n.Kind == fact.Permission {
				continue
			}
			x = new(tool)
			tools = append(tools, x)
		}
		x.add(n)
		of[n] = x
	}
	slices.SortStableFunc(tools, func(x, y *tool) int { return cmp.Compare(x.start, y.start) })
	return tools
}

func (x *tool) add(n *node) {
	if n.Kind == fact.Permission {
		x.decisions = append(x.decisions, n)
		if d := n.Decision; d != nil && x.name == "" {
			x.name = d.ToolName
		}
	} else {
		x.nodes = append(x.nodes, n)
		if n.Tool != nil {
			x.name = cmp.Or(x.name, n.Tool.Name)
		}
	}
	if x.id == "" {
		x.id = n.CallID
	}
	if x.start == 0 || n.Start < x.start {
		x.start = n.Start
	}
	x.end = max(x.end, n.End)
}

// like finds the execution that a record without a call's id speaks of: of the
// same tool with the same input, the nearest that no such record speaks of yet.
func like(tools []*tool, n *node) *tool {
	if !n.record {
		return nil
	}
	name, input := "", json.RawMessage(nil)
	if n.Tool != nil {
		name, input = n.Tool.Name, n.Tool.Input
	} else if n.Decision != nil {
		name = n.Decision.ToolName
	}
	var best *tool
	for _, x := range tools {
		if name != "" && x.name != name || input != nil && x.input() != nil && !sameJSON(input, x.input()) {
			continue
		}
		all := append(slices.Clone(x.nodes), x.decisions...)
		if slices.ContainsFunc(all, func(o *node) bool { return o.record && o.Name == n.Name && o.Kind == n.Kind }) {
			continue
		}
		if best == nil || abs(x.end-n.Start) < abs(best.end-n.Start) {
			best = x
		}
	}
	return best
}

func abs(n int64) int64 { return max(n, -n) }

// input is what the tool was called with. Of several accounts the longest is the
// whole one: some sources shorten it.
func (x *tool) input() json.RawMessage {
	var input json.RawMessage
	for _, n := range x.nodes {
		if n.Tool != nil && len(n.Tool.Input) > len(input) {
			input = n.Tool.Input
		}
	}
	return input
}

// sameJSON compares two values whatever the order of their keys.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	// Objects are written with their keys in order.
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// take finds the execution of a call that the model asked for.
func take(tools []*tool, p *fact.Part, from int64) *tool {
	for _, x := range tools {
		if !x.used && p.CallID != "" && x.id == p.CallID {
			return x
		}
	}
	for _, x := range tools {
		// Some clients do not write the call's id where it is executed.
		if !x.used && (x.id == "" || p.CallID == "") && x.start >= from && (x.name == p.Name || x.name == "") &&
			(x.input() == nil || p.Input == nil || sameJSON(x.input(), p.Input)) {
			return x
		}
	}
	return nil
}

// results collects what later requests tell of the outcome of calls.
func (t *turn) results() map[string]*fact.Part {
	found := make(map[string]*fact.Part)
	for _, n := range t.nodes {
		for i := range n.Input {
			for j := range n.Input[i].Parts {
				if p := &n.Input[i].Parts[j]; p.Kind == fact.PartResult && p.CallID != "" {
					found[p.CallID] = p
				}
			}
		}
		for i := range n.Output {
			if p := &n.Output[i]; p.Kind == fact.PartResult && p.CallID != "" && found[p.CallID] == nil {
				found[p.CallID] = p
			}
		}
	}
	return found
}

// restore puts calls that were lost between those that are known: what they said
// stands in what the later ones were asked.
func (t *turn) restore(calls []*call) (restored []*call, lost bool) {
	var asked []fact.Message
	var before int64 // calls at or after it are no part of what was asked
	for _, c := range calls {
		for _, n := range c.nodes {
			if said := answersIn(n.Input); len(said) > 0 {
				asked, before = said, c.start
			}
		}
	}
	for _, r := range t.roots {
		if said := answersIn(r.Input); len(said) > 0 && len(asked) == 0 && len(calls) > 0 {
			asked, before = said, calls[0].start
		}
	}
	next := 0
	for i := range asked {
		m := &asked[i]
		for next < len(calls) && calls[next].start < before && calls[next].blank() {
			restored = append(restored, calls[next]) // failed, and said nothing
			next++
		}
		if next < len(calls) && calls[next].start < before && calls[next].said(m) {
			restored = append(restored, calls[next])
			next++
			continue
		}
		if slices.ContainsFunc(calls, func(c *call) bool { return c.start < before && c.said(m) }) {
			continue // told in another order: nothing is lost
		}
		at := before - 1
		if next < len(calls) && calls[next].start < before {
			at = calls[next].start - 1
		}
		restored = append(restored, &call{start: at, end: at, output: m.Parts, guessed: true})
		lost = true
	}
	return append(restored, calls[next:]...), lost
}

// answersIn returns what the model said after the user last spoke.
func answersIn(input []fact.Message) []fact.Message {
	var said []fact.Message
	for _, m := range input {
		switch {
		case m.Role == "user":
			said = nil
		case m.Role == "assistant" && len(m.Parts) > 0:
			said = append(said, m)
		}
	}
	return said
}

// blank says that the call came to nothing.
func (c *call) blank() bool { return len(c.output) == 0 && c.failed() != "" }

// said says whether the message is what the call answered. Of a call whose answer
// no source tells it is taken for granted.
func (c *call) said(m *fact.Message) bool {
	if len(c.output) == 0 {
		return true
	}
	ids := func(parts []fact.Part) (ids []string) {
		for i := range parts {
			if parts[i].Kind == fact.PartCall {
				ids = append(ids, cmp.Or(parts[i].CallID, parts[i].Name))
			}
		}
		return ids
	}
	mine, theirs := ids(c.output), ids(m.Parts)
	if len(mine) > 0 || len(theirs) > 0 {
		return slices.ContainsFunc(theirs, func(id string) bool { return slices.Contains(mine, id) })
	}
	x, y := strings.TrimSpace(textOf(c.output)), strings.TrimSpace(textOf(m.Parts))
	return x == y || strings.HasPrefix(y, x) || strings.HasPrefix(x, y)
}
