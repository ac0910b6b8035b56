package assemble

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// restore puts calls that were lost between those that are known: their answers
// are in the input of later ones. from is where the window begins, ahead
// are the facts that come after it.
func (t *turn) restore(calls []*call, from int64, ahead []fact.Fact) (restored []*call, lost bool) {
	var asked []fact.Message
	before := 0 // calls from it on are not part of the input
	for i, c := range calls {
		for _, n := range c.nodes {
			if given := answersIn(n.Input); len(given) > 0 {
				asked, before = given, i
			}
		}
	}
	for _, r := range t.roots {
		if given := answersIn(r.Input); len(given) > 0 && len(asked) == 0 && len(calls) > 0 {
			asked = given
		}
	}
	for i := range ahead {
		if given := answersIn(ahead[i].Input); len(given) > 0 && t.answers(calls, given) {
			asked, before = given, len(calls)
		}
	}
	if rest, known := t.unrepeated(asked); known {
		asked = rest
	} else {
		asked = nil // nothing shows which of it earlier windows have reported
	}
	next := 0
	for i := range asked {
		m := &asked[i]
		for next < before && calls[next].blank() {
			restored = append(restored, calls[next]) // failed, and reported nothing
			next++
		}
		if next < before && calls[next].given(m) {
			calls[next].complete(m)
			restored = append(restored, calls[next])
			next++
			continue
		}
		if slices.ContainsFunc(calls[:before], func(c *call) bool { return c.given(m) }) {
			continue // reported in another order: nothing is lost
		}
		// Several messages in a row were joined: the supervisor of LangGraph appends one of its
		// own to the answer of the agent that it called.
		rest := *m
		for next < before && calls[next].saidAlone(&rest) {
			restored, rest.Parts = append(restored, calls[next]), rest.Parts[1:]
			next++
		}
		if len(rest.Parts) == 0 {
			continue
		}
		c := guess(rest.Parts, max(t.start, from), restored, calls[next:])
		if c.appended = len(rest.Parts) < len(m.Parts) && t.ranNone(rest.Parts); !c.appended {
			lost = true
		}
		restored = append(restored, c)
	}
	return append(restored, calls[next:]...), lost
}

// guess is a call that was made after those before it, and before the tools that it requested ran.
func guess(output []fact.Part, at int64, before, after []*call) *call {
	if len(before) > 0 {
		at = max(at, before[len(before)-1].end)
	}
	if len(after) > 0 {
		at = min(at, after[0].start)
	}
	return &call{start: at, end: at, output: output, guessed: true}
}

// ranNone reports whether the parts request tools and none of those ran, where the turn
// reports which did: then no model requested them. The supervisor of LangGraph appends the
// call of a tool that hands back, with its result, and executes nothing.
func (t *turn) ranNone(parts []fact.Part) bool {
	ran := func(p fact.Part) bool {
		if p.Kind != fact.PartCall {
			return false
		}
		c := t.resumed
		return c != nil && (hasMark(c.Closed, p.CallID) ||
			slices.ContainsFunc(c.Open, func(o openCall) bool { return o.ID == p.CallID })) ||
			slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Kind == fact.ToolCall && n.CallID == p.CallID })
	}
	return t.executes() && has(parts, fact.PartCall) && !slices.ContainsFunc(parts, ran)
}

// executes reports whether a tool of the turn is known to have run by its call's id.
func (t *turn) executes() bool {
	return t.resumed != nil && t.resumed.Executes ||
		slices.ContainsFunc(t.nodes, func(n *node) bool { return n.Kind == fact.ToolCall && n.CallID != "" })
}

// saidAlone reports whether the call answered with a text alone, and the message begins
// with it.
func (c *call) saidAlone(m *fact.Message) bool {
	return len(m.Parts) > 1 && m.Parts[0].Kind == fact.PartText && len(c.output) > 0 && !has(c.output, fact.PartCall) &&
		c.given(&fact.Message{Parts: m.Parts[:1]})
}

// answers reports whether one of the messages is an answer of the turn: of a call, or
// one that requested a tool that ran in it.
func (t *turn) answers(calls []*call, given []fact.Message) bool {
	if t.resumed != nil {
		if _, known := t.unrepeated(given); known {
			return true
		}
	}
	ran := make(map[string]bool)
	for _, n := range t.nodes {
		if n.Kind == fact.ToolCall && n.CallID != "" {
			ran[n.CallID] = true
		}
	}
	return slices.ContainsFunc(given, func(m fact.Message) bool {
		return slices.ContainsFunc(calls, func(c *call) bool { return len(c.output) > 0 && c.given(&m) }) ||
			slices.ContainsFunc(m.Parts, func(p fact.Part) bool { return p.Kind == fact.PartCall && ran[p.CallID] })
	})
}

// answersIn returns the model's messages after the user's last one. Some interfaces
// have a message for the text of an answer and for each of its calls: those that
// nothing else is between are one answer.
func answersIn(input []fact.Message) []fact.Message {
	var given []fact.Message
	open := false
	for _, m := range input {
		switch {
		case m.Role == "user":
			given, open = nil, false
		case m.Role == "assistant" && len(m.Parts) > 0 && open:
			last := &given[len(given)-1]
			last.Parts = slices.Concat(last.Parts, m.Parts)
		case m.Role == "assistant" && len(m.Parts) > 0:
			given, open = append(given, m), true
		default:
			open = false
		}
	}
	return given
}

// blank reports that the call came to nothing.
func (c *call) blank() bool { return len(c.output) == 0 && c.failed() != "" }

// complete adds what another account has of the answer, such as a later request that
// repeats it: the tool calls of an answer that has text, or its reasoning, which Strands
// leaves out of the span of the call.
func (c *call) complete(m *fact.Message) {
	if len(c.output) == 0 {
		if has(m.Parts, fact.PartCall) {
			c.output = m.Parts
		}
		return
	}
	var first, last []fact.Part
	reasoned, called := has(c.output, fact.PartReasoning), has(c.output, fact.PartCall)
	for _, p := range m.Parts {
		switch {
		case p.Kind == fact.PartReasoning && !reasoned:
			first = append(first, p)
		case p.Kind == fact.PartCall && !called:
			last = append(last, p)
		}
	}
	if len(first)+len(last) > 0 {
		c.output = slices.Concat(first, c.output, last)
	}
}

// has reports whether a part is of the kind.
func has(parts []fact.Part, kind string) bool {
	return slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == kind })
}

// given reports whether the message is the call's answer. For a call whose answer
// no source reports, it is assumed to be.
func (c *call) given(m *fact.Message) bool {
	if len(c.output) == 0 {
		return true
	}
	ids := func(parts []fact.Part) (ids []string) {
		for i := range parts {
			if parts[i].Kind == fact.PartCall {
				ids = append(ids, cmp.Or(parts[i].CallID, parts[i].Name))
			}
		}
		return ids
	}
	mine, theirs := ids(c.output), ids(m.Parts)
	if len(mine) == 0 && textOf(m.Parts) != "" &&
		strings.TrimSpace(textOf(c.output)) == strings.TrimSpace(textOf(m.Parts)) {
		return true // some instrumentations do not report the calls of an answer that has text
	}
	if len(mine) > 0 || len(theirs) > 0 {
		return slices.ContainsFunc(theirs, func(id string) bool { return slices.Contains(mine, id) })
	}
	x, y := strings.TrimSpace(textOf(c.output)), strings.TrimSpace(textOf(m.Parts))
	return x == y || strings.HasPrefix(y, x) || strings.HasPrefix(x, y)
}
