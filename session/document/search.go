package document

import (
	"context"

	"github.com/agenttrace/agenttrace/session/store"
)

// NumberTurns sets the Turn of each hit to the number that the session's timeline
// gives the turn. It reads each session of a hit once. A session that is gone
// meanwhile has no numbers.
func NumberTurns(ctx context.Context, r store.Reader, hits []store.Hit) error {
	sessions := map[string]map[string]int{}
	for i := range hits {
		h := &hits[i]
		turns, known := sessions[h.SessionID]
		if !known {
			t, err := r.Transcript(ctx, h.SessionID)
			if ignoreNotFound(err) != nil {
				return err
			}
			turns = map[string]int{}
			if t != nil {
				turns = TurnNumbers(t)
			}
			sessions[h.SessionID] = turns
		}
		h.Turn = turns[h.MessageID]
	}
	return nil
}
