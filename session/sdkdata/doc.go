// Package sdkdata converts what the OpenTelemetry SDK hands to exporters into
// pdata, and back.
//
// [Traces] and [Logs] give what an OTLP exporter would send and a receiver
// would decode, without encoding anything in between. [Spans] and [Records] give
// spans and records that any exporter of the SDK takes, from what was kept.
package sdkdata
