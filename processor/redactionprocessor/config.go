package redactionprocessor

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/agenttrace/agenttrace/redact"
)

// Config configures the processor. Its zero value redacts by the default keys and by every pattern, and cuts nothing.
type Config struct {
	// Redaction holds the processor's keys. Its Omit must be empty.
	Redaction redact.Config `mapstructure:",squash"`

	// MaxSpanBytes bounds a span as a whole, by its size in OTLP: its longest values are cut so that it is no larger. 0
	// means no bound, otherwise it is 64 KiB or more.
	MaxSpanBytes int `mapstructure:"max_span_bytes"`
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// minSpanBytes is more than what is in a span besides texts.
const minSpanBytes = 64 << 10

func createDefaultConfig() component.Config { return &Config{} }

// Validate implements [confmap.Validator].
func (c *Config) Validate() error {
	var errs []error
	if (c.Redaction.Omit != redact.Omit{}) {
		errs = append(errs, errors.New("omit is set: what kind of content an attribute holds is not known here; "+
			"omit it in the SDK or in the session exporter"))
	}
	if c.MaxSpanBytes != 0 && c.MaxSpanBytes < minSpanBytes {
		errs = append(errs, fmt.Errorf("max_span_bytes is %d: use 0 for no limit, or %d or more", c.MaxSpanBytes,
			minSpanBytes))
	}
	if _, err := redact.New(c.Redaction); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
