package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
)

// Attrs reads attributes as what a dialect expects of them. A value of another type is converted where that loses
// nothing, and is otherwise absent. An empty value is absent: some exporters send a key without one. So is content that
// OpenInference has masked. Text comes out as valid UTF-8 without NUL.
type Attrs struct{ pcommon.Map }

// masked is what OpenInference writes in the place of content that a program hides.
const masked = "__REDACTED__"

// Value returns the value, or false when it is absent, empty or masked.
func (a Attrs) Value(key string) (pcommon.Value, bool) {
	v, ok := a.Get(key) // the first one where there are several
	return v, ok && v.Type() != pcommon.ValueTypeEmpty && (v.Str() != masked ||
		!strings.HasPrefix(key, "input.") && !strings.HasPrefix(key, "output.") && !strings.HasPrefix(key, "llm."))
}

// Str returns the first of the keys that has text, or another value as text, or "".
func (a Attrs) Str(keys ...string) string {
	for _, key := range keys {
		if v, ok := a.Value(key); ok {
			if s := Text(v.AsString()); s != "" {
				return s
			}
		}
	}
	return ""
}

// Any reports whether any of the keys has a value.
func (a Attrs) Any(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		_, ok := a.Value(key)
		return ok
	})
}

// Int returns a whole number, also one that is written as text or as a double, and 0 for anything else.
func (a Attrs) Int(key string) int64 { return session.Deref(a.IntPtr(key)) }

// IntPtr returns the first of the keys that has a whole number, for a field that may be absent.
func (a Attrs) IntPtr(keys ...string) *int64 {
	for _, key := range keys {
		if v, ok := a.Value(key); ok {
			if n, ok := intOf(v); ok {
				return &n
			}
		}
	}
	return nil
}

func intOf(v pcommon.Value) (int64, bool) {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return v.Int(), true
	case pcommon.ValueTypeDouble:
		n := int64(v.Double())
		return n, float64(n) == v.Double()
	case pcommon.ValueTypeStr:
		n, err := strconv.ParseInt(strings.TrimSpace(v.Str()), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// Float returns a number, also one that is written as text, or nil.
func (a Attrs) Float(key string) *float64 { return number(a.Str(key)) }

func number(s string) *float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || f != f || f > 1e300 || f < -1e300 {
		return nil
	}
	return &f
}

// Bool returns a truth value, also one that is written as text.
func (a Attrs) Bool(key string) (value, ok bool) {
	b, err := strconv.ParseBool(a.Str(key))
	return b, err == nil
}

// True reports whether a truth value is true.
func (a Attrs) True(key string) bool {
	value, _ := a.Bool(key)
	return value
}

// JSON returns the value of the first of the keys that is there as JSON: text that is JSON unchanged, other text as a
// JSON string, lists and maps as arrays and objects. It is nil when none is.
func (a Attrs) JSON(keys ...string) json.RawMessage {
	for _, key := range keys {
		if v, ok := a.Value(key); ok {
			return valueJSON(v)
		}
	}
	return nil
}

// object returns the value of the first of the keys that is there where it is an object.
func (a Attrs) object(keys ...string) object {
	o, _ := objectOf(a.JSON(keys...))
	return o
}

func valueJSON(v pcommon.Value) json.RawMessage {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return TextJSON(v.Str())
	case pcommon.ValueTypeEmpty:
		return nil
	}
	raw, err := json.Marshal(v.AsRaw())
	if err != nil { // a number that JSON has not, such as NaN
		raw, _ = json.Marshal(v.AsString())
	}
	return raw
}

// TextJSON returns text that holds JSON as that JSON, and other text as a JSON string.
func TextJSON(s string) json.RawMessage {
	s = Text(s)
	if trimmed := strings.TrimSpace(s); trimmed != "" && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	return quoted(s)
}

func quoted(s string) json.RawMessage {
	raw, _ := json.Marshal(s)
	return raw
}

// Strings returns a list of texts: an array, text that is a JSON array of strings, or one text.
func (a Attrs) Strings(key string) []string {
	v, ok := a.Value(key)
	if !ok {
		return nil
	}
	return stringsOf(v)
}

func stringsOf(v pcommon.Value) (all []string) {
	if v.Type() == pcommon.ValueTypeSlice {
		for _, e := range v.Slice().All() {
			all = append(all, Text(e.AsString()))
		}
		return all
	}
	text := Text(v.AsString())
	if text == "" || strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &all) == nil {
		return all
	}
	return []string{text}
}

// Last returns the last text in the lists of texts of the keys.
func (a Attrs) Last(keys ...string) (last string) {
	for _, key := range keys {
		for _, s := range a.Strings(key) {
			last = cmp.Or(s, last)
		}
	}
	return last
}

// below returns the attributes whose keys begin with a prefix by what follows it. Keys of sessions, some others and
// what is long are left out.
func (a Attrs) below(prefix string, without ...string) object {
	all := object{}
	for key := range a.All() {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok || slices.Contains(without, name) || slices.Contains(SessionKeys, key) {
			continue
		}
		if raw := a.JSON(key); raw != nil && len(raw) <= 4096 {
			all[name] = raw
		}
	}
	return all
}

// Text repairs what no column can hold: invalid UTF-8 and NUL become U+FFFD.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// hasPrefix reports whether a text begins with any of some others.
func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// encode returns a map as a JSON object, nil where there is nothing in it.
func encode[M ~map[string]V, V any](m M) json.RawMessage {
	if len(m) == 0 {
		return nil
	}
	raw, _ := json.Marshal(m)
	return raw
}
