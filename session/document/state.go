package document

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
)

// State is the state of a turn or a session.
type State string

// States. A source that does not state how something ended leaves it [StateUnknown].
const (
	StateUnknown  State = ""
	StateFinished State = "finished"
	// StateAborted: stopped by its user. What is there is where it stopped.
	StateAborted State = "aborted"
	// StateError: ended by an error.
	StateError State = "error"
	// StateWaiting: ended to wait for a human, and will be continued.
	StateWaiting State = "waiting"
	// StateIncomplete: the span of the whole turn has not arrived. The turn is
	// still running, or its agent or collector died.
	StateIncomplete State = "incomplete"
)

// Bad reports that a run ended before it was done. A session's row shows no more of
// a run that did not: it may have ended to wait for a human.
func (s State) Bad() bool { return s == StateAborted || s == StateError }

// stateOf maps an end reason. Words that are not the project's are no state.
func stateOf(reason string) State {
	switch reason {
	case "finish":
		return StateFinished
	case "abort":
		return StateAborted
	case "error":
		return StateError
	}
	return StateUnknown
}

// sessionMeta is what is read of the metadata of a session. A value of the wrong kind is not set.
type sessionMeta struct {
	Status json.RawMessage `json:"status"`
	Trace  struct {
		Outcome string `json:"outcome"`
		Error   string `json:"error"`
		Dialect string `json:"dialect"`
		// SessionKey is the attribute that names the session, empty if its id is that of its trace.
		SessionKey string `json:"session_key"`
	} `json:"agenttrace"`
}

func metaOf(s *session.Session) (m sessionMeta) {
	_ = json.Unmarshal([]byte(s.MetadataJSON), &m)
	return m
}

// stateOfSession is what the session's own row reports: how its last run ended.
func stateOfSession(s *session.Session) (State, string) {
	m := metaOf(s)
	return stateOf(m.Trace.Outcome), m.Trace.Error
}

// state is that of the last turn where it is open, else how the last run ended, else how the last turn did.
func (doc *Document) state(s *session.Session) (State, string) {
	last := lastOf(doc.Turns, func(t *Turn) bool { return !t.Hidden && t.State != StateUnknown })
	if last != nil && (last.State == StateIncomplete || last.State == StateWaiting) {
		return last.State, last.Error
	}
	if state, problem := stateOfSession(s); state != StateUnknown {
		if problem == "" && last != nil && state == StateError {
			problem = last.Error
		}
		return state, problem
	}
	if last != nil {
		return last.State, last.Error
	}
	return StateUnknown, ""
}
