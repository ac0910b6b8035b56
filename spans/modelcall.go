package spans

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// ModelCall is a "chat {model}" span: one model call of a turn. It follows the GenAI
// conventions for inference spans, so any back end can measure and count model calls. Its
// counts are included in those of its turn.
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
	// Error is the text of an error.
	Error     string
	ErrorType string
}

// Kind returns "chat".
func (m *ModelCall) Kind() string { return KindModelCall }

// Append implements [SpanData]. The most important attributes come first, as in a [Turn].
func (m *ModelCall) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	return m.Usage.appendMirror(modelCallTable.append(m, dst))
}

// Set implements [SpanData].
func (m *ModelCall) Set(key string, val Value) (known bool, err error) {
	return modelCallTable.set(m, key, val)
}

// Validate implements [SpanData].
func (m *ModelCall) Validate() error { return modelCallTable.validate(m) }

var modelCallTable = newTable(func(t *builder, m *ModelCall) {
	t.session(&m.SessionID)
	t.constant(semconv.GenAIOperationNameKey.String(semconv.OperationChat))
	t.add(semconv.MessageIDKey, &m.MessageID)
	t.add(semconv.StepIndexKey, &m.Index)
	t.model(&m.Model, required)
	t.add(semconv.ErrorKey, &m.Error)
	t.add(semconv.ErrorTypeKey, &m.ErrorType)
	t.usage(&m.Usage)
	t.finishReason(&m.StopReason)
	t.add(semconv.GenAIResponseModelKey, &m.ResponseModel)
	t.add(semconv.GenAIResponseIDKey, &m.ResponseID)
	t.add(semconv.GenAIRequestTemperatureKey, &m.Temperature)
	t.add(semconv.GenAIConversationIDKey, &m.SessionID, alias, always)
})
