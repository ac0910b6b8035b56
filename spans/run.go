package spans

import (
	"encoding/json"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Run is a session.run span: a run of an agent on a session, or a change of the session
// at one moment. It has the attributes of the session.
type Run struct {
	SessionID string
	// Operation is one of semconv.RunOperation…; empty means run.
	Operation string

	Agent, Title, FirstPrompt, UserID string
	WorkspaceID, WorkspaceRoot, Mode  string
	Model                             Model

	// CreatedAt is when the session began, Unix milliseconds, or 0.
	CreatedAt int64

	// ParentID and ParentMessageID are the session and message from which a fork or a sub-agent started.
	ParentID, ParentMessageID string
	// RootID is the session at the top of the parents, empty if the session has none. Samplers decide by it.
	RootID string

	// Permissions is a JSON array of session rules, Metadata a JSON object; nil if not reported.
	Permissions, Metadata json.RawMessage

	// TargetMessageID and TargetAt (Unix milliseconds) are used by fork, rewind and unrewind; see semconv.
	TargetMessageID string
	TargetAt        int64

	// Outcome is finish, abort or error; Error is the text of an error.
	Outcome, Error, ErrorType string
}

// Kind returns session.run.
func (r *Run) Kind() string { return semconv.SpanSessionRun }

func (r *Run) visit(c *coder) {
	c.required(semconv.SessionIDKey, &r.SessionID)
	c.text(semconv.RunOperationKey, &r.Operation)
	c.text(semconv.AgentKey, &r.Agent)
	c.text(semconv.SessionTargetMessageIDKey, &r.TargetMessageID)
	c.count(semconv.SessionTargetAtKey, &r.TargetAt)
	c.text(semconv.SessionParentIDKey, &r.ParentID)
	c.text(semconv.SessionParentMessageIDKey, &r.ParentMessageID)
	c.text(semconv.SessionRootIDKey, &r.RootID)
	c.count(semconv.SessionCreatedAtKey, &r.CreatedAt)
	c.text(semconv.RunOutcomeKey, &r.Outcome)
	c.text(semconv.ErrorKey, &r.Error)
	c.text(semconv.ErrorTypeKey, &r.ErrorType)
	c.text(semconv.SessionTitleKey, &r.Title)
	c.text(semconv.SessionFirstPromptKey, &r.FirstPrompt)
	c.text(semconv.SessionWorkspaceRootKey, &r.WorkspaceRoot)
	c.text(semconv.SessionWorkspaceIDKey, &r.WorkspaceID)
	c.json(semconv.SessionMetadataKey, &r.Metadata, '{')
	c.json(semconv.SessionPermissionsKey, &r.Permissions, '[')
	c.text(semconv.SessionModeKey, &r.Mode)
	c.text(semconv.UserIDKey, &r.UserID)
	r.Model.visit(c)
	c.copied(semconv.SessionIDFloorKey, &r.SessionID)
	c.copied(semconv.ModelIDKey, &r.Model.ModelID)
	c.copied(semconv.ProviderIDKey, &r.Model.ProviderID)
	c.copied(semconv.GenAIAgentNameKey, &r.Agent)
	c.copied(semconv.GenAIConversationIDKey, &r.SessionID)
	if c.decoding || r.Operation == "" || r.Operation == semconv.RunOperationRun {
		c.constant(semconv.GenAIOperationNameKey, attribute.StringValue(semconv.OperationInvokeAgent))
	}
}

// Validate implements [SpanData].
func (r *Run) Validate() error {
	errs := []error{missing(semconv.SessionIDKey, r.SessionID), missing(semconv.AgentKey, r.Agent)}
	if r.ParentMessageID != "" {
		errs = append(errs, missing(semconv.SessionParentIDKey, r.ParentID))
	}
	switch r.Operation {
	case semconv.RunOperationFork, semconv.RunOperationRewind, semconv.RunOperationUnrewind:
		errs = append(errs, missing(semconv.SessionTargetMessageIDKey, r.TargetMessageID))
		if r.TargetAt == 0 {
			errs = append(errs, missing(semconv.SessionTargetAtKey, ""))
		}
	}
	errs = append(errs,
		oneOf(semconv.RunOperationKey, r.Operation, semconv.RunOperationRun, semconv.RunOperationUpdate,
			semconv.RunOperationFork, semconv.RunOperationRewind, semconv.RunOperationUnrewind,
			semconv.RunOperationArchive, semconv.RunOperationUnarchive),
		oneOf(semconv.RunOutcomeKey, r.Outcome, semconv.EndFinish, semconv.EndAbort, semconv.EndError))
	return errors.Join(errs...)
}

// Compaction is a compaction.run span: in the model's context, a summary replaces the earlier messages of the session.
type Compaction struct {
	SessionID string

	// SummarizedMessages is the number of messages that the summary replaces.
	SummarizedMessages int64
	// InputTokens and OutputTokens are those of the call that made the summary, as its provider counts.
	InputTokens, OutputTokens int64

	// MessageID, MessageCreatedAt (Unix milliseconds) and PartID are those of the
	// synthetic assistant message with the summary.
	MessageID        string
	MessageCreatedAt int64
	PartID           string

	Summary       string
	SummaryTokens int64
	// Auto reports that the agent compacted on its own.
	Auto bool
	// TailStartID is the first message that stays in the context verbatim. It is empty if there is none.
	TailStartID string

	Error, ErrorType string
}

// Kind returns compaction.run.
func (r *Compaction) Kind() string { return semconv.SpanCompactionRun }

func (r *Compaction) visit(c *coder) {
	c.required(semconv.SessionIDKey, &r.SessionID)
	c.text(semconv.MessageIDKey, &r.MessageID)
	c.count(semconv.MessageCreatedAtKey, &r.MessageCreatedAt)
	c.text(semconv.PartIDKey, &r.PartID)
	c.text(semconv.CompactionSummaryKey, &r.Summary)
	c.text(semconv.CompactionTailStartIDKey, &r.TailStartID)
	c.text(semconv.ErrorKey, &r.Error)
	c.text(semconv.ErrorTypeKey, &r.ErrorType)
	c.total(semconv.SummarizedMessageCountKey, &r.SummarizedMessages)
	c.total(semconv.CompactionInputTokensKey, &r.InputTokens)
	c.total(semconv.CompactionOutputTokensKey, &r.OutputTokens)
	c.count(semconv.CompactionSummaryTokensKey, &r.SummaryTokens)
	c.flag(semconv.CompactionAutoKey, &r.Auto)
	c.copied(semconv.SessionIDFloorKey, &r.SessionID)
	c.fallback(semconv.GenAIConversationIDKey, &r.SessionID)
	c.constant(semconv.GenAIConversationCompactedKey, attribute.BoolValue(true))
}

// Validate implements [SpanData].
func (r *Compaction) Validate() error {
	var negative error
	if r.SummarizedMessages < 0 || r.InputTokens < 0 || r.OutputTokens < 0 || r.SummaryTokens < 0 {
		negative = errors.New("a count is negative")
	}
	return errors.Join(missing(semconv.SessionIDKey, r.SessionID), missing(semconv.MessageIDKey, r.MessageID+r.Error),
		negative)
}
