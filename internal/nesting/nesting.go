// Package nesting bounds how deep the values of telemetry nest, and how much memory a request takes once it is decoded.
//
// The decoders of pdata recurse into values, as does nearly everything that reads a value later. A goroutine that
// outgrows its stack ends the process, and no recover stops that. So a request is looked at before it is decoded,
// without recursion that has no bound, and refused if a value is nested deeper than any program's.
package nesting

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
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

// objectCost is what an object of a request takes in memory at most, about: a span.
const objectCost = 256

// JSON returns about how much memory a request in JSON takes beside its texts. What is not JSON is left to the decoder.
// It fails with [ErrTooDeep], and with [ErrTooLarge] when the request takes more than maxDecoded bytes; 0 is no limit.
func JSON(request []byte, maxDecoded int64) (cost int64, err error) {
	// The decoder makes a span or value of each element of an array, also where a number or null stands.
	var opened, elements int64
	var array [maxJSONDepth + 1]bool // by the levels around
	depth := 0
	for i := 0; i < len(request); i++ {
		switch c := request[i]; c {
		case '"':
			i = stringEnd(request, i)
		case ',':
			if array[depth] {
				elements++
			}
		case '{', '[':
			if depth++; depth > maxJSONDepth {
				return 0, ErrTooDeep
			}
			opened++
			array[depth] = c == '['
		case '}', ']':
			depth = max(depth-1, 0)
		}
	}
	cost = max(opened, elements) * objectCost
	if maxDecoded > 0 && cost > maxDecoded {
		return 0, ErrTooLarge
	}
	return cost, nil
}

// stringEnd returns where the string ends whose quote is at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i
}

// Signal is what a request carries.
type Signal string

// Signals.
const (
	SignalTraces  Signal = "traces"
	SignalLogs    Signal = "logs"
	SignalMetrics Signal = "metrics"
)

// message is a message of OTLP as far as values are below it.
type message struct {
	fields map[protowire.Number]*message
	// cost is about what the message takes in memory, without its texts.
	cost int64
}

func msg(cost int64, fields map[protowire.Number]*message) *message {
	return &message{fields: fields, cost: cost}
}

// anyValue is what holds further values below it: its message is complete after the first request.
var anyValue = &message{cost: 40}

// Requests by their signal, after the .proto files of OTLP 1.x.
var requests = sync.OnceValue(func() map[Signal]*message {
	type fields = map[protowire.Number]*message
	keyValue := msg(64, fields{2: anyValue})
	anyValue.fields = fields{5: msg(40, fields{1: anyValue}), 6: msg(40, fields{1: keyValue})}

	resource := msg(96, fields{1: keyValue, 3: msg(96, nil)})
	scope := msg(96, fields{3: keyValue})
	request := func(item *message) *message {
		return msg(0, fields{1: msg(160, fields{1: resource, 2: msg(160, fields{1: scope, 2: item})})})
	}

	event, link := msg(120, fields{3: keyValue}), msg(120, fields{4: keyValue})
	span := msg(400, fields{9: keyValue, 11: event, 13: link})
	record := msg(280, fields{5: anyValue, 6: keyValue})

	exemplar := msg(120, fields{7: keyValue})
	points := func(attributes, exemplars protowire.Number) *message {
		return msg(64, fields{1: msg(320, fields{attributes: keyValue, exemplars: exemplar})})
	}
	metric := msg(160, fields{
		5: points(7, 5), 7: points(7, 5), 9: points(9, 8), 10: points(1, 11),
		11: msg(64, fields{1: msg(240, fields{7: keyValue, 6: msg(24, nil)})}), 12: keyValue,
	})
	return map[Signal]*message{SignalTraces: request(span), SignalLogs: request(record), SignalMetrics: request(metric)}
})

// Proto returns about how much memory a request in protobuf takes beside its texts. It fails with [ErrMalformed], with
// [ErrTooDeep], and with [ErrTooLarge] when the request takes more than maxDecoded bytes; 0 is no limit.
func Proto(signal Signal, request []byte, maxDecoded int64) (cost int64, err error) {
	s := scanner{limit: maxDecoded}
	err = s.scan(requests()[signal], request, 0)
	return s.cost, err
}

type scanner struct{ limit, cost int64 }

// scan looks at a message and what is below it. depth counts the values around it.
func (s *scanner) scan(m *message, b []byte, depth int) error {
	if s.cost += m.cost; s.limit > 0 && s.cost > s.limit {
		return ErrTooLarge
	}
	if len(m.fields) == 0 {
		return nil
	}
	if m == anyValue {
		if depth++; depth > MaxDepth+1 { // the value itself is none of its levels
			return ErrTooDeep
		}
	}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		if wire == protowire.StartGroupType || wire == protowire.EndGroupType {
			return ErrMalformed // OTLP has no groups, and the reader of unknown ones would recurse
		}
		below := m.fields[number]
		if below == nil || wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
				return ErrMalformed
			}
			b = b[n:]
			continue
		}
		inside, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return ErrMalformed
		}
		if err := s.scan(below, inside, depth); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
