package store

import (
	"reflect"
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// Grown is what is known of a session whose source was read before and grew since. A source that
// grows does not only add: a turn that was open goes on, and a record that was last may mean
// something else with the next. So what it gave before is compared with what it gives now, and
// with what the store has.
type Grown struct {
	// Before are the rows that the source gave. A row that the store has as it was is replaced by that of the import, or
	// deleted where the import has none; one that something else changed meanwhile is merged.
	Before *session.Transcript
	// Blobs are those that the messages of Before name.
	Blobs []Blob
	// Partly reports that neither Before nor the import has the messages that are in both as they were. CostUSD is
	// their cost.
	Partly  bool
	CostUSD float64
}

// GrewFrom notes what the source gave before. If partly is set, it leaves out the messages and decisions that are as
// they were.
func (in *Imported) GrewFrom(before *Imported, partly bool) {
	in.Grown = &Grown{Before: before.Transcript, Blobs: before.Blobs, Partly: partly}
	if !partly {
		return
	}
	gave := make(map[string]*session.MessageAndParts, len(before.Messages))
	for i := range before.Messages {
		gave[before.Messages[i].Message.ID] = &before.Messages[i]
	}
	same := make(map[string]bool)
	left := in.Messages[:0]
	for i := range in.Messages {
		m := &in.Messages[i]
		if was := gave[m.Message.ID]; was != nil && reflect.DeepEqual(m, was) {
			same[m.Message.ID] = true
			in.Grown.CostUSD = AddCost(in.Grown.CostUSD, messageCost(&m.Message))
			continue
		}
		left = append(left, *m)
	}
	in.Messages = left
	before.Messages = slices.DeleteFunc(before.Messages, func(m session.MessageAndParts) bool {
		return same[m.Message.ID]
	})
	in.Decisions = slices.DeleteFunc(in.Decisions, func(d Decision) bool {
		return slices.ContainsFunc(before.Decisions, func(was Decision) bool { return reflect.DeepEqual(d, was) })
	})
}

// gave are the rows that the source of an import gave before, by id.
type gave struct {
	messages map[string]*session.Message
	parts    map[string]*session.Part
}

func (g *Grown) rows() (all gave) {
	if g == nil {
		return all
	}
	all.messages, all.parts = make(map[string]*session.Message), make(map[string]*session.Part)
	for i := range g.Before.Messages {
		m := &g.Before.Messages[i]
		all.messages[m.Message.ID] = &m.Message
		for k := range m.Parts {
			all.parts[m.Parts[k].ID] = &m.Parts[k]
		}
	}
	return all
}

// message reports whether the stored message is, hidden or not, as the source gave it.
func (all gave) message(stored *session.Message) bool {
	m := all.messages[stored.ID]
	return m != nil && m.SessionID == stored.SessionID && compareMessages(m, stored) == 0
}

// part reports whether the stored part is as the source gave it.
func (all gave) part(stored *session.Part) bool {
	p := all.parts[stored.ID]
	return p != nil && p.MessageID == stored.MessageID && p.Index == stored.Index &&
		compareParts(&rankedPart{Part: p}, &rankedPart{Part: stored}, imports) == 0
}

// takeBack deletes the messages and parts that the source gave before and gives no more.
func (i *importer) takeBack(in *Imported) {
	if in.Grown == nil {
		return
	}
	has := make(map[string]bool)
	for k := range in.Messages {
		has[in.Messages[k].Message.ID] = true
		for n := range in.Messages[k].Parts {
			has[in.Messages[k].Parts[n].ID] = true
		}
	}
	for k := range in.Grown.Before.Messages {
		m := &in.Grown.Before.Messages[k]
		stored := i.rows.message(m.Message.ID)
		if stored == nil || stored.SessionID != i.work.id {
			continue
		}
		if !has[stored.ID] && i.gave.message(stored) {
			i.dropMessage(i.work, stored.ID)
			i.result.Messages++
			continue
		}
		for n := range m.Parts {
			if has[m.Parts[n].ID] {
				continue
			}
			if p := i.rows.part(m.Parts[n].ID); p != nil && i.gave.part(p) {
				i.rows.deletePart(p)
				i.work.changedPart(p)
				i.result.Parts++
			}
		}
	}
}
