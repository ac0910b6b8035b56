package ingest

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// spoken is the kind of a text in a message: what goes into the model, unless the
// model wrote it. A message whose role is not known yet may be the user's.
func (x *redaction) spoken(role, partType string) redact.Content {
	switch {
	case partType == "reasoning":
		return redact.Reasoning
	case role == session.RoleAssistant:
		return redact.Other
	}
	return redact.Prompt
}

// part redacts the content of a part, and notes beside it what was cut. What the
// columns repeat of it stays.
func (x *redaction) part(c *store.PartChange) {
	given, call := c.Type, c.ToolCallID
	x.id(&c.ID, &c.MessageID, &c.SessionID, &c.ToolCallID, &c.ToolState)
	if c.ContinuationRunID != nil {
		x.id(c.ContinuationRunID)
	}
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
	var cuts []cut
	note := func(prefix string, res redact.Result) {
		if res.Truncated {
			cuts = append(cuts, cut{prefix, res})
		}
	}
	c.Data = x.members(c.Data, func(m *member) { x.partMember(m, c.Type, kind, note) })
	if len(cuts) > 0 && !strings.HasPrefix(c.Type, "data-") {
		key := "providerMetadata"
		if session.IsToolType(c.Type) {
			key = "toolMetadata"
		}
		c.Data = noteCuts(c.Data, key, cuts)
	}
}

// partMember redacts a member of a part's object. note keeps what was cut of it.
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
		m.value = x.members(m.value, func(m *member) {
			if m.name == "agenttrace" {
				m.value = x.members(m.value, x.trace)
				return
			}
			x.keyed(redact.Other, m)
		})
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

// cut is a value of a part that was cut. What is noted of it is named with prefix.
type cut struct {
	prefix string
	redact.Result
}

// noteCuts notes in the metadata of a part what was cut from it, in the keys that the
// SDK uses for an output: truncated, output_size and output_sha256. Of an input it is
// input_truncated, input_size and input_sha256, of any other value size and sha256.
// What the source reports of an earlier cut of its own stays.
func noteCuts(data json.RawMessage, key string, cuts []cut) json.RawMessage {
	return within(data, key, func(metadata json.RawMessage) json.RawMessage {
		return within(metadata, "agenttrace", func(ours json.RawMessage) json.RawMessage {
			for _, c := range cuts {
				flag := "truncated"
				if c.prefix == "input_" {
					flag = "input_truncated"
				}
				ours = with(ours, flag, "true")
				ours = with(ours, c.prefix+"size", strconv.Itoa(c.Size))
				ours = with(ours, c.prefix+"sha256", `"`+c.SHA256+`"`)
			}
			return ours
		})
	})
}

// with adds a member to an object that has none of that name.
func with(object json.RawMessage, name, value string) json.RawMessage {
	return within(object, name, func(before json.RawMessage) json.RawMessage {
		if before != nil {
			return before
		}
		return json.RawMessage(value)
	})
}

// within replaces the member of an object under key by what f makes of it, or adds what f
// makes of nil where there is none.
func within(object json.RawMessage, key string, f func(json.RawMessage) json.RawMessage) json.RawMessage {
	if object == nil {
		object = json.RawMessage("{}")
	}
	found, empty := false, true
	out := eachMember(object, func(m *member) {
		empty = false
		if m.name == key && !found {
			found, m.value = true, f(m.value)
		}
	})
	end := bytes.LastIndexByte(out, '}')
	if found || end < 0 || out[0] != '{' {
		return out
	}
	grown := bytes.Clone(out[:end])
	if !empty {
		grown = append(grown, ',')
	}
	grown = append(jsonscan.AppendString(grown, key), ':')
	return append(append(grown, f(nil)...), '}')
}
