package sessionexporter

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

var componentType = component.MustNewType("session")

// NewFactory returns the factory of the exporter, and of the connector.
func NewFactory() Factory {
	return newFactory(stores.Open)
}

type openFunc func(ctx context.Context, location string, o stores.Options) (store.Store, error)

func newFactory(open openFunc) Factory {
	f := &factory{open: open, sinks: make(map[*Config]*sink)}
	return Factory{
		exporter.NewFactory(componentType, createDefaultConfig,
			exporter.WithTraces(f.createTraces, component.StabilityLevelAlpha),
			exporter.WithLogs(f.createLogs, component.StabilityLevelAlpha)),
		connector.NewFactory(componentType, createDefaultConfig,
			connector.WithTracesToTraces(f.connectTraces, component.StabilityLevelAlpha),
			connector.WithLogsToTraces(f.connectLogs, component.StabilityLevelAlpha)),
	}
}

// factory makes the exporters of one component share its store. A store has
// one writer, and the component's traces and logs belong into the same one.
type factory struct {
	open openFunc

	mu    sync.Mutex // guards sinks
	sinks map[*Config]*sink
}

// exporterOf returns an exporter of one signal on the sink that all with its configuration share, and its options.
func (f *factory) exporterOf(config component.Config, set exporter.Settings) (*sessionExporter,
	[]exporterhelper.Option, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := config.(*Config)
	if c.next == nil && c.Spans != defaultSpans {
		return nil, nil, errors.New("spans is set, and an exporter sends none: configure session below connectors, and " +
			"name it as the receiver of a traces pipeline, or remove the spans block")
	}
	s := f.sinks[c]
	if s == nil {
		telemetry, err := newMetrics(set.TelemetrySettings)
		if err != nil {
			return nil, nil, err
		}
		s = &sink{config: c, open: f.open, logger: set.Logger, telemetry: telemetry,
			settings: set.TelemetrySettings, closed: func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.sinks, c)
			}}
		f.sinks[c] = s
	}
	e := &sessionExporter{sink: s}
	return e, []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithTimeout(c.TimeoutConfig),
		exporterhelper.WithRetry(c.RetryConfig),
		exporterhelper.WithQueue(c.QueueConfig),
		exporterhelper.WithStart(e.start),
		exporterhelper.WithShutdown(e.shutdown),
	}, nil
}

func (f *factory) createTraces(ctx context.Context, set exporter.Settings,
	config component.Config) (exporter.Traces, error) {
	e, options, err := f.exporterOf(config, set)
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewTraces(ctx, set, config, e.pushTraces, options...)
}

func (f *factory) createLogs(ctx context.Context, set exporter.Settings,
	config component.Config) (exporter.Logs, error) {
	e, options, err := f.exporterOf(config, set)
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewLogs(ctx, set, config, e.pushLogs, options...)
}
