package agenttrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// ForkOptions describes a fork. What is zero is the parent's.
type ForkOptions struct {
	// ID is the child's identity if the host has one already; empty means a new "ses_…".
	ID    string
	Title string
	// Metadata is merged over the parent's.
	Metadata map[string]any
}

// untitled is the title of sessions that nothing has named.
const untitled = "New Chat"

// Fork begins a session that is a copy of this one up to and including the message fromMessageID, without what is
// hidden there. The store copies the messages, under new ids; rules of session scope are not copied. The title
// becomes that of the parent and " (copy)", unless there is none.
//
// Fork returns [ErrBusy] while a turn or a compaction is open. Where nothing is recorded messages have no ids, and ""
// stands for any of them; in a session of which something is recorded it is an error. Any other id is taken as it is,
// for the SDK does not remember the messages of a session: in one of another session, the fork has no copies.
func (s *Session) Fork(ctx context.Context, fromMessageID string, o ForkOptions) (*Session, error) {
	if s == nil {
		return nil, nil
	}
	now := s.now()
	s.mu.Lock()
	if err := s.movable(fromMessageID); err != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("fork session %s: %w", s.id, err)
	}
	at := s.pass(now.UnixMilli())
	st, metadata := s.clone(), maps.Clone(s.metadata)
	s.mu.Unlock()
	child := &Session{tracer: s.tracer, id: validUTF8(o.ID), metadata: metadata}
	if child.id == "" {
		child.id = spans.NewID(spans.PrefixSession, now)
	}
	child.st = State{
		ID: child.id, Agent: st.Agent, Title: validUTF8(o.Title), FirstPrompt: st.FirstPrompt,
		WorkspaceID: st.WorkspaceID, WorkspaceRoot: st.WorkspaceRoot, Mode: st.Mode, UserID: st.UserID,
		Metadata: st.Metadata, CreatedAt: at, ParentID: s.id, ParentMessageID: fromMessageID, RootID: s.root(),
		NextTurn: st.NextTurn, Model: st.Model, LastStamp: st.LastStamp,
	}
	if child.st.Title == "" && st.Title != "" && st.Title != untitled {
		child.st.Title = st.Title + " (copy)"
	}
	child.mergeMetadata(o.Metadata)
	if fromMessageID != "" {
		child.moment(ctx, semconv.RunOperationFork, now, func(r *spans.Run) {
			r.Model = st.Model.record()
			r.TargetMessageID, r.TargetAt = fromMessageID, at
		})
	}
	return child, nil
}

// Rewind hides everything after a user message. Nothing is deleted, and [Session.Unrewind] undoes it; what tools
// did in the world is not undone. A turn that waited for a human is hidden too.
//
// Rewind returns [ErrBusy] while a turn or a compaction is open, and is as strict about the id as [Session.Fork] is:
// one of another session hides nothing.
func (s *Session) Rewind(ctx context.Context, userMessageID string) error {
	return s.alter(ctx, semconv.RunOperationRewind, func(at int64) (last Rewound, err error) {
		if err := s.movable(userMessageID); err != nil {
			return last, err
		}
		last = Rewound{To: userMessageID, At: s.pass(at), Pending: s.st.Pending}
		first := max(0, len(s.st.Rewinds)+1-maxRewinds)
		s.st.Rewinds = append(slices.Clone(s.st.Rewinds[first:]), last)
		s.st.Pending = nil
		return last, nil
	})
}

// movable returns why the session cannot be forked at or rewound to a message, or nil. The caller holds mu.
func (s *Session) movable(messageID string) error {
	switch {
	case s.working > 0:
		return ErrBusy
	case messageID == "" && s.st.LastRun.Sampled:
		return errors.New("the message has no id")
	}
	return nil
}

// pass returns when a rewind or a fork happens: at, or later if the session is. What it takes in is all up to that
// millisecond, so that whatever follows is dated after it. The caller holds mu.
func (s *Session) pass(at int64) int64 {
	at = max(at, s.st.LastStamp)
	s.st.LastStamp = at + 1
	return at
}

// Unrewind undoes the last rewind: what it hid is there again. It returns
// [ErrNothingPending] when there is none and [ErrBusy] as [Session.Rewind] does.
func (s *Session) Unrewind(ctx context.Context) error {
	return s.alter(ctx, semconv.RunOperationUnrewind, func(int64) (last Rewound, err error) {
		n := len(s.st.Rewinds)
		if n == 0 {
			return last, ErrNothingPending
		}
		last, s.st.Rewinds = s.st.Rewinds[n-1], s.st.Rewinds[:n-1]
		s.st.Pending = cmp.Or(last.Pending, s.st.Pending)
		return last, nil
	})
}

// alter changes what is hidden of the session, unless something is open, and reports the rewind that change made or
// undid with mu held.
func (s *Session) alter(ctx context.Context, operation string, change func(at int64) (Rewound, error)) error {
	if s == nil {
		return nil
	}
	now := s.now()
	var target Rewound
	err := locked(s, func() (err error) {
		if s.working > 0 {
			return ErrBusy
		}
		target, err = change(now.UnixMilli())
		return err
	})
	if err != nil {
		return fmt.Errorf("%s session %s: %w", operation, s.id, err)
	}
	if target.To == "" {
		return nil // nothing is recorded
	}
	s.moment(ctx, operation, now, func(r *spans.Run) { r.TargetMessageID, r.TargetAt = target.To, target.At })
	return nil
}

// Archive takes the session off the lists. It is not a deletion.
func (s *Session) Archive(ctx context.Context) { s.mark(ctx, semconv.RunOperationArchive) }

// Unarchive undoes Archive.
func (s *Session) Unarchive(ctx context.Context) { s.mark(ctx, semconv.RunOperationUnarchive) }

func (s *Session) mark(ctx context.Context, operation string) {
	if s != nil {
		s.moment(ctx, operation, s.now(), nil)
	}
}

// ScoreOptions is what a person, a program or a model thinks of a session, a turn, an answer or a tool call. Name is
// required, and a Value or a Label.
type ScoreOptions struct {
	// Name is what is judged, such as "relevance". A target has one score of each name and author: a later one replaces
	// an earlier one.
	Name string
	// Value is the score as a number, Label as a word, such as "pass".
	Value *float64
	Label string
	// Explanation states why.
	Explanation string
	// Author is who judges; empty means the program, by its service name.
	Author string

	// What the score is about, by the ids of [Turn.UserMessageID], which stands for the turn, [Turn.AssistantMessageID]
	// and [ToolCall.PartID], which needs the MessageID of its answer, or by the id that a model's server gave to an
	// answer. Without any of them it is about the session, with [Score] about the work in ctx.
	MessageID, PartID, ResponseID string
}

// Score reports a score of what ctx belongs to: the tool call, the answer of the model call, the turn or the session,
// unless o names something in that session. Without a session in ctx it does nothing. See [Session.Score].
func Score(ctx context.Context, o ScoreOptions) {
	at := scopeOf(ctx)
	if at.run == nil || at.run.off {
		return
	}
	if o.MessageID == "" && o.PartID == "" && o.ResponseID == "" {
		switch {
		case at.tool != nil:
			o.MessageID, o.PartID = at.tool.answerID, at.tool.partID
		case at.call != nil && at.call.messageID != "":
			o.MessageID = at.call.messageID
		default:
			o.MessageID = at.turn.UserMessageID()
		}
	}
	at.run.sess.Score(ctx, o)
}

// Score reports a score of the session or of something in it, as the event gen_ai.evaluation.result: now, or long
// after the session has ended, in the process that judges: there [Tracer.NewSession] with its ID makes the Session.
// Without a LoggerProvider the event is on a span of its own. A score that cannot be stored is reported to
// [otel.Handle].
func (s *Session) Score(ctx context.Context, o ScoreOptions) {
	if s == nil {
		return
	}
	f := &s.tracer.filter
	e := spans.Evaluation{
		SessionID: s.id, Name: validUTF8(o.Name), Value: o.Value, Label: f.text(redact.Other, "", o.Label),
		Explanation: f.text(redact.Other, "", o.Explanation), Author: validUTF8(o.Author),
		MessageID: o.MessageID, PartID: o.PartID, ResponseID: o.ResponseID,
	}
	err := e.Validate()
	if v := o.Value; err == nil && v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		err = fmt.Errorf("its value is %v", *v)
	}
	if err != nil {
		otel.Handle(fmt.Errorf("score %q of session %s is left out: %w", o.Name, s.id, err))
		return
	}
	ctx = orBackground(ctx)
	// A store takes the context of an event for what it is about. The judge's own span is not.
	if own := scopeOf(ctx).run; own == nil || own.sess != s || o.MessageID == "" {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	now := s.now()
	if s.tracer.live != nil {
		s.emitEvent(context.WithoutCancel(ctx), now, spans.Event{Name: semconv.EventEvaluation, Evaluation: &e})
		s.flush()
		return
	}
	s.moment(ctx, semconv.RunOperationUpdate, now, nil, &e)
}
