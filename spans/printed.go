package spans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

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
