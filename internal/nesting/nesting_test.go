package nesting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
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

var levels = []int{0, 1, 10, MaxDepth, 2 * MaxDepth, 10_000, 1_000_000}

// check fails the test unless values of more than MaxDepth levels, and no others, are refused.
func check(t *testing.T, what string, n int, err error) {
	t.Helper()
	if n > MaxDepth != errors.Is(err, ErrTooDeep) || n <= MaxDepth && err != nil {
		t.Errorf("%s of %d levels: %v", what, n, err)
	}
}

func TestDeepValuesAreRefused(t *testing.T) {
	for _, n := range levels {
		for name, nest := range map[string]func(int) string{"lists in JSON": jsonLists, "maps in JSON": jsonMaps} {
			_, err := JSON(jsonRequest(nest(n)), MaxDecoded)
			check(t, name, n, err)
		}
		for name, maps := range map[string]bool{"lists": false, "maps": true} {
			_, err := Proto(SignalTraces, protoRequest(maps, n), MaxDecoded)
			check(t, name, n, err)
		}
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
		_, err := Proto(signal, reversed, 0)
		check(t, name, 1_000_000, err)
	}
}

// A request of empty spans takes two hundred times its size in memory.
func TestRequestThatGrowsInMemoryIsRefused(t *testing.T) {
	spans := bytes.Repeat([]byte{0x12, 0}, 4<<20)
	lenField := func(tag byte, b []byte) []byte {
		return append(binary.AppendUvarint([]byte{tag}, uint64(len(b))), b...)
	}
	if _, err := Proto(SignalTraces, lenField(0x0a, lenField(0x12, spans)), MaxDecoded); !errors.Is(err,
		ErrTooLarge) {
		t.Errorf("protobuf: %v, want ErrTooLarge", err)
	}
	request := jsonRequest(`{}` + strings.Repeat(`,{}`, 4<<20))
	if _, err := JSON(request, MaxDecoded); !errors.Is(err, ErrTooLarge) {
		t.Errorf("JSON: %v, want ErrTooLarge", err)
	}
}

func TestMalformedProtobufIsRefused(t *testing.T) {
	for _, b := range [][]byte{{0x0a}, {0x0a, 5, 1}, {0x0b}, {0x0c}, {0x80}, bytes.Repeat([]byte{0x0b}, 1<<20),
		{0x0a, 2, 0x12, 9}} {
		if _, err := Proto(SignalTraces, b, 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.8x: %v, want ErrMalformed", b, err)
		}
	}
}

// The decoder makes a span of each element, whatever stands there: 30 million numbers took 4 GB.
func TestElementsThatAreNoObjectsCount(t *testing.T) {
	for _, element := range []string{"1", "null", `""`, " true ", "{}", "[]"} {
		request := `{"resourceSpans":[` + strings.Repeat(element+",", 2_000_000) + "{}]}"
		if _, err := JSON([]byte(request), MaxDecoded); !errors.Is(err, ErrTooLarge) {
			t.Errorf("2,000,000 times %q: %v", element, err)
		}
	}
	// Members of objects and what stands in texts are none.
	request := `{"a":"` + strings.Repeat("[1,", 2_000_000) + `",` + strings.Repeat(`"a":1,`, 2_000_000) +
		`"b":[{"c":1},{"c":2}]}`
	if cost, err := JSON([]byte(request), MaxDecoded); err != nil || cost != 4*objectCost {
		t.Errorf("%d bytes are counted: %v", cost, err)
	}
}
