// Package otlpfile reads files of OTLP: what a collector's file exporter wrote, what
// a program posted, or what was captured on the way. It decides by the content,
// never by a name, what it has before it:
//
//   - JSON: one body, bodies one after the other with or without newlines between
//     them, or an array of them; with {"resourceSpans": …}, {"resourceLogs": …} or
//     both, in camelCase or snake_case, also in a {"result": …} or {"trace": …} as
//     Jaeger and Tempo answer;
//   - protobuf: ExportTraceServiceRequest, ExportLogsServiceRequest, or many of them
//     one after the other;
//   - frames: each body after its length, in four bytes, most significant first, as
//     the file exporter writes with "format: proto" or "compression: zstd";
//   - any of these in gzip or zstd, the frames too.
//
// A byte order mark is skipped. Metrics and profiles are named and left out.
//
// [Traces] and [Logs] return what an OTLP exporter would send and a receiver would decode of spans and log records of the
// OpenTelemetry SDK, without an encoding in between. [Spans] and [Records] convert stored pdata back to spans and records
// for any exporter of the SDK.
package otlpfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// DefaultMaxBody is the size of the largest body that is read by default.
const DefaultMaxBody = 256 << 20

// Options configure [Read]. The zero value is ready for use.
type Options struct {
	// MaxBody limits a body, in bytes after decompression: a larger one is passed
	// over. 0 means DefaultMaxBody. Memory is bounded by a small multiple of it.
	MaxBody int
	// Packed states that the input is frames of Zstandard, as [AppendFrame] writes them, even if its beginning is
	// damaged.
	Packed bool
	// Budget, if it is set, limits what is unpacked.
	Budget *Budget
}

// Body is one OTLP body, or one resource of it where protobuf makes them one
// after the other anyway.
type Body struct {
	// Traces and Logs hold what was in the body. They are never nil, but may be
	// empty. The caller owns them.
	Traces ptrace.Traces
	Logs   plog.Logs
	// Skipped is "metrics" or "profiles" when the body held some.
	Skipped string
	// Line is where the body begins, from 1, or 0 where there are no lines. Offset
	// counts bytes from 0. Both are of what a compressed file unpacks to.
	Line   int
	Offset int64
}

// DamagedError is a piece of the input that could not be read. What follows it was,
// unless nothing in the input shows where that begins.
type DamagedError struct {
	// Line and Offset are as in Body.
	Line   int
	Offset int64
	Err    error
}

func (e *DamagedError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("byte %d: %v", e.Offset, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// ErrFormat is wrapped by the error that Read yields for what is not OTLP.
var ErrFormat = errors.New("not OTLP")

// ErrCut is wrapped by the [*DamagedError] for an input that ends within a body, as when its writer was killed.
var ErrCut = errors.New("the input is cut off")

// Read yields the bodies in r in their order, one at a time. The sequence can be
// ranged over once, and is read to no further than the body last yielded, save for
// a buffer.
//
// Edge cases:
//   - an empty input yields nothing;
//   - a [*DamagedError] stands for a piece that cannot be read: a line that was cut
//     off, a body larger than the limit, a body with an id that is none. Reading
//     goes on;
//   - any other error ends the sequence: that of r, or one that wraps [ErrFormat];
//   - a body comes with no error, and an error with no body.
func Read(r io.Reader, o Options) iter.Seq2[Body, error] {
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	return func(yield func(Body, error) bool) {
		d := decoder{maximum: o.MaxBody, budget: o.Budget, yield: yield}
		read := d.read
		if o.Packed {
			read = d.readPacked
		}
		if err := read(newSource(r, -1), 0); err != nil && !d.stopped {
			yield(Body{}, err)
		}
	}
}

// decoder gives bodies to yield until that has enough.
type decoder struct {
	maximum int
	budget  *Budget
	yield   func(Body, error) bool
	stopped bool
	// recognized reports that there has been OTLP in the input.
	recognized bool
	// frame is the place of the frame that is being read, and reports that there is
	// one: its content knows of no other place.
	frame   int64
	inFrame bool
	buf     []byte
	zstd    *zstd.Decoder // of frames
	again   int           // how many bytes of damaged frames were read again
}

func (d *decoder) give(b Body) {
	d.recognized = true
	if d.inFrame {
		b.Line, b.Offset = 0, d.frame
	}
	d.stopped = d.stopped || !d.yield(b, nil)
}

func (d *decoder) damaged(line int, offset int64, err error) {
	if d.inFrame {
		line, offset = 0, d.frame
	}
	d.stopped = d.stopped || !d.yield(Body{}, &DamagedError{line, offset, err})
}

// source is a buffered reader that knows where it is.
type source struct {
	*bufio.Reader
	raw    io.Reader // what the buffer is filled from
	offset int64
	// ended reports that the reason why nothing more can be read was reported.
	ended bool
}

// newSource buffers r, of which size bytes are known to be there, or -1.
func newSource(r io.Reader, size int) *source {
	const maximum = 64 << 10
	if size < 0 || size > maximum {
		size = maximum
	}
	raw := struct{ io.Reader }{r} // so that the buffer is never that of the caller
	return &source{Reader: bufio.NewReaderSize(raw, max(size, 64)), raw: raw}
}

// skip discards n bytes, or as many as there are.
func (s *source) skip(n int64) (err error) {
	for n > 0 && err == nil {
		var k int
		k, err = s.Discard(int(min(n, 1<<30)))
		n, s.offset = n-int64(k), s.offset+int64(k)
	}
	return err
}

// fill reads n bytes to the end of dst, which grows with what there is, not with
// what was announced.
func (s *source) fill(dst []byte, n int) ([]byte, error) {
	for n > 0 {
		chunk := min(n, 1<<20)
		from := len(dst)
		dst = append(dst, make([]byte, chunk)...)
		k, err := io.ReadFull(s, dst[from:])
		s.offset += int64(k)
		dst, n = dst[:from+k], n-k
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// layers is how many times one thing may be packed into another.
const layers = 4

// read reads what s has, of whatever kind it is.
func (d *decoder) read(s *source, layer int) error {
	head, err := s.Peek(4)
	if len(head) == 0 {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return d.cut(s, 0, err)
	}
	if kind := compression(head); kind != "" {
		if layer == layers {
			return fmt.Errorf("%w: packed more than %d times", ErrFormat, layers)
		}
		unpacked, done, err := unpack(kind, s)
		if err != nil {
			return d.cut(s, 0, err)
		}
		defer done()
		return d.read(newSource(d.budget.Reader(unpacked), -1), layer+1)
	}
	if bytes.HasPrefix(head, []byte("\uFEFF")) {
		if err := s.skip(3); err != nil {
			return err
		}
	}
	head, err = s.Peek(64)
	if err != nil && !errors.Is(err, io.EOF) && len(head) == 0 {
		return d.cut(s, 0, err)
	}
	switch kind := framing(head, d.maximum); kind {
	case "json":
		return d.readJSON(s)
	case "protobuf":
		return d.readProto(s)
	case "frames":
		if d.inFrame {
			return d.refuse(s, head)
		}
		if isMark(head) {
			return d.readPacked(s, layer)
		}
		return d.readFrames(s, layer)
	case "":
		return d.refuse(s, head)
	}
	return nil // nothing but white space
}

// refuse ends the reading of what is not OTLP. In a frame, the next one may be.
func (d *decoder) refuse(s *source, head []byte) error {
	err := fmt.Errorf("%w: %s", ErrFormat, kindOf(head))
	if d.inFrame {
		d.damaged(0, s.offset, errors.New("it is neither a body in JSON nor one in protobuf"))
		return nil
	}
	return err
}

// cut reports an input that ends too early, once, however often the end is met. It returns the error of one that
// cannot be read.
func (d *decoder) cut(s *source, line int, err error) error {
	var unpacking *unpackError
	ended := s.ended
	s.ended = true
	switch {
	case ended:
	case errors.As(err, &unpacking):
		d.damaged(line, s.offset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err := ErrCut
		if d.inFrame {
			err = errors.New("the body in the frame is cut off")
		}
		d.damaged(line, s.offset, err)
	default:
		return err
	}
	return nil
}

// compression names what the content is packed with, or "".
func compression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18:
		return "zstd" // a frame that is to be skipped comes first
	}
	return ""
}

// unpackError is what is wrong with a compressed stream.
type unpackError struct {
	kind string
	err  error
}

func (e *unpackError) Error() string {
	if errors.Is(e.err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("the %s stream is cut off", e.kind)
	}
	return fmt.Sprintf("unpack %s: %v", e.kind, e.err)
}

func (e *unpackError) Unwrap() error { return e.err }

// unpack returns what r unpacks to. done must be called.
func unpack(kind string, r io.Reader) (_ io.Reader, done func(), err error) {
	origin := &origin{r: r}
	if kind == "gzip" {
		z, err := gzip.NewReader(origin)
		if err != nil {
			return nil, nil, origin.explain(kind, err)
		}
		return &unpacker{kind, z, origin}, func() { z.Close() }, nil
	}
	// One goroutine, and windows as large as zstd --long=28 makes them.
	z, err := zstd.NewReader(origin, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(256<<20))
	if err != nil {
		return nil, nil, origin.explain(kind, err)
	}
	return &unpacker{kind, z, origin}, z.Close, nil
}

// origin remembers the error of what is unpacked, which is not one of unpacking.
type origin struct {
	r   io.Reader
	err error
}

func (o *origin) Read(b []byte) (int, error) {
	n, err := o.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err
}

func (o *origin) explain(kind string, err error) error {
	if o.err != nil {
		return o.err
	}
	return &unpackError{kind, err}
}

type unpacker struct {
	kind   string
	r      io.Reader
	origin *origin
}

func (u *unpacker) Read(b []byte) (int, error) {
	n, err := u.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.origin.explain(u.kind, err)
	}
	return n, err
}

// framing states how the bodies are in the content: json, protobuf, frames,
// "empty" for white space, or "" for what is not OTLP.
//
// The first byte of a body in protobuf, its tag, is a newline in text. What follows is
// none of text. A frame of less than 16 MiB begins with 00, which neither of the others does.
func framing(head []byte, maximum int) string {
	if len(head) > 1 && head[0] == tagResource {
		if n, k := binary.Uvarint(head[1:]); k > 0 && n <= uint64(maximum) && beginsResource(head[1+k:], n) {
			return "protobuf"
		}
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) == 0:
		return "empty"
	case text[0] == '{' || text[0] == '[':
		if len(text) == 1 || bytes.IndexByte([]byte("{}[]\" \t\r\n"), text[1]) >= 0 {
			return "json"
		}
	case len(head) > 4 && binary.BigEndian.Uint32(head) > 0 && !isText(head[:4], maximum) &&
		(head[4] == '{' || head[4] == tagResource || compression(head[4:]) != ""):
		return "frames"
	}
	return ""
}

// isText reports whether what may be the length of a frame is a word, such as the null
// of JSON before a newline, which as a length is above 500 MB.
func isText(head []byte, maximum int) bool {
	for _, c := range head {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return uint64(binary.BigEndian.Uint32(head)) > uint64(maximum)
}

// beginsResource reports whether head may begin the spans, log records or metrics of a
// resource, of n bytes: by their first tag and the first tag within that.
func beginsResource(head []byte, n uint64) bool {
	if n == 0 || len(head) == 0 {
		return n == 0
	}
	inner, k := binary.Uvarint(head[1:])
	if k <= 0 || inner > n-1 {
		return false
	}
	rest := head[1+k:]
	first := byte(0)
	if len(rest) > 0 {
		first = rest[0]
	}
	switch head[0] {
	case 0x0a: // the resource: its attributes, how many were dropped, its entities
		return first == 0x0a || first == 0x10 || first == 0x1a || inner == 0 && (first == 0x12 || uint64(k) == n-1)
	case 0x12: // a scope with its spans, records or metrics
		return first == 0x0a || first == 0x12 || first == 0x1a || inner == 0
	case 0x1a: // the URL of a schema
		return inner > 0 && first > ' '
	}
	return false
}

// readFrames reads bodies that are after their lengths.
func (d *decoder) readFrames(s *source, layer int) error {
	for !d.stopped {
		at := s.offset
		var head [4]byte
		k, err := io.ReadFull(s, head[:])
		s.offset += int64(k)
		n := uint64(binary.BigEndian.Uint32(head[:]))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.cut(s, 0, err)
		}
		if n > uint64(d.maximum) {
			if err := d.passOver(s, at, n); err != nil {
				return d.cut(s, 0, err)
			}
			continue
		}
		frame, err := s.fill(nil, int(n))
		if err != nil {
			s.offset = at
			return d.cut(s, 0, err)
		}
		d.readFrame(frame, layer, at)
	}
	return nil
}

// passOver skips a body of n bytes, which is larger than the limit.
func (d *decoder) passOver(s *source, at int64, n uint64) error {
	size := int64(min(n, 1<<62))
	d.damaged(0, at, d.tooLarge(size))
	err := s.skip(size)
	s.ended = s.ended || errors.Is(err, io.EOF) // its end was to come, too
	return err
}

// uvarint reads a varint, or io.EOF where there is nothing.
func (d *decoder) uvarint(s *source) (uint64, error) {
	before := s.offset
	n, err := binary.ReadUvarint(byteCounter{s})
	if errors.Is(err, io.EOF) && s.offset > before {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

type byteCounter struct{ s *source }

func (c byteCounter) ReadByte() (byte, error) {
	b, err := c.s.ReadByte()
	if err == nil {
		c.s.offset++
	}
	return b, err
}

func (d *decoder) tooLarge(n int64) error {
	if n > 0 {
		return fmt.Errorf("a body of %d bytes is larger than the limit of %d", n, d.maximum)
	}
	return fmt.Errorf("a body is larger than the limit of %d bytes", d.maximum)
}

// SniffSize is how much of a file Sniff needs, for a block of zstd unpacks as a whole.
const SniffSize = 256 << 10

// Sniff reports whether a file that begins with head is OTLP by the look of it. Head
// is as it is in the file, compressed and all: SniffSize bytes, or all there are.
func Sniff(head []byte) bool {
	for range layers {
		kind := compression(head)
		if kind == "" {
			break
		}
		r, done, err := unpack(kind, bytes.NewReader(head))
		if err != nil {
			return false
		}
		inner := make([]byte, SniffSize)
		n, _ := io.ReadFull(r, inner) // the head of a stream ends too early
		done()
		head = inner[:n]
	}
	head = bytes.TrimPrefix(head, []byte("\uFEFF"))
	if len(head) == 0 {
		return false
	}
	switch framing(head, DefaultMaxBody) {
	case "json":
		for _, key := range jsonKeys(bytes.TrimLeft(head, " \t\r\n["), 32) {
			if signalOf(key) != "" {
				return true
			}
		}
	case "protobuf", "frames":
		return true
	}
	return false
}
