package store

import (
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// message is what is known of a message and of what belongs to it. Merging sets the row, and the parts as a whole; what
// differs from what the engine has is written.
type message struct {
	// row is the row as it shall be, old as the engine has it; nil if there is none. read is set if that is known.
	row, old *session.Message
	read     bool
	// deleted reports that the engine's row has to be deleted, with what belongs to it, before others are put.
	deleted bool
	dirty   bool

	// Of the parts, in order of their indexes, and the indexes that displaced ones requested, nothing is known before
	// whole is set.
	whole                   bool
	parts, oldParts         []session.Part
	requested, oldRequested map[string]int64

	// spans are those with TurnStats of the message, and may have some that have none any more. They are
	// all of them if spansKnown is set.
	spans      []SpanKey
	spansKnown bool
}

// A part and a message that an engine may refuse to hold.
type triedPart struct{ message, part string }
type triedMessage struct {
	id    string
	isNew bool
}

// known is what is known of a message: nothing, before it is read.
func (r *rows) known(id string) *message {
	m := r.messages[id]
	if m == nil {
		m = new(message)
		r.messages[id] = m
	}
	return m
}

// message returns the row of a message, nil when there is none.
func (r *rows) message(id string) *session.Message {
	r.loadMessages(id)
	return r.known(id).row
}

// whole returns a message with its parts.
func (r *rows) whole(id string) *message {
	r.loadWhole(id)
	return r.known(id)
}

// loadMessages reads the rows of those of some messages that are not known, in one round trip; loadWhole also their
// parts.
func (r *rows) loadMessages(ids ...string) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" || r.known(id).read })
	if len(ids) > 0 {
		r.ask(r.readMessages(ids...))
	}
}

func (r *rows) loadWhole(ids ...string) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" || r.known(id).whole })
	if len(ids) > 0 {
		r.ask(r.readMessages(ids...), r.readParts(ids...))
	}
}

// learnMessage takes over a row that the engine has, and returns it. What is known already is newer.
func (r *rows) learnMessage(from Row) (*session.Message, error) {
	row := new(session.Message)
	err := MessageTable.Scan(from, row)
	if m := r.known(row.ID); m.row == nil && m.old == nil {
		m.row, m.old, m.read = row, row, true
	}
	return row, err
}

// messagesFrom returns the session's messages at and after the position, in order.
func (r *rows) messagesFrom(sessionID string, from Position) (messages []session.Message) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(MessagesQuery, func(row Row) error {
			m, err := r.learnMessage(row)
			messages = append(messages, *m)
			return err
		}, sessionID, from.At, from.ID)
	})
	return messages
}

// putMessage sets the row of a message that was read.
func (r *rows) putMessage(row session.Message) error {
	m := r.known(row.ID)
	if m.row != nil && m.row.SessionID != row.SessionID ||
		r.refusals.known[triedMessage{row.ID, m.old == nil || m.deleted}] {
		return ErrRefused
	}
	if m.row == nil { // it begins without parts
		m.whole = true
	}
	m.row = &row
	r.change(m)
	return nil
}

// dropMessage deletes a message with its parts.
func (r *rows) dropMessage(id string) {
	m := r.known(id)
	m.row, m.parts, m.requested = nil, nil, nil
	if m.deleted = m.old != nil; m.deleted {
		r.change(m)
	}
}

// setParts sets the parts of a message, in order of their indexes, and the indexes that displaced ones requested.
func (r *rows) setParts(m *message, parts []session.Part, requested map[string]int64) {
	m.parts, m.requested = parts, requested
	r.change(m)
}

func (r *rows) change(m *message) {
	if !m.dirty {
		m.dirty = true
		r.changed = append(r.changed, m)
	}
}

// refusedPart is why a part of a message cannot be stored, nil if it may be.
func (r *rows) refusedPart(messageID, id string) error {
	if !r.refusals.known[triedPart{messageID, id}] {
		return nil
	}
	var owner string
	r.ask(func(s Statements) {
		s.Select(`SELECT message_id FROM chat_parts WHERE id = ?`, func(row Row) error {
			owner = row.ColumnText(0)
			return nil
		}, id)
	})
	if owner != "" && owner != messageID {
		return refuse("its id belongs to message %s; it is left out", owner)
	}
	return ErrRefused
}

// hasGap reports whether a part before one that the message has is missing.
func (m *message) hasGap() bool {
	n := len(m.parts)
	return n > 0 && m.parts[n-1].Index >= int64(n)
}

func (m *message) addSpan(key SpanKey) {
	if !slices.Contains(m.spans, key) {
		m.spans = append(m.spans, key)
	}
}

// partsByID are parts by their ids.
func partsByID(parts []session.Part) map[string]*session.Part {
	all := make(map[string]*session.Part, len(parts))
	for i := range parts {
		all[parts[i].ID] = &parts[i]
	}
	return all
}

// deleteMessages deletes the messages and parts that are gone.
func (r *rows) deleteMessages(s Statements) {
	for _, m := range r.changed {
		if m.deleted {
			s.Exec(MessageTable.Delete, m.old.ID)
			m.old, m.oldParts, m.oldRequested, m.deleted = nil, nil, nil, false
			continue
		}
		parts := partsByID(m.parts)
		for i := range m.oldParts {
			if id := m.oldParts[i].ID; parts[id] == nil {
				s.Exec(PartTable.Delete, id)
			}
		}
	}
}

// putMessages puts the rows of messages, and the parts that differ from those that the engine has. Parts that get
// another index are moved out of the way first, below zero, because their index is unique, row by row.
func (r *rows) putMessages(s Statements) {
	const move = `UPDATE chat_parts SET "index" = ? WHERE id = ?`
	moved, before := make(map[string]int64), make([]map[string]*session.Part, len(r.changed))
	for k, m := range r.changed {
		if m.row != nil && (m.old == nil || !equalMessages(m.row, m.old)) {
			MessageTable.put(s, m.row, m.old == nil, r.try(triedMessage{m.row.ID, m.old == nil}))
		}
		old := partsByID(m.oldParts)
		before[k] = old
		for i := range m.parts {
			if p := &m.parts[i]; old[p.ID] != nil && old[p.ID].Index != p.Index {
				s.Exec(move, -1-p.Index, p.ID)
				moved[p.ID] = p.Index
			}
		}
	}
	for _, m := range r.changed {
		for i := range m.parts {
			if index, is := moved[m.parts[i].ID]; is {
				s.Exec(move, index, m.parts[i].ID)
			}
		}
	}
	for k, m := range r.changed {
		for i := range m.parts {
			p := &m.parts[i]
			if was := before[k][p.ID]; was == nil || !equalParts(p, was) || !equal(p.ContinuationRunID, was.ContinuationRunID) {
				PartTable.put(s, p, was == nil, r.try(triedPart{p.MessageID, p.ID}))
			}
		}
		for id, index := range m.requested {
			if was, has := m.oldRequested[id]; !has || was != index {
				s.Exec(s.Dialect().PutRequested, m.row.ID, id, index)
			}
		}
		m.old, m.oldParts, m.oldRequested, m.dirty = m.row, m.parts, m.requested, false
	}
	r.changed = nil
}
