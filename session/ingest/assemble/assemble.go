// Package assemble makes sessions of facts: it finds which facts report one turn, one model call, one tool call,
// whatever spans and records reported them, and writes the messages that they come to.
//
// It is a function of the facts alone. A fact that arrives later is not added to
// what is there: its turn is rebuilt, whole.
package assemble

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Assemble reports what the facts of some turns of the session owner come to: of one, or of all that something reaches
// across. proofs are what all facts of the session prove of how tokens were counted. The order of the facts has no
// meaning; attributions are in their order.
func Assemble(owner string, facts []fact.Fact, proofs ...store.UsageProof) store.Assembly {
	a := &assembly{owner: owner, apart: apartOf(proofs)}
	a.run(facts)
	out := store.Assembly{
		Messages: a.messages, Decisions: a.decisions, Attribution: make([]store.Attribution, len(facts)),
	}
	for _, n := range a.nodes {
		n.attribution.UsageProof = n.usageProof()
		out.Attribution[n.at] = n.attribution
	}
	for _, n := range a.events {
		out.Attribution[n.at] = store.Attribution{SessionID: n.event.attribution.SessionID,
			Kind: n.event.attribution.Kind, MessageID: n.event.attribution.MessageID,
			PartID: n.event.attribution.PartID, UsageProof: n.usageProof()}
	}
	return out
}

func (a *assembly) run(facts []fact.Fact) {
	// Each stage needs the one before it: a span that was made for side calls only is found by the calls of its own
	// session, and what has another purpose than the conversation is in none of its turns.
	a.buildTree(facts)
	a.findSessions()
	a.classify()
	for _, id := range a.order {
		a.sessions[id].findTurns()
	}
	for _, id := range a.order {
		s := a.sessions[id]
		parentRefs := make(map[*turn][]*parentRef)
		for _, st := range a.parentRefs {
			if st.from != nil && st.from.turn != nil && st.from.Kind == fact.ToolCall {
				parentRefs[st.from.turn] = append(parentRefs[st.from.turn], st)
			}
		}
		for _, t := range s.turns {
			a.reportTurn(t, parentRefs[t])
		}
		a.reportCompactions(s)
		a.reportNotes(s)
	}
	a.reportSessions()
}

// assembly is one run of Assemble.
type assembly struct {
	owner string
	// apart is what is proven of those who count tokens, by [counterOf].
	apart map[string]fact.Apart
	// nodes are the facts in order of time, events those that are part of another's.
	nodes  []*node
	events []*node
	bySpan map[[2]string]*node

	sessions   map[string]*stream
	order      []string // of sessions, parents before children
	parentRefs []*parentRef
	// subagents are the parent references that facts name, by the session and the name.
	subagents map[[2]string]*parentRef
	// children are the sessions that tool calls started as a source reports it, by the
	// session that the source names and the id of the call.
	children map[[2]string]string

	messages  []store.AssembledMessage
	decisions []store.Decision
}

// kinds of spans as the store names them.
var kindNames = map[fact.Kind]string{
	fact.Turn: semconv.SpanSessionTurn, fact.ModelCall: spans.KindModelCall, fact.ToolCall: semconv.SpanToolCall,
	fact.Permission: semconv.SpanPermissionEvaluate, fact.Compaction: semconv.SpanCompactionRun,
	fact.Session: semconv.SpanSessionRun, fact.Prompt: "user.prompt", fact.Answer: "assistant.answer",
	fact.Step: "step",
	fact.Note: "note",
}

// place attributes a node to rows. The first message that it is attributed to is the one
// that it describes; others, such as the user's message of a turn's span, follow.
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
	p.PartID = cmp.Or(p.PartID, part)
}

func spanKey(f *fact.Fact) [2]string { return [2]string{f.TraceID, f.SpanID} }

// isSpan reports whether the fact is what its span is known by.
func isSpan(f *fact.Fact) bool { return f.Source == f.SpanID && f.SpanID != "" }

// byTwo reports whether two instrumentations may report one call by the two facts. A span's name shows who made it:
// that of some ends in the model.
func byTwo(x, y *fact.Fact) bool {
	mine, _, _ := strings.Cut(x.Name, " ")
	theirs, _, _ := strings.Cut(y.Name, " ")
	return x.Dialect != y.Dialect || mine != theirs
}

// toolName is the name of the tool that a fact is about.
func toolName(f *fact.Fact) string {
	switch {
	case f.Tool != nil:
		return f.Tool.Name
	case f.Decision != nil:
		return f.Decision.ToolName
	}
	return ""
}

// squeeze leaves out the blanks of a text.
func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

// Of some sources it is not known whether the input that they state includes the cache. All
// that one of them counts in a session is read alike: as if nothing was counted apart, until
// any count of the session proves otherwise. Two things prove it:
//
//   - the count itself: a cache that is more than the input cannot be a part of it. See
//     [fact.Stated.Proof];
//   - a second report of the same call, by a source of which it is known how it counts: the
//     framework states an input of 104 and a cache of 24, the provider's library an input
//     of 128 that includes them.
//
// A turn is a part of the session only. What its facts prove goes into their attributions, from which the store puts
// together what the turns are assembled with. It does not depend on that: two passes settle it.

// counterOf names who counted the tokens that a fact states, "" where it is known how.
func counterOf(f *fact.Fact) string {
	if f.Usage == nil || f.Usage.Stated == nil {
		return ""
	}
	return f.Dialect + " " + f.Usage.Counter
}

// recount returns the fact with its usage as it is known now that it was counted.
func (a *assembly) recount(f *fact.Fact) *fact.Fact {
	apart := a.apart[counterOf(f)]
	if apart == 0 {
		return f
	}
	again := *f
	again.Usage = f.Usage.Recount(apart)
	return &again
}

// apartOf returns what is proven of those who count, by their names.
func apartOf(proofs []store.UsageProof) map[string]fact.Apart {
	apart := make(map[string]fact.Apart, len(proofs))
	for _, p := range proofs {
		apart[p.Counter] |= fact.Apart(p.Proof)
	}
	return apart
}

// prove notes what the counts of a call prove of each other.
func (c *call) prove() {
	for _, n := range c.nodes {
		if n.Usage == nil || n.Usage.Stated == nil {
			continue
		}
		s := n.Usage.Stated
		cache := s.CacheRead + s.CacheWrite
		if s.Input == nil || cache == 0 {
			continue
		}
		if slices.ContainsFunc(c.nodes, func(o *node) bool {
			return o.Usage != nil && o.Usage.Stated == nil && inputOf(o.Usage) == *s.Input+cache
		}) {
			n.proof |= fact.CacheApart
		}
	}
}

// inputOf counts the tokens that a model was given, with those from the cache.
func inputOf(u *fact.Usage) int64 { return u.Tokens.Input + u.Tokens.CacheRead + u.Tokens.CacheWrite }

// agreeOnOutput reports whether two counts may be of one call: the model's answer has as many tokens, with the
// reasoning. Where it is not known whether that is counted apart, it may be either way, whatever has been proven since.
func agreeOnOutput(x, y *fact.Usage) bool {
	xs, ys := outputsOf(x), outputsOf(y)
	return slices.ContainsFunc(xs[:], func(n int64) bool { return slices.Contains(ys[:], n) })
}

func outputsOf(u *fact.Usage) [2]int64 {
	if s := u.Stated; s != nil {
		within, apart := s.Usage(0).Tokens, s.Usage(fact.ReasoningApart).Tokens
		return [2]int64{within.Output + within.Reasoning, apart.Output + apart.Reasoning}
	}
	all := u.Tokens.Output + u.Tokens.Reasoning
	return [2]int64{all, all}
}

// usageProof is what the node contributes to what is known of who counts its tokens.
func (n *node) usageProof() store.UsageProof {
	counter := counterOf(n.Fact)
	if counter == "" {
		return store.UsageProof{}
	}
	return store.UsageProof{Counter: counter, Proof: int64(n.Usage.Proof | n.proof)}
}
