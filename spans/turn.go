package spans

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Turn is a session.turn span: from a user message to the finished answer, with any
// number of model calls. A turn that waited for a person and was continued later is two
// spans with the same index and messages.
type Turn struct {
	SessionID string
	Agent     string
	// Title, ParentID and ParentMessageID are those of the session. They are repeated
	// here because the span of the run arrives last.
	Title           string
	ParentID        string
	ParentMessageID string
	// Index counts the session's turns from 0; nil if not reported.
	Index *int64

	// Model, Temperature and the digests are those of the last model call.
	Model       Model
	Temperature *float64

	// SystemPromptDigest and ToolCatalogDigest are SHA-256 in lower-case hex. The texts
	// are empty if the run has sent them before.
	SystemPromptDigest string
	SystemPrompt       string
	ToolCatalogDigest  string
	ToolCatalog        string

	Usage      Usage
	ModelCalls int64

	// StopReason is the one that the provider reported. EndReason is finish, abort or
	// error.
	StopReason      string
	EndReason       string
	PendingApproval bool
	Error           string
	ErrorType       string
	DurationMS      *int64

	// User is the zero Message if the turn continues an earlier one.
	User      Message
	Assistant Message
}

// Message is a message in a turn's attributes.
type Message struct {
	ID string
	// CreatedAt is in Unix milliseconds.
	CreatedAt int64
	// Metadata is a JSON object, or nil.
	Metadata json.RawMessage
	Parts    []Part
	// Damaged counts the parts with malformed JSON. It is not encoded.
	Damaged int
}

// Kind returns session.turn.
func (t *Turn) Kind() string { return semconv.SpanSessionTurn }

// Append implements [SpanData]. A limit on the number of attributes drops the last ones, so
// the attributes come in order of importance: those that make up the messages, how the
// turn ended, its tokens and model, its description, and the repetitions for the GenAI
// conventions.
func (t *Turn) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	dst = append(dst, semconv.SessionIDKey.String(t.SessionID))
	if t.Index != nil {
		dst = append(dst, semconv.TurnIndexKey.Int64(*t.Index))
	}
	dst = t.Assistant.append(dst, semconv.AssistantMessageIDKey, semconv.AssistantMessageCreatedAtKey,
		semconv.AssistantMessagePartsKey)
	dst = t.User.append(dst, semconv.UserMessageIDKey, semconv.UserMessageCreatedAtKey, semconv.UserMessagePartsKey)
	dst = appendString(dst, semconv.TurnEndReasonKey, t.EndReason)
	dst = appendTrue(dst, semconv.TurnPendingApprovalKey, t.PendingApproval)
	dst = appendString(dst, semconv.ErrorKey, t.Error)
	dst = appendString(dst, semconv.ErrorTypeKey, t.ErrorType)
	dst = t.Usage.append(dst)
	dst = t.Model.append(dst)
	dst = appendInt(dst, semconv.TurnModelCallsKey, t.ModelCalls)
	dst = appendString(dst, semconv.StopReasonKey, t.StopReason)
	if t.DurationMS != nil {
		dst = append(dst, semconv.DurationMSKey.Int64(*t.DurationMS))
	}
	dst = appendString(dst, semconv.UserMessageMetadataKey, string(t.User.Metadata))
	dst = appendString(dst, semconv.AssistantMessageMetadataKey, string(t.Assistant.Metadata))
	dst = appendString(dst, semconv.SystemPromptDigestKey, t.SystemPromptDigest)
	dst = appendString(dst, semconv.SystemPromptTextKey, t.SystemPrompt)
	dst = appendString(dst, semconv.ToolCatalogDigestKey, t.ToolCatalogDigest)
	dst = appendString(dst, semconv.ToolCatalogJSONKey, t.ToolCatalog)
	if t.Temperature != nil {
		dst = append(dst, semconv.GenAIRequestTemperatureKey.Float64(*t.Temperature))
	}
	dst = appendString(dst, semconv.GenAIAgentNameKey, t.Agent)
	dst = appendString(dst, semconv.SessionTitleKey, t.Title)
	dst = appendString(dst, semconv.SessionParentIDKey, t.ParentID)
	dst = appendString(dst, semconv.SessionParentMessageIDKey, t.ParentMessageID)
	dst = append(dst, semconv.GenAIConversationIDKey.String(t.SessionID))
	if t.Usage.Tokens != nil {
		dst = append(dst, semconv.TokensKey.Int64(t.Usage.Tokens.Total()))
	}
	if t.StopReason != "" {
		dst = append(dst, semconv.GenAIResponseFinishReasonsKey.StringSlice([]string{t.StopReason}))
	}
	return t.Usage.appendMirror(dst)
}

// append appends the message without its metadata.
func (m *Message) append(dst []attribute.KeyValue, id, createdAt, parts attribute.Key) []attribute.KeyValue {
	if m.ID == "" {
		return dst
	}
	dst = append(dst, id.String(m.ID))
	dst = appendInt(dst, createdAt, m.CreatedAt)
	if len(m.Parts) > 0 {
		encoded := make([]string, len(m.Parts))
		var buf []byte
		for i := range m.Parts {
			buf = m.Parts[i].AppendJSON(buf[:0])
			encoded[i] = string(buf)
		}
		dst = append(dst, parts.StringSlice(encoded))
	}
	return dst
}

// Set implements [SpanData].
func (t *Turn) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&t.SessionID, v)
	case semconv.SessionIDFloorKey, semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&t.SessionID, v)
	case semconv.GenAIAgentNameKey:
		return true, setString(&t.Agent, v)
	case semconv.SessionTitleKey:
		return true, setString(&t.Title, v)
	case semconv.SessionParentIDKey:
		return true, setString(&t.ParentID, v)
	case semconv.SessionParentMessageIDKey:
		return true, setString(&t.ParentMessageID, v)
	case semconv.TurnIndexKey:
		return true, setIntPtr(&t.Index, v)
	case semconv.GenAIRequestTemperatureKey:
		return true, setDoublePtr(&t.Temperature, v)
	case semconv.SystemPromptDigestKey:
		return true, setString(&t.SystemPromptDigest, v)
	case semconv.SystemPromptTextKey:
		return true, setString(&t.SystemPrompt, v)
	case semconv.ToolCatalogDigestKey:
		return true, setString(&t.ToolCatalogDigest, v)
	case semconv.ToolCatalogJSONKey:
		return true, setString(&t.ToolCatalog, v)
	case semconv.TurnModelCallsKey:
		return true, setInt(&t.ModelCalls, v)
	case semconv.StopReasonKey:
		return true, setString(&t.StopReason, v)
	case semconv.GenAIResponseFinishReasonsKey:
		return true, t.setFinishReasons(v)
	case semconv.TurnEndReasonKey:
		return true, setString(&t.EndReason, v)
	case semconv.TurnPendingApprovalKey:
		return true, setBool(&t.PendingApproval, v)
	case semconv.ErrorKey:
		return true, setString(&t.Error, v)
	case semconv.ErrorTypeKey:
		return true, setString(&t.ErrorType, v)
	case semconv.DurationMSKey:
		return true, setIntPtr(&t.DurationMS, v)
	}
	for _, set := range [...]func(string, Value) (bool, error){t.setMessage, t.Usage.set} {
		if known, err := set(key, v); known {
			return true, err
		}
	}
	return t.Model.set(key, v)
}

// setFinishReasons takes the last finish reason for the stop reason where none is given.
func (t *Turn) setFinishReasons(v Value) error {
	reasons, err := v.Strings()
	if err == nil && len(reasons) > 0 && t.StopReason == "" {
		t.StopReason = reasons[len(reasons)-1]
	}
	return err
}

// setMessage decodes an attribute of one of the turn's two messages.
func (t *Turn) setMessage(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.UserMessageIDKey:
		return true, setString(&t.User.ID, v)
	case semconv.UserMessageCreatedAtKey:
		return true, setInt(&t.User.CreatedAt, v)
	case semconv.UserMessageMetadataKey:
		return true, setJSON(&t.User.Metadata, v, '{')
	case semconv.UserMessagePartsKey:
		return true, t.User.setParts(v)
	case semconv.AssistantMessageIDKey:
		return true, setString(&t.Assistant.ID, v)
	case semconv.AssistantMessageCreatedAtKey:
		return true, setInt(&t.Assistant.CreatedAt, v)
	case semconv.AssistantMessageMetadataKey:
		return true, setJSON(&t.Assistant.Metadata, v, '{')
	case semconv.AssistantMessagePartsKey:
		return true, t.Assistant.setParts(v)
	}
	return false, nil
}

func (m *Message) setParts(v Value) error {
	damaged, err := setParts(&m.Parts, v)
	m.Damaged += damaged
	return err
}

// setParts reads each part by itself, so one that a limit on attribute length truncated
// does not affect the others. It counts the damaged parts.
func setParts(dst *[]Part, v Value) (damaged int, _ error) {
	encoded, err := v.Strings()
	if err != nil {
		return 0, err
	}
	parts := make([]Part, 0, len(encoded))
	var errs []error
	for i, s := range encoded {
		p, err := ParsePart(s)
		if err != nil {
			damaged++
			errs = append(errs, fmt.Errorf("part %d: %w", i, err))
			if p.ID == "" {
				continue
			}
		}
		parts = append(parts, p)
	}
	*dst = parts
	return damaged, errors.Join(errs...)
}

// Validate implements [SpanData].
func (t *Turn) Validate() error {
	var errs []error
	if t.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if t.Index == nil {
		errs = append(errs, missing(semconv.TurnIndexKey))
	}
	if t.Assistant.ID == "" {
		errs = append(errs, missing(semconv.AssistantMessageIDKey))
	}
	errs = append(errs, oneOf(semconv.TurnEndReasonKey, t.EndReason, semconv.EndFinish, semconv.EndAbort,
		semconv.EndError))
	errs = append(errs, t.Usage.validate()...)
	return errors.Join(errs...)
}
