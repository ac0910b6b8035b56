// Package nesting bounds how deep the values of telemetry nest, and how much memory
// a request takes once it is decoded.
//
// The decoders of pdata recurse into values, as does nearly everything that reads a
// value later. A goroutine that outgrows its stack ends the process, and no recover
// stops that, so a value must be bounded before the first of them sees it. [JSON] and
// [Proto] bound what is encoded; [Traces] and [Logs] bound what was decoded elsewhere. None of them recurses without a bound.
//
// What is too deep is cut where it becomes so, and all around it stays. With a bound
// of two levels,
//
//	{"a": {"b": {"c": 1}}, "d": 2}   becomes   {"a": {"b": "[nested deeper …]"}, "d": 2}
package nesting

import (
	"errors"
	"fmt"
)

// MaxDepth is how many lists and maps may stand inside each other in one value.
// SQLite's JSON functions end at 1000 levels, and a value is stored inside of others.
const MaxDepth = 500

// Marker replaces a list or map that is nested deeper than [MaxDepth] levels.
const Marker = "[nested deeper than 500 levels: not kept]"

// Encoded values are cut a little below MaxDepth, so that what was cut is still too
// deep for [Traces] and [Logs], which leave the Marker.
const wireDepth = MaxDepth + 8

// maxJSONDepth is wireDepth in levels of JSON: a map of OTLP takes four of them
// ({"kvlistValue": {"values": [{"value": …), the request around it about twelve.
const maxJSONDepth = 4*wireDepth + 16

// MaxDecoded is how much memory, in bytes, the messages of a request may take in
// addition to their texts. An empty span is two bytes in protobuf and some 400 in
// memory, so 64 MiB of them would take 12 GiB.
const MaxDecoded = 256 << 20

// ErrTooLarge reports a request that would take more than [MaxDecoded].
var ErrTooLarge = fmt.Errorf("the request holds more spans, records and attributes than fit into %d MiB: "+
	"send it in smaller parts", MaxDecoded>>20)

// ErrMalformed reports what is not a request of OTLP in protobuf.
var ErrMalformed = errors.New("not valid OTLP in protobuf")
