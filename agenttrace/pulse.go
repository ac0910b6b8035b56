package agenttrace

import (
	"fmt"
	"sync"
	"time"
	"weak"

	"github.com/agenttrace/agenttrace/spans"
	"go.opentelemetry.io/otel"
)

// pulse is what a session does by itself while something is open: it sends text
// that is held back, and repeats its status when it has sent nothing else, so that
// a reader can distinguish a tool that runs for an hour from an agent that was killed.
//
// It is one timer per session, which is set only while there is something to do. Its function does not keep the
// session alive: an agent may drop one that it never ended.
type pulse struct {
	mu    sync.Mutex // a leaf: nothing is locked or called under it
	timer *time.Timer
	due   time.Time // when the timer goes off, zero when it is not set
	held  []func(now time.Time)
}

// wake makes the timer go off after d, or earlier if it was set so. The session then sends what is held back.
func (s *Session) wake(d time.Duration, held ...func(now time.Time)) {
	p := &s.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, held...)
	at := time.Now().Add(d)
	if !p.due.IsZero() && !at.Before(p.due) {
		return
	}
	p.due = at
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	session := weak.Make(s)
	p.timer = time.AfterFunc(d, func() {
		if s := session.Value(); s != nil {
			s.beat()
		}
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
	s.pulse.held, s.pulse.due = nil, time.Time{}
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
