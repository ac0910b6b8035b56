// Package redact removes secrets from what an agent writes, reads and runs, and
// cuts what is too long, before it is sent or stored.
//
// One [Config] serves both sides: the SDK redacts before a span leaves the process, the collector's exporter redacts
// again before a row is written. Three things happen to a value, in this order:
//
//   - Omission: a kind of content (prompts, reasoning, tool inputs, tool outputs)
//     that the configuration does not want is replaced whole by a marker with its
//     size.
//   - Redaction: by key (the value under "password" or "X-Api-Key", of any type),
//     by pattern (what has the shape of a provider's key, a private key, a token),
//     and in text by clues: each word or string that may be a secret is judged by
//     a sum of learned weights, of the names of secrets near it and of what else is
//     around it. Text that is JSON stays valid JSON. See docs/redaction.md.
//   - Truncation: the head is kept, a visible marker with the original size
//     follows, JSON stays JSON.
//
// Markers: [Marker] replaces what a key named; "[redacted:github-token]" for what rule github-token found inside a
// text. Their length reports nothing about the secret. Redacting again what is redacted changes nothing.
//
// What is redacted is decided so that a doubtful value under a name that promises a secret goes, and source code,
// digests, identifiers and token counts stay. Redaction is a net, not a proof: a secret without a known shape and
// without a name beside it passes.
//
// The package imports the standard library only.
package redact
