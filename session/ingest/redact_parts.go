package ingest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// part redacts the content of a part, and notes beside it what was cut. What the columns repeat of it stays.
func (x *redaction) part(c *store.PartChange) {
	given, call := c.Type, c.ToolCallID
	x.fields(c)
	x.partType(&c.Type)
	kind := x.spoken(x.roles[c.MessageID], c.Type)
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
