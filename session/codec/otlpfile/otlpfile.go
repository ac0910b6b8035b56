// Package otlpfile reads files of OTLP: what a collector's file exporter wrote, what a program posted, or what was
// captured on the way. It decides by the content, never by a name, what it has before it:
//
//   - JSON: one body, bodies one after the other with or without newlines between
//     them, or an array of them; with {"resourceSpans": …}, {"resourceLogs": …} or
//     both, in camelCase or snake_case, also in a {"result": …} or {"trace": …} as
//     Jaeger and Tempo answer;
//   - protobuf: ExportTraceServiceRequest, ExportLogsServiceRequest, or many of them
//     one after the other;
//   - frames: each body after its length, in four bytes, most significant first, as
//     the file exporter writes with "format: proto" or "compression: zstd".
//
// A file of any of these that is compressed as a whole is read from what [Unpack] returns. A byte order mark is
// skipped. Metrics and profiles are named and left out.
//
// [Traces] and [Logs] return what an OTLP exporter would send and a receiver would decode of spans and log records of
// the OpenTelemetry SDK, without an encoding in between. [Spans] and [Records] convert stored pdata back to spans and
// records for any exporter of the SDK.
package otlpfile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

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
	// Budget, if it is set, limits what is unpacked.
	Budget *Budget
}

// Body is one OTLP body, or one resource of it where protobuf makes them one after the other anyway.
type Body struct {
	// Traces and Logs hold what was in the body. They are never nil, but may be empty. The caller owns them.
	Traces ptrace.Traces
	Logs   plog.Logs
	// Skipped is "metrics" or "profiles" when the body held some.
	Skipped string
	// Offset is where the body begins, in bytes.
	Offset int64
}

// DamagedError is a piece of the input that could not be read. What follows it was,
// unless nothing in the input shows where that begins.
type DamagedError struct {
	// Line is where the piece begins, from 1, or 0 where there are no lines. Offset counts bytes from 0.
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

// Read yields the bodies in r in their order, one at a time. The sequence can be ranged over once, and is read to no
// further than the body last yielded, save for a buffer.
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
		if err := d.read(&source{r: r}); err != nil && !d.stopped {
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
	// frame is the place of the frame that is being read, and inFrame reports that there is
	// one: its content knows of no other place.
	frame   int64
	inFrame bool
	zstd    *zstd.Decoder // of frames
}

func (d *decoder) give(b Body) {
	d.recognized = true
	if d.inFrame {
		b.Offset = d.frame
	}
	d.stopped = d.stopped || !d.yield(b, nil)
}

func (d *decoder) damaged(line int, offset int64, err error) {
	if d.inFrame {
		line, offset = 0, d.frame
	}
	d.stopped = d.stopped || !d.yield(Body{}, &DamagedError{line, offset, err})
}

func (d *decoder) tooLarge(n int64) error {
	if n > 0 {
		return fmt.Errorf("a body of %d bytes is larger than the limit of %d", n, d.maximum)
	}
	return fmt.Errorf("a body is larger than the limit of %d bytes", d.maximum)
}

// source is a reader with a buffer as large as what is looked at, which knows where it is.
type source struct {
	r      io.Reader
	buf    []byte // what was read, from offset on
	offset int64
	err    error // why nothing more can be read
}

// peek returns the next n bytes, or fewer if the input ends before. They are valid until the next call.
func (s *source) peek(n int) []byte {
	for len(s.buf) < n && s.err == nil {
		// The buffer grows with what there is, not with what was announced.
		s.buf = slices.Grow(s.buf, min(max(n-len(s.buf), 64<<10), 1<<20))
		var k int
		k, s.err = s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+k]
	}
	return s.buf[:min(n, len(s.buf))]
}

// skip discards n bytes, or as many as there are.
func (s *source) skip(n int64) {
	for n > 0 && len(s.peek(1)) > 0 {
		k := min(n, int64(len(s.buf)))
		s.buf, s.offset, n = s.buf[k:], s.offset+k, n-k
	}
}

// end is called where s has less than is needed. It reports an input that ends within a body, and returns the
// error of one that cannot be read.
func (d *decoder) end(s *source, line int) error {
	switch {
	case !errors.Is(s.err, io.EOF) && !errors.Is(s.err, io.ErrUnexpectedEOF):
		return s.err
	case len(s.buf) > 0 && d.inFrame:
		d.damaged(line, s.offset, errors.New("the body in the frame is cut off"))
	case len(s.buf) > 0:
		d.damaged(line, s.offset, ErrCut)
	}
	s.buf, s.err = nil, io.EOF // it is reported once
	return nil
}

// read reads what s has, of whatever kind it is.
func (d *decoder) read(s *source) error {
	head := s.peek(64)
	if bytes.HasPrefix(head, []byte("\uFEFF")) {
		s.skip(3)
		head = s.peek(64)
	}
	if len(head) == 0 {
		return d.end(s, 0)
	}
	switch kind := framing(head, d.maximum); {
	case kind == "json":
		return d.readJSON(s)
	case kind == "protobuf":
		return d.readProto(s)
	case kind == "frames" && !d.inFrame:
		return d.readFrames(s)
	case kind == "empty":
		return nil
	case d.inFrame: // the next one may be OTLP
		d.damaged(0, s.offset, errors.New("it is neither a body in JSON nor one in protobuf"))
		return nil
	}
	what := strings.Replace(http.DetectContentType(head), "; charset=", " in ", 1)
	if strings.Contains(what, " in utf-16") {
		what += "; convert it to UTF-8"
	}
	return fmt.Errorf("%w: it is %s", ErrFormat, what)
}

// Compression names what a content that begins with head is packed with, gzip or zstd, or "".
func Compression(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		return "zstd"
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18:
		return "zstd" // a frame that is to be skipped comes first
	}
	return ""
}

// Unpack returns what r unpacks to, which is packed with a kind of [Compression].
func Unpack(kind string, r io.Reader) (io.Reader, error) {
	if kind == "gzip" {
		return gzip.NewReader(r)
	}
	return newZstd(r)
}

// newZstd has one goroutine, so that nobody has to close it, and windows as large as zstd --long=28 makes them.
func newZstd(r io.Reader, more ...zstd.DOption) (*zstd.Decoder, error) {
	return zstd.NewReader(r, append(more, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))...)
}

const maxWindow = 256 << 20

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
	case len(head) > 4 && head[0] < ' ' && binary.BigEndian.Uint32(head) > 0 && // what is longer may be a word
		(head[4] == '{' || head[4] == tagResource || Compression(head[4:]) != ""):
		return "frames"
	}
	return ""
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
	first := byte(0)
	if rest := head[1+k:]; len(rest) > 0 {
		first = rest[0]
	}
	switch head[0] {
	case 0x0a, 0x12: // the resource, or a scope with its spans, records or metrics
		return inner == 0 || bytes.IndexByte([]byte{0x0a, 0x10, 0x12, 0x1a}, first) >= 0
	case 0x1a: // the URL of a schema
		return inner > 0 && first > ' '
	}
	return false
}

// SniffSize is how much of a file Sniff needs, for a block of zstd unpacks as a whole.
const SniffSize = 256 << 10

// Sniff reports whether a file that begins with head is OTLP by the look of it. Head
// is as it is in the file, compressed and all: SniffSize bytes, or all there are.
func Sniff(head []byte) bool {
	if kind := Compression(head); kind != "" {
		if r, err := Unpack(kind, bytes.NewReader(head)); err == nil {
			head, _ = io.ReadAll(io.LimitReader(r, SniffSize)) // it is cut off
		}
	}
	head = bytes.TrimPrefix(head, []byte("\uFEFF"))
	if len(head) == 0 {
		return false
	}
	switch framing(head, DefaultMaxBody) {
	case "json":
		for key := range FirstObject(bytes.TrimLeft(head, " \t\r\n[")) {
			if signals[key] != "" {
				return true
			}
		}
	case "protobuf", "frames":
		return true
	}
	return false
}

// ErrTooLarge is the error of what takes more memory than its [Budget] has.
var ErrTooLarge = errors.New("it is too large to be unpacked and decoded at once")

// Budget limits the memory that files take which somebody else sent: a small one may unpack to any size, and short
// values of JSON take many times their text. Nil is no limit. It is used by one goroutine.
type Budget struct {
	// Left is how many bytes there are still; it is negative when there are none.
	Left int64
}

// valueCost is how many bytes a value of JSON takes beside its text, roughly.
const valueCost = 64

// Reader returns a reader of what r has, which ends with [ErrTooLarge] when the budget is spent.
func (b *Budget) Reader(r io.Reader) io.Reader {
	if b == nil {
		return r
	}
	return &budgeted{r, b}
}

// Spent reports whether more was read than there was.
func (b *Budget) Spent() bool { return b != nil && b.Left < 0 }

type budgeted struct {
	r      io.Reader
	budget *Budget
}

// Read implements [io.Reader].
func (b *budgeted) Read(p []byte) (int, error) {
	if b.budget.Spent() {
		return 0, ErrTooLarge
	}
	n, err := b.r.Read(p)
	values := 0
	for _, before := range []string{",", "[", "{"} {
		values += bytes.Count(p[:n], []byte(before))
	}
	b.budget.Left -= int64(n) + valueCost*int64(values)
	return n, err
}
