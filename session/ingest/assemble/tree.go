package assemble

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// node is a fact and its place in the tree.
type node struct {
	*fact.Fact
	at     int
	record bool
	parent *node
	kids   []*node
	depth  int
	// begins is when the fact's work began: not before that of what it is below, whatever the clocks show.
	begins int64
	// agentBelow reports that a model is called below it, other than by a further tool.
	agentBelow bool

	// session is where the fact is built.
	session string
	// turn is the turn that it is part of.
	turn *turn
	// side is what the model was called for, where that is not the conversation.
	side string
	// agent is the agent at work: that of the fact, or that of a span above reports of all below it.
	agent       string
	attribution store.Attribution
	// proof is what another report of the call proves of how its tokens were counted.
	proof fact.Apart

	// orphan is set on the call of a model that came here from a trace of its own because
	// it may be one that is built here, refused where no such session exists.
	orphan, refused bool
	// given is the session that is named for n and for what is below it.
	given string
	// event is the node of the thing that n is an event of, nil where it is none.
	event *node
}

// parentRef is where a sub-agent's session hangs: on a tool call, or on a turn of another agent.
type parentRef struct {
	session string // the child's
	parent  string
	from    *node // the tool call or turn above, nil where the sub-agent runs beside the conversation
	// named is set where a source names the sub-agent or its session: facts are of it wherever
	// they are, also after the call that started it has returned.
	named bool
}

// stream is a session's part of the facts.
type stream struct {
	id        string
	parentRef *parentRef
	nodes     []*node
	turns     []*turn
}

// buildTree makes nodes of the facts and ties them to each other.
func (a *assembly) buildTree(facts []fact.Fact) {
	a.nodes = make([]*node, len(facts))
	a.bySpan = make(map[[2]string]*node, len(facts))
	for i := range facts {
		f := &facts[i]
		a.nodes[i] = &node{Fact: a.recount(f), at: i, begins: f.Start, record: isRecord(f)}
		a.nodes[i].orphan = f.TraceRank == store.NoRank && IsOrphan(f) && a.owner != spans.TraceSession(f.TraceID)
	}
	// which of two that name each other is the parent must not depend on the order given
	slices.SortFunc(a.nodes, compareNodes)
	for _, n := range a.nodes {
		if !n.record && isSpan(n.Fact) {
			a.bySpan[spanKey(n.Fact)] = n
		}
	}
	a.joinEvents()
	for _, n := range a.nodes {
		above := n.ParentID
		if n.record || n.Source != n.SpanID {
			above = n.SpanID
		}
		// Spans may name each other: the last in order of time of those that do has no parent.
		if p := a.bySpan[[2]string{n.TraceID, above}]; above != "" && !p.below(n) {
			n.parent = p
		}
	}
	for _, n := range a.nodes {
		if n.parent != nil {
			n.parent.kids = append(n.parent.kids, n)
		}
	}
	for _, n := range a.nodes {
		if n.parent == nil {
			n.descend(0, n.Start)
		}
	}
	slices.SortFunc(a.nodes, compareNodes)
	for _, n := range a.nodes {
		slices.SortFunc(n.kids, compareNodes)
	}
	a.gather()
	a.summarize()
	a.bound()
}

// descend notes the depth of n and of what is below it, and whether a model is called there.
func (n *node) descend(depth int, from int64) {
	n.depth, n.begins = depth, max(n.Start, from)
	for _, k := range n.kids {
		k.descend(depth+1, n.begins)
		if !k.record && k.Kind != fact.ToolCall {
			n.agentBelow = n.agentBelow || k.agentBelow || k.Kind == fact.Turn || k.Kind == fact.ModelCall
		}
	}
}

// compareNodes orders nodes by time, and what contains others before them: spans
// that begin together are common where clocks count milliseconds.
func compareNodes(x, y *node) int {
	return cmp.Or(
		cmp.Compare(x.begins, y.begins), cmp.Compare(x.depth, y.depth), cmp.Compare(x.Start, y.Start),
		cmp.Compare(y.End, x.End),
		strings.Compare(x.TraceID, y.TraceID), cmp.Compare(x.Seq, y.Seq), strings.Compare(x.SpanID, y.SpanID),
		cmp.Compare(x.arrived(), y.arrived()), strings.Compare(x.Source, y.Source))
}

// arrived orders the records of a span.
func (n *node) arrived() int64 {
	if !n.record || n.SpanID == "" {
		return 0
	}
	return n.Received
}

// below reports whether n is below o, or is it.
func (n *node) below(o *node) bool {
	for ; n != nil; n = n.parent {
		if n == o {
			return true
		}
	}
	return false
}

// above returns the nearest node above n of one of the kinds.
func (n *node) above(kinds ...fact.Kind) *node {
	for p := n.parent; p != nil; p = p.parent {
		if slices.Contains(kinds, p.Kind) {
			return p
		}
	}
	return nil
}

// IsOrphan reports whether the fact is of a span that reports nothing but that a model was called, in a trace of its
// own: the library's of a provider, on the way to which a framework lost the context.
func IsOrphan(f *fact.Fact) bool {
	return f.Kind == fact.ModelCall && isSpan(f) && f.ParentID == "" && f.Session == "" && len(f.Input) == 0 &&
		len(f.Output) == 0 &&
		f.Model != nil && f.Model.ModelID != ""
}

// isRecord reports whether the fact is that of a log record.
func isRecord(f *fact.Fact) bool { return strings.HasPrefix(f.Source, fact.RecordPrefix) }
