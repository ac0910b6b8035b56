package sessionexporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest"
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

// sessionExporter is the exporter of one signal.
type sessionExporter struct {
	sink    *sink
	host    component.Host
	started atomic.Bool
	// failing reports that the last status reported was an error.
	failing atomic.Bool
}

func (e *sessionExporter) start(ctx context.Context, host component.Host) error {
	e.host = host
	err := e.sink.start(ctx, host)
	e.started.Store(err == nil)
	return err
}

// shutdown may be called without start, and more than once. The queue has been drained before.
func (e *sessionExporter) shutdown(ctx context.Context) error {
	if !e.started.Swap(false) {
		return nil
	}
	return e.sink.stop(ctx)
}

func (e *sessionExporter) pushTraces(ctx context.Context, td ptrace.Traces) error {
	begin := time.Now()
	r, err := e.sink.ingester.Traces(ctx, td)
	e.sink.telemetry.count(ctx, "spans_received", int64(td.SpanCount()))
	return e.pushed(ctx, begin, r, err)
}

func (e *sessionExporter) pushLogs(ctx context.Context, ld plog.Logs) error {
	begin := time.Now()
	r, err := e.sink.ingester.Logs(ctx, ld)
	e.sink.telemetry.count(ctx, "log_records_received", int64(ld.LogRecordCount()))
	return e.pushed(ctx, begin, r, err)
}

// pushed counts what a request did, reports the status, and sorts its error:
// what may pass is returned as it is and tried again, what will not is permanent.
func (e *sessionExporter) pushed(ctx context.Context, begin time.Time, r ingest.Report, err error) error {
	e.sink.telemetry.writeDuration.Record(ctx, time.Since(begin).Seconds())
	switch {
	case err == nil:
		e.sink.unknown.add(r.Unrecognized)
		e.sink.telemetry.add(ctx, &r)
		if e.failing.Load() && e.failing.Swap(false) {
			componentstatus.ReportStatus(e.host, componentstatus.NewEvent(componentstatus.StatusOK))
		}
		if r.Rows > 0 {
			e.sink.files.Wake()
		}
		return nil
	case errors.Is(err, store.ErrUnavailable):
		if !e.failing.Swap(true) {
			componentstatus.ReportStatus(e.host, componentstatus.NewRecoverableErrorEvent(err))
		}
		return err // the receiver has the sender try again when the exporter gives up
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
		// The sender went away, the attempt took too long, or the collector is stopping: none is the fault of the data.
		return err
	default:
		return consumererror.NewPermanent(fmt.Errorf("store request: %w", err))
	}
}
