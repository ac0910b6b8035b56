package ingest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
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

// conversation omits, in what a program keeps beside its messages, the prompts and outputs of a conversation: what
// objects with a role say.
func (x *redaction) conversation(raw json.RawMessage) json.RawMessage {
	if s, ok := unquoted(raw); ok {
		if s = strings.TrimSpace(s); strings.Contains(s, `"role"`) && json.Valid([]byte(s)) {
			raw = jsonscan.AppendString(nil, string(x.conversation(json.RawMessage(s))))
		}
		return raw
	}
	members, _, _ := membersOf(raw)
	kind := redact.Other
	if i := slices.IndexFunc(members, func(m member) bool { return m.name == "role" && m.value[0] == '"' }); i >= 0 {
		if role, _ := unquoted(members[i].value); role == "tool" || role == "function" {
			kind = redact.ToolOutput
		} else {
			kind = x.spoken(role, "text")
		}
	}
	return eachMember(raw, func(m *member) {
		switch m.name {
		case "content", "parts", "text", "message":
			if x.Omits(kind) {
				x.json(kind, "", &m.value)
				return
			}
		}
		m.value = x.conversation(m.value)
	})
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
	if !x.rows && !x.Omits(redact.ToolInput) && x.clean(raw) {
		return raw
	}
	if !json.Valid(raw) || bytes.TrimSpace(raw)[0] != '[' {
		x.json(redact.Other, "", &raw)
		return raw
	}
	return eachMember(raw, func(rule *member) {
		rule.value = x.members(rule.value, func(m *member) {
			if x.idsExcept("pattern")(m); m.name == "pattern" && strings.Trim(string(m.value), `"*`) != "" {
				x.json(redact.ToolInput, "", &m.value)
			}
		})
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
	switch {
	case m.name == "agenttrace":
		m.value = x.members(m.value, x.trace)
	case m.name == statusKey && x.Omits(redact.ToolInput) && bytes.Contains(m.value, []byte(`"tool_call_id"`)):
		m.value = x.members(m.value, func(m *member) {
			if x.keyed(redact.Other, m); m.name == "detail" { // what a call waits for is in its input
				x.json(redact.ToolInput, "", &m.value)
			}
		})
	default:
		x.keyed(redact.Other, m)
	}
}

func (x *redaction) messageMetadata(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || !x.rows && !x.Omits(redact.Prompt) && x.clean(raw) {
		return raw
	}
	return x.members(raw, func(m *member) {
		switch m.name {
		case "model", "agent", "usage", "compaction":
			m.value = x.ids(m.value)
		case "system_prompt_digest":
			x.digest(store.BlobSystemPrompt, m)
		default:
			x.sessionMember(m)
		}
	})
}

// trace redacts a member of an agenttrace object in metadata.
func (x *redaction) trace(m *member) {
	switch m.name {
	case "tool_catalog_digest":
		x.digest(store.BlobToolCatalog, m)
	case "output_sha256", "input_sha256", "sha256":
		of := map[string]redact.Content{"output_sha256": redact.ToolOutput, "input_sha256": redact.ToolInput}
		if kind, ok := of[m.name]; x.Omits(kind) || !ok && x.Omits(x.kind) {
			m.value = json.RawMessage(`""`) // it would confirm a guess
		}
		m.value = x.ids(m.value)
	case "child_session_id", "response_id", "response_model", "stub",
		"live", "seen", "state", "subagent_of", "subagent_id", "parent_subagent_id", "started_by",
		"end_reason", "stop_reason", "stop_reason_raw", "usage_basis", "kind", "error_type",
		"source_id", "session_key", "turn_id", "trace_id", "sources", "steps":
		m.value = x.ids(m.value)
	case "partial_output":
		x.json(redact.ToolOutput, "", &m.value)
	default:
		switch traceKinds()[m.name] {
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
func (x *redaction) digest(kind store.BlobKind, m *member) {
	m.value = x.ids(m.value)
	if s, ok := unquoted(m.value); ok {
		m.value = jsonscan.AppendString(nil, x.digestOf(kind, s))
	}
}

// traceKinds has what the members of an agenttrace object are whose names are ours: a key of the configuration, such as
// "input", that is part of such a name finds no secret there, and a string in the place of a count would make the row
// invalid. Lists of texts are arrays here, to distinguish them from lists of objects.
var traceKinds = sync.OnceValue(func() map[string]reflect.Kind {
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
})

// part redacts the content of a part, and notes beside it what was cut. What the columns repeat of it stays.
func (x *redaction) part(c *store.PartChange) {
	given, call := c.Type, c.ToolCallID
	x.fields(c)
	x.partType(&c.Type)
	kind := x.spoken(x.roles[c.MessageID], c.Type)
	x.kind = kind
	wanted := !x.Omits(kind)
	if session.IsToolType(c.Type) || c.Type == store.TypeDamaged {
		wanted = !x.Omits(redact.ToolInput) && !x.Omits(redact.ToolOutput) &&
			(c.Type != store.TypeDamaged || !x.Omits(kind) && !x.Omits(redact.Reasoning))
	}
	// More is found in an identifier than in a text, and the data repeats these.
	same := c.Type == given && c.ToolCallID == call && c.Type != "dynamic-tool"
	if wanted && same && !x.rows && x.clean(c.Data) {
		return
	}
	var cuts []member
	note := func(prefix string, res redact.Result) {
		if !res.Truncated {
			return
		}
		flag := "truncated"
		if prefix == "input_" {
			flag = "input_truncated"
		}
		cuts = append(cuts, member{flag, json.RawMessage("true")},
			member{prefix + "size", strconv.AppendInt(nil, int64(res.Size), 10)},
			member{prefix + "sha256", json.RawMessage(`"` + res.SHA256 + `"`)})
	}
	c.Data = x.members(c.Data, func(m *member) { x.partMember(m, c.Type, kind, note) })
	if len(cuts) > 0 && !strings.HasPrefix(c.Type, "data-") {
		key := "providerMetadata"
		if session.IsToolType(c.Type) {
			key = "toolMetadata"
		}
		c.Data = addMembers(c.Data, cuts, key, "agenttrace")
	}
}

// partMember redacts a member of a part's object. note notes what was cut of it, in the keys that the SDK uses for an
// output: truncated, output_size and output_sha256. Of an input it is input_truncated, input_size and input_sha256, of
// any other value size and sha256.
func (x *redaction) partMember(m *member, partType string, kind redact.Content, note func(string, redact.Result)) {
	switch m.name {
	case "type", "id", "toolCallId", "toolName", "state", "mediaType", "sourceId", "providerExecuted", "preliminary",
		"dynamic":
		m.value = x.ids(m.value)
	case "approval":
		m.value = x.members(m.value, x.idsExcept("reason"))
	case "input", "rawInput":
		note("input_", x.json(redact.ToolInput, "", &m.value))
	case "output", "errorText":
		note("output_", x.json(redact.ToolOutput, "", &m.value))
	case "toolMetadata", "providerMetadata", "callProviderMetadata":
		m.value = x.members(m.value, x.sessionMember)
	case "data":
		x.data(partType, kind, &m.value)
	case "text", "url", "filename", "title":
		note("", x.json(kind, "", &m.value))
	default:
		x.keyed(kind, m)
	}
}

// data redacts what a data part holds.
func (x *redaction) data(partType string, kind redact.Content, raw *json.RawMessage) {
	switch partType {
	case session.TypeCompaction:
		*raw = x.members(*raw, x.idsExcept("summary"))
	case store.TypeDamaged:
		var of struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(*raw, &of) // then it is of no type
		switch {
		case session.IsToolType(of.Type) && x.Omits(redact.ToolInput):
			kind = redact.ToolInput
		case session.IsToolType(of.Type):
			kind = redact.ToolOutput
		case of.Type == "reasoning":
			kind = redact.Reasoning
		}
		*raw = x.members(*raw, func(m *member) {
			if m.name == "type" {
				m.value = x.ids(m.value)
			} else {
				x.json(kind, "", &m.value)
				x.id(&m.name)
			}
		})
	default:
		x.json(kind, "", raw)
	}
}

// addMembers adds members to the object at a path in an object, except those that it has: what the source reports of an
// earlier cut of its own stays.
func addMembers(object json.RawMessage, added []member, path ...string) json.RawMessage {
	if object == nil {
		object = json.RawMessage("{}")
	}
	members, named, _ := membersOf(object)
	if !named {
		return object
	}
	at := func(name string) int {
		return slices.IndexFunc(members, func(m member) bool { return m.name == name })
	}
	if len(path) > 0 {
		i := at(path[0])
		if i < 0 {
			i, members = len(members), append(members, member{name: path[0]})
		}
		members[i].value = addMembers(members[i].value, added, path[1:]...)
		added = nil
	}
	for _, m := range added {
		if at(m.name) < 0 {
			members = append(members, m)
		}
	}
	return appendAll(nil, members, true)
}
