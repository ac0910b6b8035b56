package nesting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// jsonRequest is a request of two spans of which the first has the attribute.
func jsonRequest(value string) []byte {
	return []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"deep","attributes":[{"key":"before",` +
		`"value":{"stringValue":"]}\"["}},` +
		`{"key":"deep","value":` + value + `},{"key":"after","value":{"stringValue":"here"}}]},{"name":"good"}]}]}]}`)
}

func jsonLists(n int) string {
	return strings.Repeat(`{"arrayValue":{"values":[`, n) + `{}` + strings.Repeat(`]}}`, n)
}

func jsonMaps(n int) string {
	return strings.Repeat(`{"kvlistValue":{"values":[{"key":"}","value":`, n) + `{"stringValue":"\\\"}"}` +
		strings.Repeat(`}]}}`, n)
}

// protoRequest is the same request in protobuf.
func protoRequest(maps bool, n int) []byte {
	var reversed []byte
	field := func(tag byte, size int) {
		b := binary.AppendUvarint(nil, uint64(size))
		slices.Reverse(b)
		reversed = append(append(reversed, b...), tag)
	}
	for range n {
		if maps {
			field(0x12, len(reversed)) // KeyValue.value
			field(0x0a, len(reversed)) // KeyValueList.values
			field(0x32, len(reversed)) // AnyValue.kvlist_value
		} else {
			field(0x0a, len(reversed)) // ArrayValue.values
			field(0x2a, len(reversed)) // AnyValue.array_value
		}
	}
	slices.Reverse(reversed)
	lenField := func(tag byte, inside ...[]byte) []byte {
		b := bytes.Join(inside, nil)
		return append(binary.AppendUvarint([]byte{tag}, uint64(len(b))), b...)
	}
	text := func(tag byte, s string) []byte { return lenField(tag, []byte(s)) }
	deep := lenField(0x4a, text(0x0a, "deep"), lenField(0x12, reversed))
	after := lenField(0x4a, text(0x0a, "after"), lenField(0x12, text(0x0a, "here")))
	first, second := lenField(0x12, text(0x2a, "deep"), deep, after), lenField(0x12, text(0x2a, "good"))
	return lenField(0x0a, lenField(0x12, first, second))
}

func checkCut(t *testing.T, td ptrace.Traces, levels int) {
	t.Helper()
	if n := td.SpanCount(); n != 2 {
		t.Fatalf("%d spans, want 2", n)
	}
	cut := Traces(td, true)
	all := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	if got := all.At(1).Name(); got != "good" {
		t.Errorf("the second span is %q, want good", got)
	}
	if after, _ := all.At(0).Attributes().Get("after"); after.AsString() != "here" {
		t.Errorf("the attribute after the deep one is %q, want here", after.AsString())
	}
	v, ok := all.At(0).Attributes().Get("deep")
	if !ok {
		t.Fatal("the deep attribute is gone")
	}
	marked := strings.Contains(v.AsString(), Marker)
	if want := levels > MaxDepth; marked != want || (cut > 0) != want {
		t.Errorf("%d levels: marked %v, %d values cut, want %v", levels, marked, cut, want)
	}
}

var levels = []int{0, 1, 10, MaxDepth - 1, MaxDepth, MaxDepth + 1, wireDepth, wireDepth + 1, 10_000, 1_000_000}

func TestDeepValueOfJSONIsCutAndTheRestStays(t *testing.T) {
	for name, nest := range map[string]func(int) string{"lists": jsonLists, "maps": jsonMaps} {
		for _, n := range levels {
			request := jsonRequest(nest(n))
			whole, _, err := JSON(slices.Clone(request), MaxDecoded)
			if err != nil {
				t.Fatalf("%s, %d: %v", name, n, err)
			}
			if n <= MaxDepth && !bytes.Equal(whole, request) {
				t.Errorf("%s, %d: a request that is not too deep changed", name, n)
			}
			req := ptraceotlp.NewExportRequest()
			if err := req.UnmarshalJSON(whole); err != nil {
				t.Fatalf("%s, %d: %v", name, n, err)
			}
			checkCut(t, req.Traces(), n)
		}
	}
}

func TestDeepValueOfProtobufIsCutAndTheRestStays(t *testing.T) {
	for _, maps := range []bool{false, true} {
		for _, n := range levels {
			request := protoRequest(maps, n)
			cut, _, err := Proto(SignalTraces, slices.Clone(request), MaxDecoded)
			if err != nil {
				t.Fatalf("maps %v, %d: %v", maps, n, err)
			}
			if n <= MaxDepth && !bytes.Equal(cut, request) {
				t.Errorf("maps %v, %d: a request that is not too deep changed", maps, n)
			}
			req := ptraceotlp.NewExportRequest()
			if err := req.UnmarshalProto(cut); err != nil {
				t.Fatalf("maps %v, %d: %v", maps, n, err)
			}
			checkCut(t, req.Traces(), n)
		}
	}
}

// Every place of a value in traces and logs is bounded.
func TestEveryPlaceOfAValueIsBounded(t *testing.T) {
	deep := func(v pcommon.Value) {
		for range MaxDepth + 2 {
			v = v.SetEmptySlice().AppendEmpty()
		}
		v.SetStr("lowest")
	}
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ss := rs.ScopeSpans().AppendEmpty()
	s := ss.Spans().AppendEmpty()
	for _, m := range []pcommon.Map{
		rs.Resource().Attributes(), ss.Scope().Attributes(), s.Attributes(),
		s.Events().AppendEmpty().Attributes(), s.Links().AppendEmpty().Attributes(),
	} {
		deep(m.PutEmpty("deep"))
	}
	if n := Traces(td, true); n != 5 {
		t.Errorf("%d values of traces cut, want 5", n)
	}

	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	r := sl.LogRecords().AppendEmpty()
	for _, v := range []pcommon.Value{
		rl.Resource().Attributes().PutEmpty("deep"), sl.Scope().Attributes().PutEmpty("deep"),
		r.Attributes().PutEmpty("deep"), r.Body(),
	} {
		deep(v)
	}
	if n := Logs(ld, true); n != 4 {
		t.Errorf("%d values of logs cut, want 4", n)
	}
}

func TestProtobufOfEveryPlaceIsBounded(t *testing.T) {
	places := map[string][]byte{ // the tags down to a KeyValue, or with 0 last to an AnyValue
		"resource": {0x0a, 0x0a, 0x0a}, "scope": {0x0a, 0x12, 0x0a, 0x1a}, "span": {0x0a, 0x12, 0x12, 0x4a},
		"event": {0x0a, 0x12, 0x12, 0x5a, 0x1a}, "link": {0x0a, 0x12, 0x12, 0x6a, 0x22},
		"record": {0x0a, 0x12, 0x12, 0x32}, "body": {0x0a, 0x12, 0x12, 0x2a, 0},
		"point": {0x0a, 0x12, 0x12, 0x2a, 0x0a, 0x3a}, "metric": {0x0a, 0x12, 0x12, 0x62},
	}
	for name, tags := range places {
		signal := SignalTraces
		switch name {
		case "record", "body":
			signal = SignalLogs
		case "point", "metric":
			signal = SignalMetrics
		}
		var reversed []byte
		field := func(tag byte) {
			b := binary.AppendUvarint(nil, uint64(len(reversed)))
			slices.Reverse(b)
			reversed = append(append(reversed, b...), tag)
		}
		for range 1_000_000 {
			field(0x0a)
			field(0x2a)
		}
		if i := len(tags) - 1; tags[i] == 0 {
			tags = tags[:i]
		} else {
			field(0x12)
		}
		for _, tag := range slices.Backward(tags) {
			field(tag)
		}
		slices.Reverse(reversed)
		cut, _, err := Proto(signal, reversed, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(cut) > 20*wireDepth {
			t.Errorf("%s: %d bytes are left of a value of a million levels", name, len(cut))
		}
	}
}

// A request of empty spans takes two hundred times its size in memory.
func TestRequestThatGrowsInMemoryIsRefused(t *testing.T) {
	spans := bytes.Repeat([]byte{0x12, 0}, 4<<20)
	lenField := func(tag byte, b []byte) []byte {
		return append(binary.AppendUvarint([]byte{tag}, uint64(len(b))), b...)
	}
	if _, _, err := Proto(SignalTraces, lenField(0x0a, lenField(0x12, spans)), MaxDecoded); !errors.Is(err,
		ErrTooLarge) {
		t.Errorf("protobuf: %v, want ErrTooLarge", err)
	}
	request := jsonRequest(`{}` + strings.Repeat(`,{}`, 4<<20))
	if _, _, err := JSON(request, MaxDecoded); !errors.Is(err, ErrTooLarge) {
		t.Errorf("JSON: %v, want ErrTooLarge", err)
	}
}

func TestMalformedProtobufIsRefused(t *testing.T) {
	for _, b := range [][]byte{{0x0a}, {0x0a, 5, 1}, {0x0b}, {0x0c}, {0x80}, bytes.Repeat([]byte{0x0b}, 1<<20),
		{0x0a, 2, 0x12, 9}} {
		if _, _, err := Proto(SignalTraces, b, 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.8x: %v, want ErrMalformed", b, err)
		}
	}
}

// The decoder makes a span of each element, whatever stands there: 30 million numbers
// took 4 GB.
func TestElementsThatAreNoObjectsCount(t *testing.T) {
	for _, element := range []string{"1", "null", `""`, " true ", "{}", "[]"} {
		request := `{"resourceSpans":[` + strings.Repeat(element+",", 2_000_000) + "{}]}"
		if _, _, err := JSON([]byte(request), MaxDecoded); !errors.Is(err, ErrTooLarge) {
			t.Errorf("2,000,000 times %q: %v", element, err)
		}
	}
	// Members of objects and what stands in texts are none.
	request := `{"a":"` + strings.Repeat("[1,", 2_000_000) + `",` + strings.Repeat(`"a":1,`, 2_000_000) +
		`"b":[{"c":1},{"c":2}]}`
	if _, cost, err := JSON([]byte(request), MaxDecoded); err != nil || cost != 4*objectCost {
		t.Errorf("%d bytes are counted: %v", cost, err)
	}
}
