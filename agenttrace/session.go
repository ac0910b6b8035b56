package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// Model names a model: provider, id and, where there is one, variant (such as a reasoning effort).
type Model struct {
	Provider string `json:"provider_id,omitempty"`
	ID       string `json:"model_id,omitempty"`
	Variant  string `json:"variant,omitempty"`
}

func (m Model) record() spans.Model {
	return spans.Model{ProviderID: m.Provider, ModelID: m.ID, Variant: m.Variant}
}

// SessionOptions describes a new session. Only Agent is required.
type SessionOptions struct {
	// ID is the session's identity if the host has one already; empty means a new "ses_…".
	ID string
	// Agent names the agent. It never changes.
	Agent string
	// Title is empty until something names the session.
	Title string
	// FirstPrompt is the first line of what the user asked first. The session is called so as long as it has no title.
	FirstPrompt   string
	WorkspaceID   string
	WorkspaceRoot string
	// Mode is the host's permission or planning mode, in its own words.
	Mode string
	// UserID is the user that the agent works for.
	UserID string
	// Rules are those of session scope, such as earlier "always" answers.
	Rules []Rule
	// Metadata is stored with the session as JSON.
	Metadata map[string]any
}

// Session is one conversation. It outlives runs and, by [Session.State], processes. It is safe for concurrent use.
type Session struct {
	tracer *Tracer
	id     string
	events events
	pulse  pulse

	mu sync.Mutex // guards what follows
	st State
	// ahead is how far the session's time is ahead of the clock.
	ahead time.Duration
	// metadata holds the values of st.Metadata by key.
	metadata map[string]json.RawMessage
	// runs and working count the open runs, and the open turns and compactions.
	runs, working int
	// turns are the open ones; last stands for the one that ended last.
	turns []*Turn
	last  *Turn
	// status is empty until something began; waits are the tool calls that wait for a human, the last one last.
	status Status
	waits  []waitingCall
	// since is when the status began. beats reports that it is repeated, to beatEvents.
	since      time.Time
	heartbeats bool
	beatEvents context.Context
	// runEvents is where events of the session go while a run is open, nil when
	// there are none; runModel is that run's.
	runEvents context.Context
	runModel  Model
}

// NewSession begins a session. When ctx carries a turn, the session is that of a sub-agent: its parent is the
// turn's session, at the user message that the turn answers; a tool call in ctx is marked as the one that started
// it. The turn may be one of another process, see [Extract]; that process marks its tool call itself, by
// [ToolCall.SetChildSession].
//
// Nothing is emitted until the session has a run or is changed.
func (t *Tracer) NewSession(ctx context.Context, o SessionOptions) *Session {
	if t == nil || t.tracer == nil {
		return nil
	}
	now := t.now()
	s := &Session{tracer: t, id: validUTF8(o.ID)}
	if s.id == "" {
		s.id = spans.NewID(spans.PrefixSession, now)
	}
	s.st = State{
		ID: s.id, Agent: validUTF8(o.Agent), Title: validUTF8(o.Title), FirstPrompt: validUTF8(o.FirstPrompt),
		WorkspaceID: validUTF8(o.WorkspaceID), WorkspaceRoot: validUTF8(o.WorkspaceRoot), Mode: validUTF8(o.Mode),
		UserID: validUTF8(o.UserID), CreatedAt: now.UnixMilli(),
	}
	for _, r := range o.Rules {
		s.st.Rules = append(s.st.Rules, r.sessionScope(now))
	}
	s.mergeMetadata(o.Metadata)
	if from := lineageOf(ctx); from.session != "" && from.session != s.id {
		s.st.ParentID, s.st.ParentMessageID, s.st.RootID = from.session, from.message, from.root
		ToolFromContext(ctx).SetChildSession(s.id)
	}
	return s
}

// root returns the id of the session at the top of those that this one is a sub-agent of: its own if it is none.
func (s *Session) root() string { return cmp.Or(s.st.RootID, s.st.ParentID, s.id) }

// ID returns the session's id, "" for nil.
func (s *Session) ID() string { return of(s, func(s *Session) string { return s.id }) }

// Title returns the session's title.
func (s *Session) Title() string { return locked(s, func() string { return s.st.Title }) }

// Rules returns the rules of session scope: those that it began with and those added since.
func (s *Session) Rules() []Rule { return locked(s, func() []Rule { return slices.Clone(s.st.Rules) }) }

// Busy reports whether a turn or a compaction is open. Of runs of which nothing
// is recorded and in which nothing decides it knows nothing.
func (s *Session) Busy() bool { return locked(s, func() bool { return s.working > 0 }) }

// locked returns something of a session, which may be nil, that mu guards.
func locked[V any](s *Session, get func() V) (value V) {
	if s != nil {
		value = with(&s.mu, get)
	}
	return value
}

// SetTitle names the session. While a run is open its end carries the change,
// otherwise a span of its own does; the same holds for the setters below.
func (s *Session) SetTitle(ctx context.Context, title string) {
	s.update(ctx, func(st *State) { st.Title = validUTF8(title) })
}

// SetMode changes the host's permission or planning mode.
func (s *Session) SetMode(ctx context.Context, mode string) {
	s.update(ctx, func(st *State) { st.Mode = validUTF8(mode) })
}

// SetMetadata merges values into the session's metadata. A nil value stores null.
func (s *Session) SetMetadata(ctx context.Context, values map[string]any) {
	s.update(ctx, func(*State) { s.mergeMetadata(values) })
}

// AddRule adds a rule of session scope, whatever source it names.
func (s *Session) AddRule(ctx context.Context, r Rule) {
	s.update(ctx, func(st *State) { st.Rules = append(st.Rules, r.sessionScope(s.tracer.now())) })
}

// update changes the session and, when no run is open to report it, emits an update.
func (s *Session) update(ctx context.Context, change func(*State)) {
	if s == nil {
		return
	}
	now := s.now()
	open := false
	s.do(&s.mu, func() {
		change(&s.st)
		open = s.runs > 0
		s.emitSession(s.runEvents, now, s.runModel)
	})
	if !open {
		s.moment(ctx, semconv.RunOperationUpdate, s.now(), nil)
	}
}

// mergeMetadata adds values to the metadata. The caller holds mu or owns s.
func (s *Session) mergeMetadata(values map[string]any) {
	if len(values) == 0 {
		return
	}
	if s.metadata == nil {
		s.metadata = make(map[string]json.RawMessage, len(values))
	}
	encodeValues(s.metadata, values)
	s.st.Metadata = encodeObject(s.metadata)
}

// record describes the session on a session.run span. The caller holds mu.
func (s *Session) record() spans.Run {
	f := &s.tracer.filter
	r := spans.Run{
		SessionID: s.id, Agent: s.st.Agent, Title: f.text(redact.Other, "", s.st.Title), UserID: s.st.UserID,
		WorkspaceID: s.st.WorkspaceID, WorkspaceRoot: s.st.WorkspaceRoot, Mode: s.st.Mode, CreatedAt: s.st.CreatedAt,
		ParentID: s.st.ParentID, ParentMessageID: s.st.ParentMessageID,
		Metadata: f.raw(redact.Other, "", s.st.Metadata),
	}
	if root := s.root(); root != s.id {
		r.RootID = root
	}
	if s.st.Title == "" && s.st.FirstPrompt != "" {
		if text, res := f.apply(redact.Prompt, "", s.st.FirstPrompt, false); !res.Omitted {
			r.FirstPrompt = text
		}
	}
	if rules := slices.Clone(s.st.Rules); len(rules) > 0 {
		for i := range rules {
			rules[i].Pattern = f.pattern(rules[i].Pattern)
		}
		r.Permissions = f.raw(redact.Other, "", json.RawMessage(encodeJSON(rules)))
	}
	return r
}

// startSpan begins a session.run span, linked to the one before it.
func (s *Session) startSpan(
	ctx context.Context, now time.Time, attrs []attribute.KeyValue, last trace.SpanContext,
) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithAttributes(s.tracer.filter.attributes(attrs)...)}
	if last.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: last}))
	}
	return s.tracer.start(ctx, semconv.SpanSessionRun, trace.SpanKindInternal, now, opts...)
}

// moment emits a session.run span of no length: something that changed the
// session while nothing ran. edit may complete the record.
func (s *Session) moment(ctx context.Context, operation string, now time.Time, edit func(*spans.Run),
	events ...spans.SpanData) {
	s.mu.Lock()
	record := s.record()
	last := s.st.LastRun.spanContext()
	s.mu.Unlock()
	record.Operation = operation
	if edit != nil {
		edit(&record)
	}
	_, span := s.startSpan(ctx, now, spans.Append(nil, &record), last)
	for _, e := range events {
		s.tracer.addEvent(span, now, e.Kind(), e)
	}
	s.tracer.finish(span, now)
}

// now returns the session's time: the clock's, moved ahead by as much as it ever was before LastStamp. So nothing
// that follows a message or a rewind is dated before it, and lengths of time stay right when the clock steps back.
func (s *Session) now() time.Time {
	now := s.tracer.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	now = now.Add(s.ahead)
	if now.UnixMilli() < s.st.LastStamp {
		more := time.UnixMilli(s.st.LastStamp).Sub(now)
		s.ahead += more
		now = now.Add(more)
	}
	return now
}

// stamp returns now in Unix milliseconds, never less than an earlier stamp of
// the session: a clock that steps back must not reorder messages.
func (s *Session) stamp(now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.LastStamp = max(s.st.LastStamp, now.UnixMilli())
	return s.st.LastStamp
}

// decides reports whether anything but the default decides permissions.
func (s *Session) decides() bool {
	t := s.tracer
	return t.watchdog != nil || t.approver != nil || len(t.rules) > 0 ||
		locked(s, func() bool { return len(s.st.Rules) > 0 })
}

// clone returns a copy of the state that shares nothing mutable.
func (s *Session) clone() State {
	st := s.st
	st.Rules = slices.Clone(st.Rules)
	st.Rewinds = slices.Clone(st.Rewinds)
	st.Open = slices.Clone(st.Open)
	return st
}

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
	kind := redact.Other
	if st.CallID != "" {
		kind = redact.ToolInput // what a call waits for is in its input
	}
	e := spans.Event{
		Name: semconv.EventStatus, Status: string(st.State), Attempt: int64(st.Attempt), CallID: st.CallID,
		Detail: s.tracer.filter.text(kind, "", st.Detail),
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
