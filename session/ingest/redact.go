package ingest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
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
// span's attributes do not say in general. Every text passes, whatever it is: an
// emitter may put a secret anywhere. What readers find things by (ids, types, states,
// names of tools, agents and models, keys) is an identifier: it is neither omitted nor
// cut, and what is redacted of it still tells things apart; see [redact.Redactor.Identifier].
// That has to happen before an id is derived from another, so that a digest confirms no
// guess: see [own.identify]. Tests plant a secret into every string of a batch, of a
// fact, and of the protocol, so that no new field is forgotten.
//
// Nearly every value is clean. So a part is first searched as the one text that it
// is, and taken apart only when that finds something.

// redaction takes out of what is about to be stored what may not be, and counts.
type redaction struct {
	*redact.Redactor
	redacted, omitted, truncated int
	// roles are those of the batch's messages, where it matters who spoke.
	roles map[string]string
	// rows reports that rows are redacted that no fact was made into: then nothing was
	// redacted as an identifier yet, in which more is found than in a text.
	rows bool
}

// id redacts identifiers in place. One that is nil is not there.
func (x *redaction) id(all ...*string) {
	for _, s := range all {
		if s == nil {
			continue
		}
		if out := x.identifier(*s); out != *s {
			*s = out
		}
	}
}

// maxIdentifier is how long an identifier is at most, in bytes. It is stored in every row
// that refers to it.
const maxIdentifier = 16 << 10

// identifier returns an identifier without secrets. One that is too long keeps its
// beginning, and a digest that still tells it apart.
func (x *redaction) identifier(s string) string {
	if minted(s) {
		return s
	}
	out := x.Identifier(s)
	if out != s {
		x.redacted++
	}
	if len(out) > maxIdentifier {
		x.truncated++
		digest := sha256.Sum256([]byte(out)) // of what is redacted, so that it confirms no guess
		out = strings.ToValidUTF8(out[:maxIdentifier/2], "") + "…sha256-" + hex.EncodeToString(digest[:])
	}
	return out
}

// The bytes of words, of ids as the SDK mints them, and of hexadecimal digests.
var (
	wordBytes = byteSet("abcdefghijklmnopqrstuvwxyz-_")
	idBytes   = byteSet("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	hexBytes  = byteSet("0123456789abcdef")
)

func byteSet(chars string) (set [256]bool) {
	for i := range len(chars) {
		set[chars[i]] = true
	}
	return set
}

// minted reports whether s has a shape in which nothing is found: an id as the SDK mints
// them, a short word of lower-case letters, or the hex of a trace, a span or a digest.
func minted(s string) bool {
	var set *[256]bool
	switch n := len(s); {
	case n <= 12:
		set = &wordBytes
	case n == 16 || n == 32 || n == 64:
		set = &hexBytes
	case n == 30 && (s[:4] == spans.PrefixSession || s[:4] == spans.PrefixMessage || s[:4] == spans.PrefixPart ||
		s[:4] == spans.PrefixPermission):
		s, set = s[4:], &idBytes
	default:
		return false
	}
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// partType redacts the type of a part, which may end in the name of a tool.
func (x *redaction) partType(s *string) {
	if name, ok := strings.CutPrefix(*s, "tool-"); ok {
		if out := x.identifier(name); out != name {
			*s = "tool-" + out
		}
		return
	}
	x.id(s)
}

// ids redacts every string in a value in JSON as an identifier, and every name.
func (x *redaction) ids(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '"' && !x.rows && x.clean(raw) {
		return raw
	}
	out, ok := x.eachString(raw, x.idString)
	if !ok || !session.IsJSON(raw, maxScanned) && !json.Valid(raw) {
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
	return spans.AppendJSONString(nil, s)
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

// identifiers redacts every string in a struct as an identifier. What was redacted as
// something else does not change.
func (x *redaction) identifiers(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if out := x.identifier(v.String()); out != v.String() {
			v.SetString(out)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			x.identifiers(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			x.identifiers(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				x.identifiers(v.Index(i))
			}
		}
	}
}

// model redacts the names of a model.
func (x *redaction) model(m *session.Model) {
	if m != nil {
		x.id(&m.ProviderID, &m.ModelID, &m.Variant)
	}
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

func (x *redaction) text(kind redact.Content, all ...*string) {
	for _, s := range all {
		if *s != "" {
			out, res := x.Apply(kind, "", *s)
			x.count(res)
			*s = out
		}
	}
}

// unquoted reads a string in JSON. One with halves of surrogate pairs takes longer.
func unquoted(raw json.RawMessage) (s string, ok bool) {
	if raw[0] != '"' {
		return "", false
	}
	if s, ok = session.Unquote(raw); ok {
		return s, true
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// json redacts a value in JSON in place. A string counts and is cut by its own bytes,
// not by those of its notation.
func (x *redaction) json(kind redact.Content, key string, raw *json.RawMessage) redact.Result {
	if len(*raw) == 0 || string(*raw) == "null" {
		return redact.Result{}
	}
	if s, ok := unquoted(*raw); ok {
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
	each(b.Sessions, x.session)
	for i := range b.Messages {
		m := &b.Messages[i]
		m.Metadata = x.message(&m.ID, &m.SessionID, &m.Role, m.Metadata)
	}
	each(b.Parts, x.part)
	each(b.Decisions, x.decision)
	each(b.Annotations, x.annotation)
	each(b.Blobs, x.blob)
	each(b.SpanRefs, x.link)
	each(b.Observations, x.observation)
}

// each hands every row to f, to be redacted in place.
func each[T any](rows []T, f func(*T)) {
	for i := range rows {
		f(&rows[i])
	}
}

// message redacts the row of a message, and returns its metadata.
func (x *redaction) message(id, sessionID, role *string, metadata json.RawMessage) json.RawMessage {
	x.id(id, sessionID, role)
	return x.messageMetadata(metadata)
}

// history redacts where a session was rewound to and what it was forked from.
func (x *redaction) history(rewinds []store.Rewind, fork *store.Fork) {
	each(rewinds, func(r *store.Rewind) { x.id(&r.To) })
	if fork != nil {
		x.id(&fork.From, &fork.Message)
	}
}

func (x *redaction) decision(d *store.Decision) {
	x.id(&d.ID, &d.SessionID, &d.MessageID, &d.PartID, &d.ToolCallID, &d.ToolID, &d.Action, &d.Source, &d.Outcome,
		&d.Reply, &d.TraceID, &d.SpanID)
	x.text(redact.Other, &d.Pattern, &d.Reason)
}

// annotation redacts an annotation. What is tagged is found by the name of the tag, so names stay distinct. The id is
// a digest of the texts, which would confirm a guess of what was taken out of them, so a changed one gets another.
func (x *redaction) annotation(n *store.Annotation) {
	before := *n
	x.id(&n.ID, &n.SessionID, &n.MessageID, &n.PartID, &n.Kind, &n.Name, &n.Author)
	x.text(redact.Other, &n.Comment)
	if n.Name != before.Name || n.Author != before.Author || n.Comment != before.Comment {
		n.Identify()
	}
}

func (x *redaction) link(l *store.SpanRef) {
	x.id(&l.TraceID, &l.SpanID, &l.ParentSpanID, &l.SessionID, &l.MessageID, &l.PartID, &l.Kind, &l.Dialect)
	if l.TurnStats != nil {
		x.messageFacts(l.TurnStats)
	}
}

// observation redacts what an observation has beside its fact. The fact was redacted
// before, and these were taken from it.
func (x *redaction) observation(o *store.Observation) {
	x.id(&o.TraceID, &o.SpanID, &o.ParentSpanID, &o.Source, &o.Dialect, &o.Session, &o.Subagent, &o.Own, &o.Call)
	each(o.Calls, func(call *string) { x.id(call) })
}

func (x *redaction) session(c *store.SessionChange) {
	x.id(&c.ID)
	for _, v := range [...]*store.Value{c.Mode, c.WorkspaceID, c.Agent, c.ParentID, c.ParentMessageID, c.Archived} {
		if v != nil {
			x.id(&v.Text)
		}
	}
	if c.Model != nil {
		c.Model.Text = string(x.ids(json.RawMessage(c.Model.Text)))
	}
	x.history(c.Rewinds, c.Fork)
	for _, v := range [...]*store.Value{c.Title, c.WorkspaceRoot} {
		if v != nil {
			x.text(redact.Other, &v.Text)
		}
	}
	if c.Permissions != nil && !x.clean([]byte(c.Permissions.Text)) {
		c.Permissions.Text = string(x.rules(json.RawMessage(c.Permissions.Text)))
	}
	for key, v := range c.Metadata {
		m := member{name: key, value: json.RawMessage(v.Text)}
		x.sessionMember(&m)
		v.Text = string(m.value)
		c.Metadata[key] = v
		if m.name != key {
			delete(c.Metadata, key)
			setKey(c, m.name, v)
		}
	}
}

// sessionMember redacts a member of a session's metadata.
func (x *redaction) sessionMember(m *member) {
	if m.name == "agenttrace" {
		m.value = x.members(m.value, x.trace)
	} else {
		x.keyed(redact.Other, m)
	}
}

// rules redacts the patterns of permission rules.
func (x *redaction) rules(raw json.RawMessage) json.RawMessage {
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

func (x *redaction) messageMetadata(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || !x.rows && x.clean(raw) {
		return raw
	}
	return x.members(raw, func(m *member) {
		switch m.name {
		case "model", "agent", "usage", "compaction", "system_prompt_digest":
			m.value = x.ids(m.value)
		case "agenttrace":
			m.value = x.members(m.value, x.trace)
		default:
			x.keyed(redact.Other, m)
		}
	})
}

// trace redacts a member of an agenttrace object in metadata.
func (x *redaction) trace(m *member) {
	switch m.name {
	case "tool_catalog_digest", "output_sha256", "sha256", "child_session_id", "response_id", "response_model", "stub",
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

// traceKinds has what the members of an agenttrace object are whose names are ours: a key
// of the configuration, such as "input", that is part of such a name finds no secret there,
// and a string in the place of a count would make the row invalid. Lists of texts are
// arrays here, to tell them from lists of objects.
var traceKinds = func() map[string]reflect.Kind {
	kinds := make(map[string]reflect.Kind)
	for _, of := range []reflect.Type{reflect.TypeFor[session.MessageTrace](), reflect.TypeFor[session.ToolTrace]()} {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			t := field.Type
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			switch {
			case t == reflect.TypeFor[json.RawMessage]():
			case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
				kinds[name] = reflect.Array
			default:
				kinds[name] = t.Kind()
			}
		}
	}
	return kinds
}()

// keyed redacts a member whose name the emitter chose.
func (x *redaction) keyed(kind redact.Content, m *member) {
	x.json(kind, m.name, &m.value)
	if x.rows {
		m.value = x.words(m.value)
	}
	x.id(&m.name)
}

// blob keeps the digest that its source gave it, which is what messages know it by.
// When that is no longer the digest of what is stored, the blob reports so.
func (x *redaction) blob(b *store.Blob) {
	x.id(&b.Digest)
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

func (x *redaction) messageFacts(f *store.TurnStats) {
	x.model(f.Model)
	x.id(&f.Agent, &f.SystemPromptDigest)
	x.text(redact.Other, &f.Trace.Error)
	x.texts(f.Trace.Problems)
	x.texts(f.Trace.ModelErrors)
	x.json(redact.Other, "", &f.Trace.UsageRaw)
	// What else is measured of a message grows often, and is short.
	x.identifiers(reflect.ValueOf(&f.Trace).Elem())
	for key, raw := range f.Extra {
		before := raw
		if x.json(redact.Other, key, &raw); !bytes.Equal(before, raw) {
			f.Extra[key] = raw
		}
		if name := x.identifier(key); name != key {
			delete(f.Extra, key)
			f.Extra[name] = raw
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

// part redacts the content of a part, and notes beside it what was cut. What the
// columns repeat of it stays.
func (x *redaction) part(c *store.PartChange) {
	given, call := c.Type, c.ToolCallID
	x.id(&c.ID, &c.MessageID, &c.SessionID, &c.ToolCallID, &c.ToolState)
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

// noteCuts says in the metadata of a part what was cut from it, in the keys that the
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
	grown = append(spans.AppendJSONString(grown, key), ':')
	return append(append(grown, f(nil)...), '}')
}

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
			out = append(spans.AppendJSONString(out, members[i].name), ':')
		}
		out = append(out, members[i].value...)
	}
	return append(out, brackets[1])
}

// membersOf returns the members of an object, or the elements of an array. What is damaged or
// nests deeply has none.
func membersOf(raw json.RawMessage) (members []member, named, ok bool) {
	members = make([]member, 0, 8)
	if session.ScanObject(raw, maxScanned, func(name string, value json.RawMessage, _ bool) {
		members = append(members, member{name, value})
	}) {
		return members, true, true
	}
	members = members[:0]
	if session.ScanArray(raw, maxScanned, func(value json.RawMessage) {
		members = append(members, member{value: value})
	}) {
		return members, false, true
	}
	return decodedMembers(raw)
}

// maxScanned is the deepest nesting that is scanned.
const maxScanned = 1000

// decodedMembers is membersOf for what a scan does not take.
func decodedMembers(raw json.RawMessage) (members []member, named, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '{' && t.Kind() != '[' {
		return nil, false, false
	}
	named = t.Kind() == '{'
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		var m member
		if named {
			name, err := d.ReadToken()
			if err != nil {
				return nil, false, false
			}
			m.name = name.String()
		}
		value, err := d.ReadValue()
		if err != nil {
			return nil, false, false
		}
		m.value = bytes.Clone(value)
		members = append(members, m)
	}
	return members, named, true
}

// fact redacts what a span or record reported before it is kept.
func (x *redaction) fact(f *fact.Fact) {
	x.model(f.Model)
	x.id(&f.TraceID, &f.SpanID, &f.ParentID, &f.SystemPromptDigest, &f.ToolCatalogDigest, (*string)(&f.Kind), &f.Dialect,
		&f.Source, &f.Session, &f.SessionKey, &f.TurnID, &f.RequestID, &f.CallID, &f.Purpose, &f.Subagent,
		&f.SubagentID, &f.ParentSubagentID, &f.ChildSession, &f.StartedBy, &f.Agent, &f.Service, &f.ResponseID,
		&f.ResponseModel, &f.Finish)
	x.text(redact.Other, &f.Name, &f.ErrorType)
	answer := []fact.Message{{Role: session.RoleAssistant, Parts: f.Output}}
	for _, messages := range [...][]fact.Message{f.Input, f.Unanswered, answer} {
		each(messages, func(m *fact.Message) {
			each(m.Parts, func(p *fact.Part) { x.factPart(m.Role, p) })
			x.id(&m.Role, &m.ID)
		})
	}
	x.text(redact.Prompt, &f.SystemPrompt)
	if f.ToolCatalog != "" {
		raw := json.RawMessage(f.ToolCatalog)
		if res := x.json(redact.Other, "", &raw); res.Redacted || res.Truncated {
			f.ToolCatalog = string(raw)
		}
	}
	if f.Usage != nil {
		x.id(&f.Usage.Basis, &f.Usage.Counter)
		x.json(redact.Other, "", &f.Usage.Raw)
	}
	failure := redact.Other
	if f.Kind == fact.ToolCall {
		failure = redact.ToolOutput
	}
	x.text(failure, &f.Error)
	if t := f.Tool; t != nil {
		x.id(&t.Name, &t.OutputSHA256)
		x.json(redact.ToolInput, "", &t.Input)
		if res := x.json(redact.ToolOutput, "", &t.Output); res.Truncated {
			t.Truncated = true
			if t.OutputSize == 0 { // else the source reports it of what it cut itself
				t.OutputSize, t.OutputSHA256 = int64(res.Size), res.SHA256
			}
		}
	}
	if d := f.Decision; d != nil {
		x.id(&d.ToolName, &d.Action, &d.Outcome, &d.Reply, &d.Source)
		if strings.Trim(d.Pattern, "*") != "" { // else it reports nothing of the call
			x.text(redact.ToolInput, &d.Pattern)
		}
		x.text(redact.Other, &d.Reason)
	}
	if c := f.Compacted; c != nil {
		x.text(redact.Other, &c.Summary)
		x.id(&c.Trigger)
	}
	if a := f.SessionAttrs; a != nil {
		x.text(redact.Other, &a.Title, &a.WorkspaceRoot)
		x.id(&a.WorkspaceID, &a.Mode, &a.UserID, &a.ParentSession, &a.Client)
		if len(a.Rules) > 0 && !x.clean(a.Rules) {
			a.Rules = x.rules(a.Rules)
		}
	}
	x.json(redact.Other, "", &f.Extra)
	x.texts(f.Problems)
}

func (x *redaction) factPart(role string, p *fact.Part) {
	kind := x.spoken(role, p.Kind)
	x.id(&p.Kind, &p.CallID, &p.MediaType)
	switch p.Kind {
	case fact.PartCall:
		kind = redact.ToolInput
	case fact.PartResult:
		kind = redact.ToolOutput
	case fact.PartCompaction:
		kind = redact.Other
	}
	if p.Kind == fact.PartFile || p.Kind == fact.PartSource { // there the name is not a tool's
		x.text(kind, &p.Name)
	} else {
		x.id(&p.Name)
	}
	x.text(kind, &p.Text, &p.URL)
	x.json(redact.ToolInput, "", &p.Input)
	x.json(redact.ToolOutput, "", &p.Output)
	x.text(redact.ToolOutput, &p.Error)
	x.json(kind, "", &p.Data)
}
