package assemble

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// This file makes one tree of the facts of a turn: spans below their parents, records below the span in which they
// were written, further facts of a span below its first. All stages that follow go by the tree before they go by ids,
// and by ids before they go by time. Before the tree is left, three passes over it settle what each request asked,
// because that alone shows where turns begin: see history.go.

// node is a fact and its place in the tree.
//
// The fact is the node's own copy. The stages complete it with what other facts report, in place: a request whose
// messages are records gets its Input, a start gets the End of its event.
type node struct {
	*fact.Fact
	at     int // in the facts that were given, whose order has no meaning
	record bool
	parent *node
	kids   []*node
	depth  int
	// begins is when the fact's work began: not before that of what it is below, whatever the clocks show.
	begins int64
	// agentBelow reports that a model is called below it, other than by a further tool: of a call of a tool, that it
	// started a sub-agent.
	agentBelow bool

	// session is where the fact is built.
	session string
	// child is the session of the sub-agent that the tool call started, "" without one.
	child string
	// turn is the turn that it is part of.
	turn *turn
	// side is what the model was called for, where that is not the conversation.
	side string
	// agent is the agent at work: that of the fact, or that of a span above reports of all below it.
	agent       string
	attribution store.Attribution
	// proof is what another report of the call proves of how its tokens were counted.
	proof fact.Apart

	// orphan is set on the call of a model that came here from a trace of its own because it may be one that is built
	// here, refused where it fits no call of its turn: then it has no row in this session.
	orphan, refused bool
	// given is the session that is named for n and for what is below it: often the key is on one span of many.
	given string
	// event is the node of the thing that n is an event of, nil where it is none.
	event *node
}

// parentRef is where a sub-agent's session hangs: on a tool call, or on a turn of another agent.
type parentRef struct {
	session string // the child's
	parent  string
	from    *node // the tool call or turn above, nil where the sub-agent runs beside the conversation
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
		f := facts[i]
		if u := f.Usage; u != nil {
			f.Usage = u.Recount(a.apart[counterOf(u, f.Dialect)]) // as it is known now that it was counted
		}
		a.nodes[i] = &node{Fact: &f, at: i, begins: f.Start, record: isRecord(&f)}
		// In the session of its own trace it is no orphan: there it is the only call that there is.
		a.nodes[i].orphan = f.TraceRank == store.NoRank && IsOrphan(&f) && a.owner != spans.TraceSession(f.TraceID)
	}
	// Which of two that name each other is the parent must not depend on the order given.
	slices.SortFunc(a.nodes, compareNodes)
	for _, n := range a.nodes {
		if !n.record && isSpan(n.Fact) {
			a.bySpan[spanKey(n.Fact)] = n
		}
	}
	// Before parents are looked for: what is below the span of an end is below that of the start then.
	a.joinEvents()
	for _, n := range a.nodes {
		above := n.ParentID
		// A record names the span in which it was written as its own, and so does a further fact of a span, "a#1".
		if n.record || n.Source != n.SpanID {
			above = n.SpanID
		}
		// Spans may name each other: the last in order of time of those that do has no parent.
		if p := a.bySpan[[2]string{n.TraceID, above}]; p != nil && above != "" && !p.below(n) {
			n.parent = p
			p.kids = append(p.kids, n)
		}
	}
	a.adopt()
	for _, n := range a.nodes {
		if n.parent == nil {
			n.descend(0, n.Start)
		}
	}
	// Once more, because depth and begins are known only now.
	slices.SortFunc(a.nodes, compareNodes)
	for _, n := range a.nodes {
		slices.SortFunc(n.kids, compareNodes)
	}
	a.gather()
	a.summarize()
	a.unwrap()
	a.bound()
}

// adopt ties what is below a span that is not kept, because it is no agent's, to the call of a tool within which it
// happened. Else the sub-agent's work would be a turn of the user's.
//
//	tool delegate
//	└─ POST /agents        an ordinary program's, which leaves no fact
//	   └─ agent            its parent is unknown
func (a *assembly) adopt() {
	lost, tools := make(map[[2]string][]*node), make(map[string][]*node) // by trace, in order of time
	for _, n := range a.nodes {
		if n.Kind == fact.ToolCall && !n.record {
			tools[n.TraceID] = append(tools[n.TraceID], n)
		}
		if key := [2]string{n.TraceID, n.ParentID}; n.parent == nil && n.ParentID != "" && isSpan(n.Fact) {
			lost[key] = append(lost[key], n)
		}
	}
	for _, n := range a.nodes {
		key := [2]string{n.TraceID, n.ParentID}
		if len(lost[key]) == 0 {
			continue
		}
		if host := hostOf(lost[key], tools[n.TraceID]); host != nil {
			host.kids = append(host.kids, lost[key]...)
			for _, k := range lost[key] {
				k.parent = host
			}
		}
		delete(lost, key)
	}
}

// hostOf returns the call of a tool below which some spans with one unknown parent are, nil if they are below none.
// They happened within its time, and belong to it by their words, or because the trace begins with its agent's span,
// which all else is below, or because another program made them. Of calls side by side it is the first that has the
// words, and no agent yet.
func hostOf(group, tools []*node) (host *node) {
	var work []*node
	from, to, best, service := int64(math.MaxInt64), int64(0), 0, ""
	for _, n := range group {
		from, to, work, service = min(from, n.Start), max(to, n.over()), n.work(work), n.Service
	}
	for _, h := range tools {
		late := max(h.Start-from, to-h.over()) // by how much clocks differ, if they are below h
		far := h.Service != service
		if late > near || late > tick && !far || slices.ContainsFunc(group, h.below) {
			continue
		}
		root, below := h, h.work(nil)
		for root.parent != nil {
			root = root.parent
		}
		words := h.shares(group, work, below)
		rank := 2*truth(words) + truth(len(below) == 0 || group[0].Kind != fact.Turn)
		if !words && (late > tick || len(work) == 0 || !far && root.ParentID != "") {
			continue
		}
		if host == nil || rank > best || rank == best && h.below(host) {
			host, best = h, rank
		}
	}
	return host
}

// work adds the turns and calls of models that n is, or that are below it.
func (n *node) work(all []*node) []*node {
	if !n.record && (n.Kind == fact.Turn || n.Kind == fact.ModelCall) {
		all = append(all, n)
	}
	for _, k := range n.kids {
		all = k.work(all)
	}
	return all
}

// shares reports whether a tool was given what the work asked, or returned what that answered; or whether a model that
// is called below it requested a tool of the group.
func (n *node) shares(group, work, below []*node) bool {
	says := func(raw json.RawMessage, text string) bool {
		said, _ := json.Marshal(strings.TrimSpace(text))
		return len(said) > 2 && bytes.Contains(canonical(raw), bytes.Trim(said, `"`))
	}
	return slices.ContainsFunc(work, func(w *node) bool {
		return n.Tool != nil && (says(n.Tool.Input, words(w.Fact)) || says(n.Tool.Output, textOf(w.Output)))
	}) || slices.ContainsFunc(below, func(w *node) bool {
		ids := requested(w.Output)
		return slices.ContainsFunc(group, func(g *node) bool { return g.CallID != "" && slices.Contains(ids, g.CallID) })
	})
}

// descend notes the depth of n and of what is below it, and whether a model is called there.
//
// begins is not Start where clocks differ: a tool that runs in another process, whose clock is behind, and the
// sub-agent in it would come before the call that requested them, and the session would show an answer before its
// question.
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
// that begin together are common where clocks count milliseconds (Mastra, all that is JavaScript).
//
// It is the one order that everything is walked in, so it must be total: where two nodes compare as equal, the rows
// would depend on the order of arrival. Seq and the time of arrival order the messages of a request, each of which
// OpenTelemetry's instrumentation of OpenAI writes as a record of one and the same instant.
func compareNodes(x, y *node) int {
	return cmp.Or(
		cmp.Compare(x.begins, y.begins), cmp.Compare(x.depth, y.depth), cmp.Compare(x.Start, y.Start),
		cmp.Compare(y.End, x.End),
		strings.Compare(x.TraceID, y.TraceID), cmp.Compare(x.Seq, y.Seq), strings.Compare(x.SpanID, y.SpanID),
		cmp.Compare(x.arrived(), y.arrived()), strings.Compare(x.Source, y.Source))
}

// arrived orders the records of a span: the messages of one request, where its source counts none of them.
func (n *node) arrived() int64 {
	if !n.record || n.SpanID == "" {
		return 0
	}
	return n.Received
}

// below reports whether n is below o, or is it. Spans of a broken program may name each other as parents, so it is
// asked before a parent is set.
func (n *node) below(o *node) bool {
	for ; n != nil; n = n.parent {
		if n == o {
			return true
		}
	}
	return false
}

// of returns the nodes of one of the kinds.
func of(nodes []*node, kinds ...fact.Kind) (all []*node) {
	for _, n := range nodes {
		if slices.Contains(kinds, n.Kind) {
			all = append(all, n)
		}
	}
	return all
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
//
//	trace 1  agent ── chat (framework: text, session)
//	trace 2  chat (provider's library: usage, nobody's session)
//
// The call of trace 2 is that of trace 1, if time and tokens agree. See [callFinder.joinOrphans].
func IsOrphan(f *fact.Fact) bool {
	return f.Kind == fact.ModelCall && isSpan(f) && f.ParentID == "" && f.Session == "" && len(f.Input) == 0 &&
		len(f.Output) == 0 &&
		f.Model != nil && f.Model.ModelID != ""
}

// isRecord reports whether the fact is that of a log record.
func isRecord(f *fact.Fact) bool { return strings.HasPrefix(f.Source, fact.RecordPrefix) }

// Some spans are events. BeeAI, as OpenInference instruments it, has no span that lasts as long as a
// call of a model: it emits one when the call starts, one when it has an answer, one when it is over. The tree is
// built of what they come to, so all that follows knows a call by one span, as with other clients.
//
//	backend.acme.chat.start-1    input      ┐
//	backend.acme.chat.success-1  output     ├─ one call of the model, from the start to the finish
//	backend.acme.chat.finish-1              ┘

// joinEvents makes one node of the spans that report the start and the end of one thing: a program may emit a span
// for each, beside or below the other. Which belong together is not always in their names: calls of one tool that go
// on side by side have one name, and each end the number in which it came. So a result is of the first start that has
// none, of those with its input before the others.
func (a *assembly) joinEvents() {
	groups := make(map[[3]string][]*node)
	for _, n := range a.nodes {
		if n.Event != "" && !n.record {
			key := [3]string{n.TraceID, n.EventOf, string(n.Kind)}
			groups[key] = append(groups[key], n)
		}
	}
	for _, group := range groups {
		joinGroup(group)
	}
	a.nodes = slices.DeleteFunc(a.nodes, func(n *node) bool {
		if n.event == nil {
			return false
		}
		a.events = append(a.events, n)
		a.bySpan[spanKey(n.Fact)] = n.event
		return true
	})
}

// joinGroup joins the events of what has one name, in order of time.
func joinGroup(group []*node) {
	// Results first, because a finish is of what has a result before it is of what has none.
	var starts, ended, others []*node
	for _, n := range group {
		if n.Event == "start" {
			starts = append(starts, n)
		}
	}
	open := started(slices.Clone(starts))
	for _, n := range group {
		switch n.Event {
		case "start":
		case "success", "error":
			n.event = open.take(n)
			ended = append(ended, cmp.Or(n.event, n)) // without its start, which may be lost, the end is the call
		default:
			others = append(others, n)
		}
	}
	over := started(ended)
	for _, n := range others {
		switch {
		case n.Event == "finish": // comes after a success or an error, and alone where the call came to neither
			n.event = cmp.Or(over.take(n), open.take(n))
		case len(starts) > 0: // something that happened on the way
			i, _ := slices.BinarySearchFunc(starts, n.Start, func(s *node, at int64) int { return cmp.Compare(s.Start, at+1) })
			n.event = starts[max(i-1, 0)] // the last that had begun
		}
		if n.event == nil { // nothing is known of what it is an event of
			n.Kind = fact.Step
		}
	}
	for _, s := range open { // nothing reports how these ended
		s.Unfinished = true
	}
	for _, n := range group {
		if n.event != nil && n.Event != "retry" && n.Event != "update" {
			joinEvent(n.event.Fact, n.Fact)
		}
	}
}

// started are starts of one name for which an end is looked for, in order of time.
type started []*node

// take removes the first start that may have the end n, and returns it, nil without one: of those with its input, as
// far as both report it, that are no later, before the others. Of three calls of one tool that run side by side, the
// one that is done first need not be the one that was started first: each would have the output of another.
func (s *started) take(n *node) *node {
	if len(*s) == 0 {
		return nil
	}
	with := func(input string) int {
		return slices.IndexFunc(*s, func(o *node) bool { return toolInput(o) == input })
	}
	at := 0
	if input := toolInput(n); input != "" {
		same, unknown := with(input), with("")
		if same < 0 || unknown >= 0 && (*s)[unknown].Start < (*s)[same].Start {
			same = unknown
		}
		if same >= 0 && (*s)[same].Start <= n.Start+tick {
			at = same
		}
	}
	found := (*s)[at]
	*s = slices.Delete(*s, at, at+1)
	return found
}

// toolInput returns the input of a call as it is compared, "" where none is reported: an end need not repeat it.
func toolInput(n *node) string {
	if n.Tool == nil || n.Tool.Input == nil {
		return ""
	}
	return string(canonical(n.Tool.Input))
}

// joinEvent adds what an event reports to what is known from others. Of two inputs the first is kept, with the counts
// of what is before it: the end may repeat a conversation that has the answer already.
func joinEvent(f, event *fact.Fact) {
	more := *event
	if len(f.Input) > 0 || f.History > 0 {
		more.Input, more.History, more.Before, more.BeforeTurns = nil, 0, 0, 0
	}
	f.End, f.Problems = max(f.End, event.End), slices.Concat(f.Problems, event.Problems)
	if f.Tool != nil && event.Tool != nil {
		tool := *f.Tool
		fill(&tool, event.Tool)
		f.Tool = &tool
	}
	fill(f, &more)
}

// fill sets the fields that are empty to those of another. It goes by reflection, so that a new field of a fact needs
// no line here.
func fill[T any](s, of *T) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(of).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}
