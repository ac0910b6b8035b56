package dialect

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// A history grows with every model call that repeats it, so that most of the work of a dialect is
// to find the few new messages in it. What objects and arrays hold is decoded when it is asked for.

// object is a JSON object whose members are read as they are asked for. They are parts of what the
// object was made of.
type object map[string]json.RawMessage

// objectOf returns raw as an object, or nil and false. The object is the caller's, its members are
// not.
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

// skipString returns the end of the string at i, or -1.
func skipString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		n := bytes.IndexByte(raw[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for raw[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return -1
}

// text returns a JSON string's text, and "" for everything else.
func text(raw json.RawMessage) string {
	if raw = bytes.TrimSpace(raw); len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && raw[len(raw)-1] == '"' && utf8.Valid(inner) {
		return Text(string(inner))
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return Text(s)
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || raw[0] == 'n'
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
	for _, key := range keys {
		if string(bytes.TrimSpace(o[key])) == "true" {
			return true
		}
	}
	return false
}

// typedValue returns the value of an object that states of which type the one beside it is, as
// LangWatch writes inputs and outputs, or nil.
func typedValue(o object) json.RawMessage {
	if len(o) != 2 || !o.has("value") {
		return nil
	}
	switch o.str("type") {
	case "chat_messages", "json", "list", "raw", "text":
		return o["value"]
	}
	return nil
}
