// Package assemble makes sessions of facts: it finds which facts report one
// turn, one model call, one tool call, whatever spans and records reported them, and
// writes the messages that they come to.
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
