package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// ToolCall is a tool.call span: a tool call with its input and output.
type ToolCall struct {
	SessionID, ToolID, CallID, Type string

	MessageID, PartID string
	// PartIndex is the index of the part in its message; nil if not reported.
	PartIndex *int64

	// State is the last state that the call reached, one of the AI SDK's.
	State string
	// Input and Output are JSON text, or empty. They are kept as they arrived, even if a limit truncated them.
	Input, Output string
	// Error is the text that the model got for a failed call.
	Error, ErrorType string

	// ACPKind is the kind of tool, with the values of the Agent Client Protocol.
	ACPKind                           string
	Dynamic, ProviderExecuted, Denied bool
	// Inferred reports that the call itself was not observed: it lasts from the end of the
	// answer that requested it to the request with its result.
	Inferred bool

	// Truncated reports that the output was truncated. OutputSize (in bytes) and
	// OutputSHA256 describe the whole output, OutputPath is where it is.
	Truncated    bool
	OutputPath   string
	OutputSize   int64
	OutputSHA256 string

	// ApprovalID is the permission decision that the call waits for or waited for.
	ApprovalID string

	// ChildSessionID is the session of a sub-agent that the call started.
	ChildSessionID string

	// StartedAt is when the execution began, in Unix milliseconds; 0 if it began with the
	// span, which begins when the call is announced. DurationMS is that of the execution.
	StartedAt  int64
	DurationMS *int64
}

// Kind returns tool.call.
func (t *ToolCall) Kind() string { return semconv.SpanToolCall }

func (t *ToolCall) visit(c *coder) {
	c.required(semconv.SessionIDKey, &t.SessionID)
	c.required(semconv.ToolIDKey, &t.ToolID)
	c.required(semconv.ToolCallIDKey, &t.CallID)
	c.text(semconv.MessageIDKey, &t.MessageID)
	c.text(semconv.PartIDKey, &t.PartID)
	c.number(semconv.PartIndexKey, &t.PartIndex)
	c.text(semconv.ToolStateKey, &t.State)
	c.text(semconv.GenAIToolCallArgumentsKey, &t.Input)
	c.text(semconv.GenAIToolCallResultKey, &t.Output)
	c.text(semconv.ErrorKey, &t.Error)
	c.text(semconv.ErrorTypeKey, &t.ErrorType)
	c.mark(semconv.ToolDeniedKey, &t.Denied)
	c.mark(semconv.ToolDynamicKey, &t.Dynamic)
	c.mark(semconv.ToolProviderExecutedKey, &t.ProviderExecuted)
	c.mark(semconv.ToolInferredKey, &t.Inferred)
	c.text(semconv.PermissionIDKey, &t.ApprovalID)
	c.text(semconv.ToolChildSessionIDKey, &t.ChildSessionID)
	c.flag(semconv.TruncatedKey, &t.Truncated)
	c.text(semconv.ToolOutputPathKey, &t.OutputPath)
	c.count(semconv.ToolOutputSizeKey, &t.OutputSize)
	c.text(semconv.ToolOutputSHA256Key, &t.OutputSHA256)
	c.number(semconv.DurationMSKey, &t.DurationMS)
	c.count(semconv.ToolStartedAtKey, &t.StartedAt)
	c.text(semconv.ToolKindKey, &t.ACPKind)
	c.text(semconv.GenAIToolTypeKey, &t.Type)
	c.constant(semconv.GenAIOperationNameKey, attribute.StringValue(semconv.OperationExecuteTool))
	c.copied(semconv.GenAIToolNameKey, &t.ToolID)
	c.copied(semconv.GenAIToolCallIDKey, &t.CallID)
	c.fallback(semconv.SessionIDFloorKey, &t.SessionID)
	c.fallback(semconv.GenAIConversationIDKey, &t.SessionID)
}

// Validate implements [SpanData].
func (t *ToolCall) Validate() error {
	var index error
	if t.PartIndex != nil && *t.PartIndex < 0 {
		index = errors.New("agenttrace.part.index is negative")
	}
	return errors.Join(
		missing(semconv.SessionIDKey, t.SessionID), missing(semconv.ToolIDKey, t.ToolID),
		missing(semconv.ToolCallIDKey, t.CallID), missing(semconv.MessageIDKey, t.MessageID), index,
		oneOf(semconv.ToolStateKey, t.State, "input-streaming", "input-available", "approval-requested",
			"approval-responded", "output-available", "output-error", "output-denied"),
		oneOf(semconv.ToolKindKey, t.ACPKind, semconv.ToolKindRead, semconv.ToolKindEdit, semconv.ToolKindDelete,
			semconv.ToolKindMove, semconv.ToolKindSearch, semconv.ToolKindExecute, semconv.ToolKindThink,
			semconv.ToolKindFetch, semconv.ToolKindOther))
}

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
