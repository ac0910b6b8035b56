package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// openCode reads opencode, which traces every function of its own besides the spans of the AI SDK that it is built on.
// A few of them are needed: those that show where a turn begins, and those between one and what belongs to it.
//
// A turn is a run of its loop. Each step of the loop calls the AI SDK again, so that the SDK's roots are steps here. A
// sub-agent's run is below the span of the tool that started it, and has a session of its own.
var openCode = Dialect{
	Threads:    true,
	Name:       "opencode",
	Spans:      isOpenCode,
	Records:    isOpenCodeRecord,
	ReadSpan:   readOpenCode,
	ReadRecord: readOpenCodeRecord,
}

// openCodeKinds are opencode's own spans that are needed. The steps are, from the inside out, between a decision and
// its tool, a call of the AI SDK and its turn, a tool and its turn, and a sub-agent's turn and its tool.
var openCodeKinds = meanings[fact.Kind]("opencode")

// openCodeKind returns what a span reports by its name, "" for nothing. Tools add spans of their own: ShellTool.ask
// asks, TaskTool.execute runs a sub-agent.
func openCodeKind(name string) fact.Kind {
	kind := openCodeKinds()[name]
	if kind == "" && (strings.HasSuffix(name, "Tool.ask") || strings.HasSuffix(name, "Tool.execute")) {
		return fact.Step
	}
	return kind
}

// isOpenCode looks at the name first, for hundreds of spans go by for each turn.
func isOpenCode(s *Span) bool {
	name := s.Name()
	return (strings.HasPrefix(name, "ai.") || openCodeKind(name) != "") && fromOpenCode(s.Scope, s.Resource)
}

func fromOpenCode(scope pcommon.InstrumentationScope, resource pcommon.Resource) bool {
	return scope.Name() == "opencode" || Attrs{resource.Attributes()}.Str("service.name") == "opencode"
}

func readOpenCode(s *Span, out *Emitter) {
	if strings.HasPrefix(s.Name(), "ai.") {
		readOpenCodeAI(s, out)
		return
	}
	a := s.Attrs()
	kind, interrupted := openCodeKind(s.Name()), a.True("status.interrupted")
	if kind == fact.Permission && interrupted {
		kind = fact.Step // nobody decided
	}
	f := out.Add(kind)
	f.Aborted = interrupted
	readFailure(f, s)
	switch kind {
	case fact.Turn:
		f.SessionAttrs = openCodeClient(Attrs{s.Resource.Attributes()}.Str("service.version"))
	case fact.Compaction:
		f.Compacted = new(fact.Compacted) // the summary is the answer of the model call below
	case fact.ToolCall:
		f.RequiresTurn = true
		f.CallID = a.Str("tool.call_id")
		f.Tool = &fact.Tool{Name: a.Str("tool.name"), Denied: refused(f) != "",
			Succeeded: s.Status().Code() == ptrace.StatusCodeOk && !interrupted}
		addExtra(f, a, "message.id")
	case fact.Permission:
		readOpenCodeAsk(f)
	}
	switch s.Name() {
	case "SessionPrompt.ensureTitle":
		f.Purpose = "title"
	case "SessionCompaction.makeProcessor":
		f.Purpose = "compaction"
	}
}

// openCodeClient names the client where its version is known.
func openCodeClient(version string) *fact.SessionAttrs {
	if version == "" {
		return nil
	}
	return &fact.SessionAttrs{Client: "opencode " + version}
}

// refused returns how a permission was refused: "deny" by a rule, "reject" by a person, "" where it was not. The error
// of the permission is that of the tool and of the model's call as well.
func refused(f *fact.Fact) string {
	const (
		byRule = "The user has specified a rule which prevents you from using this specific tool call."
		byUser = "The user rejected permission to use this specific tool call"
	)
	switch {
	case !f.Failed:
		return ""
	case f.ErrorType == "PermissionDeniedError", strings.HasPrefix(f.Error, byRule):
		return "deny"
	case f.ErrorType == "PermissionRejectedError", f.ErrorType == "PermissionCorrectedError",
		strings.HasPrefix(f.Error, byUser):
		return "reject"
	}
	return ""
}

// readOpenCodeAsk reads how an ask ended. What was asked, and whether a rule or a person answered, is reported by the
// records that were emitted in the span; an Action is here only if the refusal shows it.
func readOpenCodeAsk(f *fact.Fact) {
	f.Decision = new(fact.Decision)
	switch how := refused(f); {
	case how == "deny":
		*f.Decision = fact.Decision{Action: how, Outcome: "denied", Source: "rule", Reason: f.Error}
	case how == "reject":
		*f.Decision = fact.Decision{Action: "ask", Outcome: "denied", Reply: how, Source: "user",
			WaitedMS: new((f.End - f.Start) / 1e6)}
		_, f.Decision.Reason, _ = strings.Cut(f.Error, " with the following feedback: ")
	case f.Failed:
		return
	default:
		f.Decision.Outcome = "allowed"
	}
	clearFailure(f) // a refusal is not a failure
}

// readOpenCodeAI reads a span of the AI SDK. Objects are asked for outside of any conversation, to describe a new
// agent.
func readOpenCodeAI(s *Span, out *Emitter) {
	readAISDK(s, out)
	if len(out.All) == 0 {
		return
	}
	f, operation := &out.All[0], aiOperation(s)
	f.Agent = "" // the SDK's function is session.llm for every agent
	if f.SessionAttrs != nil && f.SessionAttrs.UserID == "unknown" {
		f.SessionAttrs = nil // it had nothing else
	}
	if f.Kind == fact.ToolCall {
		f.Tool.Denied = f.Tool.Denied || refused(f) != ""
		o, _ := objectOf(f.Tool.Output)
		f.Tool.Truncated = f.Tool.Truncated || o.inner("metadata").truth("truncated")
	}
	if f.Kind != fact.Turn && f.Kind != fact.ModelCall {
		return
	}
	f.Purpose = openCodeSide(f)
	switch {
	case strings.Contains(operation, "Object"):
	case f.Kind == fact.ModelCall:
		f.RequestID = f.ParentID
	case f.Finish == "":
		// A root of the AI SDK is a step here, whose one model call has a span of its own. That span never arrives when
		// the call is aborted; then the root, which has no end state, is all that is known of the call.
		f.Kind, f.RequiresTurn, f.RequestID = fact.ModelCall, true, f.SpanID
		return
	default:
		f.Kind, f.RequiresTurn = fact.Step, true
		f.Model, f.Input, f.History, f.Output, f.SystemPrompt, f.Finish = nil, nil, 0, nil, "", ""
		f.Before, f.BeforeTurns = 0, 0
		f.Usage, f.Temperature, f.Extra, f.Problems = nil, nil, nil, nil
	}
	title := openCodeTitle(f.Output)
	if f.Kind == fact.ModelCall && title != "" && f.Purpose == "title" && !f.Failed && f.Finish != "" {
		out.Add(fact.Session).SessionAttrs = &fact.SessionAttrs{Title: title}
	}
}

// openCodePrompts are how the prompts of opencode's own agents begin, those of the system and those of the user.
var openCodePrompts = map[string][]string{
	"title": {"You are a title generator.", "Generate a title for this conversation:"},
	"compaction": {"You are an anchored context summarization assistant",
		"You are a helpful AI assistant tasked with summarizing conversations",
		"Create a new anchored summary from the conversation history", "Update the anchored summary below",
		"Provide a detailed prompt for continuing our conversation above"},
	"summary": {"Summarize what was done in this conversation."},
}

// openCodeSide reports what a model is called for, "" for the conversation itself. opencode's own agents have no tools,
// so that nobody who types the beginning of one of their prompts is taken for one.
func openCodeSide(f *fact.Fact) string {
	if f.ToolCatalog != "" {
		return ""
	}
	texts := []string{f.SystemPrompt}
	for m, p := range fact.EachPart(f.Input) {
		if m.Role == "user" && p.Kind == fact.PartText {
			texts = append(texts, p.Text)
		}
	}
	for _, text := range texts {
		for side, prompts := range openCodePrompts {
			if hasPrefix(strings.TrimSpace(text), prompts...) {
				return side
			}
		}
	}
	return ""
}

// thoughts are what a model thought aloud.
var thoughts = lazy.Regexp(`(?s)<think>.*?</think>`)

// openCodeTitle returns the title that opencode makes of an answer: the first line that is not empty, after what the
// model thought aloud, of at most 100 characters.
func openCodeTitle(output []fact.Part) string {
	var text strings.Builder
	for _, p := range output {
		if p.Kind == fact.PartText {
			text.WriteString(p.Text)
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(thoughts().ReplaceAllString(text.String(), "")), "\n")
	if r := []rune(strings.TrimSpace(line)); len(r) > 100 {
		return string(r[:97]) + "..."
	}
	return strings.TrimSpace(line)
}

// isOpenCodeRecord reports whether the record is of a message that is read. Its body is a list of the message and of
// what belongs to it.
func isOpenCodeRecord(r *Record) bool {
	body := r.Body()
	return body.Type() == pcommon.ValueTypeSlice && body.Slice().Len() == 2 && fromOpenCode(r.Scope, r.Resource) &&
		slices.Contains([]string{"created", "evaluated", "stream"}, body.Slice().At(0).Str())
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

// openCodeRecord gives the fact of a message, if it has the members of one: other parts of opencode log the same words.
func openCodeRecord(message string, o object, out *Emitter) {
	add := func(kind fact.Kind) *fact.Fact {
		f := out.Add(kind)
		f.Name = cmp.Or(f.Name, message)
		return f
	}
	switch {
	case message == "created" && strings.HasPrefix(o.str("id"), "ses"):
		readOpenCodeCreated(add(fact.Session), o)
	case message == "evaluated" && o.has("permission"):
		// How the rules decided on one pattern of an ask. The member action is the rule that matched, or the default
		// one.
		d := &fact.Decision{ToolName: o.str("permission"), Pattern: o.str("pattern"), Action: o.str("action")}
		f := add(fact.Permission)
		if f.Decision = d; o.inner("action") != nil {
			d.Action = o.inner("action").str("action")
			setExtra(f, "rule", o["action"])
		}
		switch d.Action {
		case "allow":
			d.Outcome, d.Source = "allowed", "rule"
		case "deny":
			d.Outcome, d.Source = "denied", "rule"
		case "ask":
			d.Outcome = "pending"
		}
	case message == "stream" && o.has("agent", "modelID"): // who speaks in the span that the record was emitted in
		f := add(fact.Step)
		setSession(f, o.str("session.id", "sessionID"), "session.id", "session.id")
		f.Agent, f.Model = o.str("agent"), openCodeModel(o)
		if _, own := openCodePrompts[f.Agent]; own {
			f.Purpose = f.Agent
		} else if o.str("small") == "true" || o.truth("small") {
			f.Purpose = "title"
		}
		if o.str("mode") != "" {
			setExtra(f, "mode", o["mode"])
		}
	}
}

// defaultTitle is what opencode calls a session that nobody has named yet.
var defaultTitle = lazy.Regexp(`^(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z$`)

func readOpenCodeCreated(f *fact.Fact, o object) {
	setSession(f, o.str("id"), "session.id", "session.id")
	about := cmp.Or(openCodeClient(o.str("version")), new(fact.SessionAttrs))
	f.SessionAttrs = about
	about.WorkspaceRoot, about.WorkspaceID = o.str("directory"), o.str("workspaceID")
	about.ParentSession = o.str("parentID")
	if title := o.str("title"); !defaultTitle().MatchString(title) {
		about.Title = title
	}
	var rules []session.Rule
	for _, r := range objectsOf(o["permission"]) {
		if r.has("permission") {
			rules = append(rules, session.Rule{Permission: r.str("permission"), Pattern: r.str("pattern"),
				Action: r.str("action")})
		}
	}
	if rules != nil {
		about.Rules, _ = json.Marshal(rules)
	}
	f.Agent = o.str("agent")
	f.Model = openCodeModel(o.inner("model"))
	for _, key := range []string{"slug", "projectID", "metadata"} {
		if raw := o.first(key); raw != nil {
			setExtra(f, key, raw)
		}
	}
}

func openCodeModel(o object) *session.Model {
	m := session.Model{ProviderID: o.str("providerID"), ModelID: o.str("modelID", "id"), Variant: o.str("variant")}
	if m == (session.Model{}) {
		return nil
	}
	return &m
}

// inspected returns the JSON of an object as opencode logs it: a member that is absent is the bare word undefined.
func inspected(s string) json.RawMessage {
	return json.RawMessage(undefined().ReplaceAllStringFunc(Text(s), func(token string) string {
		if token == "undefined" {
			return "null"
		}
		return token
	}))
}

// undefined is the word, or a string, which may have it.
var undefined = lazy.Regexp(`(?s)"(?:[^"\\]|\\.)*(?:"|\\?$)|undefined`)
