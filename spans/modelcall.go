package spans

import (
	"errors"

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
	dst = append(dst,
		semconv.SessionIDKey.String(m.SessionID),
		semconv.GenAIOperationNameKey.String(semconv.OperationChat))
	dst = appendString(dst, semconv.MessageIDKey, m.MessageID)
	if m.Index != nil {
		dst = append(dst, semconv.StepIndexKey.Int64(*m.Index))
	}
	dst = m.Model.append(dst)
	dst = appendString(dst, semconv.ErrorKey, m.Error)
	dst = appendString(dst, semconv.ErrorTypeKey, m.ErrorType)
	dst = m.Usage.append(dst)
	if m.StopReason != "" {
		dst = append(dst, semconv.GenAIResponseFinishReasonsKey.StringSlice([]string{m.StopReason}))
	}
	dst = appendString(dst, semconv.GenAIResponseModelKey, m.ResponseModel)
	dst = appendString(dst, semconv.GenAIResponseIDKey, m.ResponseID)
	if m.Temperature != nil {
		dst = append(dst, semconv.GenAIRequestTemperatureKey.Float64(*m.Temperature))
	}
	dst = append(dst, semconv.GenAIConversationIDKey.String(m.SessionID))
	return m.Usage.appendMirror(dst)
}

// Set implements [SpanData].
func (m *ModelCall) Set(key string, v Value) (known bool, err error) {
	switch attribute.Key(key) {
	case semconv.SessionIDKey:
		return true, setString(&m.SessionID, v)
	case semconv.GenAIConversationIDKey:
		return true, setStringIfUnset(&m.SessionID, v)
	case semconv.GenAIOperationNameKey:
		return true, nil
	case semconv.MessageIDKey:
		return true, setString(&m.MessageID, v)
	case semconv.StepIndexKey:
		return true, setIntPtr(&m.Index, v)
	case semconv.GenAIRequestTemperatureKey:
		return true, setDoublePtr(&m.Temperature, v)
	case semconv.GenAIResponseModelKey:
		return true, setString(&m.ResponseModel, v)
	case semconv.GenAIResponseIDKey:
		return true, setString(&m.ResponseID, v)
	case semconv.GenAIResponseFinishReasonsKey:
		reasons, err := v.Strings()
		if err == nil && len(reasons) > 0 {
			m.StopReason = reasons[len(reasons)-1]
		}
		return true, err
	case semconv.ErrorKey:
		return true, setString(&m.Error, v)
	case semconv.ErrorTypeKey:
		return true, setString(&m.ErrorType, v)
	}
	if known, err := m.Usage.set(key, v); known {
		return true, err
	}
	return m.Model.set(key, v)
}

// Validate implements [SpanData].
func (m *ModelCall) Validate() error {
	var errs []error
	if m.SessionID == "" {
		errs = append(errs, missing(semconv.SessionIDKey))
	}
	if m.Model.ModelID == "" {
		errs = append(errs, missing(semconv.GenAIRequestModelKey))
	}
	return errors.Join(append(errs, m.Usage.validate()...)...)
}
