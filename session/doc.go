// Package session defines the canonical session: the rows of its three tables, their JSON
// form, and the arithmetic and invariants that connect them.
//
// A session is a conversation with an agent. It consists of a [Session] row, the
// [Message] rows of that session in order of (created_at, id), and the [Part] rows of
// each message in order of index. The columns are those of the agent guide's three tables
// and its reference implementation. A value here equals the row byte for byte: JSON
// columns stay text.
//
// The package imports the standard library only. It does not depend on telemetry, stores,
// or file formats other than the canonical JSON.
package session
