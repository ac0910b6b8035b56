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
	release func()

	host    component.Host
	started atomic.Bool
	// failing reports that the last status reported was an error.
	failing atomic.Bool
}

func (e *sessionExporter) start(ctx context.Context, host component.Host) error {
	e.host = host
	if err := e.sink.start(ctx, host); err != nil {
		return err
	}
	e.started.Store(true)
	return nil
}

// shutdown may be called without start, and more than once. The queue has been
// drained before.
func (e *sessionExporter) shutdown(ctx context.Context) error {
	defer e.release()
	if !e.started.Swap(false) {
		return nil
	}
	return e.sink.stop(ctx)
}

func (e *sessionExporter) pushTraces(ctx context.Context, td ptrace.Traces) error {
	begin := time.Now()
	r, err := e.sink.ingester.Traces(ctx, td)
	e.sink.telemetry.spansReceived.Add(ctx, int64(td.SpanCount()))
	return e.pushed(ctx, begin, r, err)
}

func (e *sessionExporter) pushLogs(ctx context.Context, ld plog.Logs) error {
	begin := time.Now()
	r, err := e.sink.ingester.Logs(ctx, ld)
	e.sink.telemetry.logRecordsReceived.Add(ctx, int64(ld.LogRecordCount()))
	return e.pushed(ctx, begin, r, err)
}

// pushed counts what a request did, reports the status, and sorts its error:
// what may pass is returned as it is and tried again, what will not is permanent.
func (e *sessionExporter) pushed(ctx context.Context, begin time.Time, r ingest.Report, err error) error {
	t := e.sink.telemetry
	t.writeDuration.Record(ctx, time.Since(begin).Seconds())
	switch {
	case err == nil:
		e.sink.away.end()
		e.sink.scopes.seen(r.Unrecognized)
		t.itemsAccepted.Add(ctx, int64(r.Accepted))
		t.itemsIgnored.Add(ctx, int64(r.Ignored))
		t.itemsMalformed.Add(ctx, int64(r.Malformed))
		t.valuesOmitted.Add(ctx, int64(r.Omitted))
		t.valuesRedacted.Add(ctx, int64(r.Redacted))
		t.valuesTruncated.Add(ctx, int64(r.Truncated))
		t.rowsWritten.Add(ctx, r.Rows)
		t.rowsRefused.Add(ctx, r.Refused)
		if e.failing.Load() && e.failing.Swap(false) {
			componentstatus.ReportStatus(e.host, componentstatus.NewEvent(componentstatus.StatusOK))
		}
		if r.Rows > 0 {
			e.sink.changed()
		}
		return nil
	case errors.Is(err, store.ErrUnavailable):
		if !e.failing.Swap(true) {
			componentstatus.ReportStatus(e.host, componentstatus.NewRecoverableErrorEvent(err))
		}
		return e.sink.away.answer(e.sink.config, begin, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
		// The sender went away, the attempt took too long, or the collector is
		// stopping: none is the fault of the data.
		return err
	default:
		return consumererror.NewPermanent(fmt.Errorf("store request: %w", err))
	}
}
