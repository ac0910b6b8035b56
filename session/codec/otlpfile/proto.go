package otlpfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// tagResource is the tag of the first field of every OTLP body: its resources.
const tagResource = 0x0a

// readProto reads bodies in protobuf. A body is a list of resources and nothing else, so that bodies one after the
// other are one body, and a body of any size can be read by the resource.
func (d *decoder) readProto(s *source) error {
	for !d.stopped {
		at := s.offset
		number, kind, size, ok := field(s.peek(20))
		switch {
		case !ok && s.err != nil && len(s.buf) < 20:
			return d.end(s, 0)
		case !ok || number > 64 || size > 1<<40:
			// A later version may add fields. What is none ends the reading, for
			// nothing shows where the next body begins.
			d.damaged(0, at, errors.New("no protobuf from here on; the rest is left out"))
			return nil
		case number != 1 || kind != protowire.BytesType:
			s.skip(size)
		case size > int64(d.maximum):
			d.damaged(0, at, d.tooLarge(size))
			s.skip(size)
		default:
			body := s.peek(int(size))
			if len(body) < int(size) {
				return d.end(s, 0)
			}
			s.skip(size)
			if b, err := decodeSignal(body); err != nil {
				d.damaged(0, at, fmt.Errorf("%w; it is left out", err))
			} else {
				b.Offset = at
				d.give(b)
			}
		}
	}
	return nil
}

// field returns the number, the kind and the size of the field that begins here, tag and all.
func field(head []byte) (number protowire.Number, kind protowire.Type, size int64, ok bool) {
	number, kind, n := protowire.ConsumeTag(head)
	if n < 0 {
		return 0, 0, 0, false
	}
	if kind == protowire.BytesType {
		length, k := protowire.ConsumeVarint(head[n:])
		return number, kind, int64(n+k) + int64(min(length, 1<<60)), k >= 0
	}
	k := protowire.ConsumeFieldValue(number, kind, head[n:])
	return number, kind, int64(n + k), k >= 0
}

// decodeSignal decodes a body of one resource as what it is. Bodies of spans, log records and metrics have the same
// fields down to the list of spans, records or metrics in a scope, and nothing in them reports which they are. But
// their fields are of other wire types there: what is a span's trace id, in bytes, is a record's time, a fixed number.
// So a body rarely decodes as two of them; then the spans are spans if each has an id, and records are records.
func decodeSignal(body []byte) (Body, error) {
	b := Body{Traces: ptrace.NewTraces(), Logs: plog.NewLogs()}
	td, err := boundAndDecode(nesting.SignalTraces, (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces, body)
	if err == nil && td.SpanCount() > 0 && identified(td) {
		b.Traces = td
		return b, nil
	}
	if errors.Is(err, nesting.ErrTooDeep) {
		return b, err
	}
	ld, logsErr := boundAndDecode(nesting.SignalLogs, (&plog.ProtoUnmarshaler{}).UnmarshalLogs, body)
	_, metricsErr := boundAndDecode(nesting.SignalMetrics, (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics, body)
	switch {
	case logsErr == nil && ld.LogRecordCount() > 0:
		b.Logs = ld
	case err == nil && (td.SpanCount() == 0 || metricsErr != nil):
		b.Traces = td
	case metricsErr == nil:
		b.Skipped = "metrics"
	default:
		return b, errors.New("neither spans nor log records are in the body")
	}
	return b, nil
}

// identified reports whether all spans have ids.
func identified(td ptrace.Traces) bool {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() {
					return false
				}
			}
		}
	}
	return true
}

// boundAndDecode decodes a body that is not nested too deep for the decoder.
func boundAndDecode[T any](signal nesting.Signal, decode func([]byte) (T, error), body []byte) (v T, err error) {
	if _, err = nesting.Proto(signal, body, 0); err != nil {
		return v, err
	}
	return tryDecode(decode, body)
}

// zstdMagic begins a frame of Zstandard.
const zstdMagic = "\x28\xb5\x2f\xfd"

// markSize is the size of the length of a frame, and of zstdMagic.
const markSize = 4 + len(zstdMagic)

// Frame returns a body as the collector's file exporter writes it with "compression: zstd": its length, and a frame of
// Zstandard with a checksum, so [Read] does not yield a body that changed on the disk.
func Frame(body []byte) []byte {
	z, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest)) // no bad option
	frame := z.EncodeAll(body, make([]byte, 4, len(body)/2+64))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// readFrames reads bodies that are after their lengths. If the first is packed, all are.
func (d *decoder) readFrames(s *source) error {
	isPacked := func(head []byte) bool { return bytes.HasSuffix(head, []byte(zstdMagic)) }
	packed := isPacked(s.peek(markSize))
	for !d.stopped {
		at, head := s.offset, s.peek(markSize)
		switch {
		case len(head) < 4, packed && len(head) < markSize:
			return d.end(s, 0)
		case packed && !isPacked(head):
			d.damaged(0, at, errors.New("the frame is damaged; the rest is left out"))
			return nil
		case d.budget.Spent():
			return ErrTooLarge
		}
		n := int64(binary.BigEndian.Uint32(head))
		if n > int64(d.maximum) {
			d.damaged(0, at, d.tooLarge(n))
			s.skip(4 + n)
			continue
		}
		body, err := s.peek(4 + int(n))[4:], error(nil)
		if len(body) < int(n) {
			return d.end(s, 0)
		}
		s.skip(4 + n) // body stays until the next read
		if packed {
			body, err = d.unpackFrame(body)
		}
		if err != nil {
			d.damaged(0, at, fmt.Errorf("%d bytes are damaged and left out: %w", 4+n, err))
			continue
		}
		d.frame, d.inFrame = at, true
		err = d.read(&source{r: d.budget.Reader(bytes.NewReader(body))})
		if d.inFrame = false; err != nil {
			d.damaged(0, at, err)
		}
	}
	return nil
}

// unpackFrame returns the content of a frame of Zstandard, which must not be read before its checksum.
func (d *decoder) unpackFrame(frame []byte) (content []byte, err error) {
	if d.zstd == nil {
		d.zstd, err = newZstd(nil, zstd.WithDecoderMaxMemory(uint64(max(d.maximum, maxWindow))))
		if err != nil {
			return nil, err
		}
	}
	content, err = d.zstd.DecodeAll(frame, nil)
	switch {
	case len(content) > d.maximum || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, d.tooLarge(0)
	case err != nil:
		return nil, fmt.Errorf("unpack zstd: %w", err)
	}
	return content, nil
}
