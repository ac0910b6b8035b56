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
	shown := plainer{nodes: maxNodes}.value(reflect.ValueOf(&v).Elem())
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

// plainer replaces what encoding/json shows nothing of. It copies what it changes
// and nothing else.
type plainer struct{ nodes int }

// value returns v, or a copy with something replaced.
func (p plainer) value(v reflect.Value) reflect.Value {
	out, _ := p.replace(v)
	return out
}

func (p *plainer) replace(v reflect.Value) (out reflect.Value, changed bool) {
	if p.nodes--; p.nodes < 0 {
		return v, false
	}
	t := v.Type()
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return v, false
		}
		in, changed := v.Elem(), false
		if text, ok := textOf(in); ok {
			in, changed = reflect.ValueOf(encoded(text)), true
		} else {
			in, changed = p.replace(in)
		}
		if !changed || !in.Type().AssignableTo(t) {
			return v, false
		}
		out = reflect.New(t).Elem()
		out.Set(in)
		return out, true
	case reflect.Pointer:
		if v.IsNil() || encodes(t) || !composite(t.Elem()) {
			return v, false
		}
		in, changed := p.replace(v.Elem())
		if !changed {
			return v, false
		}
		out = reflect.New(t.Elem())
		out.Elem().Set(in)
		return out, true
	case reflect.Map:
		return p.replaceInMap(v)
	case reflect.Slice, reflect.Array:
		if encodes(t) || !composite(t.Elem()) {
			return v, false
		}
		return p.replaceEach(v, v.Len(), reflect.Value.Index, func(int) bool { return true })
	case reflect.Struct:
		if encodes(t) {
			return v, false
		}
		return p.replaceEach(v, v.NumField(), reflect.Value.Field, func(i int) bool {
			f := t.Field(i)
			return f.IsExported() && composite(f.Type)
		})
	}
	return v, false
}

// replaceEach replaces elements or fields.
func (p *plainer) replaceEach(
	v reflect.Value, n int, at func(reflect.Value, int) reflect.Value, wanted func(int) bool,
) (out reflect.Value, changed bool) {
	out = v
	for i := range n {
		if !wanted(i) {
			continue
		}
		e, differs := p.replace(at(v, i))
		if !differs {
			continue
		}
		if !changed {
			changed = true
			if v.Kind() == reflect.Slice {
				out = reflect.MakeSlice(v.Type(), n, n)
				reflect.Copy(out, v)
			} else {
				out = reflect.New(v.Type()).Elem()
				out.Set(v)
			}
		}
		at(out, i).Set(e)
	}
	return out, changed
}

func (p *plainer) replaceInMap(v reflect.Value) (out reflect.Value, changed bool) {
	t := v.Type()
	if v.IsNil() || encodes(t) || !composite(t.Elem()) {
		return v, false
	}
	out = v
	for i := v.MapRange(); i.Next(); {
		e, differs := p.replace(i.Value())
		if !differs {
			continue
		}
		if !changed {
			changed = true
			out = reflect.MakeMapWithSize(t, v.Len())
			for all := v.MapRange(); all.Next(); {
				out.SetMapIndex(all.Key(), all.Value())
			}
		}
		out.SetMapIndex(i.Key(), e)
	}
	return out, changed
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
