package otlpfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agenttrace/agenttrace/internal/nesting"
)

// readJSON reads bodies in JSON. White space, commas and the brackets of an array may be between them.
//
// Where a body breaks off, the next one is looked for at the beginning of a line:
// JSON has no newline within a string, and no body within a body.
func (d *decoder) readJSON(s *source) error {
	line := 1
	for !d.stopped && len(s.peek(1)) > 0 {
		switch c := s.buf[0]; {
		case c == '{':
			if err := d.readObject(s, &line); err != nil {
				return err
			}
		case bytes.IndexByte([]byte(" \t\r\n,[]\x1e"), c) >= 0:
			if c == '\n' {
				line++
			}
			s.skip(1)
		default:
			d.damaged(line, s.offset, errors.New("text that is not a JSON object; it is left out"))
			s.nextLine(&line)
		}
	}
	if d.stopped {
		return nil
	}
	return d.end(s, line)
}

// nextLine goes on to a line that begins with an object.
func (s *source) nextLine(line *int) {
	for len(s.peek(1)) > 0 {
		i := bytes.IndexByte(s.buf, '\n')
		if i < 0 {
			s.skip(int64(len(s.buf)))
			continue
		}
		s.skip(int64(i) + 1)
		*line++
		if next := s.peek(1); len(next) > 0 && next[0] == '{' {
			return
		}
	}
}

// scanner finds where a JSON value ends.
type scanner struct {
	depth             int
	inString, escaped bool
}

// take reads up to the end of the value or of the line, and states how many bytes that is.
func (v *scanner) take(chunk []byte) (n int, end, newline bool) {
	for n < len(chunk) && !end && !newline {
		c := chunk[n]
		n++
		switch {
		case c == '\n':
			newline = true
		case v.escaped:
			v.escaped = false
		case v.inString:
			v.escaped, v.inString = c == '\\', c != '"'
		case c == '"':
			v.inString = true
		case c == '{' || c == '[':
			v.depth++
		case c == '}' || c == ']':
			v.depth--
			end = v.depth == 0
		}
	}
	return n, end, newline
}

// readObject reads one object and gives what it holds.
func (d *decoder) readObject(s *source, line *int) error {
	begin, at := *line, s.offset
	var scan scanner
	size := 0 // of the object, as far as it is in the buffer
	for end, newline := false, false; !end; {
		if len(s.peek(size+1)) == size {
			if !errors.Is(s.err, io.EOF) {
				return d.end(s, begin)
			}
			d.damaged(begin, at, errCutBody)
			s.skip(int64(size))
			return nil
		}
		var n int
		n, end, newline = scan.take(s.buf[size:])
		size += n
		if newline {
			*line++
			if scan.inString || bodyBegins(s.peek(size + 32)[size:]) {
				d.damaged(begin, at, errCutBody)
				s.skip(int64(size))
				return nil
			}
		}
		if s.offset+int64(size)-at > int64(d.maximum) { // it is only counted from here on
			s.skip(int64(size))
			size = 0
		}
	}
	body := s.buf[:size]
	s.skip(int64(size)) // body stays until the next read
	if total := s.offset - at; total > int64(d.maximum) {
		d.damaged(begin, at, fmt.Errorf("%w; it is left out", d.tooLarge(total)))
		return nil
	}
	if _, err := nesting.JSON(body, 0); err != nil { // the decoder recurses
		d.damaged(begin, at, fmt.Errorf("%w; it is left out", err))
		return nil
	}
	return d.decodeJSON(body, begin, at)
}

var errCutBody = errors.New("the body is cut off; it is left out")

// bodyBegins reports whether the line that begins so is the beginning of a body.
func bodyBegins(line []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte(`{"`))
	key, _, ended := bytes.Cut(rest, []byte(`"`))
	return ok && ended && signals[string(key)] != ""
}

// signals names what the keys of a body hold.
var signals = map[string]string{
	"resourceSpans": "traces", "resource_spans": "traces", "resourceLogs": "logs", "resource_logs": "logs",
	"resourceMetrics": "metrics", "resource_metrics": "metrics",
	"resourceProfiles": "profiles", "resource_profiles": "profiles",
}

func (d *decoder) decodeJSON(raw []byte, line int, at int64) error {
	keys := FirstObject(raw)
	if keys["result"] == "{" || keys["trace"] == "{" {
		var answer struct{ Result, Trace json.RawMessage }
		_ = json.Unmarshal(raw, &answer) // what is not JSON is no answer
		raw = []byte(cmp.Or(string(answer.Result), string(answer.Trace)))
		keys = FirstObject(raw)
	}
	b := Body{Traces: ptrace.NewTraces(), Logs: plog.NewLogs(), Offset: at}
	known := len(keys) == 0
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var err error
		switch signal := signals[key]; signal {
		case "traces":
			known = true
			b.Traces, err = tryDecode((&ptrace.JSONUnmarshaler{}).UnmarshalTraces, raw)
		case "logs":
			known = true
			b.Logs, err = tryDecode((&plog.JSONUnmarshaler{}).UnmarshalLogs, raw)
		case "":
			known = known || key == "partialSuccess" || key == "partial_success"
		default:
			known = true
			b.Skipped = signal
		}
		if err != nil {
			d.recognized = true
			d.damaged(line, at, fmt.Errorf("%w; the body is left out", err))
			return nil
		}
	}
	switch {
	case known:
		d.give(b)
	case d.recognized || d.inFrame:
		d.damaged(line, at, errors.New("an object without resourceSpans and resourceLogs; it is left out"))
	default:
		return fmt.Errorf("%w: %s", ErrFormat, otherJSON)
	}
	return nil
}

// tryDecode decodes a body. A decoder that panics has met damage that it does not know.
func tryDecode[T any](decode func([]byte) (T, error), raw []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode the body: %v", p)
		}
	}()
	v, err = decode(raw)
	if err != nil {
		// The decoder quotes what is around, twice, which is anybody's text.
		what, _, _ := strings.Cut(err.Error(), ", error found in #")
		err = fmt.Errorf("decode the body: %s", strings.ToValidUTF8(what[:min(len(what), 200)], ""))
	}
	return v, err
}

// otherJSON states what a JSON file is that is not OTLP, such as one of Jaeger's UI, and what to do.
const otherJSON = "it is JSON of another kind; of Jaeger (/api/v3/traces/TRACE_ID) and Tempo (as protobuf) take OTLP"

// FirstObject returns the keys of the first JSON object in head, which may be cut off, with their values where they are
// strings, and else what they begin with: {, [ or nothing.
func FirstObject(head []byte) map[string]string {
	keys := make(map[string]string)
	d := jsontext.NewDecoder(bytes.NewBuffer(head), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() == '[' {
		_, _ = d.ReadToken()
	}
	if d.PeekKind() != '{' {
		return keys
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == '"' {
		var key jsontext.Token
		if key, err = d.ReadToken(); err != nil {
			break
		}
		name, kind := key.String(), d.PeekKind()
		isList := kind == '{' || kind == '['
		if isList {
			keys[name] = kind.String() // it may be cut off
		}
		var value jsontext.Value
		if value, err = d.ReadValue(); err == nil && !isList {
			text, _ := jsontext.AppendUnquote(nil, value) // nothing of what is no string
			keys[name] = string(text)
		}
	}
	return keys
}

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
