package assemble

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// This file settles what each request to a model asked, before turns are looked for: a turn begins with what is new
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
		slices.SortStableFunc(news, func(x, y fact.Message) int {
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

// messageKey is what a message is known by in the requests that repeat it: all of it but for its id and the blanks
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

// bound leaves out of what a request asks the prompts that earlier requests of other traces ended with: the answers
// that were between them are not in every history, and a call that failed has none.
//
//	trace 1   user "One"                             asks "One"
//	trace 2   user "One", user "Two"                 asks "Two"
//
// Within one trace the same prompt again is a further step of the turn, or a retry.
func (a *assembly) bound() {
	type asked struct {
		trace, prompt string
		failed        bool
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
		// The longest prefix of what is asked that was asked before. Where the history is cut (History > 0), what it ends
		// with is new, unless the call that was asked it failed.
		known := start
		for i := end - 1; i > start && known == start; i-- {
			prefix := textOf(fact.PartsOf(n.Input[start:i]))
			if slices.ContainsFunc(before, func(b asked) bool {
				return b.trace != n.TraceID && b.prompt == prefix && (b.failed || n.History == 0)
			}) {
				known = i
			}
		}
		before = append(before, asked{n.TraceID, textOf(fact.PartsOf(n.Input[start:end])), n.Failed})
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
