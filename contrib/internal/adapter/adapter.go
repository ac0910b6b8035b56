// Package adapter has what the adapters of frameworks share: to which session a turn belongs.
package adapter

import (
	"container/list"
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// maxSessions bounds the sessions that are remembered; the one used longest ago is forgotten.
const maxSessions = 1000

// Sessions begins turns in sessions. It is safe for concurrent use.
type Sessions struct {
	tracer *agenttrace.Tracer
	agent  string

	mu   sync.Mutex
	byID map[string]*list.Element
	used *list.List // of *agenttrace.Session, the one used longest ago first
}

// NewSessions returns sessions of an agent; an empty name means that of the program.
func NewSessions(tracer *agenttrace.Tracer, agent string) *Sessions {
	if agent == "" {
		agent = filepath.Base(os.Args[0])
	}
	return &Sessions{tracer: tracer, agent: agent, byID: make(map[string]*list.Element), used: list.New()}
}

// StartTurn begins a turn, and returns a function that ends it and what was begun with it. The
// turn is part of the first that there is: the run in ctx, the session of the id, or a new session.
// If ctx has a turn, that is returned, and ending it is left to those that began it.
func (s *Sessions) StartTurn(
	ctx context.Context, id string, m agenttrace.UserMessage, o agenttrace.TurnOptions,
) (context.Context, *agenttrace.Turn, func(error)) {
	if turn := agenttrace.TurnFromContext(ctx); turn != nil {
		return ctx, turn, func(error) {}
	}
	run, endRun := agenttrace.RunFromContext(ctx), func(error) {}
	if run == nil {
		ctx, run = s.session(ctx, id).StartRun(ctx, agenttrace.RunOptions{Model: o.Model})
		endRun = run.End
	}
	ctx, turn := run.StartTurn(ctx, m, o)
	return ctx, turn, func(err error) {
		turn.Fail(err)
		endRun(err)
	}
}

func (s *Sessions) session(ctx context.Context, id string) *agenttrace.Session {
	o := agenttrace.SessionOptions{ID: id, Agent: s.agent}
	if id == "" {
		return s.tracer.NewSession(ctx, o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		s.used.MoveToBack(e)
		return e.Value.(*agenttrace.Session)
	}
	session := s.tracer.NewSession(ctx, o)
	s.byID[id] = s.used.PushBack(session)
	if s.used.Len() > maxSessions {
		delete(s.byID, s.used.Remove(s.used.Front()).(*agenttrace.Session).ID())
	}
	return session
}
