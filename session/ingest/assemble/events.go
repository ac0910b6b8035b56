package assemble

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// joinEvents makes one node of the spans that report the start and the end of one thing: a program may emit a span for
// each, beside or below the other. Which belong together is not always in their names: calls of one tool that go on side
// by side have one name, and each end the number in which it came. So a result is of the first start that has none, of
// those with its input before the others.
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
	starts := make([]*node, 0, len(group))
	ended, over := make(map[*node]bool), make(map[*node]bool)
	for _, n := range group {
		if n.Event == "start" {
			starts = append(starts, n)
		}
	}
	open := func(n *node, is func(*node) bool) *node {
		i := slices.IndexFunc(starts, func(s *node) bool { return s.Start <= n.Start+tick && is(s) && asksFor(s, n) })
		if i < 0 {
			i = slices.IndexFunc(starts, is)
		}
		if i < 0 {
			return nil
		}
		return starts[i]
	}
	for _, n := range group {
		if n.Event == "success" || n.Event == "error" {
			if n.event = open(n, func(s *node) bool { return !ended[s] }); n.event == nil {
				starts = append(starts, n) // the start was lost
			}
			ended[cmp.Or(n.event, n)] = true
		}
	}
	for _, n := range group {
		switch {
		case n.event != nil || slices.Contains(starts, n):
			continue
		case n.Event == "finish":
			n.event = cmp.Or(open(n, func(s *node) bool { return ended[s] && !over[s] }),
				open(n, func(s *node) bool { return !over[s] }))
			over[n.event] = true
		default: // something that happened on the way
			n.event = open(n, func(s *node) bool { return s.End >= n.Start || !ended[s] })
		}
		if n.event == nil { // nothing is known of what it is an event of
			step := *n.Fact
			step.Kind, n.Fact = fact.Step, &step
		}
	}
	for _, s := range starts {
		joined := *s.Fact
		for _, n := range group {
			if n.event == s && n.Event != "retry" && n.Event != "update" {
				joinEvent(&joined, n.Fact)
			}
		}
		joined.Unfinished = joined.Unfinished || !ended[s] && !over[s]
		s.Fact = &joined
	}
}

// asksFor reports whether the start and the end of a call have the same input, as far as both report it.
func asksFor(start, end *node) bool {
	return start.Tool == nil || end.Tool == nil || start.Tool.Input == nil || end.Tool.Input == nil ||
		bytes.Equal(canonical(start.Tool.Input), canonical(end.Tool.Input))
}

// joinEvent adds what an event reports to what is known from others.
func joinEvent(f, event *fact.Fact) {
	f.End = max(f.End, event.End)
	f.Failed, f.Aborted = f.Failed || event.Failed, f.Aborted || event.Aborted
	f.Error, f.ErrorType = cmp.Or(f.Error, event.Error), cmp.Or(f.ErrorType, event.ErrorType)
	f.Finish, f.ResponseID = cmp.Or(f.Finish, event.Finish), cmp.Or(f.ResponseID, event.ResponseID)
	f.Model, f.ResponseModel = cmp.Or(f.Model, event.Model), cmp.Or(f.ResponseModel, event.ResponseModel)
	f.Usage, f.CostUSD = cmp.Or(f.Usage, event.Usage), cmp.Or(f.CostUSD, event.CostUSD)
	f.CallID, f.RequestID = cmp.Or(f.CallID, event.CallID), cmp.Or(f.RequestID, event.RequestID)
	if len(f.Input) == 0 && f.History == 0 {
		f.Input, f.History, f.Before, f.BeforeTurns = event.Input, event.History, event.Before, event.BeforeTurns
	}
	if len(f.Output) == 0 {
		f.Output = event.Output
	}
	f.Problems = append(slices.Clip(f.Problems), event.Problems...)
	switch {
	case event.Tool == nil:
	case f.Tool == nil:
		f.Tool = event.Tool
	default:
		t := *f.Tool
		t.Name, t.Succeeded, t.Denied = cmp.Or(t.Name, event.Tool.Name), t.Succeeded || event.Tool.Succeeded,
			t.Denied || event.Tool.Denied
		if t.Input == nil {
			t.Input = event.Tool.Input
		}
		if t.Output == nil {
			t.Output = event.Tool.Output
		}
		f.Tool = &t
	}
}
