package ingest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// What is stored passes here last: a batch just before it is applied, a fact just
// before it is encoded into the batch. Here it is known what each text is, which a
// span's attributes do not say in general. Ids, types, states, names of tools,
// agents and models, and digests are what readers find things by, and are never
// touched, whatever they look like.
//
// Nearly every value is clean. So a part is first searched as the one text that it
// is, and taken apart only when that finds something.

// redaction takes out of what is about to be stored what may not be, and counts.
type redaction struct {
	*redact.Redactor
	redacted, omitted, truncated int
	// roles are those of the batch's messages, where it matters who spoke.
	roles map[string]string
}

func (x *redaction) count(res redact.Result) {
	if res.Redacted {
		x.redacted++
	}
	if res.Omitted {
		x.omitted++
	}
	if res.Truncated {
		x.truncated++
	}
}

func (x *redaction) text(kind redact.Content, s *string) redact.Result {
	if *s == "" {
		return redact.Result{}
	}
	out, res := x.Apply(kind, "", *s)
	x.count(res)
	*s = out
	return res
}

// json redacts a value in JSON in place. A string counts and is cut by its own bytes,
// not by those of its notation.
func (x *redaction) json(kind redact.Content, key string, raw *json.RawMessage) redact.Result {
	if len(*raw) == 0 || string(*raw) == "null" {
		return redact.Result{}
	}
	var s string
	if (*raw)[0] == '"' && json.Unmarshal(*raw, &s) == nil {
		out, res := x.Apply(kind, key, s)
		x.count(res)
		if out != s {
			*raw = spans.AppendJSONString(nil, out)
		}
		return res
	}
	out, res := x.ApplyJSON(kind, key, *raw)
	x.count(res)
	*raw = out
	return res
}

// clean reports whether a value in JSON needs no change, unless it is of a kind that
// is omitted.
func (x *redaction) clean(raw []byte) bool {
	_, res := x.ApplyJSON(redact.Other, "", raw)
	return !res.Redacted && !res.Truncated
}

// batch redacts everything that the batch would store. What its observations hold was
// redacted as facts.
func (x *redaction) batch(b *store.Batch) {
	if x.Omits(redact.Prompt) {
		x.roles = make(map[string]string, len(b.Messages))
		for i := range b.Messages {
			if m := &b.Messages[i]; m.Role != "" {
				x.roles[m.ID] = m.Role
			}
		}
	}
	for i := range b.Sessions {
		x.session(&b.Sessions[i])
	}
	for i := range b.Messages {
		b.Messages[i].Metadata = x.messageMetadata(b.Messages[i].Metadata)
	}
	for i := range b.Parts {
		x.part(&b.Parts[i])
	}
	for i := range b.Decisions {
		d := &b.Decisions[i]
		x.text(redact.Other, &d.Pattern)
		x.text(redact.Other, &d.Reason)
	}
	for i := range b.Blobs {
		x.blob(&b.Blobs[i])
	}
	for i := range b.Links {
		if f := b.Links[i].Facts; f != nil {
			x.messageFacts(f)
		}
	}
}

func (x *redaction) session(c *store.SessionChange) {
	for _, v := range [...]*store.Value{c.Title, c.WorkspaceRoot} {
		if v != nil {
			x.text(redact.Other, &v.Text)
		}
	}
	if c.Permissions != nil && !x.clean([]byte(c.Permissions.Text)) {
		c.Permissions.Text = string(x.rules(json.RawMessage(c.Permissions.Text)))
	}
	for key, v := range c.Metadata {
		raw := json.RawMessage(v.Text)
		if res := x.json(redact.Other, key, &raw); res.Redacted || res.Truncated {
			v.Text = string(raw)
			c.Metadata[key] = v
		}
	}
}

// rules redacts the patterns of permission rules.
func (x *redaction) rules(raw json.RawMessage) json.RawMessage {
	var rules []json.RawMessage
	if json.Unmarshal(raw, &rules) != nil {
		x.json(redact.Other, "", &raw)
		return raw
	}
	for i := range rules {
		rules[i] = x.members(rules[i], func(m *member) {
			if m.name == "pattern" {
				x.json(redact.Other, "", &m.value)
			}
		})
	}
	return append(append([]byte("["), bytes.Join(bytesOf(rules), []byte(","))...), ']')
}

func bytesOf(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i := range all {
		out[i] = all[i]
	}
	return out
}

func (x *redaction) messageMetadata(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || x.clean(raw) {
		return raw
	}
	return x.members(raw, func(m *member) {
		switch m.name {
		case "model", "agent", "usage", "compaction", "system_prompt_digest":
		case "agenttrace":
			m.value = x.members(m.value, x.trace)
		default:
			x.json(redact.Other, m.name, &m.value)
		}
	})
}

// trace redacts a member of an agenttrace object in metadata.
func (x *redaction) trace(m *member) {
	switch m.name {
	case "tool_catalog_digest", "output_sha256", "sha256", "child_session_id", "response_id", "response_model", "stub", "live", "seen", "state":
	case "partial_output":
		x.json(redact.ToolOutput, "", &m.value)
	default:
		x.json(redact.Other, m.name, &m.value)
	}
}

// blob keeps the digest that its source gave it, which is what messages know it by.
// When that is no longer the digest of what is stored, the blob says so.
func (x *redaction) blob(b *store.Blob) {
	before := b.Body
	if b.Kind == store.BlobSystemPrompt {
		x.text(redact.Prompt, &b.Body)
	} else {
		raw := json.RawMessage(b.Body)
		if res := x.json(redact.Other, "", &raw); res.Redacted || res.Truncated {
			b.Body = string(raw)
		}
	}
	if b.Body != before {
		sum := sha256.Sum256([]byte(b.Body))
		b.Exact = hex.EncodeToString(sum[:]) == b.Digest
	}
}

func (x *redaction) messageFacts(f *store.Facts) {
	x.text(redact.Other, &f.Trace.Error)
	x.texts(f.Trace.Problems)
	x.texts(f.Trace.ModelErrors)
	x.json(redact.Other, "", &f.Trace.UsageRaw)
	for key, raw := range f.Extra {
		before := raw
		if x.json(redact.Other, key, &raw); !bytes.Equal(before, raw) {
			f.Extra[key] = raw
		}
	}
}

func (x *redaction) texts(all []string) {
	for i := range all {
		x.text(redact.Other, &all[i])
	}
}

// spoken is the kind of a text in a message: what goes into the model, unless the
// model said it. A message whose role is not known yet may be the user's.
func (x *redaction) spoken(role, partType string) redact.Content {
	switch {
	case partType == "reasoning":
		return redact.Reasoning
	case role == session.RoleAssistant:
		return redact.Other
	}
	return redact.Prompt
}

func isTool(partType string) bool {
	return strings.HasPrefix(partType, "tool-") || partType == "dynamic-tool"
}

// part redacts the content of a part, and notes beside it what was cut. What the
// columns repeat of it stays.
func (x *redaction) part(c *store.PartChange) {
	kind := x.spoken(x.roles[c.MessageID], c.Type)
	wanted := !x.Omits(kind)
	if isTool(c.Type) || c.Type == store.TypeDamaged {
		wanted = !x.Omits(redact.ToolInput) && !x.Omits(redact.ToolOutput) && (c.Type != store.TypeDamaged || !x.Omits(kind) && !x.Omits(redact.Reasoning))
	}
	if wanted && x.clean(c.Data) {
		return
	}
	var cuts []cut
	note := func(prefix string, res redact.Result) {
		if res.Truncated {
			cuts = append(cuts, cut{prefix, res})
		}
	}
	c.Data = x.members(c.Data, func(m *member) {
		switch m.name {
		case "type", "id", "toolCallId", "toolName", "state", "mediaType", "sourceId", "providerExecuted", "preliminary", "dynamic":
		case "approval":
			m.value = x.members(m.value, func(m *member) {
				if m.name == "reason" {
					x.json(redact.Other, "", &m.value)
				}
			})
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
				x.json(redact.Other, m.name, &m.value)
			})
		case "data":
			x.data(c.Type, kind, &m.value)
		case "text", "url", "filename", "title":
			note("", x.json(kind, "", &m.value))
		default:
			x.json(kind, m.name, &m.value)
		}
	})
	if len(cuts) > 0 && !strings.HasPrefix(c.Type, "data-") {
		key := "providerMetadata"
		if isTool(c.Type) {
			key = "toolMetadata"
		}
		c.Data = noteCuts(c.Data, key, cuts)
	}
}

// data redacts what a data part holds.
func (x *redaction) data(partType string, kind redact.Content, raw *json.RawMessage) {
	switch partType {
	case session.TypeCompaction:
		*raw = x.members(*raw, func(m *member) {
			if m.name == "summary" {
				x.json(redact.Other, "", &m.value)
			}
		})
	case store.TypeDamaged:
		var of struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(*raw, &of) // then it is of no type
		switch {
		case isTool(of.Type) && x.Omits(redact.ToolInput):
			kind = redact.ToolInput
		case isTool(of.Type):
			kind = redact.ToolOutput
		case of.Type == "reasoning":
			kind = redact.Reasoning
		}
		*raw = x.members(*raw, func(m *member) {
			if m.name != "type" {
				x.json(kind, "", &m.value)
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

// noteCuts says in the metadata of a part what was cut from it, in the keys that the
// SDK uses for an output: truncated, output_size and output_sha256. Of an input it is
// input_truncated, input_size and input_sha256, of any other value size and sha256.
// What the source says of an earlier cut of its own stays.
func noteCuts(data json.RawMessage, key string, cuts []cut) json.RawMessage {
	return within(data, key, func(metadata json.RawMessage) json.RawMessage {
		return within(metadata, "agenttrace", func(ours json.RawMessage) json.RawMessage {
			for _, c := range cuts {
				flag := "truncated"
				if c.prefix == "input_" {
					flag = "input_truncated"
				}
				ours = with(ours, flag, []byte("true"))
				ours = with(ours, c.prefix+"size", strconv.AppendInt(nil, int64(c.Size), 10))
				ours = with(ours, c.prefix+"sha256", []byte(`"`+c.SHA256+`"`))
			}
			return ours
		})
	})
}

// within replaces the object under key, empty where there is none, by what f makes
// of it.
func within(object json.RawMessage, key string, f func(json.RawMessage) json.RawMessage) json.RawMessage {
	found := false
	out := eachMember(object, func(m *member) {
		if m.name == key && !found {
			found, m.value = true, f(m.value)
		}
	})
	if !found {
		return with(out, key, f(json.RawMessage("{}")))
	}
	return out
}

// with adds a member to an object that has none of that name.
func with(object json.RawMessage, name string, value []byte) json.RawMessage {
	found, empty := false, true
	out := eachMember(object, func(m *member) { found, empty = found || m.name == name, false })
	if found || len(out) == 0 || out[len(out)-1] != '}' {
		return out
	}
	grown := append(make([]byte, 0, len(out)+len(name)+len(value)+4), out[:len(out)-1]...)
	if !empty {
		grown = append(grown, ',')
	}
	grown = append(spans.AppendJSONString(grown, name), ':')
	return append(append(grown, value...), '}')
}

// member is one of an object in JSON.
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

// eachMember writes an object again, its members in their order, each as f leaves it.
// What is no object is returned as it is.
func eachMember(raw json.RawMessage, f func(*member)) json.RawMessage {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return raw
	}
	out := append(make([]byte, 0, len(raw)+64), '{')
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return raw
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return raw
		}
		m.value = bytes.Clone(value)
		f(&m)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(spans.AppendJSONString(out, m.name), ':')
		out = append(out, m.value...)
	}
	return append(out, '}')
}

// fact redacts what a span or record said before it is kept.
func (x *redaction) fact(f *fact.Fact) {
	x.text(redact.Other, &f.Name)
	for i := range f.Input {
		for j := range f.Input[i].Parts {
			x.factPart(f.Input[i].Role, &f.Input[i].Parts[j])
		}
	}
	for i := range f.Output {
		x.factPart(session.RoleAssistant, &f.Output[i])
	}
	x.text(redact.Prompt, &f.SystemPrompt)
	if f.ToolCatalog != "" {
		raw := json.RawMessage(f.ToolCatalog)
		if res := x.json(redact.Other, "", &raw); res.Redacted || res.Truncated {
			f.ToolCatalog = string(raw)
		}
	}
	if f.Usage != nil {
		x.json(redact.Other, "", &f.Usage.Raw)
	}
	failure := redact.Other
	if f.Kind == fact.ToolCall {
		failure = redact.ToolOutput
	}
	x.text(failure, &f.Error)
	x.text(redact.Other, &f.ErrorType)
	if t := f.Tool; t != nil {
		x.json(redact.ToolInput, "", &t.Input)
		if res := x.json(redact.ToolOutput, "", &t.Output); res.Truncated {
			t.Truncated = true
			if t.OutputSize == 0 { // else the source says it of what it cut itself
				t.OutputSize, t.OutputSHA256 = int64(res.Size), res.SHA256
			}
		}
	}
	if d := f.Decision; d != nil {
		if strings.Trim(d.Pattern, "*") != "" { // else it says nothing of the call
			x.text(redact.ToolInput, &d.Pattern)
		}
		x.text(redact.Other, &d.Reason)
	}
	if c := f.Compacted; c != nil {
		x.text(redact.Other, &c.Summary)
	}
	if a := f.About; a != nil {
		x.text(redact.Other, &a.Title)
		x.text(redact.Other, &a.WorkspaceRoot)
		if len(a.Rules) > 0 && !x.clean(a.Rules) {
			a.Rules = x.rules(a.Rules)
		}
	}
	x.json(redact.Other, "", &f.Extra)
	x.texts(f.Problems)
}

func (x *redaction) factPart(role string, p *fact.Part) {
	kind := x.spoken(role, p.Kind)
	switch p.Kind {
	case fact.PartCall:
		kind = redact.ToolInput
	case fact.PartResult:
		kind = redact.ToolOutput
	case fact.PartCompaction:
		kind = redact.Other
	case fact.PartFile, fact.PartSource: // there the name is not a tool's
		x.text(kind, &p.Name)
	}
	x.text(kind, &p.Text)
	x.json(redact.ToolInput, "", &p.Input)
	x.json(redact.ToolOutput, "", &p.Output)
	x.text(redact.ToolOutput, &p.Error)
	x.text(kind, &p.URL)
	x.json(kind, "", &p.Data)
}
