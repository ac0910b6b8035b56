// Package otlpbatch bounds by bytes what the OpenTelemetry SDK sends at once.
//
// The SDK's batch processors count spans and log records, and those of agents are
// large: 80 tool results of 1 MiB make one request of 80 MiB. Receivers bound
// requests by bytes, to 4 MiB unless configured otherwise, and refuse for good what
// is larger, with everything in it. An exporter of this package sends a batch as
// several requests:
//
//	traces, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure())
//	if err != nil {
//		return err
//	}
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(otlpbatch.Spans(traces)))
//
// A span or record that is larger by itself is sent alone, whole. If it is refused,
// it is sent once more with its longest values cut, and [otel.Handle] is told: the
// rest of the session does not depend on it.
//
// Package spool bounds its requests likewise.
package otlpbatch
