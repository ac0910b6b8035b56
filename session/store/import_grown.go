package store

import (
	"reflect"
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// Grown is what is known of a session whose source was read before and grew since. A source that
// grows does not only add: a turn that was open goes on, and a record that was last may mean
// something else with the next. So the messages of the import replace those that the store has.
type Grown struct {
	// Before are the rows that the source gave, of messages without their parts and metadata. The row of the session, and
	// whether a message is hidden, is merged only if something else has changed it since. A message that is not in the
	// import is deleted.
	Before *session.Transcript
	// Partly reports that neither Before nor the import has the messages that are in both as they were. CostUSD is
	// their cost.
	Partly  bool
	CostUSD float64
}

// GrewFrom notes what the source gave before, which it changes. If partly is set, it leaves out the messages and
// decisions that are as they were.
func (in *Imported) GrewFrom(before *Imported, partly bool) {
	in.Grown = &Grown{Before: before.Transcript, Partly: partly}
	if partly {
		gave := make(map[string]*session.MessageAndParts, len(before.Messages))
		for i := range before.Messages {
			gave[before.Messages[i].Message.ID] = &before.Messages[i]
		}
		same := make(map[string]bool)
		in.Messages = slices.DeleteFunc(in.Messages, func(m session.MessageAndParts) bool {
			if was := gave[m.Message.ID]; was == nil || !reflect.DeepEqual(&m, was) {
				return false
			}
			same[m.Message.ID] = true
			in.Grown.CostUSD = AddCost(in.Grown.CostUSD, messageCost(&m.Message))
			return true
		})
		before.Messages = slices.DeleteFunc(before.Messages, func(m session.MessageAndParts) bool {
			return same[m.Message.ID]
		})
		in.Decisions = slices.DeleteFunc(in.Decisions, func(d Decision) bool {
			return slices.ContainsFunc(before.Decisions, func(was Decision) bool { return reflect.DeepEqual(d, was) })
		})
	}
	for i := range before.Messages {
		before.Messages[i].Parts, before.Messages[i].Message.MetadataJSON = nil, "{}"
	}
}

// takeBack deletes the messages that the source gave before and gives no more, and notes the others.
func (i *importer) takeBack(in *Imported) {
	if in.Grown == nil {
		return
	}
	has := make(map[string]bool)
	for k := range in.Messages {
		has[in.Messages[k].Message.ID] = true
	}
	i.gave = make(map[string]*session.Message)
	for k := range in.Grown.Before.Messages {
		m := &in.Grown.Before.Messages[k].Message
		if i.gave[m.ID] = m; !has[m.ID] && i.rows.message(m.ID) != nil {
			i.dropMessage(i.work, m.ID)
			i.result.Messages++
		}
	}
}
