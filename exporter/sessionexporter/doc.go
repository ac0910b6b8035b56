// Package sessionexporter is an OpenTelemetry Collector exporter that turns traces and logs of agents into sessions in
// a SQLite file. See the README for its options and guarantees.
//
// The exporter only connects the collector to what knows sessions: package
// ingest reads telemetry, package sqlite keeps the rows.
package sessionexporter
