package spans

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// SpanData is one decoded span.
type SpanData interface {
	// Kind is the span's name, or "chat" for a model call.
	Kind() string
	// Append appends the attributes to dst and returns it. Unset fields append nothing.
	Append(dst []attribute.KeyValue) []attribute.KeyValue
	// Set decodes one attribute. known is false if the record does not use the key. An
	// error reports a value that does not fit; the field stays unset.
	Set(key string, v Value) (known bool, err error)
	// Validate returns the joined errors about missing or contradictory values, or nil.
	Validate() error
}

var (
	_ SpanData = (*Run)(nil)
	_ SpanData = (*Turn)(nil)
	_ SpanData = (*ToolCall)(nil)
	_ SpanData = (*Compaction)(nil)
	_ SpanData = (*Permission)(nil)
	_ SpanData = (*ModelCall)(nil)
)

// KindModelCall is the Kind of a [ModelCall], whose span is named "chat {model}".
const KindModelCall = semconv.OperationChat

// New returns an empty record for a span name, or nil if the name is none of the five. A
// model call cannot be recognized by its name; use [ModelCall].
func New(spanName string) SpanData {
	switch spanName {
	case semconv.SpanSessionRun:
		return new(Run)
	case semconv.SpanSessionTurn:
		return new(Turn)
	case semconv.SpanToolCall:
		return new(ToolCall)
	case semconv.SpanCompactionRun:
		return new(Compaction)
	case semconv.SpanPermissionEvaluate:
		return new(Permission)
	}
	return nil
}

// Decode sets every attribute on r and returns the joined errors of those that do not
// fit.
func Decode(r SpanData, attrs []attribute.KeyValue) error {
	var errs []error
	for _, kv := range attrs {
		if _, err := r.Set(string(kv.Key), AttributeValue(kv.Value)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kv.Key, err))
		}
	}
	return errors.Join(errs...)
}

// Model identifies a model.
type Model struct {
	ProviderID, ModelID, Variant string
}

func (b *builder) model(m *Model, ofID ...flags) {
	b.add(semconv.GenAIProviderNameKey, &m.ProviderID)
	b.add(semconv.GenAIRequestModelKey, &m.ModelID, ofID...)
	b.add(semconv.ModelVariantKey, &m.Variant)
}

func (b *builder) finishReason(stop *string) {
	b.add(semconv.GenAIResponseFinishReasonsKey, stop)
	b.last().kind = textAsList
}
