package sessionexporter

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/metric"

	"github.com/agenttrace/agenttrace/session/ingest"
)

// metrics are what the exporter reports of itself. The README lists them.
type metrics struct {
	itemsAccepted, itemsIgnored, itemsMalformed, jsonlFailures,
	jsonlFiles, logRecordsReceived, retentionDeleted, retentionFailures,
	rowsRefused, rowsWritten, spansReceived, valuesOmitted,
	valuesRedacted, valuesTruncated metric.Int64Counter
	writeDuration metric.Float64Histogram
}

func newMetrics(set component.TelemetrySettings) (*metrics, error) {
	meter := set.MeterProvider.Meter("github.com/agenttrace/agenttrace/exporter/sessionexporter")
	var m metrics
	var err error
	m.writeDuration, err = meter.Float64Histogram("otelcol_exporter_session_write_duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the arrival of a request to the commit of its rows, or to the store's error."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10))
	errs := []error{err}
	for _, c := range []struct {
		counter                 *metric.Int64Counter
		name, unit, description string
	}{
		{&m.itemsAccepted, "items_accepted", "{item}",
			"Number of spans and log records that reported something about a session and were stored."},
		{&m.itemsIgnored, "items_ignored", "{item}",
			"Number of spans and log records that reported nothing about a session."},
		{&m.itemsMalformed, "items_malformed", "{item}",
			"Number of spans and log records with a problem. They are stored, and the problem is listed in their rows."},
		{&m.jsonlFailures, "jsonl_failures", "{file}",
			"Number of failed writes of a JSONL file. They are retried."},
		{&m.jsonlFiles, "jsonl_files", "{file}", "Number of JSONL files written or replaced."},
		{&m.logRecordsReceived, "log_records_received", "{record}",
			"Number of log records handed to the store, counted again when a request is retried."},
		{&m.retentionDeleted, "retention_deleted", "{session}",
			"Number of sessions that were deleted because the configured retention does not keep them."},
		{&m.retentionFailures, "retention_failures", "{failure}",
			"Number of times that the configured retention could not be applied. It is tried again."},
		{&m.rowsRefused, "rows_refused", "{row}",
			"Number of changes that the store refused. The rest of their request is stored."},
		{&m.rowsWritten, "rows_written", "{row}", "Number of rows inserted or changed."},
		{&m.spansReceived, "spans_received", "{span}",
			"Number of spans handed to the store, counted again when a request is retried."},
		{&m.valuesOmitted, "values_omitted", "{value}",
			"Number of values replaced by a marker, because the configuration omits their kind."},
		{&m.valuesRedacted, "values_redacted", "{value}", "Number of values in which secrets were redacted."},
		{&m.valuesTruncated, "values_truncated", "{value}", "Number of values that were truncated."},
	} {
		*c.counter, err = meter.Int64Counter("otelcol_exporter_session_"+c.name, metric.WithUnit(c.unit),
			metric.WithDescription(c.description))
		errs = append(errs, err)
	}
	return &m, errors.Join(errs...)
}

// add counts what a request did.
func (m *metrics) add(ctx context.Context, r *ingest.Report) {
	m.itemsAccepted.Add(ctx, int64(r.Accepted))
	m.itemsIgnored.Add(ctx, int64(r.Ignored))
	m.itemsMalformed.Add(ctx, int64(r.Malformed))
	m.valuesOmitted.Add(ctx, int64(r.Omitted))
	m.valuesRedacted.Add(ctx, int64(r.Redacted))
	m.valuesTruncated.Add(ctx, int64(r.Truncated))
	m.rowsWritten.Add(ctx, r.Rows)
	m.rowsRefused.Add(ctx, r.Refused)
}
