package assemble

import (
	"cmp"
	"math"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// call is one request to a model: the span that describes it, and what records
// and spans below it add.
type call struct {
	nodes      []*node
	span       *node // the outermost span, nil when only records tell of it
	start, end int64
	output     []fact.Part
	// named says that a fact has the request's id.
	named bool
	// guessed says that no fact tells of the call itself: it was lost, and what it
	// said is known from what the next one was asked.
	guessed bool
}

// findCalls gathers the turn's model calls, in order of time.
func (t *turn) findCalls() []*call {
	var calls []*call
	of, requests, responses := make(map[*node]*call), make(map[string]*call), make(map[string]*call)
	join := func(c *call, n *node) {
		c.nodes = append(c.nodes, n)
		c.named = c.named || n.RequestID != ""
		if of[n] = c; n.RequestID != "" && requests[n.RequestID] == nil {
			requests[n.RequestID] = c
		}
		if o, known := responses[n.ResponseID]; known && o != c {
			responses[n.ResponseID] = nil // some servers give every answer the same id
		} else if n.ResponseID != "" {
			responses[n.ResponseID] = c
		}
		if !n.record || c.span == nil {
			c.start, c.end = min(c.start, n.Start), max(c.end, n.End)
		}
	}
	begin := func(n *node) *call {
		c := &call{start: n.Start, end: n.End}
		calls = append(calls, c)
		return c
	}
	var loose []*node
	for _, n := range t.nodes {
		switch {
		case n.Kind != fact.ModelCall && n.Kind != fact.Answer:
		case n.record || n.Kind == fact.Answer:
			loose = append(loose, n)
		case wraps(n):
			// It is no call of its own.
		default:
			var c *call
			if p := n.above(fact.ModelCall, fact.ToolCall); p != nil && p.Kind == fact.ModelCall {
				c = of[p]
			}
			if c == nil && n.RequestID != "" {
				c = requests[n.RequestID]
			}
			if c == nil {
				c = begin(n)
				c.span = n
			}
			join(c, n)
		}
	}
	spans := newOngoing(calls)
	loose = slices.DeleteFunc(loose, func(n *node) bool {
		var c *call
		if n.RequestID != "" {
			c = requests[n.RequestID]
		}
		if c == nil && n.ResponseID != "" {
			c = responses[n.ResponseID]
		}
		for p := n.parent; p != nil && c == nil; p = p.parent {
			c = of[p]
		}
		if c != nil {
			join(c, n)
		}
		return c != nil
	})
	// What no id ties is of the call that was going on, before one is sought nearby.
	for _, most := range []int64{0, near} {
		loose = slices.DeleteFunc(loose, func(n *node) bool {
			c := spans.nearest(n, most)
			if c != nil {
				join(c, n)
			}
			return c != nil
		})
	}
	var alone *call
	for _, n := range loose {
		c := requests[n.RequestID]
		if n.RequestID == "" {
			// Records alone: what has not been said of the last call yet is said of it.
			if c = alone; c != nil && c.heard(n) {
				c = nil
			}
		}
		if c == nil {
			c = begin(n)
		}
		join(c, n)
		alone = c
	}
	for _, c := range calls {
		c.read()
	}
	slices.SortStableFunc(calls, compareCalls)
	return calls
}

// compareCalls orders calls by time. Some clocks tell milliseconds only, in which more
// than one may begin: of those the one that was asked less was the first, for a
// conversation grows.
func compareCalls(x, y *call) int {
	return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.asked(), y.asked()))
}

// asked is how many messages the model was given.
func (c *call) asked() int {
	most := 0
	for _, n := range c.nodes {
		most = max(most, n.History+len(n.Input))
	}
	return most
}

// wraps says whether more than one call of a model was made within n, those of
// tools and sub-agents left out.
func wraps(n *node) bool {
	if n.wraps == nil {
		var first *node
		found := wrapsBelow(n, &first)
		n.wraps = &found
	}
	return *n.wraps
}

func wrapsBelow(n *node, first **node) bool {
	for _, k := range n.kids {
		switch {
		case k.session != n.session || k.Kind == fact.ToolCall || k.record || k.side != "":
		case k.Kind != fact.ModelCall:
			if wrapsBelow(k, first) {
				return true
			}
		case wraps(k):
			return true
		case *first == nil:
			*first = k
		case (*first).RequestID == "" || (*first).RequestID != k.RequestID:
			return true
		}
	}
	return false
}

// heard says whether a record like n already speaks of the call.
func (c *call) heard(n *node) bool {
	return slices.ContainsFunc(c.nodes, func(o *node) bool { return (o.record || o.Kind == fact.Answer) && o.Name == n.Name && o.Kind == n.Kind })
}

// ongoing finds the calls that were going on about a time.
type ongoing struct {
	calls []*call // by their start
	reach []int64 // the latest end of the calls up to each
}

func newOngoing(calls []*call) ongoing {
	o := ongoing{calls: slices.Clone(calls), reach: make([]int64, len(calls))}
	slices.SortStableFunc(o.calls, func(x, y *call) int { return cmp.Compare(x.start, y.start) })
	last := int64(math.MinInt64)
	for i, c := range o.calls {
		last = max(last, c.end)
		o.reach[i] = last
	}
	return o
}

// nearest returns the call that was going on when a record was written, or ended
// or began nearest to it and at most so far from it, of those of which no such
// record speaks yet. One whose request has another id is none.
func (o *ongoing) nearest(n *node, most int64) *call {
	var best *call
	away := func(c *call) int64 { return max(c.start-n.Start, n.Start-c.end, 0) }
	consider := func(c *call) {
		if away(c) <= most && !(c.named && n.RequestID != "") && (best == nil || away(c) < away(best)) && !c.heard(n) {
			best = c
		}
	}
	i, _ := slices.BinarySearchFunc(o.calls, n.Start+1, func(c *call, at int64) int { return cmp.Compare(c.start, at) })
	for j := i - 1; j >= 0 && o.reach[j] >= n.Start-most; j-- {
		consider(o.calls[j])
	}
	for ; i < len(o.calls) && o.calls[i].start <= n.Start+most; i++ {
		consider(o.calls[i])
	}
	return best
}

// read finds what the model said: as the outermost span has it, else another span,
// else a record; text that is told apart comes first.
func (c *call) read() {
	slices.SortStableFunc(c.nodes, func(x, y *node) int {
		return cmp.Or(cmp.Compare(truth(x.record), truth(y.record)), compareNodes(x, y))
	})
	for _, n := range c.nodes {
		if n.Transcript && len(n.Output) > 0 {
			c.output = n.Output // nothing of it was withheld or cut
			return
		}
	}
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

// finished says whether any source saw the call's end: its reason, what it cost, or
// which response it was.
func (c *call) finished() bool {
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		return !n.Aborted && (n.Finish != "" || n.Usage != nil || n.ResponseID != "")
	})
}

// usage is what the call cost, as the one of its facts that knows most says.
func (c *call) usage() *fact.Usage {
	var best *fact.Usage
	for _, n := range c.nodes {
		if u := n.Usage; u != nil && (best == nil || u.Tokens.Total() > best.Tokens.Total() || u.Tokens.Total() == best.Tokens.Total() && buckets(u.Tokens) > buckets(best.Tokens)) {
			best = u
		}
	}
	return best
}

// buckets counts those of a usage that are not zero.
func buckets(u session.Usage) int {
	n := 0
	for _, v := range []int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite} {
		if v != 0 {
			n++
		}
	}
	return n
}
