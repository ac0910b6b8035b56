// Package recorder writes sessions straight from an agent's process into a
// store: the OpenTelemetry SDK's spans and log records become the same rows as
// through a collector, with no collector and no network.
//
//	rec, err := recorder.Open(ctx, "sessions.db", recorder.Options{})
//	if err != nil {
//		return err // errors.Is(err, store.ErrLocked): a collector has the file
//	}
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter()))
//	logs := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(rec.LogExporter())))
//	defer func() { err = errors.Join(err, provider.Shutdown(ctx), logs.Shutdown(ctx), rec.Close(ctx)) }()
//	tracer := agenttrace.New(agenttrace.Options{TracerProvider: provider, LoggerProvider: logs})
//
// An export that returns nil is committed: it survives the death of the process
// at any later moment, and with sqlite.SynchronousFull a power failure too. What
// still waits in the SDK's own batch processor is in memory and dies with the
// process; sdktrace.WithSyncer writes every span as it ends instead, at the cost
// of a commit, well under a millisecond, on the agent's path.
//
// What cannot be stored now, as on a full disk, waits in memory within a bound
// and is tried again; each export, [Recorder.ForceFlush] and [Recorder.Close]
// say in their error how much waits and how much is lost.
//
// One process writes a store. Where several agents run side by side, let each
// send to one collector, or use package spool.
package recorder
