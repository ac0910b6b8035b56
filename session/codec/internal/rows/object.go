package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"reflect"
	"slices"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session/codec"
)

// MaxDepth is the deepest nesting that [Parse] takes. It leaves room for what a value is wrapped in on its way into a
// part, which encoding/json reads to a depth of 10 000.
const MaxDepth = 1000

var errTooDeep = errors.New("nested too deep")

// Field is a key of an [Object] with its value.
type Field struct {
	Key   string
	Value json.RawMessage
}

// Object is a JSON object that keeps the order of its keys and the spelling of its numbers, so that what nobody
// understands comes out as it went in. The zero value is the empty object.
type Object []Field

// Of returns the object of the keys and values, which alternate. Values are marshaled as by [Object.Set].
func Of(pairs ...any) Object {
	o := make(Object, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// NonEmpty is [Of] without the pairs whose value is empty: zero, nil or of no length.
func NonEmpty(pairs ...any) (o Object) {
	for i := 0; i < len(pairs); i += 2 {
		v := reflect.ValueOf(pairs[i+1])
		if v.IsValid() && !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
			o.Set(pairs[i].(string), pairs[i+1])
		}
	}
	return o
}

// Only returns an object of those of the keys that o has with a value other than null.
func (o Object) Only(keys ...string) (only Object) {
	for _, key := range keys {
		if o.Has(key) {
			only.Set(key, o.Get(key))
		}
	}
	return only
}

// Texts returns an object of those of the keys that have a text in o which is not empty.
func (o Object) Texts(keys ...string) (texts Object) {
	for _, f := range o.Only(keys...) {
		texts.Add(NonEmpty(f.Key, o.Text(f.Key)))
	}
	return texts
}

// Read is [Parse] for the columns of rows: what is not an object is the empty one.
func Read(text string) Object {
	o, _ := Parse([]byte(text))
	return o
}

// Parse reads text that is one JSON object. Of a key that is there twice the
// last value stands, in the place of the first. It does not retain text.
func Parse(text []byte) (Object, error) { return parse(text, false) }

// Share is [Parse] that may retain text, which must not change.
func Share(text []byte) (Object, error) { return parse(text, true) }

// Line is a line of a file of JSON lines.
type Line struct {
	// N is its number, from 1.
	N      int
	Object Object
	// Err is why it is not an object, as [Parse] returns it.
	Err error
}

// Lines yields the lines of text that are not blank, and shares memory with it. Bytes that are not UTF-8 are replaced,
// and reported with the number of their line.
func Lines(text []byte, report func(codec.Problem)) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		n := 0
		for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\uFEFF"))) {
			n++
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			o, err := Share((&Reporter{report, codec.Problem{Line: n}}).Valid(line))
			if !yield(Line{n, o, err}) {
				return
			}
		}
	}
}

// Records calls record for each JSON object in text, and reports lines that are not one.
func Records(text []byte, report func(codec.Problem), record func(o Object, line int)) {
	for l := range Lines(text, report) {
		if l.Err != nil {
			report(codec.Problem{Line: l.N, Reason: "is not a record: left out: " + l.Err.Error()})
			continue
		}
		record(l.Object, l.N)
	}
}

// parse is Share if share is set, and otherwise Parse.
func parse(text []byte, share bool) (Object, error) {
	if !share {
		text = bytes.Clone(text)
	}
	o := make(Object, 0, min(16, 8+len(text)/64)) // records of programs have more members than parts of them
	if jsonscan.Object(text, MaxDepth, func(key string, value json.RawMessage) {
		o.put(key, compact(value))
	}) {
		return o, nil
	}
	return nil, invalid(text, &map[string]json.RawMessage{})
}

// invalid is what is wrong with text, which is not JSON of a type, or nested too deep.
func invalid(text []byte, v any) error {
	if jsonscan.NestsDeeper(text, MaxDepth) {
		return errTooDeep
	}
	err := json.Unmarshal(text, v)
	if len(bytes.TrimSpace(text)) == 0 {
		return io.EOF
	} else if err != nil && err.Error() == "unexpected end of JSON input" {
		return io.ErrUnexpectedEOF
	}
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); err == nil || other {
		return errors.New("not an object")
	}
	return err
}

// Value reads text that is one JSON value and returns it without space.
func Value(text []byte) (json.RawMessage, error) {
	if trimmed := bytes.Trim(text, " \t\r\n"); jsonscan.IsValue(trimmed, MaxDepth) {
		return compact(bytes.Clone(trimmed)), nil
	}
	return nil, invalid(text, new(json.RawMessage))
}

// Unquoted returns the value of a string that is JSON, or v itself if it is not such a string.
func Unquoted(v json.RawMessage) json.RawMessage {
	if text, ok := Text(v); ok {
		if inner, err := Value([]byte(text)); err == nil {
			return inner
		}
	}
	return v
}

// Elements reads text that is a JSON array; nil if it is not one. It shares memory with text, as
// values are never written to.
func Elements(text json.RawMessage) []json.RawMessage {
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 || text[0] != '[' {
		return nil
	}
	all := []json.RawMessage{}
	if !jsonscan.Array(text, MaxDepth, func(v json.RawMessage) { all = append(all, v) }) {
		return nil
	}
	return all
}

// Objects yields the elements of a JSON array that are objects.
func Objects(text json.RawMessage) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for _, v := range Elements(text) {
			if o, err := Parse(v); err == nil && !yield(o) {
				return
			}
		}
	}
}

// compact returns the value without space, its strings escaped as JSON.stringify does, so that a value has one
// spelling, of whatever writer it is. Numbers stay as they are spelled. Where there is half of a surrogate pair, which
// is no character, all strings stay.
func compact(v json.RawMessage) json.RawMessage {
	if !respelled(v) {
		return v
	}
	// It has a buffer of its own, because those that jsontext keeps for the next value may be as large as a file.
	b, names := bytes.NewBuffer(make([]byte, 0, len(v)+1)), jsontext.AllowDuplicateNames(true)
	if jsontext.NewEncoder(b, names).WriteValue(jsontext.Value(v)) != nil {
		b.Reset()
		asIs := []jsontext.Options{names, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true)}
		_ = jsontext.NewEncoder(b, asIs...).WriteValue(jsontext.Value(v)) // v is JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// respelled reports whether valid JSON may have space, or an escape that it need not have.
func respelled(v json.RawMessage) bool {
	if bytes.Contains(v, []byte(`\u`)) || bytes.Contains(v, []byte(`\/`)) {
		return true
	}
	text := unsafe.String(unsafe.SliceData(v), len(v)) // is not written to meanwhile
	for i := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = jsonscan.String(text, i)
		case ' ', '\t', '\r', '\n':
			return true
		default:
			i++
		}
	}
	return false
}

// Get returns the value of key; nil when it is absent.
func (o Object) Get(key string) json.RawMessage {
	for i := range o {
		if o[i].Key == key {
			return o[i].Value
		}
	}
	return nil
}

// Has reports whether key is there with a value other than null.
func (o Object) Has(key string) bool {
	v := o.Get(key)
	return v != nil && string(v) != "null"
}

// True reports whether key is there with the value true.
func (o Object) True(key string) bool { return string(o.Get(key)) == "true" }

// Text returns the value of key when it is a string, and otherwise "".
func (o Object) Text(key string) string {
	s, _ := Text(o.Get(key))
	return s
}

// Text reads a JSON string.
func Text(v json.RawMessage) (string, bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	if s, ok := jsonscan.Unquote(v); ok {
		return s, true
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// isWithheld reports whether v is the text that stands for a withheld value.
func isWithheld(v json.RawMessage) bool { return string(v) == `"`+codec.WithheldText+`"` }

// Object returns the value of key when it is an object, and otherwise nil. It shares
// memory with o, as values are never written to.
func (o Object) Object(key string) Object {
	v := o.Get(key)
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	inner, _ := parse(v, true) // nil, if it nests too deep
	return inner
}

// Set gives key the value v: where it stands, or at the end. A value that has no
// JSON, which none has that comes from JSON, leaves the object as it is.
func (o *Object) Set(key string, v any) {
	if raw, err := Marshal(v); err == nil {
		o.put(key, raw)
	}
}

// Add sets the keys of other.
func (o *Object) Add(other Object) {
	for _, f := range other {
		o.put(f.Key, f.Value)
	}
}

func (o *Object) put(key string, raw json.RawMessage) {
	for i := range *o {
		if (*o)[i].Key == key {
			(*o)[i].Value = raw
			return
		}
	}
	*o = append(*o, Field{key, raw})
}

// Without returns a copy that lacks the keys.
func (o Object) Without(keys ...string) Object {
	c := make(Object, 0, len(o))
	for _, f := range o {
		if !slices.Contains(keys, f.Key) {
			c = append(c, f)
		}
	}
	return c
}

// MarshalJSON returns the object with its keys in order.
func (o Object) MarshalJSON() ([]byte, error) {
	const quoted = len(`"":,`)
	n := len(`{}`)
	for _, f := range o {
		n += len(f.Key) + quoted + len(f.Value)
	}
	b := append(make([]byte, 0, n), '{')
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, f.Key) // of invalid UTF-8 it is an error, and U+FFFD
		b = append(append(b, ':'), f.Value...)
	}
	return append(b, '}'), nil
}

// JSON returns the object as text.
func (o Object) JSON() json.RawMessage {
	b, _ := o.MarshalJSON() // keys are strings, which always have JSON
	return b
}

// Raw is [Marshal] for strings, numbers and what came from JSON, which always have JSON.
func Raw(v any) json.RawMessage {
	raw, _ := Marshal(v)
	return raw
}

// Marshal is json.Marshal that leaves <, > and & as they are.
func Marshal(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case json.RawMessage:
		return v, nil
	case Object:
		return v.JSON(), nil
	case string:
		quoted, _ := jsontext.AppendQuote(nil, v) // of invalid UTF-8 it is an error, and U+FFFD
		return json.RawMessage(quoted), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return compact(b.Bytes()), nil
}

// Indented is the object with each value on a line of its own.
func (o Object) Indented() []byte {
	var b bytes.Buffer
	_ = json.Indent(&b, o.JSON(), "", "  ") // it is JSON
	return b.Bytes()
}

var notJSON = lazy.Regexp(`(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// ParsePython is [Parse] of an object in which NaN, Infinity and -Infinity outside of strings, which Python writes and
// JSON does not have, are replaced. found reports whether there are any.
func ParsePython(text []byte, with func(word string) string) (o Object, found bool, err error) {
	o, err = Parse(text)
	if err == nil || !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return o, false, err
	}
	fixed := notJSON().ReplaceAllFunc(text, func(word []byte) []byte {
		if word[0] == '"' {
			return word
		}
		return []byte(with(string(word)))
	})
	if again, failed := Parse(fixed); failed == nil {
		return again, true, nil
	}
	return nil, false, err
}
