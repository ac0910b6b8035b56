package assemble

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// This file joins spans that are events. BeeAI, as OpenInference instruments it, has no span that lasts as long as a
// call of a model: it emits one when the call starts, one when it has an answer, one when it is over. The tree is
// built of what they come to, so all that follows knows a call by one span, as with other clients.
//
//	backend.acme.chat.start-1    input      ┐
//	backend.acme.chat.success-1  output     ├─ one call of the model, from the start to the finish
//	backend.acme.chat.finish-1              ┘

// joinEvents makes one node of the spans that report the start and the end of one thing: a program may emit a span
// for each, beside or below the other. Which belong together is not always in their names: calls of one tool that go
// on side by side have one name, and each end the number in which it came. So a result is of the first start that has
// none, of those with its input before the others.
func (a *assembly) joinEvents() {
	groups := make(map[[3]string][]*node)
	for _, n := range a.nodes {
		if n.Event != "" && !n.record {
			key := [3]string{n.TraceID, n.EventOf, string(n.Kind)}
			groups[key] = append(groups[key], n)
		}
	}
	for _, group := range groups {
		joinGroup(group)
	}
	a.nodes = slices.DeleteFunc(a.nodes, func(n *node) bool {
		if n.event == nil {
			return false
		}
		a.events = append(a.events, n)
		a.bySpan[spanKey(n.Fact)] = n.event
		return true
	})
}

// joinGroup joins the events of what has one name, in order of time.
func joinGroup(group []*node) {
	// Results first, because a finish is of what has a result before it is of what has none.
	var starts, ended, others []*node
	for _, n := range group {
		if n.Event == "start" {
			starts = append(starts, n)
		}
	}
	open := started(slices.Clone(starts))
	for _, n := range group {
		switch n.Event {
		case "start":
		case "success", "error":
			n.event = open.take(n)
			ended = append(ended, cmp.Or(n.event, n)) // without its start, which may be lost, the end is the call
		default:
			others = append(others, n)
		}
	}
	over := started(ended)
	for _, n := range others {
		switch {
		case n.Event == "finish": // comes after a success or an error, and alone where the call came to neither
			n.event = cmp.Or(over.take(n), open.take(n))
		case len(starts) > 0: // something that happened on the way
			i, _ := slices.BinarySearchFunc(starts, n.Start, func(s *node, at int64) int { return cmp.Compare(s.Start, at+1) })
			n.event = starts[max(i-1, 0)] // the last that had begun
		}
		if n.event == nil { // nothing is known of what it is an event of
			n.Kind = fact.Step
		}
	}
	for _, s := range open { // nothing reports how these ended
		s.Unfinished = true
	}
	for _, n := range group {
		if n.event != nil && n.Event != "retry" && n.Event != "update" {
			joinEvent(n.event.Fact, n.Fact)
		}
	}
}

// started are starts of one name for which an end is looked for, in order of time.
type started []*node

// take removes the first start that may have the end n, and returns it, nil without one: of those with its input, as
// far as both report it, that are no later, before the others. Of three calls of one tool that run side by side, the
// one that is done first need not be the one that was started first: each would have the output of another.
func (s *started) take(n *node) *node {
	if len(*s) == 0 {
		return nil
	}
	with := func(input string) int {
		return slices.IndexFunc(*s, func(o *node) bool { return toolInput(o) == input })
	}
	at := 0
	if input := toolInput(n); input != "" {
		same, unknown := with(input), with("")
		if same < 0 || unknown >= 0 && (*s)[unknown].Start < (*s)[same].Start {
			same = unknown
		}
		if same >= 0 && (*s)[same].Start <= n.Start+tick {
			at = same
		}
	}
	found := (*s)[at]
	*s = slices.Delete(*s, at, at+1)
	return found
}

// toolInput returns the input of a call as it is compared, "" where none is reported: an end need not repeat it.
func toolInput(n *node) string {
	if n.Tool == nil || n.Tool.Input == nil {
		return ""
	}
	return string(canonical(n.Tool.Input))
}

// joinEvent adds what an event reports to what is known from others. Of two inputs the first is kept, with the counts
// of what is before it: the end may repeat a conversation that has the answer already.
func joinEvent(f, event *fact.Fact) {
	more := *event
	if len(f.Input) > 0 || f.History > 0 {
		more.Input, more.History, more.Before, more.BeforeTurns = nil, 0, 0, 0
	}
	f.End, f.Problems = max(f.End, event.End), slices.Concat(f.Problems, event.Problems)
	if f.Tool != nil && event.Tool != nil {
		tool := *f.Tool
		fill(&tool, event.Tool)
		f.Tool = &tool
	}
	fill(f, &more)
}

// fill sets the fields that are empty to those of another. It goes by reflection, so that a new field of a fact needs
// no line here.
func fill[T any](s, of *T) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(of).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}
