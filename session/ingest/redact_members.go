package ingest

import (
	"bytes"
	"encoding/json"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
)

// member is one of an object in JSON, or an element of an array, which has no name.
type member struct {
	name  string
	value json.RawMessage
}

// members is eachMember where what is no object is redacted whole.
func (x *redaction) members(raw json.RawMessage, f func(*member)) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		x.json(redact.Other, "", &raw)
		return raw
	}
	return eachMember(raw, f)
}

// eachMember writes an object or array again, its members in their order, each as f leaves
// it. What is neither, or is not changed, is returned as it is.
func eachMember(raw json.RawMessage, f func(*member)) json.RawMessage {
	members, named, ok := membersOf(raw)
	if !ok {
		return raw
	}
	changed := false
	for i := range members {
		m := &members[i]
		before := *m
		f(m)
		changed = changed || m.name != before.name || !bytes.Equal(m.value, before.value)
	}
	if !changed {
		return raw
	}
	brackets := "[]"
	if named {
		brackets = "{}"
	}
	out := append(make([]byte, 0, len(raw)+64), brackets[0])
	for i := range members {
		if i > 0 {
			out = append(out, ',')
		}
		if named {
			out = append(jsonscan.AppendString(out, members[i].name), ':')
		}
		out = append(out, members[i].value...)
	}
	return append(out, brackets[1])
}

// membersOf returns the members of an object, or the elements of an array. What is damaged has
// none.
func membersOf(raw json.RawMessage) (members []member, named, ok bool) {
	members = make([]member, 0, 8)
	if jsonscan.Object(raw, maxScanned, func(name string, value json.RawMessage) {
		members = append(members, member{name, value})
	}) {
		return members, true, true
	}
	members = members[:0]
	ok = jsonscan.Array(raw, maxScanned, func(value json.RawMessage) {
		members = append(members, member{value: value})
	})
	return members, false, ok
}

// maxScanned is how deep encoding/json reads.
const maxScanned = 10_000
