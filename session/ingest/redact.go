package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
	"github.com/agenttrace/agenttrace/session/store"
)

// What is stored passes here last: a batch just before it is applied, a fact just before it is encoded into the batch.
// Here it is known what each text is, which the attributes of a span do not declare in general. Every text passes,
// whatever it is: an emitter may put a secret anywhere. What readers find things by (ids, types, states, names of
// tools, agents and models, keys) is an identifier: it is neither omitted nor cut, and what is redacted of it still
// distinguishes things; see [redact.Redactor.Identifier]. That has to happen before an id is derived from another, so
// that a digest confirms no guess: see [own.identify]. Tests plant a secret into every string of a batch, of a fact,
// and of the protocol, so that no new field is forgotten.
//
// Nearly every value is clean. So a part is first searched as the one text that it
// is, and taken apart only when that finds something.

// redaction takes out of what is about to be stored what may not be, and counts.
type redaction struct {
	*redact.Redactor
	redacted, omitted, truncated int
	// roles are those of the batch's messages, where it matters who spoke.
	roles map[string]string
	// kind is that of the part at hand.
	kind redact.Content
	// rows reports that rows are redacted that no fact was made into: then nothing was
	// redacted as an identifier yet, in which more is found than in a text.
	rows bool
	// renamed has the new digests of prompts and catalogs that were changed, by the former ones.
	renamed map[string]string
}

// contents has the fields of rows and facts that are no identifiers, with what they hold.
var contents = map[string]redact.Content{
	"fact.Fact.Name": redact.Other, "fact.Fact.ErrorType": redact.Other, "fact.Fact.SystemPrompt": redact.Other,
	"fact.Fact.Problems": redact.Other, "fact.Decision.Reason": redact.Other, "fact.Compacted.Summary": redact.Other,
	"fact.SessionAttrs.Title": redact.Other, "fact.SessionAttrs.WorkspaceRoot": redact.Other,
	"fact.Evaluated.Explanation": redact.Other,
	"fact.Tool.Input":            redact.ToolInput, "fact.Part.Input": redact.ToolInput,
	"fact.Part.Output": redact.ToolOutput, "fact.Part.Error": redact.ToolOutput,
	"session.Session.Title": redact.Other, "session.Session.WorkspaceRoot": redact.Other,
	"store.SessionChange.Title": redact.Other, "store.SessionChange.WorkspaceRoot": redact.Other,
	"store.Decision.Reason": redact.Other, "store.Annotation.Comment": redact.Other,
	"store.ImportSource.Reading": redact.Other, "store.ImportSource.Report": redact.Other,

	"fact.Fact.Error": byMethod, "fact.Fact.ToolCatalog": byMethod, "fact.Fact.Input": byMethod,
	"fact.Fact.Unanswered": byMethod, "fact.Fact.Output": byMethod, "fact.Part.Name": byMethod,
	"fact.Part.Text": byMethod, "fact.Part.URL": byMethod, "fact.Part.Data": byMethod, "fact.Tool.Output": byMethod,
	"fact.Decision.Pattern": byMethod, "store.Decision.Pattern": byMethod, "fact.SessionAttrs.Rules": byMethod,
	"session.Session.ModelJSON":       byMethod,
	"session.Session.PermissionsJSON": byMethod, "session.Session.MetadataJSON": byMethod,
	"session.Message.MetadataJSON": byMethod, "store.SessionChange.Model": byMethod,
	"store.SessionChange.Permissions": byMethod, "store.SessionChange.MetadataJSON": byMethod,
	"store.MessageChange.Metadata": byMethod, "store.PartChange.Type": byMethod, "store.PartChange.Data": byMethod,
}

// What a field holds that is of no kind of content: an identifier, or what a method redacts that knows more.
const (
	identifier redact.Content = 100 + iota
	byMethod
)

// field is one of a struct that may hold text, and what it holds.
type field struct {
	index int
	holds redact.Content
}

var textFields sync.Map // by the type of the struct

func textFieldsOf(t reflect.Type) []field {
	if known, ok := textFields.Load(t); ok {
		return known.([]field)
	}
	fields := []field{}
	for i := range t.NumField() {
		f := t.Field(i)
		holds, ok := contents[t.String()+"."+f.Name]
		if !ok {
			holds = identifier
		}
		if holds != byMethod && hasText(f.Type) {
			fields = append(fields, field{i, holds})
		}
	}
	textFields.Store(t, fields)
	return fields
}

// hasText reports whether a field of a type may hold text.
func hasText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Struct:
		return true
	case reflect.Pointer:
		return hasText(t.Elem())
	case reflect.Slice:
		return t == jsonType || hasText(t.Elem())
	}
	return false
}

var jsonType = reflect.TypeFor[json.RawMessage]()

// fields redacts all that a struct, or those of a slice, hold and no method redacts. p is a pointer.
func (x *redaction) fields(p any) { x.walk(reflect.ValueOf(p).Elem(), identifier) }

func (x *redaction) walk(v reflect.Value, holds redact.Content) {
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		if s == "" {
			return
		}
		var out string
		if holds == identifier {
			out = x.identifier(s)
		} else {
			var res redact.Result
			out, res = x.Apply(holds, "", s)
			x.count(res)
		}
		if out != s {
			v.SetString(out)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			x.walk(v.Elem(), holds)
		}
	case reflect.Slice:
		if v.Len() > 0 && v.Type() == jsonType {
			if holds == identifier {
				holds = redact.Other
			}
			x.json(holds, "", v.Addr().Interface().(*json.RawMessage))
			return
		}
		for i := range v.Len() {
			x.walk(v.Index(i), holds)
		}
	case reflect.Struct:
		for _, f := range textFieldsOf(v.Type()) {
			if f.holds == identifier {
				f.holds = holds
			}
			x.walk(v.Field(f.index), f.holds)
		}
	}
}

// id redacts identifiers in place. One that is nil is not there.
func (x *redaction) id(all ...*string) {
	for _, s := range all {
		if s != nil {
			*s = x.identifier(*s)
		}
	}
}

// maxIdentifier is how long an identifier is at most, in bytes. It is stored in every row that refers to it.
const maxIdentifier = 16 << 10

// identifier returns an identifier without secrets. One that is too long keeps its
// beginning, and a digest that still distinguishes it.
func (x *redaction) identifier(s string) string {
	out := x.Identifier(s)
	if out != s {
		x.redacted++
	}
	if len(out) > maxIdentifier {
		x.truncated++
		// The digest is of what is redacted, so that it confirms no guess.
		out = strings.ToValidUTF8(out[:maxIdentifier/2], "") + "…sha256-" + session.Digest(out)
	}
	return out
}

// partType redacts the type of a part, which may end in the name of a tool.
func (x *redaction) partType(s *string) {
	if name, ok := strings.CutPrefix(*s, "tool-"); ok {
		*s = "tool-" + x.identifier(name)
		return
	}
	x.id(s)
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

// json redacts a value in JSON in place. A string counts and is cut by its own bytes, not by those of its notation.
func (x *redaction) json(kind redact.Content, key string, raw *json.RawMessage) redact.Result {
	if len(*raw) == 0 || string(*raw) == "null" {
		return redact.Result{}
	}
	if kind == redact.Other && x.Omits(redact.Prompt) && bytes.Contains(*raw, []byte("role")) {
		*raw = x.conversation(*raw)
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

// clean reports whether a value in JSON needs no change, unless it is of a kind that is omitted.
func (x *redaction) clean(raw []byte) bool {
	_, res := x.ApplyJSON(redact.Other, "", raw)
	return !res.Redacted && !res.Truncated
}

// batch redacts everything that the batch would store. What its observations hold was redacted as facts.
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
	each(b.Messages, func(m *store.MessageChange) {
		x.fields(m)
		m.Metadata = x.messageMetadata(m.Metadata)
	})
	each(b.Parts, x.part)
	each(b.Decisions, x.decision)
	each(b.Annotations, x.annotation)
	each(b.Blobs, x.blob)
	each(b.SpanRefs, x.link)
	x.fields(&b.Observations)
}

// each hands every row to f, to be redacted in place.
func each[T any](rows []T, f func(*T)) {
	for i := range rows {
		f(&rows[i])
	}
}

func (x *redaction) decision(d *store.Decision) {
	x.fields(d)
	x.pattern(&d.Pattern)
}

// pattern redacts that of a permission rule, which repeats what a tool was given unless it is all wildcards.
func (x *redaction) pattern(s *string) {
	if strings.Trim(*s, "*") != "" {
		x.text(redact.ToolInput, s)
	}
}

// annotation redacts an annotation. What is tagged is found by the name of the tag, so names stay distinct. The id is
// a digest of the texts, which would confirm a guess of what was taken out of them, so a changed one gets another.
func (x *redaction) annotation(n *store.Annotation) {
	before := *n
	x.fields(n)
	if n.Name != before.Name || n.Author != before.Author || n.Comment != before.Comment {
		n.Identify()
	}
}

// link redacts what a span reports of its message. What is measured grows often, and is short: of that, texts are
// redacted as identifiers too, which changes nothing that was redacted before.
func (x *redaction) link(l *store.SpanRef) {
	if f := l.TurnStats; f != nil {
		x.text(redact.Other, &f.Trace.Error)
		each(f.Trace.Problems, func(s *string) { x.text(redact.Other, s) })
		each(f.Trace.ModelErrors, func(s *string) { x.text(redact.Other, s) })
		for key, raw := range f.Extra {
			x.json(redact.Other, key, &raw)
			f.Extra[key] = raw
			if name := x.identifier(key); name != key {
				delete(f.Extra, key)
				f.Extra[name] = raw
			}
		}
	}
	x.fields(l)
	if f := l.TurnStats; f != nil {
		f.SystemPromptDigest = x.digestOf(store.BlobSystemPrompt, f.SystemPromptDigest)
		f.Trace.ToolCatalogDigest = x.digestOf(store.BlobToolCatalog, f.Trace.ToolCatalogDigest)
	}
}

func (x *redaction) session(c *store.SessionChange) {
	if c.Title != nil && c.Title.Rank == store.RankStub && x.Omits(redact.Prompt) {
		c.Title = nil // it is the user's text
	}
	x.fields(c)
	if c.Model != nil {
		c.Model.Text = string(x.ids(json.RawMessage(c.Model.Text)))
	}
	if c.Permissions != nil {
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
			if old, ok := c.Metadata[m.name]; !ok || v.TakesPrecedence(old) {
				c.Metadata[m.name] = v
			}
		}
	}
}

// digestOf is the digest of a prompt or a catalog as it is stored.
func (x *redaction) digestOf(kind store.BlobKind, digest string) string {
	if digest != "" && kind == store.BlobSystemPrompt && x.Omits(redact.Prompt) {
		return session.Digest(redact.OmittedPrompt)
	}
	return cmp.Or(x.renamed[digest], digest)
}

// blob keeps the digest that its source gave it, which is what messages know it by, unless prompts are omitted.
// When that is no longer the digest of what is stored, the blob reports so.
func (x *redaction) blob(b *store.Blob) {
	x.id(&b.Digest)
	before := b.Body
	if b.Digest = x.digestOf(b.Kind, b.Digest); b.Kind == store.BlobSystemPrompt && x.Omits(redact.Prompt) {
		b.Body, x.omitted = redact.OmittedPrompt, x.omitted+1
	} else if b.Kind == store.BlobSystemPrompt {
		x.text(redact.Prompt, &b.Body)
	} else {
		x.catalog(&b.Body)
	}
	if b.Body != before {
		b.Exact = session.Digest(b.Body) == b.Digest
	}
}

// catalog redacts a catalog of tools.
func (x *redaction) catalog(s *string) {
	raw := json.RawMessage(*s)
	if res := x.json(redact.Other, "", &raw); res.Redacted || res.Truncated {
		*s = string(raw)
	}
}

// fact redacts what a span or record reported before it is kept.
func (x *redaction) fact(f *fact.Fact) {
	failure := redact.Other
	if f.Kind == fact.ToolCall {
		failure = redact.ToolOutput
	}
	x.text(failure, &f.Error)
	x.catalog(&f.ToolCatalog)
	x.wordsOf(f)
	each(f.Output, func(p *fact.Part) { x.factPart(session.RoleAssistant, p) })
	for _, messages := range [...][]fact.Message{f.Input, f.Unanswered} {
		each(messages, func(m *fact.Message) {
			each(m.Parts, func(p *fact.Part) { x.factPart(m.Role, p) })
			x.text(x.spoken(m.Role, fact.PartText), &m.Literal)
			x.id(&m.Role, &m.ID)
		})
	}
	if d := f.Decision; d != nil {
		x.pattern(&d.Pattern)
	}
	if a := f.SessionAttrs; a != nil && len(a.Rules) > 0 {
		a.Rules = x.rules(a.Rules)
	}
	if f.SystemPrompt != "" && x.Omits(redact.Prompt) {
		f.SystemPrompt = redact.OmittedPrompt
	}
	x.fields(f)
	if t := f.Tool; t != nil {
		if x.Omits(redact.ToolOutput) {
			t.OutputSHA256 = ""
		}
		if res := x.json(redact.ToolOutput, "", &t.Output); res.Truncated {
			t.Truncated = true
			if t.OutputSize == 0 { // else the source reports it of what it cut itself
				t.OutputSize, t.OutputSHA256 = int64(res.Size), res.SHA256
			}
		}
	}
}

// wordsOf redacts the words of which a dialect has made texts of a fact, as the list that they were: one may name what
// the next one is, as in ["sshpass", "-p", SECRET]. What each shows by itself is redacted where it is known what it is.
func (x *redaction) wordsOf(f *fact.Fact) {
	texts, words := []*string{}, []string{}
	for _, m := range slices.Concat([]fact.Message{{Parts: f.Output}}, f.Input, f.Unanswered) {
		for i := range m.Parts {
			if s := &m.Parts[i].Text; *s != "" && len(*s) < 256 && !strings.ContainsAny(*s, " \t\r\n") {
				texts, words = append(texts, s), append(words, *s)
			}
		}
	}
	for i, clean := range x.List(words) {
		if clean != words[i] && x.Text(words[i]) == words[i] {
			*texts[i], x.redacted = clean, x.redacted+1
		}
	}
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
	}
	if p.Kind == fact.PartFile || p.Kind == fact.PartSource { // there the name is not a tool's
		x.text(kind, &p.Name)
	} else {
		x.id(&p.Name)
	}
	x.text(kind, &p.Text, &p.URL)
	x.json(kind, "", &p.Data)
	x.fields(p)
}

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

// RedactBatch takes secrets out of everything that a batch stores, in place. A nil r changes nothing.
func RedactBatch(r *redact.Redactor, b *store.Batch) {
	if r != nil {
		x := redaction{Redactor: r, rows: true}
		x.batch(b)
	}
}

// RedactRows takes secrets out of everything that the store would keep of a session which was read from a file, in
// place, and reports how many values had one. It treats rows as ingestion does those that it makes of telemetry: names
// and ids stay distinct; see [redact.Redactor.Identifier]. A prompt or a catalog that changes is stored under its new
// digest, which the messages then name. Rows of another store that were redacted there do not change. A nil r changes
// nothing.
func RedactRows(r *redact.Redactor, in *store.Imported) (redacted int) {
	if r == nil {
		return 0
	}
	x := redaction{Redactor: r, rows: true, renamed: make(map[string]string)}
	in.State = in.State.Portable()
	x.sessionRow(&in.Session)
	if x.Omits(redact.Prompt) {
		x.roles = make(map[string]string, len(in.Messages))
		for i := range in.Messages {
			x.roles[in.Messages[i].Message.ID] = in.Messages[i].Message.Role
		}
		if x.titled(in) {
			in.Session.Title = session.Untitled
			x.omitted++
		}
	}
	x.state(in.State)
	each(in.Blobs, x.blobRow)
	each(in.Messages, func(m *session.MessageAndParts) {
		x.fields(&m.Message)
		m.Message.MetadataJSON = string(x.messageMetadata(json.RawMessage(m.Message.MetadataJSON)))
		each(m.Parts, x.partRow)
	})
	each(in.Decisions, x.decision)
	each(in.Annotations, x.annotation)
	each(in.SpanRefs, x.link)
	x.fields(&in.Traces)
	x.fields(&in.RequestedIndexes)
	if in.Grown != nil {
		RedactRows(r, &store.Imported{Transcript: in.Grown.Before})
	}
	return x.redacted
}

// titled reports whether the title of a session is the user's text: one that is the first message until there is
// another, as in ingestion, or the beginning of a message of the user, or a part of one.
func (x *redaction) titled(in *store.Imported) bool {
	title := strings.TrimSuffix(in.Session.Title, "…")
	if in.State != nil {
		if stamp, ok := in.State.Stamps["title"]; ok && stamp.Rank == store.RankStub {
			return true
		}
	}
	return slices.ContainsFunc(in.Messages, func(m session.MessageAndParts) bool {
		return title != "" && title != session.Untitled && m.Message.Role == session.RoleUser &&
			slices.ContainsFunc(m.Parts, func(p session.Part) bool {
				data, err := session.ParseUIPart(p.DataJSON)
				return err == nil && data.Text != nil && strings.Contains(*data.Text, title)
			})
	})
}

// RedactSource takes secrets out of what the store would keep of a file. A state with one is not kept: all of the file
// is read next time. A nil r changes nothing.
func RedactSource(r *redact.Redactor, s *store.ImportSource) {
	if r == nil {
		return
	}
	x := redaction{Redactor: r, rows: true}
	x.fields(s)
	if len(s.State) > 0 && !x.clean(s.State) {
		s.State = nil
	}
}

// sessionRow redacts the row of a session.
func (x *redaction) sessionRow(s *session.Session) {
	x.fields(s)
	if s.ModelJSON != nil {
		*s.ModelJSON = string(x.ids(json.RawMessage(*s.ModelJSON)))
	}
	if s.PermissionsJSON != "" && s.PermissionsJSON != "[]" {
		s.PermissionsJSON = string(x.rules(json.RawMessage(s.PermissionsJSON)))
	}
	if s.MetadataJSON != "" && s.MetadataJSON != "{}" {
		s.MetadataJSON = string(x.members(json.RawMessage(s.MetadataJSON), x.sessionMember))
	}
}

// state redacts what another store remembers of a session, after its row. The name of a stamp has a key of the
// session's metadata, and a stamp holds a checksum of its value, which would confirm a guess of what was taken out: with
// a secret in any of that no stamp is kept, as if the session had none.
func (x *redaction) state(s *store.State) {
	if s == nil {
		return
	}
	x.fields(&s.Rewinds)
	x.fields(&s.Fork)
	for name := range s.Stamps {
		x.identifier(strings.TrimPrefix(name, "metadata."))
	}
	if x.redacted+x.omitted+x.truncated > 0 {
		s.Stamps = nil
	}
}

// partRow redacts the row of a part. Its type, the id of its call and its state repeat what its data holds.
func (x *redaction) partRow(p *session.Part) {
	c := store.PartChange{ID: p.ID, MessageID: p.MessageID, SessionID: p.SessionID, Type: p.Type,
		Data: json.RawMessage(p.DataJSON)}
	x.id(p.ToolCallID, p.ToolState, p.ContinuationRunID)
	x.part(&c)
	p.ID, p.MessageID, p.SessionID, p.Type, p.DataJSON = c.ID, c.MessageID, c.SessionID, c.Type, string(c.Data)
}

// blobRow redacts a prompt or a catalog. The digest of what one was before would confirm a
// guess of its secret, so a changed one is stored under that of what is left. A text that
// its source cut or redacted before keeps the digest that its source has for it.
func (x *redaction) blobRow(b *store.Blob) {
	before, digest, exact := b.Body, b.Digest, b.Exact
	if x.blob(b); b.Body != before && exact {
		b.Digest, b.Exact = session.Digest(b.Body), true
		x.renamed[digest] = b.Digest
	}
}
