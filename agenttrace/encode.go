package agenttrace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// quote returns s as a JSON string.
func quote(s string) string {
	b := jsonscan.AppendString(nil, s)
	// Nobody else has b, so that it may become a string without a copy, as in
	// strings.Builder.
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// validUTF8 returns s with invalid UTF-8 replaced: one such string would make
// the whole export fail.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// encodeValues adds values to dst as JSON, by their names.
func encodeValues(dst map[string]json.RawMessage, values map[string]any) {
	for name, value := range values {
		dst[validUTF8(name)] = json.RawMessage(encodeJSON(value))
	}
}

// encodeObject returns the values as a JSON object with sorted keys, nil when
// there are none.
func encodeObject(values map[string]json.RawMessage) json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(values))
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, k)
		b = append(append(b, ':'), values[k]...)
	}
	return append(b, '}')
}

// rawObject returns a copy of raw when it is a JSON object, and nil when it is
// empty. Anything else is wrapped, so that it is not lost.
func rawObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	s := encodeRaw(raw)
	if first := strings.TrimLeft(s, " \t\r\n"); first[0] != '{' {
		s = `{"raw":` + s + `}`
	}
	return json.RawMessage(s)
}

// cloneText is validUTF8 of a copy, for text whose owner should not escape to
// the heap because of it.
func cloneText(s string) string { return validUTF8(strings.Clone(s)) }

func cloneFloat(f *float64) *float64 {
	if f == nil {
		return nil
	}
	v := *f
	return &v
}

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// endReason states how what ended with err ended. An err whose methods panic, as
// those of nil pointers do, is an error like others.
func endReason(err error) (reason string) {
	if err == nil {
		return semconv.EndFinish
	}
	defer func() {
		if recover() != nil {
			reason = semconv.EndError
		}
	}()
	if errors.Is(err, ErrAborted) || errors.Is(err, context.Canceled) {
		return semconv.EndAbort
	}
	if denied := (*DeniedError)(nil); errors.As(err, &denied) && denied.Pending {
		return semconv.EndFinish // what waits for a human has not failed
	}
	return semconv.EndError
}

// orAborted is how what is still open ends when what it belongs to ends.
func orAborted(err error) error { return cmp.Or(err, ErrAborted) }

// errorText returns the error's text in valid UTF-8, never empty. Of an error
// whose method panics it is the type.
func errorText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			if text = fmt.Sprintf("error of type %T, which panics with: %s", err, spans.Printed(p)); isNil(err) {
				text = fmt.Sprintf("nil %T", err)
			}
		}
	}()
	return cmp.Or(validUTF8(err.Error()), "unknown error")
}

// isNil reports whether v is nil or a nil pointer, map or the like in an interface.
func isNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.Interface,
		reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// errorType returns the class of an error: what its ErrorType method returns,
// timeout, or the type of the innermost error that has one of its own.
func errorType(err error) (class string) {
	defer func() {
		if recover() != nil {
			class = "_OTHER"
		}
	}()
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return cmp.Or(validUTF8(typed.ErrorType()), "_OTHER")
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
	return "_OTHER"
}

func setError(span trace.Span, text string) { span.SetStatus(codes.Error, text) }
