package agenttrace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/spans"
)

// quote returns s as a JSON string.
func quote(s string) string { return string(jsonscan.AppendString(nil, s)) }

// validUTF8 returns s with invalid UTF-8 replaced: one such string would make the whole export fail.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// encodeJSON returns v as JSON text in valid UTF-8. It is what encoding/json makes of it, except that
//
//   - [json.RawMessage] stays as it is when it is JSON and becomes a JSON string
//     when it is not; an object or an array in a []byte stays too, and other bytes
//     become text;
//   - an error, a [*bytes.Buffer] and a [*strings.Builder] become their text;
//   - what cannot be encoded becomes a JSON string of why, and the error is reported; of a map or a slice
//     the rest stays.
func encodeJSON(v any) (text string) {
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("encode %T: panic: %s", v, spans.Printed(p)))
			text = quote(fmt.Sprintf("%T", v))
		}
	}()
	switch v := v.(type) {
	case json.RawMessage:
		return encodeRaw(v)
	case string:
		return quote(v)
	case []byte:
		return encodeBytes(v)
	case *bytes.Buffer, *strings.Builder:
		return quote(fmt.Sprint(v))
	case json.Marshaler, encoding.TextMarshaler:
	case error:
		if isNil(v) {
			return "null"
		}
		return quote(errorText(v))
	}
	text, err := marshal(v)
	if err != nil {
		otel.Handle(fmt.Errorf("encode %T: %w", v, err))
		text = encodeRest(reflect.ValueOf(v), nil, fmt.Errorf("encode %T: %w", v, err))
	}
	return text
}

func marshal(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// encodeRest encodes what there is of a value that JSON cannot hold: of a map with strings as keys and of a slice
// all other elements, otherwise the error. within are the maps and slices that have it.
func encodeRest(v reflect.Value, within []uintptr, err error) string {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	isMap := v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String
	if encodes := v.IsValid() && (v.Type().Implements(marshaler) || v.Type().Implements(textMarshaler)); encodes ||
		!isMap && v.Kind() != reflect.Slice || len(within) > 100 || slices.Contains(within, v.Pointer()) {
		return quote(err.Error())
	}
	within = append(within, v.Pointer())
	element := func(e reflect.Value) json.RawMessage {
		text, err := marshal(e.Interface())
		if err != nil {
			text = encodeRest(e, within, err)
		}
		return json.RawMessage(text)
	}
	var rest any
	if isMap {
		members := make(map[string]json.RawMessage, v.Len())
		for key, e := range v.Seq2() {
			members[key.String()] = element(e)
		}
		rest = members
	} else {
		elements := make([]json.RawMessage, v.Len())
		for i := range elements {
			elements[i] = element(v.Index(i))
		}
		rest = elements
	}
	text, err := marshal(rest)
	if err != nil {
		return quote(err.Error())
	}
	return text
}

var marshaler, textMarshaler = reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()

// encodeInput is encodeJSON for the input of a tool call. Text that is a JSON
// object or array is that: so providers' SDKs hand the arguments over.
func encodeInput(v any) string {
	if r := reflect.ValueOf(v); r.Kind() == reflect.String && holdsJSON(r.String()) {
		return validUTF8(r.String())
	}
	return encodeJSON(v)
}

func encodeRaw(raw json.RawMessage) string {
	s := string(raw)
	switch {
	case s == "":
		return "null"
	case jsonscan.Valid(s):
		return validUTF8(s)
	}
	return quote(s)
}

// encodeBytes encodes bytes that may be anything.
func encodeBytes(b []byte) string {
	s := string(b)
	switch {
	case b == nil:
		return "null"
	case holdsJSON(s):
		return validUTF8(s)
	}
	return quote(s)
}

// holdsJSON reports whether s is a JSON object or array.
func holdsJSON(s string) bool {
	first := strings.TrimLeft(s, " \t\r\n")
	return first != "" && (first[0] == '{' || first[0] == '[') && jsonscan.Valid(s)
}

// encodeValues adds values to dst as JSON, by their names.
func encodeValues(dst map[string]json.RawMessage, values map[string]any) {
	for name, value := range values {
		dst[validUTF8(name)] = json.RawMessage(encodeJSON(value))
	}
}

// encodeObject returns the values as a JSON object with sorted keys, nil when there are none.
func encodeObject(values map[string]json.RawMessage) json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	return json.RawMessage(encodeJSON(values))
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

// cloneText is validUTF8 of a copy, for text whose owner should not escape to the heap because of it.
func cloneText(s string) string { return validUTF8(strings.Clone(s)) }

func cloneFloat(f *float64) *float64 { return of(f, func(f *float64) *float64 { return new(*f) }) }

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

// errorText returns the error's text in valid UTF-8, never empty. Of an error whose method panics it is the type.
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

// failedAt returns when that failed which ends now with err: earlier where err has a method FailedAt, as that of a call
// which waited for another attempt.
func failedAt(err error, now time.Time) time.Time {
	if dated, ok := err.(interface{ FailedAt() time.Time }); ok && dated.FailedAt().Before(now) {
		return dated.FailedAt()
	}
	return now
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

// failureType is errorType of what failed, and "" of what finished or was aborted.
func failureType(err error) string {
	if endReason(err) != semconv.EndError {
		return ""
	}
	return errorType(err)
}

// errorType returns the class of an error: [spans.ErrorType], or _OTHER of an error whose methods panic.
func errorType(err error) (class string) {
	defer func() {
		if recover() != nil {
			class = "_OTHER"
		}
	}()
	return spans.ErrorType(err)
}

// body is a system prompt or a tool catalog as it is sent. The digest is the SHA-256 of the text in lower-case hex, so
// that a reader of the text can check it.
type body struct{ text, digest string }

// maxRemembered bounds what is remembered of bodies. Past it the
// memory starts again: a digest is computed again, a body sent again.
const maxRemembered = 64

// memory has a value for each key that was asked for.
type memory[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// of returns the value of a key, which is made if it is not remembered.
func (m *memory[K, V]) of(key K, make func() V) (value V, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, known = m.values[key]; known {
		return value, true
	}
	if m.values == nil || len(m.values) >= maxRemembered {
		m.values = map[K]V{}
	}
	value = make()
	m.values[key] = value
	return value, false
}

// body remembers what clean makes of a text, nil of none.
func (t *Tracer) body(
	text string, clean func(kind redact.Content, key, text string) string, kind redact.Content,
) *body {
	if text == "" {
		return nil
	}
	b, _ := t.bodies.of(text, func() *body {
		sent := clean(kind, "", text)
		sum := sha256.Sum256([]byte(sent))
		return &body{sent, hex.EncodeToString(sum[:])}
	})
	return b
}

// prompt returns a system prompt as it is sent.
func (t *Tracer) prompt(text string) *body {
	return t.body(validUTF8(text), t.filter.text, redact.Prompt)
}

// catalog returns a list of tools as it is sent. No tools make no catalog.
func (t *Tracer) catalog(tools []Tool) *body {
	if len(tools) == 0 {
		return nil
	}
	text := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			text = append(text, ',')
		}
		text = spans.AppendJSONMember(append(text, '{'), "name", t.Name)
		text = spans.AppendJSONMember(text, "description", t.Description)
		text = append(text, `,"parameters":`...)
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage("{}")
		}
		text = append(append(text, encodeRaw(t.Parameters)...), '}')
	}
	return t.body(string(append(text, ']')), t.filter.json, redact.Other)
}

// sent returns the digest of a body and, if the run has not sent it yet, its text.
func (r *Run) sent(b *body) (digest, text string) {
	if b == nil {
		return "", ""
	}
	if _, known := r.bodies.of(b.digest, func() bool { return true }); known {
		return b.digest, ""
	}
	return b.digest, b.text
}
