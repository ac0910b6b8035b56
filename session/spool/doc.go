// Package spool keeps on disk what an agent could not send, through kill -9, and sends it when the collector is
// there again.
//
// An [Exporter] wraps the OTLP exporters that an agent would use anyway:
//
//	client, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure())
//	if err != nil {
//		return err
//	}
//	exp, err := spool.Open(filepath.Join(stateDir, "spool"), spool.Options{Spans: client})
//	if err != nil {
//		return err
//	}
//	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exp.SpanExporter()))
//	defer func() { err = errors.Join(err, provider.Shutdown(ctx), exp.Close(ctx)) }()
//
// Every batch is sent at once, in requests that package setup limits by bytes. A request that fails is written to a
// file. After the next one that succeeds, the files are sent too, and those of other processes. Without a wrapped
// exporter everything goes to the files. "agenttrace import" reads them, and [Drain] does in a program:
//
//	report, err := spool.Drain(ctx, dir, spool.Sink{Traces: func(ctx context.Context, td ptrace.Traces) error {
//		_, err := ingester.Traces(ctx, td)
//		return err
//	}})
//
// # Guarantees
//
// An export that returns nil was sent, or is in a file that was synced to the disk. What is neither is counted in the
// error of the export, of ForceFlush and of Close. A file is deleted when everything in it was accepted. After a crash
// a part of it is sent twice, which is harmless for a session store. Requests that were truncated or changed on the
// disk are reported and skipped; all others are read.
//
// Several processes may use one spool. One at a time sends files, with a lock that ends with the process. Spans
// contain prompts: directories have mode 0700 and files 0600. Do not put a spool on a network file system, where
// locks may not work.
//
// Spans that wait in the SDK's batch processor are in memory and are lost with the process. sdktrace.WithSyncer
// exports every span as it ends instead.
//
// FORMAT.md describes the files.
package spool
