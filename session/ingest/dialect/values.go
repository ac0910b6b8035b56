package dialect

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
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
	if len(text) > 2 && text[0] == '[' && text[len(text)-1] == ']' { // as Python and .NET print a list
		for e := range strings.SplitSeq(text[1:len(text)-1], ",") {
			all = append(all, strings.Trim(e, " '"))
		}
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
		if !ok || slices.Contains(without, name) || slices.Contains(SessionKeys(), key) {
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

// A history grows with every model call that repeats it, so that most of the work of a dialect is to find the few new
// messages in it. What objects and arrays hold is decoded when it is asked for.

// object is a JSON object whose members are read as they are asked for. They are parts of what the object was made of.
type object map[string]json.RawMessage

// objectOf returns raw as an object, or nil and false. The object is the caller's, its members are not.
func objectOf(raw json.RawMessage) (object, bool) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	o := make(object, 6)
	if !jsonscan.Object(raw, maxNesting, func(key string, value json.RawMessage) { o[Text(key)] = value }) {
		return nil, false
	}
	return o, true
}

// maxNesting is how deep encoding/json reads.
const maxNesting = 10_000

// elements returns the elements of an array, or nil and false. They are parts of raw.
func elements(raw json.RawMessage) (all []json.RawMessage, ok bool) {
	if !jsonscan.Array(raw, maxNesting, func(e json.RawMessage) { all = append(all, e) }) {
		return nil, false
	}
	return all, true
}

// objectsOf returns the elements of an array that are objects.
func objectsOf(raw json.RawMessage) (all []object) {
	list, _ := elements(raw)
	for _, e := range list {
		if o, ok := objectOf(e); ok {
			all = append(all, o)
		}
	}
	return all
}

// text returns a JSON string's text, and "" for everything else.
func text(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && raw[len(raw)-1] == '"' && utf8.Valid(inner) {
		return Text(string(inner))
	}
	var s string // which escapes: most texts have returned above
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return Text(s)
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || raw[0] == 'n'
}

// firstRaw returns the first value that is there.
func firstRaw(all ...json.RawMessage) json.RawMessage {
	for _, raw := range all {
		if raw != nil {
			return raw
		}
	}
	return nil
}

// has reports whether the object has any of the members, and it is not null.
func (o object) has(keys ...string) bool { return o.first(keys...) != nil }

// str returns the first of the members that is a text with something in it.
func (o object) str(keys ...string) string {
	for _, key := range keys {
		if s := text(o[key]); s != "" {
			return s
		}
	}
	return ""
}

// first returns the first of the members that is there and not null.
func (o object) first(keys ...string) json.RawMessage {
	for _, key := range keys {
		if raw, ok := o[key]; ok && !isNull(raw) {
			return raw
		}
	}
	return nil
}

// inner returns the first of the members that is an object.
func (o object) inner(keys ...string) object {
	for _, key := range keys {
		if in, ok := objectOf(o[key]); ok {
			return in
		}
	}
	return nil
}

// truth reports whether any of the members is true.
func (o object) truth(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return string(bytes.TrimSpace(o[key])) == "true" })
}

func sortedKeys(o object) []string { return slices.Sorted(maps.Keys(o)) }

// divisible are the keys whose values are worth something in part.
var divisible = setOf("divisible")

// closeCut makes valid JSON of an array or object whose end is missing, or is not JSON: clients cut attributes at a
// length, and some put an ellipsis there. It keeps what is whole and, where a cut goes through a message or its text,
// what is before it. Nothing else is kept in part: the half of a call's arguments or of an id would be another one. It
// returns nil if nothing remains.
func closeCut(raw json.RawMessage) json.RawMessage {
	const maxDepth = 200
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' && raw[0] != '{' {
		return nil
	}
	type container struct {
		closer  byte
		divide  bool // it is worth something in part
		inValue bool // a key was read, and not yet its value
		end     int  // of what is whole of it
	}
	var open []container // the arrays and objects whose end was not seen yet
	d := json.NewDecoder(bytes.NewReader(raw))
	divide := true // the next value is worth something in part
	for len(open) <= maxDepth {
		token, err := d.Token()
		end := int(d.InputOffset())
		delim, isDelim := token.(json.Delim)
		key, isText := token.(string)
		if err != nil || !isDelim && !isText && bytes.IndexAny(raw[end:], ",]} \t\r\n") != 0 {
			break // a number before the cut may lack digits
		}
		if delim == '[' || delim == '{' {
			open = append(open, container{closer: byte(delim) + 2, divide: divide, end: end})
			continue
		}
		if isDelim {
			if open = open[:len(open)-1]; len(open) == 0 {
				return nil // nothing is missing
			}
		}
		in := &open[len(open)-1]
		if in.closer == '}' && !in.inValue && !isDelim {
			in.inValue, divide = true, in.divide && divisible()[key]
			continue
		}
		in.end, in.inValue, divide = end, false, in.divide
	}
	var out []byte
	if i := slices.IndexFunc(open, func(c container) bool { return !c.divide }); i >= 0 {
		open = open[:i]
	} else if in := open[len(open)-1]; divide && (in.closer == ']' || in.inValue) {
		out = cutString(raw, int(d.InputOffset()))
	}
	if out == nil {
		out = slices.Clone(raw[:open[len(open)-1].end])
	}
	for _, c := range slices.Backward(open) {
		out = append(out, c.closer)
	}
	var closed bytes.Buffer
	if json.Compact(&closed, out) != nil || closed.Len() <= 2 {
		return nil
	}
	return closed.Bytes()
}

// cutString returns raw with an end for the string that begins after the offset and has none, or nil. The cut may go
// through an escape or a character, which ends in U+FFFD then: at most 12 bytes are lost to a pair of surrogates.
func cutString(raw []byte, offset int) []byte {
	start := len(raw) - len(bytes.TrimLeft(raw[offset:], " \t\r\n,:"))
	if start == len(raw) || raw[start] != '"' || jsonscan.String(string(raw), start) >= 0 {
		return nil
	}
	for end := len(raw); end > start+1 && end >= len(raw)-12; end-- {
		s := append(slices.Clone(raw[start:end]), '"')
		if json.Valid(s) && !strings.HasSuffix(text(s), "\uFFFD") {
			return append(slices.Clone(raw[:start]), s...)
		}
	}
	return nil
}

//go:embed words.txt
var wordsFile string

// sections are the lists of words.txt by the names of its sections and their own. They are read when the first
// telemetry comes, as is all that follows from them: most commands see none.
var sections = sync.OnceValue(func() map[string]map[string][]string {
	all, section, name := make(map[string]map[string][]string), "", ""
	for line := range strings.Lines(wordsFile) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") {
			section, name = strings.Trim(line, "[]\n"), ""
			all[section] = make(map[string][]string)
			continue
		}
		if head, rest, begins := strings.Cut(line, ": "); begins {
			name, line = head, rest
		}
		if words := strings.Fields(line); len(words) > 0 {
			all[section][name] = append(all[section][name], words...)
		}
	}
	return all
})

// meanings returns what each word of a section means: the name of its list, "" where that is none.
func meanings[T ~string](section string) func() map[string]T {
	return sync.OnceValue(func() map[string]T {
		all := make(map[string]T)
		for name, words := range sections()[section] {
			for _, word := range words {
				all[word] = T(strings.TrimPrefix(name, "none"))
			}
		}
		return all
	})
}

// setOf returns the words of a list as a set.
func setOf(list string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool {
		set := make(map[string]bool)
		for _, word := range sections()["words"][list] {
			set[word] = true
		}
		return set
	})
}

// listOf returns the words of a list.
func listOf(section, name string) func() []string {
	return sync.OnceValue(func() []string { return sections()[section][name] })
}

// SessionKeys are the attribute keys under which agents, frameworks and back ends write the id of a session, the most
// exact first.
var SessionKeys = listOf("keys", "session")

// Keys looks sessions up. It is safe for concurrent use.
type Keys struct {
	names []string
	rank  map[string]int
}

// NewKeys looks up the names, the first that is set winning; nil means SessionKeys.
func NewKeys(names []string) *Keys {
	if names == nil {
		names = SessionKeys()
	}
	k := &Keys{names: names, rank: make(map[string]int, len(names))}
	for i, name := range names {
		if _, twice := k.rank[name]; !twice {
			k.rank[name] = i
		}
	}
	return k
}

// Len is how many names there are: ranks of one place.
func (k *Keys) Len() int { return len(k.names) }

// Find returns the id, the key that gave it and the key's rank: the best on the first of the maps that has one. A rank
// counts places before keys.
func (k *Keys) Find(places ...pcommon.Map) (id, key string, rank int) {
	for i, m := range places {
		best := len(k.names)
		for name, v := range m.All() {
			if r, ok := k.rank[name]; ok && r < best {
				if text := Text(v.AsString()); text != "" {
					id, best = text, r
				}
			}
		}
		if best < len(k.names) {
			return id, k.names[best], i*len(k.names) + best
		}
	}
	return "", "", 0
}
