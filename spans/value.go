package spans

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
)

// ValueKind is the type of a [Value].
type ValueKind uint8

// Kinds of values. KindJSON is a structured value (a map or a mixed list) that was
// converted to JSON.
const (
	KindEmpty ValueKind = iota
	KindString
	KindInt
	KindDouble
	KindBool
	KindStrings
	KindJSON
)

func (k ValueKind) String() string {
	return [...]string{"empty", "string", "int", "double", "boolean", "string[]", "JSON"}[k]
}

// Value is an attribute value, independent of the library that it came from. The
// functions below create one.
type Value struct {
	kind ValueKind
	str  string
	num  uint64
	strs []string
}

// StringValue returns a string.
func StringValue(s string) Value { return Value{kind: KindString, str: s} }

// IntValue returns an integer.
func IntValue(n int64) Value { return Value{kind: KindInt, num: uint64(n)} }

// DoubleValue returns a floating-point number.
func DoubleValue(f float64) Value { return Value{kind: KindDouble, num: math.Float64bits(f)} }

// BoolValue returns a boolean.
func BoolValue(b bool) Value {
	if b {
		return Value{kind: KindBool, num: 1}
	}
	return Value{kind: KindBool}
}

// StringsValue returns a list of strings, which it retains.
func StringsValue(s []string) Value { return Value{kind: KindStrings, strs: s} }

// JSONValue returns a structured value as its JSON text.
func JSONValue(text string) Value { return Value{kind: KindJSON, str: text} }

// AttributeValue converts a value of the OpenTelemetry API.
func AttributeValue(v attribute.Value) Value {
	switch v.Type() {
	case attribute.STRING:
		return StringValue(v.AsString())
	case attribute.INT64:
		return IntValue(v.AsInt64())
	case attribute.FLOAT64:
		return DoubleValue(v.AsFloat64())
	case attribute.BOOL:
		return BoolValue(v.AsBool())
	case attribute.STRINGSLICE:
		return StringsValue(v.AsStringSlice())
	case attribute.EMPTY:
		return Value{}
	}
	return JSONValue(v.String())
}

// Kind returns the value's type.
func (v Value) Kind() ValueKind { return v.kind }

// Text returns the value as a string: a number in decimal, a structured value as JSON.
// For a list of strings it returns the first element.
func (v Value) Text() string {
	switch v.kind {
	case KindString, KindJSON:
		return v.str
	case KindInt:
		return strconv.FormatInt(int64(v.num), 10)
	case KindDouble:
		return strconv.FormatFloat(math.Float64frombits(v.num), 'g', -1, 64)
	case KindBool:
		return strconv.FormatBool(v.num != 0)
	case KindStrings:
		if len(v.strs) > 0 {
			return v.strs[0]
		}
	}
	return ""
}

// wrongType is the error for a value that does not fit its key.
func (v Value) wrongType(want string) error { return fmt.Errorf("want %s, have %s", want, v.kind) }

// Int returns the value as an integer. It accepts a double without a fraction, because
// JavaScript has no other numbers.
func (v Value) Int() (int64, error) {
	switch v.kind {
	case KindInt:
		return int64(v.num), nil
	case KindDouble:
		f := math.Float64frombits(v.num)
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
	}
	return 0, v.wrongType("int")
}

// Double returns the value as a floating-point number. It is never NaN or
// infinite.
func (v Value) Double() (float64, error) {
	switch v.kind {
	case KindInt:
		return float64(int64(v.num)), nil
	case KindDouble:
		f := math.Float64frombits(v.num)
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
		return 0, fmt.Errorf("want a number, have %v", f)
	}
	return 0, v.wrongType("double")
}

// Bool returns the value as a boolean.
func (v Value) Bool() (bool, error) {
	if v.kind == KindBool {
		return v.num != 0, nil
	}
	return false, v.wrongType("boolean")
}

// Strings returns the value as a list of strings. One string is a list of one.
func (v Value) Strings() ([]string, error) {
	switch v.kind {
	case KindStrings:
		return v.strs, nil
	case KindString:
		return []string{v.str}, nil
	}
	return nil, v.wrongType("string[]")
}

// text returns a string, or the text of a structured value.
func (v Value) text() (string, error) {
	if v.kind != KindString && v.kind != KindJSON {
		return "", v.wrongType("string")
	}
	return v.str, nil
}

func (v Value) jsonObject() (json.RawMessage, error) { return v.json('{') }
func (v Value) jsonArray() (json.RawMessage, error)  { return v.json('[') }

// json returns JSON text whose first character is open.
func (v Value) json(open byte) (json.RawMessage, error) {
	if v.kind != KindString && v.kind != KindJSON {
		return nil, v.wrongType("JSON string")
	}
	raw := json.RawMessage(v.str)
	if !json.Valid(raw) {
		return nil, errors.New("invalid JSON")
	}
	if first := bytes.TrimLeft(raw, " \t\r\n")[0]; first != open {
		return nil, fmt.Errorf("want JSON that begins with %q, have %q", open, first)
	}
	return raw, nil
}
