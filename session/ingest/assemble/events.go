package assemble

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// joinEvents makes one node of the spans that report the start and the end of one thing: a program may emit a span for
// each, beside or below the other. Which belong together is not always in their names: calls of one tool that go on
// side by side have one name, and each end the number in which it came. So a result is of the first start that has
// none, of those with its input before the others.
func (a *assembly) joinEvents() {
	groups := make(map[[3]string][]*node)
	for _, n := range a.nodes {
		if n.Event != "" && !n.record {
			key := [3]string{n.TraceID, n.EventOf, string(n.Kind)}
			groups[key] = append(groups[key], n)
		}
	}
	for _, n := range a.nodes {
		key := [3]string{n.TraceID, n.EventOf, string(n.Kind)}
		if group := groups[key]; n.Event != "" && group != nil {
			joinGroup(group)
			delete(groups, key)
		}
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
	var starts, ended, others []*node
	for _, n := range group {
		if n.Event == "start" {
			starts = append(starts, n)
		}
	}
	open := newStarted(starts)
	for _, n := range group {
		switch n.Event {
		case "start":
		case "success", "error":
			n.event = open.take(n)
			ended = append(ended, cmp.Or(n.event, n)) // the start may be lost
		default:
			others = append(others, n)
		}
	}
	unended := slices.DeleteFunc(slices.Clone(starts), func(s *node) bool { return open.taken[s] })
	over, open := newStarted(ended), newStarted(unended)
	for _, n := range others {
		switch {
		case n.Event == "finish":
			n.event = cmp.Or(over.take(n), open.take(n))
		case len(starts) > 0: // something that happened on the way
			i, _ := slices.BinarySearchFunc(starts, n.Start, func(s *node, at int64) int { return cmp.Compare(s.Start, at+1) })
			n.event = starts[max(i-1, 0)]
		}
		if n.event == nil { // nothing is known of what it is an event of
			step := *n.Fact
			step.Kind, n.Fact = fact.Step, &step
		}
	}
	for _, s := range unended {
		if !open.taken[s] {
			unfinished := *s.Fact
			unfinished.Unfinished, s.Fact = true, &unfinished
		}
	}
	joined := make(map[*node]bool)
	for _, n := range group {
		if s := n.event; s != nil && n.Event != "retry" && n.Event != "update" {
			if !joined[s] {
				joined[s] = true
				whole := *s.Fact
				s.Fact = &whole
			}
			joinEvent(s.Fact, n.Fact)
		}
	}
}

// started are starts of one name for which an end is looked for, in order of time.
type started struct {
	all     []*node
	byInput map[string][]*node // of those that report no input under ""
	taken   map[*node]bool
}

func newStarted(all []*node) *started {
	s := &started{all: all, byInput: make(map[string][]*node), taken: make(map[*node]bool)}
	for _, n := range all {
		s.byInput[toolInput(n)] = append(s.byInput[toolInput(n)], n)
	}
	return s
}

// take returns the first start that was not taken yet and may have the end n, nil without one: of those with its input,
// as far as both report it, that are no later, before the others.
func (s *started) take(n *node) *node {
	first := func(list []*node) ([]*node, *node) {
		for len(list) > 0 && s.taken[list[0]] {
			list = list[1:]
		}
		if len(list) == 0 {
			return nil, nil
		}
		return list, list[0]
	}
	var found *node
	s.all, found = first(s.all)
	if input := toolInput(n); input != "" && found != nil {
		var asks, any *node
		s.byInput[input], asks = first(s.byInput[input])
		s.byInput[""], any = first(s.byInput[""])
		if asks == nil || any != nil && any.Start < asks.Start {
			asks = any
		}
		if asks != nil && asks.Start <= n.Start+tick {
			found = asks
		}
	}
	if found != nil {
		s.taken[found] = true
	}
	return found
}

// toolInput returns the input of a call as it is compared, "" where none is reported.
func toolInput(n *node) string {
	if n.Tool == nil || n.Tool.Input == nil {
		return ""
	}
	return string(canonical(n.Tool.Input))
}

// joinEvent adds what an event reports to what is known from others.
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

// fill sets the fields that are empty to those of another.
func fill[T any](s, of *T) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(of).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
}
