package redactionprocessor

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/otel/metric"

	"github.com/agenttrace/agenttrace/redact"
)

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
