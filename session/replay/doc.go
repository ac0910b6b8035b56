// Package replay asks a model again what it was asked before.
//
//	session ─ New ─► Bundle ─ Encode ─► a provider's request, as a file
//	                   │
//	                   └─ Run ─► Answer ─ Store ─► a fork of the session, to compare
//
// A [Bundle] holds what the model was given at one turn: the messages as they stood
// then, with what compactions and rewinds had left of them, the system prompt, the
// tools, the model and its parameters. Each provider's wire format is a [Format].
//
// Run sends the request and answers the model's tool calls with what the same calls
// put out when they were recorded: no tool is executed. Where the model asks for
// something else than it did then, the answer ends there.
package replay
