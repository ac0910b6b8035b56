// Package ingest turns telemetry into sessions.
//
// Spans go through stages in a row: a dialect recognizes a span, decodes it to
// typed records, and places them: which session, which message, which part. The
// result is a [store.Batch] of changes, which the store merges into its rows.
// One table ([dialects]) names every dialect; a dialect is a row there and a
// file here.
//
// Nothing is held in memory between calls. A span is written when it arrives,
// whether or not its parent or its session is known: there is no end-of-trace
// marker to wait for. What a span reports is never dropped because something in it
// is wrong: a value of the wrong type stays unset, text that should be JSON is
// kept as text, and the message reports so under agenttrace.problems.
package ingest
