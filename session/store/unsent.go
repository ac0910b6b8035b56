package store

import (
	"context"
	"errors"
)

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
