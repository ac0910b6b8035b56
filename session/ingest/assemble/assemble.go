// Package assemble makes sessions of facts: it finds which facts report one
// turn, one model call, one tool call, whatever spans and records reported them, and
// writes the messages that they come to.
//
// It is a function of the facts alone. A fact that arrives later is not added to
// what is there: the window of the session that it belongs to is rebuilt. A long
// turn has several windows; see [Windows].
package assemble

import (
	"cmp"
	"math"
	"slices"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Assemble reports what the facts of a window of the session owner come to. The
// order of the facts has no meaning; attributions are in their order.
func Assemble(owner string, facts []fact.Fact) store.Assembly {
	out, _ := Windows{Owner: owner, Facts: facts}.Assemble()
	return out
}

// run assembles the facts of one window. It reports false when the window cannot
// end where it was to: more facts must be added then.
func (a *assembly) run(around, facts []fact.Fact) bool {
	// Each stage needs the one before it: a span that was made for side calls only is found by the calls of its own
	// session, and what has another purpose than the conversation is in none of its turns.
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
				// The id of a message is made from the time at which it begins. If the window ended before
				// that, the next one would give the message another id.
				if !a.forced {
					return false
				}
				t.open = false
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
	// forced reports that the window ends here even if a turn has not begun to be reported: that turn ends too.
	forced bool
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
