package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// What is stored passes here last: a batch just before it is applied, a fact just
// before it is encoded into the batch. Here it is known what each text is, which a
// attributes of a span do not declare in general. Every text passes, whatever it is: an
// emitter may put a secret anywhere. What readers find things by (ids, types, states,
// names of tools, agents and models, keys) is an identifier: it is neither omitted nor
// cut, and what is redacted of it still distinguishes things; see [redact.Redactor.Identifier].
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
	// renamed has the new digests of prompts and catalogs that were changed, by the former ones.
	renamed map[string]string
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
	if s, ok = jsonscan.Unquote(raw); ok {
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
			*raw = jsonscan.AppendString(nil, out)
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
	for _, v := range [...]*store.Value{c.Mode, c.WorkspaceID, c.Agent, c.ParentID, c.ParentMessageID, c.Archived,
		c.OtherCost} {
		if v != nil {
			x.id(&v.Text)
		}
	}
	if c.Model != nil {
		c.Model.Text = string(x.ids(json.RawMessage(c.Model.Text)))
	}
	x.history(c.Rewinds, c.Fork)
	if c.Title != nil && c.Title.Rank == store.RankStub && x.Omits(redact.Prompt) {
		c.Title = nil // it is the user's text
	}
	for _, v := range [...]*store.Value{c.Title, c.WorkspaceRoot} {
		if v != nil {
			x.text(redact.Other, &v.Text)
		}
	}
	if c.Permissions != nil && !x.clean([]byte(c.Permissions.Text)) {
		c.Permissions.Text = string(x.rules(json.RawMessage(c.Permissions.Text)))
	}
	if !x.clean([]byte(c.MetadataJSON)) {
		c.MetadataJSON = "" // Metadata has what may be stored of it
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
		case "model", "agent", "usage", "compaction":
			m.value = x.ids(m.value)
		case "system_prompt_digest":
			x.digest(m)
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

// traceKinds has what the members of an agenttrace object are whose names are ours: a key
// of the configuration, such as "input", that is part of such a name finds no secret there,
// and a string in the place of a count would make the row invalid. Lists of texts are
// arrays here, to distinguish them from lists of objects.
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
		b.Exact = sha256Hex(b.Body) == b.Digest
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
	for _, digest := range [...]*string{&f.SystemPromptDigest, &f.Trace.ToolCatalogDigest} {
		*digest = cmp.Or(x.renamed[*digest], *digest)
	}
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
