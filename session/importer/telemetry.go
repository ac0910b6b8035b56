package importer

import (
	"cmp"
	"context"
	"errors"
	"io"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
)

func (im *Importer) telemetry(ctx context.Context, r io.Reader, t *Tally) error {
	b := batch{im: im, t: t, traces: ptrace.NewTraces(), logs: plog.NewLogs()}
	var failed error
	for body, err := range otlpfile.Read(r, otlpfile.Options{Budget: im.options.Budget}) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if damaged, ok := errors.AsType[*otlpfile.DamagedError](err); ok {
			im.damaged(t, damaged)
			continue
		}
		if err != nil {
			failed = err
			break
		}
		if body.Skipped != "" {
			t.Skipped++
		}
		if err := b.add(ctx, body); err != nil {
			return err
		}
	}
	return cmp.Or(b.deliver(ctx), failed)
}

// batch collects small bodies, because each delivery is a transaction.
type batch struct {
	im     *Importer
	t      *Tally
	traces ptrace.Traces
	logs   plog.Logs
	from   int64
}

const (
	batchItems = 2000
	batchBytes = 8 << 20
)

// add takes the content of the body, and delivers the batch if it is large enough.
func (b *batch) add(ctx context.Context, body otlpfile.Body) error {
	body.Traces.ResourceSpans().MoveAndAppendTo(b.traces.ResourceSpans())
	body.Logs.ResourceLogs().MoveAndAppendTo(b.logs.ResourceLogs())
	if b.traces.SpanCount()+b.logs.LogRecordCount() < batchItems && body.Offset-b.from < batchBytes {
		return nil
	}
	b.from = body.Offset
	return b.deliver(ctx)
}

func (b *batch) deliver(ctx context.Context) error {
	if b.traces.SpanCount()+b.logs.LogRecordCount() == 0 {
		return nil
	}
	if err := cmp.Or(b.im.flush(ctx), b.im.open(ctx)); err != nil {
		return err
	}
	spans, err := b.im.ingester.Traces(ctx, b.traces)
	if err == nil {
		b.im.ingested(b.t, spans)
		var records ingest.Report
		records, err = b.im.ingester.Logs(ctx, b.logs)
		b.im.ingested(b.t, records)
	}
	if err != nil {
		return storeError{err}
	}
	b.traces, b.logs = ptrace.NewTraces(), plog.NewLogs()
	return nil
}

// ingested counts the result of a delivery, and names the first spans and records of a file that are malformed.
func (im *Importer) ingested(t *Tally, r ingest.Report) {
	before := t.Malformed
	t.add(r)
	for _, problem := range r.Problems[:min(len(r.Problems), maxNamed-len(t.Problems))] {
		t.Problems = append(t.Problems, problem)
		im.warnf("%s: malformed %s", t.File, problem)
	}
	if t.Malformed > maxNamed && before <= maxNamed {
		im.warnf("%s: more that is malformed is only counted", t.File)
	}
}
