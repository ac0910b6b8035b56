package dialect

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A history grows with every model call that tells it, so that most of the work
// of a dialect is to find the few new messages in it. The functions here split JSON
// without looking into what they split; those that do not say otherwise take what
// is known to be valid.

// object is a JSON object whose members are read as they are asked for. They are
// parts of what the object was made of.
type object map[string]json.RawMessage

// objectOf returns raw as an object, or nil and false. The object is the caller's,
// its members are not.
func objectOf(raw json.RawMessage) (object, bool) {
	if !json.Valid(raw) {
		return nil, false
	}
	return membersOf(raw)
}

// membersOf is objectOf for what is known to be valid.
func membersOf(raw json.RawMessage) (object, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' {
		return nil, false
	}
	o := make(object, 6)
	for i := 1; ; {
		if i = skipSpace(raw, i); i == len(raw)-1 && len(o) == 0 {
			return o, true
		}
		end := skipValue(raw, i)
		if end < 0 || raw[i] != '"' {
			return nil, false
		}
		key := text(raw[i:end])
		if i = skipSpace(raw, end); i >= len(raw) || raw[i] != ':' {
			return nil, false
		}
		i = skipSpace(raw, i+1)
		if end = skipValue(raw, i); end < 0 {
			return nil, false
		}
		o[key] = raw[i:end:end]
		if i = skipSpace(raw, end); i == len(raw)-1 {
			return o, true
		} else if i >= len(raw) || raw[i] != ',' {
			return nil, false
		}
		i++
	}
}

// elements returns the elements of an array, or nil and false. They are parts of
// raw.
func elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '[' || raw[len(raw)-1] != ']' {
		return nil, false
	}
	var all []json.RawMessage
	for i := 1; ; {
		if i = skipSpace(raw, i); i == len(raw)-1 && all == nil {
			return all, true
		}
		end := skipValue(raw, i)
		if end < 0 {
			return nil, false
		}
		all = append(all, raw[i:end:end])
		if i = skipSpace(raw, end); i == len(raw)-1 {
			return all, true
		} else if i >= len(raw) || raw[i] != ',' {
			return nil, false
		}
		i++
	}
}

// objectsOf returns the elements of an array that are objects.
func objectsOf(raw json.RawMessage) (all []object) {
	list, _ := elements(raw)
	for _, e := range list {
		if o, ok := membersOf(e); ok {
			all = append(all, o)
		}
	}
	return all
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value at i ends, or -1.
func skipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return -1
	}
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		for level := 0; i < len(raw); {
			switch raw[i] {
			case '"':
				if i = skipString(raw, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	start := i
	for i < len(raw) && raw[i] != ',' && raw[i] != ']' && raw[i] != '}' && raw[i] > ' ' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

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

// has reports whether the object has the member, and it is not null.
func (o object) has(key string) bool {
	raw, ok := o[key]
	return ok && !isNull(raw)
}

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
		if o.has(key) {
			return o[key]
		}
	}
	return nil
}

// inner returns the first of the members that is an object.
func (o object) inner(keys ...string) object {
	for _, key := range keys {
		if in, ok := membersOf(o[key]); ok {
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

// typedValue returns the value of an object that states of which type the one beside it is,
// as LangWatch writes inputs and outputs, or nil.
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
