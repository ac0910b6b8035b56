package store

import (
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// message is what is known of what belongs to a message. Merging sets the parts as a whole; what differs from what the
// engine has is written.
type message struct {
	id string
	// Of the parts, in order of their indexes, and the indexes that displaced ones requested, nothing is known before
	// whole is set.
	whole                   bool
	parts, oldParts         []session.Part
	requested, oldRequested map[string]int64
	dirty                   bool

	// spans are those with TurnStats of the message, and may have some that have none any more. They are
	// all of them if spansKnown is set.
	spans      []SpanKey
	spansKnown bool
}

// triedPart is a part that an engine may refuse to hold.
type triedPart struct{ message, part string }

// known is what is known of a message beside its row.
func (r *rows) known(id string) *message {
	m := r.whole[id]
	if m == nil {
		m = &message{id: id}
		r.whole[id] = m
	}
	return m
}

// message returns the row of a message, nil when there is none.
func (r *rows) message(id string) *session.Message { return find(r, &r.messages, id) }

// withParts returns a message with its parts.
func (r *rows) withParts(id string) (*session.Message, *message) {
	r.loadWhole(id)
	return r.messages.row(id), r.known(id)
}

// loadWhole reads those of some messages that are not known with their parts, in one round trip.
func (r *rows) loadWhole(ids ...string) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return r.known(id).whole })
	if len(ids) > 0 {
		r.messages.want(ids...)
		r.ask(r.readParts(ids...))
	}
}

// messagesFrom returns the session's messages at and after the position, in order.
func (r *rows) messagesFrom(sessionID string, from Position) (messages []session.Message) {
	r.ask(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(MessagesQuery(), func(row Row) error {
			m, err := r.messages.learn(row)
			messages = append(messages, *m)
			return err
		}, sessionID, from.At, from.ID)
	})
	return messages
}

// putMessage sets the row of a message that was read.
func (r *rows) putMessage(row session.Message) error {
	switch old := r.messages.row(row.ID); {
	case old == nil:
		r.known(row.ID).whole = true // it begins without parts
	case old.SessionID != row.SessionID:
		return ErrRefused
	}
	return r.messages.set(&row)
}

// dropMessage deletes a message with its parts.
func (r *rows) dropMessage(id string) {
	r.messages.delete(id)
	m := r.known(id)
	m.parts, m.oldParts, m.requested, m.oldRequested = nil, nil, nil, nil
}

// setParts sets the parts of a message, in order of their indexes, and the indexes that displaced ones requested.
func (r *rows) setParts(m *message, parts []session.Part, requested map[string]int64) {
	m.parts, m.requested = parts, requested
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
	for _, p := range selectRows(r, PartTable(), PartTable().ByKey, 0, id) {
		if p.MessageID != messageID {
			return refuse("its id belongs to message %s; it is left out", p.MessageID)
		}
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

// deleteParts deletes the parts that are gone.
func (r *rows) deleteParts(s Statements) {
	for _, m := range r.changed {
		parts := partsByID(m.parts)
		for i := range m.oldParts {
			if id := m.oldParts[i].ID; parts[id] == nil {
				s.Exec(PartTable().Delete, id)
			}
		}
	}
}

// putParts puts the parts that differ from those that the engine has. Parts that get another index are moved out of the
// way first, below zero, because their index is unique, row by row.
func (r *rows) putParts(s Statements) {
	type change struct{ part, old *session.Part }
	var changes []change
	for _, m := range r.changed {
		old := partsByID(m.oldParts)
		for i := range m.parts {
			changes = append(changes, change{&m.parts[i], old[m.parts[i].ID]})
		}
	}
	for _, away := range []bool{true, false} {
		for _, c := range changes {
			index := c.part.Index
			if away {
				index = -1 - index
			}
			if c.old != nil && c.old.Index != c.part.Index {
				s.Exec(`UPDATE chat_parts SET "index" = ? WHERE id = ?`, index, c.part.ID)
			}
		}
	}
	for _, c := range changes {
		if p, old := c.part, c.old; old == nil || !equalParts(p, old) || !equal(p.ContinuationRunID, old.ContinuationRunID) {
			PartTable().put(s, p, old == nil, r.try(triedPart{p.MessageID, p.ID}))
		}
	}
	for _, m := range r.changed {
		for id, index := range m.requested {
			if was, has := m.oldRequested[id]; !has || was != index {
				s.Exec(s.Dialect().PutRequested, m.id, id, index)
			}
		}
		m.oldParts, m.oldRequested, m.dirty = m.parts, m.requested, false
	}
	r.changed = nil
}
