package sessionexporter

import (
	"context"
	_ "embed" // of the counters
	"errors"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/metric"

	"github.com/agenttrace/agenttrace/session/ingest"
)

// counters has a line for each counter: its name, its unit and what it counts.
//
//go:embed metrics.txt
var counters string

// metrics are what the exporter reports of itself. The README lists them.
type metrics struct {
	counters      map[string]metric.Int64Counter
	writeDuration metric.Float64Histogram
}

func newMetrics(set component.TelemetrySettings) (*metrics, error) {
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/exporter/sessionexporter")
	m := metrics{counters: make(map[string]metric.Int64Counter)}
	var err error
	m.writeDuration, err = meter.Float64Histogram("otelcol_exporter_session_write_duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the arrival of a request to the commit of its rows, or to the store's error."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10))
	errs := []error{err}
	for line := range strings.Lines(counters) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit, description, _ := strings.Cut(text, " ")
		m.counters[name], err = meter.Int64Counter("otelcol_exporter_session_"+name, metric.WithUnit(unit),
			metric.WithDescription(description))
		errs = append(errs, err)
	}
	return &m, errors.Join(errs...)
}

// count adds to the counter of a name.
func (m *metrics) count(ctx context.Context, name string, n int64) { m.counters[name].Add(ctx, n) }

// add counts what a request did.
func (m *metrics) add(ctx context.Context, r *ingest.Report) {
	m.count(ctx, "items_accepted", int64(r.Accepted))
	m.count(ctx, "items_ignored", int64(r.Ignored))
	m.count(ctx, "items_malformed", int64(r.Malformed))
	m.count(ctx, "values_omitted", int64(r.Omitted))
	m.count(ctx, "values_redacted", int64(r.Redacted))
	m.count(ctx, "values_truncated", int64(r.Truncated))
	m.count(ctx, "rows_written", r.Rows)
	m.count(ctx, "rows_refused", r.Refused)
}
