package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// What a user does to a session is a change of it like any other. These functions are run in a transaction of any
// engine; the engine's methods of the same names commit it.

// Errors of a message that a session cannot be forked at or rewound to.
var (
	// ErrHidden: a rewind hides it.
	ErrHidden = errors.New("the message is hidden by a rewind")
	// ErrNotUsers: it is not a user's.
	ErrNotUsers = errors.New("the message is not a user's")
	// ErrNoRewind: the session has no rewind that holds.
	ErrNoRewind = errors.New("no rewind to undo")
)

// ForkOptions describe a fork. From is required; what is zero otherwise is the parent's.
type ForkOptions struct {
	// From is the id of the session to fork, Message that of the last message to
	// copy; empty is its last one that is not hidden.
	From, Message string
	// Title is that of the parent and " (copy)" when empty, unless the parent has none.
	Title string
	// Metadata is merged over the parent's. Its values must be such as encoding/json takes.
	Metadata map[string]any
	// Now is when the fork is made; the zero time is the present. Where the parent
	// was last seen later than that, it is then.
	Now time.Time
}

// ForkSession makes a session that holds copies, under new ids, of the parent's messages up to and including o.Message,
// without those that are hidden, and returns its id. Tokens and cost are those of the copies. The title, the model,
// agent, mode, workspace and the metadata of the host are taken over; rules of permission, and what the parent does or
// how it ended, are not.
//
// The copies follow what arrives late of their originals, as of the time of the
// fork; see [Fork]. Whether the parent is at work is the caller's to ask.
//
// The error for a session that is not there, or a message that the session has not,
// wraps ErrNotFound, that for a message that is hidden [ErrHidden].
func ForkSession(tx Tx, o ForkOptions) (id string, err error) {
	declared := make(map[string]json.RawMessage, len(o.Metadata))
	for key, v := range o.Metadata {
		if declared[key], err = json.Marshal(v); err != nil {
			return "", fmt.Errorf("fork session %s: encode metadata %q: %w", o.From, key, err)
		}
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	row, messages, err := existingWhole(tx, o.From)
	if err != nil {
		return "", err
	}
	message, err := forkPoint(messages, &o)
	if err != nil {
		return "", err
	}
	id = spans.NewID(spans.PrefixSession, o.Now)
	return id, change(tx, forkOf(row, id, message, max(o.Now.UnixMilli(), row.UpdatedAt), &o, declared))
}

// Amend applies what a user reports of a session that is there: a change makes one that is not. The error for one
// that is not there wraps ErrNotFound.
func Amend(tx Tx, c SessionChange) error {
	if _, err := existing(tx, c.ID); err != nil {
		return err
	}
	return change(tx, c)
}

// existing returns the row of a session that must be there.
func existing(tx Tx, id string) (*SessionRow, error) {
	var row *SessionRow
	err := run(tx, func(r *rows) { row = r.session(id) })
	if err == nil && row == nil {
		err = fmt.Errorf("session %s: %w", id, ErrNotFound)
	}
	return row, err
}

// existingWhole returns a session that must be there with its messages, in order.
func existingWhole(tx Tx, id string) (row *SessionRow, messages []session.Message, err error) {
	if row, err = existing(tx, id); err == nil {
		err = run(tx, func(r *rows) { messages = r.messagesFrom(id, Position{}) })
	}
	return row, messages, err
}

// change applies what is reported of one session.
func change(tx Tx, c SessionChange) error {
	result, err := Apply(tx, &Batch{Sessions: []SessionChange{c}})
	if err == nil && result.Refused > 0 {
		err = fmt.Errorf("session %s: %w", c.ID, ErrRefused)
	}
	return err
}

// indexOf is where a message is that the session must have, and that must not be hidden. what is done there.
func indexOf(messages []session.Message, sessionID, id, what string) (int, error) {
	i := slices.IndexFunc(messages, func(m session.Message) bool { return m.ID == id })
	switch {
	case i < 0:
		return 0, fmt.Errorf("message %s of session %s: %w", id, sessionID, ErrNotFound)
	case messages[i].HiddenAt != nil:
		return i, fmt.Errorf("%s: %w", what, ErrHidden)
	}
	return i, nil
}

// forkPoint is the last message that a fork copies.
func forkPoint(messages []session.Message, o *ForkOptions) (*session.Message, error) {
	if o.Message != "" {
		i, err := indexOf(messages, o.From, o.Message, "fork session "+o.From+" at "+o.Message)
		if err != nil {
			return nil, err
		}
		return &messages[i], nil
	}
	for i := range slices.Backward(messages) {
		if messages[i].HiddenAt == nil {
			return &messages[i], nil
		}
	}
	return nil, fmt.Errorf("messages of session %s: %w", o.From, ErrNotFound)
}

// forkOf reports of a new session what is to be reported of a fork made at a time (Unix milliseconds).
func forkOf(parent *SessionRow, id string, message *session.Message, at int64, o *ForkOptions,
	metadata map[string]json.RawMessage) SessionChange {
	value := func(text string) *Value {
		return &Value{Text: text, At: at * 1e6, Rank: RankFinal}
	}
	c := ChangeOf(&parent.Session, at)
	c.ID, c.Permissions = id, nil
	c.ParentID, c.ParentMessageID = value(parent.ID), value(message.ID)
	c.Fork = &Fork{From: parent.ID, Message: message.ID, At: at, MessageAt: message.CreatedAt}
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

// RewindSession hides every message of a session that comes after the user message to. Nothing is deleted, and
// [UnrewindSession] undoes it. Where nothing comes after it nothing is done.
//
// Telemetry that arrives late of what is hidden is hidden too; what begins after
// now, or after the session was last seen where that is later, is not.
//
// The error for a session that is not there, or a message that the session has not,
// wraps ErrNotFound; others wrap [ErrNotUsers] and [ErrHidden].
func RewindSession(tx Tx, id, to string, now time.Time) (Rewound, error) {
	row, messages, err := existingWhole(tx, id)
	if err != nil {
		return Rewound{}, err
	}
	i, err := indexOf(messages, id, to, "rewind session "+id+" to "+to)
	if (err == nil || errors.Is(err, ErrHidden)) && messages[i].Role != session.RoleUser {
		err = fmt.Errorf("rewind session %s to %s: %w", id, to, ErrNotUsers)
	}
	visible := func(m session.Message) bool { return m.HiddenAt == nil }
	if err != nil || !slices.ContainsFunc(messages[i+1:], visible) {
		return Rewound{}, err
	}
	// No two rewinds have one time, so that one of them is the last.
	at := max(now.UnixMilli(), row.UpdatedAt)
	for _, old := range row.State.Rewinds {
		at = max(at, old.At+1)
	}
	return rewind(tx, id, messages, Rewind{To: to, At: at, ToAt: messages[i].CreatedAt})
}

// UnrewindSession undoes the last rewind of a session that holds, whoever made it: what it
// hid is seen again, except for what an earlier one hides too. The error where there is
// none wraps [ErrNoRewind], that for a session that is not there ErrNotFound.
func UnrewindSession(tx Tx, id string) (Rewound, error) {
	row, messages, err := existingWhole(tx, id)
	if err != nil {
		return Rewound{}, err
	}
	last := lastRewind(row, messages)
	if last == nil {
		return Rewound{}, fmt.Errorf("session %s: %w", id, ErrNoRewind)
	}
	last.Undone = true
	return rewind(tx, id, messages, *last)
}

// lastRewind is the last rewind that holds. One that another program made, or that came with an import, is known by
// what it hid alone; one that another program has undone does not hold.
func lastRewind(row *SessionRow, messages []session.Message) (last *Rewind) {
	known := make(map[int64]bool)
	for i, holds := range RewindsInForce(row.State.Rewinds, messages) {
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
			last = &Rewind{To: user, At: *m.HiddenAt}
		}
		if m.Role == session.RoleUser {
			user = m.ID
		}
	}
	return last
}

// rewind applies a rewind and returns with it the messages that it hid or brought back. before are those of the
// session.
func rewind(tx Tx, id string, before []session.Message, rw Rewind) (Rewound, error) {
	if err := change(tx, SessionChange{ID: id, Rewinds: []Rewind{rw}}); err != nil {
		return Rewound{}, err
	}
	_, after, err := existingWhole(tx, id)
	if err == nil && len(before) != len(after) {
		err = fmt.Errorf("rewind session %s: it had %d messages and has %d", id, len(before), len(after))
	}
	if err != nil {
		return Rewound{}, err
	}
	r := Rewound{To: rw.To, At: rw.At}
	for i := range after {
		if (before[i].HiddenAt == nil) != (after[i].HiddenAt == nil) {
			r.Messages = append(r.Messages, after[i].ID)
		}
	}
	return r, nil
}

// A connector sends each span of a session once. What it sends is kept in span_outbox, and its spans are noted in
// sent_spans, by one transaction; it is removed when the next consumer has taken it. So nothing is lost when the
// process is killed in between, and what may then arrive twice has the same bytes.

// Unsent is a session that changed since its spans were looked at, or that has a request which was not taken yet.
type Unsent struct {
	SessionID string
	// TouchedAt differs after each change; 0 if there was none.
	TouchedAt int64
	// Request is what is to be sent, nil if that is nothing.
	Request []byte
}

// KeepRequest keeps what is to be sent of a session next, with the ids of its spans. Unless the session stays in the
// outbox, it is noted as looked at, if it has not changed since u was read. If another process keeps a request, or has
// sent one of the spans, an error is returned and nothing is changed.
func KeepRequest(ctx context.Context, s Store, u *Unsent, spanIDs []string, stays bool) error {
	return inOutbox(ctx, s, u.SessionID, func(s Statements, refused *error) {
		for _, id := range spanIDs {
			s.Put(refused, `INSERT INTO sent_spans(session_id, span_id) VALUES (?, ?)`, u.SessionID, id)
		}
		if u.Request != nil {
			s.Put(refused, `UPDATE span_outbox SET request = ? WHERE session_id = ? AND request IS NULL`,
				u.Request, u.SessionID)
		}
		if !stays {
			s.Exec(`UPDATE span_outbox SET touched_at = 0 WHERE session_id = ? AND touched_at = ?`, u.SessionID, u.TouchedAt)
		}
		s.Exec(removeSent, u.SessionID)
	})
}

// RequestTaken removes the request of a session.
func RequestTaken(ctx context.Context, s Store, sessionID string) error {
	return inOutbox(ctx, s, sessionID, func(s Statements, _ *error) {
		s.Exec(`UPDATE span_outbox SET request = NULL WHERE session_id = ?`, sessionID)
		s.Exec(removeSent, sessionID)
	})
}

const removeSent = `DELETE FROM span_outbox WHERE session_id = ? AND touched_at = 0 AND request IS NULL`

// inOutbox executes statements about a session in a transaction of their own.
func inOutbox(ctx context.Context, s Store, sessionID string, add func(s Statements, refused *error)) error {
	return s.Transact(ctx, func(tx Tx) error {
		var refused error
		err := tx.Do(func(s Statements) {
			s.Name(NameSession, sessionID)
			add(s, &refused)
		})
		return errors.Join(err, refused)
	})
}
