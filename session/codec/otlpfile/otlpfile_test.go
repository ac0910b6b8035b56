package otlpfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

const captures = "../../ingest/testdata/captures/*/*/*.json"

// body is a captured request.
type body struct {
	name   string
	json   []byte
	proto  []byte
	traces ptrace.Traces
	logs   plog.Logs
}

func captured(t testing.TB) []body {
	t.Helper()
	names, err := filepath.Glob(captures)
	if err != nil || len(names) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var all []body
	for _, name := range names {
		raw := testscale.ReadFile(t, name)
		b := body{name: name, json: bytes.TrimSpace(raw), traces: ptrace.NewTraces(), logs: plog.NewLogs()}
		if strings.HasSuffix(name, "-traces.json") {
			if b.traces, err = (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw); err == nil {
				b.proto, err = (&ptrace.ProtoMarshaler{}).MarshalTraces(b.traces)
			}
		} else if b.logs, err = (&plog.JSONUnmarshaler{}).UnmarshalLogs(raw); err == nil {
			b.proto, err = (&plog.ProtoMarshaler{}).MarshalLogs(b.logs)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, b)
	}
	return all
}

// contents is what reading gave: all that was in the bodies, as JSON, and the damages.
type contents struct {
	Spans, Records []string
	Skipped        []string
	Damaged        []string
	Err            string
}

func (g *contents) add(td ptrace.Traces, ld plog.Logs) {
	for _, rs := range td.ResourceSpans().All() {
		one := ptrace.NewTraces()
		rs.CopyTo(one.ResourceSpans().AppendEmpty())
		raw, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(one)
		g.Spans = append(g.Spans, string(raw))
	}
	for _, rl := range ld.ResourceLogs().All() {
		one := plog.NewLogs()
		rl.CopyTo(one.ResourceLogs().AppendEmpty())
		raw, _ := (&plog.JSONMarshaler{}).MarshalLogs(one)
		g.Records = append(g.Records, string(raw))
	}
}

func readAll(r io.Reader, o Options) contents {
	var g contents
	for b, err := range Read(r, o) {
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged):
			g.Damaged = append(g.Damaged, err.Error())
		case err != nil:
			g.Err = err.Error()
		default:
			g.add(b.Traces, b.Logs)
			if b.Skipped != "" {
				g.Skipped = append(g.Skipped, b.Skipped)
			}
		}
	}
	return g
}

func gzipped(raw []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(raw)
	w.Close()
	return b.Bytes()
}

var encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))

func zstded(raw []byte) []byte { return encoder.EncodeAll(raw, nil) }

func framed(raw []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

func same(b []byte) []byte { return b }

func lines(b []byte) []byte { return append(b[:len(b):len(b)], '\n') }

// TestContainers puts captured requests into everything that they may come in.
func TestContainers(t *testing.T) {
	bodies := captured(t)
	var want contents
	for _, b := range bodies {
		want.add(b.traces, b.logs)
	}
	if len(want.Spans) == 0 || len(want.Records) == 0 {
		t.Fatal("the captures lack spans or records")
	}
	asJSON, asProto := func(b body) []byte { return b.json }, func(b body) []byte { return b.proto }
	inner := []struct {
		name string
		of   func(body) []byte
		wrap func([]byte) []byte
	}{
		{"JSON lines", asJSON, lines},
		{"JSON concatenated", asJSON, same},
		{"JSON with CRLF", asJSON, func(b []byte) []byte { return append(b[:len(b):len(b)], '\r', '\n', '\r', '\n') }},
		{"JSON frames", asJSON, framed},
		{"JSON frames in zstd", asJSON, func(b []byte) []byte { return framed(zstded(b)) }},
		{"protobuf concatenated", asProto, same},
		{"protobuf frames", asProto, framed},
		{"protobuf frames in zstd", asProto, Frame},
	}
	outer := map[string]func([]byte) []byte{
		"": same, "gzip": gzipped, "zstd": zstded,
	}
	for _, in := range inner {
		var file []byte
		for _, b := range bodies {
			file = append(file, in.wrap(in.of(b))...)
		}
		for name, pack := range outer {
			packed := pack(file)
			if !Sniff(packed[:min(len(packed), SniffSize)]) {
				t.Errorf("%s, %s: not recognized", in.name, name)
			}
			r, err := io.Reader(bytes.NewReader(packed)), error(nil)
			if kind := Compression(packed); kind != name {
				t.Errorf("%s, %s: it is %q", in.name, name, kind)
			} else if kind != "" {
				if r, err = Unpack(kind, r); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(want, readAll(iotest.HalfReader(r), Options{})); d != "" {
				t.Errorf("%s, %s: %s", in.name, name, d[:min(len(d), 2000)])
			}
		}
	}
	// Each body by itself: what is first in a file decides how it is read.
	for _, b := range bodies {
		var want contents
		want.add(b.traces, b.logs)
		for _, in := range inner {
			file := in.wrap(in.of(b))
			if !Sniff(file[:min(len(file), 512)]) {
				t.Errorf("%s, %s: not recognized", b.name, in.name)
			}
			if d := cmp.Diff(want, readAll(bytes.NewReader(file), Options{})); d != "" {
				t.Errorf("%s, %s: %s", b.name, in.name, d[:min(len(d), 2000)])
			}
		}
	}
}

// TestSignals distinguishes spans, records and metrics in protobuf, down to those that
// say next to nothing.
func TestSignals(t *testing.T) {
	for name, make := range map[string]func(ptrace.Span){
		"ids":       func(s ptrace.Span) { s.SetTraceID([16]byte{1}); s.SetSpanID([8]byte{2}) },
		"name, end": func(s ptrace.Span) { s.SetName("x"); s.SetEndTimestamp(5) },
		"attributes": func(s ptrace.Span) {
			s.SetTraceID([16]byte{1})
			s.SetSpanID([8]byte{2})
			s.SetName("x")
			s.SetStartTimestamp(1)
			s.Attributes().PutStr("a", "b")
		},
	} {
		td := ptrace.NewTraces()
		make(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
		raw, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if got := readAll(bytes.NewReader(raw), Options{}); len(got.Spans) != 1 || len(got.Records) > 0 ||
			got.Err != "" || got.Damaged != nil {
			t.Errorf("span with %s: %+v", name, got)
		}
	}
	for name, make := range map[string]func(plog.LogRecord){
		"body":     func(r plog.LogRecord) { r.Body().SetStr("it was said") },
		"time":     func(r plog.LogRecord) { r.SetTimestamp(5) },
		"observed": func(r plog.LogRecord) { r.SetObservedTimestamp(5); r.SetEventName("e") },
		"attributes": func(r plog.LogRecord) {
			r.SetTraceID([16]byte{1})
			r.SetSpanID([8]byte{2})
			r.Attributes().PutStr("a", "b")
			r.SetSeverityNumber(9)
		},
	} {
		ld := plog.NewLogs()
		make(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
		raw, _ := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
		if got := readAll(bytes.NewReader(raw), Options{}); len(got.Records) != 1 || len(got.Spans) > 0 ||
			got.Err != "" || got.Damaged != nil {
			t.Errorf("record with %s: %+v", name, got)
		}
	}
	for name, make := range map[string]func(pmetric.Metric){
		"gauge":     func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1) },
		"sum":       func(m pmetric.Metric) { m.SetEmptySum().DataPoints().AppendEmpty().SetDoubleValue(1) },
		"histogram": func(m pmetric.Metric) { m.SetEmptyHistogram().DataPoints().AppendEmpty().SetCount(1) },
	} {
		md := pmetric.NewMetrics()
		m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("tokens")
		make(m)
		raw, _ := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
		text, _ := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
		for _, file := range [][]byte{raw, text} {
			if d := cmp.Diff(contents{Skipped: []string{"metrics"}},
				readAll(bytes.NewReader(file), Options{})); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

func span(name string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"000102030405060708090a0b0c0d0e0f",` +
		`"spanId":"0001020304050607","name":"` + name + `"}]}]}]}`
}

const record = `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"said"}}]}]}]}`

// TestJSON reads JSON as people and programs leave it behind.
func TestJSON(t *testing.T) {
	pretty := strings.NewReplacer("{", "{\n  ", "[", "[\n  ").Replace(span("a"))
	for name, tt := range map[string]struct {
		in             string
		spans, records int
		damaged        []string
		err            string
	}{
		"nothing":         {in: ""},
		"white space":     {in: " \n\n\t"},
		"byte order mark": {in: "\uFEFF" + span("a"), spans: 1},
		"pretty":          {in: pretty + "\n" + pretty, spans: 2},
		"pretty, newline": {in: "\n" + pretty, spans: 1},
		"array":           {in: "[" + span("a") + ",\n " + record + "]", spans: 1, records: 1},
		"snake case": {in: strings.NewReplacer("resourceSpans", "resource_spans", "scopeSpans", "scope_spans",
			"traceId", "trace_id").Replace(span("a")), spans: 1},
		"both": {in: `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}],` + span("a")[1:], spans: 1,
			records: 1},
		"Jaeger's API":     {in: `{"result":` + span("a") + `}`, spans: 1},
		"empty body":       {in: `{}` + "\n" + span("a"), spans: 1},
		"keys in a string": {in: span(`{\"resourceLogs\":[\\`), spans: 1},
		"cut line": {in: span("a") + "\n" + span("b")[:60] + "\n" + span("c") + "\n", spans: 2,
			damaged: []string{"line 2: the body is cut off; it is left out"}},
		"cut in a string": {in: span("a") + "\n" + span("b")[:130] + "\n" + span("c"), spans: 2,
			damaged: []string{"line 2: the body is cut off; it is left out"}},
		"cut at the end": {in: span("a") + "\n" + span("b")[:60], spans: 1,
			damaged: []string{"line 2: the body is cut off; it is left out"}},
		"no id": {in: span("a") + "\n" + strings.Replace(span("b"), "000102030405060708090a0b0c0d0e0f", "xyz", 1) +
			"\n" + span("c"), spans: 2,
			damaged: []string{"line 2: decode the body: ID.UnmarshalJSONIter: length mismatch; the body is left out"}},
		"other lines": {in: span("a") + "\nstarting\n" + `{"level":"info"}` + "\n" + span("c"), spans: 2,
			damaged: []string{"line 2: text that is not a JSON object; it is left out", "line 3: an object without " +
				"resourceSpans and resourceLogs; it is left out"}},
		"nested deep": {in: `{"resourceSpans":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}\n" +
			span("a"), spans: 1,
			damaged: []string{"line 1: a value of the request is nested deeper than 500 levels; it is left out"}},
		"value nested deep": {in: `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","attributes":[{"key":"k",` +
			`"value":` +
			strings.Repeat(`{"arrayValue":{"values":[`, 1_000_000) + strings.Repeat("]}}", 1_000_000) + "}]}]}]}]}\n" +
			span("b"), spans: 1,
			damaged: []string{"line 1: a value of the request is nested deeper than 500 levels; it is left out"}},
		"Jaeger": {in: `{"data":[{"traceID":"1","spans":[]}],"total":0}`, err: "not OTLP: " + otherJSON},
		"zip":    {in: "PK\x03\x04...", err: "not OTLP: it is application/zip"},
		"UTF-16": {in: "\xff\xfe{\x00", err: "not OTLP: it is text/plain in utf-16le; convert it to UTF-8"},
		"text":   {in: "Hello, here I am.", err: "not OTLP: it is text/plain in utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(iotest.OneByteReader(strings.NewReader(tt.in)), Options{})
			if len(got.Spans) != tt.spans || len(got.Records) != tt.records {
				t.Errorf("%d spans and %d records, want %d and %d", len(got.Spans), len(got.Records), tt.spans,
					tt.records)
			}
			if d := cmp.Diff(tt.damaged, got.Damaged); d != "" {
				t.Error(d)
			}
			if got.Err != tt.err {
				t.Errorf("error %q, want %q", got.Err, tt.err)
			}
		})
	}
}

// TestLimit passes over what is too large, wherever its size is.
func TestLimit(t *testing.T) {
	large, small := span(strings.Repeat("x", 1000)), span("a")
	proto := func(s string) []byte {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(s))
		testscale.Must(t, err)
		raw, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		return raw
	}
	join := func(all ...[]byte) string { return string(bytes.Join(all, nil)) }
	for name, tt := range map[string]struct{ in, damage string }{
		"JSON": {small + "\n" + large + "\n" + small, fmt.Sprintf("line 2: a body of %d bytes is larger than "+
			"the limit of 500; it is left out", len(large))},
		"frames":   {join(framed(proto(small)), framed(proto(large)), framed(proto(small))), ""},
		"protobuf": {join(proto(small), proto(large), proto(small)), ""},
	} {
		got := readAll(strings.NewReader(tt.in), Options{MaxBody: 500})
		if len(got.Spans) != 2 || len(got.Damaged) != 1 || got.Err != "" ||
			!strings.Contains(got.Damaged[0], "larger than the limit of 500") {
			t.Errorf("%s: %d spans, %q, %q", name, len(got.Spans), got.Damaged, got.Err)
		} else if tt.damage != "" && got.Damaged[0] != tt.damage {
			t.Errorf("%s: %q, want %q", name, got.Damaged[0], tt.damage)
		}
	}
}

// TestTruncated cuts files off: what is before is read, and one damage says so.
func TestTruncated(t *testing.T) {
	var bodies []body
	for _, b := range captured(t) {
		if len(b.json) < 8<<10 && len(bodies) < 4 {
			bodies = append(bodies, b)
		}
	}
	for name, wrap := range map[string]func(body) []byte{
		"JSON":           func(b body) []byte { return lines(b.json) },
		"protobuf":       func(b body) []byte { return b.proto },
		"frames":         func(b body) []byte { return framed(b.proto) },
		"frames in zstd": func(b body) []byte { return framed(zstded(b.json)) },
	} {
		var file []byte
		var ends []int
		for _, b := range bodies {
			file = append(file, wrap(b)...)
			ends = append(ends, len(file))
		}
		whole := readAll(bytes.NewReader(file), Options{})
		for cut := 1; cut < len(file); cut += 37 {
			got := readAll(bytes.NewReader(file[:cut]), Options{})
			if got.Err != "" && cut > 64 {
				t.Fatalf("%s cut at %d: %s", name, cut, got.Err)
			}
			if len(got.Damaged) > 1 {
				t.Fatalf("%s cut at %d: %q", name, cut, got.Damaged)
			}
			n := len(got.Spans) + len(got.Records)
			if n > len(whole.Spans)+len(whole.Records) {
				t.Fatalf("%s cut at %d: more than there is", name, cut)
			}
			complete := 0
			for complete < len(ends) && ends[complete] <= cut {
				complete++
			}
			if cut > 64 && n < complete {
				t.Fatalf("%s cut at %d: %d of %d bodies", name, cut, n, complete)
			}
			if atEnd := complete > 0 && ends[complete-1] == cut; cut > 64 && !atEnd && len(got.Damaged) != 1 &&
				cut < len(file)-1 && file[cut] != '\n' {
				t.Fatalf("%s cut at %d: nothing is said of it", name, cut)
			}
		}
	}
}

// TestDamagedFrames: a frame of Zstandard that changed on the disk gives one damage and nothing of its content, and
// the others are read, unless the length changed, by which the next one is found.
func TestDamagedFrames(t *testing.T) {
	var td ptrace.Traces
	var err error
	var file []byte
	var starts []int
	for _, name := range []string{"a", "b", "c"} {
		if td, err = (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(span(name))); err != nil {
			t.Fatal(err)
		}
		raw, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		starts = append(starts, len(file))
		file = append(file, framed(zstded(raw))...)
	}
	for i := starts[1]; i < starts[2]; i++ {
		changed := bytes.Clone(file)
		changed[i] ^= 1
		got := readAll(bufio.NewReaderSize(bytes.NewReader(changed), SniffSize), Options{})
		if len(got.Spans) == 3 && len(got.Damaged) == 0 {
			continue // another layout of the same content
		}
		want, damages := 2, 1
		if i < starts[1]+8 { // the length, or what it is a length of
			want, damages = 1, len(got.Damaged)
		}
		if len(got.Spans) != want || len(got.Damaged) != max(1, damages) || got.Err != "" ||
			!strings.HasPrefix(got.Damaged[0], fmt.Sprintf("byte %d: ", starts[1])) {
			t.Errorf("byte %d changed: %d spans, %q, %q", i, len(got.Spans), got.Damaged, got.Err)
		}
	}
	torn := readAll(bytes.NewReader(append(file[:starts[2]+20:starts[2]+20], make([]byte, 10)...)), Options{})
	if len(torn.Spans) != 2 || len(torn.Damaged) != 1 || !strings.Contains(torn.Damaged[0], "the input is cut off") {
		t.Errorf("cut off: %d spans, %q", len(torn.Spans), torn.Damaged)
	}
	large := readAll(bytes.NewReader(append(framed(zstded(bytes.Repeat([]byte("x"), 1000))), file...)),
		Options{MaxBody: 500})
	if len(large.Spans) != 3 || len(large.Damaged) != 1 ||
		!strings.Contains(large.Damaged[0], "larger than the limit") {
		t.Errorf("too large: %d spans, %q", len(large.Spans), large.Damaged)
	}
}

// TestReadError ends with the error of the reader, which is no damage.
func TestReadError(t *testing.T) {
	broken := errors.New("the disk is gone")
	file := []byte(span("a") + "\n" + span("b"))
	got := readAll(io.MultiReader(bytes.NewReader(file[:len(file)-20]), iotest.ErrReader(broken)), Options{})
	if got.Err != broken.Error() || got.Damaged != nil {
		t.Errorf("%+v", got)
	}
}

// TestStop reads no further than it is asked to.
func TestStop(t *testing.T) {
	n := 0
	for range Read(io.MultiReader(strings.NewReader(strings.Repeat(span("a"), 3)),
		iotest.ErrReader(errors.New("read too far"))), Options{}) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d bodies", n)
	}
}

// TestOwned has bodies outlive the buffers that they were read from.
func TestOwned(t *testing.T) {
	for _, wrap := range []func(body) []byte{func(b body) []byte { return b.json }, func(b body) []byte {
		return b.proto
	}} {
		var file []byte
		var want, got contents
		for _, b := range captured(t) {
			file = append(file, wrap(b)...)
			want.add(b.traces, b.logs)
		}
		var all []Body
		for b, err := range Read(bytes.NewReader(file), Options{}) {
			testscale.Must(t, err)
			all = append(all, b)
		}
		clear(file)
		for _, b := range all {
			got.add(b.Traces, b.Logs)
		}
		if !cmp.Equal(want, got) {
			t.Error("bodies changed after they were given")
		}
	}
}

// TestNestedProto: a value that would overflow the stack of the decoder is damage.
func TestNestedProto(t *testing.T) {
	wrap := func(message []byte, number protowire.Number) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), message)
	}
	value := []byte{0x08, 1}
	for range 5000 {
		value = wrap(wrap(value, 1), 5) // AnyValue.array_value.values
	}
	attribute := append(wrap([]byte("k"), 1), wrap(value, 2)...)
	span := append(wrap(make([]byte, 16), 1), wrap(attribute, 9)...)
	file := wrap(wrap(wrap(span, 2), 2), 1)
	if got := readAll(bytes.NewReader(file), Options{}); len(got.Damaged) != 1 || got.Err != "" || len(got.Spans) != 0 {
		t.Errorf("%q %q, %d spans, want damage and none", got.Damaged, got.Err, len(got.Spans))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(span("a") + "\n" + record))
	f.Add([]byte("\uFEFF[" + span("a") + "," + record + "]"))
	td, _ := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(span("a")))
	proto, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	ld, _ := (&plog.JSONUnmarshaler{}).UnmarshalLogs([]byte(record))
	logs, _ := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	for _, raw := range [][]byte{proto, logs} {
		f.Add(raw)
		f.Add(framed(raw))
		f.Add(framed(zstded(raw)))
		f.Add(append(framed(zstded(raw))[:30:30], Frame(raw)...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		Sniff(file)
		n, fatal := 0, false
		for b, err := range Read(bytes.NewReader(file), Options{MaxBody: 64 << 10}) {
			if fatal {
				t.Fatal("something after the error that ends the sequence")
			}
			n++
			var damaged *DamagedError
			if err != nil {
				fatal = !errors.As(err, &damaged)
				if text := err.Error(); len(text) > 1000 || strings.Contains(text, "\n") && !fatal {
					t.Fatalf("error %q", text)
				}
				continue
			}
			_, _ = b.Traces.SpanCount(), b.Logs.LogRecordCount()
		}
		// A packed stream may hold a thousand times its size.
		if n > 2000*(len(file)+1) {
			t.Fatalf("%d bodies of %d bytes", n, len(file))
		}
	})
}

// TestNoObject wants JSON that is not an object to be distinguished from a frame with its length.
func TestNoObject(t *testing.T) {
	for _, text := range []string{"null", "null\n", "true\n", "false\n", `"abc"` + "\n", "text\n{}"} {
		got := readAll(strings.NewReader(text), Options{})
		if len(got.Damaged) > 0 || !strings.HasPrefix(got.Err, ErrFormat.Error()) ||
			strings.Contains(got.Err, "bytes") {
			t.Errorf("%q: damaged %q, error %q, want one that says it is no OTLP", text, got.Damaged, got.Err)
		}
	}
	head := append(binary.BigEndian.AppendUint32(nil, 400<<20), tagResource)
	if got := readAll(bytes.NewReader(head), Options{}); len(got.Damaged) != 1 ||
		!strings.Contains(got.Damaged[0], "larger than the limit") {
		t.Errorf("a frame that is too large: damaged %q, error %q", got.Damaged, got.Err)
	}
}
