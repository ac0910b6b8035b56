package spans

import (
	"errors"

	"github.com/agenttrace/agenttrace/semconv"
)

// Exception is the event on the span that a panic ended, as in OpenTelemetry's conventions for exceptions.
type Exception struct {
	// Type is the type of the panic value.
	Type string
	// Message is the text of the panic, Stack the stack of the goroutine.
	Message, Stack string
}

// Kind returns the event's name.
func (e *Exception) Kind() string { return semconv.SpanEventException }

func (e *Exception) visit(c *coder) {
	c.text(semconv.ExceptionTypeKey, &e.Type)
	c.text(semconv.ExceptionMessageKey, &e.Message)
	c.text(semconv.ExceptionStacktraceKey, &e.Stack)
}

// Validate implements [SpanData]. The conventions require a type or a message.
func (e *Exception) Validate() error {
	if e.Type == "" && e.Message == "" {
		return errors.New("exception.type and exception.message are missing")
	}
	return nil
}
