package spans

import (
	"errors"

	"github.com/agenttrace/agenttrace/semconv"
)

// Permission is a permission.evaluate span: a decision whether a tool call is allowed.
type Permission struct {
	SessionID, ID, ToolID, CallID, MessageID, PartID string

	// Pattern is the pattern of the rule that matched, Action its action (allow, deny or ask), and Source its origin.
	Pattern, Action, Source string
	// Outcome is allowed, denied or pending. Reply is a person's answer: once, always or reject.
	Outcome, Reply string
	Reason         string
	// WaitedMS is how long the answer took; nil if no person was asked.
	WaitedMS *int64

	ErrorType string
}

// Kind returns permission.evaluate.
func (p *Permission) Kind() string { return semconv.SpanPermissionEvaluate }

func (p *Permission) visit(c *coder) {
	c.required(semconv.SessionIDKey, &p.SessionID)
	c.fallback(semconv.SessionIDFloorKey, &p.SessionID)
	c.fallback(semconv.GenAIConversationIDKey, &p.SessionID)
	c.text(semconv.PermissionIDKey, &p.ID)
	c.required(semconv.ToolIDKey, &p.ToolID)
	c.required(semconv.PermissionPatternKey, &p.Pattern)
	c.required(semconv.PermissionActionKey, &p.Action)
	c.required(semconv.PermissionSourceKey, &p.Source)
	c.text(semconv.PermissionOutcomeKey, &p.Outcome)
	c.text(semconv.ToolCallIDKey, &p.CallID)
	c.text(semconv.MessageIDKey, &p.MessageID)
	c.text(semconv.PartIDKey, &p.PartID)
	c.text(semconv.PermissionReplyKey, &p.Reply)
	c.text(semconv.PermissionReasonKey, &p.Reason)
	c.number(semconv.PermissionWaitedMSKey, &p.WaitedMS)
	c.text(semconv.ErrorTypeKey, &p.ErrorType)
}

// Validate implements [SpanData].
func (p *Permission) Validate() error {
	return errors.Join(
		missing(semconv.SessionIDKey, p.SessionID), missing(semconv.ToolIDKey, p.ToolID),
		missing(semconv.PermissionActionKey, p.Action),
		oneOf(semconv.PermissionActionKey, p.Action, semconv.ActionAllow, semconv.ActionDeny, semconv.ActionAsk),
		oneOf(semconv.PermissionSourceKey, p.Source, semconv.SourceManifest, semconv.SourceSession,
			semconv.SourceProject),
		oneOf(semconv.PermissionOutcomeKey, p.Outcome, semconv.OutcomeAllowed, semconv.OutcomeDenied,
			semconv.OutcomePending),
		oneOf(semconv.PermissionReplyKey, p.Reply, semconv.ReplyOnce, semconv.ReplyAlways, semconv.ReplyReject))
}
