package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// State is what a session must remember between processes. It is plain data: store it as JSON and give it to
// [Tracer.ResumeSession]. Inputs of tool calls and rules are in it as they are, nothing is redacted.
type State struct {
	ID            string          `json:"id"`
	Agent         string          `json:"agent"`
	Title         string          `json:"title,omitempty"`
	FirstPrompt   string          `json:"first_prompt,omitempty"`
	WorkspaceID   string          `json:"workspace_id,omitempty"`
	WorkspaceRoot string          `json:"workspace_root,omitempty"`
	Mode          string          `json:"mode,omitempty"`
	UserID        string          `json:"user_id,omitempty"`
	Rules         []Rule          `json:"rules,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`

	// CreatedAt and LastStamp are in Unix milliseconds; nothing that comes is dated before LastStamp.
	CreatedAt int64 `json:"created_at"`
	LastStamp int64 `json:"last_stamp,omitempty"`

	ParentID        string `json:"parent_id,omitempty"`
	ParentMessageID string `json:"parent_message_id,omitempty"`
	// RootID is the session at the top of the parents, if there are several.
	RootID string `json:"root_id,omitempty"`

	// NextTurn is the index of the next turn.
	NextTurn int64 `json:"next_turn"`
	// LastRun is the span of the last run; the next one links to it.
	LastRun SpanRef `json:"last_run,omitzero"`
	// Model is that of the last turn.
	Model Model `json:"model,omitzero"`

	// Rewinds are those not undone, the last one last, at most 64.
	Rewinds []Rewound `json:"rewinds,omitempty"`
	// Pending is the turn that waits for a human, if any.
	Pending *PendingTurn `json:"pending,omitempty"`
	// Open are the turns that were open when the state was taken. A process that dies leaves them behind;
	// ResumeSession ends them. A host that knows better, from its own records, may change them.
	Open []PendingTurn `json:"open,omitempty"`
}

// SpanRef names a span: trace and span id in lower-case hex.
type SpanRef struct {
	TraceID string `json:"trace_id,omitempty"`
	SpanID  string `json:"span_id,omitempty"`
	Sampled bool   `json:"sampled,omitempty"`
}

// Rewound is a rewind that has not been undone: everything after the user
// message To is hidden since At (Unix milliseconds).
type Rewound struct {
	To string `json:"to"`
	At int64  `json:"at"`
	// Pending is the turn that the rewind hid while it waited.
	Pending *PendingTurn `json:"pending,omitempty"`
}

// PendingTurn is a turn that ended to wait for a human, or one that is open.
type PendingTurn struct {
	Index              int64  `json:"index"`
	UserMessageID      string `json:"user_message_id"`
	AssistantMessageID string `json:"assistant_message_id"`
	// AssistantCreatedAt is in Unix milliseconds, 0 of an answer that has not begun.
	AssistantCreatedAt int64 `json:"assistant_created_at"`
	// NextPart and NextStep are the indexes of the next part and model call.
	NextPart int64         `json:"next_part"`
	NextStep int64         `json:"next_step"`
	Tools    []PendingTool `json:"tools"`
	// Run is the span of the run that an open turn belongs to.
	Run   SpanRef `json:"run,omitzero"`
	Model Model   `json:"model,omitzero"`
}

// PendingTool is a tool call that waits for a human or, of an open turn, one that has not ended.
type PendingTool struct {
	CallID string          `json:"call_id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input,omitempty"`
	// State is the AI SDK's.
	State string `json:"state,omitempty"`
	// ApprovalID names the question; it is the id of the permission decision.
	ApprovalID string `json:"approval_id,omitempty"`
	PartID     string `json:"part_id"`
	PartIndex  int64  `json:"part_index"`
	// CreatedAt and AskedAt are in Unix milliseconds.
	CreatedAt int64 `json:"created_at"`
	AskedAt   int64 `json:"asked_at,omitempty"`
	// AsksUser reports that the call waits for its user's input, not for an approval; Question is what it asks.
	AsksUser bool   `json:"asks_user,omitempty"`
	Question string `json:"question,omitempty"`
	// ChildSessionID is the session of a sub-agent that the call started.
	ChildSessionID string `json:"child_session_id,omitempty"`

	Kind             ToolKind `json:"kind,omitempty"`
	Dynamic          bool     `json:"dynamic,omitempty"`
	ProviderExecuted bool     `json:"provider_executed,omitempty"`
	// Subject, Pattern and Source are those of the rule that asked.
	Subject string `json:"subject,omitempty"`
	Pattern string `json:"pattern,omitempty"`
	Source  Source `json:"source,omitempty"`
}

const (
	maxRewinds = 64

	roleUser      = "user"
	roleAssistant = "assistant"
)

// State returns what the session must remember, a copy. It may be taken at any time. Of an open turn it states
// which tool calls are open, not the texts: take it again when a turn begins and when a tool call begins, waits or
// ends, so that another process can report what this one left behind.
func (s *Session) State() State {
	if s == nil {
		return State{}
	}
	s.mu.Lock()
	st := s.clone()
	turns := slices.Clone(s.turns)
	s.mu.Unlock()
	st.Open = nil
	for _, t := range turns {
		st.Open = append(st.Open, t.open())
	}
	return st
}

// ResumeSession takes a session up where state left it. The next run links to
// the last one. The error states what state lacks.
//
// Turns that are open in state were interrupted: their process is gone. They end here, as aborted, and so do their
// tool calls, as failed with "aborted by host restart"; both under the ids that they had, in the trace of the run
// that was interrupted. A session store ends the calls too that began after the state was taken. Calls that wait
// for a human go on waiting: with one of them the turn is pending, see [Run.ContinueTurn].
func (t *Tracer) ResumeSession(ctx context.Context, state State) (*Session, error) {
	if t == nil || t.tracer == nil {
		return nil, nil
	}
	if state.ID == "" || state.Agent == "" {
		return nil, errors.New("resume session: state has no id or no agent: want what Session.State returned")
	}
	s := &Session{tracer: t, id: state.ID, st: state}
	s.st = s.clone()
	if len(state.Metadata) > 0 {
		if err := json.Unmarshal(state.Metadata, &s.metadata); err != nil {
			return nil, fmt.Errorf("resume session %s: read metadata: %w", state.ID, err)
		}
	}
	s.finishInterrupted(ctx)
	return s, nil
}

func refOf(sc trace.SpanContext) SpanRef {
	if !sc.IsValid() {
		return SpanRef{}
	}
	return SpanRef{sc.TraceID().String(), sc.SpanID().String(), sc.IsSampled()}
}

// spanContext returns the span's context, invalid when r names none.
func (r SpanRef) spanContext() trace.SpanContext {
	traceID, _ := trace.TraceIDFromHex(r.TraceID) // an invalid id is zero
	spanID, _ := trace.SpanIDFromHex(r.SpanID)
	c := trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, Remote: true}
	if r.Sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

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
	t.finish(t.run.now(), err, "")
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
