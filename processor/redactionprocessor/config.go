// Package redactionprocessor is an OpenTelemetry Collector processor that takes secrets out of spans and log records
// before they go on, by the same rules as the session exporter and the SDK: those of package redact. See the README for
// its options.
package redactionprocessor

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/otel/metric"

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

var componentType = component.MustNewType("agent_redaction")

// mutates has what other pipelines share copied before it comes here.
var mutates = processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true})

// NewFactory returns the factory of the processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(
		componentType,
		createDefaultConfig,
		processor.WithTraces(createTraces, component.StabilityLevelAlpha),
		processor.WithLogs(createLogs, component.StabilityLevelAlpha),
	)
}

func createTraces(ctx context.Context, set processor.Settings, cfg component.Config,
	next consumer.Traces) (processor.Traces, error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, p.traces, mutates)
}

func createLogs(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs,
	error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewLogs(ctx, set, cfg, next, p.logs, mutates)
}

func newRedaction(set processor.Settings, cfg component.Config) (*redaction, error) {
	config := cfg.(*Config)
	r, err := redact.New(config.Redaction)
	if err != nil {
		return nil, err
	}
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/processor/redactionprocessor")
	redacted, err := meter.Int64Counter("otelcol_processor_agent_redaction_values_redacted", metric.WithUnit("{value}"),
		metric.WithDescription("Number of values in which secrets were redacted."))
	truncated, err2 := meter.Int64Counter("otelcol_processor_agent_redaction_values_truncated",
		metric.WithUnit("{value}"), metric.WithDescription("Number of values that were truncated."))
	return &redaction{redactor: r, maxSpanBytes: config.MaxSpanBytes, redacted: redacted, truncated: truncated},
		errors.Join(err, err2)
}
