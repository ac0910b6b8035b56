// Package spool keeps on disk what an agent could not send, through kill -9, and
// sends it when the collector is there again.
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
// Every batch is sent at once, in requests that are bounded by bytes as package
// otlpbatch has it. If that fails, it goes to a file; and after the
// next batch that gets through, so does what is in the files, also in those of
// earlier processes that were killed. Without a wrapped exporter all goes to the
// files, and [Drain] or "agenttrace import" takes it from there:
//
//	report, err := spool.Drain(ctx, dir, spool.Sink{Traces: func(ctx context.Context, td ptrace.Traces) error {
//		_, err := ingester.Traces(ctx, td)
//		return err
//	}})
//
// # Promises
//
// An export that returns nil is sent, or in a file where the death of the process
// cannot take it from; [Sync] says what a power failure can. What is neither is
// counted, and said by the export, by ForceFlush and by Close. A file is deleted
// when all in it was taken; after a crash, a part is sent twice, which a session
// store does not mind. What was cut off or changed on the disk is noticed by a
// checksum, reported and passed over, and everything else is still read.
//
// Several processes may spool in one directory: each has a directory of its own
// in it, with a lock that ends with the process. Spans hold prompts: directories
// are 0700 and files 0600. Do not put a spool on a network file system: its locks
// may not hold.
//
// What still waits in the SDK's batch processor is in memory, and dies with the
// process; sdktrace.WithSyncer spools every span as it ends instead.
//
// FORMAT.md describes the files.
package spool
