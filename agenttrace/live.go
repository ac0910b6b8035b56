package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"time"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// LiveOptions states how much is reported of work in progress. The zero value reports most.
type LiveOptions struct {
	// MinInterval is how often text that grows is sent while it does: zero means each half second, less than zero
	// with every piece. Of a text beyond 32 KiB it is at least a second for each 64 KiB, for each event has the
	// whole text. The last word may be held back for longer: see the package documentation.
	MinInterval time.Duration
	// Heartbeat is how often the status of a session is repeated while a turn or a compaction is open and no other
	// event is sent. Readers report an agent without an update for three times as long as interrupted. Zero means
	// 15 seconds, less than zero no heartbeat; the longest is 3 minutes.
	Heartbeat time.Duration
}

const (
	defaultMinInterval = time.Second / 2
	defaultHeartbeat   = 15 * time.Second
	longestHeartbeat   = 3 * time.Minute
	// perSecond is how many bytes of a long text are sent per second.
	perSecond = 64 << 10
)

// live is where events go. It has no state.
type live struct {
	logger log.Logger
	filter *filter
	LiveOptions
}

func newLive(o Options) *live {
	if o.LoggerProvider == nil {
		return nil
	}
	logger := o.LoggerProvider.Logger(semconv.ScopeName, log.WithSchemaURL(semconv.SchemaURL),
		log.WithInstrumentationVersion(version()))
	l := &live{logger: logger, LiveOptions: o.Live}
	l.MinInterval = cmp.Or(l.MinInterval, defaultMinInterval)
	l.Heartbeat = cmp.Or(l.Heartbeat, defaultHeartbeat)
	l.Heartbeat = min(l.Heartbeat, longestHeartbeat)
	return l
}

// begin returns the context of the events of what has just begun in ctx, nil when there will be none. Their fate is
// not that of the work: they go out though its context is done.
func (l *live) begin(ctx context.Context, span trace.Span, name string) context.Context {
	if l == nil || !span.IsRecording() ||
		!l.logger.Enabled(ctx, log.EnabledParameters{Severity: log.SeverityInfo, EventName: name}) {
		return nil
	}
	return trace.ContextWithSpan(context.WithoutCancel(ctx), span)
}

func (l *live) emit(ctx context.Context, e *spans.Event, at time.Time) {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("emit event %s of session %s: panic: %s", e.Name, e.SessionID, spans.Printed(p)))
		}
	}()
	var r log.Record
	r.SetEventName(e.Name)
	r.SetTimestamp(at)
	r.SetSeverity(log.SeverityInfo)
	r.AddAttributes(l.filter.attributes(spans.Append(make([]attribute.KeyValue, 0, 12), e))...)
	l.logger.Emit(ctx, r)
}

// maxQueued bounds the events of a session that wait for another goroutine to emit them.
const maxQueued = 1024

// events holds a session's events between the moment that they describe, when locks are held, and their emission,
// when none is: so a log processor may call back. The goroutine that finds the queue idle emits what is in it, so
// that events go out one after the other, in the order of their times.
type events struct {
	mu       sync.Mutex // a leaf: nothing is locked or called under it
	last     time.Time
	queue    []queued
	lost     int // how many had to go and have not been reported
	emitting bool
	emitted  time.Time // when the last one came, by the system's clock
}

type queued struct {
	ctx   context.Context
	at    time.Time
	event spans.Event
}

// emitEvent puts an event into the queue. No two have the same time. It may be called
// with any lock held; call flush when none is.
func (q *events) emitEvent(ctx context.Context, now time.Time, e spans.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !now.After(q.last) {
		now = q.last.Add(1)
	}
	q.last, q.emitted = now, time.Now()
	if len(q.queue) >= maxQueued {
		q.queue = append(q.queue[:0], q.queue[1:]...)
		q.lost++
	}
	q.queue = append(q.queue, queued{ctx, now, e})
}

// flush emits what is in the queue, unless another goroutine, or a caller of
// this one, is at it. It returns how many events had to go since last time.
func (q *events) flush(l *live) (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lost, q.lost = q.lost, 0
	if q.emitting {
		return lost
	}
	q.emitting = true
	defer func() { q.emitting = false }()
	for len(q.queue) > 0 {
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		for i := range batch {
			l.emit(batch[i].ctx, &batch[i].event, batch[i].at)
		}
		q.mu.Lock()
	}
	return lost
}

// emitEvent queues an event of the session. ctx is what live.begin returned; nil reports nothing.
func (s *Session) emitEvent(ctx context.Context, now time.Time, e spans.Event) {
	if ctx == nil {
		return
	}
	e.SessionID = s.id
	s.events.emitEvent(ctx, now, e)
}

// flush emits the queued events. The caller holds no lock.
func (s *Session) flush() {
	if s.tracer.live == nil {
		return
	}
	for range s.events.flush(s.tracer.live) {
		s.tracer.count("emit event of session %s: the log processor is stuck; %d dropped so far", s.id)
	}
}

// emitSession queues what is known of the session. The caller holds mu.
func (s *Session) emitSession(ctx context.Context, now time.Time, model Model) {
	if ctx == nil {
		return
	}
	r := s.record()
	r.Operation = semconv.RunOperationUpdate
	r.Model = model.record()
	s.emitEvent(ctx, now, spans.Event{Name: semconv.EventSession, Session: &r})
}

// emitUser queues the message that began the turn.
func (t *Turn) emitUser(now time.Time) {
	if t.events != nil {
		t.run.sess.emitEvent(t.events, now, spans.Event{
			Name: semconv.EventMessage, MessageID: t.user.ID, Role: roleUser, MessageCreatedAt: t.user.CreatedAt,
			MessageMetadata: t.user.Metadata, Parts: t.user.Parts,
		})
	}
}

// emitAnswer queues the assistant message, without parts, if it has begun. The caller holds mu.
func (t *Turn) emitAnswer(now time.Time) {
	if t.events == nil || t.assistant.ID == "" {
		return
	}
	values := make(map[string]json.RawMessage, len(t.metadata)+3)
	if t.model != (Model{}) {
		values["model"] = json.RawMessage(encodeJSON(t.model))
	}
	if t.prompt != nil {
		values["system_prompt_digest"] = json.RawMessage(quote(t.prompt.digest))
	}
	maps.Copy(values, t.metadata)
	if _, taken := values["agenttrace"]; !taken {
		// By it a store knows a turn that began after the state was saved from which
		// another process went on: that process counts its own turns from there.
		values["agenttrace"] = json.RawMessage(`{"turn_index":` + strconv.FormatInt(t.index, 10) + `}`)
	}
	t.run.sess.emitEvent(t.events, now, spans.Event{
		Name: semconv.EventMessage, MessageID: t.assistant.ID, Role: roleAssistant,
		MessageCreatedAt: t.assistant.CreatedAt,
		MessageMetadata:  t.run.sess.tracer.filter.raw(redact.Other, "", encodeObject(values)),
	})
}

// throttle decides when growing text is sent again.
type throttle struct {
	at   time.Time // of the last event
	sent int       // how much of the text an event has had
	held bool      // the session will send what no event has had
}

// grow sends a text that grows, of so many bytes: now, or later if an event has had it just before. The caller holds
// mu, and so does grow when it calls send.
func (t *Turn) grow(h *throttle, now time.Time, size int, send func(now time.Time)) {
	if t.events == nil {
		return
	}
	l := t.run.sess.tracer.live
	wait := h.at.Add(max(l.MinInterval, time.Duration(size)*time.Second/perSecond)).Sub(now)
	switch {
	case l.MinInterval < 0 || wait <= 0:
		send(now)
	case !h.held:
		h.held = true
		t.run.sess.wake(wait, func(now time.Time) {
			t.mu.Lock()
			defer t.mu.Unlock()
			h.held = false
			send(now)
		})
	}
}

// pulse is what a session does by itself while something is open: it sends text
// that is held back, and repeats its status when it has sent nothing else, so that
// a reader can distinguish a tool that runs for an hour from an agent that was killed.
//
// It is one timer per session, which is set only while there is something to do. Its function does not keep the
// session alive, except while text is held back: an agent may drop one that it never ended.
type pulse struct {
	mu    sync.Mutex // a leaf: nothing is locked or called under it
	keeps **Session  // what the timer's function keeps alive
	timer *time.Timer
	due   time.Time // when the timer goes off, zero when it is not set
	held  []func(now time.Time)
}

// wake makes the timer go off after d, or earlier if it was set so. The session then sends what is held back.
func (s *Session) wake(d time.Duration, held ...func(now time.Time)) {
	p := &s.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeps == nil {
		p.keeps = new(*Session)
	}
	if p.held = append(p.held, held...); len(p.held) > 0 {
		*p.keeps = s
	}
	at := time.Now().Add(d)
	if !p.due.IsZero() && !at.Before(p.due) {
		return
	}
	p.due = at
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	session, keeps := weak.Make(s), p.keeps
	p.timer = time.AfterFunc(d, func() {
		if s := session.Value(); s != nil {
			s.beat()
		}
		runtime.KeepAlive(keeps)
	})
}

// beat is what the timer calls.
func (s *Session) beat() {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("emit events of session %s: panic: %s", s.id, spans.Printed(p)))
		}
	}()
	s.pulse.mu.Lock()
	held := s.pulse.held
	s.pulse.held, s.pulse.due, *s.pulse.keeps = nil, time.Time{}, nil
	s.pulse.mu.Unlock()
	now := s.now()
	for _, send := range held {
		send(now)
	}
	s.mu.Lock()
	if s.heartbeats {
		every := s.tracer.live.Heartbeat
		quiet := s.events.quiet()
		if quiet >= every {
			s.emitStatus(s.beatEvents, now)
			quiet = 0
		}
		s.wake(every - quiet)
	}
	s.mu.Unlock()
	s.flush()
}

// quiet returns how long ago the last event was queued.
func (q *events) quiet() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.emitted)
}
