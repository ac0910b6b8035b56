package redactionprocessor

import (
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/agenttrace/agenttrace/redact"
)

// Config configures the processor. Its zero value redacts by the default keys and by
// every pattern, and cuts nothing.
type Config struct {
	// Redaction holds the processor's keys. Its Omit must be empty.
	Redaction redact.Config `mapstructure:",squash"`

	_ struct{} // no unkeyed literals
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

func createDefaultConfig() component.Config { return &Config{} }

// Validate implements [confmap.Validator].
func (c *Config) Validate() error {
	var errs []error
	if (c.Redaction.Omit != redact.Omit{}) {
		errs = append(errs, errors.New("omit is set: what kind of content an attribute holds is not known here; omit it in the SDK or in the session exporter"))
	}
	if _, err := redact.New(c.Redaction); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
