// Package session is the canonical session: the rows of its three tables, their
// JSON shapes, and the arithmetic and rules that hold between them.
//
// A session is one conversation with an agent. It is a [Session] row, the
// [Message] rows of that session in order of (created_at, id), and the [Part]
// rows of each message in order of index. The columns are those of the agent
// guide's three-table schema and of its reference implementation, so a value
// here is a row there, byte for byte: JSON columns stay text.
//
// The package imports the standard library only. It knows nothing of
// telemetry, of stores, or of file formats beyond the canonical JSON.
package session
