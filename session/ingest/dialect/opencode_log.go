package dialect

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// openCodeMessages are the records that are read. Their bodies are lists of the message and of what
// belongs to it.
var openCodeMessages = map[string]openCodeMessage{
	"created": {fact.Session, func(o object) bool { return strings.HasPrefix(o.str("id"), "ses") },
		readOpenCodeCreated},
	"evaluated": {fact.Permission, func(o object) bool { return o.has("permission") }, readOpenCodeEvaluated},
	"stream":    {fact.Step, func(o object) bool { return o.has("agent", "modelID") }, readOpenCodeStream},
}

// openCodeMessage is how the record of a message is read. is reports whether its members are those
// that the message has: other parts of opencode log the same words.
type openCodeMessage struct {
	kind fact.Kind
	is   func(object) bool
	read func(*fact.Fact, object)
}

func isOpenCodeRecord(r *Record) bool {
	body := r.Body()
	if body.Type() != pcommon.ValueTypeSlice || body.Slice().Len() != 2 {
		return false
	}
	_, known := openCodeMessages[body.Slice().At(0).Str()]
	return known && fromOpenCode(r.Scope, r.Resource)
}

func readOpenCodeRecord(r *Record, out *Emitter) {
	message, detail := r.Body().Slice().At(0).Str(), r.Body().Slice().At(1)
	o, ok := objectOf(valueJSON(detail))
	if detail.Type() == pcommon.ValueTypeStr {
		raw := inspected(detail.Str())
		if o, ok = objectOf(raw); !ok {
			if o, ok = objectOf(closeCut(raw)); ok {
				out.Problem("the record could not be read whole")
			}
		}
	}
	if ok {
		openCodeRecord(message, o, out)
	}
}

func openCodeRecord(message string, o object, out *Emitter) {
	if m := openCodeMessages[message]; m.is(o) {
		f := out.Add(m.kind)
		f.Name = cmp.Or(f.Name, message)
		m.read(f, o)
	}
}

// setSession stores a session that a record's body names. It is that of the key session.id, which
// the spans have.
func setSession(f *fact.Fact, id string) {
	if id != "" {
		f.Session, f.SessionKey, f.SessionRank = id, "session.id", 0
	}
}

// defaultTitle is what opencode calls a session that nobody has named yet.
var defaultTitle = regexp.MustCompile(`^(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z$`)

func readOpenCodeCreated(f *fact.Fact, o object) {
	setSession(f, o.str("id"))
	f.SessionAttrs = &fact.SessionAttrs{WorkspaceRoot: o.str("directory"), WorkspaceID: o.str("workspaceID"),
		ParentSession: o.str("parentID"), Title: o.str("title")}
	if defaultTitle.MatchString(f.SessionAttrs.Title) {
		f.SessionAttrs.Title = ""
	}
	if version := o.str("version"); version != "" {
		f.SessionAttrs.Client = "opencode " + version
	}
	f.SessionAttrs.Rules = openCodeRules(o["permission"])
	f.Agent = o.str("agent")
	f.Model = openCodeModel(o.inner("model"))
	for _, key := range []string{"slug", "projectID", "metadata"} {
		if raw := o.first(key); raw != nil {
			setExtra(f, key, raw)
		}
	}
}

func openCodeRules(raw json.RawMessage) json.RawMessage {
	var rules []session.Rule
	for _, o := range objectsOf(raw) {
		if o.has("permission") {
			rules = append(rules, session.Rule{Permission: o.str("permission"), Pattern: o.str("pattern"),
				Action: o.str("action")})
		}
	}
	if rules == nil {
		return nil
	}
	raw, _ = json.Marshal(rules)
	return raw
}

func openCodeModel(o object) *session.Model {
	m := session.Model{ProviderID: o.str("providerID"), ModelID: o.str("modelID", "id"), Variant: o.str("variant")}
	if m == (session.Model{}) {
		return nil
	}
	return &m
}

// readOpenCodeEvaluated reads how the rules decided on one pattern of an ask. The member action is
// the rule that matched, or the default one.
func readOpenCodeEvaluated(f *fact.Fact, o object) {
	f.Decision = &fact.Decision{ToolName: o.str("permission"), Pattern: o.str("pattern"), Action: o.str("action")}
	if rule := o.inner("action"); rule != nil {
		f.Decision.Action = rule.str("action")
		setExtra(f, "rule", o["action"])
	}
	switch f.Decision.Action {
	case "allow":
		f.Decision.Outcome, f.Decision.Source = "allowed", "rule"
	case "deny":
		f.Decision.Outcome, f.Decision.Source = "denied", "rule"
	case "ask":
		f.Decision.Outcome = "pending"
	}
}

// readOpenCodeStream reads who speaks in the span that the record was emitted in.
func readOpenCodeStream(f *fact.Fact, o object) {
	setSession(f, o.str("session.id", "sessionID"))
	f.Agent = o.str("agent")
	f.Model = openCodeModel(o)
	switch f.Agent {
	case "title", "compaction", "summary":
		f.Purpose = f.Agent
	default:
		if o.str("small") == "true" || o.truth("small") {
			f.Purpose = "title"
		}
	}
	if mode := o.str("mode"); mode != "" {
		setExtra(f, "mode", o["mode"])
	}
}

// inspected returns the JSON of an object as opencode logs it: a member that is absent is the bare
// word undefined.
func inspected(s string) json.RawMessage {
	return json.RawMessage(undefined.ReplaceAllStringFunc(Text(s), func(token string) string {
		if token == "undefined" {
			return "null"
		}
		return token
	}))
}

// undefined is the word, or a string, which may have it.
var undefined = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*(?:"|\\?$)|undefined`)
