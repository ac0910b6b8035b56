// Package ingest turns telemetry into sessions.
//
// A span or log record of the SDK becomes changes: what it reports of a session, a message, a part or a decision. One
// of another agent is recognized by a dialect and becomes an observation, from which package assemble builds the rows
// of its session. Either is a [store.Batch], which the store merges into its rows.
//
// Nothing is held in memory between calls. A span is written when it arrives, whether or not its parent or its session
// is known: there is no end-of-trace marker to wait for. What a span reports is never dropped because something in it
// is wrong: a value of the wrong type stays unset, text that should be JSON is kept as text, and the message reports so
// under agenttrace.problems.
package ingest
