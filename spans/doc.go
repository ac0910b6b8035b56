// Package spans defines one type per kind of span, with the span's attributes as fields.
// Code that emits spans and code that reads them share these types.
//
// [Append] encodes a value as OpenTelemetry attributes. [Set] decodes one attribute, so a reader iterates once over
// the attributes of a span, in whatever library they are. The method Validate reports what is missing or
// contradictory, and Kind returns the name of the span. Decoding an encoded value gives the same value.
//
// Decoding is lenient, because one invalid attribute does not make the others invalid:
// Set reports a value of the wrong type and leaves its field unset.
//
// Values are not safe for concurrent use.
package spans
