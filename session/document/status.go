package document

import (
	"bytes"
	"cmp"
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

// News is one thing that is new in a session. Its JSON is a line of "agenttrace tail --json", a stable format: events
// and keys are added, never renamed. What an event has no use for is absent. Times are in Unix milliseconds.
type News struct {
	// Event is one of News…
	Event     string `json:"event"`
	SessionID string `json:"session_id"`
	// At is when it happened, as the agent's clock has it.
	At int64 `json:"at"`

	Title    string `json:"title,omitempty"`
	Agent    string `json:"agent,omitempty"`
	ParentID string `json:"parent_id,omitempty"`

	Status *Status `json:"status,omitempty"`

	MessageID string `json:"message_id,omitempty"`
	Role      string `json:"role,omitempty"`
	PartID    string `json:"part_id,omitempty"`
	// Kind is that of the part.
	Kind Kind `json:"kind,omitempty"`

	// Delta is what a text has grown by. Where Replaced is set, it is the whole text, and replaces what was reported of
	// it before. Done reports that it will not grow any more, as far as is known.
	Delta    string `json:"delta,omitempty"`
	Replaced bool   `json:"replaced,omitempty"`
	Done     bool   `json:"done,omitempty"`

	Tool     *ToolCall       `json:"tool,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	File     *File           `json:"file,omitempty"`
	Source   *Source         `json:"source,omitempty"`
	Decision *Decision       `json:"decision,omitempty"`

	// State, Usage, DurationMS, StopReason and Error report how an answer ended.
	State      State          `json:"state,omitempty"`
	Usage      *session.Usage `json:"usage,omitempty"`
	DurationMS *int64         `json:"duration_ms,omitempty"`
	StopReason string         `json:"stop_reason,omitempty"`
	Error      string         `json:"error,omitempty"`

	Part *Part `json:"-"`
}

// Events of [News].
const (
	// NewsSession: a session appeared, or has another title or agent.
	NewsSession = "session"
	// NewsStatus: it does something else than before.
	NewsStatus = "status"
	// NewsMessage: a message began. NewsMessageEnd: an answer is over.
	NewsMessage    = "message"
	NewsMessageEnd = "message_end"
	// NewsText: a text or reasoning part began, or has grown.
	NewsText = "text"
	// NewsTool: a tool call began, or is in another state.
	NewsTool = "tool"
	// NewsPart: a part of another kind.
	NewsPart = "part"
	// NewsDecision: a permission was evaluated, or a human has answered.
	NewsDecision = "decision"
	// NewsHidden: a rewind hid a message. NewsShown: it is there again.
	NewsHidden = "message_hidden"
	NewsShown  = "message_shown"
)

// Follower reports what is new in sessions that are read again and again. Its memory
// is that of the messages that it was shown last. It is used by one goroutine.
type Follower struct {
	// IdleTimeout is when a session counts as interrupted: see [StatusOf].
	IdleTimeout time.Duration
	sessions    map[string]*followed
}

// followed is what was reported of one session.
type followed struct {
	head      session.Session
	status    Status
	messages  map[string]*Message
	decisions map[string]Decision
}

// Read takes the end of a session as it is now, and returns what is new in it. It
// reports everything of a session that it has not seen before, and of messages that
// it has not. Messages that were there before and are not any more are forgotten.
func (f *Follower) Read(t *session.Transcript, decisions []store.Decision, now time.Time) []News {
	s := &t.Session
	old := f.sessions[s.ID]
	next := &followed{head: *s, messages: make(map[string]*Message), decisions: make(map[string]Decision)}
	var news []News
	if old == nil || old.head.Title != s.Title || old.head.Agent != s.Agent {
		news = append(news, News{Event: NewsSession, At: s.UpdatedAt, Title: s.Title, Agent: s.Agent,
			ParentID: session.Deref(s.ParentID)})
		if old == nil {
			news[0].At = s.CreatedAt
			old = new(followed)
		}
	}
	b := newBuilder(Input{Transcript: t, Decisions: decisions}, t)
	for i := range t.Messages {
		m := b.read(&t.Messages[i])
		next.messages[m.ID] = m
		news = m.news(news, old.messages[m.ID])
	}
	for _, d := range decisions {
		next.decisions[d.ID] = d
		if before, known := old.decisions[d.ID]; !known || before.Outcome != d.Outcome || before.Reply != d.Reply {
			// It is reported before what the call came to.
			at := slices.IndexFunc(news, func(n News) bool {
				return n.Tool != nil && n.Tool.CallID == d.ToolCallID && !n.Tool.Open()
			})
			if at < 0 {
				at = len(news)
			}
			news = slices.Insert(news, at, News{
				Event: NewsDecision, At: d.DecidedAt, MessageID: d.MessageID, PartID: d.PartID, Decision: &d,
			})
		}
	}
	next.status = StatusOf(s, t, decisions, now, f.IdleTimeout)
	if reported, ok := changed(&old.status, &next.status); ok {
		news = append(news, reported)
	}
	for i := range news {
		news[i].SessionID = s.ID
	}
	if f.sessions == nil {
		f.sessions = make(map[string]*followed)
	}
	f.sessions[s.ID] = next
	return news
}

// Idle returns the news of sessions that have become interrupted, by their id.
func (f *Follower) Idle(now time.Time) []News {
	var news []News
	for id, s := range f.sessions {
		before := s.status
		s.status.interrupt(now, f.IdleTimeout)
		if reported, ok := changed(&before, &s.status); ok {
			reported.SessionID = id
			news = append(news, reported)
		}
	}
	return session.SortedRows(news, func(x, y *News) int { return strings.Compare(x.SessionID, y.SessionID) })
}

// Prune forgets the sessions that are not kept, except those at work, and returns their ids.
func (f *Follower) Prune(kept map[string]bool) []string {
	var gone []string
	for id, s := range f.sessions {
		if !kept[id] && !s.status.atWork() {
			gone = append(gone, id)
			delete(f.sessions, id)
		}
	}
	return gone
}

// Forget forgets a session.
func (f *Follower) Forget(id string) { delete(f.sessions, id) }

func changed(before, after *Status) (News, bool) {
	if after.State == before.State && after.Attempt == before.Attempt && after.Detail == before.Detail &&
		after.ToolCallID == before.ToolCallID && after.Was == before.Was {
		return News{}, false
	}
	if before.State == ActivityUnknown && after.State == ActivityIdle && !after.Declared {
		return News{}, false // of a session that never declared a status
	}
	st := *after
	st.LastMessage = nil
	at := cmp.Or(st.Since, st.UpdatedAt)
	return News{Event: NewsStatus, At: at, Status: &st}, true
}

// news adds what is new in the message since it was old, which is nil if it was not there.
func (m *Message) news(all []News, old *Message) []News {
	if old == nil {
		all = append(all, News{Event: NewsMessage, At: m.CreatedAt, MessageID: m.ID, Role: m.Role})
		old = new(Message)
	}
	if (m.HiddenAt != nil) != (old.HiddenAt != nil) {
		n := News{Event: NewsShown, At: m.UpdatedAt, MessageID: m.ID, Role: m.Role}
		if m.HiddenAt != nil {
			n.Event, n.At = NewsHidden, *m.HiddenAt
		}
		all = append(all, n)
	}
	before := make(map[string]*Part, len(old.Parts))
	for _, p := range old.Parts {
		before[p.ID] = p
	}
	for _, p := range m.Parts {
		if n, isNew := p.news(before[p.ID]); isNew {
			n.MessageID, n.Role, n.PartID, n.Kind, n.Part = m.ID, m.Role, p.ID, p.Kind, p
			all = append(all, n)
		}
	}
	if m.over() && !old.over() {
		all = append(all, News{
			Event: NewsMessageEnd, At: m.UpdatedAt, MessageID: m.ID, Role: m.Role, State: m.State, Usage: m.Usage,
			DurationMS: m.DurationMS, StopReason: m.StopReason, Error: m.Error,
		})
	}
	return all
}

// over reports that the message is an answer that has ended.
func (m *Message) over() bool {
	return m.answers() && m.State != StateIncomplete && m.State != StateUnknown
}

func (p *Part) news(old *Part) (n News, isNew bool) {
	first := old == nil
	if first {
		old = new(Part)
	}
	n.At = p.UpdatedAt
	switch p.Kind {
	case KindText, KindReasoning:
		n.Event, n.Done = NewsText, !p.Streaming
		var grew bool
		if n.Delta, grew = strings.CutPrefix(p.Text, old.Text); !grew {
			n.Delta, n.Replaced = p.Text, true
		}
		return n, first || n.Delta != "" || n.Replaced || p.Streaming != old.Streaming
	case KindTool:
		n.Event, n.Tool = NewsTool, p.Tool
		return n, old.Tool == nil || p.Tool.State != old.Tool.State
	case KindStep:
		return n, false
	}
	n.Event, n.Data, n.File, n.Source = NewsPart, p.Data, p.File, p.Source
	return n, first || p.File == nil && p.Source == nil && !bytes.Equal(p.Data, old.Data)
}
