package assemble

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// What each request to a model asked is settled before turns are looked for: a turn begins with what is new
// in a request, so a request that piles up earlier prompts would make one long message of the user, and one without
// any would be part of the turn before. Three passes: gather puts together what records report message by message
// (ADK, OpenTelemetry's instrumentation of OpenAI), summarize gives spans without content what is asked below them,
// and bound cuts what earlier requests had asked already.

// request is the conversation that a model was given, whose messages records report one by one.
type request struct {
	all  []fact.Message // in the order in which they were written, oldest first
	keys []string       // of each the [messageKey]
	// start is where what was asked in it begins.
	start int
}

// manyRequests bounds how many requests are looked back at for the one that another goes on: agents that work side by
// side have conversations of their own, and more than a few of them are rare.
const manyRequests = 8

// gather joins the messages that records report one by one into the conversations of the calls' inputs, in order of
// time. Clocks that count milliseconds give all messages of a request one time, and each may have been delivered by
// itself. But a conversation grows: what an earlier request has comes first, in the order that it had there.
//
//	chat 1   user "One"                                       asks "One"
//	chat 2   assistant "1", user "Two", user "One"  (shuffled)
//	         = user "One" | assistant "1", user "Two"         asks "Two"
//
// Without it the second message of the user would be "Two One", in an order that changes with each delivery.
func (a *assembly) gather() {
	var before []*request
	for _, n := range a.nodes {
		if n.Kind != fact.ModelCall || n.record || len(n.Input) > 0 {
			continue
		}
		r := new(request)
		var pieces []*node
		for _, k := range n.kids {
			if k.record && k.Kind == fact.ModelCall && len(k.Input) > 0 {
				r.all = append(r.all, k.Input...)
				pieces = append(pieces, k)
			}
		}
		if len(pieces) == 0 {
			continue
		}
		r.order(before)
		before = append(before, r)
		if len(before) > manyRequests {
			before = before[1:]
		}
		if len(pieces) < 2 {
			continue // what one record reports is complete
		}
		n.Input, n.History = r.all[r.start:], r.start
		n.CountBefore(r.all)
		if pieces[0].OnePrompt {
			n.SplitPrompts()   // ADK: prompts of turns that failed come before the one that is asked
			n.Unanswered = nil // records report them as well
		}
		for _, k := range pieces {
			k.Input = nil
		}
	}
}

// order puts the messages in order by the longest of the earlier requests that this one goes on, and finds where what
// was asked begins. A prompt that an earlier request ended with, and that nothing answered, is not asked again: it
// has a turn of its own, which failed.
func (r *request) order(before []*request) {
	for i := range r.all {
		r.keys = append(r.keys, messageKey(&r.all[i]))
	}
	var prefix *request
	var more []int // the messages that it does not have
	for _, p := range before {
		if rest, ok := r.without(p); ok && (prefix == nil || len(p.all) >= len(prefix.all)) {
			prefix, more = p, rest
		}
	}
	if prefix == nil {
		r.start, _ = fact.UserRun(r.all)
		return
	}
	var news []fact.Message
	answers := 0
	for _, i := range more {
		news = append(news, r.all[i])
		answers += truth(r.all[i].Role == "assistant")
	}
	// An answer, the results of its tools, what the user writes then. With two answers, calls were lost between the
	// two requests, and only the order of arrival remains.
	if answers <= 1 {
		rank := []string{"assistant", "tool", "user"}
		news = session.SortedRows(news, func(x, y *fact.Message) int {
			return cmp.Compare(slices.Index(rank, x.Role), slices.Index(rank, y.Role))
		})
	}
	r.all, r.start = slices.Concat(prefix.all, news), prefix.start
	if slices.ContainsFunc(news, func(m fact.Message) bool { return m.ByUser() }) {
		// What the user wrote now follows an answer, or the prompt that the earlier request ended with and that came to
		// nothing: that is another turn's.
		r.start, _ = fact.UserRun(r.all)
		r.start = max(r.start, len(prefix.all))
	}
}

// without returns, as indexes, which messages are not those of an earlier request, and whether that has no others.
func (r *request) without(p *request) (rest []int, ok bool) {
	given := make(map[string]int, len(p.keys))
	for _, key := range p.keys {
		given[key]++
	}
	for i, key := range r.keys {
		if given[key] > 0 {
			given[key]--
		} else {
			rest = append(rest, i)
		}
	}
	return rest, len(r.keys)-len(rest) == len(p.keys)
}

// messageKey identifies a message in the requests that repeat it: it is all of it except its id and the blanks
// around its text.
func messageKey(m *fact.Message) string {
	parts := slices.Clone(m.Parts)
	for i := range parts {
		parts[i].Text = strings.TrimSpace(parts[i].Text)
	}
	key, _ := json.Marshal(fact.Message{Role: m.Role, Parts: parts})
	return string(key)
}

// summarize finds the spans that report a model and what its calls used, and have no messages, above those of the
// calls: they ask what the first of these was asked. One above several calls is not a call but the turn of them, as
// with TanStack AI.
//
//	chat gpt  usage 20/4, failed          a turn, which failed
//	├─ chat gpt  user "One" → call        its calls
//	└─ chat gpt  … → error
//
// Such a span has no input by which it would begin a turn: it went into the turn before, and its failure with it.
func (a *assembly) summarize() {
	for _, n := range a.nodes {
		if n.Kind != fact.ModelCall || n.record || len(n.Input) > 0 || len(n.Output) > 0 ||
			n.above(fact.Turn, fact.ModelCall, fact.ToolCall) != nil {
			continue
		}
		below := n.callsBelow(nil)
		i := slices.IndexFunc(below, func(k *node) bool { return len(k.Input) > 0 })
		if i < 0 {
			continue
		}
		n.Input, n.History = below[i].Input, below[i].History
		if len(below) > 1 {
			n.Kind = fact.Turn
		}
	}
}

// unwrap makes steps of the spans of workflows that report no words of their own, above agents that were asked
// different things: with one turn for all, only the first message would be stored.
func (a *assembly) unwrap() {
	for _, n := range slices.Backward(a.nodes) { // one workflow may be within another
		if n.Kind != fact.Turn || n.record || n.Agent != "" || len(n.Input) > 0 {
			continue
		}
		asked, answered := make(map[string]bool), len(n.Output) == 0
		for _, k := range n.work(nil)[1:] {
			answered = answered || textOf(k.Output) == textOf(n.Output)
			below := k.work(nil)
			if i := slices.IndexFunc(below, func(w *node) bool { return words(w.Fact) != "" }); i >= 0 &&
				k.Kind == fact.Turn && !k.RequiresTurn && k.above(fact.Turn, fact.ToolCall) == n {
				asked[words(below[i].Fact)] = true
			}
		}
		if len(asked) > 1 && answered {
			n.Kind = fact.Step
		}
	}
}

// bound leaves out of what a request asks the prompts that earlier requests of other turns ended with: the answers
// that were between them are not in every history, and a call that failed has none.
//
//	trace 1   user "One"                             asks "One"
//	trace 2   user "One", user "Two"                 asks "Two"
//
// Within one trace the same prompt again is a further step of the turn, or a retry, unless each is below a turn of its
// own.
func (a *assembly) bound() {
	type asked struct {
		turn   [2]string // its trace, and the span of the turn within that
		prompt string
		failed bool
	}
	var before []asked
	for _, n := range a.nodes {
		if n.Kind != fact.Turn && n.Kind != fact.ModelCall || n.record {
			continue
		}
		start, end := fact.UserRun(n.Input)
		if start == end {
			continue
		}
		turn := [2]string{n.TraceID}
		if above := cmp.Or(n.above(fact.Turn), n); above.Kind == fact.Turn {
			turn[1] = above.SpanID
		}
		apart := func(b asked) bool { return b.turn != turn || turn[1] == "" }
		latest := "" // what the request before ended with
		for _, b := range slices.Backward(before) {
			if apart(b) {
				latest = b.prompt
				break
			}
		}
		// The longest prefix of what is asked that was asked before. Where the history has answers (History > 0), what it
		// ends with is new, unless it begins with what the request before asked, which was then not answered, or with
		// what a call that failed was asked.
		prompt, size, known, wasAsked := textOf(fact.PartsOf(n.Input[start:end])), 0, start, false
		for i := start + 1; i < end; i++ {
			shorter := size
			for _, p := range n.Input[i-1].Parts {
				if p.Kind == fact.PartText {
					size += min(size, 1) + len(p.Text) // as textOf joins them
				}
			}
			if prefix := prompt[:size]; i == start+1 || size > shorter {
				wasAsked = slices.ContainsFunc(before, func(b asked) bool {
					return apart(b) && b.prompt == prefix && (b.failed || n.History == 0 || prefix == latest)
				})
			}
			if wasAsked {
				known = i
			}
		}
		before = append(before, asked{turn, prompt, n.Failed})
		if len(before) > manyRequests {
			before = before[1:]
		}
		if known > start {
			n.Input = slices.Concat(n.Input[:start], n.Input[known:])
			n.History += known - start
		}
	}
}

// callsBelow adds the spans of model calls below n, those below other calls or tools left out.
func (n *node) callsBelow(all []*node) []*node {
	for _, k := range n.kids {
		switch {
		case k.record || k.Kind == fact.ToolCall || k.Kind == fact.Turn:
		case k.Kind == fact.ModelCall:
			all = append(all, k)
		default:
			all = k.callsBelow(all)
		}
	}
	return all
}

// What was lost of a turn's calls is found here, too. A request repeats what the model answered before, so a call whose
// span never came is known from the next one's input, where dialects report it:
//
//	chat 1  "Fix it"                             → call c1
//	   (lost)                                    → call c2
//	chat 3  "Fix it", call c1, result, call c2…  → "Fixed."
//
// The session then shows c2 in its place, and the turn is marked as incomplete, for its tokens are not known.

// restore puts calls that were lost between those that are known: their answers are in the input of later ones.
func (t *turn) restore(calls []*call) (restored []*call, lost bool) {
	var asked []fact.Message
	before := 0 // calls from it on are not part of the input
	for i, c := range calls {
		for _, n := range c.nodes {
			if given := answersIn(n.Input); len(given) > 0 {
				asked, before = goOn(asked, given, n.History > 0 && len(n.Input) > manyRepeated), i
			}
		}
	}
	for _, r := range t.roots {
		// A graph's state is in its root only, and is the only history where the calls report no input.
		if given := answersIn(r.Input); len(given) > 0 && len(asked) == 0 && len(calls) > 0 {
			asked = given
		}
	}
	next := 0
	for i := range asked {
		m := &asked[i]
		for next < before && calls[next].blank() {
			restored = append(restored, calls[next]) // failed, and reported nothing
			next++
		}
		if next < before && calls[next].given(m) {
			calls[next].complete(m, calls) // the history may have what the call's own span leaves out
			restored = append(restored, calls[next])
			next++
			continue
		}
		// Histories may have another order than the calls: those of calls that were made side by side, or begun within
		// one millisecond.
		if slices.ContainsFunc(calls[:before], func(c *call) bool { return c.given(m) }) {
			continue // nothing is lost
		}
		// Several messages in a row were joined: the supervisor of LangGraph appends one of its own to the answer of the
		// agent that it called. As one message it fits no call, and the answer would be in the session twice.
		rest := *m
		for next < before && calls[next].saidAlone(&rest) {
			restored, rest.Parts = append(restored, calls[next]), rest.Parts[1:]
			next++
		}
		c := guess(rest.Parts, t.start, restored, calls[next:])
		if c.appended = len(rest.Parts) < len(m.Parts) && t.ranNone(rest.Parts); !c.appended {
			lost = true
		}
		restored = append(restored, c)
	}
	return append(restored, calls[next:]...), lost
}

// manyRepeated is how many messages a request repeats at least of which some may have been cut by its dialect: that
// keeps the last 32 KiB of what follows the user's messages. No late request of a long turn has the answers at its
// begin, so a call that was lost there is known from the requests that followed it soon.
const manyRepeated = 48

// goOn returns the answers that a request repeats. Where they were cut, those before are what earlier requests
// repeat.
func goOn(before, given []fact.Message, cut bool) []fact.Message {
	if !cut || len(given) > len(before) {
		return given
	}
	for at, m := range slices.Backward(before) {
		if reflect.DeepEqual(m.Parts, given[0].Parts) {
			return append(before[:at], given...)
		}
	}
	return given
}

// guess is a call of which nothing but the answer is known. It was made after those before it, and before the tools
// that it requested ran.
func guess(output []fact.Part, at int64, before, after []*call) *call {
	if len(before) > 0 {
		at = max(at, before[len(before)-1].end)
	}
	if len(after) > 0 {
		at = min(at, after[0].start)
	}
	return &call{start: at, end: at, output: output, guessed: true}
}

// ranNone reports whether the parts request tools and none of those ran, where the turn reports which did: then no
// model requested them. The supervisor of LangGraph appends the call of a tool that hands back, with its result, and
// executes nothing: taken for a lost call of a model, each turn of such a crew was incomplete.
func (t *turn) ranNone(parts []fact.Part) bool {
	ran, reported := make(map[string]bool), false // by the ids of calls, and whether any is reported
	for _, n := range of(t.nodes, fact.ToolCall) {
		ran[n.CallID], reported = true, reported || n.CallID != ""
	}
	return reported && has(parts, fact.PartCall) &&
		!slices.ContainsFunc(parts, func(p fact.Part) bool { return p.Kind == fact.PartCall && ran[p.CallID] })
}

// saidAlone reports whether the call answered with a text alone, and the message begins with it. What follows in the
// message is then another call's, or the program's own.
func (c *call) saidAlone(m *fact.Message) bool {
	return len(m.Parts) > 1 && m.Parts[0].Kind == fact.PartText && len(c.output) > 0 && !has(c.output, fact.PartCall) &&
		c.given(&fact.Message{Parts: m.Parts[:1]})
}

// answersIn returns the model's messages after the user's last one. Some interfaces have a message for the text of an
// answer and for each of its calls, such as OpenAI's Responses: those that nothing else is between are one answer. As
// OpenLLMetry writes a history, it may have lost the calls of an answer, whose results follow it: what stands in
// their place, "null" for instance, is no text that the model wrote.
func answersIn(input []fact.Message) []fact.Message {
	var given []fact.Message
	open := false
	for i, m := range input {
		switch {
		case m.ByUser():
			given, open = nil, false
		case m.Role == "assistant" && i+1 < len(input) && input[i+1].Role == "tool" && saysNothing(m.Parts):
			open = false
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

// saysNothing reports whether parts are what a program writes for a text that is not there.
func saysNothing(parts []fact.Part) bool {
	return len(parts) == 1 && parts[0].Kind == fact.PartText &&
		slices.Contains([]string{"", "null", "none", "nil", "undefined", "-", "–", "—", "[]", "{}", `""`},
			strings.ToLower(strings.TrimSpace(parts[0].Text)))
}

// blank reports that the call came to nothing. No history has it, so it takes the place before the next answer.
func (c *call) blank() bool { return len(c.output) == 0 && c.failed() != "" }

// complete adds what another account has of the answer, such as a later request that repeats it: the tool calls of an
// answer that has text, or its reasoning, which Strands leaves out of the span of the call; and, if none of the others
// requested them, the tool calls beside the last, which OpenLIT leaves out where Anthropic's answer is streamed.
func (c *call) complete(m *fact.Message, others []*call) {
	if len(c.output) == 0 {
		if has(m.Parts, fact.PartCall) {
			c.output = m.Parts
		}
		return
	}
	if sameCalls(c.output, m.Parts) { // the answer that was streamed has no ids, or no names
		c.output = slices.Clone(c.output)
		known := callsIn(m.Parts)
		for i, p := range callsIn(c.output) {
			p.CallID, p.Name = known[i].CallID, cmp.Or(p.Name, known[i].Name)
		}
	}
	var first, last []fact.Part
	reasoned, called := has(c.output, fact.PartReasoning), has(c.output, fact.PartCall)
	if mine, theirs := requested(c.output), requested(m.Parts); called && len(theirs) > len(mine) {
		lost := slices.DeleteFunc(slices.Clone(theirs), func(id string) bool { return slices.Contains(mine, id) })
		called = len(lost) != len(theirs)-len(mine) || slices.ContainsFunc(others, func(o *call) bool {
			return slices.ContainsFunc(requested(o.output), func(id string) bool { return slices.Contains(lost, id) })
		})
		if !called {
			isCall := func(p fact.Part) bool { return p.Kind == fact.PartCall }
			c.output = slices.DeleteFunc(slices.Clone(c.output), isCall)
		}
	}
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

// requested are the ids of the tool calls among parts, or the names of the tools.
func requested(parts []fact.Part) (ids []string) {
	for _, p := range callsIn(parts) {
		ids = append(ids, cmp.Or(p.CallID, p.Name))
	}
	return ids
}

func callsIn(parts []fact.Part) (calls []*fact.Part) {
	for i := range parts {
		if parts[i].Kind == fact.PartCall {
			calls = append(calls, &parts[i])
		}
	}
	return calls
}

// given reports whether the message is the call's answer. For a call whose answer no source reports, it is assumed to
// be: a client that withholds content in its spans may still repeat it in the next request.
func (c *call) given(m *fact.Message) bool {
	if len(c.output) == 0 {
		return true
	}
	mine, theirs := requested(c.output), requested(m.Parts)
	x, y := strings.TrimSpace(textOf(c.output)), strings.TrimSpace(textOf(m.Parts))
	switch {
	case (len(mine) == 0 || len(theirs) == 0) && x == y && y != "":
		return true // some instrumentations do not report the calls of an answer that has text, or not in the history
	case len(mine) > 0 || len(theirs) > 0:
		return sameCalls(c.output, m.Parts) ||
			slices.ContainsFunc(theirs, func(id string) bool { return slices.Contains(mine, id) })
	}
	return strings.HasPrefix(y, x) || strings.HasPrefix(x, y) // one of the two may be cut
}

// sameCalls reports whether two accounts of an answer have the same calls, of which the first has fewer ids or names.
func sameCalls(x, y []fact.Part) bool {
	return has(x, fact.PartCall) && slices.EqualFunc(callsIn(x), callsIn(y), func(p, q *fact.Part) bool {
		return (p.CallID == "" || p.CallID == q.CallID) && (p.Name == "" || p.Name == q.Name) && q.CallID != "" &&
			bytes.Equal(canonical(p.Input), canonical(q.Input))
	})
}
