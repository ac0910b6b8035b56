package spans

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Turn is a session.turn span: from a user message to the finished answer, with any number of model calls. A turn
// that waited for a person and was continued later is two spans with the same index and messages.
type Turn struct {
	SessionID, Agent string
	// Title, ParentID and ParentMessageID are those of the session. They are repeated
	// here because the span of the run arrives last.
	Title, ParentID, ParentMessageID string
	// Index counts the session's turns from 0; nil if not reported.
	Index *int64

	// Model, Temperature and the digests are those of the last model call.
	Model       Model
	Temperature *float64

	// SystemPromptDigest and ToolCatalogDigest are SHA-256 in lower-case hex. The texts
	// are empty if the run has sent them before.
	SystemPromptDigest, SystemPrompt, ToolCatalogDigest, ToolCatalog string

	Usage      Usage
	ModelCalls int64
	// CallsLackUsage reports that the spans of the turn's model calls do not have the usage. The turn's span then has
	// it under the keys of the GenAI conventions, too, for those that add it up over spans. It is not read.
	CallsLackUsage bool

	// StopReason is the one that the provider reported. EndReason is finish, abort or error.
	StopReason, EndReason string
	PendingApproval       bool
	Error, ErrorType      string
	DurationMS            *int64

	// User is the zero Message if the turn continues an earlier one.
	User, Assistant Message
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

// visit has the attributes in order of importance, because a limit on their number drops the last ones: those that make
// up the messages, how the turn ended, its tokens and model, its description, and the repetitions for the GenAI
// conventions. So do those of other spans.
func (t *Turn) visit(c *coder) {
	c.required(semconv.SessionIDKey, &t.SessionID)
	c.number(semconv.TurnIndexKey, &t.Index)
	t.Assistant.visit(c, semconv.AssistantMessageIDKey, semconv.AssistantMessageCreatedAtKey,
		semconv.AssistantMessagePartsKey)
	t.User.visit(c, semconv.UserMessageIDKey, semconv.UserMessageCreatedAtKey, semconv.UserMessagePartsKey)
	c.text(semconv.TurnEndReasonKey, &t.EndReason)
	c.mark(semconv.TurnPendingApprovalKey, &t.PendingApproval)
	c.text(semconv.ErrorKey, &t.Error)
	c.text(semconv.ErrorTypeKey, &t.ErrorType)
	t.Usage.visit(c)
	t.Model.visit(c)
	c.count(semconv.TurnModelCallsKey, &t.ModelCalls)
	c.text(semconv.StopReasonKey, &t.StopReason)
	c.number(semconv.DurationMSKey, &t.DurationMS)
	c.json(semconv.UserMessageMetadataKey, &t.User.Metadata, '{')
	c.json(semconv.AssistantMessageMetadataKey, &t.Assistant.Metadata, '{')
	c.text(semconv.SystemPromptDigestKey, &t.SystemPromptDigest)
	c.text(semconv.SystemPromptTextKey, &t.SystemPrompt)
	c.text(semconv.ToolCatalogDigestKey, &t.ToolCatalogDigest)
	c.text(semconv.ToolCatalogJSONKey, &t.ToolCatalog)
	c.double(semconv.GenAIRequestTemperatureKey, &t.Temperature)
	c.text(semconv.GenAIAgentNameKey, &t.Agent)
	c.text(semconv.SessionTitleKey, &t.Title)
	c.text(semconv.SessionParentIDKey, &t.ParentID)
	c.text(semconv.SessionParentMessageIDKey, &t.ParentMessageID)
	c.copied(semconv.GenAIConversationIDKey, &t.SessionID)
	c.fallback(semconv.SessionIDFloorKey, &t.SessionID)
	if t.Usage.Tokens != nil && !c.decoding {
		c.dst = append(c.dst, semconv.TokensKey.Int64(t.Usage.Tokens.Total()))
	}
	c.finishReasons(&t.StopReason, true)
	if c.decoding || t.CallsLackUsage {
		t.Usage.visitMirror(c)
	}
}

// visit is about the message without its metadata. One without an id has nothing to send.
func (m *Message) visit(c *coder, id, createdAt, parts attribute.Key) {
	if m.ID == "" && !c.decoding {
		return
	}
	c.text(id, &m.ID)
	c.count(createdAt, &m.CreatedAt)
	m.Damaged += c.parts(parts, &m.Parts)
}

// setParts reads each part by itself, so one that a limit on attribute length truncated
// does not affect the others. It counts the damaged parts.
func setParts(dst *[]Part, v Value) (damaged int, _ error) {
	encoded, err := v.strings()
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
	index := "set"
	if t.Index == nil {
		index = ""
	}
	return errors.Join(missing(semconv.SessionIDKey, t.SessionID), missing(semconv.TurnIndexKey, index),
		missing(semconv.AssistantMessageIDKey, t.Assistant.ID),
		oneOf(semconv.TurnEndReasonKey, t.EndReason, semconv.EndFinish, semconv.EndAbort, semconv.EndError),
		t.Usage.validate())
}

// ModelCall is a "chat {model}" span: one model call of a turn. It follows the GenAI conventions for inference spans,
// so any back end can measure and count model calls. Its counts are included in those of its turn, unless it is late.
type ModelCall struct {
	SessionID string
	MessageID string
	// Index counts the turn's model calls from 0; nil if not reported.
	Index *int64

	Model       Model
	Temperature *float64
	// ResponseModel and ResponseID are the provider's, if known.
	ResponseModel, ResponseID string
	StopReason                string
	Usage                     Usage
	// FirstChunk is the time from the request to the first part of a streamed response, in
	// seconds; nil if not reported.
	FirstChunk *float64
	// Late reports that the call is beside its turn and ended after it: its counts are not included in those of the
	// turn.
	Late bool
	// Retries are the attempts that failed before the last one, and what the client waited after each.
	Retries []string
	// Error is the text of an error.
	Error     string
	ErrorType string
	// InputMessages, OutputMessages, SystemInstructions and ToolDefinitions are JSON in the form of the GenAI
	// conventions, for other tools: the turn and the tool calls have the same content.
	InputMessages, OutputMessages, SystemInstructions, ToolDefinitions string
}

// Kind returns "chat".
func (m *ModelCall) Kind() string { return KindModelCall }

func (m *ModelCall) visit(c *coder) {
	c.required(semconv.SessionIDKey, &m.SessionID)
	c.constant(semconv.GenAIOperationNameKey, attribute.StringValue(semconv.OperationChat))
	c.text(semconv.MessageIDKey, &m.MessageID)
	c.number(semconv.StepIndexKey, &m.Index)
	c.flag(semconv.StepLateKey, &m.Late)
	c.strings(semconv.StepRetriesKey, &m.Retries)
	m.Model.visit(c)
	c.text(semconv.ErrorKey, &m.Error)
	c.text(semconv.ErrorTypeKey, &m.ErrorType)
	m.Usage.visit(c)
	c.finishReasons(&m.StopReason, false)
	c.text(semconv.GenAIResponseModelKey, &m.ResponseModel)
	c.text(semconv.GenAIResponseIDKey, &m.ResponseID)
	c.double(semconv.GenAIRequestTemperatureKey, &m.Temperature)
	c.double(semconv.GenAIResponseFirstChunkKey, &m.FirstChunk)
	c.copied(semconv.GenAIConversationIDKey, &m.SessionID)
	m.Usage.visitMirror(c)
	c.text(semconv.GenAIOutputMessagesKey, &m.OutputMessages)
	c.text(semconv.GenAIInputMessagesKey, &m.InputMessages)
	c.text(semconv.GenAISystemInstructionsKey, &m.SystemInstructions)
	c.text(semconv.GenAIToolDefinitionsKey, &m.ToolDefinitions)
}

// Validate implements [SpanData].
func (m *ModelCall) Validate() error {
	return errors.Join(missing(semconv.SessionIDKey, m.SessionID), m.Usage.validate())
}

// Tokens counts tokens in five disjoint buckets.
type Tokens struct {
	Input, Output, Reasoning, CacheRead, CacheWrite int64
}

// Total is the sum of the buckets.
func (t Tokens) Total() int64 {
	return t.Input + t.Output + t.Reasoning + t.CacheRead + t.CacheWrite
}

// Add returns the bucket-wise sum.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{t.Input + o.Input, t.Output + o.Output, t.Reasoning + o.Reasoning, t.CacheRead + o.CacheRead,
		t.CacheWrite + o.CacheWrite}
}

// Disjoint makes the buckets of an inclusive count disjoint: it subtracts cache reads and writes from input, and
// reasoning from output. A count that is less than the ones it should include was exclusive after all, as with some
// providers, and stays. No bucket becomes negative.
func (t Tokens) Disjoint() Tokens {
	t = t.atLeastZero()
	if cached := t.CacheRead + t.CacheWrite; t.Input >= cached {
		t.Input -= cached
	}
	if t.Output >= t.Reasoning {
		t.Output -= t.Reasoning
	}
	return t
}

func (t Tokens) atLeastZero() Tokens {
	return Tokens{max(0, t.Input), max(0, t.Output), max(0, t.Reasoning), max(0, t.CacheRead), max(0, t.CacheWrite)}
}

// Usage is the consumption of a turn or a model call.
type Usage struct {
	// Tokens is nil if the source did not count.
	Tokens *Tokens
	// Basis is how the provider counted: inclusive or exclusive.
	Basis string
	// Raw is the provider's own counts, a JSON object, or nil.
	Raw json.RawMessage
	// CostUSD is nil if no source reported a cost.
	CostUSD *float64
}

// CacheCreationKey is the name of [semconv.GenAIUsageCacheWriteKey] in the last release of the GenAI conventions.
const CacheCreationKey = attribute.Key("gen_ai.usage.cache_creation.input_tokens")

func (u *Usage) visit(c *coder) {
	var t Tokens
	if u.Tokens != nil {
		t = *u.Tokens
	}
	if u.Tokens != nil || c.decoding {
		known := c.known
		c.total(semconv.UsageInputKey, &t.Input)
		c.total(semconv.UsageOutputKey, &t.Output)
		c.total(semconv.UsageReasoningKey, &t.Reasoning)
		c.total(semconv.UsageCacheReadKey, &t.CacheRead)
		c.total(semconv.UsageCacheWriteKey, &t.CacheWrite)
		if c.known && !known && c.err == nil {
			if u.Tokens == nil {
				u.Tokens = new(Tokens)
			}
			if t.atLeastZero() == t {
				*u.Tokens = t
			} else {
				c.err = errors.New("want a count, have a negative number")
			}
		}
	}
	c.text(semconv.UsageBasisKey, &u.Basis)
	c.double(semconv.CostUSDKey, &u.CostUSD)
	c.json(semconv.UsageRawKey, &u.Raw, '{')
}

// visitMirror is about the same counts under the keys of the GenAI conventions. They are not read:
// they have less precision.
func (u *Usage) visitMirror(c *coder) {
	if c.decoding {
		c.ignored(semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey, semconv.GenAIUsageCacheReadKey,
			semconv.GenAIUsageCacheWriteKey, CacheCreationKey, semconv.GenAIUsageReasoningKey,
			semconv.TokensKey)
	} else if t := u.Tokens; t != nil {
		input, output := t.Input+t.CacheRead+t.CacheWrite, t.Output+t.Reasoning
		c.total(semconv.GenAIUsageInputTokensKey, &input)
		c.total(semconv.GenAIUsageOutputTokensKey, &output)
		c.count(semconv.GenAIUsageCacheReadKey, &t.CacheRead)
		c.count(semconv.GenAIUsageCacheWriteKey, &t.CacheWrite)
		c.count(semconv.GenAIUsageReasoningKey, &t.Reasoning)
	}
}

func (u *Usage) validate() error {
	return oneOf(semconv.UsageBasisKey, u.Basis, semconv.BasisInclusive, semconv.BasisExclusive)
}
