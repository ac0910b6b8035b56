package assemble

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// This file gathers a session's facts into turns. Where a client has a span for a turn, such as invoke_agent, the
// tree shows all of it. The others have calls of models in traces of their own, or records without spans, and the
// same span of a turn comes in many forms: one that wraps another, one for each half of a turn that waited for an
// approval. So a fact goes, in this order, to the turn of what is above it, of what shares an id with it, of the span
// within whose time it is, and to the one before it. What fits none begins a turn, if its input is new.
//
// What the model was called for beside the conversation, such as to name the session, is left out before: see
// classify.

// turn is one message of the user and what the agent did on it.
type turn struct {
	session string
	// roots are the facts of kind Turn, the outermost first: none for agents that have no such span, several where one
	// wraps another or goes on after one, as after an approval.
	roots []*node
	// nodes are all facts of the turn, the roots included.
	nodes []*node
	start int64
	id    string // what the source calls it
	// first is the fact that ended first. The ids of the turn's messages are made of it: what comes later is mostly what
	// ended later, such as the root span of most clients, and a session with another name does not matter. So what
	// refers to a message from outside, such as a rewind, goes on to do so.
	first *node
	asked []fact.Part // what the user wrote
	last  *node       // the last fact of a model call, with which the next one is compared
	// userID is the id of the user's message, "" until it is reported, and userAt its time.
	userID string
	userAt int64
}

func (t *turn) add(n *node) {
	if len(t.nodes) == 0 || n.Start < t.start {
		t.start = n.Start
	}
	n.turn = t
	t.nodes = append(t.nodes, n)
	if n.Kind == fact.ModelCall && (t.last == nil || compareNodes(n, t.last) > 0) {
		t.last = n
	}
	t.id = cmp.Or(t.id, n.TurnID)
}

// only reports whether every fact of the turn is of the kind.
func (t *turn) only(kind fact.Kind) bool {
	return !slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Kind != kind })
}

// classify finds what the model was called for that is not the conversation: to name the session, to summarize it, to
// choose a model. Without it the session has turns that nobody wrote, such as "Generate a title for this
// conversation", and their answers among the agent's. What a client states is believed; else the prompt is
// recognized.
func (a *assembly) classify() {
	for _, id := range a.order {
		a.sessions[id].markAside()
	}
	for _, n := range a.nodes {
		if n.parent == nil {
			n.inherit("", "")
			n.classify("")
		}
	}
	requests := make(map[string]string)
	for _, n := range a.nodes {
		if n.RequestID != "" && n.side != "" {
			requests[n.session+"/"+n.RequestID] = n.side
		}
	}
	for _, n := range a.nodes {
		// What has the same request id reports the same call: a record of it does not repeat what the call was for.
		if n.side == "" && n.RequestID != "" && (n.Kind == fact.ModelCall || n.Kind == fact.Answer) {
			n.side = requests[n.session+"/"+n.RequestID]
		}
	}
}

// markAside believes the system prompts by which requests have the session named if others ask something else: an
// agent that only makes titles of conversations has a session, too.
func (s *stream) markAside() {
	calls := of(s.nodes, fact.ModelCall)
	for _, n := range calls {
		if n.record && n.parent != nil { // the prompt may be in a record of the call
			n.parent.Aside = cmp.Or(n.parent.Aside, n.Aside)
		}
	}
	others := slices.ContainsFunc(calls, func(n *node) bool { return len(n.Input) > 0 && n.Aside+n.Purpose == "" })
	for _, n := range calls {
		if others {
			n.Purpose = cmp.Or(n.Purpose, n.Aside)
		}
	}
}

// inherit gives what is below a step the agent and the purpose that a record written in the step reports it: the
// spans of a library below it know neither.
func (n *node) inherit(agent, side string) {
	if n.Kind == fact.Step && !n.record {
		for _, k := range n.kids {
			if k.record && k.Kind == fact.Step {
				agent, side = cmp.Or(k.Agent, agent), cmp.Or(k.Purpose, side)
			}
		}
	}
	n.agent, n.side = cmp.Or(n.Agent, agent), side
	if n.Kind == fact.ToolCall {
		agent, side = "", "" // an agent that a tool calls has its own name, and its work its own purpose
	}
	for _, k := range n.kids {
		k.inherit(agent, side)
	}
}

// classify gives n and what is below it the purpose that its own fact states, or else what is above it has. It
// returns a side call below, and whether there is other work: a turn that was made for side calls only is one. If it
// was asked something else it is the user's, of whose calls only that one has arrived so far.
func (n *node) classify(above string) (side *node, others bool) {
	n.setPurpose(above)
	for _, k := range n.kids {
		call, more := k.classify(n.side)
		if k.session != n.session {
			continue // a sub-agent's work is its own
		}
		others = others || more
		if call != nil && (side == nil || len(side.Output) == 0) {
			side = call
		}
	}
	switch {
	case n.Kind == fact.ModelCall && !n.record && n.side != "":
		return n, others
	case n.Kind == fact.ModelCall && !n.record, n.Kind == fact.ToolCall:
		return nil, true
	case side == nil || others || n.side != "":
	case n.Kind == fact.Turn && sameWork(n.Fact, side.Fact):
		n.devote(side.side)
	}
	return side, others
}

// setPurpose sets what the model was called for: by the fact or its prompt, as what is
// above has it, or a compaction within which the model was called.
func (n *node) setPurpose(above string) {
	if n.Kind == fact.Turn || n.Kind == fact.ModelCall {
		n.side = cmp.Or(n.Purpose, purpose(n.Fact), n.side)
	}
	if n.side = cmp.Or(n.side, above); n.side != "" || n.Kind != fact.ModelCall {
		return
	}
	if p := n.above(fact.Turn, fact.ModelCall, fact.Compaction); p != nil && p.Kind == fact.Compaction {
		n.side = "compaction"
	}
}

// sameWork reports whether a turn has no other input and answer than the call: the span of an agent that titles
// sessions has the text of its one call.
func sameWork(t, call *fact.Fact) bool {
	asked, answered := textOf(askedBy(t)), textOf(t.Output)
	return (asked == "" || asked == textOf(askedBy(call))) && (answered == "" || answered == textOf(call.Output))
}

// devote gives n and what is below it a purpose.
func (n *node) devote(side string) {
	n.side = cmp.Or(n.side, side)
	for _, k := range n.kids {
		if k.session == n.session {
			k.devote(side)
		}
	}
}

// titlePrompts begin the requests by which agents have sessions named.
var titlePrompts = []string{"generate a title for", "generate a short title", "generate a concise title",
	"please write a 5-10 word title"}

// purpose recognizes the prompts by which agents have sessions named.
func purpose(f *fact.Fact) string {
	for m, p := range fact.EachPart(f.Input) {
		text := strings.ToLower(p.Text[:min(len(p.Text), 200)])
		if m.Role == "user" && p.Kind == fact.PartText && f.History == 0 &&
			slices.ContainsFunc(titlePrompts, func(prompt string) bool { return strings.HasPrefix(text, prompt) }) {
			return "title"
		}
	}
	return ""
}

// findTurns gathers the session's facts into turns, in order of time.
func (s *stream) findTurns() {
	// The surest tie comes first. Time is the last: the records of two agents that work side by side, or of a call that
	// is reported when its turn is over, would be of the wrong turn.
	s.findRoots()
	s.attachByID()
	s.attachByTime()
	// A turn whose prompt went to a later one has nothing left.
	s.turns = slices.DeleteFunc(s.turns, func(t *turn) bool { return len(t.nodes) == 0 })
	for _, t := range s.turns {
		slices.SortFunc(t.nodes, compareNodes)
		slices.SortFunc(t.roots, compareNodes)
		t.first = slices.MinFunc(t.nodes, func(x, y *node) int {
			return cmp.Or(cmp.Compare(x.over(), y.over()), strings.Compare(x.TraceID, y.TraceID),
				strings.Compare(x.Source, y.Source))
		})
	}
	slices.SortFunc(s.turns, func(x, y *turn) int {
		return cmp.Or(cmp.Compare(x.start, y.start), compareNodes(x.nodes[0], y.nodes[0]))
	})
}

// messageID is the id of a message of the turn, so many nanoseconds before the last one: ids of messages of one time
// are in their order. Messages are sorted by their milliseconds and then by id, so a turn that a test runs within one
// millisecond would else have its answer before its question.
func (t *turn) messageID(before int64, what string) string {
	at := max(max(t.first.over(), 1e9)-before, 0) // they have an order also where the time is not known
	return spans.DeriveIDNano(spans.PrefixMessage, at, t.first.TraceID, t.first.Source, what)
}

// over is when the fact was over, or had begun if that is not known.
func (n *node) over() int64 { return max(n.Start, n.End) }

// findRoots makes a turn of every outermost fact of kind Turn. Three things make one turn of two such facts:
//
//   - one is below the other: a workflow, and the agent that it runs;
//   - both have the id of one turn, or need a span above that never came: a run that was handed from agent to agent;
//   - the later one's input ends with the result of a tool, or what is below it begins with a call that the earlier one
//     ended with: the client executed it or the user approved it, and a second run goes on.
func (s *stream) findRoots() {
	byID := make(map[string]*turn)    // by the source's id of the turn
	orphans := make(map[string]*turn) // by trace, what a span was above that did not come
	var last *turn
	for _, n := range s.nodes {
		if n.Kind != fact.Turn || n.side != "" {
			continue
		}
		if p := n.above(fact.Turn); p != nil && p.session == n.session && p.turn != nil {
			p.turn.add(n)
			p.turn.roots = append(p.turn.roots, n)
			continue
		}
		t := byID[n.TurnID]
		if t == nil && n.RequiresTurn {
			t = orphans[n.TraceID]
		}
		if t == nil && last != nil && (n.TurnID == "" || last.id == "") &&
			(goesOn(n.Fact) || last.waitsFor(n.resumes())) {
			t = last
		}
		if t == nil {
			t = &turn{session: s.id}
			s.turns = append(s.turns, t)
		}
		t.add(n)
		t.roots = append(t.roots, n)
		if n.TurnID != "" {
			byID[n.TurnID] = t
		}
		if n.RequiresTurn {
			orphans[n.TraceID] = t
		}
		last = t
	}
}

// goesOn reports whether the input ends with results of tools, so that the work is a turn's that had begun before:
// the client executed the tool, or the user approved it, and a new request goes on from there.
func goesOn(f *fact.Fact) bool {
	return len(f.Input) > 0 && !f.Input[len(f.Input)-1].ByUser()
}

// within adds what is below n in the session, without what is below tools.
func (n *node) within(all []*node) []*node {
	for _, k := range n.kids {
		switch {
		case k.session != n.session || k.side != "":
		case k.Kind == fact.ToolCall:
			all = append(all, k)
		default:
			all = k.within(append(all, k))
		}
	}
	return all
}

// resumes returns the calls of tools with which the work below a turn's span begins, by their ids or else names: those
// that ran before any model was called, and those whose results the first call of a model was given. asked are the
// words of the user in that.
func (n *node) resumes() (tools []string, asked string) {
	called := false
	for _, k := range n.within(nil) {
		switch {
		case k.Kind == fact.ToolCall && k.CallID != "" && !called:
			tools = append(tools, k.CallID)
		case k.Kind != fact.ModelCall:
		case len(k.Input) == 0:
			called = true // a library below may report what it was given
		case !goesOn(k.Fact):
			return nil, ""
		default:
			for _, results := range resultsIn(fact.PartsOf(k.Input)) {
				tools = append(tools, cmp.Or(results[0].CallID, results[0].Name))
			}
			return tools, words(k.Fact)
		}
	}
	return tools, ""
}

// waitsFor reports whether the turn ended with a request of one of the tools, and was asked the same. The id alone may
// be that of another call: some providers count from one in each answer.
func (t *turn) waitsFor(tools []string, again string) bool {
	if len(tools) == 0 {
		return false
	}
	var pending []string
	asked := ""
	for _, r := range t.roots {
		for _, k := range r.within([]*node{r}) {
			asked = cmp.Or(asked, words(k.Fact))
			if k.Kind == fact.ModelCall && len(k.Output) > 0 || len(pending) == 0 {
				pending = requested(k.Output)
			}
		}
	}
	return (strings.Contains(asked, again) || strings.Contains(again, asked)) &&
		slices.ContainsFunc(tools, func(id string) bool { return slices.Contains(pending, id) })
}

// turnAbove returns the turn of the nearest node above that has one in the same session.
func (n *node) turnAbove() *turn {
	for p := n.parent; p != nil; p = p.parent {
		if p.turn != nil && p.session == n.session {
			return p.turn
		}
	}
	return nil
}

// ties are the ids that everything of one turn, or of one call, has. The surest is the first.
func (n *node) ties() (all []string) {
	if n.TurnID != "" {
		all = append(all, "turn "+n.TurnID)
	}
	if n.RequestID != "" {
		all = append(all, "request "+n.RequestID)
	}
	return all
}

// attachByID gives what is below a turn's root to that turn, whatever its time: what a client does after the turn's
// span has ended, such as to store its last message, is no part of the turn that has begun meanwhile.
//
// Other facts it gives to the turn whose id, or one of whose model or tool calls, they name: records that were written
// outside of any span, and the spans of streamed tools, which have traces of their own. A provider may count the calls
// of each answer from one, so that of the turns with a call "call_1" the last one that had begun is meant.
func (s *stream) attachByID() {
	tied, calls := make(map[string]*turn), make(map[string][]*turn)
	learn := func(n *node) {
		for _, id := range n.ties() {
			tied[id] = cmp.Or(tied[id], n.turn)
		}
		request := func(id string) {
			if id != "" && !slices.Contains(calls[id], n.turn) {
				calls[id] = append(calls[id], n.turn)
			}
		}
		request(n.CallID)
		for i := range n.Output {
			if n.Output[i].Kind == fact.PartCall {
				request(n.Output[i].CallID)
			}
		}
	}
	// First all that is known by the tree, for a record may come before the span that has its id.
	for _, n := range s.nodes {
		if n.side == "" && n.Kind != fact.Session && n.Kind != fact.Compaction {
			if t := n.turnAbove(); n.turn == nil && t != nil {
				t.add(n)
			}
		}
		if n.turn != nil {
			learn(n)
		}
	}
	for _, n := range s.nodes {
		if n.turn != nil || !n.isOfTurn() {
			continue
		}
		var t *turn
		for _, id := range n.ties() {
			t = cmp.Or(t, tied[id])
		}
		if t = cmp.Or(t, lastBefore(calls[n.CallID], n.Start)); t != nil {
			t.add(n)
			learn(n)
		}
	}
}

// isOfTurn reports whether a fact belongs into a turn. Those that only tie others do not, nor does what is beside the
// conversation: compactions and notes have messages of their own.
func (n *node) isOfTurn() bool {
	switch n.Kind {
	case fact.ModelCall, fact.ToolCall, fact.Permission, fact.Prompt, fact.Answer:
		return n.side == ""
	}
	return false
}

// lastBefore returns the last of the turns that began by then, nil where none did: a call's id of a later turn is the
// id of another call.
func lastBefore(turns []*turn, at int64) *turn {
	var last *turn
	for _, t := range turns {
		if t.start <= at && (last == nil || t.start > last.start) {
			last = t
		}
	}
	return last
}

// kin are the facts without a turn, by the ids that they share: all of them go to the turn of the first, however late
// they are.
type kin map[string][]*node

func (s *stream) kin() kin {
	k := make(kin)
	for _, n := range s.nodes {
		if n.turn == nil && n.isOfTurn() {
			for _, id := range n.ties() {
				k[id] = append(k[id], n)
			}
		}
	}
	return k
}

// follow gives what shares an id with the nodes, or with what follows them, to the turn.
func (k kin) follow(t *turn, nodes ...*node) {
	for i := 0; i < len(nodes); i++ {
		for _, id := range nodes[i].ties() {
			for _, x := range k[id] {
				if x.turn == nil {
					t.add(x)
					nodes = append(nodes, x)
				}
			}
			delete(k, id)
		}
	}
}

// attachByTime gives what no id ties to the turn that was going on, or begins one where the input is new. It walks
// through the session once, in order of time. now is the turn that was going on.
func (s *stream) attachByTime() {
	var roots []*node
	for _, t := range s.turns {
		roots = append(roots, t.roots...)
	}
	slices.SortFunc(roots, func(x, y *node) int { return cmp.Or(cmp.Compare(x.Start, y.Start), compareNodes(x, y)) })
	kin := s.kin()
	var now *turn
	for _, n := range s.nodes {
		if t := n.turn; t != nil && len(t.roots) > 0 && t.roots[0] == n {
			// A client writes the record of a prompt before the span of the work on it begins. Without this the
			// prompt would be a turn of its own that nothing answers.
			if now != nil && now != t && now.only(fact.Prompt) && sameAsked(now, n) {
				for _, prompt := range now.nodes {
					t.add(prompt)
				}
				now.nodes = nil
			}
			now = t
			continue
		}
		if n.turn != nil || !n.isOfTurn() {
			continue
		}
		// What is above may have been given a turn by this loop only.
		t := cmp.Or(n.turnAbove(), during(roots, n))
		if t == nil && !begins(n, now) {
			t = now
		}
		if t == nil {
			if now != nil && n.follows(now.last) {
				n.Input = n.Input[:len(n.Input)-1] // the answer of the turn before, which nobody asked
			}
			t = &turn{session: s.id}
			s.turns = append(s.turns, t)
		}
		t.add(n)
		// The last record of a turn may have the time at which the next one begins: by clocks of whole milliseconds. With
		// now set back to the former turn, all calls of the next one would go there.
		if now == nil || t.start >= now.start || n.Start > now.start+store.ClockTick {
			now = t
		}
		kin.follow(t, n)
	}
}

// during returns the turn of the root that began last of those within which the fact happened. While an agent works,
// the user may send a prompt that its client reports by a record: it is part of that turn, and begins none.
func during(roots []*node, n *node) *turn {
	for _, r := range slices.Backward(roots) {
		if t := r.turn; t != nil && r.Start <= n.Start && n.End <= r.End &&
			(n.TurnID == "" || t.id == "" || n.TurnID == t.id) {
			return t
		}
	}
	return nil
}

// near is how long after its span a record of it may be written, in nanoseconds.
const near = 2e9

// begins reports whether the fact begins a turn, where now is the one before it: an input that is not the last one's,
// or where no content is reported, a trace of its own. An input that ends with the results of tools goes on.
func begins(n *node, now *turn) bool {
	if now == nil {
		return true
	}
	if n.TurnID != "" && now.id != "" && n.TurnID != now.id {
		return true
	}
	switch n.Kind {
	case fact.Prompt:
		return !n.repeats(now)
	case fact.ModelCall:
		before := now.last
		// Nothing shows what it was asked, so its trace decides.
		if len(n.Input) == 0 && (n.failedApart(before) || n.apart(now)) {
			return true
		}
		if n.follows(before) {
			return true
		}
		// A prompt that waits is what this call answers, in whatever words the request has it.
		if len(n.Input) == 0 || goesOn(n.Fact) || now.only(fact.Prompt) {
			return false
		}
		if before != nil && n.repeatsAll(before) {
			return false
		}
		return before == nil || textOf(askedBy(before.Fact)) != textOf(askedBy(n.Fact)) || !n.asksAgain(before, now)
	}
	return false
}

// repeatsAll reports whether what n asks begins with what the call before it asked, which requested a tool: LangChain4j
// writes all messages as one text, the results of tools with them.
func (n *node) repeatsAll(before *node) bool {
	return before.TraceID == n.TraceID && before.requestsTools() &&
		strings.HasPrefix(textOf(askedBy(n.Fact)), textOf(askedBy(before.Fact))+"\n")
}

// requestsTools reports whether the model went on after the call, with what its tools came to.
func (n *node) requestsTools() bool {
	return fact.FinishReason(n.Finish) == "tool-calls" || has(n.Output, fact.PartCall)
}

// follows reports whether the input ends with the last answer of the call before: then the user wrote the same again,
// and of two records that are equal, sent apart, only one was kept. OpenTelemetry's instrumentation of OpenAI writes
// a record for each message of a request.
func (n *node) follows(before *node) bool {
	if n.Kind != fact.ModelCall || len(n.Input) == 0 || before == nil || has(before.Output, fact.PartCall) {
		return false
	}
	last := &n.Input[len(n.Input)-1]
	said := textOf(last.Parts)
	return last.Role == session.RoleAssistant && said != "" && said == textOf(before.Output)
}

// asksAgain reports whether a call with the input of the call before it belongs to the same turn: the same input
// again right away is a retry, if the model had failed and both are of one request to the program; and a record may
// repeat what the call's span reports. After an answer, or in another trace after a failure, the user asked once
// more.
func (n *node) asksAgain(before *node, now *turn) bool {
	if before.Failed && (n.TraceID == before.TraceID || n.TraceID == "" || before.TraceID == "") {
		return true
	}
	if n.record {
		return n.Start <= before.End+near && (!before.record || before.Name != n.Name)
	}
	isSpan := func(o *node) bool { return o.Kind == fact.ModelCall && !o.record }
	return n.Start <= before.Start+near && before.Start <= n.End && !slices.ContainsFunc(now.nodes, isSpan)
}

// apart reports whether n is the call of another turn, where no content separates turns: it is in a trace of its own
// and follows on a call that did not request a tool. Some clocks begin spans at whole milliseconds, and end them
// exactly.
//
// Libraries of providers record no content unless they are asked to. Without this rule a day's calls of such a client
// would be one turn.
func (n *node) apart(now *turn) bool {
	before := now.last
	if n.record || n.orphan || before == nil || before.TraceID == n.TraceID || n.Start+store.ClockTick < before.over() ||
		before.requestsTools() {
		return false
	}
	return !slices.ContainsFunc(now.nodes, func(o *node) bool {
		return len(o.Input) > 0 || o.Kind == fact.Turn || o.Kind == fact.Prompt ||
			o.Kind == fact.ToolCall && o.Start >= before.Start
	})
}

// failedApart reports whether n is the call of a turn that failed, of which nothing but the failure is reported: it
// is in a trace of its own, and the call before it gave a last answer. OpenLIT reports no input of a call that fails.
func (n *node) failedApart(before *node) bool {
	return n.Failed && !n.record && n.parent == nil && before != nil && before.TraceID != n.TraceID &&
		!before.Failed && len(before.Output) > 0 && !has(before.Output, fact.PartCall)
}

// repeats reports whether a prompt that one source reports began the turn according to the other: the transcript of
// Claude Code, Codex or Qwen Code and its telemetry each report it once, and the session would have every turn twice.
// Where the telemetry withholds the words, the time decides.
func (n *node) repeats(now *turn) bool {
	other := false // whether the turn has facts of the other source
	for _, o := range now.nodes {
		if o.Transcript != n.Transcript {
			other = true
		} else if o.Kind == fact.Prompt {
			return false // this source has reported its prompt
		}
	}
	if !other || n.TurnID != "" && now.id != "" {
		return other // both have the id of one turn: with another one, n would have begun a turn before this is asked
	}
	given, asked := words(n.Fact), ""
	for _, o := range now.nodes {
		if asked = words(o.Fact); asked != "" {
			break
		}
	}
	if given == "" || asked == "" { // one of them withholds its input
		return n.Start <= now.start+near && now.start <= n.Start+near
	}
	return given == asked
}

// sameAsked reports whether a prompt that was reported by itself is what the root was asked: by the turn's id, or by
// the words, which the root may have among those that its client adds.
func sameAsked(prompts *turn, root *node) bool {
	if root.TurnID != "" && prompts.id != "" {
		return root.TurnID == prompts.id
	}
	asked := words(root.Fact)
	return asked == "" || slices.ContainsFunc(prompts.nodes, func(n *node) bool {
		return strings.Contains(asked, words(n.Fact)) // also where they are withheld
	})
}

// words are the user's last ones.
func words(f *fact.Fact) string { return strings.TrimSpace(textOf(askedBy(f))) }

// askedBy returns the parts of the user's last messages.
func askedBy(f *fact.Fact) []fact.Part {
	start, end := fact.UserRun(f.Input)
	return fact.PartsOf(f.Input[start:end])
}

// PilesUp reports whether more than one message of the user is asked in a row: the first may be those of turns
// before, and how many of them is known only from the requests that came before. See [assembly.bound].
func PilesUp(f *fact.Fact) bool {
	start, end := fact.UserRun(f.Input)
	return end-start > 1
}

// Opens reports whether a fact begins a turn, whatever came before it. prompts states that its dialect reports the
// user's messages by facts of their own, so that a model call need not begin one. It may return false where a turn
// begins, which costs time but no truth.
func Opens(f *fact.Fact, prompts bool) bool {
	if cmp.Or(f.Purpose, f.Aside, purpose(f)) != "" {
		return false
	}
	switch f.Kind {
	case fact.Prompt:
		return true
	case fact.Turn:
		return !goesOn(f) && !PilesUp(f) // else it may be a part of the turn before
	case fact.ModelCall:
		// A record is part of a call: it may not have the last of the input.
		return !prompts && !f.RequiresTurn && f.ParentID == "" && !strings.HasPrefix(f.Source, fact.RecordPrefix) &&
			len(f.Input) > 0 && !goesOn(f) && !PilesUp(f)
	}
	return false
}
