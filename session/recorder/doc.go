// Package recorder writes sessions from an agent's own process into a store. Spans and log records of the OpenTelemetry
// SDK become the same rows as through a collector, without a collector and without a network.
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
// An export that returns nil is committed: it survives the death of the process, and with sqlite.SynchronousFull a
// power failure too. Spans in the SDK's own batch processor are in memory and are lost with the process.
// sdktrace.WithSyncer writes every span when it ends; the agent then waits for a commit, well under a millisecond.
//
// Spans that cannot be stored now, as on a full disk, stay in memory up to a limit and are retried. The error of each
// export, of [Recorder.ForceFlush] and of [Recorder.Close] reports how many wait and how many are lost.
//
// One process writes a store. If several agents run at the same time, let them send to
// one collector, or use package spool.
package recorder
