package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

// Turns are found in q, a question, and answers: a number is the turn index of one, a word how one ended without an
// index. Of turns that are open at once, the numbers behind the slash are how many, and the index of the first.
func TestTurnsOfQuestionsAndAnswers(t *testing.T) {
	for messages, want := range map[string]string{
		"finish error finish": "3", "- finish": "1", "1 1": "1", "q finish finish": "1", "q q 0 1": "2/2,0",
		"q q 1 0": "2/2,0", "q q 0 1 0 1": "2/2,0", "q 0 q q 1 2": "3/2,1", "q q q 2 0 1": "3/3,0",
		"q q 0 q 1 2": "3/3,0", "q q 1 q 0 2": "3/3,0", "q q q 0 1": "3/3,0", "q q 0 1 q 2": "3",
		"q 0 q q 0 1": "3/2,0", "q q 0": "2", "q q 0 q 1": "3", "q q 1 q 2": "3", "q q 1 2": "3", "q 0 1": "2",
		"q 0 q 1 3": "3", "q 0 q q 5 6": "4",
	} {
		var turns session.Turns
		n := 0
		for word := range strings.FieldsSeq(messages) {
			m := session.TurnMessage{Role: session.RoleAssistant, Trace: &session.MessageTrace{EndReason: word}}
			var index int64
			if word == "q" {
				m.Role = session.RoleUser
			} else if _, err := fmt.Sscan(word, &index); err == nil {
				m.Trace.TurnIndex = &index
			}
			if begins, _ := turns.Next(m); begins {
				n++
			}
		}
		got := fmt.Sprint(n)
		if open, first := turns.Together(); open > 0 {
			got += fmt.Sprintf("/%d,%d", open, first)
		}
		if got != want {
			t.Errorf("%s: %s turns, want %s", messages, got, want)
		}
	}
}
