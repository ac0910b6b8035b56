package document

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Notices returns what is doubtful in the session with the id.
func (r Reader) Notices(ctx context.Context, id string) ([]session.Notice, error) {
	t, err := r.Transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	links, err := r.Spans(ctx, id)
	now, idleTimeout := r.limits()
	return NoticesOf(t, links, now, idleTimeout), err
}

// NoticesOf returns what is doubtful in a session, of which links are the spans. Now and idleTimeout decide whether it
// is still at work: see [StatusOf].
func NoticesOf(t *session.Transcript, links []store.SpanRef, now time.Time,
	idleTimeout time.Duration) []session.Notice {
	in := Input{Transcript: t, SpanRefs: links, Now: now, IdleTimeout: idleTimeout}
	doc := Build(in)
	doc.FindNotices(in)
	return doc.Notices
}

// FindNotices sets Notices to what is doubtful in the session of in, which the timeline was built from: what
// [session.Notices] finds in its rows, with the turn and the span, and the spans that no message came of. It is not
// doubtful that a turn has not ended which the session is still at work on.
func (doc *Document) FindNotices(in Input) {
	last := 0
	if t := doc.LastTurn(); t != nil {
		last = t.Number
	}
	found := session.Notices(in.Transcript)
	found = append(found, unattributed(in.SpanRefs)...)
	found = append(found, doc.unrecorded()...)
	turns, calls := make(map[string]int), make(map[string]*ToolCall)
	for t, m := range doc.Messages() {
		turns[m.ID] = t.Number
		for p, c := range m.ToolCalls() {
			calls[p.ID] = c
		}
	}
	for i := range found {
		n := &found[i]
		if n.Turn == 0 {
			n.Turn = turns[n.MessageID]
		}
		if n.SpanID != "" {
			continue // there may be as many of them as spans
		}
		if l := reporter(in.SpanRefs, n); l != nil {
			n.TraceID, n.SpanID, n.SpanKind = l.TraceID, l.SpanID, l.Kind
			if c := calls[l.PartID]; c != nil && n.PartID == "" {
				n.PartID, n.ToolCallID, n.Tool = l.PartID, c.CallID, c.Name
			}
		}
	}
	doc.Notices = slices.DeleteFunc(found, func(n session.Notice) bool {
		return n.Rule == "whole" && n.Turn == last && doc.Status.atWork()
	})
}

// reporter returns the span that a notice is about: the one that its detail names, that
// of its part, the one above all others of its message; nil where there is none.
func reporter(links []store.SpanRef, n *session.Notice) *store.SpanRef {
	var best *store.SpanRef
	rank := 0
	for i := range links {
		l := &links[i]
		r := 0
		switch {
		case l.SpanID == "":
		case strings.Contains(n.Detail, l.SpanID):
			r = 4
		case l.PartID != "" && l.PartID == n.PartID:
			r = 3
		case n.MessageID == "" || l.MessageID != n.MessageID:
		case l.Kind == "session.turn":
			r = 2
		default:
			r = 1
		}
		if r > rank {
			best, rank = l, r
		}
	}
	return best
}

// unattributed finds the spans of turns, model calls and tool calls that other agents
// reported and that no message came of.
func unattributed(links []store.SpanRef) []session.Notice {
	var found []session.Notice
	kinds := map[string]string{"session.turn": "turn", "chat": "model call", "tool.call": "tool call"}
	for i := range links {
		l := &links[i]
		if what := kinds[l.Kind]; what != "" && l.MessageID == "" && l.Dialect != store.DialectSDK && l.SpanID != "" {
			n := session.NewNotice("attributed", fmt.Sprintf("the %s of span %s belongs to no message", what, l.SpanID))
			n.TraceID, n.SpanID, n.SpanKind = l.TraceID, l.SpanID, l.Kind
			found = append(found, n)
		}
	}
	return found
}

// unrecorded finds the turns whose requests repeat more than the session has. What a
// sub-agent was given of the conversation is in its parent's session.
func (doc *Document) unrecorded() []session.Notice {
	if o := doc.Session.Origin; o != nil && !o.Fork {
		return nil
	}
	var found []session.Notice
	for _, t := range doc.Turns {
		if t.Unrecorded != nil {
			n := session.NewNotice("history", t.Unrecorded.Text(t.Number))
			n.Turn = t.Number
			for k := range t.Messages {
				if t.Messages[k].history != nil {
					n.MessageID = t.Messages[k].ID
				}
			}
			found = append(found, n)
		}
	}
	return found
}
