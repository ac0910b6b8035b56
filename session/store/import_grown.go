package store

import "github.com/agenttrace/agenttrace/session"

// Grown is what is known of a session whose source was read before and grew since. A source that
// grows does not only add: a turn that was open goes on, and a record that was last may mean
// something else with the next. So what it gave before is compared with what it gives now, and
// with what the store has.
type Grown struct {
	// Before are the rows that the source gave, from the message on with which the rows of the
	// import begin. A row that the store has as it was is replaced by that of the import, or
	// deleted where the import has none; one that something else changed meanwhile is merged.
	Before *session.Transcript
	// Blobs are those that the messages of Before name.
	Blobs []Blob
	// CostUSD is the cost of the source's messages before that one.
	CostUSD float64
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
