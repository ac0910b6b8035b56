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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"zombiezen.com/go/sqlite"

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

// shutdown may be called without start, and more than once. The queue has been
// drained before.
func (e *sessionExporter) shutdown(ctx context.Context) error {
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
	e.sink.telemetry.writeDuration.Record(ctx, time.Since(begin).Seconds())
	switch {
	case err == nil:
		e.sink.awaySince.Store(0)
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
		return e.sink.away(begin, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
		// The sender went away, the attempt took too long, or the collector is
		// stopping: none is the fault of the data.
		return err
	default:
		return consumererror.NewPermanent(fmt.Errorf("store request: %w", err))
	}
}

// How long requests wait for a store that is away, with a full disk or a file that was moved, or, longer, for one that
// another program is writing to, which is done in a moment unless that was stopped. A sender that waits in vain gives
// up by itself, and holds its connection and its memory until then.
const (
	patience       = 1500 * time.Millisecond
	lockedPatience = 11 * time.Second
)

// away returns the error of a request that began at begin and that the store did not take. At first the exporter's
// retries heed it. When the store has been away for longer, it ends them and has the sender try again: the receiver
// answers with UNAVAILABLE, or 503. A sender that was answered when the request was queued does not wait: then the
// exporter alone can try again.
func (s *sink) away(begin time.Time, err error) error {
	if q := s.config.QueueConfig.Get(); q != nil && !q.WaitForResult {
		return err
	}
	limit := patience
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		limit = lockedPatience
	}
	s.awaySince.CompareAndSwap(0, begin.UnixNano())
	if time.Since(time.Unix(0, s.awaySince.Load())) < limit {
		return err
	}
	return consumererror.NewPermanent(status.Error(codes.Unavailable, fmt.Sprintf("%v; send it again later", err)))
}
