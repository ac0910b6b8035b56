package otlpfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// tagResource is the tag of the first field of every OTLP body: its resources.
const tagResource = 0x0a

// readProto reads bodies in protobuf. A body is a list of resources and nothing
// else, so that bodies one after the other are one body, and a body of any size can
// be read by the resource.
func (d *decoder) readProto(s *source) error {
	for !d.stopped {
		at := s.offset
		tag, err := d.uvarint(s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.cut(s, 0, err)
		}
		if tag != tagResource {
			// A later version may add fields. What is none ends the reading, for
			// nothing shows where the next body begins.
			if err := d.skipField(s, tag); err != nil {
				if errors.Is(err, errWire) {
					d.damaged(0, at, errors.New("no protobuf from here on; the rest is left out"))
					return nil
				}
				return d.cut(s, 0, err)
			}
			continue
		}
		n, err := d.uvarint(s)
		if err != nil {
			return d.cut(s, 0, err)
		}
		if n > uint64(d.maximum) {
			if err := d.passOver(s, at, n); err != nil {
				return d.cut(s, 0, err)
			}
			continue
		}
		d.buf = binary.AppendUvarint(append(d.buf[:0], tagResource), n)
		head := len(d.buf)
		if d.buf, err = s.fill(d.buf, int(n)); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return d.cut(s, 0, err)
		}
		d.decodeProto(d.buf, d.buf[head:], at)
		if cap(d.buf) > 16<<20 {
			d.buf = nil
		}
	}
	return nil
}

var errWire = errors.New("unknown wire type")

func (d *decoder) skipField(s *source, tag uint64) error {
	if tag>>3 == 0 || tag>>3 > 64 {
		return errWire
	}
	n := uint64(0)
	var err error
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		_, err = d.uvarint(s)
	case protowire.Fixed64Type:
		n = 8
	case protowire.Fixed32Type:
		n = 4
	case protowire.BytesType:
		n, err = d.uvarint(s)
	default:
		return errWire
	}
	if err != nil {
		return err
	}
	if n > 1<<40 {
		return errWire
	}
	return s.skip(int64(n))
}

// decodeProto decodes a body of one resource, of which resource is the inside.
func (d *decoder) decodeProto(body, resource []byte, at int64) {
	b := Body{Traces: ptrace.NewTraces(), Logs: plog.NewLogs(), Offset: at}
	var err error
	switch kind := signalOfResource(resource); kind {
	case "traces":
		b.Traces, err = boundAndDecode(nesting.SignalTraces, (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces, body)
	case "logs":
		b.Logs, err = boundAndDecode(nesting.SignalLogs, (&plog.ProtoUnmarshaler{}).UnmarshalLogs, body)
	case "metrics":
		b.Skipped = kind
	case "empty":
	default:
		err = errors.New("neither spans nor log records are in the body")
	}
	if err != nil {
		d.damaged(0, at, fmt.Errorf("%w; it is left out", err))
		return
	}
	d.give(b)
}

// boundAndDecode decodes a body of which what is nested too deep for the decoder was
// cut.
func boundAndDecode[T any](signal nesting.Signal, decode func([]byte) (T, error), body []byte) (v T, err error) {
	if body, _, err = nesting.Proto(signal, body, 0); err != nil {
		return v, err
	}
	return tryDecode(decode, body)
}

// signalOfResource states what a resource in protobuf holds: traces, logs, metrics,
// empty when it holds nothing, or "" when it is none of them.
//
// Bodies of spans, log records and metrics have the same fields down to the list of
// spans, records or metrics in a scope, and nothing in them reports which they are.
// But their fields are of other wire types there: what is a span's name is a
// record's body, yet what is a span's trace id, in bytes, is a record's time, a
// fixed number. Each field is a vote for what has it with that type, and the first
// record on which the votes agree decides.
func signalOfResource(resource []byte) string {
	records, found := 0, ""
	whole := true
	each := func(message []byte, fn func([]byte)) {
		whole = fields(message, func(number protowire.Number, wire protowire.Type, value []byte) bool {
			if number == 2 && wire == protowire.BytesType {
				fn(value)
			}
			return found == "" && records < 100
		}) && whole
	}
	each(resource, func(scope []byte) {
		each(scope, func(record []byte) {
			records++
			found = signalOfRecord(record)
		})
	})
	if whole && records == 0 {
		return "empty"
	}
	return found
}

// field is a field of a record with its wire type.
type field struct {
	number protowire.Number
	wire   protowire.Type
}

// votes are fields that only one signal has with that type, and what each counts.
var votes = map[field]struct{ spans, logs, metrics int }{
	{7, protowire.Fixed64Type}: {spans: 2}, {8, protowire.Fixed64Type}: {spans: 2}, // start, end
	{6, protowire.VarintType}: {spans: 1}, {15, protowire.BytesType}: {spans: 1}, // kind, status
	{13, protowire.BytesType}: {spans: 1}, {16, protowire.Fixed32Type}: {spans: 1}, // links, flags
	{1, protowire.Fixed64Type}: {logs: 2}, {11, protowire.Fixed64Type}: {logs: 2}, // times
	{2, protowire.VarintType}: {logs: 1}, {6, protowire.BytesType}: {logs: 1}, // severity, attributes
	{8, protowire.Fixed32Type}: {logs: 1}, {7, protowire.BytesType}: {metrics: 2}, // flags; sum
}

func signalOfRecord(record []byte) string {
	var spans, logs, metrics int
	named := false // as a metric is
	whole := fields(record, func(number protowire.Number, wire protowire.Type, value []byte) bool {
		vote := votes[field{number, wire}]
		spans, logs, metrics = spans+vote.spans, logs+vote.logs, metrics+vote.metrics
		if wire == protowire.BytesType && (number == 1 && len(value) == 16 || number == 4 && len(value) == 8) {
			spans++ // the trace, the parent
		} else if wire == protowire.BytesType && number == 1 {
			named = true
		}
		return true
	})
	switch {
	case !whole:
		return ""
	case spans > logs && spans > metrics:
		return "traces"
	case logs > spans && logs > metrics:
		return "logs"
	case named, metrics > 0:
		return "metrics"
	}
	body := wrap(wrap(wrap(record, 2), 2), 1)
	_, err := boundAndDecode(nesting.SignalLogs, (&plog.ProtoUnmarshaler{}).UnmarshalLogs, body)
	if err == nil && len(record) > 0 {
		return "logs" // a body alone
	}
	return ""
}

// wrap makes a message a field of another.
func wrap(message []byte, number protowire.Number) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), message)
}

// fields calls fn with the fields of a message, until it returns false. Those that are not
// bytes have no value. It returns false for what is not a message.
func fields(message []byte, fn func(protowire.Number, protowire.Type, []byte) bool) bool {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeField(message)
		if n < 0 || wire == protowire.StartGroupType {
			return false
		}
		var value []byte
		if wire == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ = protowire.ConsumeBytes(message[tag:n])
		}
		if !fn(number, wire, value) {
			return true
		}
		message = message[n:]
	}
	return true
}
