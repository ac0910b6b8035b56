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
	dst = turnTable.append(t, dst)
	if t.Usage.Tokens != nil {
		dst = append(dst, semconv.TokensKey.Int64(t.Usage.Tokens.Total()))
	}
	if t.StopReason != "" {
		dst = append(dst, semconv.GenAIResponseFinishReasonsKey.StringSlice([]string{t.StopReason}))
	}
	return t.Usage.appendMirror(dst)
}

// Set implements [SpanData].
func (t *Turn) Set(key string, val Value) (known bool, err error) { return turnTable.set(t, key, val) }

// Validate implements [SpanData].
func (t *Turn) Validate() error { return turnTable.validate(t) }

var turnTable = newTable(func(t *builder, r *Turn) {
	t.session(&r.SessionID, semconv.SessionIDFloorKey)
	t.add(semconv.TurnIndexKey, &r.Index, required)
	t.message(&r.Assistant, semconv.AssistantMessageIDKey, semconv.AssistantMessageCreatedAtKey,
		semconv.AssistantMessagePartsKey, required)
	t.message(&r.User, semconv.UserMessageIDKey, semconv.UserMessageCreatedAtKey, semconv.UserMessagePartsKey)
	t.add(semconv.TurnEndReasonKey, &r.EndReason, enum)
	t.add(semconv.TurnPendingApprovalKey, &r.PendingApproval)
	t.add(semconv.ErrorKey, &r.Error)
	t.add(semconv.ErrorTypeKey, &r.ErrorType)
	t.usage(&r.Usage)
	t.model(&r.Model)
	t.add(semconv.TurnModelCallsKey, &r.ModelCalls)
	t.add(semconv.StopReasonKey, &r.StopReason)
	t.add(semconv.DurationMSKey, &r.DurationMS)
	t.add(semconv.UserMessageMetadataKey, &r.User.Metadata)
	t.add(semconv.AssistantMessageMetadataKey, &r.Assistant.Metadata)
	t.add(semconv.SystemPromptDigestKey, &r.SystemPromptDigest)
	t.add(semconv.SystemPromptTextKey, &r.SystemPrompt)
	t.add(semconv.ToolCatalogDigestKey, &r.ToolCatalogDigest)
	t.add(semconv.ToolCatalogJSONKey, &r.ToolCatalog)
	t.add(semconv.GenAIRequestTemperatureKey, &r.Temperature)
	t.add(semconv.GenAIAgentNameKey, &r.Agent)
	t.add(semconv.SessionTitleKey, &r.Title)
	t.add(semconv.SessionParentIDKey, &r.ParentID)
	t.add(semconv.SessionParentMessageIDKey, &r.ParentMessageID)
	t.add(semconv.GenAIConversationIDKey, &r.SessionID, alias, always)
	t.finishReason(&r.StopReason)
	t.last().flags = readOnly // Append encodes it after the number of tokens
})

// message adds the attributes of a message, except for its metadata.
func (b *builder) message(m *Message, id, createdAt, parts attribute.Key, ofID ...flags) {
	b.add(id, &m.ID, ofID...)
	within := b.last().offset
	b.add(createdAt, &m.CreatedAt)
	b.last().within = within
	b.add(parts, &m.Parts)
	b.last().within, b.last().damaged = within, b.offset(&m.Damaged)
}

// encodeParts encodes each part by itself.
func encodeParts(parts []Part) []string {
	encoded := make([]string, len(parts))
	for i := range parts {
		encoded[i] = parts[i].encoded()
	}
	return encoded
}

// parseParts reads each part by itself, so one that a limit on attribute length truncated
// does not affect the others. It counts the damaged parts.
func parseParts(encoded []string) (parts []Part, damaged int, _ error) {
	parts = make([]Part, 0, len(encoded))
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
	return parts, damaged, errors.Join(errs...)
}
