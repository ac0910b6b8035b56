package agenttrace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// AwaitApproval says that the call waits for a human for longer than the
// process may live: end the turn next, store [Session.State], and answer with
// [Turn.ResumeTool] in a turn that [Run.ContinueTurn] took up. id names the
// question; empty mints one. It returns the id.
func (c *ToolCall) AwaitApproval(id string) string {
	if c == nil {
		return id
	}
	now := c.turn.run.now()
	if id = validUTF8(id); id == "" {
		id = spans.NewID(spans.PrefixPermission, now)
	}
	c.await(id, "", match{}, now)
	return id
}

// await puts the call into the state of waiting for an answer.
func (c *ToolCall) await(id, subject string, m match, now time.Time) {
	c.change("an approval", func(time.Time) {
		c.complete()
		c.check()
		c.state = stateApprovalRequested
		c.approval = &approval{id: id, subject: subject, rule: m, asked: now}
	})
}

// answered notes the answer of a human, if one was asked.
func (c *ToolCall) answered(approved bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.state != stateApprovalRequested {
		return
	}
	c.state = stateApprovalResponded
	c.approval.answered, c.approval.approved, c.approval.reason = true, approved, reason
}

// pending returns what the next process must know of a call that waits. It is
// for calls that have ended with their turn.
func (c *ToolCall) pending() (PendingTool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stateApprovalRequested {
		return PendingTool{}, false
	}
	p := PendingTool{
		CallID: c.callID, Name: c.name, Input: json.RawMessage(c.input), ApprovalID: c.approval.id,
		PartID: c.partID, PartIndex: c.index, CreatedAt: c.created, AskedAt: c.approval.asked.UnixMilli(),
		Kind: c.kind, Dynamic: c.dynamic, ProviderExecuted: c.providerExecuted, Subject: c.approval.subject,
	}
	if c.approval.rule.found {
		p.Pattern, p.Source = c.approval.rule.rule.Pattern, c.approval.rule.rule.Source
	}
	return p, true
}

// PendingTools returns the tool calls of a continued turn that still wait for
// an answer.
func (t *Turn) PendingTools() []PendingTool {
	if t == nil || t.off {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.waiting)
}

// ResumeTool takes up a tool call that waited, with a human's answer. The call
// goes on under its old id, in its old place. When the decision denies it, it
// has ended. The error says that no call of that id waits.
//
// The decision is recorded as one and the same as when the question was asked.
func (t *Turn) ResumeTool(ctx context.Context, callID string, answer Answer) (context.Context, *ToolCall, Decision, error) {
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
	ctx, c := t.startTool(ctx, ToolOptions{
		ID: p.CallID, Name: p.Name, Input: p.Input, Kind: p.Kind, Dynamic: p.Dynamic, ProviderExecuted: p.ProviderExecuted,
	}, &p)
	now := t.run.now()
	_, span := c.startDecision(ctx, now)
	rule := match{rule: Rule{Pattern: p.Pattern, Source: p.Source}, found: p.Source != ""}
	c.await(p.ApprovalID, p.Subject, rule, time.UnixMilli(p.AskedAt))
	d := Decision{ID: p.ApprovalID, Action: ActionAsk, Pattern: p.Pattern, Source: p.Source, Reply: answer.Reply, Reason: validUTF8(answer.Reason), tool: p.Name}
	d.Waited = max(0, now.Sub(time.UnixMilli(p.AskedAt)))
	switch answer.Reply {
	case ReplyOnce:
		d.outcome = semconv.OutcomeAllowed
	case ReplyAlways:
		d.outcome = semconv.OutcomeAllowed
		t.run.sess.always(ctx, p.Name, p.Subject, answer.Pattern)
	default:
		d.Reply, d.outcome, d.Reason = ReplyReject, semconv.OutcomeDenied, orText(d.Reason, "the user rejected it")
	}
	c.settle(&d, span)
	return ctx, c, d, nil
}
