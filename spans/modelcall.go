package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

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
