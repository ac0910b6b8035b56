package nesting

import (
	"google.golang.org/protobuf/encoding/protowire"
)

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

// level is a list or map in a value: of what is below it the field 1, or 1 and 2.
var (
	anyValue     = &message{cost: 40}
	keyValue     = msg(64, map[protowire.Number]*message{2: anyValue})
	keyValueList = msg(40, map[protowire.Number]*message{1: keyValue})
	arrayValue   = msg(40, map[protowire.Number]*message{1: anyValue})
)

// Requests by their signal, after the .proto files of OTLP 1.x.
var requests = func() map[Signal]*message {
	anyValue.fields = map[protowire.Number]*message{5: arrayValue, 6: keyValueList}
	type fields = map[protowire.Number]*message

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
}()

// Proto returns a request in protobuf with what is nested too deep cut out, the
// request itself where nothing is, and about how much memory it takes beside its
// texts. It fails with [ErrMalformed], and with
// [ErrTooLarge] when the request takes more than maxDecoded bytes; 0 is no limit.
func Proto(signal Signal, request []byte, maxDecoded int64) (bounded []byte, cost int64, err error) {
	s := scanner{limit: maxDecoded}
	if err := s.scan(requests[signal], request, 0); err != nil {
		return nil, 0, err
	}
	if !s.deep {
		return request, s.cost, nil
	}
	var p pruner
	out := make([]byte, 0, p.measure(requests[signal], request, 0))
	return p.append(out, requests[signal], request, 0), s.cost, nil
}

type scanner struct {
	limit, cost int64
	deep        bool
}

// scan looks at a message and what is below it. depth counts the values around it.
func (s *scanner) scan(m *message, b []byte, depth int) error {
	if s.cost += m.cost; s.limit > 0 && s.cost > s.limit {
		return ErrTooLarge
	}
	if len(m.fields) == 0 {
		return nil
	}
	if m == anyValue {
		if depth++; depth > wireDepth {
			s.deep = true // what is below will not be decoded
			return nil
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

// pruner encodes a request, which a scanner has found well formed, without the values
// that are too deep: they become empty. Lengths are before what they count, so one
// pass finds them and another writes: what is deep is not copied at every level.
type pruner struct {
	sizes []int // of the messages below the request, in the order of their beginnings
	next  int   // index in sizes
}

// measure returns the size of a message when it is pruned.
func (p *pruner) measure(m *message, b []byte, depth int) (size int) {
	if m == anyValue {
		if depth++; depth > wireDepth {
			return 0
		}
	}
	for len(b) > 0 {
		f, below, rest := firstField(m, b)
		if below == nil {
			size += len(b) - len(rest)
		} else {
			i := len(p.sizes)
			p.sizes = append(p.sizes, 0)
			p.sizes[i] = p.measure(below, f.inside, depth)
			size += protowire.SizeTag(f.number) + protowire.SizeBytes(p.sizes[i])
		}
		b = rest
	}
	return size
}

// append appends a message in the order in which measure saw it.
func (p *pruner) append(dst []byte, m *message, b []byte, depth int) []byte {
	if m == anyValue {
		if depth++; depth > wireDepth {
			return dst
		}
	}
	for len(b) > 0 {
		f, below, rest := firstField(m, b)
		if below == nil {
			dst = append(dst, b[:len(b)-len(rest)]...)
		} else {
			dst = protowire.AppendTag(dst, f.number, protowire.BytesType)
			dst = protowire.AppendVarint(dst, uint64(p.sizes[p.next]))
			p.next++
			dst = p.append(dst, below, f.inside, depth)
		}
		b = rest
	}
	return dst
}

type field struct {
	number protowire.Number
	inside []byte
}

// firstField returns the first field of a well-formed message, what is known of the
// message in it, or nil when it is copied as it is, and the rest of the message.
func firstField(m *message, b []byte) (f field, below *message, rest []byte) {
	number, wire, n := protowire.ConsumeTag(b)
	below = m.fields[number]
	if below == nil || len(below.fields) == 0 || wire != protowire.BytesType {
		return field{}, nil, b[n+protowire.ConsumeFieldValue(number, wire, b[n:]):]
	}
	inside, k := protowire.ConsumeBytes(b[n:])
	return field{number, inside}, below, b[n+k:]
}
