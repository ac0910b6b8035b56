package session_test

import (
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

// Where an agent does not report what it is asked, each of its answers is a turn.
func TestAnswersWithoutPromptsAreTurns(t *testing.T) {
	one := int64(1)
	answer := func(reason string, index *int64) session.TurnMessage {
		return session.TurnMessage{Role: session.RoleAssistant,
			Trace: &session.MessageTrace{EndReason: reason, TurnIndex: index}}
	}
	for name, c := range map[string]struct {
		messages []session.TurnMessage
		turns    int
	}{
		"each ended":        {[]session.TurnMessage{answer("finish", nil), answer("error", nil), answer("finish", nil)}, 3},
		"one goes on":       {[]session.TurnMessage{answer("", nil), answer("finish", nil)}, 1},
		"of one turn":       {[]session.TurnMessage{answer("finish", &one), answer("finish", &one)}, 1},
		"behind one prompt": {[]session.TurnMessage{{Role: "user"}, answer("finish", nil), answer("finish", nil)}, 1},
	} {
		var turns session.Turns
		n := 0
		for _, m := range c.messages {
			if begins, _ := turns.Next(m); begins {
				n++
			}
		}
		if n != c.turns {
			t.Errorf("%s: %d turns, want %d", name, n, c.turns)
		}
	}
}
