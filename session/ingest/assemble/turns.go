package assemble

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// turn is one message of the user and what the agent did on it.
type turn struct {
	session string
	// roots are the facts of kind Turn, the outermost first: none for agents that
	// have no such span, several where one wraps another or goes on after one.
	roots []*node
	// nodes are all facts of the turn, the roots included.
	nodes []*node
	start int64
	id    string // what the source calls it
	asked []fact.Part
}

func (t *turn) add(n *node) {
	n.turn = t
	t.nodes = append(t.nodes, n)
	if t.start == 0 || n.Start < t.start {
		t.start = n.Start
	}
	if t.id == "" {
		t.id = n.TurnID
	}
}

// absorb makes what is o's t's.
func (t *turn) absorb(o *turn) {
	for _, n := range o.nodes {
		t.add(n)
	}
	t.roots = append(t.roots, o.roots...)
	o.nodes, o.roots = nil, nil
}

// only says whether every fact of the turn is of the kind.
func (t *turn) only(kind fact.Kind) bool {
	return !slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Kind != kind })
}

// mark finds what the model was called for that is not the conversation.
func (a *assembly) mark() {
	for _, n := range a.nodes {
		if n.Kind != fact.Turn && n.Kind != fact.ModelCall {
			continue
		}
		n.side = cmp.Or(n.Side, purpose(n.Fact))
	}
	// What is below a side call is part of it; and a span that was made for one only
	// is one.
	for _, n := range a.nodes {
		if p := n.above(fact.Turn, fact.ModelCall, fact.Compaction); p != nil && n.side == "" {
			switch {
			case p.side != "":
				n.side = p.side
			case p.Kind == fact.Compaction && n.Kind == fact.ModelCall:
				n.side = "compaction"
			}
		}
	}
	for _, n := range a.nodes {
		if n.side != "" && n.Kind == fact.ModelCall {
			if p := n.above(fact.Turn); p != nil && p.side == "" && p.session == n.session && soleCall(p, n) {
				p.side = n.side
			}
		}
	}
}

// soleCall says whether the turn made the one model call and no tool call.
func soleCall(t, call *node) bool {
	for _, k := range t.kids {
		if k != call && (k.Kind == fact.ModelCall && !k.record || k.Kind == fact.ToolCall) || !soleCall(k, call) {
			return false
		}
	}
	return true
}

// purpose recognizes the prompts by which agents have sessions named.
func purpose(f *fact.Fact) string {
	if len(f.Input) == 0 {
		return ""
	}
	for _, m := range f.Input {
		for i := range m.Parts {
			text := strings.ToLower(m.Parts[i].Text[:min(len(m.Parts[i].Text), 200)])
			if m.Role == "user" && m.Parts[i].Kind == fact.PartText && f.History == 0 &&
				(strings.HasPrefix(text, "generate a title for") || strings.HasPrefix(text, "generate a short title") ||
					strings.HasPrefix(text, "generate a concise title") || strings.HasPrefix(text, "please write a 5-10 word title")) {
				return "title"
			}
		}
	}
	return ""
}

// findTurns gathers the session's facts into turns, in order of time.
func (s *stream) findTurns() {
	s.findRoots()
	s.attachBelow()
	s.attachByID()
	s.attachByTime()
	s.turns = slices.DeleteFunc(s.turns, func(t *turn) bool { return len(t.nodes) == 0 })
	for _, t := range s.turns {
		slices.SortFunc(t.nodes, compareNodes)
		slices.SortFunc(t.roots, compareNodes)
	}
	slices.SortStableFunc(s.turns, func(x, y *turn) int { return cmp.Compare(x.start, y.start) })
}

// findRoots makes a turn of every outermost fact of kind Turn.
func (s *stream) findRoots() {
	byID := make(map[string]*turn)
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
		if n.TurnID == "" {
			t = nil
		}
		if t == nil && last != nil && goesOn(n.Fact) && (n.TurnID == "" || last.id == "") {
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
		last = t
	}
}

// goesOn says whether what was asked ends with answers of tools, so that the work
// is a turn's that had begun before.
func goesOn(f *fact.Fact) bool {
	if len(f.Input) == 0 {
		return false
	}
	return f.Input[len(f.Input)-1].Role != "user"
}

// attachBelow gives what stands below a turn's root to that turn.
func (s *stream) attachBelow() {
	for _, n := range s.nodes {
		if n.turn != nil || n.side != "" || n.Kind == fact.Session || n.Kind == fact.Compaction {
			continue
		}
		if t := n.turnAbove(); t != nil {
			t.add(n)
		}
	}
}

// turnAbove returns the turn of the nearest node above that has one in the same
// session.
func (n *node) turnAbove() *turn {
	for p := n.parent; p != nil; p = p.parent {
		if p.turn != nil && p.session == n.session {
			return p.turn
		}
	}
	return nil
}

// attachByID gives facts to the turn whose id, or one of whose model or tool calls,
// they name.
func (s *stream) attachByID() {
	turns, requests, calls := make(map[string]*turn), make(map[string]*turn), make(map[string][]*turn)
	learn := func(n *node) {
		if n.TurnID != "" && turns[n.TurnID] == nil {
			turns[n.TurnID] = n.turn
		}
		if n.RequestID != "" && requests[n.RequestID] == nil {
			requests[n.RequestID] = n.turn
		}
		announce := func(id string) {
			if id != "" && !slices.Contains(calls[id], n.turn) {
				calls[id] = append(calls[id], n.turn)
			}
		}
		announce(n.CallID)
		for i := range n.Output {
			if n.Output[i].Kind == fact.PartCall {
				announce(n.Output[i].CallID)
			}
		}
	}
	for _, n := range s.nodes {
		if n.turn != nil {
			learn(n)
		}
	}
	for _, n := range s.nodes {
		if n.turn != nil || !n.wants() {
			continue
		}
		t := turns[n.TurnID]
		if t == nil || n.TurnID == "" {
			if t = requests[n.RequestID]; n.RequestID == "" {
				t = nil
			}
		}
		if t == nil && n.CallID != "" {
			t = lastBefore(calls[n.CallID], n.Start)
		}
		if t != nil {
			t.add(n)
			learn(n)
		}
	}
}

// wants says whether a fact belongs into a turn.
func (n *node) wants() bool {
	switch n.Kind {
	case fact.ModelCall, fact.ToolCall, fact.Permission, fact.Prompt, fact.Answer:
		return n.side == ""
	}
	return false
}

// lastBefore returns the last of the turns that began by then.
func lastBefore(turns []*turn, at int64) *turn {
	var last *turn
	for _, t := range turns {
		if t.start <= at && (last == nil || t.start > last.start) {
			last = t
		}
	}
	return last
}

// attachByTime gives what no id ties to the turn that was going on, or begins one
// where something new was asked.
func (s *stream) attachByTime() {
	events := make([]*node, 0, len(s.nodes))
	roots := make(map[*node]*turn)
	for _, t := range s.turns {
		if len(t.roots) > 0 {
			roots[t.roots[0]] = t
		}
	}
	for _, n := range s.nodes {
		if roots[n] != nil || n.turn == nil && n.wants() {
			events = append(events, n)
		}
	}
	var now *turn
	for _, n := range events {
		if t := roots[n]; t != nil {
			if now != nil && now != t && now.only(fact.Prompt) && sameAsked(now, n) {
				absorbed := now
				t.absorb(absorbed)
			}
			now = t
			continue
		}
		if n.turn != nil {
			continue
		}
		t := n.turnAbove()
		if t == nil {
			t = s.during(n)
		}
		if t == nil && !s.begins(n, now) {
			t = now
		}
		if t == nil {
			t = &turn{session: s.id}
			s.turns = append(s.turns, t)
		}
		t.add(n)
		now = t
		if n.TurnID == "" && n.RequestID == "" {
			continue
		}
		for _, o := range events {
			// What shares an id with what was just placed goes with it.
			if o.turn == nil && sameIDs(o, n) {
				t.add(o)
			}
		}
	}
}

// sameIDs says whether two facts name the same turn or model call.
func sameIDs(x, y *node) bool {
	return x.TurnID != "" && x.TurnID == y.TurnID || x.RequestID != "" && x.RequestID == y.RequestID
}

// during returns the turn whose root was open when the fact happened.
func (s *stream) during(n *node) *turn {
	var found *turn
	for _, t := range s.turns {
		for _, r := range t.roots {
			if r.contains(n) && (n.TurnID == "" || t.id == "" || n.TurnID == t.id) && (found == nil || t.start > found.start) {
				found = t
			}
		}
	}
	return found
}

// begins says whether the fact begins a turn, where now is the one before it.
func (s *stream) begins(n *node, now *turn) bool {
	if now == nil {
		return true
	}
	if n.TurnID != "" && now.id != "" && n.TurnID != now.id {
		return true
	}
	switch n.Kind {
	case fact.Prompt:
		return true
	case fact.ModelCall:
		if len(n.Input) == 0 || goesOn(n.Fact) || now.only(fact.Prompt) {
			return false
		}
		// The same thing asked again right away is a retry, if the model had failed.
		before := lastCall(now)
		return before == nil || !before.Failed || textOf(askedBy(before.Fact)) != textOf(askedBy(n.Fact))
	}
	return false
}

func lastCall(t *turn) *node {
	var last *node
	for _, n := range t.nodes {
		if n.Kind == fact.ModelCall && (last == nil || n.Start > last.Start) {
			last = n
		}
	}
	return last
}

// sameAsked says whether a prompt that was told by itself is what the root was
// asked.
func sameAsked(prompts *turn, root *node) bool {
	if root.TurnID != "" && prompts.id != "" {
		return root.TurnID == prompts.id
	}
	asked := strings.TrimSpace(textOf(askedBy(root.Fact)))
	for _, n := range prompts.nodes {
		said := strings.TrimSpace(textOf(askedBy(n.Fact)))
		if asked == "" || said == "" || strings.Contains(asked, said) {
			return true
		}
	}
	return false
}

// askedBy returns the last things that the user said.
func askedBy(f *fact.Fact) []fact.Part {
	end := -1
	for i, m := range f.Input {
		if m.Role == "user" {
			end = i
		}
	}
	begin := end
	for begin > 0 && f.Input[begin-1].Role == "user" {
		begin--
	}
	var parts []fact.Part
	for i := begin; i >= 0 && i <= end; i++ {
		parts = append(parts, f.Input[i].Parts...)
	}
	return parts
}

// Opens says whether a fact begins a turn, whatever came before it. prompts says
// that its dialect tells what the user said by facts of their own, so that a
// model call need not begin one. It may say no where a turn begins, which costs
// time but no truth.
func Opens(f *fact.Fact, prompts bool) bool {
	if f.Side != "" || purpose(f) != "" {
		return false
	}
	switch f.Kind {
	case fact.Prompt:
		return true
	case fact.Turn:
		return !goesOn(f)
	case fact.ModelCall:
		// A record is part of a call: what it tells may not be the last that was asked.
		return !prompts && !f.Rooted && f.ParentID == "" && !strings.HasPrefix(f.Source, fact.RecordPrefix) && len(f.Input) > 0 && !goesOn(f)
	}
	return false
}
