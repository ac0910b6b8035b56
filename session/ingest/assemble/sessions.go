package assemble

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// This file finds the session of each node. Most clients write their session's key on one span of a trace, often deep
// in it, and some on none. The work of a sub-agent is a session of its own, a child of the one that started it:
//
//	agent "Plan a trip"          home
//	├─ chat → call c1            home
//	└─ tool c1                   home      the parent reference: c1 of home
//	   ├─ chat                   ses_1     derived from home and c1
//	   └─ tool c2                ses_1
//
// Without that the tokens of the sub-agent would count for the agent above, whose context they never were in, and its
// calls of tools would be in the middle of the agent's answer.

// findSessions finds the session of each node, sub-agents' included.
func (a *assembly) findSessions() {
	a.sessions, a.subagents = make(map[string]*stream), make(map[[2]string]*parentRef)
	a.children = make(map[[2]string]string)
	a.joinSubagents()
	// Codex reports the thread of a sub-agent with the call that spawned it, Qwen Code that call with the sub-agent.
	for _, n := range a.nodes {
		switch {
		case n.ChildSession != "" && n.CallID != "":
			a.children[[2]string{n.Session, n.CallID}] = n.ChildSession
		case n.StartedBy != "":
			a.children[[2]string{n.Session, n.StartedBy}] = n.Work()
		}
	}
	// Where a sub-agent hangs is known from what is below a tool call, before what only names it: a later trace of the
	// same sub-agent has its name and nothing above it.
	for _, named := range []bool{false, true} {
		for _, n := range a.nodes {
			if n.parent == nil && (n.Subagent != "") == named {
				a.setSessions(n, "", "", nil)
			}
		}
	}
	a.reportedChildren()
	for _, n := range a.nodes {
		s := a.stream(n.session)
		s.nodes = append(s.nodes, n)
	}
	// A session hangs on one call. Of several that name it, it is the first, whichever of their facts arrived first.
	for _, st := range a.parentRefs {
		if st.from != nil && st.from.Kind == fact.ToolCall {
			st.from.child = st.session
		}
		if s := a.sessions[st.session]; s != nil && (s.parentRef == nil ||
			st.from != nil && (s.parentRef.from == nil || compareNodes(st.from, s.parentRef.from) < 0)) {
			s.parentRef = st
		}
	}
	slices.SortStableFunc(a.order, func(x, y string) int { return cmp.Compare(a.depth(x), a.depth(y)) })
}

// joinSubagents gives the facts that report a call of a sub-agent, and do not name the sub-agent, the one that
// another fact of the same request or tool call names: a program may name it in its spans and not in its records. All
// that was reported within the tool call that started it is its work too.
//
// Claude Code's span of a request has agent_id, and its record api_request has the request's id alone. The record
// would be a further call of the model in the session above, with the sub-agent's tokens.
func (a *assembly) joinSubagents() {
	workers, own := make(map[[2]string]*node), make(map[[2]string]bool)
	names := make(map[string]string) // of sub-agents of which some facts have the id in place of the name
	for _, n := range a.nodes {
		key := n.sharedWork()
		if n.SubagentID == "" {
			// A span of the session itself is no sub-agent's.
			own[key] = own[key] || !n.record && !n.FromServer && n.subagent() == nil
			continue
		}
		workers[key] = cmp.Or(workers[key], n)
		if p := n.subagent().above(fact.ToolCall); p != nil && p.CallID != "" {
			started := [2]string{p.Session, p.CallID}
			a.children[started] = cmp.Or(a.children[started], n.Work())
		}
	}
	if len(workers) == 0 {
		return // most clients name no sub-agent
	}
	for _, n := range a.nodes {
		key := n.sharedWork()
		if w := workers[key]; w != nil && key[1] != "" && n.SubagentID == "" && !own[key] && n.subagent() == nil {
			n.SubagentID, n.ParentSubagentID = w.SubagentID, w.ParentSubagentID
			// The turn that the record names is the one that the user began, in the session above.
			n.TurnID, n.RequiresTurn = "", false
		}
		if n.SubagentID != "" && n.Agent != n.SubagentID {
			names[n.SubagentID] = cmp.Or(names[n.SubagentID], n.Agent)
		}
	}
	for _, n := range a.nodes {
		if name := names[n.SubagentID]; name != "" && n.Agent == n.SubagentID {
			n.Agent = name
		}
	}
}

// sharedWork is what the facts of one model call or tool call have in common: their session and the id of the request,
// of the response or of the call, "" for facts of other things. The response of a record is left out: some servers give
// every answer the same id.
func (n *node) sharedWork() [2]string {
	switch {
	case n.RequestID != "" && (n.Kind == fact.ModelCall || n.Kind == fact.Answer):
		return [2]string{n.Session, "request " + n.RequestID}
	case n.ResponseID != "" && n.Kind == fact.ModelCall && !n.record:
		return [2]string{n.Session, "response " + n.ResponseID}
	case n.CallID != "" && (n.Kind == fact.ToolCall || n.Kind == fact.Permission):
		return [2]string{n.Session, "call " + n.CallID}
	}
	return [2]string{}
}

// subagent returns the outermost node of the sub-agent that the nearest of those above n, or n itself, names, or nil.
// The call of a tool above that node is the one that started the sub-agent.
func (n *node) subagent() (outer *node) {
	for p := n; p != nil; p = p.parent {
		if p.SubagentID != "" && (outer == nil || p.SubagentID == outer.SubagentID) {
			outer = p
		}
	}
	return outer
}

// stream returns the part of the facts that is a session's.
func (a *assembly) stream(id string) *stream {
	s := a.sessions[id]
	if s == nil {
		s = &stream{id: id}
		a.sessions[id] = s
		a.order = append(a.order, id)
	}
	return s
}

// depth counts the sessions above one. Sessions may name each other as parents, so it counts to 100 at most.
func (a *assembly) depth(id string) int {
	depth := 0
	for s := a.sessions[id]; s != nil && s.parentRef != nil && depth < 100; depth++ {
		s = a.sessions[s.parentRef.parent]
	}
	return depth
}

// names returns the session that a node names by the trace's best key. A lesser key names something else: where one
// span has session.id and another gen_ai.conversation.id, the thread is part of the session.
func (n *node) names() string {
	if n.TraceID == "" || n.SessionRank <= n.TraceRank {
		return n.Session
	}
	return ""
}

// firstBelow returns the session that something below n names, sub-agents' of their own left out, or "". Of a trace
// in which the call of the model alone has the key, the agent's span above it has the same session.
func (n *node) firstBelow() string {
	for _, find := range []func(*node) string{(*node).names, (*node).firstBelow} {
		for _, k := range n.kids {
			if parentRefOf(k) != nil {
				continue
			}
			if id := find(k); id != "" {
				return id
			}
		}
	}
	return ""
}

// setSessions gives n and what is below it their sessions. given is the name that counts above n; at is the parent
// reference of the sub-agent that n is in, nil for none. Most sub-agents have the key of the whole conversation on
// their spans: where that, base, is named below at, at's session is meant.
func (a *assembly) setSessions(n *node, given, base string, at *parentRef) {
	from := parentRefOf(n)
	if id := n.names(); id != "" {
		given = id
	} else if from != nil {
		// What a sub-agent does is nearer to it than what is above: of two that a turn starts at the same time, one may
		// have a session of its own, which a call of the model in it names.
		given = cmp.Or(n.firstBelow(), given)
	}
	name := cmp.Or(given, n.firstBelow(), a.owner)
	id := name
	if at != nil && id == base {
		id = at.session
	}
	switch {
	// The program's own id of a sub-agent counts before what the tree shows, and that before a bare name.
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
	n.session, n.given = id, given
	for _, k := range n.kids {
		a.setSessions(k, given, base, at)
	}
}

// parentRef returns the parent reference of a sub-agent that begins at n and hangs on from. All that a tool call
// starts is one sub-agent's, unless it names sessions of its own. An agent to which a turn hands over has a session
// for each fact that begins its work, for nothing shows which of them go on from another.
func (a *assembly) parentRef(n, from *node, id string) *parentRef {
	s := parentRef{session: id, parent: from.session, from: from}
	if id == s.parent {
		subject := n.Source
		if from.Kind == fact.ToolCall {
			subject = ""
		}
		s.session = spans.DeriveIDNano(spans.PrefixSession, from.Start, s.parent, from.TraceID, from.Source, subject)
		s.session = cmp.Or(a.childOf(from), s.session)
	}
	return a.known(s)
}

// named returns the parent reference of the sub-agent to which its program gives an id. at
// is that of what is above n. The sub-agent hangs on the nearest tool call above, and
// without one, it is below the session or sub-agent that started it.
func (a *assembly) named(n *node, name string, at *parentRef) *parentRef {
	s := parentRef{session: fact.SubagentSession(name, n.SubagentID), parent: name}
	if at != nil && at.session == s.session {
		return at
	}
	if n.ParentSubagentID != "" {
		s.parent = fact.SubagentSession(name, n.ParentSubagentID)
	}
	// The spans of its own tools are in its session, and start it no second time.
	if p := n.above(fact.ToolCall); p != nil && p.session != s.session {
		s.parent, s.from = p.session, p
	}
	return a.known(s)
}

// childOf returns the session that a tool call started as a source reports it, or "".
func (a *assembly) childOf(call *node) string {
	return a.children[[2]string{cmp.Or(call.Session, call.given), call.CallID}] // which has no call without an id
}

// reportedChildren attaches the sessions of sub-agents to the tool calls that started them as a source reports it,
// where no span does: Codex names the thread of a sub-agent in the call that spawned it.
func (a *assembly) reportedChildren() {
	attached := make(map[string]bool)
	for _, st := range a.parentRefs {
		attached[st.session] = attached[st.session] || st.from != nil
	}
	for _, record := range []bool{false, true} { // a span before a record
		for _, n := range of(a.nodes, fact.ToolCall) {
			child := a.childOf(n)
			if n.record == record && child != "" && child != n.session && !attached[child] {
				attached[child] = true
				a.known(parentRef{session: child, parent: n.session, from: n})
			}
		}
	}
}

// known returns the parent reference that is like s: all that a sub-agent does at one place has one.
func (a *assembly) known(s parentRef) *parentRef {
	for _, known := range a.parentRefs {
		if *known == s {
			return known
		}
	}
	a.parentRefs = append(a.parentRefs, &s)
	return &s
}

// beside returns the parent reference of the sub-agent of a session that n names, where nothing shows what started
// it: Qwen Code runs some beside the conversation, in traces of their own. All runs of one name are one session.
func (a *assembly) beside(n *node, id string) *parentRef {
	if known := a.subagents[[2]string{id, n.Subagent}]; known != nil {
		return known
	}
	session := spans.DeriveIDNano(spans.PrefixSession, 0, id, "subagent", n.Subagent)
	return a.known(parentRef{session: session, parent: id})
}

// parentMessage is the message of the parent's that a parent reference's sub-agent belongs to: that of the tool call
// or turn it hangs on, or else of the turn that was the last to begin before it.
func (a *assembly) parentMessage(st *parentRef) string {
	if st.from != nil {
		return st.from.attribution.MessageID
	}
	child, parent := a.sessions[st.session], a.sessions[st.parent]
	if parent == nil || len(child.nodes) == 0 {
		return ""
	}
	// A sub-agent that runs beside the conversation was started by the turn before it, and no span shows by which call.
	id := ""
	for _, t := range parent.turns {
		if t.start > child.nodes[0].Start {
			break
		}
		for _, n := range t.nodes {
			if n.attribution.MessageID != "" && n.Kind != fact.Prompt {
				id = n.attribution.MessageID
			}
		}
	}
	return id
}

// parentRefOf returns the tool call or turn that the sub-agent which n is of hangs on, or nil where n is not the
// outermost fact of a sub-agent: an agent, or a model, that is called within a tool call; what such an agent does
// beside it; another agent that is called within a turn, also in the span of the model call that requested the
// transfer, as ADK nests them.
func parentRefOf(n *node) *node {
	if n.record {
		return parentRefOfRecord(n)
	}
	if n.Kind == fact.Turn {
		return parentRefOfTurn(n)
	}
	if n.Kind != fact.ModelCall && n.Kind != fact.ToolCall {
		return nil
	}
	p := n.above(fact.Turn, fact.ToolCall, fact.ModelCall)
	if p == nil || p.Kind != fact.ToolCall {
		return nil
	}
	// A graph of LangGraph may have no span of its agent: its tools are beside its model calls. Where no model is called
	// below, a tool within a tool is the same call, or a part of it.
	if n.Kind == fact.ToolCall && (sameExecution(p.Fact, n.Fact) || !p.agentBelow) {
		return nil
	}
	return p
}

// parentRefOfRecord returns the tool call in whose span a sub-agent wrote a record: of a call of a model, or of
// another tool, where a model is called below that span. Claude Code before 2.1.139 names no sub-agent in its
// telemetry, so the span of the call that started it is all that shows whose records they are.
func parentRefOfRecord(n *node) *node {
	p := n.parent
	if p == nil || p.Kind != fact.ToolCall || !p.agentBelow {
		return nil
	}
	switch n.Kind {
	case fact.ModelCall, fact.Answer:
		return p
	case fact.ToolCall, fact.Permission:
		if n.CallID != "" && p.CallID != "" && n.CallID != p.CallID {
			return p
		}
	}
	return nil
}

func parentRefOfTurn(n *node) *node {
	p := n.above(fact.Turn, fact.ToolCall)
	for p != nil && n.Agent != "" && p.Kind == fact.Turn && p.Agent == "" {
		// A span that names no agent may wrap one of any name: a workflow is above its first agent, and no other agent.
		above := p.above(fact.Turn, fact.ToolCall)
		if above == nil || above.Kind != fact.Turn {
			break
		}
		p = above
	}
	// The same agent once more is no other one: two libraries report its work.
	if p != nil && (p.Kind == fact.ToolCall || n.Agent != "" && p.Agent != "" && n.Agent != p.Agent) {
		return p
	}
	return nil
}

// sameExecution reports whether the inner of two spans of tools, one within the other, may be of the same call: a
// client of the Model Context Protocol, below the span of the agent's library, reports it too.
func sameExecution(outer, inner *fact.Fact) bool {
	if outer.CallID != "" && inner.CallID != "" {
		return outer.CallID == inner.CallID
	}
	return toolName(inner) == "" || toolName(outer) == toolName(inner)
}

// What each fact reports of its session's row is stated here, too: the agent, the model, the title, where the session
// hangs. The values are not settled here. A session has many turns, which are assembled one at a time, so each fact
// has what it reports with a time and a rank, and the store takes the best of all facts.

// reportSessions states what the facts report of their sessions' rows. A fact that only ties others reports it where
// something else is built of the session: a session of which nothing but a step is known would be an empty line of
// the list of sessions.
func (a *assembly) reportSessions() {
	written := make(map[string]bool)
	for i := range a.messages {
		written[a.messages[i].SessionID] = true
	}
	for _, n := range of(a.nodes, fact.Session) {
		written[n.session] = true
	}
	for _, n := range a.nodes {
		if n.refused {
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
	about := cmp.Or(n.SessionAttrs, new(fact.SessionAttrs))
	if n.side == "" && (n.Kind == fact.Turn || n.Kind == fact.ModelCall || n.Kind == fact.Session) {
		// The name of the service is better than none, and no name that any span of an agent reports is worse.
		c.Agent = cmp.Or(n.first(n.agent, store.RankLive), n.first(n.Service, store.RankStub))
		if m := n.Model; m != nil && m.ModelID != "" {
			raw, _ := json.Marshal(m)
			c.Model = n.last(string(raw))
		}
	} else if n.Kind == fact.ToolCall && n.parent == nil {
		c.Agent = n.first(n.agent, store.RankStub) // all that there may be until the spans above arrive
	}
	if s := a.sessions[n.session]; s != nil && s.parentRef != nil {
		c.ParentID = n.first(s.parentRef.parent, store.RankLive)
		c.ParentMessageID = n.first(a.parentMessage(s.parentRef), store.RankLive)
	}
	// A program that names the parent itself knows better than the tree of one trace.
	if about.ParentSession != "" && about.ParentSession != n.session {
		c.ParentID = n.first(about.ParentSession, store.RankLive)
	}
	c.Title = cmp.Or(n.last(about.Title), n.title())
	c.Mode, c.WorkspaceID, c.WorkspaceRoot = n.last(about.Mode), n.last(about.WorkspaceID), n.last(about.WorkspaceRoot)
	c.Permissions = n.last(string(validRules(about.Rules)))
	c.Metadata = n.sessionMetadata(about)
	if reflect.DeepEqual(c, store.SessionChange{ID: n.session}) {
		return nil
	}
	return &c
}

// first is a value whose earliest report takes precedence, last one whose latest does: a session keeps the agent that
// began it, and shows the model that it uses now.
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

// title is the one that a model was asked for, or until then the user's first message, which ranks lower.
// [redact.Headline] redacts before it cuts: half of a secret is not recognized as one.
func (n *node) title() *store.Value {
	if n.side == "title" {
		if v := n.last(redact.Headline(textOf(n.Output))); v != nil {
			return v
		}
	}
	// Of the facts of a turn only the one that the user's message was made of reports a title: it has two messages.
	if n.turn == nil || len(n.attribution.Others) == 0 && n.Kind != fact.Prompt {
		return nil
	}
	v := n.first(redact.Headline(textOf(n.turn.asked)), store.RankStub)
	if v == nil || redact.Omitted(v.Text) {
		return nil
	}
	*v = v.First()
	return v
}

// sessionMetadata is what has no column: the client, the user, by which key the session was found, and of a
// transcript the keys that are the program's own. Each key is settled by itself, so that what a record of the client
// reports does not replace what its file does.
func (n *node) sessionMetadata(about *fact.SessionAttrs) map[string]store.Value {
	m := make(map[string]store.Value)
	put := func(key string, raw []byte, rank store.Rank) {
		m[key] = store.Value{Text: string(raw), At: n.Start, Rank: rank}.First()
	}
	var own map[string]json.RawMessage
	if n.Kind == fact.Session && n.Transcript && json.Unmarshal(n.Extra, &own) == nil {
		for key, raw := range own {
			if key != "agenttrace" {
				put(key, raw, store.RankLive)
			}
		}
	}
	for key, text := range map[string]string{"client": about.Client, "user_id": about.UserID} {
		if text != "" {
			put(key, jsonscan.AppendString(nil, text), store.RankLive)
		}
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
		put("agenttrace", raw, rank)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// textOf joins the text of parts, and leaves out all else. That is what two reports of a message are compared by:
// files, reasoning and what a client puts around the user's words are in few of them.
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

// validRules returns those of the rules that are ones. What a source writes as its rules may be anything, and one
// that is none would make the session fail its check.
func validRules(raw json.RawMessage) json.RawMessage {
	var rules []session.Rule
	if len(raw) == 0 || json.Unmarshal(raw, &rules) != nil {
		return nil
	}
	rules = slices.DeleteFunc(rules, func(r session.Rule) bool {
		return r.Permission == "" || r.Pattern == "" || r.Action != "allow" && r.Action != "deny" && r.Action != "ask"
	})
	if len(rules) == 0 {
		return nil
	}
	valid, _ := json.Marshal(rules)
	return valid
}
