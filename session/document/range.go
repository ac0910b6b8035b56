package document

import (
	"context"
	"fmt"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// LoadRange reads turns of the session with the id, and what they refer to, as [Document.Between] does of the whole
// document. It hardly costs more in a long session than in a short one: of all that it does not read, the totals are
// only the number of turns, and prompts and catalogs name only these turns.
//
// The error for turns that the session does not have is a [NoTurnError]; for a message that it does not have, or that
// is in no turn, it wraps [store.ErrNotFound].
func (r Reader) LoadRange(ctx context.Context, id string, turns store.TurnRange) (*Document, error) {
	turns.Before = 1
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{Turns: turns, Spans: true})
	if err != nil {
		return nil, err
	}
	f := &e.Found
	switch {
	case f.First == 0 && turns.Of != "":
		return nil, fmt.Errorf("message %s of session %s: %w", turns.Of, id, store.ErrNotFound)
	case f.First == 0 || turns.Last > f.Total:
		return nil, &NoTurnError{id, max(turns.First, turns.Last), f.Total}
	}
	if f.Last == f.Total && len(f.Queued) > 0 { // they come after the last turn
		queued, err := r.Excerpt(ctx, id, store.ExcerptQuery{Messages: f.Queued, Spans: true})
		if err != nil {
			return nil, err
		}
		e.Messages = append(e.Messages, queued.Messages...)
		e.Spans, e.Decisions = append(e.Spans, queued.Spans...), append(e.Decisions, queued.Decisions...)
	}
	in, err := collect(ctx, r, e)
	if err != nil {
		return nil, err
	}
	in.Now, in.IdleTimeout = r.limits()
	doc := Build(in)
	for step := 8; f.Begin > 1 && !doc.settled(f); step *= 8 {
		begin := max(1, f.Begin-step)
		before, err := r.Excerpt(ctx, id, store.ExcerptQuery{Outline: true,
			Turns: store.TurnRange{First: begin, Last: f.Begin - 1}})
		if err != nil {
			return nil, err
		}
		e.Messages = append(before.Messages, e.Messages...)
		f.Begin, f.Lost = begin, before.Found.Lost
		doc = Build(in)
	}

	end, err := r.endOf(ctx, id)
	if err != nil {
		return nil, err
	}
	doc.Status, doc.Session.State, doc.Session.Error = end.Status, end.Session.State, end.Session.Error
	lastTurn := 0
	if t := end.LastTurn(); t != nil {
		for turn, m := range doc.Messages() {
			if m.ID == t.Messages[0].ID {
				lastTurn = turn.Number
			}
		}
	}
	doc.findNotices(in, lastTurn)
	// A cost of the session that no message here states a part of is taken for one of the whole.
	doc.costOfWhole = e.Session.CostUSD > 0
	for _, m := range doc.Messages() {
		doc.costOfWhole = doc.costOfWhole && m.CostUSD == nil
	}
	doc.Estimate(r.Price)
	doc.Totals = Totals{Turns: f.Total}
	return doc.rangeOf(f), nil
}

// endOf returns the last visible turn of a session, with the status and the state of the session. Turns that do not
// report how they ended are passed over for the state, up to 64 of them.
func (r Reader) endOf(ctx context.Context, id string) (*Document, error) {
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{LastTurns: 1})
	if err != nil {
		return nil, err
	}
	in := Input{Transcript: e.Transcript, Decisions: e.Decisions}
	in.Now, in.IdleTimeout = r.limits()
	end := Build(in)
	doc := end
	for n := 8; n <= 64 && e.From != (store.Position{}) && !slices.ContainsFunc(doc.Turns, func(t *Turn) bool {
		return !t.Hidden && t.State != StateUnknown
	}); n *= 8 {
		if e, err = r.Excerpt(ctx, id, store.ExcerptQuery{LastTurns: n, Outline: true}); err != nil {
			return nil, err
		}
		doc = Build(Input{Transcript: e.Transcript})
	}
	end.Session.State, end.Session.Error = doc.Session.State, doc.Session.Error
	return end, nil
}

// collect reads what an excerpt refers to.
func collect(ctx context.Context, r store.Reader, e *store.Excerpt) (in Input, err error) {
	t := e.Transcript
	id := t.Session.ID
	in = Input{Transcript: t, Decisions: e.Decisions, SpanRefs: e.Spans, found: &e.Found}
	loaded := messageIDs(t)
	if in.Annotations, err = annotationsOf(ctx, r, id, loaded); err != nil {
		return in, err
	}
	if in.Parent, err = parentOf(ctx, r, &t.Session); err != nil {
		return in, err
	}
	return in, in.refer(ctx, r, t, loaded)
}

// annotationsOf reads the annotations of a session without those of messages that are not loaded. Those of messages
// that are gone are the session's.
func annotationsOf(ctx context.Context, r store.Reader, id string, loaded map[string]bool) ([]store.Annotation, error) {
	all, err := r.Annotations(ctx, id)
	var others []string
	for i := range all {
		if of := all[i].MessageID; of != "" && !loaded[of] {
			others = append(others, of)
		}
	}
	if err != nil || len(others) == 0 {
		return all, err
	}
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{Messages: others, Outline: true})
	if err != nil {
		return nil, err
	}
	elsewhere := messageIDs(e.Transcript)
	return slices.DeleteFunc(all, func(a store.Annotation) bool { return elsewhere[a.MessageID] }), nil
}

func messageIDs(t *session.Transcript) map[string]bool {
	ids := make(map[string]bool, len(t.Messages))
	for i := range t.Messages {
		ids[t.Messages[i].Message.ID] = true
	}
	return ids
}

// settled reports whether the document has what its turns from First on depend on of the turns before: the last index
// that the source reported, the last system prompt, and all requests, if they repeat the conversation.
func (doc *Document) settled(f *store.FoundTurns) bool {
	type known struct{ index, prompt, history bool }
	var before, wanted known
	for _, t := range doc.Turns {
		of := &wanted
		if t.Number < f.First {
			of = &before
		}
		of.prompt = of.prompt || t.SystemPromptDigest != ""
		for _, m := range t.Messages {
			of.index, of.history = of.index || m.TurnIndex != nil, of.history || m.history != nil
		}
	}
	return (before.index || !wanted.index) && (before.prompt || !wanted.prompt) && !wanted.history
}

// rangeOf returns a document with the turns that were asked for.
func (doc *Document) rangeOf(f *store.FoundTurns) *Document {
	some := doc.Between(f.First, f.Last)
	some.Queued = nil
	if f.Last == f.Total {
		some.Queued = doc.Queued
	}
	asked := func(n int) bool { return n < f.First || n > f.Last }
	for _, p := range some.SystemPrompts {
		p.Turns = slices.DeleteFunc(p.Turns, asked)
	}
	for _, c := range some.ToolCatalogs {
		c.Turns = slices.DeleteFunc(c.Turns, asked)
	}
	return some
}
