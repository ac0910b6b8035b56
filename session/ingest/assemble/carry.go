package assemble

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// carry is what the windows before a cut leave to those after it: the spans that
// reach across and the turns that go on. Its size does not depend on how long they
// have been going on.
type carry struct {
	Spines     []spine          `json:"spines,omitempty"`
	ParentRefs []parentRefCarry `json:"seats,omitempty"`
	Turns      []turnCarry      `json:"turns,omitempty"`

	index map[[2]string]*spine // of Spines
}

// spine is what became of a fact that reaches across a cut, and what it hands down
// to what is below it.
type spine struct {
	TraceID string `json:"trace,omitempty"`
	Source  string `json:"source"`

	Session string `json:"session"`
	Purpose string `json:"purpose,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Message string `json:"message,omitempty"`
	Part    string `json:"part,omitempty"`
	// Turn is the index of its turn among those that go on, plus one.
	Turn int  `json:"turn,omitempty"`
	Root bool `json:"root,omitempty"`

	Given          string `json:"given,omitempty"`
	Base           string `json:"base,omitempty"`
	ParentRef      int    `json:"parent_ref,omitempty"` // index among the parent references, plus one
	InheritedAgent string `json:"inherited_agent,omitempty"`
	InheritedSide  string `json:"inherited_side,omitempty"`
	// Attached reports that a sub-agent hangs on it.
	Attached bool `json:"seated,omitempty"`

	// Asked is the input of a turn's last model call, as brief writes it.
	Asked string `json:"-"`
}

func (s *spine) attached() bool { return s != nil && s.Attached }

// parentRefCarry is a parent reference; From is the index of its fact among the spines, -1
// of one that has ended, of whose sub-agent something is yet to begin.
type parentRefCarry struct {
	Session string `json:"session"`
	Parent  string `json:"parent"`
	From    int    `json:"from"`
	Named   bool   `json:"named,omitempty"`
}

// turnCarry is what was reported of a turn that continues.
type turnCarry struct {
	Session string `json:"session"`
	ID      string `json:"id,omitempty"`
	Key     string `json:"key"`
	Start   int64  `json:"start"`
	Title   string `json:"title,omitempty"`
	// Now reports that it was the one going on last in its session.
	Now bool `json:"now,omitempty"`
	// Call is its last model call.
	Call  *callCarry `json:"call,omitempty"`
	Spans bool       `json:"spans,omitempty"`

	// Message, CreatedAt and Parts are the assistant's message so far, User is the
	// user's.
	Message   string     `json:"message"`
	CreatedAt int64      `json:"created_at"`
	Parts     int64      `json:"parts"`
	LatestID  int64      `json:"latest_id"` // the last time that a part's id was made from
	User      *userCarry `json:"user,omitempty"`
	// Stepped reports that a step left parts, Thought that one has reasoning, Ran that the
	// last one is a tool's, Executes that a tool ran, Mute that a call reported nothing of its
	// answer.
	Stepped  bool `json:"stepped,omitempty"`
	Thought  bool `json:"thought,omitempty"`
	Ran      bool `json:"ran,omitempty"`
	Executes bool `json:"executes,omitempty"`
	Mute     bool `json:"mute,omitempty"`
	// Text is the last text, unless it is long. Answers are hashes of the last answers.
	Text    string   `json:"text,omitempty"`
	Answers []string `json:"answers,omitempty"`
	// Reported is how much of the root's answer the turn's texts have reported so far, -1 when
	// they report something else.
	Reported int `json:"reported,omitempty"`

	// Open are the calls of which more may be reported, Closed hashes of the ids of
	// others, Unasked of those that no model call is known to have requested.
	Open    []openCall `json:"open,omitempty"`
	Closed  []byte     `json:"closed,omitempty"`
	Unasked []byte     `json:"unasked,omitempty"`

	Measures measures `json:"measures"`
}

// callCarry is what decides whether the next model call begins a turn.
type callCarry struct {
	Start  int64  `json:"start"`
	End    int64  `json:"end"`
	Failed bool   `json:"failed,omitempty"`
	Record bool   `json:"record,omitempty"`
	Name   string `json:"name,omitempty"`
	Asked  string `json:"asked,omitempty"`
}

type userCarry struct {
	ID       string `json:"id"`
	At       int64  `json:"at"`
	Parts    int64  `json:"parts"`
	Metadata string `json:"metadata"`
	HiddenAt *int64 `json:"hidden_at,omitempty"`
}

func decodeCarry(raw []byte) (*carry, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	c := new(carry)
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("read what is carried into a window: %w", err)
	}
	return c, nil
}

func (c *carry) encode() []byte {
	raw, err := json.Marshal(c)
	if err != nil {
		panic("assemble: encode carry: " + err.Error()) // what facts hold always encodes
	}
	return raw
}

// spineOf returns what is carried of a fact, or nil.
func (c *carry) spineOf(f *fact.Fact) *spine {
	if c == nil {
		return nil
	}
	if c.index == nil {
		c.index = make(map[[2]string]*spine, len(c.Spines))
		for i := range c.Spines {
			c.index[[2]string{c.Spines[i].TraceID, c.Spines[i].Source}] = &c.Spines[i]
		}
	}
	return c.index[[2]string{f.TraceID, f.Source}]
}

// brief is a text that identifies it among others.
func brief(text string) string {
	if len(text) <= 128 {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// resumeParentRefs gives what reaches into the window its session and its parent reference back.
func (a *assembly) resumeParentRefs() {
	if a.carried == nil {
		return
	}
	nodes := make(map[*spine]*node)
	for _, n := range a.nodes {
		if c := n.context; c != nil {
			nodes[c] = n
			n.session, n.side, n.agent, n.given, n.base = c.Session, c.Purpose, c.Agent, c.Given, c.Base
			n.attribution = store.Attribution{SessionID: c.Session, MessageID: c.Message, PartID: c.Part}
			n.isWrapper = new(true)
		}
	}
	parentRefs := make([]*parentRef, len(a.carried.ParentRefs))
	for i, c := range a.carried.ParentRefs {
		var from *node
		if c.From >= 0 {
			if from = nodes[&a.carried.Spines[c.From]]; from == nil {
				continue
			}
		}
		s := parentRef{session: c.Session, parent: c.Parent, from: from, named: c.Named}
		parentRefs[i] = &s
		a.parentRefs = append(a.parentRefs, &s)
		a.parentRefBy[s] = &s
	}
	for c, n := range nodes {
		if c.ParentRef > 0 {
			n.parentRef = parentRefs[c.ParentRef-1]
		}
	}
}

// resumeTurns goes on with the turns that reach into the window.
func (a *assembly) resumeTurns() {
	if a.carried == nil {
		return
	}
	turns := make([]*turn, len(a.carried.Turns))
	for i := range a.carried.Turns {
		c := &a.carried.Turns[i]
		t := &turn{session: c.Session, id: c.ID, key: c.Key, start: c.Start, spans: c.Spans, resumed: c}
		if k := c.Call; k != nil {
			source := ""
			if k.Record {
				source = fact.RecordPrefix
			}
			t.last = &node{
				Fact: &fact.Fact{Kind: fact.ModelCall, Start: k.Start, End: k.End, Failed: k.Failed, Name: k.Name,
					Source: source},
				begins: k.Start, record: k.Record, context: &spine{Asked: k.Asked},
			}
		}
		s := a.stream(c.Session)
		s.turns = append(s.turns, t)
		if c.Now {
			s.now = t
		}
		turns[i] = t
	}
	for _, n := range a.nodes {
		if c := n.context; c != nil && c.Turn > 0 {
			n.turn = turns[c.Turn-1]
			if c.Root {
				n.turn.roots = append(n.turn.roots, n)
			}
		}
	}
}

// maxStreams bounds the sessions of sub-agents that no tool call holds whose turns
// go on. Nothing reports that such a sub-agent has ended: without a bound, each that a session
// ever started would be carried through all of its windows.
const maxStreams = 8

// keepOpen finds the turns that go on after the window: the last one of each
// session, and those of which something reaches beyond. The last one of a sub-agent ends
// with the call that started it, unless a source names the sub-agent: then it may run in
// the background.
func (a *assembly) keepOpen() {
	if a.until == unbounded {
		return
	}
	for _, n := range a.nodes {
		if n.turn != nil && n.reaches(a.until) {
			n.turn.open = true
		}
	}
	var loose []*stream
	for _, id := range a.order {
		s := a.sessions[id]
		held := s.parentRef != nil && s.parentRef.from != nil && !s.parentRef.named
		if held && s.parentRef.from.End <= a.until {
			continue
		}
		if s.now != nil {
			s.now.open = true
		}
		if !held && s.now != nil {
			loose = append(loose, s)
		}
	}
	slices.SortFunc(loose, func(x, y *stream) int {
		return cmp.Or(cmp.Compare(truth(x.parentRef != nil), truth(y.parentRef != nil)),
			cmp.Compare(y.now.latest(), x.now.latest()), strings.Compare(x.id, y.id))
	})
	for _, s := range loose[min(len(loose), maxStreams):] {
		for _, t := range s.turns {
			t.open = false
		}
	}
}

// latest is when the turn was last seen.
func (t *turn) latest() int64 {
	last := t.start
	if t.resumed != nil {
		last = t.resumed.Measures.Latest
	}
	for _, n := range t.nodes {
		last = max(last, n.Start, n.End)
	}
	return last
}

// carry is what the window leaves to the next one, with the facts that reach into
// that.
func (a *assembly) carry() (*carry, []fact.Fact) {
	c := new(carry)
	var around []fact.Fact
	index := make(map[*node]int)
	turns := make(map[*turn]int)
	for _, id := range a.order {
		for _, t := range a.sessions[id].turns {
			if t.open {
				c.Turns = append(c.Turns, *t.kept)
				turns[t] = len(c.Turns)
			}
		}
	}
	more := make(map[*parentRef]bool) // of which something reaches beyond the window
	var across []*node
	for _, n := range a.nodes {
		if n.Start < a.until && n.reaches(a.until) {
			across = append(across, n)
		}
	}
	if n := len(across); n > maxAround { // the outermost and the last to begin
		across = slices.Delete(across, maxAround/2, n-maxAround/2)
	}
	for _, n := range across {
		index[n], more[n.parentRef] = len(around), true
		around = append(around, *n.Fact)
	}
	parentRefs := make(map[*parentRef]int)
	for _, st := range a.parentRefs {
		from, known := index[st.from]
		if !known {
			from = -1
		}
		if known || more[st] {
			c.ParentRefs = append(c.ParentRefs, parentRefCarry{
				Session: st.session, Parent: st.parent, From: from, Named: st.named,
			})
			parentRefs[st] = len(c.ParentRefs)
		}
	}
	c.Spines = make([]spine, len(around))
	for n, i := range index {
		s := &c.Spines[i]
		*s = spine{
			TraceID: n.TraceID, Source: n.Source, Session: n.session, Purpose: n.side, Agent: n.agent,
			Message: n.attribution.MessageID, Part: n.attribution.PartID,
			Turn: turns[n.turn], Given: n.given, Base: n.base, ParentRef: parentRefs[n.parentRef],
			InheritedAgent: n.inheritedAgent, InheritedSide: n.inheritedSide,
		}
		if n.turn != nil && s.Turn > 0 {
			s.Root = slices.Contains(n.turn.roots, n)
		}
		if n.context != nil {
			s.InheritedAgent, s.InheritedSide = n.context.InheritedAgent, n.context.InheritedSide
			s.Attached = n.context.Attached
		}
		s.Attached = s.Attached || slices.ContainsFunc(a.parentRefs, func(st *parentRef) bool { return st.from == n })
	}
	return c, around
}

// keep notes what the next window must know of the turn.
func (t *turn) keep(w *writer, until int64) {
	c := turnCarry{
		Session: t.session, ID: t.id, Key: t.key, Start: t.start, Title: t.title(), Spans: t.spans, Message: w.ID,
		CreatedAt: w.CreatedAt,
		LatestID:  w.latestID, Parts: w.base + int64(len(w.Parts)), User: t.user,
		Stepped: w.steps > 0 || w.base+int64(len(w.Parts)) > 0, Measures: w.measures,
		Mute: w.mute, Thought: w.thought(),
		Ran:      w.ran(),
		Executes: t.executes(),
		Text:     w.lastText(), Answers: w.answers, Now: t.now,
	}
	if n := t.last; n != nil {
		c.Call = &callCarry{Start: n.Start, End: n.End, Failed: n.Failed, Record: n.record, Name: n.Name}
		if n.context != nil {
			c.Call.Asked = n.context.Asked
		} else {
			c.Call.Asked = brief(textOf(askedBy(n.Fact)))
		}
	}
	c.Reported = w.reportedOf(t.rootText(until))
	w.keepCalls(&c, until)
	t.kept = &c
}

// ran reports whether the message ends with a tool's part so far.
func (w *writer) ran() bool {
	if len(w.Parts) > 0 {
		return w.Parts[len(w.Parts)-1].ToolCallID != nil
	}
	return w.resumed() != nil && w.resumed().Ran
}

// thought reports whether the message has reasoning so far.
func (w *writer) thought() bool {
	return w.resumed() != nil && w.resumed().Thought ||
		slices.ContainsFunc(w.Parts, func(p session.Part) bool { return p.Type == fact.PartReasoning })
}

// lastText is the last text of the message, "" where it is long.
func (w *writer) lastText() string {
	const maximum = 16 << 10
	text := ""
	if texts := w.texts(); len(texts) > 0 {
		text = texts[len(texts)-1]
	} else if c := w.resumed(); c != nil {
		text = c.Text
	}
	if len(text) > maximum {
		return ""
	}
	return text
}

func (w *writer) resumed() *turnCarry {
	if w.turn == nil {
		return nil
	}
	return w.turn.resumed
}

// rootText is the answer of the first of the roots that reach beyond a time, without
// blanks.
func (t *turn) rootText(until int64) string {
	for _, r := range t.roots {
		if text := textOf(r.Output); text != "" && r.End > until {
			return squeeze(text)
		}
	}
	return ""
}

// reportedOf counts the bytes of a root's answer without blanks with which the texts so far begin
// it, -1 when they report something else.
func (w *writer) reportedOf(all string) int {
	written := 0
	if c := w.resumed(); c != nil {
		written = c.Reported
	}
	given := squeeze(strings.Join(w.texts(), ""))
	if written < 0 || written > len(all) || !strings.HasPrefix(all[written:], given) {
		return -1
	}
	return written + len(given)
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// afterSqueezed is what follows so many bytes of a text, blanks not counted.
func afterSqueezed(text string, written int) string {
	for i, r := range text {
		if strings.TrimSpace(string(r)) == "" {
			continue
		}
		if written <= 0 {
			return strings.TrimSpace(text[i:])
		}
		written -= len(string(r))
	}
	return ""
}

// marks identify an answer of a model among those that later requests repeat.
func marks(parts []fact.Part) (marks []string) {
	for i := range parts {
		switch p := &parts[i]; {
		case p.Kind != fact.PartCall:
		case p.CallID != "":
			marks = append(marks, "call "+p.CallID)
		default:
			marks = append(marks, "tool "+p.Name+" "+digestOf(string(canonical(p.Input))))
		}
	}
	if text := strings.TrimSpace(textOf(parts)); len(marks) == 0 && text != "" {
		marks = append(marks, "text "+digestOf(text))
	}
	return marks
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// maxMarks bounds the hashes of answers that are carried.
const maxMarks = 16

// unrepeated leaves out of what a request repeats what the windows before have
// reported: all up to the last of their answers, and the results that follow it.
func (t *turn) unrepeated(asked []fact.Message) (rest []fact.Message, known bool) {
	if t.resumed == nil {
		return asked, true
	}
	for i := len(asked) - 1; i >= 0; i-- {
		if asked[i].Role != "assistant" || !slices.ContainsFunc(marks(asked[i].Parts),
			func(mark string) bool { return slices.Contains(t.resumed.Answers, mark) }) {
			continue
		}
		for i++; i < len(asked) && asked[i].Role != "assistant"; i++ {
		}
		return asked[i:], true
	}
	return asked, false
}
