package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// NoticesOf returns what is doubtful in the session of in. Its Now and IdleTimeout decide whether it is still at work:
// see [StatusOf].
func NoticesOf(in Input) []session.Notice {
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
	found = append(found, doc.misplaced(in)...)
	found = append(found, twins(in)...)
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
	doc.Quality = qualityOf(&in.Transcript.Session, in.Missing, doc.Status.State)
}

// qualityOf is the quality of a session of which so much is missing. What still goes on is not missing.
func qualityOf(row *session.Session, missing map[string]int64, does Activity) *session.Quality {
	if missing == nil {
		return nil
	}
	q := &session.Quality{Missing: maps.Clone(missing)}
	if does == ActivityBusy || does == ActivityRetrying || does.Waiting() {
		delete(q.Missing, "ends")
		delete(q.Missing, "results")
	}
	trace := gjson.Get(row.MetadataJSON, "agenttrace")
	dialect := trace.Get("dialect").String()
	// A session whose id is that of its trace has no key that names it.
	if dialect != "" && dialect != store.DialectSDK && trace.Get("session_key").String() == "" && row.ParentID == nil {
		q.Inferred = append(q.Inferred, "session")
	}
	if dialect == ReadingGeneric {
		q.Inferred = append(q.Inferred, "reading")
	}
	q.Complete = len(q.Missing) == 0
	return q
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
			found = append(found, spanNotice("attributed", l, "the %s of span %s belongs to no message", what, l.SpanID))
		}
	}
	return found
}

// spanNotice is a notice about a span.
func spanNotice(rule string, l *store.SpanRef, format string, args ...any) session.Notice {
	n := session.NewNotice(rule, fmt.Sprintf(format, args...))
	n.TraceID, n.SpanID, n.SpanKind = l.TraceID, l.SpanID, l.Kind
	return n
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

// misplaced finds what other agents reported of messages that are not there, turns without a prompt among turns that
// have one, and messages that two turns are in: each has an outermost span in a trace of its own, and was over before
// the other began. A call that waited for an approval goes on in a second one.
func (doc *Document) misplaced(in Input) (found []session.Notice) {
	there := make(map[string]bool)
	asked := 0
	for t, m := range doc.Messages() {
		there[m.ID] = true
		if m.Role == session.RoleUser && m == t.Messages[0] {
			asked++
		}
	}
	for _, m := range doc.Queued {
		there[m.ID] = true
	}
	for i := range in.Transcript.Messages {
		there[in.Transcript.Messages[i].Message.ID] = true
	}
	lost, root := make(map[string]bool), make(map[string]*store.SpanRef)
	telemetry := false
	for i := range in.SpanRefs {
		l := &in.SpanRefs[i]
		if l.Dialect == store.DialectSDK {
			continue
		}
		telemetry = true
		if id := l.MessageID; id != "" && !there[id] && !lost[id] {
			lost[id] = true
			found = append(found, spanNotice("attributed", l, "the message %s of span %s is not there", id, l.SpanID))
		}
		if l.Kind != "session.turn" || l.ParentSpanID != "" || l.MessageID == "" {
			continue
		}
		if first := root[l.MessageID]; first != nil && first.TraceID != l.TraceID && first.EndNano <= l.StartNano &&
			!slices.ContainsFunc(in.Decisions, func(d store.Decision) bool { return d.MessageID == l.MessageID }) {
			n := spanNotice("turns", l, "the message has two turns, each with an outermost span of its own")
			n.MessageID = l.MessageID
			found = append(found, n)
		}
		root[l.MessageID] = l
	}
	if !telemetry || asked == 0 || doc.Session.Origin != nil {
		return found
	}
	for _, t := range doc.Turns {
		if m := t.unasked(); m != nil {
			n := session.NewNotice("turns", "an answer has no prompt, and other turns have one")
			n.MessageID = m.ID
			found = append(found, n)
		}
	}
	return found
}

// unasked is the turn's last answer, neither hidden nor a compaction, that follows another or nothing. What a program
// writes, such as that a sub-agent has finished, the model may answer without a prompt of the user's.
func (t *Turn) unasked() (found *Message) {
	answered := true
	for _, m := range t.Messages {
		isAnswer := m.Role == session.RoleAssistant && m.HiddenAt == nil && m.Compaction == nil
		if isAnswer && answered {
			found = m
		}
		answered = isAnswer || answered && m.Role == session.RoleAssistant
	}
	return found
}

// twins finds children that no tool call names and that used what one did which is named, at the same time.
func twins(in Input) (found []session.Notice) {
	for i := range in.Children {
		c := &in.Children[i]
		if c.TotalTokens == 0 || mentions(in.Transcript, c.ID) {
			continue
		}
		for k := range in.Children {
			if o := &in.Children[k]; o.ID != c.ID && o.Usage() == c.Usage() && o.CreatedAt <= c.UpdatedAt &&
				c.CreatedAt <= o.UpdatedAt && (mentions(in.Transcript, o.ID) || o.ID < c.ID) {
				found = append(found, session.NewNotice("once", fmt.Sprintf("the children %s and %s used the same at the "+
					"same time, and no tool call names the first", c.ID, o.ID)))
				break
			}
		}
	}
	return found
}
