package spans

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// SpanData is one decoded span.
type SpanData interface {
	// Kind is the span's name, or "chat" for a model call.
	Kind() string
	// visit goes over the attributes, the most important ones first.
	visit(c *coder)
	// Validate returns the joined errors about missing or contradictory values, or nil.
	Validate() error
}

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

// Decode sets every attribute on r and returns the joined errors of those that do not fit.
func Decode(r SpanData, attrs []attribute.KeyValue) error {
	var errs []error
	for _, kv := range attrs {
		if _, err := Set(r, string(kv.Key), AttributeValue(kv.Value)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kv.Key, err))
		}
	}
	return errors.Join(errs...)
}

// Model identifies a model.
type Model struct {
	ProviderID, ModelID, Variant string
}

func (m *Model) visit(c *coder) {
	c.text(semconv.GenAIProviderNameKey, &m.ProviderID)
	c.text(semconv.GenAIRequestModelKey, &m.ModelID)
	c.text(semconv.ModelVariantKey, &m.Variant)
}

// setJSON stores JSON text whose first character is open ('{', '[' or, for any value, 0).
// It reports other text and does not store it.
func setJSON(dst *json.RawMessage, v Value, open byte) error {
	if v.Type() != attribute.STRING {
		return v.wrongType("JSON string")
	}
	raw := json.RawMessage(v.AsString())
	if !json.Valid(raw) {
		return errors.New("invalid JSON")
	}
	if first := bytes.TrimLeft(raw, " \t\r\n")[0]; open != 0 && first != open {
		return fmt.Errorf("want JSON that begins with %q, have %q", open, first)
	}
	*dst = raw
	return nil
}

// missing reports a value that is empty.
func missing(key attribute.Key, have string) error {
	if have != "" {
		return nil
	}
	return fmt.Errorf("%s is missing", key)
}

// oneOf reports a value that is neither empty nor in the list.
func oneOf(key attribute.Key, have string, allowed ...string) error {
	if have == "" || slices.Contains(allowed, have) {
		return nil
	}
	return fmt.Errorf("%s: invalid value %q", key, have)
}
