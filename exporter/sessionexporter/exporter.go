package sessionexporter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
)

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
