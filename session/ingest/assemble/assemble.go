// Package assemble makes sessions of facts: it finds which facts speak of one
// turn, one model call, one tool call, whatever spans and records reported them, and
// writes the messages that they come to.
//
// It is a function of the facts alone. A fact that arrives later is not added to
// what is there: the window of the session that it belongs to is rebuilt. A long
// turn has several windows; see [Windows].
package assemble

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Assemble reports what the facts of a window of the session owner come to. The
// order of the facts has no meaning; placements are in their order.
func Assemble(owner string, facts []fact.Fact) store.Assembly {
	out, _ := Windows{Owner: owner, Facts: facts}.Assemble()
	return out
}

// run assembles the facts of one window. It reports false when the window cannot
// end where it was to: more facts must be added then.
func (a *assembly) run(around, facts []fact.Fact) bool {
	a.buildTree(around, facts)
	a.findSessions()
	a.classify()
	for _, id := range a.order {
		a.sessions[id].findTurns(a.carried != nil)
	}
	a.keepOpen()
	for _, id := range a.order {
		s := a.sessions[id]
		parentRefs := make(map[*turn][]*parentRef)
		for _, st := range a.parentRefs {
			if st.from != nil && st.from.turn != nil && st.from.Kind == fact.ToolCall {
				parentRefs[st.from.turn] = append(parentRefs[st.from.turn], st)
			}
		}
		for _, t := range s.turns {
			if begun := a.reportTurn(t, parentRefs[t]); !begun && t.open {
				return false
			}
		}
		a.reportCompactions(s)
		a.reportNotes(s)
	}
	a.reportSessions()
	return true
}

// unbounded is when the last window of a turn ends.
const unbounded = math.MaxInt64

// assembly is one run of Assemble.
type assembly struct {
	owner string
	// apart is what is proven of those who count tokens, by [counterOf].
	apart map[string]fact.Apart
	// from and until are where the window begins and ends, in Unix nanoseconds.
	from, until int64
	// carried is what the windows before leave to this one, nil where a turn opens.
	carried *carry
	// ahead are the facts with which the next window begins: what they repeat of this
	// one counts.
	ahead []fact.Fact
	// nodes are the facts in order of time.
	nodes  []*node
	bySpan map[[2]string]*node

	sessions    map[string]*stream
	order       []string // of sessions, parents before children
	parentRefs  []*parentRef
	parentRefBy map[parentRef]*parentRef
	// subagents are the parent references that facts name, by the session and the name.
	subagents map[[2]string]*parentRef
	// children are the sessions that tool calls started as a source reports it, by the
	// session that the source names and the id of the call.
	children map[[2]string]string

	messages  []store.AssembledMessage
	decisions []store.Decision
}

// node is a fact and its place in the tree.
type node struct {
	*fact.Fact
	at     int
	record bool
	parent *node
	kids   []*node
	depth  int
	// begins is when the fact's work began: not before that of what it is below,
	// whatever the clocks show.
	begins int64
	// under is what firstBelow found, wraps and starts what the functions wraps and
	// startsAgent did.
	under             *string
	isWrapper, starts *bool

	// session is where the fact is built.
	session string
	// turn is the turn that it is part of.
	turn *turn
	// side is what the model was called for, where that is not the conversation.
	side string
	// agent is the agent at work: that of the fact, or that of a span above
	// reports of all below it.
	agent       string
	attribution store.Attribution
	// proof is what another report of the call proves of how its tokens were counted.
	proof fact.Apart

	// orphan is set on the call of a model that came here from a trace of its own because
	// it may be one that is built here, refused where no such session exists.
	orphan, refused bool
	// context is set on what began in a window before and reaches into this one.
	context *spine
	// What is below n inherits: the session that is named above it and the one that
	// counts in its stead, its sub-agent's parent reference, agent and purpose.
	given, base                   string
	parentRef                     *parentRef
	inheritedAgent, inheritedSide string
}

// parentRef is where a sub-agent's session hangs: on a tool call, or on a turn of
// another agent.
type parentRef struct {
	session string // the child's
	parent  string
	from    *node // the tool call or turn above, nil where the sub-agent runs beside the conversation
	// named is set where a source names the sub-agent or its session: facts are of it wherever
	// they stand, also after the call that started it has returned.
	named bool
}

// stream is a session's part of the window.
type stream struct {
	id        string
	parentRef *parentRef
	nodes     []*node
	turns     []*turn
	// now is the turn that was going on last.
	now *turn
}

// buildTree makes nodes of the facts, and of those around them, and ties them to each
// other.
func (a *assembly) buildTree(around, facts []fact.Fact) {
	a.nodes = make([]*node, len(facts), len(facts)+len(around))
	a.bySpan = make(map[[2]string]*node, len(facts))
	for i := range facts {
		f := &facts[i]
		a.nodes[i] = &node{Fact: a.recount(f), at: i, begins: f.Start, record: isRecord(f)}
		a.nodes[i].orphan = f.TraceRank == store.NoRank && IsOrphan(f) && a.owner != spans.TraceSession(f.TraceID)
	}
	for i := range around {
		f := &around[i]
		if sp := a.carried.spineOf(f); sp != nil {
			a.nodes = append(a.nodes, &node{Fact: a.recount(f), begins: f.Start, context: sp})
		}
	}
	// which of two that name each other is the parent must not depend on the order given
	slices.SortFunc(a.nodes, compareNodes)
	for _, n := range a.nodes {
		if key := [2]string{n.TraceID, n.SpanID}; !n.record && n.Source == n.SpanID && n.SpanID != "" {
			a.bySpan[key] = n
		}
	}
	for _, n := range a.nodes {
		above := n.ParentID
		if n.record || n.Source != n.SpanID {
			above = n.SpanID
		}
		if p := a.bySpan[[2]string{n.TraceID, above}]; above != "" && p != n && p != nil && !p.below(n) {
			n.parent = p
			p.kids = append(p.kids, n)
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
	for _, n := range a.nodes {
		n.gather()
	}
}

// gather joins the messages that records report one by one into the conversation of
// a call's input.
func (n *node) gather() {
	if n.Kind != fact.ModelCall || n.record || len(n.Input) > 0 {
		return
	}
	var all []fact.Message
	var pieces []*node
	for _, k := range n.kids {
		if k.record && k.Kind == fact.ModelCall && len(k.Input) > 0 {
			all = append(all, k.Input...)
			pieces = append(pieces, k)
		}
	}
	if len(pieces) < 2 {
		return // what one record reports is complete
	}
	asked := *n.Fact
	asked.Input, asked.History = sinceUser(all)
	asked.CountBefore(all)
	n.Fact = &asked
	for _, k := range pieces {
		piece := *k.Fact
		piece.Input = nil
		k.Fact = &piece
	}
}

// sinceUser returns the messages from the last ones of the user on, and how many
// come before.
func sinceUser(all []fact.Message) (recent []fact.Message, history int) {
	begin := len(all) - 1
	for begin >= 0 && all[begin].Role != "user" {
		begin--
	}
	for begin > 0 && all[begin-1].Role == "user" {
		begin--
	}
	begin = max(begin, 0)
	return all[begin:], begin
}

// descend notes the depth of n and of what is below it.
func (n *node) descend(depth int, from int64) {
	n.depth, n.begins = depth, max(n.Start, from)
	for _, k := range n.kids {
		k.descend(depth+1, n.begins)
	}
}

// compareNodes orders nodes by time, and what contains others before them: spans
// that begin together are common where clocks count milliseconds.
func compareNodes(x, y *node) int {
	return cmp.Or(
		cmp.Compare(x.begins, y.begins), cmp.Compare(x.depth, y.depth), cmp.Compare(x.Start, y.Start),
		cmp.Compare(y.End, x.End),
		strings.Compare(x.TraceID, y.TraceID), cmp.Compare(x.Seq, y.Seq), strings.Compare(x.Source, y.Source))
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

// contains reports whether o happened while n did.
func (n *node) contains(o *node) bool { return n.Start <= o.Start && o.End <= n.End }

// reaches reports whether n, or what is below it, goes on after a time.
func (n *node) reaches(at int64) bool { return max(n.End, n.Until) > at }

// due reports whether what only the end of n reports is to be written between two times:
// windows before this one have written what ended in them.
func (n *node) due(from, until int64) bool {
	return n.End <= until && (n.context == nil || n.End > from)
}

// IsOrphan reports whether the fact is of a span that reports nothing but that a model was
// called, in a trace of its own: the library's of a provider, on the way to which a
// framework lost the context.
func IsOrphan(f *fact.Fact) bool {
	return f.Kind == fact.ModelCall && isSpan(f) && f.ParentID == "" && f.Session == "" && len(f.Input) == 0 &&
		len(f.Output) == 0 &&
		f.Model != nil && f.Model.ModelID != ""
}

// isRecord reports whether the fact is that of a log record.
func isRecord(f *fact.Fact) bool { return strings.HasPrefix(f.Source, fact.RecordPrefix) }

// findSessions finds the session of each node, sub-agents' included.
func (a *assembly) findSessions() {
	a.sessions, a.parentRefBy, a.subagents = make(map[string]*stream), make(map[parentRef]*parentRef),
		make(map[[2]string]*parentRef)
	a.children = make(map[[2]string]string)
	for _, n := range a.nodes {
		switch {
		case n.ChildSession != "" && n.CallID != "":
			a.children[[2]string{n.Session, n.CallID}] = n.ChildSession
		case n.StartedBy != "":
			a.children[[2]string{n.Session, n.StartedBy}] = n.Work()
		}
	}
	a.resumeParentRefs()
	for _, st := range a.parentRefs {
		if st.named && st.from != nil && st.from.CallID != "" {
			a.children[[2]string{cmp.Or(st.from.Session, st.from.given), st.from.CallID}] = st.session
		}
	}
	// own is the session that a node names by the trace's best key. A lesser key
	// names something else: a thread, a chat.
	own := func(n *node) string {
		if n.Session != "" && (n.TraceID == "" || n.SessionRank <= n.TraceRank) {
			return n.Session
		}
		return ""
	}
	// Where a sub-agent hangs is known from what is below a tool call, before what
	// only names it.
	for _, named := range []bool{false, true} {
		for _, n := range a.nodes {
			if n.parent == nil && (n.Subagent != "") == named {
				a.setSessions(n, own, "", "", nil)
			}
		}
	}
	a.reportedChildren()
	for _, n := range a.nodes {
		s := a.stream(n.session)
		s.nodes = append(s.nodes, n)
	}
	a.resumeTurns()
	for _, st := range a.parentRefs {
		if s := a.sessions[st.session]; s != nil && (s.parentRef == nil ||
			st.from != nil && (s.parentRef.from == nil || compareNodes(st.from, s.parentRef.from) < 0)) {
			s.parentRef = st
		}
	}
	slices.SortStableFunc(a.order, func(x, y string) int { return cmp.Compare(a.depth(x), a.depth(y)) })
}

func (a *assembly) stream(id string) *stream {
	s := a.sessions[id]
	if s == nil {
		s = &stream{id: id}
		a.sessions[id] = s
		a.order = append(a.order, id)
	}
	return s
}

func (a *assembly) depth(id string) int {
	depth := 0
	for s := a.sessions[id]; s != nil && s.parentRef != nil && depth < 100; depth++ {
		s = a.sessions[s.parentRef.parent]
	}
	return depth
}

// firstBelow returns the session that something below n names, sub-agents' of
// their own left out, or "".
func (n *node) firstBelow(own func(*node) string) string {
	if n.under != nil {
		return *n.under
	}
	n.under = new(string)
	for _, k := range n.kids {
		if id := own(k); id != "" && parentRefOf(k) == nil {
			*n.under = id
			return id
		}
	}
	for _, k := range n.kids {
		if parentRefOf(k) != nil {
			continue
		}
		if id := k.firstBelow(own); id != "" {
			*n.under = id
			return id
		}
	}
	return ""
}

// setSessions gives n and what is below it their sessions. given is the name that
// counts above n; instead of base, a sub-agent has the session of its parent reference.
func (a *assembly) setSessions(n *node, own func(*node) string, given, base string, at *parentRef) {
	if n.context != nil {
		given, base, at = n.given, n.base, n.parentRef
		for _, k := range n.kids {
			a.setSessions(k, own, given, base, at)
		}
		return
	}
	from := parentRefOf(n)
	if id := own(n); id != "" {
		given = id
	} else if from != nil {
		// What a sub-agent does is nearer to it than what is above.
		given = cmp.Or(n.firstBelow(own), given)
	}
	name := cmp.Or(given, n.firstBelow(own), a.owner)
	id := name
	if at != nil && id == base {
		id = at.session
	}
	switch {
	case n.SubagentID != "":
		at = a.named(n, name, at)
		base, id = name, at.session
	case from != nil:
		at = a.parentRef(n, from, id)
		base, id = name, at.session
	case n.Subagent != "" && at == nil:
		at = a.beside(n, id)
		base, id = name, at.session
	}
	if n.Subagent != "" && at != nil && a.subagents[[2]string{name, n.Subagent}] == nil {
		a.subagents[[2]string{name, n.Subagent}] = at
	}
	n.session, n.given, n.base, n.parentRef = id, given, base, at
	for _, k := range n.kids {
		a.setSessions(k, own, given, base, at)
	}
}

// parentRef returns the parent reference of a sub-agent that begins at n and hangs on from. All
// that a tool call starts is one sub-agent's, unless it names sessions of its own.
func (a *assembly) parentRef(n, from *node, id string) *parentRef {
	s := parentRef{session: id, parent: from.session, from: from, named: id != from.session}
	if id == s.parent {
		subject := n.Source
		if from.Kind == fact.ToolCall {
			subject = ""
		}
		s.session = spans.DeriveIDNano(spans.PrefixSession, from.Start, s.parent, from.TraceID, from.Source, subject)
		if child := a.children[[2]string{cmp.Or(from.Session, from.given), from.CallID}]; child != "" && from.CallID != "" {
			s.session, s.named = child, true
		}
	}
	return a.known(s)
}

// named returns the parent reference of the sub-agent to which its program gives an id. at
// is that of what is above n. The sub-agent hangs on the nearest tool call above, and
// without one, it is below the session or sub-agent that started it.
func (a *assembly) named(n *node, name string, at *parentRef) *parentRef {
	s := parentRef{session: fact.SubagentSession(name, n.SubagentID), parent: name, named: true}
	if at != nil && at.session == s.session {
		return at
	}
	if n.ParentSubagentID != "" {
		s.parent = fact.SubagentSession(name, n.ParentSubagentID)
	}
	if p := n.above(fact.ToolCall); p != nil && p.session != s.session {
		s.parent, s.from = p.session, p
	}
	return a.known(s)
}

// reportedChildren attaches the sessions of sub-agents to the tool calls that started them
// as a source reports it, where no span does.
func (a *assembly) reportedChildren() {
	attached := make(map[string]bool)
	for _, st := range a.parentRefs {
		attached[st.session] = attached[st.session] || st.from != nil
	}
	for _, record := range []bool{false, true} { // a span may reach into the next window
		for _, n := range a.nodes {
			if n.Kind != fact.ToolCall || n.CallID == "" || n.context != nil || n.record != record {
				continue
			}
			child := a.children[[2]string{cmp.Or(n.Session, n.given), n.CallID}]
			if child != "" && child != n.session && !attached[child] {
				attached[child] = true
				a.known(parentRef{session: child, parent: n.session, from: n, named: true})
			}
		}
	}
}

// known returns the parent reference that is like s.
func (a *assembly) known(s parentRef) *parentRef {
	if known := a.parentRefBy[s]; known != nil {
		return known
	}
	a.parentRefs = append(a.parentRefs, &s)
	a.parentRefBy[s] = &s
	return &s
}

// beside returns the parent reference of the sub-agent of a session that n names, where nothing
// shows what started it.
func (a *assembly) beside(n *node, id string) *parentRef {
	if known := a.subagents[[2]string{id, n.Subagent}]; known != nil {
		return known
	}
	return a.known(parentRef{session: spans.DeriveIDNano(spans.PrefixSession, 0, id, "subagent", n.Subagent), parent: id})
}

// parentMessage is the message of the parent's that a parent reference's sub-agent belongs to: that of
// the tool call or turn it hangs on, or else of the turn that was the last to begin
// before it.
func (a *assembly) parentMessage(st *parentRef) string {
	if st.from != nil {
		return st.from.attribution.MessageID
	}
	child, parent := a.sessions[st.session], a.sessions[st.parent]
	if parent == nil || len(child.nodes) == 0 {
		return ""
	}
	id := ""
	for _, t := range parent.turns {
		if t.start > child.nodes[0].Start {
			break
		}
		if t.resumed != nil {
			id = t.resumed.Message
		}
		for _, n := range t.nodes {
			if n.attribution.MessageID != "" && n.Kind != fact.Prompt {
				id = n.attribution.MessageID
			}
		}
	}
	return id
}

// parentRefOf returns the tool call or turn that the sub-agent which n is of hangs on, or nil
// where n is not the outermost fact of a sub-agent: an agent, or a model, that is called
// within a tool call; what such an agent does beside it; another agent that is called
// within a turn, also in the span of the model call that requested the transfer.
func parentRefOf(n *node) *node {
	if n.record {
		return parentRefOfRecord(n)
	}
	switch n.Kind {
	case fact.Turn:
		return seatOfTurn(n)
	case fact.ModelCall:
		if p := n.above(fact.Turn, fact.ToolCall, fact.ModelCall); p != nil && p.Kind == fact.ToolCall {
			return p
		}
	case fact.ToolCall:
		// A graph that has no span of its agent: its tools are beside its model calls.
		p := n.above(fact.Turn, fact.ToolCall, fact.ModelCall)
		if p != nil && p.Kind == fact.ToolCall && !sameExecution(p.Fact, n.Fact) && p.startsAgent() {
			return p
		}
	}
	return nil
}

// parentRefOfRecord returns the tool call in whose span a sub-agent wrote a record: of a call
// of a model, or of another tool, where a model is called below that span.
func parentRefOfRecord(n *node) *node {
	p := n.parent
	if p == nil || p.Kind != fact.ToolCall {
		return nil
	}
	switch n.Kind {
	case fact.ModelCall, fact.Answer:
	case fact.ToolCall, fact.Permission:
		if n.CallID == "" || p.CallID == "" || n.CallID == p.CallID {
			return nil
		}
	default:
		return nil
	}
	if !p.startsAgent() {
		return nil
	}
	return p
}

func seatOfTurn(n *node) *node {
	p := n.above(fact.Turn, fact.ToolCall)
	for p != nil && n.Agent != "" && p.Kind == fact.Turn && p.Agent == "" {
		// A span that names no agent may wrap one of any name.
		above := p.above(fact.Turn, fact.ToolCall)
		if above == nil || above.Kind != fact.Turn {
			break
		}
		p = above
	}
	if p != nil && (p.Kind == fact.ToolCall || n.Agent != "" && p.Agent != "" && n.Agent != p.Agent) {
		return p
	}
	return nil
}

// sameExecution reports whether the inner of two spans of tools, one within the other, may
// be of the same call: a protocol's client reports it too.
func sameExecution(outer, inner *fact.Fact) bool {
	if outer.CallID != "" && inner.CallID != "" {
		return outer.CallID == inner.CallID
	}
	return toolName(inner) == "" || toolName(outer) == toolName(inner)
}

// startsAgent reports whether a model is called below n, other than by a further tool.
func (n *node) startsAgent() bool {
	if n.starts == nil {
		found := n.context.attached() || slices.ContainsFunc(n.kids, func(k *node) bool {
			switch {
			case k.record || k.Kind == fact.ToolCall:
				return false
			case k.Kind == fact.Turn || k.Kind == fact.ModelCall:
				return true
			}
			return k.startsAgent()
		})
		n.starts = &found
	}
	return *n.starts
}

// kinds of spans as the store names them.
var kindNames = map[fact.Kind]string{
	fact.Turn: semconv.SpanSessionTurn, fact.ModelCall: spans.KindModelCall, fact.ToolCall: semconv.SpanToolCall,
	fact.Permission: semconv.SpanPermissionEvaluate, fact.Compaction: semconv.SpanCompactionRun,
	fact.Session: semconv.SpanSessionRun, fact.Prompt: "user.prompt", fact.Answer: "assistant.answer", fact.Step: "step",
	fact.Note: "note",
}

// place states what became of a node. The first message that a node is placed in is
// the one that it describes.
func (n *node) place(session, message, part string) {
	p := &n.attribution
	p.SessionID, p.Kind = session, kindNames[n.Kind]
	if n.side != "" {
		p.Kind = "side." + n.side
	}
	if n.record {
		p.Kind = "log." + p.Kind
	}
	switch {
	case message == "" || message == p.MessageID:
	case p.MessageID == "":
		p.MessageID = message
	case !slices.Contains(p.Others, message):
		p.Others = append(p.Others, message)
	}
	if p.PartID == "" {
		p.PartID = part
	}
}

// reportSessions states what the facts report of their sessions' rows. A fact that only
// ties others says it where something else is built of the session.
func (a *assembly) reportSessions() {
	written := make(map[string]bool)
	for i := range a.messages {
		written[a.messages[i].SessionID] = true
	}
	for _, n := range a.nodes {
		if n.Kind == fact.Session {
			written[n.session] = true
		}
	}
	for _, n := range a.nodes {
		if n.context != nil || n.refused {
			continue
		}
		if n.attribution.SessionID == "" && written[n.session] &&
			(n.side != "" || n.Kind != fact.Step && n.Kind != fact.Permission && n.Kind != fact.Answer) {
			n.place(n.session, "", "")
		}
		if n.attribution.SessionID != "" {
			n.attribution.SessionAttrs = a.sessionChange(n)
		}
	}
}

// sessionChange is what a node reports of its session's row, nil for nothing.
func (a *assembly) sessionChange(n *node) *store.SessionChange {
	c := store.SessionChange{ID: n.session}
	a.setSpeaker(&c, n)
	a.setParent(&c, n)
	a.setTitle(&c, n)
	about := n.SessionAttrs
	if about == nil {
		about = new(fact.SessionAttrs)
	}
	if about.Title != "" {
		c.Title = n.last(about.Title)
	}
	c.Mode, c.WorkspaceID, c.WorkspaceRoot = n.last(about.Mode), n.last(about.WorkspaceID), n.last(about.WorkspaceRoot)
	c.Permissions = n.last(string(validRules(about.Rules)))
	if about.ParentSession != "" && about.ParentSession != n.session {
		c.ParentID = n.first(about.ParentSession, store.RankLive)
	}
	c.Metadata = a.aboutMetadata(n, about)
	values := []*store.Value{c.Agent, c.Model, c.Title, c.ParentID, c.Mode, c.WorkspaceID, c.WorkspaceRoot, c.Permissions}
	if c.Metadata == nil && !slices.ContainsFunc(values, func(v *store.Value) bool { return v != nil }) {
		return nil
	}
	return &c
}

// first is a value whose earliest report takes precedence, last one whose latest does.
func (n *node) first(text string, rank store.Rank) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: n.Start, Rank: rank}
}

func (n *node) last(text string) *store.Value {
	if text == "" {
		return nil
	}
	return &store.Value{Text: text, At: n.End, Rank: store.RankLive}
}

// setSpeaker sets the agent and its model.
func (a *assembly) setSpeaker(c *store.SessionChange, n *node) {
	if n.side != "" || n.Kind != fact.Turn && n.Kind != fact.ModelCall && n.Kind != fact.Session {
		return
	}
	if c.Agent = n.first(n.agent, store.RankLive); c.Agent == nil {
		c.Agent = n.first(n.Service, store.RankStub) // better than no name
	}
	if m := n.Model; m != nil && m.ModelID != "" {
		raw, _ := json.Marshal(m)
		c.Model = n.last(string(raw))
	}
}

// setParent sets where the session of a sub-agent hangs.
func (a *assembly) setParent(c *store.SessionChange, n *node) {
	if s := a.sessions[n.session]; s != nil && s.parentRef != nil {
		c.ParentID = n.first(s.parentRef.parent, store.RankLive)
		c.ParentMessageID = n.first(a.parentMessage(s.parentRef), store.RankLive)
	}
}

// setTitle sets the title: the one that a model was asked for, or until then the
// user's first message.
func (a *assembly) setTitle(c *store.SessionChange, n *node) {
	if n.side == "title" {
		c.Title = n.last(headline(textOf(n.Output)))
	}
	if n.turn == nil || c.Title != nil || len(n.attribution.Others) == 0 && n.Kind != fact.Prompt {
		return
	}
	if v := n.first(n.turn.title(), store.RankStub); v != nil {
		turned := v.First()
		c.Title = &turned
	}
}

// aboutMetadata is what has no column: the client, the user, and by which key the
// session was found.
func (a *assembly) aboutMetadata(n *node, about *fact.SessionAttrs) map[string]store.Value {
	m := make(map[string]store.Value)
	put := func(key, text string) {
		if text != "" {
			m[key] = store.Value{Text: string(spans.AppendJSONString(nil, text)), At: n.Start, Rank: store.RankLive}.First()
		}
	}
	put("client", about.Client)
	put("user_id", about.UserID)
	if n.Kind == fact.Session && n.Transcript {
		a.ownKeys(n, m)
	}
	if n.attribution.MessageID != "" || n.Kind == fact.Session {
		found := struct {
			Dialect    string `json:"dialect"`
			SessionKey string `json:"session_key,omitempty"`
		}{Dialect: n.Dialect}
		rank := store.RankStub // a source with that key reports more
		if n.Session == n.session && n.SessionKey != "" {
			found.SessionKey, rank = n.SessionKey, store.RankLive
		}
		raw, _ := json.Marshal(found)
		m["agenttrace"] = store.Value{Text: string(raw), At: n.Start, Rank: rank}.First()
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// ownKeys adds the keys of the session's metadata that are the program's own.
func (a *assembly) ownKeys(n *node, m map[string]store.Value) {
	var own map[string]json.RawMessage
	if len(n.Extra) == 0 || json.Unmarshal(n.Extra, &own) != nil {
		return
	}
	for key, raw := range own {
		if _, taken := m[key]; !taken && key != "agenttrace" {
			m[key] = store.Value{Text: string(raw), At: n.Start, Rank: store.RankLive}.First()
		}
	}
}

// headline is the first line of a text, cut to what a list has room for.
func headline(text string) string {
	text = strings.TrimSpace(text)
	text, _, _ = strings.Cut(text, "\n")
	text = strings.TrimSpace(text)
	const maximum = 80
	if runes := []rune(text); len(runes) > maximum {
		text = strings.TrimSpace(string(runes[:maximum-1])) + "…"
	}
	return text
}

// textOf joins the text of parts.
func textOf(parts []fact.Part) string {
	var b strings.Builder
	for i := range parts {
		if parts[i].Kind == fact.PartText {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(parts[i].Text)
		}
	}
	return b.String()
}

// validRules returns those of the rules that are ones.
func validRules(raw json.RawMessage) json.RawMessage {
	type rule struct {
		Permission string `json:"permission"`
		Pattern    string `json:"pattern"`
		Action     string `json:"action"`
	}
	var rules []rule
	if len(raw) == 0 || json.Unmarshal(raw, &rules) != nil {
		return nil
	}
	rules = slices.DeleteFunc(rules, func(r rule) bool {
		return r.Permission == "" || r.Pattern == "" || r.Action != "allow" && r.Action != "deny" && r.Action != "ask"
	})
	if len(rules) == 0 {
		return nil
	}
	valid, _ := json.Marshal(rules)
	return valid
}
