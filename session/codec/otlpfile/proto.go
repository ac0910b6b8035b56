package otlpfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// tagResource is the tag of the first field of every OTLP body: its resources.
const tagResource = 0x0a

// Wire types of protobuf.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

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
			// nothing tells where the next body begins.
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
			d.damaged(0, at, d.tooLarge(int64(min(n, 1<<62))))
			if err := s.skip(int64(min(n, 1<<62))); err != nil {
				s.ended = s.ended || errors.Is(err, io.EOF)
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
	switch tag & 7 {
	case wireVarint:
		_, err := d.uvarint(s)
		return err
	case wire64:
		n = 8
	case wire32:
		n = 4
	case wireBytes:
		var err error
		if n, err = d.uvarint(s); err != nil {
			return err
		}
	default:
		return errWire
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

// signalOfResource says what a resource in protobuf holds: traces, logs, metrics,
// empty when it holds nothing, or "" when it is none of them.
//
// Bodies of spans, log records and metrics have the same fields down to the list of
// spans, records or metrics in a scope, and nothing in them tells which they are.
// But their fields are of other wire types there: what is a span's name is a
// record's body, yet what is a span's trace id, in bytes, is a record's time, a
// fixed number. Each field is a vote for what has it with that type, and the first
// record on which the votes agree decides.
func signalOfResource(resource []byte) string {
	records, found := 0, ""
	fields(resource, func(number, wire int, scope []byte, _ uint64) bool {
		if number != 2 || wire != wireBytes {
			return true
		}
		fields(scope, func(number, wire int, record []byte, _ uint64) bool {
			if number != 2 || wire != wireBytes {
				return true
			}
			records++
			found = signalOfRecord(record)
			return found == "" && records < 100
		})
		return found == "" && records < 100
	})
	if found == "" && records == 0 && valid(resource) {
		return "empty"
	}
	return found
}

func signalOfRecord(record []byte) string {
	var spans, logs, metrics int
	text := ""
	whole := fields(record, func(number, wire int, value []byte, _ uint64) bool {
		switch [2]int{number, wire} {
		case [2]int{1, wireBytes}: // trace id; name of a metric
			if len(value) == 16 {
				spans++
			} else {
				text = "metrics"
			}
		case [2]int{7, wire64}, [2]int{8, wire64}: // start, end
			spans += 2
		case [2]int{6, wireVarint}, [2]int{15, wireBytes}, [2]int{13, wireBytes}, [2]int{16, wire32}: // kind, status, links, flags
			spans++
		case [2]int{4, wireBytes}: // parent
			if len(value) == 8 {
				spans++
			}
		case [2]int{1, wire64}, [2]int{11, wire64}: // times
			logs += 2
		case [2]int{2, wireVarint}, [2]int{6, wireBytes}, [2]int{8, wire32}: // severity, attributes, flags
			logs++
		case [2]int{7, wireBytes}: // sum
			metrics += 2
		case [2]int{5, wireBytes}: // name of a span; body of a record; gauge
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
	case text != "", metrics > 0:
		return "metrics"
	}
	if _, err := boundAndDecode(nesting.SignalLogs, (&plog.ProtoUnmarshaler{}).UnmarshalLogs, wrap(wrap(wrap(record, 2), 2), 1)); err == nil && len(record) > 0 {
		return "logs" // a body alone
	}
	return ""
}

// wrap makes a message a field of another.
func wrap(message []byte, number int) []byte {
	b := []byte{byte(number<<3 | wireBytes)}
	return append(binary.AppendUvarint(b, uint64(len(message))), message...)
}

// fields calls fn with the fields of a message, until it returns false. It returns
// false for what is no message.
func fields(message []byte, fn func(number, wire int, value []byte, n uint64) bool) bool {
	for len(message) > 0 {
		tag, k := binary.Uvarint(message)
		if k <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return false
		}
		message = message[k:]
		size := 0
		var value []byte
		var n uint64
		switch tag & 7 {
		case wireVarint:
			if n, size = binary.Uvarint(message); size <= 0 {
				return false
			}
		case wire64:
			size = 8
		case wire32:
			size = 4
		case wireBytes:
			length, k := binary.Uvarint(message)
			if k <= 0 || length > uint64(len(message)-k) {
				return false
			}
			message = message[k:]
			size = int(length)
			value = message[:size]
		default:
			return false
		}
		if size > len(message) {
			return false
		}
		if !fn(int(tag>>3), int(tag&7), value, n) {
			return true
		}
		message = message[size:]
	}
	return true
}

func valid(message []byte) bool {
	return fields(message, func(int, int, []byte, uint64) bool { return true })
}
