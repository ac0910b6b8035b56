package transcripts

import (
	"cmp"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// branches are the records of a session by what they follow from. A conversation forks where the user goes back, and
// also where calls run beside each other: each result follows from its own call.
type branches struct {
	order []*branch
	byID  map[string]*branch
}

// branch is a record, and the conversation from its beginning up to it.
type branch struct {
	// above is the record that it follows from, nil for one that is not before it; unknown is the id of that.
	above   *branch
	unknown string
	// said reports that the user wrote it; row is the message that it is reported by, nil
	// for what is no part of the conversation.
	said bool
	row  *message
	at   int64
	left int64 // when the user left it for another, 0 for what stays
}

// add notes a record. A compaction begins again, and names what was before.
func (t *branches) add(o rows.Object, at int64, said bool, row *message) {
	id, above := o.Text("uuid"), cmp.Or(o.Text("parentUuid"), o.Text("logicalParentUuid"))
	if id == "" || t.byID[id] != nil {
		return
	}
	b := &branch{above: t.byID[above], unknown: above, said: said, row: row, at: at}
	t.byID[id], t.order = b, append(t.order, b)
}

// conversation reports whether the record is of the user or the model.
func (b *branch) conversation() bool { return b.row != nil && b.row.Row.Role != session.RoleSystem }

// before is the record of the conversation that b follows from, nil for none.
func (b *branch) before() *branch {
	for b = b.above; b != nil && !b.conversation(); b = b.above {
	}
	return b
}

// messageFrom is the id of the first message of the conversation from a record on, nil if there is none.
func (t *branches) messageFrom(id string) *string {
	first := t.byID[id]
	for i := slices.Index(t.order, first); first != nil && i < len(t.order); i++ {
		if b := t.order[i]; b.conversation() {
			return &b.row.Row.ID
		}
	}
	return nil
}

// missing is the record that the conversation follows from and that the file does not have: the client resumed what was
// not recorded here, which the first answer notes. links are the records that are no part of the conversation.
func (t *branches) missing(links map[string]string) string {
	first := slices.IndexFunc(t.order, (*branch).conversation)
	if first < 0 {
		return ""
	}
	b := t.order[first]
	for b.above != nil {
		b = b.above
	}
	above := b.unknown
	for range links { // the chain of a damaged file may be a circle
		if parent, known := links[above]; known {
			above = parent
		}
	}
	if _, known := links[above]; known || above == "" || t.byID[above] != nil {
		return ""
	}
	for _, b := range t.order {
		if b.conversation() && b.row.Row.Role == session.RoleAssistant {
			b.row.SetTrace("history", session.History{})
			break
		}
	}
	return above
}

// hide hides the messages that the user left.
func (t *branches) hide() {
	path := make(map[*branch]bool) // from the beginning to the record of the conversation that was written last
	for _, b := range slices.Backward(t.order) {
		if b.conversation() {
			for ; b != nil; b = b.above {
				path[b] = true
			}
			break
		}
	}
	// Of the messages with one predecessor, the one that the conversation goes on
	// with, and the times at which others were replaced.
	kept := make(map[*branch]bool)
	replaced := make(map[*branch]int64)
	last := make(map[*branch]*branch) // by predecessor
	for _, b := range t.order {
		if !b.said {
			continue
		}
		if anchor := b.before(); anchor != nil {
			if earlier := last[anchor]; earlier != nil {
				replaced[earlier] = max(1, b.at)
			}
			last[anchor], kept[anchor] = b, kept[anchor] || path[b]
		}
	}
	// Records come after what they follow from, so one pass passes it on. A message is left if all of its records are.
	since := make(map[*message]int64)
	stays := make(map[*message]bool)
	for _, b := range t.order {
		switch {
		case path[b]:
		case b.above != nil && b.above.left > 0:
			b.left = b.above.left
		case replaced[b] > 0 && kept[b.before()]:
			b.left = replaced[b]
		}
		if b.row != nil {
			since[b.row], stays[b.row] = max(since[b.row], b.left), stays[b.row] || b.left == 0
		}
	}
	for m, at := range since {
		if !stays[m] {
			m.hide(at)
		}
	}
}
