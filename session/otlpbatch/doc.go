// Package otlpbatch limits the requests of the OpenTelemetry SDK by bytes.
//
// The SDK's batch processors count spans and log records, and those of agents are large:
// 80 tool results of 1 MiB make one request of 80 MiB. Receivers limit requests by bytes,
// to 4 MiB by default, and refuse a larger one for good, with everything in it. An
// exporter of this package sends a batch as several requests:
//
//	traces, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure())
//	if err != nil {
//		return err
//	}
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(otlpbatch.Spans(traces)))
//
// A span or record that is larger by itself is sent alone and unchanged. If it is
// refused, it is sent once more with its longest values truncated, and [otel.Handle] gets
// an error: the rest of the session does not depend on it.
//
// Package spool limits its requests in the same way.
package otlpbatch
