package spans

import (
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

// setString and the functions below store a value of the right type. They report a value
// of a wrong type and leave dst unchanged.
func setString(dst *string, v Value) error {
	switch v.kind {
	case KindString, KindJSON:
		*dst = v.str
		return nil
	}
	return v.wrongType("string")
}

func setInt(dst *int64, v Value) error {
	n, err := v.Int()
	if err == nil {
		*dst = n
	}
	return err
}

func setIntPtr(dst **int64, v Value) error {
	n, err := v.Int()
	if err == nil {
		*dst = &n
	}
	return err
}

func setDoublePtr(dst **float64, v Value) error {
	f, err := v.Double()
	if err == nil {
		*dst = &f
	}
	return err
}

func setBool(dst *bool, v Value) error {
	b, err := v.Bool()
	if err == nil {
		*dst = b
	}
	return err
}
