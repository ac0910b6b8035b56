// Package nesting bounds how deep the values of telemetry nest, and how much memory a request takes once it is decoded.
//
// The decoders of pdata recurse into values, as does nearly everything that reads a value later. A goroutine that
// outgrows its stack ends the process, and no recover stops that. So a request is looked at before it is decoded,
// without recursion that has no bound, and refused if a value is nested deeper than any program's.
package nesting

import (
	"errors"
	"fmt"
)

// MaxDepth is how many lists and maps may stand inside each other in one value.
// SQLite's JSON functions end at 1000 levels, and a value is stored inside of others.
const MaxDepth = 500

// maxJSONDepth is MaxDepth in levels of JSON: a map of OTLP takes four of them
// ({"kvlistValue": {"values": [{"value": …), the request around it about twelve.
const maxJSONDepth = 4*MaxDepth + 16

// MaxDecoded is how much memory, in bytes, the messages of a request may take in addition to their texts. An empty span
// is two bytes in protobuf and some 400 in memory, so 64 MiB of them would take 12 GiB.
const MaxDecoded = 256 << 20

var (
	// ErrTooLarge reports a request that would take more than [MaxDecoded].
	ErrTooLarge = fmt.Errorf("the request holds more spans, records and attributes than fit into %d MiB: "+
		"send it in smaller parts", MaxDecoded>>20)
	// ErrTooDeep reports a request with a value of more than [MaxDepth] levels.
	ErrTooDeep = fmt.Errorf("a value of the request is nested deeper than %d levels", MaxDepth)
	// ErrMalformed reports what is not a request of OTLP in protobuf.
	ErrMalformed = errors.New("not valid OTLP in protobuf")
)
