// Package sdkdata converts spans and log records of the OpenTelemetry SDK to pdata, and
// back.
//
// [Traces] and [Logs] return what an OTLP exporter would send and a receiver would
// decode, without an encoding in between. [Spans] and [Records] convert stored pdata back
// to spans and records for any exporter of the SDK.
package sdkdata
