package spans

import (
	"encoding/json"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Run is a session.run span: a run of an agent on a session, or a change of the session
// at one moment. It has the attributes of the session.
type Run struct {
	SessionID string
	// Operation is one of semconv.RunOperation…; empty means run.
	Operation string

	Agent         string
	Title         string
	UserID        string
	WorkspaceID   string
	WorkspaceRoot string
	Mode          string
	Model         Model

	// CreatedAt is when the session began, Unix milliseconds, or 0.
	CreatedAt int64

	// ParentID and ParentMessageID are the session and message from which a fork or a
	// sub-agent started.
	ParentID        string
	ParentMessageID string

	// Permissions is a JSON array of session rules, Metadata a JSON object; nil if not
	// reported.
	Permissions json.RawMessage
	Metadata    json.RawMessage

	// TargetMessageID and TargetAt (Unix milliseconds) are used by fork, rewind and
	// unrewind; see semconv.
	TargetMessageID string
	TargetAt        int64

	// Outcome is finish, abort or error; Error is the text of an error.
	Outcome   string
	Error     string
	ErrorType string
}

// Kind returns session.run.
func (r *Run) Kind() string { return semconv.SpanSessionRun }

// Append implements [SpanData]. The most important attributes come first, as in a [Turn].
func (r *Run) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	dst = runTable.append(r, dst)
	if r.Operation == "" || r.Operation == semconv.RunOperationRun {
		dst = append(dst, semconv.GenAIOperationNameKey.String(semconv.OperationInvokeAgent))
	}
	return dst
}

// Set implements [SpanData].
func (r *Run) Set(key string, val Value) (known bool, err error) { return runTable.set(r, key, val) }

// Validate implements [SpanData].
func (r *Run) Validate() error {
	toMessage := r.Operation == semconv.RunOperationFork || r.Operation == semconv.RunOperationRewind ||
		r.Operation == semconv.RunOperationUnrewind
	return runTable.validate(r,
		missingIf(r.ParentMessageID != "" && r.ParentID == "", semconv.SessionParentIDKey),
		missingIf(toMessage && r.TargetMessageID == "", semconv.SessionTargetMessageIDKey),
		missingIf(toMessage && r.TargetAt == 0, semconv.SessionTargetAtKey))
}

var runTable = newTable(func(t *builder, r *Run) {
	t.session(&r.SessionID)
	t.add(semconv.RunOperationKey, &r.Operation, enum)
	t.add(semconv.AgentKey, &r.Agent, required)
	t.add(semconv.SessionTargetMessageIDKey, &r.TargetMessageID)
	t.add(semconv.SessionTargetAtKey, &r.TargetAt)
	t.add(semconv.SessionParentIDKey, &r.ParentID)
	t.add(semconv.SessionParentMessageIDKey, &r.ParentMessageID)
	t.add(semconv.SessionCreatedAtKey, &r.CreatedAt)
	t.add(semconv.RunOutcomeKey, &r.Outcome, enum)
	t.add(semconv.ErrorKey, &r.Error)
	t.add(semconv.ErrorTypeKey, &r.ErrorType)
	t.add(semconv.SessionTitleKey, &r.Title)
	t.add(semconv.SessionWorkspaceRootKey, &r.WorkspaceRoot)
	t.add(semconv.SessionWorkspaceIDKey, &r.WorkspaceID)
	t.add(semconv.SessionMetadataKey, &r.Metadata)
	t.add(semconv.SessionPermissionsKey, &r.Permissions, array)
	t.add(semconv.SessionModeKey, &r.Mode)
	t.add(semconv.UserIDKey, &r.UserID)
	t.model(&r.Model)
	t.add(semconv.SessionIDFloorKey, &r.SessionID, alias, always)
	t.add(semconv.ModelIDKey, &r.Model.ModelID, alias)
	t.add(semconv.ProviderIDKey, &r.Model.ProviderID, alias)
	t.add(semconv.GenAIAgentNameKey, &r.Agent, alias)
	t.add(semconv.GenAIConversationIDKey, &r.SessionID, alias, always)
	t.ignore(semconv.GenAIOperationNameKey)
})
