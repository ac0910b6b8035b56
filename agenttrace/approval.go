package agenttrace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// AwaitApproval reports that the call waits for a human for longer than the process may live: end the turn next,
// store [Session.State], and answer with [Turn.ResumeTool] in a turn that [Run.ContinueTurn] took up. id names the
// question; empty means a new one. It returns the id.
func (c *ToolCall) AwaitApproval(id string) string {
	if c == nil {
		return id
	}
	now := c.turn.run.now()
	if id = validUTF8(id); id == "" {
		id = spans.NewID(spans.PrefixPermission, now)
	}
	c.await(PendingTool{ApprovalID: id, AskedAt: now.UnixMilli()}, now)
	c.postpone()
	c.waitApproval(now)
	return id
}

// AwaitInput reports that the tool has asked its user something and waits for the answer, perhaps for longer than
// the process may live. End the call with the answer, or end the turn: it is then pending like one that waits for
// an approval, and the turn that [Run.ContinueTurn] takes up gets the call back from [Turn.ResumeTool], to be ended
// with the answer.
func (c *ToolCall) AwaitInput(question string) {
	c.change("a question", func(now time.Time) {
		if c.p.State == stateApprovalRequested {
			return // it does not run yet
		}
		c.complete()
		c.p.AsksUser, c.p.Question = true, validUTF8(question)
		c.emitState(now)
		c.wait(now, Status{State: StatusWaitingUserInput, Detail: c.p.Question, CallID: c.p.CallID})
	})
}

// await puts the call into the state of waiting for an answer to a question, of which p has the id, what it is about,
// and the rule that asked.
func (c *ToolCall) await(p PendingTool, now time.Time) {
	c.change("an approval", func(time.Time) {
		c.complete()
		c.p.State, c.p.AsksUser, c.p.Question = stateApprovalRequested, false, ""
		c.p.ApprovalID, c.p.AskedAt = p.ApprovalID, p.AskedAt
		c.p.Subject, c.p.Pattern, c.p.Source = p.Subject, p.Pattern, p.Source
		if !c.resumed {
			c.emitEvent(now)
		}
		c.resumed = false
	})
	c.noteOnce(now)
}

// postpone notes that nothing in this process waits for the answer.
func (c *ToolCall) postpone() { c.turn.do(func() { c.later = true }) }

// isPending reports whether the call waits for a human who may answer another process. Safe nets, which run when a
// function returns, do not end such a call, but after a question to its user an error of the tool does. The caller
// holds the turn's mu.
func (c *ToolCall) isPending(err error) bool {
	return !c.ended && (c.later && c.p.State == stateApprovalRequested ||
		c.p.AsksUser && c.p.State == stateInputAvailable && endReason(err) != semconv.EndError)
}

// waitsAfter is isPending for callers without the lock.
func (c *ToolCall) waitsAfter(err error) bool {
	return with(&c.turn.mu, func() bool { return c.isPending(err) })
}

// waitApproval reports that the session waits for the answer.
func (c *ToolCall) waitApproval(now time.Time) {
	c.turn.do(func() {
		if c.p.State == stateApprovalRequested && !c.ended {
			c.wait(now, c.p.status())
		}
	})
}

// respond notes the answer of a human, if one was asked.
func (c *ToolCall) respond(approved bool, reason string) {
	now := c.turn.run.now()
	c.turn.do(func() {
		if c.ended || c.p.State != stateApprovalRequested {
			return
		}
		c.p.State = stateApprovalResponded
		c.answered, c.approved = true, approved
		c.reason = c.filter().text(redact.Other, "", reason)
		c.updated = max(c.updated, now.UnixMilli())
		c.started = now
		c.unwait(now)
		c.emitEvent(now)
	})
}

// pending returns what the next process must know of a call that waits. It is
// for calls that have ended with their turn. The caller holds the turn's mu.
func (c *ToolCall) pending() (PendingTool, bool) {
	p := c.open()
	return p, c.rest == nil && p.waits()
}

// open describes the call to another process. The caller holds the turn's mu.
func (c *ToolCall) open() PendingTool {
	p := c.p
	p.PartID, p.PartIndex, p.CreatedAt = c.partID, c.index, c.created
	if input := c.wholeInput(); input != "" {
		p.Input = json.RawMessage(input)
	}
	return p
}

// waits reports whether the call waits for a human.
func (p *PendingTool) waits() bool {
	return p.State == stateApprovalRequested || p.AsksUser && p.State == stateInputAvailable
}

// options describes the call without its input.
func (p *PendingTool) options() ToolOptions {
	return ToolOptions{
		ID: p.CallID, Name: p.Name, Kind: p.Kind, Dynamic: p.Dynamic, ProviderExecuted: p.ProviderExecuted,
	}
}

// status is what the session does while the call waits.
func (p *PendingTool) status() Status {
	if p.AsksUser {
		return Status{State: StatusWaitingUserInput, CallID: p.CallID, Detail: p.Question}
	}
	return Status{
		State: StatusWaitingApproval, CallID: p.CallID, Detail: strings.TrimSpace(p.Name + " " + p.Subject),
	}
}

// PendingTools returns the tool calls of a continued turn that still wait for
// an answer: an approval or, where AsksUser is set, their user's input.
func (t *Turn) PendingTools() []PendingTool {
	if t == nil || t.off {
		return nil
	}
	return with(&t.mu, func() []PendingTool { return slices.Clone(t.waiting) })
}

// ResumeTool takes up a tool call that waited, with a human's answer. The call goes on under its old id, in its old
// place. When the decision denies it, it has ended. The error reports that no call of that id waits.
//
// The decision is recorded as one and the same as when the question was asked. A
// call that waits for its user's input has no decision to make: the answer given
// here is not used, the Decision allows, and the call is ended with the input.
func (t *Turn) ResumeTool(
	ctx context.Context, callID string, answer Answer) (context.Context, *ToolCall, Decision, error,
) {
	denied := Decision{Action: ActionAsk, Reason: "no such call waits", outcome: semconv.OutcomeDenied}
	if t == nil || t.off {
		return ctx, nil, denied, nil
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.waiting, func(p PendingTool) bool { return p.CallID == callID })
	var p PendingTool
	if i >= 0 && !t.ended {
		p = t.waiting[i]
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if p.CallID == "" {
		return ctx, nil, denied, fmt.Errorf("resume tool call %q: %w", callID, ErrNothingPending)
	}
	options := p.options()
	if len(p.Input) > 0 {
		options.Input = p.Input
	}
	ctx, c := t.startTool(ctx, options, &p)
	c.begun()
	if p.AsksUser {
		t.do(func() {
			c.complete()
			c.changed, c.resumed = false, false
		})
		return ctx, c, Decision{Action: ActionAllow, outcome: semconv.OutcomeAllowed, tool: p.Name}, nil
	}
	now := t.run.now()
	_, span := c.startDecision(ctx, now)
	c.await(p, time.UnixMilli(p.AskedAt))
	d := Decision{
		ID: p.ApprovalID, Action: ActionAsk, Pattern: p.Pattern, Source: p.Source, tool: p.Name,
		Waited: max(0, now.Sub(time.UnixMilli(p.AskedAt))),
	}
	t.run.sess.answered(ctx, &d, p.Subject, answer)
	c.settle(&d, span)
	return ctx, c, d, nil
}
