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
	dst = append(dst, semconv.SessionIDKey.String(r.SessionID))
	dst = appendString(dst, semconv.RunOperationKey, r.Operation)
	dst = appendString(dst, semconv.AgentKey, r.Agent)
	dst = appendString(dst, semconv.SessionTargetMessageIDKey, r.TargetMessageID)
	dst = appendInt(dst, semconv.SessionTargetAtKey, r.TargetAt)
	dst = appendString(dst, semconv.SessionParentIDKey, r.ParentID)
	dst = appendString(dst, semconv.SessionParentMessageIDKey, r.ParentMessageID)
	dst = appendInt(dst, semconv.SessionCreatedAtKey, r.CreatedAt)
	dst = appendString(dst, semconv.RunOutcomeKey, r.Outcome)
	dst = appendString(dst, semconv.ErrorKey, r.Error)
	dst = appendString(dst, semconv.ErrorTypeKey, r.ErrorType)
	dst = appendString(dst, semconv.SessionTitleKey, r.Title)
	dst = appendString(dst, semconv.SessionWorkspaceRootKey, r.WorkspaceRoot)
	dst = appendString(dst, semconv.SessionWorkspaceIDKey, r.WorkspaceID)
	dst = appendString(dst, semconv.SessionMetadataKey, string(r.Metadata))
	dst = appendString(dst, semconv.SessionPermissionsKey, string(r.Permissions))
	dst = appendString(dst, semconv.SessionModeKey, r.Mode)
	dst = appendString(dst, semconv.UserIDKey, r.UserID)
	dst = r.Model.append(dst)
	dst = append(dst, semconv.SessionIDFloorKey.String(r.SessionID))
	dst = appendString(dst, semconv.ModelIDKey, r.Model.ModelID)
	dst = appendString(dst, semconv.ProviderIDKey, r.Model.ProviderID)
	dst = appendString(dst, semconv.GenAIAgentNameKey, r.Agent)
	dst = append(dst, semconv.GenAIConversationIDKey.String(r.SessionID))
	if r.Operation == "" || r.Operation == semconv.RunOperationRun {
		dst = append(dst, semconv.GenAIOperationNameKey.String(semconv.OperationInvokeAgent))
	}
	return dst
}

// Set implements [SpanData].
func (r *Run) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&r.SessionID, v)
	case semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&r.SessionID, v)
	case semconv.GenAIOperationNameKey:
		return true, nil
	case semconv.RunOperationKey:
		return true, setString(&r.Operation, v)
	case semconv.AgentKey:
		return true, setString(&r.Agent, v)
	case semconv.GenAIAgentNameKey:
		return true, setStringIfUnset(&r.Agent, v)
	case semconv.ModelIDKey:
		return true, setStringIfUnset(&r.Model.ModelID, v)
	case semconv.ProviderIDKey:
		return true, setStringIfUnset(&r.Model.ProviderID, v)
	case semconv.SessionTitleKey:
		return true, setString(&r.Title, v)
	case semconv.UserIDKey:
		return true, setString(&r.UserID, v)
	case semconv.SessionWorkspaceIDKey:
		return true, setString(&r.WorkspaceID, v)
	case semconv.SessionWorkspaceRootKey:
		return true, setString(&r.WorkspaceRoot, v)
	case semconv.SessionModeKey:
		return true, setString(&r.Mode, v)
	case semconv.SessionCreatedAtKey:
		return true, setInt(&r.CreatedAt, v)
	case semconv.SessionParentIDKey:
		return true, setString(&r.ParentID, v)
	case semconv.SessionParentMessageIDKey:
		return true, setString(&r.ParentMessageID, v)
	case semconv.SessionPermissionsKey:
		return true, setJSON(&r.Permissions, v, '[')
	case semconv.SessionMetadataKey:
		return true, setJSON(&r.Metadata, v, '{')
	case semconv.SessionTargetMessageIDKey:
		return true, setString(&r.TargetMessageID, v)
	case semconv.SessionTargetAtKey:
		return true, setInt(&r.TargetAt, v)
	case semconv.RunOutcomeKey:
		return true, setString(&r.Outcome, v)
	case semconv.ErrorKey:
		return true, setString(&r.Error, v)
	case semconv.ErrorTypeKey:
		return true, setString(&r.ErrorType, v)
	}
	return r.Model.set(key, v)
}

// Validate implements [SpanData].
func (r *Run) Validate() error {
	var errs []error
	if r.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if r.Agent == "" {
		errs = append(errs, missing(semconv.AgentKey))
	}
	if r.ParentMessageID != "" && r.ParentID == "" {
		errs = append(errs, missing(semconv.SessionParentIDKey))
	}
	switch r.Operation {
	case semconv.RunOperationFork, semconv.RunOperationRewind, semconv.RunOperationUnrewind:
		if r.TargetMessageID == "" {
			errs = append(errs, missing(semconv.SessionTargetMessageIDKey))
		}
		if r.TargetAt == 0 {
			errs = append(errs, missing(semconv.SessionTargetAtKey))
		}
	}
	errs = append(errs,
		oneOf(semconv.RunOperationKey, r.Operation, semconv.RunOperationRun, semconv.RunOperationUpdate,
			semconv.RunOperationFork,
			semconv.RunOperationRewind, semconv.RunOperationUnrewind, semconv.RunOperationArchive,
			semconv.RunOperationUnarchive),
		oneOf(semconv.RunOutcomeKey, r.Outcome, semconv.EndFinish, semconv.EndAbort, semconv.EndError))
	return errors.Join(errs...)
}

func setStringIfUnset(dst *string, v Value) error {
	if *dst != "" {
		return nil
	}
	return setString(dst, v)
}
