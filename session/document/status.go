package document

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Activity is what a session is doing, as far as its store shows.
type Activity string

// Activities. All but ActivityUnknown and ActivityInterrupted are what agents report of themselves.
const (
	// ActivityUnknown: the row reports nothing, and the messages were not looked at.
	ActivityUnknown          Activity = ""
	ActivityIdle             Activity = "idle"
	ActivityBusy             Activity = "busy"
	ActivityRetrying         Activity = "retrying"
	ActivityWaitingApproval  Activity = "waiting_on_approval"
	ActivityWaitingUserInput Activity = "waiting_on_user_input"
	// ActivityError: what went on last has failed.
	ActivityError Activity = "error"
	// ActivityInterrupted: the session was busy or retrying when it last updated, and that is too long ago. Its agent
	// died or cannot be reached. A reader derives it: nobody stores it. Where the agent repeats what it does, a session
	// that waits for a human can be interrupted too.
	ActivityInterrupted Activity = "interrupted"
)

// outcomes are the signs and words of activities and states.
var outcomes = map[string][2]string{
	string(ActivityBusy): {"►", "busy"}, string(ActivityRetrying): {"↻", "retrying"},
	string(ActivityWaitingApproval):  {"?", "waiting for approval"},
	string(ActivityWaitingUserInput): {"?", "waiting for an answer"}, string(StateWaiting): {"?", "waiting for a human"},
	string(StateError): {"✗", "error"}, string(StateFinished): {"✓", "finished"}, string(StateAborted): {"■", "aborted"},
	string(ActivityInterrupted): {"◌", "interrupted"}, string(StateIncomplete): {"◌", "incomplete"},
	string(ActivityIdle): {"·", "idle"},
}

// OutcomeWords puts an [Activity] or a [State] into words, which go with a sign of one character; both are "" of an
// unknown one.
func OutcomeWords(of string) (sign, words string) { return outcomes[of][0], outcomes[of][1] }

// Waiting reports that a human is waited for.
func (a Activity) Waiting() bool {
	return a == ActivityWaitingApproval || a == ActivityWaitingUserInput
}

// Trouble reports that somebody should look.
func (a Activity) Trouble() bool { return a == ActivityError || a == ActivityInterrupted }

// DefaultIdleTimeout is how long a session that works may go without an update before it counts as interrupted, by
// default: longer than a model thinks. That is for agents without a heartbeat; one that has one is interrupted when it
// misses three.
const DefaultIdleTimeout = 10 * time.Minute

const missedHeartbeats = 3

// Status is what a session is doing. Its JSON is a stable format: keys are added,
// never renamed. Times are in Unix milliseconds.
type Status struct {
	SessionID string   `json:"session_id"`
	Title     string   `json:"title"`
	Agent     string   `json:"agent"`
	State     Activity `json:"state"`
	// Since is when the state began, as far as is known; of an interrupted session
	// when it was last updated. 0 is unknown.
	Since int64 `json:"since,omitempty"`
	// Declared reports that the agent itself reported the state. Otherwise it is derived from
	// the messages, or from how the last run ended.
	Declared bool `json:"declared"`
	// Was is the state of an interrupted session before.
	Was Activity `json:"was,omitempty"`
	// Attempt counts retries from 1. Detail reports what is retried or waited for, or
	// what went wrong; ToolCallID is the call that waits.
	Attempt    int64  `json:"attempt,omitempty"`
	Detail     string `json:"detail,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	// OpenCalls are the tool calls of the last turn that have not ended, in order.
	OpenCalls []OpenCall `json:"open_calls,omitempty"`
	// LastMessage is the last that is not hidden.
	LastMessage *LastMessage `json:"last_message,omitempty"`
	// UpdatedAt is when the session was last updated.
	UpdatedAt int64 `json:"updated_at"`
	// Heartbeat is how often the agent repeats its state while it lasts, in milliseconds; 0 of one that does not.
	Heartbeat int64 `json:"heartbeat,omitempty"`
}

// OpenCall is a tool call in the state in which it was seen last.
type OpenCall struct {
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	State  string `json:"state"`
	// Input is absent when it never arrived.
	Input     json.RawMessage `json:"input,omitempty"`
	CreatedAt int64           `json:"created_at"`
	UpdatedAt int64           `json:"updated_at"`
}

// LastMessage is the end of a conversation.
type LastMessage struct {
	ID   string `json:"id"`
	Role string `json:"role"`
	// Text is that of its last part that has one.
	Text string `json:"text"`
	// Incomplete reports that more was to come.
	Incomplete bool  `json:"incomplete,omitempty"`
	CreatedAt  int64 `json:"created_at"`
	UpdatedAt  int64 `json:"updated_at"`
}

// StatusOf returns what a session is doing.
//
// The last status that the agent declared counts, with one exception: a run that is over leaves a session idle also
// when a call of it waits for a human; then the session waits. Where the agent declares nothing the messages are read:
// a call that waits for an approval, one that is open or a text that streams in a turn that has not ended, an error at
// the end.
//
// Of the messages t needs the last visible turn. It may be nil, which leaves out what only messages tell. Decisions may
// be nil, too: they have what is waited for. A session that is at work and was not updated for longer than idleTimeout,
// or than three heartbeats of its agent, is interrupted; with a zero now or idleTimeout none is. Nothing is written.
func StatusOf(s *session.Session, t *session.Transcript, decisions []store.Decision, now time.Time,
	idleTimeout time.Duration) Status {
	if t == nil {
		return statusOf(s, nil, now, idleTimeout)
	}
	return statusOf(s, Build(Input{Transcript: t, Decisions: decisions}), now, idleTimeout)
}

func statusOf(s *session.Session, doc *Document, now time.Time, idleTimeout time.Duration) Status {
	st := Status{SessionID: s.ID, Title: s.Title, Agent: s.Agent, UpdatedAt: s.UpdatedAt}
	st.declare(s)
	var turn *Turn
	if doc != nil {
		turn = st.read(doc)
	}
	switch {
	case !st.Declared:
		st.derive(s, turn)
	case turn != nil && (st.State == ActivityIdle || st.State == ActivityError):
		st.wait(turn)
	}
	st.explain(doc)
	st.interrupt(now, idleTimeout)
	return st
}

// atWork reports that the session's process must be alive for what it does.
func (st *Status) atWork() bool {
	return st.State == ActivityBusy || st.State == ActivityRetrying || st.State.Waiting() && st.Heartbeat > 0
}

// interrupt makes a session that is at work and was not updated for too long an interrupted one. Every reader uses it.
func (st *Status) interrupt(now time.Time, idleTimeout time.Duration) {
	if !st.atWork() || now.IsZero() || idleTimeout <= 0 {
		return
	}
	if st.Heartbeat > 0 {
		idleTimeout = min(idleTimeout, missedHeartbeats*time.Duration(st.Heartbeat)*time.Millisecond)
	}
	lastSeen := max(st.UpdatedAt, st.Since)
	if now.Sub(time.UnixMilli(lastSeen)) > idleTimeout {
		st.Was, st.State, st.Since = st.State, ActivityInterrupted, lastSeen
	}
}

// declare reads the status that the agent declared, if it is one of the states that agents have.
func (st *Status) declare(s *session.Session) {
	of := gjson.Get(s.MetadataJSON, "status")
	switch state := Activity(of.Get("state").String()); state {
	case ActivityIdle, ActivityBusy, ActivityRetrying, ActivityWaitingApproval, ActivityWaitingUserInput, ActivityError:
		st.State, st.Since, st.Declared = state, of.Get("at").Int(), true
		st.Attempt, st.Detail = of.Get("attempt").Int(), of.Get("detail").String()
		st.ToolCallID = of.Get("tool_call_id").String()
		st.Heartbeat = int64(min(max(0, of.Get("heartbeat").Float()), float64(DefaultIdleTimeout.Milliseconds())))
	}
}

// read notes what is open in the last turn and how the conversation ends. It returns that turn.
func (st *Status) read(doc *Document) *Turn {
	turn := doc.LastTurn()
	if turn == nil {
		return nil
	}
	for _, m := range turn.Messages {
		if m.HiddenAt != nil {
			continue
		}
		last := LastMessage{
			ID: m.ID, Role: m.Role, Incomplete: m.incomplete, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		}
		for _, p := range m.Parts {
			if p.Kind == KindText && strings.TrimSpace(p.Text) != "" {
				last.Text = p.Text
			}
			if c := p.Tool; c != nil && c.Open() {
				st.OpenCalls = append(st.OpenCalls, OpenCall{
					CallID: c.CallID, Tool: c.Name, State: c.State, Input: c.Input,
					CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
				})
			}
		}
		st.LastMessage = &last
	}
	return turn
}

// wait finds a call of the turn that waits for a human. Where the turn reports that it ended to wait, any call that is
// open does; where it was aborted or failed, none does, in whatever state it was left.
func (st *Status) wait(turn *Turn) bool {
	if turn.EndReason == "abort" || turn.EndReason == "error" {
		return false
	}
	for _, c := range st.OpenCalls {
		if c.State == session.StateApprovalRequested {
			st.State, st.Since = ActivityWaitingApproval, c.UpdatedAt
			st.ToolCallID, st.Detail, st.Attempt = c.CallID, "", 0
			return true
		}
	}
	if turn.State != StateWaiting {
		return false
	}
	st.State, st.Since, st.Detail, st.Attempt = ActivityWaitingApproval, st.LastMessage.UpdatedAt, "", 0
	if n := len(st.OpenCalls); n > 0 {
		// A call that runs and does not wait for an approval asks its user something.
		st.State, st.ToolCallID = ActivityWaitingUserInput, st.OpenCalls[n-1].CallID
	}
	return true
}

// derive reads from the messages what the agent does not report, and from how the last run ended.
func (st *Status) derive(s *session.Session, turn *Turn) {
	outcome, problem := stateOfSession(s)
	if turn == nil {
		switch {
		case outcome == StateError:
			st.State, st.Detail = ActivityError, problem
		case outcome != StateUnknown || st.LastMessage != nil:
			st.State = ActivityIdle
		}
		return
	}
	if st.wait(turn) {
		return
	}
	last := st.LastMessage
	st.Since = last.UpdatedAt
	over := turn.EndReason != "" || outcome != StateUnknown && turn.State != StateIncomplete
	switch {
	case !over && turn.underWay():
		st.State = ActivityBusy
		if n := len(st.OpenCalls); n > 0 {
			st.Since = st.OpenCalls[n-1].UpdatedAt
		}
	case turn.State == StateError:
		st.State, st.Detail = ActivityError, turn.Error
	case outcome == StateError && !slices.Contains([]State{StateFinished, StateAborted}, turn.State):
		st.State, st.Detail = ActivityError, problem
	default:
		st.State = ActivityIdle
	}
}

// underWay reports that something in the turn had begun and not ended when it was seen last.
func (t *Turn) underWay() bool {
	for i, m := range t.Messages {
		if m.HiddenAt != nil {
			continue
		}
		if m.Role == session.RoleUser && m.incomplete && i == len(t.Messages)-1 {
			return true // it was reported live, and no answer has begun
		}
		for _, p := range m.Parts {
			if p.Streaming && m.incomplete || p.Tool != nil && p.Tool.Open() && !p.Tool.Stub {
				return true
			}
		}
	}
	return false
}

// explain fills in what is waited for where that was not reported.
func (st *Status) explain(doc *Document) {
	if doc == nil || !st.State.Waiting() || st.Detail != "" {
		return
	}
	if st.ToolCallID == "" && len(st.OpenCalls) == 1 {
		st.ToolCallID = st.OpenCalls[0].CallID
	}
	for _, d := range doc.Decisions {
		if d.ToolCallID == st.ToolCallID && d.ToolCallID != "" && d.Outcome == "pending" {
			st.Detail = d.Reason
		}
	}
}

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

// ends are the states by end reason. Words that are not the project's are no state.
var ends = map[string]State{"finish": StateFinished, "abort": StateAborted, "error": StateError}

// stateOfSession is what the session's own row reports: how its last run ended.
func stateOfSession(s *session.Session) (State, string) {
	of := gjson.Get(s.MetadataJSON, "agenttrace")
	return ends[of.Get("outcome").String()], of.Get("error").String()
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
