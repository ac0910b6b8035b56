package assemble

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// request is the conversation that a model was given, whose messages records report one by one.
type request struct {
	all  []fact.Message // in the order in which they were written, oldest first
	keys []uint64       // digests of them
	// start is where what was asked in it begins.
	start int
}

// manyRequests bounds how many requests are looked back at for the one that another goes on.
const manyRequests = 8

// gather joins the messages that records report one by one into the conversations of the calls' inputs, in order of
// time. Clocks that count milliseconds give all messages of a request one time, and each may have been delivered by
// itself. But a conversation grows: what an earlier request has comes first, in the order that it had there.
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
		asked := *n.Fact
		asked.Input, asked.History = r.all[r.start:], r.start
		asked.CountBefore(r.all)
		if pieces[0].OnePrompt {
			asked.SplitPrompts()
			asked.Unanswered = nil // records report them as well
		}
		n.Fact = &asked
		for _, k := range pieces {
			piece := *k.Fact
			piece.Input = nil
			k.Fact = &piece
		}
	}
}

// order puts the messages in order by the longest of the earlier requests that this one goes on, and finds where what
// was asked begins. A prompt that an earlier request ended with, and that nothing answered, is not asked again.
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
	role := func(i int) string { return r.all[i].Role }
	answers := 0
	for _, i := range more {
		answers += truth(role(i) == "assistant")
	}
	if answers <= 1 { // else calls were lost between the two, and only the order of arrival remains
		rank := []string{"assistant", "tool", "user"}
		slices.SortStableFunc(more, func(i, j int) int {
			return cmp.Compare(slices.Index(rank, role(i)), slices.Index(rank, role(j)))
		})
	}
	all, keys := slices.Clone(prefix.all), slices.Clone(prefix.keys)
	for _, i := range more {
		all, keys = append(all, r.all[i]), append(keys, r.keys[i])
	}
	r.all, r.keys, r.start = all, keys, prefix.start
	if slices.ContainsFunc(all[len(prefix.all):], func(m fact.Message) bool { return m.ByUser() }) {
		r.start, _ = fact.UserRun(all)
		r.start = max(r.start, len(prefix.all))
	}
}

// without returns which messages are not those of an earlier request, and whether that has no others.
func (r *request) without(p *request) (rest []int, ok bool) {
	if len(p.keys) > len(r.keys) {
		return nil, false
	}
	given := make(map[uint64]int, len(p.keys))
	for _, key := range p.keys {
		given[key]++
	}
	common := 0
	for i, key := range r.keys {
		if given[key] > 0 {
			given[key]--
			common++
		} else {
			rest = append(rest, i)
		}
	}
	return rest, common == len(p.keys)
}

var seed = maphash.MakeSeed()

// messageKey is a digest of a message, which the requests that repeat it have as it was.
func messageKey(m *fact.Message) uint64 {
	var b maphash.Hash
	b.SetSeed(seed)
	_, _ = b.WriteString(m.Role)
	for i := range m.Parts {
		p := &m.Parts[i]
		for _, s := range []string{p.Kind, strings.TrimSpace(p.Text), p.CallID, p.Name, p.Error, p.URL} {
			_, _ = b.WriteString(s)
			_ = b.WriteByte(0)
		}
		for _, raw := range [][]byte{p.Input, p.Output, p.Data} {
			_, _ = b.Write(raw)
			_ = b.WriteByte(0)
		}
	}
	return b.Sum64()
}

// summarize finds the spans that report a model and what its calls used, and have no messages, above those of the
// calls: they ask what the first of these was asked. One above several calls is not a call but the turn of them.
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
		summary := *n.Fact
		summary.Input, summary.History = below[i].Input, below[i].History
		if len(below) > 1 {
			summary.Kind = fact.Turn
		}
		n.Fact = &summary
	}
}

// bound leaves out of what a request asks the prompts that earlier requests of other traces ended with: the answers
// that were between them are not in every history, and a call that failed has none.
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
		// The longest prefix of what is asked that was asked before.
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
			newest := *n.Fact
			newest.Input = slices.Concat(n.Input[:start], n.Input[known:])
			newest.History += known - start
			n.Fact = &newest
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
