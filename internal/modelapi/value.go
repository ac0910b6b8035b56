package modelapi

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// value is a JSON value as its document has it. It is "" where there is none, or null. Its methods return nothing
// where it is of another type.
type value string

// maxLevels is how deep encoding/json reads, too.
const maxLevels = 10_000

// parse returns the object that a document is, nil if it is something else.
func parse(document []byte) object { return trimmed(document).object() }

func trimmed(document []byte) value { return value(strings.Trim(string(document), " \t\r\n")) }

// Valid reports whether a document is JSON.
func Valid(document []byte) bool { return jsonscan.Valid(string(document)) }

// raw returns a copy.
func (v value) raw() json.RawMessage {
	if v == "" {
		return nil
	}
	return json.RawMessage(v)
}

func (v value) isText() bool { return v != "" && v[0] == '"' }

func (v value) text() (s string) {
	if !v.isText() {
		return ""
	}
	if inner := string(v[1 : len(v)-1]); strings.IndexByte(inner, '\\') < 0 && utf8.ValidString(inner) {
		return strings.Clone(inner) // which the document may be forgotten without
	}
	_ = json.Unmarshal([]byte(v), &s) // what cannot be read is none
	return s
}

// count returns a number without what follows its point.
func (v value) count() int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n
	}
	n, _ := strconv.ParseFloat(string(v), 64) // 0 of what is not a number
	return int64(n)
}

// members returns the members of an object or the elements of a list, whichever begins with the bracket. Those of an
// empty one are not nil.
func (v value) members(bracket byte) object {
	if v == "" || v[0] != bracket {
		return nil
	}
	all := make(object, 0, 8)
	if end := jsonscan.Container(string(v), 0, func(key jsonscan.Key, i int) int {
		end := jsonscan.Value(string(v), i, maxLevels)
		if end < 0 {
			return end
		}
		m := member{value: v[i:end]}
		if bracket == '{' {
			if m.name = string(v[key.From+1 : key.To-1]); strings.IndexByte(m.name, '\\') >= 0 {
				m.name = v[key.From:key.To].text()
			}
			if m.value == "null" {
				m.value = ""
			}
		}
		all = append(all, m)
		return end
	}); end != len(v) {
		return nil
	}
	return all
}

func (v value) object() object { return v.members('{') }

func (v value) elements() object { return v.members('[') }

// objects returns the elements of a list that are objects.
func (v value) objects() (all []object) {
	for _, e := range v.elements() {
		if o := e.value.object(); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// object has the members of an object, of which there are few.
type object []member

type member struct {
	name  string
	value value
}

// get returns the value of the first of the names that has one.
func (o object) get(names ...string) value {
	for _, name := range names {
		for i := len(o) - 1; i >= 0; i-- { // of two members with one name the last counts
			if o[i].name == name && o[i].value != "" {
				return o[i].value
			}
		}
	}
	return ""
}

// text returns the first of the texts that is not empty.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s := o.get(name).text(); s != "" {
			return s
		}
	}
	return ""
}

// in returns an object within the object.
func (o object) in(path ...string) object {
	for _, name := range path {
		o = o.get(name).object()
	}
	return o
}

// at returns the value at the first of some paths that leads to one.
func (o object) at(paths string) (v value) {
	for path := range strings.FieldsSeq(paths) {
		names := strings.Split(path, ".")
		last := len(names) - 1
		if v = o.in(names[:last]...).get(names[last]); v != "" {
			break
		}
	}
	return v
}

// count returns the count at a path.
func (o object) count(path string) int64 { return o.at(path).count() }

func (o object) isTrue(name string) bool { return o.get(name) == "true" }

// textOf returns a text, or the texts of a list of parts with the separator between them. ok is false if a part is of
// none of the types, if any are given, or if the value is neither.
func textOf(v value, separator string, types ...string) (text string, ok bool) {
	if v == "" || v.isText() {
		return v.text(), true
	}
	parts := v.elements()
	ok = parts != nil
	var texts []string
	for _, part := range parts {
		o := part.value.object()
		if len(types) > 0 && (o == nil || !slices.Contains(types, o.text("type"))) {
			ok = false
		} else if s := cmp.Or(part.value.text(), o.text("text", "refusal"), o.in("text").text("value")); s != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, separator), ok
}

// outputOf returns the JSON of a tool's output: the text of parts of the types, or all if it has others.
func outputOf(v value, separator string, types ...string) json.RawMessage {
	if text, ok := textOf(v, separator, types...); ok {
		return output(text)
	}
	return v.raw()
}

// output returns the JSON of a tool's output. A text that is itself a JSON object or list
// becomes that, as APIs that take only texts have them so.
func output(text string) json.RawMessage {
	if t := strings.TrimSpace(text); len(t) > 1 && (t[0] == '{' || t[0] == '[') && jsonscan.Valid(t) {
		return json.RawMessage(t)
	}
	return Quote(text)
}

// Quote returns a text as JSON.
func Quote(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil { // texts always encode
		return json.RawMessage(`""`)
	}
	return b
}

// Input returns the JSON of a tool call's input, which a model wrote.
func Input(text string) json.RawMessage {
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage("{}")
	case jsonscan.Valid(text):
		return json.RawMessage(text)
	}
	return Quote(text)
}
