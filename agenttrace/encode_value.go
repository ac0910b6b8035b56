package agenttrace

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/spans"
	"go.opentelemetry.io/otel"
)

// encodeJSON returns v as JSON text in valid UTF-8:
//
//   - [json.RawMessage] stays as it is when it is JSON and becomes a JSON string
//     when it is not; an object or an array in a []byte stays too, and other bytes
//     become text, or Base64 where they are binary;
//   - errors become their text, and so do values of which JSON shows nothing but
//     which have a String method, such as a *bytes.Buffer, wherever they are in v;
//   - nil pointers of any type become null;
//   - what cannot be encoded becomes a JSON string of its default format, or of why
//     where that has no end, and the error is reported.
func encodeJSON(v any) (text string) {
	switch v := v.(type) {
	case nil:
		return "null"
	case json.RawMessage:
		return encodeRaw(v)
	case *json.RawMessage:
		if v == nil {
			return "null"
		}
		return encodeRaw(*v)
	case string:
		return quote(v)
	}
	defer func() {
		if p := recover(); p != nil {
			otel.Handle(fmt.Errorf("encode %T: panic: %s", v, spans.Printed(p)))
			text = quote(fmt.Sprintf("%T", v))
		}
	}()
	if !new(spans.Extent).Fits(v) {
		err := fmt.Errorf("encode %T: it holds itself, or is nested too deep or too large", v)
		otel.Handle(err)
		return quote(err.Error())
	}
	// The value is looked at as the content of an interface, in which anything may
	// take its place.
	nodes := maxNodes
	shown := plain(reflect.ValueOf(&v).Elem(), &nodes)
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(shown.Interface()); err != nil {
		otel.Handle(fmt.Errorf("encode %T: %w", v, err))
		if !(&spans.Extent{Unexported: true}).Fits(v) {
			return quote(fmt.Sprintf("%T: %v", v, err)) // whose default format has no end
		}
		return quote(fmt.Sprintf("%v", v))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// encodeInput is encodeJSON for the input of a tool call. Text that is a JSON
// object or array is that: so providers' SDKs hand the arguments over.
func encodeInput(v any) string {
	if r := reflect.Indirect(reflect.ValueOf(v)); r.Kind() == reflect.String && !encodes(r.Type()) {
		if s := r.String(); holdsJSON(s) {
			return validUTF8(s)
		}
	}
	return encodeJSON(v)
}

func encodeRaw(raw json.RawMessage) string {
	s := string(raw)
	if jsonscan.Valid(s) {
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
	case strings.IndexByte(s, 0) >= 0:
		return quote(base64.StdEncoding.EncodeToString(b))
	}
	return quote(s)
}

// holdsJSON reports whether s is a JSON object or array.
func holdsJSON(s string) bool {
	first := strings.TrimLeft(s, " \t\r\n")
	return first != "" && (first[0] == '{' || first[0] == '[') && jsonscan.Valid(s)
}

// encoded is JSON text. It takes the place of a value in a field or an element
// that is an interface.
type encoded string

func (e encoded) MarshalJSON() ([]byte, error) { return []byte(e), nil }
func (e encoded) Error() string                { return string(e) }
func (e encoded) String() string               { return string(e) }

// maxNodes bounds how much of a value is looked at: it may have no end.
const maxNodes = 20000

// plain returns a copy of v in which text takes the place of what encoding/json shows
// nothing of. What cannot hold any such thing is not copied. nodes is how much more is
// looked at.
func plain(v reflect.Value, nodes *int) reflect.Value {
	t := v.Type()
	if *nodes--; *nodes < 0 || !composite(t) || t.Kind() != reflect.Interface && encodes(t) {
		return v
	}
	out := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		in := plain(v.Elem(), nodes)
		if text, ok := textOf(v.Elem()); ok {
			in = reflect.ValueOf(encoded(text))
		}
		if !in.Type().AssignableTo(t) {
			return v
		}
		out.Set(in)
	case reflect.Pointer:
		if v.IsNil() || !composite(t.Elem()) {
			return v
		}
		out.Set(reflect.New(t.Elem()))
		out.Elem().Set(plain(v.Elem(), nodes))
	case reflect.Map:
		if v.IsNil() || !composite(t.Elem()) {
			return v
		}
		out.Set(reflect.MakeMapWithSize(t, v.Len()))
		for i := v.MapRange(); i.Next(); {
			out.SetMapIndex(i.Key(), plain(i.Value(), nodes))
		}
	case reflect.Slice, reflect.Array:
		return plainList(v, nodes)
	case reflect.Struct:
		out.Set(v)
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && composite(f.Type) {
				out.Field(i).Set(plain(v.Field(i), nodes))
			}
		}
	}
	return out
}

// plainList is plain for a slice or an array.
func plainList(v reflect.Value, nodes *int) reflect.Value {
	t := v.Type()
	if !composite(t.Elem()) || t.Kind() == reflect.Slice && v.IsNil() {
		return v
	}
	out := reflect.New(t).Elem()
	if t.Kind() == reflect.Slice {
		out.Set(reflect.MakeSlice(t, v.Len(), v.Len()))
	}
	for i := range v.Len() {
		out.Index(i).Set(plain(v.Index(i), nodes))
	}
	return out
}

// composite reports whether a value of the type may hold what is replaced.
func composite(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array, reflect.Struct:
		return true
	}
	return false
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// encodes reports whether values of the type encode themselves.
func encodes(t reflect.Type) bool {
	return t.Implements(marshaler) || t.Implements(textMarshaler)
}

// textOf returns the JSON of a value that encoding/json does not do justice to. ok
// is false for others.
func textOf(v reflect.Value) (text string, ok bool) {
	t := v.Type()
	if encodes(t) {
		return "", false
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return encodeBytes(v.Bytes()), true
	}
	if isNil(v.Interface()) {
		return "null", true
	}
	shown := fieldsOf(t)
	switch x := v.Interface().(type) {
	case error:
		if shown != tagged {
			return quote(errorText(x)), true
		}
	case fmt.Stringer:
		if shown == hidden {
			return quote(x.String()), true
		}
	}
	return "", false
}

// fields states what encoding/json sees of a struct.
type fields int

const (
	none   fields = iota // it is no struct
	hidden               // no field is exported
	exported
	tagged // one has a name for JSON
)

func fieldsOf(t reflect.Type) fields {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return none
	}
	seen := hidden
	for i := range t.NumField() {
		f := t.Field(i)
		if _, ok := f.Tag.Lookup("json"); ok {
			return tagged
		}
		if f.IsExported() {
			seen = exported
		}
	}
	return seen
}
