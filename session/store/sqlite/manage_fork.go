package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// Errors of a message that a session cannot be forked at or rewound to.
var (
	// ErrHidden: a rewind hides it.
	ErrHidden = errors.New("the message is hidden by a rewind")
	// ErrNotUsers: it is not a user's.
	ErrNotUsers = errors.New("the message is not a user's")
	// ErrNoRewind: the session has no rewind that holds.
	ErrNoRewind = errors.New("no rewind to undo")
)

// ForkOptions describe a fork. From is required; what is zero otherwise is the
// parent's.
type ForkOptions struct {
	// From is the id of the session to fork, Message that of the last message to
	// copy; empty is its last one that is not hidden.
	From, Message string
	// Title is that of the parent and " (copy)" when empty, unless the parent has none.
	Title string
	// Metadata is merged over the parent's. Its values must be such as encoding/json
	// takes.
	Metadata map[string]any
	// Now is when the fork is made; the zero time is the present. Where the parent says
	// that it was seen later, it is then.
	Now time.Time
}

// Fork makes a session that holds copies, under new ids, of the parent's messages
// up to and including o.Message, without those that are hidden, and returns its id
// when all of it is committed. Tokens and cost are those of the copies. The title,
// the model, agent, mode, workspace and the metadata of the host are taken over;
// rules of permission, and what the parent does or how it ended, are not.
//
// The copies follow what arrives late of their originals, as of the time of the
// fork; see [store.Fork]. Whether the parent is at work is the caller's to ask.
//
// The error for a session that is not there, or a message that the session has not,
// wraps store.ErrNotFound, that for a message that is hidden [ErrHidden].
func (s *Store) Fork(ctx context.Context, o ForkOptions) (id string, err error) {
	declared := make(map[string]json.RawMessage, len(o.Metadata))
	for key, v := range o.Metadata {
		if declared[key], err = json.Marshal(v); err != nil {
			return "", fmt.Errorf("fork session %s: encode metadata %q: %w", o.From, key, err)
		}
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	err = s.run(ctx, func(t *tx) error {
		row, err := t.existing(o.From)
		if err != nil {
			return err
		}
		message, err := t.forkPoint(&o)
		if err != nil {
			return err
		}
		id = spans.NewID(spans.PrefixSession, o.Now)
		c := forkOf(row, id, message, max(o.Now.UnixMilli(), row.UpdatedAt), &o, declared)
		return t.change(c)
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// existing returns the row of a session, and an error where there is none.
func (t *tx) existing(id string) (*store.SessionRow, error) {
	row, err := t.Session(id)
	if err == nil && row == nil {
		err = fmt.Errorf("session %s: %w", id, store.ErrNotFound)
	}
	return row, err
}

// change applies what is reported of one session.
func (t *tx) change(c store.SessionChange) error {
	result, err := store.Apply(t, &store.Batch{Sessions: []store.SessionChange{c}})
	if err == nil && result.Refused > 0 {
		err = fmt.Errorf("session %s: %w", c.ID, store.ErrRefused)
	}
	return err
}

// messageOf returns a message that must be the session's.
func (t *tx) messageOf(sessionID, id string) (*session.Message, error) {
	m, err := t.Message(id)
	if err == nil && (m == nil || m.SessionID != sessionID) {
		err = fmt.Errorf("message %s of session %s: %w", id, sessionID, store.ErrNotFound)
	}
	return m, err
}

// forkPoint is the id of the last message that a fork copies.
func (t *tx) forkPoint(o *ForkOptions) (string, error) {
	if o.Message != "" {
		m, err := t.messageOf(o.From, o.Message)
		if err == nil && m.HiddenAt != nil {
			err = fmt.Errorf("fork session %s at %s: %w", o.From, o.Message, ErrHidden)
		}
		return o.Message, err
	}
	messages, err := t.MessagesFrom(o.From, store.Position{})
	if err != nil {
		return "", err
	}
	for _, m := range slices.Backward(messages) {
		if m.HiddenAt == nil {
			return m.ID, nil
		}
	}
	return "", fmt.Errorf("messages of session %s: %w", o.From, store.ErrNotFound)
}

// forkOf reports of a new session what is to be reported of a fork made at a time (Unix
// milliseconds).
func forkOf(parent *store.SessionRow, id, message string, at int64, o *ForkOptions, metadata map[string]json.RawMessage) store.SessionChange {
	value := func(text string) *store.Value {
		return &store.Value{Text: text, At: at * 1e6, Rank: store.RankFinal}
	}
	c := store.ChangeOf(&parent.Session, at)
	c.ID, c.Permissions = id, nil
	c.ParentID, c.ParentMessageID = value(parent.ID), value(message)
	c.Fork = &store.Fork{From: parent.ID, Message: message, At: at}
	switch {
	case o.Title != "":
		c.Title = value(strings.ToValidUTF8(o.Title, "\uFFFD"))
	case parent.Title != "" && parent.Title != session.Untitled:
		c.Title = value(strings.ToValidUTF8(parent.Title+" (copy)", "\uFFFD"))
	default:
		c.Title = nil
	}
	for _, key := range []string{"agenttrace", "status", "invalid_permissions"} {
		delete(c.Metadata, key) // the parent's own
	}
	for key, v := range metadata {
		c.Metadata[key] = *value(string(v))
	}
	return c
}

// Rewound is what a rewind hid, or what its undoing brought back.
type Rewound struct {
	// To is the user message that is the last to be seen while the rewind holds, At
	// when it was made, Unix milliseconds. Both are zero where there was nothing to hide.
	To string
	At int64
	// Messages are those that changed, in order.
	Messages []string
}

// Rewind hides every message of a session that comes after the user message to.
// Nothing is deleted, and [Store.Unrewind] undoes it. Where nothing comes after it
// nothing is done.
//
// Telemetry that arrives late of what is hidden is hidden too; what begins after
// now, or after the session was last seen where that is later, is not.
//
// The error for a session that is not there, or a message that the session has not,
// wraps store.ErrNotFound; others wrap [ErrNotUsers] and [ErrHidden].
func (s *Store) Rewind(ctx context.Context, id, to string, now time.Time) (Rewound, error) {
	var r Rewound
	err := s.run(ctx, func(t *tx) error {
		r = Rewound{}
		row, err := t.existing(id)
		if err != nil {
			return err
		}
		m, err := t.messageOf(id, to)
		switch {
		case err != nil:
			return err
		case m.Role != session.RoleUser:
			return fmt.Errorf("rewind session %s to %s: %w", id, to, ErrNotUsers)
		case m.HiddenAt != nil:
			return fmt.Errorf("rewind session %s to %s: %w", id, to, ErrHidden)
		}
		after, err := t.MessagesFrom(id, store.PositionOf(m))
		if err != nil || !slices.ContainsFunc(after, func(o session.Message) bool { return o.ID != to && o.HiddenAt == nil }) {
			return err
		}
		// No two rewinds have one time, so that one is the last and can be told of.
		at := max(now.UnixMilli(), row.UpdatedAt)
		for _, old := range row.State.Rewinds {
			at = max(at, old.At+1)
		}
		r.To, r.At = to, at
		r.Messages, err = t.rewind(id, store.Rewind{To: to, At: at})
		return err
	})
	if err != nil {
		return Rewound{}, err
	}
	return r, nil
}

// Unrewind undoes the last rewind of a session that holds, whoever made it: what it
// hid is seen again, except for what an earlier one hides too. The error where there is
// none wraps [ErrNoRewind], that for a session that is not there store.ErrNotFound.
func (s *Store) Unrewind(ctx context.Context, id string) (Rewound, error) {
	var r Rewound
	err := s.run(ctx, func(t *tx) error {
		r = Rewound{}
		row, err := t.existing(id)
		if err != nil {
			return err
		}
		last, err := t.lastRewind(row)
		if err != nil {
			return err
		}
		if last == nil {
			return fmt.Errorf("session %s: %w", id, ErrNoRewind)
		}
		last.Undone = true
		r.To, r.At = last.To, last.At
		r.Messages, err = t.rewind(id, *last)
		return err
	})
	if err != nil {
		return Rewound{}, err
	}
	return r, nil
}

// lastRewind is the last rewind that holds. One that another program made, or that
// came with an import, is known by what it hid alone; one that another program has undone
// does not hold.
func (t *tx) lastRewind(row *store.SessionRow) (*store.Rewind, error) {
	messages, err := t.MessagesFrom(row.ID, store.Position{})
	if err != nil {
		return nil, err
	}
	var last *store.Rewind
	known := make(map[int64]bool)
	for i, holds := range store.RewindsInForce(row.State.Rewinds, messages) {
		rw := row.State.Rewinds[i]
		known[rw.At] = true
		if holds && (last == nil || rw.At >= last.At) {
			last = &rw
		}
	}
	user := ""
	for i := range messages {
		m := &messages[i]
		if m.HiddenAt != nil && !known[*m.HiddenAt] && (last == nil || *m.HiddenAt > last.At) {
			last = &store.Rewind{To: user, At: *m.HiddenAt}
		}
		if m.Role == session.RoleUser {
			user = m.ID
		}
	}
	return last, nil
}

// rewind applies a rewind and returns the messages that it hid or brought back.
func (t *tx) rewind(id string, rw store.Rewind) ([]string, error) {
	before, err := t.MessagesFrom(id, store.Position{})
	if err != nil {
		return nil, err
	}
	if err := t.change(store.SessionChange{ID: id, Rewinds: []store.Rewind{rw}}); err != nil {
		return nil, err
	}
	after, err := t.MessagesFrom(id, store.Position{})
	if err != nil {
		return nil, err
	}
	if len(before) != len(after) {
		return nil, fmt.Errorf("rewind session %s: it had %d messages and has %d", id, len(before), len(after))
	}
	var changed []string
	for i := range after {
		if (before[i].HiddenAt == nil) != (after[i].HiddenAt == nil) {
			changed = append(changed, after[i].ID)
		}
	}
	return changed, nil
}
