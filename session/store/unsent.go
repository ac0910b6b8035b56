package store

// A connector sends each span of a session once. What it sends is kept in span_outbox, and its spans are noted in
// sent_spans, by one transaction; it is removed when the next consumer has taken it. So nothing is lost when the process
// is killed in between, and what may then arrive twice has the same bytes.

// Unsent is a session that changed since its spans were looked at, or that has a request which was not taken yet.
type Unsent struct {
	SessionID string
	// TouchedAt differs after each change; 0 if there was none.
	TouchedAt int64
	// Request is what is to be sent, nil if that is nothing.
	Request []byte
}

// ReadUnsent returns the sessions of the outbox in the order in which they changed, except those of which a turn is yet
// to be rebuilt. The store has an outbox of spans only if it was opened with one.
func ReadUnsent(tx Tx) (all []Unsent, err error) {
	err = tx.Do(func(s Statements) {
		s.Select(`SELECT session_id, touched_at, request FROM span_outbox o WHERE request IS NOT NULL
 OR NOT EXISTS (SELECT 1 FROM unbuilt_turns u WHERE u.owner = o.session_id) ORDER BY touched_at, session_id`,
			func(row Row) error {
				u := Unsent{SessionID: row.ColumnText(0), TouchedAt: row.ColumnInt64(1)}
				if !row.ColumnIsNull(2) {
					u.Request = Bytes(row, 2, nil)
				}
				all = append(all, u)
				return nil
			})
	})
	return all, err
}

// SentSpans returns the ids of the spans that were sent of a session, or are about to be.
func SentSpans(tx Tx, sessionID string) (map[string]bool, error) {
	sent := make(map[string]bool)
	err := tx.Do(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Select(`SELECT span_id FROM sent_spans WHERE session_id = ?`, func(row Row) error {
			sent[row.ColumnText(0)] = true
			return nil
		}, sessionID)
	})
	return sent, err
}

// KeepRequest keeps what is to be sent of a session next, with the ids of its spans. Unless the session stays in the outbox, it is noted as looked at, if it has not changed since u was read. It fails
// if another process has sent one of the spans.
func KeepRequest(tx Tx, u *Unsent, spanIDs []string, stays bool) error {
	return tx.Do(func(s Statements) {
		s.Name(NameSession, u.SessionID)
		for _, id := range spanIDs {
			s.Exec(`INSERT INTO sent_spans(session_id, span_id) VALUES (?, ?)`, u.SessionID, id)
		}
		if u.Request != nil {
			s.Exec(`UPDATE span_outbox SET request = ? WHERE session_id = ?`, u.Request, u.SessionID)
		}
		if !stays {
			s.Exec(`UPDATE span_outbox SET touched_at = 0 WHERE session_id = ? AND touched_at = ?`, u.SessionID, u.TouchedAt)
		}
		s.Exec(removeSent, u.SessionID)
	})
}

// RequestTaken removes the request of a session.
func RequestTaken(tx Tx, sessionID string) error {
	return tx.Do(func(s Statements) {
		s.Name(NameSession, sessionID)
		s.Exec(`UPDATE span_outbox SET request = NULL WHERE session_id = ?`, sessionID)
		s.Exec(removeSent, sessionID)
	})
}

const removeSent = `DELETE FROM span_outbox WHERE session_id = ? AND touched_at = 0 AND request IS NULL`
