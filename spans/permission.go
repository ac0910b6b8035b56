package spans

import (
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
	return permissionTable.append(p, dst)
}

// Set implements [SpanData].
func (p *Permission) Set(key string, val Value) (known bool, err error) {
	return permissionTable.set(p, key, val)
}

// Validate implements [SpanData].
func (p *Permission) Validate() error { return permissionTable.validate(p) }

var permissionTable = newTable(func(t *builder, p *Permission) {
	t.session(&p.SessionID, semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey)
	t.add(semconv.PermissionIDKey, &p.ID)
	t.add(semconv.ToolIDKey, &p.ToolID, always, required)
	t.add(semconv.PermissionPatternKey, &p.Pattern, always)
	t.add(semconv.PermissionActionKey, &p.Action, always, required, enum)
	t.add(semconv.PermissionSourceKey, &p.Source, always, enum)
	t.add(semconv.PermissionOutcomeKey, &p.Outcome, enum)
	t.add(semconv.ToolCallIDKey, &p.CallID)
	t.add(semconv.MessageIDKey, &p.MessageID)
	t.add(semconv.PartIDKey, &p.PartID)
	t.add(semconv.PermissionReplyKey, &p.Reply, enum)
	t.add(semconv.PermissionReasonKey, &p.Reason)
	t.add(semconv.PermissionWaitedMSKey, &p.WaitedMS)
	t.add(semconv.ErrorTypeKey, &p.ErrorType)
})
