package redactionprocessor

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"

	"github.com/agenttrace/agenttrace/processor/redactionprocessor/internal/metadata"
	"github.com/agenttrace/agenttrace/redact"
)

// NewFactory returns the factory of the processor.
func NewFactory() processor.Factory {
	return processor.NewFactory(
		metadata.Type,
		createDefaultConfig,
		processor.WithTraces(createTraces, metadata.TracesStability),
		processor.WithLogs(createLogs, metadata.LogsStability),
	)
}

func createTraces(ctx context.Context, set processor.Settings, cfg component.Config,
	next consumer.Traces) (processor.Traces, error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, p.traces, p.options()...)
}

func createLogs(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs,
	error) {
	p, err := newRedaction(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewLogs(ctx, set, cfg, next, p.logs, p.options()...)
}

func newRedaction(set processor.Settings, cfg component.Config) (*redaction, error) {
	config := cfg.(*Config)
	r, err := redact.New(config.Redaction)
	if err != nil {
		return nil, err
	}
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &redaction{redactor: r, maxSpanBytes: config.MaxSpanBytes, telemetry: telemetry}, nil
}

func (p *redaction) options() []processorhelper.Option {
	return []processorhelper.Option{
		// What other pipelines share, the collector copies before it comes here.
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		processorhelper.WithShutdown(func(context.Context) error {
			p.telemetry.Shutdown()
			return nil
		}),
	}
}
