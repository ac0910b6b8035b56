package spans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Value is the value of an attribute: a string, an integer, a double, a boolean, a list of
// strings or, with type EMPTY, nothing. Of any other value it has the JSON text.
type Value struct {
	attribute.Value
	json bool
}

// AttributeValue converts a value of the OpenTelemetry API.
func AttributeValue(v attribute.Value) Value {
	if v.Type() != attribute.EMPTY && typeNames[v.Type()] == "" {
		return JSONValue(v.String())
	}
	return Value{Value: v}
}

// JSONValue returns a structured value (a map or a mixed list) as its JSON text.
func JSONValue(text string) Value { return Value{attribute.StringValue(text), true} }

// typeNames has the names of the types that attributes have, for errors.
var typeNames = map[attribute.Type]string{
	attribute.STRING: "string", attribute.INT64: "int", attribute.FLOAT64: "double", attribute.BOOL: "boolean",
	attribute.STRINGSLICE: "string[]",
}

// wrongType is the error for a value that does not fit its key.
func (v Value) wrongType(want string) error {
	have := cmp.Or(typeNames[v.Type()], "empty")
	if v.json {
		have = "JSON"
	}
	return fmt.Errorf("want %s, have %s", want, have)
}

// integer returns the value as an integer. It accepts a double without a fraction, because
// JavaScript has no other numbers.
func (v Value) integer() (int64, error) {
	switch v.Type() {
	case attribute.INT64:
		return v.AsInt64(), nil
	case attribute.FLOAT64:
		f := v.AsFloat64()
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
	}
	return 0, v.wrongType("int")
}

// double returns the value as a floating-point number. It is never NaN or infinite.
func (v Value) double() (float64, error) {
	switch v.Type() {
	case attribute.INT64:
		return float64(v.AsInt64()), nil
	case attribute.FLOAT64:
		f := v.AsFloat64()
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
		return 0, fmt.Errorf("want a number, have %v", f)
	}
	return 0, v.wrongType("double")
}

// strings returns the value as a list of strings. One string is a list of one.
func (v Value) strings() ([]string, error) {
	switch {
	case v.Type() == attribute.STRINGSLICE:
		return v.AsStringSlice(), nil
	case v.Type() == attribute.STRING && !v.json:
		return []string{v.AsString()}, nil
	}
	return nil, v.wrongType("string[]")
}

// text returns a string, boolean a boolean.
func (v Value) text() (string, error) {
	if v.Type() != attribute.STRING {
		return "", v.wrongType("string")
	}
	return v.AsString(), nil
}

func (v Value) boolean() (bool, error) {
	if v.Type() != attribute.BOOL {
		return false, v.wrongType("boolean")
	}
	return v.AsBool(), nil
}

// Printed returns what package fmt prints of the value of a panic, unless that panics in
// turn. Of a value that contains others it is the type.
func Printed(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T that cannot be printed", v)
		}
	}()
	switch v.(type) {
	case error, fmt.Stringer:
	default:
		switch reflect.ValueOf(v).Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}

// ErrorType returns the class of an error, for error.type: what its ErrorType method returns, timeout, or the type of
// the innermost error that has one of its own, and else _OTHER.
func ErrorType(err error) string {
	const other = "_OTHER"
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return cmp.Or(strings.ToValidUTF8(typed.ErrorType(), "\uFFFD"), other)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	for ; err != nil; err = errors.Unwrap(err) {
		t := reflect.TypeOf(err)
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if path := t.PkgPath(); t.Name() != "" && path != "" && path != "errors" && path != "fmt" {
			return path + "." + t.Name()
		}
	}
	return other
}
