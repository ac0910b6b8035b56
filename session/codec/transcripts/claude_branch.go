package transcripts

import (
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// branches are the records of a session by what they follow from. A conversation
// forks where the user goes back, and also where calls run beside each other: each
// result follows from its own call. The zero value has no record.
type branches struct {
	order []*branch
	byID  map[string]*branch
}

// branch is a record, and the conversation from its beginning up to it.
type branch struct {
	id, parent string
	// said reports that the user wrote it; row is the message that it is reported by, nil
	// for what is no part of the conversation.
	said bool
	row  *rows.Message
	at   int64
	left bool // by the user, for another
}

// add notes a record. A compaction begins again, and names what was before.
func (t *branches) add(o rows.Object, at int64, said bool, row *rows.Message) {
	id := o.Text("uuid")
	if id == "" || t.byID[id] != nil {
		return
	}
	b := &branch{id: id, parent: o.Text("parentUuid"), said: said, row: row, at: at}
	if b.parent == "" {
		b.parent = o.Text("logicalParentUuid")
	}
	if t.byID == nil {
		t.byID = make(map[string]*branch)
	}
	t.byID[id] = b
	t.order = append(t.order, b)
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

// conversation reports whether the record is of the user or the model.
func (b *branch) conversation() bool { return b.row != nil && b.row.Row.Role != session.RoleSystem }

// before is the record of the conversation that b follows from, nil for none.
func (t *branches) before(b *branch) *branch {
	const maximum = 10_000 // the chain of a damaged file may be a circle
	for range min(maximum, len(t.order)) {
		if b = t.byID[b.parent]; b == nil || b.conversation() {
			return b
		}
	}
	return nil
}

// continues notes in the first answer that the conversation follows from a record which the
// file does not have: the client resumed what was not recorded here. links are the records
// that are no part of the conversation.
func (t *branches) continues(links map[string]string) {
	if t.missing(links) == "" {
		return
	}
	for _, b := range t.order {
		if b.conversation() && b.row.Row.Role == session.RoleAssistant {
			b.row.SetTrace("history", session.History{})
			return
		}
	}
}

// missing is the record that the conversation follows from and that the file does not have.
func (t *branches) missing(links map[string]string) string {
	first := slices.IndexFunc(t.order, (*branch).conversation)
	if first < 0 {
		return ""
	}
	above := t.order[first].parent
	for range len(t.order) + len(links) { // the chain of a damaged file may be a circle
		if b := t.byID[above]; b != nil {
			above = b.parent
		} else if parent, known := links[above]; known {
			above = parent
		} else {
			break
		}
	}
	_, known := links[above]
	if known || t.byID[above] != nil {
		return ""
	}
	return above
}

// hide hides the messages that the user left.
func (t *branches) hide() {
	path := t.path()
	// Of the messages with one predecessor, the one that the conversation goes on
	// with, and the times at which others were replaced.
	kept := make(map[*branch]bool)
	replaced := make(map[*branch]int64)
	last := make(map[*branch]*branch) // by predecessor
	for _, b := range t.order {
		if !b.said {
			continue
		}
		anchor := t.before(b)
		if anchor == nil {
			continue
		}
		if earlier := last[anchor]; earlier != nil {
			replaced[earlier] = b.at
		}
		last[anchor] = b
		kept[anchor] = kept[anchor] || path[b]
	}
	// Records follow what they follow from, so one pass passes it on.
	whole := make(map[*rows.Message]bool) // whether all records of the message were left
	since := make(map[*rows.Message]int64)
	times := make(map[*branch]int64)
	for _, b := range t.order {
		parent := t.byID[b.parent]
		at, again := replaced[b]
		switch {
		case path[b]:
		case parent != nil && parent.left:
			b.left, times[b] = true, times[parent]
		case again && kept[t.before(b)]:
			b.left, times[b] = true, at
		}
		if b.row == nil {
			continue
		}
		all, known := whole[b.row]
		whole[b.row] = b.left && (all || !known)
		since[b.row] = max(since[b.row], times[b])
	}
	for _, b := range t.order {
		if b.row != nil && whole[b.row] {
			hide(b.row, since[b.row])
		}
	}
}

// path are the records from the beginning to the one of the conversation that was
// written last.
func (t *branches) path() map[*branch]bool {
	path := make(map[*branch]bool)
	for i := len(t.order) - 1; i >= 0; i-- {
		if !t.order[i].conversation() {
			continue
		}
		for b := t.order[i]; b != nil && !path[b]; b = t.byID[b.parent] {
			path[b] = true
		}
		break
	}
	return path
}
