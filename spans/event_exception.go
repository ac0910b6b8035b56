package spans

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agenttrace/agenttrace/semconv"
)

// Exception is the event on the span that a panic ended, as in OpenTelemetry's
// conventions for exceptions.
type Exception struct {
	// Type is the type of the panic value.
	Type string
	// Message is the text of the panic, Stack the stack of the goroutine.
	Message, Stack string
}

var _ SpanData = (*Exception)(nil)

// Kind returns the event's name.
func (e *Exception) Kind() string { return semconv.SpanEventException }

// Append implements [SpanData].
func (e *Exception) Append(dst []attribute.KeyValue) []attribute.KeyValue {
	return exceptionTable.append(e, dst)
}

// Set implements [SpanData].
func (e *Exception) Set(key string, val Value) (known bool, err error) {
	return exceptionTable.set(e, key, val)
}

// Validate implements [SpanData].
func (e *Exception) Validate() error {
	var none error
	if e.Type == "" && e.Message == "" { // the conventions require one of them
		none = errors.New("exception.type and exception.message are missing")
	}
	return exceptionTable.validate(e, none)
}

var exceptionTable = newTable(func(t *builder, e *Exception) {
	t.add(semconv.ExceptionTypeKey, &e.Type)
	t.add(semconv.ExceptionMessageKey, &e.Message)
	t.add(semconv.ExceptionStacktraceKey, &e.Stack)
})
