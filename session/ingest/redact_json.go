package ingest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
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
	changed := false
	for i := 0; ok && i < len(members); i++ {
		m := &members[i]
		before := *m
		f(m)
		changed = changed || m.name != before.name || !bytes.Equal(m.value, before.value)
	}
	if !changed {
		return raw
	}
	return appendAll(make([]byte, 0, len(raw)+64), members, named)
}

// appendAll appends an object of the members, or an array.
func appendAll(out []byte, members []member, named bool) []byte {
	brackets := "[]"
	if named {
		brackets = "{}"
	}
	out = append(out, brackets[0])
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

// membersOf returns the members of an object, or the elements of an array. What is damaged has none.
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

// unquoted reads a string in JSON. One with halves of surrogate pairs takes longer.
func unquoted(raw json.RawMessage) (s string, ok bool) {
	if raw[0] != '"' {
		return "", false
	}
	if s, ok = jsonscan.Unquote(raw); ok {
		return s, true
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// ids redacts every string in a value in JSON as an identifier, and every name.
func (x *redaction) ids(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '"' && !x.rows && x.clean(raw) {
		return raw
	}
	out, ok := x.eachString(raw, x.idString)
	if !ok || !jsonscan.IsValue(raw, maxScanned) && !json.Valid(raw) {
		x.json(redact.Other, "", &out)
	}
	return out
}

// idString redacts a string in JSON as an identifier.
func (x *redaction) idString(raw json.RawMessage) json.RawMessage {
	s, ok := unquoted(raw)
	if !ok {
		x.json(redact.Other, "", &raw)
		return raw
	}
	before := s
	if x.partType(&s); s == before {
		return raw
	}
	return jsonscan.AppendString(nil, s)
}

// words redacts every name and every string of one word in a value in JSON as an
// identifier: what a program's own metadata holds of ids repeats those of the rows.
func (x *redaction) words(raw json.RawMessage) json.RawMessage {
	const long = 256
	out, _ := x.eachString(raw, func(raw json.RawMessage) json.RawMessage {
		if len(raw) > long {
			return raw
		}
		if s, ok := unquoted(raw); !ok || strings.ContainsAny(s, " \t\r\n") {
			return raw
		}
		return x.idString(raw)
	})
	return out
}

// eachString writes a value in JSON again, each of its strings as f leaves it and each name
// redacted as an identifier. It is not ok for what is neither a string nor holds any.
func (x *redaction) eachString(raw json.RawMessage, f func(json.RawMessage) json.RawMessage) (json.RawMessage, bool) {
	if len(raw) == 0 || strings.IndexByte(`"{[`, raw[0]) < 0 {
		return raw, false
	}
	if raw[0] == '"' {
		return f(raw), true
	}
	return eachMember(raw, func(m *member) {
		x.id(&m.name)
		m.value, _ = x.eachString(m.value, f)
	}), true
}

// rules redacts the patterns of permission rules.
func (x *redaction) rules(raw json.RawMessage) json.RawMessage {
	if !x.rows && x.clean(raw) {
		return raw
	}
	if !json.Valid(raw) || bytes.TrimSpace(raw)[0] != '[' {
		x.json(redact.Other, "", &raw)
		return raw
	}
	return eachMember(raw, func(rule *member) {
		rule.value = x.members(rule.value, x.idsExcept("pattern"))
	})
}

// idsExcept redacts members of an object as identifiers, and the one of a name as a text.
func (x *redaction) idsExcept(text string) func(m *member) {
	return func(m *member) {
		if m.name == text {
			x.json(redact.Other, "", &m.value)
		} else {
			x.id(&m.name)
			m.value = x.ids(m.value)
		}
	}
}

// keyed redacts a member whose name the emitter chose.
func (x *redaction) keyed(kind redact.Content, m *member) {
	x.json(kind, m.name, &m.value)
	if x.rows {
		m.value = x.words(m.value)
	}
	x.id(&m.name)
}

// sessionMember redacts a member of a session's metadata, or of the metadata of a part.
func (x *redaction) sessionMember(m *member) {
	if m.name == "agenttrace" {
		m.value = x.members(m.value, x.trace)
	} else {
		x.keyed(redact.Other, m)
	}
}

func (x *redaction) messageMetadata(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || !x.rows && x.clean(raw) {
		return raw
	}
	return x.members(raw, func(m *member) {
		switch m.name {
		case "model", "agent", "usage", "compaction":
			m.value = x.ids(m.value)
		case "system_prompt_digest":
			x.digest(m)
		default:
			x.sessionMember(m)
		}
	})
}

// trace redacts a member of an agenttrace object in metadata.
func (x *redaction) trace(m *member) {
	switch m.name {
	case "tool_catalog_digest":
		x.digest(m)
	case "output_sha256", "sha256", "child_session_id", "response_id", "response_model", "stub",
		"live", "seen", "state", "subagent_of", "subagent_id", "parent_subagent_id", "started_by",
		"end_reason", "stop_reason", "stop_reason_raw", "usage_basis", "kind", "error_type",
		"source_id", "session_key", "turn_id", "trace_id", "sources", "steps":
		m.value = x.ids(m.value)
	case "partial_output":
		x.json(redact.ToolOutput, "", &m.value)
	default:
		switch traceKinds[m.name] {
		case reflect.Struct, reflect.Slice:
			m.value = x.ids(m.value)
		case reflect.Array: // of texts
			x.json(redact.Other, "", &m.value)
		case reflect.Int64, reflect.Float64, reflect.Bool:
			if len(m.value) > 0 && bytes.IndexByte([]byte(`"[{`), m.value[0]) < 0 {
				return
			}
			fallthrough
		default:
			x.keyed(redact.Other, m)
		}
	}
}

// digest redacts a member that has the digest of a prompt or a catalog.
func (x *redaction) digest(m *member) {
	m.value = x.ids(m.value)
	if len(x.renamed) > 0 {
		if s, _ := unquoted(m.value); x.renamed[s] != "" {
			m.value = json.RawMessage(`"` + x.renamed[s] + `"`)
		}
	}
}

// traceKinds has what the members of an agenttrace object are whose names are ours: a key of the configuration, such as
// "input", that is part of such a name finds no secret there, and a string in the place of a count would make the row
// invalid. Lists of texts are arrays here, to distinguish them from lists of objects.
var traceKinds = func() map[string]reflect.Kind {
	kinds := make(map[string]reflect.Kind)
	for _, of := range []reflect.Type{reflect.TypeFor[session.MessageTrace](), reflect.TypeFor[session.ToolTrace]()} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			t := of.Field(i).Type
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			switch kinds[name] = t.Kind(); t {
			case reflect.TypeFor[json.RawMessage]():
				delete(kinds, name)
			case reflect.TypeFor[[]string]():
				kinds[name] = reflect.Array
			}
		}
	}
	return kinds
}()
