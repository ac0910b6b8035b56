// Package assemble makes sessions of facts: it finds which facts report one turn, one model call, one tool call,
// whatever spans and records reported them, and writes the messages that they come to. The facts of a short turn, and
// its messages:
//
//	agent "List the files"                user       text      List the files
//	├─ chat            → call c1 of ls    assistant  tool-ls   input of the chat, output of the record
//	│  └─ api_request  (record: usage)               step-start
//	├─ ls c1                                         text      Two files.
//	│  └─ tool_result  (record: output)
//	└─ chat            → "Two files."
//
// It is a function of the facts alone. A fact that arrives later is not added to what is there: its turn is rebuilt,
// whole. So children may come before parents, records hours before spans, and the rows are the same.
//
// The stages, a file each or two: the tree (tree.go, history.go), the sessions (sessions.go), the turns (turns.go), a
// turn's calls of models (calls.go, history.go) and of tools (tools.go), the rows (message.go, parts.go, metadata.go,
// compaction.go, sessions.go).
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

// Assemble reports what the facts of some turns of the session owner come to: of one, or of all that something
// reaches across. proofs are what all facts of the session prove of how tokens were counted. The order of the facts
// has no meaning; attributions are in their order.
func Assemble(owner string, facts []fact.Fact, proofs ...store.UsageProof) store.Assembly {
	a := &assembly{owner: owner, apart: make(map[string]fact.Apart)}
	for _, p := range proofs {
		a.apart[p.Counter] |= fact.Apart(p.Proof)
	}
	a.run(facts)
	out := store.Assembly{
		Messages: a.messages, Decisions: a.decisions, Attribution: make([]store.Attribution, len(facts)),
	}
	for _, n := range a.nodes {
		n.attribution.UsageProof = n.usageProof()
		out.Attribution[n.at] = n.attribution
		if f := &facts[n.at]; f.Kind == fact.Turn && f.TurnID+f.SubagentID+f.Subagent == "" {
			resumes, _ := n.resumes()
			out.Attribution[n.at].Resumes = len(resumes) > 0
		}
	}
	for _, n := range a.events {
		// What an event reports is part of its start's fact, which reports it of the session's row.
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
		for _, t := range s.turns {
			a.reportTurn(t)
		}
		a.reportCompactions(s)
		a.reportNotes(s)
	}
	// Which facts have rows is known only now, and facts without rows report nothing of a session.
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

// place attributes a node to rows. The first message that it is attributed to is the one that it describes; others,
// such as the user's message of a turn's span, follow. By its attribution a row is deleted when a rebuild gives it no
// more.
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

// byTwo reports whether two instrumentations may report one call by the two facts. The scope or a span's name shows who
// made it: that of some ends in the model, so that the first word counts.
//
// An agent framework and the library of its provider have a span each for one request. One instrumentation, with one
// dialect, scope and first word, reports two requests by two spans, however close they are in time.
func byTwo(x, y *fact.Fact) bool {
	mine, _, _ := strings.Cut(x.Name, " ")
	theirs, _, _ := strings.Cut(y.Name, " ")
	return x.Dialect != y.Dialect || x.Scope != y.Scope || mine != theirs
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

// counterOf names who counted a usage, "" where it is known how.
func counterOf(u *fact.Usage, dialect string) string {
	if u == nil || u.Stated == nil {
		return ""
	}
	return dialect + " " + u.Counter
}

// prove notes what the counts of a call prove of each other. Without it the framework's count of the example would
// come to 104 tokens in place of 128: the cache would be taken for a part of the input.
func (c *call) prove() {
	for _, n := range c.nodes {
		if counterOf(n.Usage, n.Dialect) == "" || n.Usage.Stated.Input == nil {
			continue
		}
		s := n.Usage.Stated
		cache := s.CacheRead + s.CacheWrite
		if cache != 0 && slices.ContainsFunc(c.nodes, func(o *node) bool {
			return o.Usage != nil && o.Usage.Stated == nil && inputOf(o.Usage) == *s.Input+cache
		}) {
			n.proof |= fact.CacheApart
		}
	}
}

// inputOf counts the tokens that a model was given, with those from the cache.
func inputOf(u *fact.Usage) int64 { return u.Tokens.Input + u.Tokens.CacheRead + u.Tokens.CacheWrite }

// agreeOnOutput reports whether two counts may be of one call: the model's answer has as many tokens, with the
// reasoning. Where it is not known whether that is counted apart, it may be either way, whatever has been proven
// since: which spans are one call must not change with what another turn proves.
func agreeOnOutput(x, y *fact.Usage) bool {
	xs, ys := outputsOf(x), outputsOf(y)
	return slices.ContainsFunc(xs, func(n int64) bool { return slices.Contains(ys, n) })
}

func outputsOf(u *fact.Usage) []int64 {
	if s := u.Stated; s != nil {
		within, apart := s.Usage(0).Tokens, s.Usage(fact.ReasoningApart).Tokens
		return []int64{within.Output + within.Reasoning, apart.Output + apart.Reasoning}
	}
	return []int64{u.Tokens.Output + u.Tokens.Reasoning}
}

// usageProof is what the node contributes to what is known of who counts its tokens.
func (n *node) usageProof() store.UsageProof {
	counter := counterOf(n.Usage, n.Dialect)
	if counter == "" {
		return store.UsageProof{}
	}
	return store.UsageProof{Counter: counter, Proof: int64(n.Usage.Proof | n.proof)}
}
