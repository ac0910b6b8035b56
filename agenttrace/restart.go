package agenttrace

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// What the model gets as the result of a tool call whose end was not observed. The words are the agent guide's.
const (
	abortedByRestart = semconv.AbortedByRestart
	abortedByParent  = "aborted by parent"
)

// open describes an open turn to another process. It names the answer also when
// that has not begun: it may have when the process dies.
func (t *Turn) open() PendingTurn {
	now := t.run.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.assistant.ID == "" && t.reserved == "" {
		t.reserved = spans.NewID(spans.PrefixMessage, now)
	}
	p := t.pending(append([]PendingTool{}, t.waiting...))
	p.AssistantMessageID, p.Model, p.Run = cmp.Or(t.assistant.ID, t.reserved), t.model, t.run.ref
	for _, c := range t.tools() {
		if !c.ended {
			p.Tools = append(p.Tools, c.open())
		}
	}
	return p
}

// pending returns what another process must know of the turn. The caller holds mu, or the turn has ended.
func (t *Turn) pending(tools []PendingTool) PendingTurn {
	return PendingTurn{
		Index: t.index, UserMessageID: t.userID, AssistantMessageID: t.assistant.ID,
		AssistantCreatedAt: t.assistant.CreatedAt, NextPart: t.nextPart, NextStep: t.nextStep, Tools: tools,
	}
}

// finishInterrupted ends what was open when the session's state was taken.
func (s *Session) finishInterrupted(ctx context.Context) {
	turns := s.st.Open
	s.st.Open = nil
	for i := range turns {
		// What the process that is gone left it at.
		s.status, s.heartbeats = Status{State: StatusBusy}, s.tracer.live != nil && s.tracer.live.Heartbeat > 0
		s.finishTurn(ctx, &turns[i])
	}
	if len(turns) == 0 && s.st.Pending != nil && len(s.st.Pending.Tools) > 0 {
		s.status = s.st.Pending.Tools[0].status()
	}
}

// finishTurn ends a turn that was interrupted, as it would have ended had its
// process known: what waits for a human makes it pending, the rest is aborted.
func (s *Session) finishTurn(ctx context.Context, p *PendingTurn) {
	if sc := p.Run.spanContext(); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	now := s.now()
	// This run only represents the one that is gone: its own span is lost.
	r := &Run{sess: s, span: trace.SpanFromContext(ctx), model: p.Model}
	r.scope = scope{Context: ctx, run: r}
	t := r.newTurn(now, TurnOptions{})
	t.restored = true
	t.restore(p)
	t.mu.Lock()
	ctx = t.begin(ctx, now)
	if t.assistant.ID != "" {
		t.emitAnswer(now)
	}
	t.mu.Unlock()
	err := ErrAborted
	for i := range p.Tools {
		tool := &p.Tools[i]
		options := tool.options()
		options.RawInput = tool.Input
		_, c := t.startTool(ctx, options, tool)
		c.begun()
		c.restore(tool)
		if tool.waits() {
			err = nil
			continue
		}
		c.abandon(abortedByRestart, semconv.ErrorTypeAborted)
	}
	t.finish(err, "")
}

// restore puts the call in the state that it had in another process.
func (c *ToolCall) restore(p *PendingTool) {
	c.turn.mu.Lock()
	defer c.turn.mu.Unlock()
	c.restored, c.changed, c.later = true, true, true
	c.p, c.p.Input = *p, nil
	c.answered = p.ApprovalID != "" && p.State == stateApprovalResponded
	c.approved = c.answered
}
