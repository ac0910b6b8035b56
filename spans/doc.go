// Package spans is the contract between whoever emits spans and whoever reads
// them: one typed record per span kind, and its attributes.
//
// Every record has four methods. Append encodes it as OpenTelemetry attributes;
// Set decodes one attribute, so that a reader walks a span's attributes once,
// whatever holds them; Validate says what is missing or contradictory; Kind
// names the span. Decoding what was encoded gives the record back.
//
// Decoding is lenient, because a span that is wrong in one place is right in
// the others: Set reports a value of the wrong type and leaves its field unset.
//
// Records are plain values. They are not safe for concurrent use.
package spans
