package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Permission is a permission.evaluate span: a decision whether a tool call is allowed.
type Permission struct {
	SessionID string
	ID        string
	ToolID    string
	CallID    string
	MessageID string
	PartID    string

	// Pattern is the pattern of the rule that matched, Action its action (allow, deny or
	// ask), and Source its origin.
	Pattern, Action, Source string
	// Outcome is allowed, denied or pending. Reply is a person's answer: once, always or
	// reject.
	Outcome, Reply string
	Reason         string
	// WaitedMS is how long the answer took; nil if no person was asked.
	WaitedMS *int64

	ErrorType string
}

// Kind returns permission.evaluate.
func (p *Permission) Kind() string { return semconv.SpanPermissionEvaluate }

// Append implements [SpanData]. The most important attributes come first, as in a [Turn].
func (p *Permission) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	dst = append(dst, semconv.SessionIDKey.String(p.SessionID))
	dst = appendString(dst, semconv.PermissionIDKey, p.ID)
	dst = append(dst,
		semconv.ToolIDKey.String(p.ToolID),
		semconv.PermissionPatternKey.String(p.Pattern),
		semconv.PermissionActionKey.String(p.Action),
		semconv.PermissionSourceKey.String(p.Source))
	dst = appendString(dst, semconv.PermissionOutcomeKey, p.Outcome)
	dst = appendString(dst, semconv.ToolCallIDKey, p.CallID)
	dst = appendString(dst, semconv.MessageIDKey, p.MessageID)
	dst = appendString(dst, semconv.PartIDKey, p.PartID)
	dst = appendString(dst, semconv.PermissionReplyKey, p.Reply)
	dst = appendString(dst, semconv.PermissionReasonKey, p.Reason)
	if p.WaitedMS != nil {
		dst = append(dst, semconv.PermissionWaitedMSKey.Int64(*p.WaitedMS))
	}
	return appendString(dst, semconv.ErrorTypeKey, p.ErrorType)
}

// Set implements [SpanData].
func (p *Permission) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&p.SessionID, v)
	case semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&p.SessionID, v)
	case semconv.PermissionIDKey:
		return true, setString(&p.ID, v)
	case semconv.ToolIDKey:
		return true, setString(&p.ToolID, v)
	case semconv.ToolCallIDKey:
		return true, setString(&p.CallID, v)
	case semconv.MessageIDKey:
		return true, setString(&p.MessageID, v)
	case semconv.PartIDKey:
		return true, setString(&p.PartID, v)
	case semconv.PermissionPatternKey:
		return true, setString(&p.Pattern, v)
	case semconv.PermissionActionKey:
		return true, setString(&p.Action, v)
	case semconv.PermissionSourceKey:
		return true, setString(&p.Source, v)
	case semconv.PermissionOutcomeKey:
		return true, setString(&p.Outcome, v)
	case semconv.PermissionReplyKey:
		return true, setString(&p.Reply, v)
	case semconv.PermissionReasonKey:
		return true, setString(&p.Reason, v)
	case semconv.PermissionWaitedMSKey:
		return true, setIntPtr(&p.WaitedMS, v)
	case semconv.ErrorTypeKey:
		return true, setString(&p.ErrorType, v)
	}
	return false, nil
}

// Validate implements [SpanData].
func (p *Permission) Validate() error {
	var errs []error
	if p.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if p.ToolID == "" {
		errs = append(errs, missing(semconv.ToolIDKey))
	}
	if p.Action == "" {
		errs = append(errs, missing(semconv.PermissionActionKey))
	}
	errs = append(errs,
		oneOf(semconv.PermissionActionKey, p.Action, semconv.ActionAllow, semconv.ActionDeny, semconv.ActionAsk),
		oneOf(semconv.PermissionSourceKey, p.Source, semconv.SourceManifest, semconv.SourceSession, semconv.SourceProject),
		oneOf(semconv.PermissionOutcomeKey, p.Outcome, semconv.OutcomeAllowed, semconv.OutcomeDenied, semconv.OutcomePending),
		oneOf(semconv.PermissionReplyKey, p.Reply, semconv.ReplyOnce, semconv.ReplyAlways, semconv.ReplyReject))
	return errors.Join(errs...)
}
