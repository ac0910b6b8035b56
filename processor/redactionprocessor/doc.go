// Package redactionprocessor is an OpenTelemetry Collector processor that takes secrets out of spans and log records
// before they go on, by the same rules as the session exporter and the SDK: those of package redact. See the README for
// its options.
package redactionprocessor
