package agenttrace

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// StatusState states what a session is doing.
type StatusState string

// States of a session.
const (
	StatusIdle     StatusState = semconv.StatusIdle
	StatusBusy     StatusState = semconv.StatusBusy
	StatusRetrying StatusState = semconv.StatusRetrying
	// StatusWaitingApproval: a tool call waits for a human to allow it.
	StatusWaitingApproval StatusState = semconv.StatusWaitingApproval
	// StatusWaitingUserInput: the agent has asked its user something.
	StatusWaitingUserInput StatusState = semconv.StatusWaitingUserInput
	// StatusError: the last turn or run failed. The next one may begin.
	StatusError StatusState = semconv.StatusError
)

// Status is what a session is doing. The zero Status is idle.
type Status struct {
	State StatusState
	// Attempt counts retries from 1.
	Attempt int
	// Detail states what is retried or waited for, or what went wrong.
	Detail string
	// CallID is the tool call that waits.
	CallID string
}

// Status returns what the session is doing: busy in a turn or a compaction, waiting where a tool call does, error
// when what went on last failed, and otherwise idle; retrying, and waiting for input, where the agent reports so.
// Of runs of which nothing is recorded and in which nothing decides it knows nothing.
func (s *Session) Status() Status {
	if s == nil {
		return Status{State: StatusIdle}
	}
	return locked(s, s.current)
}

// current is Status; the caller holds mu.
func (s *Session) current() Status {
	st := s.status
	st.State = cmp.Or(st.State, StatusIdle)
	return st
}

// SetStatus states what the session is doing where the SDK cannot know. It holds until a turn, a model call or a
// tool call that begins, ends or waits changes it.
func (s *Session) SetStatus(ctx context.Context, st Status) {
	if s == nil {
		return
	}
	st.State = cmp.Or(st.State, StatusIdle)
	now := s.now()
	st.Detail, st.CallID = validUTF8(st.Detail), validUTF8(st.CallID)
	s.do(&s.mu, func() {
		events := s.runEvents
		if t := TurnFromContext(ctx); t != nil && t.run.sess == s && t.events != nil {
			events = t.events
		}
		s.enter(events, now, st)
	})
}

// Retrying reports that a model call failed with err and is tried again, for the
// attempt-th time. It holds until the next model call or part.
func (t *Turn) Retrying(attempt int, err error) {
	st := Status{State: StatusRetrying, Attempt: max(1, attempt)}
	if err != nil {
		st.Detail = errorText(err)
	}
	t.enter(st)
}

// AwaitInput reports that the turn goes on when its user has answered a question. It holds until the next model
// call. A tool that asks is better reported by [ToolCall.AwaitInput], which outlives the process.
func (t *Turn) AwaitInput(question string) {
	t.enter(Status{State: StatusWaitingUserInput, Detail: validUTF8(question)})
}

func (t *Turn) enter(st Status) {
	if t == nil || t.off {
		return
	}
	if t.hasEnded() {
		t.drop("a status")
		return
	}
	s := t.run.sess
	now := s.now()
	s.do(&s.mu, func() { s.enter(t.events, now, st) })
}

// enter changes the status, and reports it if it is another. While something is
// open it is repeated. The caller holds mu.
func (s *Session) enter(events context.Context, now time.Time, st Status) {
	heartbeats := s.working > 0 && events != nil && s.tracer.live.Heartbeat > 0 &&
		st.State != StatusIdle && st.State != StatusError
	same := st == s.current()
	if same && heartbeats == s.heartbeats {
		return
	}
	s.status, s.heartbeats, s.beatEvents = st, heartbeats, nil
	if !same {
		s.since = now
	}
	if events == nil {
		return
	}
	s.emitStatus(events, now)
	if heartbeats {
		s.beatEvents = events
		s.wake(s.tracer.live.Heartbeat)
	}
}

// emitStatus queues the status. The caller holds mu.
func (s *Session) emitStatus(events context.Context, now time.Time) {
	st := s.current()
	e := spans.Event{
		Name: semconv.EventStatus, Status: string(st.State), Attempt: int64(st.Attempt), CallID: st.CallID,
		Detail: s.tracer.filter.text(redact.Other, "", st.Detail),
	}
	if s.heartbeats {
		e.Heartbeat = s.tracer.live.Heartbeat.Milliseconds()
	}
	if s.since.UnixMilli() != now.UnixMilli() {
		e.Since = s.since.UnixMilli()
	}
	s.emitEvent(events, now, e)
}

// goesOn reports that the turn is at work: a retry is over; so is, when a model call begins, a question to the user.
func (t *Turn) goesOn(now time.Time, modelCall bool) {
	s := t.run.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.status.State == StatusWaitingUserInput && s.status.CallID == ""
	if s.status.State == StatusRetrying || modelCall && asked {
		s.enter(t.events, now, s.atWork())
	}
}

// atWork is the status of a session in which something is open: it waits if a tool call does. The caller holds mu.
func (s *Session) atWork() Status {
	if n := len(s.waits); n > 0 {
		return s.waits[n-1].Status
	}
	return Status{State: StatusBusy}
}

// waitingCall is a tool call that waits for a human.
type waitingCall struct {
	Status
	call *ToolCall
}

// wait reports that the call waits for a human. The caller holds the turn's mu.
func (c *ToolCall) wait(now time.Time, st Status) {
	if c.turn.off {
		return
	}
	c.waits = true
	s := c.turn.run.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, waitingCall{st, c})
	s.enter(c.turn.events, now, st)
}

// unwait reports that the call waits no longer, if it did. The caller holds the turn's mu.
func (c *ToolCall) unwait(now time.Time) {
	if !c.waits {
		return
	}
	c.waits = false
	s := c.turn.run.sess
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(w waitingCall) bool { return w.call == c })
	if s.status.CallID == c.p.CallID && s.working > 0 {
		s.enter(c.turn.events, now, s.atWork())
	}
}
