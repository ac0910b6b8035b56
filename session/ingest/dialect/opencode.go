package dialect

import (
	"regexp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// openCode reads opencode, which traces every function of its own besides the spans of the AI SDK
// that it is built on. A few of them are needed: those that show where a turn begins, and those
// between one and what belongs to it.
//
// A turn is a run of its loop. Each step of the loop calls the AI SDK again, so that the SDK's
// roots are steps here. A sub-agent's run is below the span of the tool that started it, and has a
// session of its own.
var openCode = Dialect{
	Name:       "opencode",
	Title:      "opencode",
	Spans:      isOpenCode,
	Records:    isOpenCodeRecord,
	ReadSpan:   readOpenCode,
	ReadRecord: readOpenCodeRecord,
}

// openCodeKinds are opencode's own spans that are needed. The steps are, from the inside out,
// between a decision and its tool, a call of the AI SDK and its turn, a tool and its turn, and a
// sub-agent's turn and its tool.
var openCodeKinds = byWord(map[fact.Kind]string{
	fact.Turn:       `SessionPrompt.run`,
	fact.Compaction: `SessionCompaction.process`,
	fact.ToolCall:   `Tool.execute`,
	fact.Permission: `Permission.ask`,
	fact.Step: `Tool.assertExternalDirectory LLM.run SessionProcessor.process SessionCompaction.makeProcessor
		SessionPrompt.ensureTitle SessionTools.resolve SessionPrompt.handleSubtask SessionRunState.ensureRunning
		SessionPrompt.loop SessionPrompt.prompt`,
})

// openCodeKind returns what a span reports by its name, "" for nothing. Tools add spans of their
// own: ShellTool.ask asks, TaskTool.execute runs a sub-agent.
func openCodeKind(name string) fact.Kind {
	if kind := openCodeKinds[name]; kind != "" {
		return kind
	}
	if strings.HasSuffix(name, "Tool.ask") || strings.HasSuffix(name, "Tool.execute") {
		return fact.Step
	}
	return ""
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
	kind := openCodeKind(s.Name())
	interrupted, _ := a.Bool("status.interrupted")
	if kind == fact.Permission && interrupted {
		kind = fact.Step // nobody decided
	}
	f := out.Add(kind)
	f.Aborted = interrupted
	readFailure(f, s)
	switch kind {
	case fact.Turn:
		if version := (Attrs{s.Resource.Attributes()}).Str("service.version"); version != "" {
			f.SessionAttrs = &fact.SessionAttrs{Client: "opencode " + version}
		}
	case fact.Compaction:
		f.Compacted = new(fact.Compacted) // the summary is the answer of the model call below
	case fact.ToolCall:
		f.RequiresTurn = true
		f.CallID = a.Str("tool.call_id")
		f.Tool = &fact.Tool{Name: a.Str("tool.name"), Denied: refused(f) != ""}
		f.Tool.Succeeded = s.Status().Code() == ptrace.StatusCodeOk && !interrupted
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

// refused returns how a permission was refused: "deny" by a rule, "reject" by a person, "" where it
// was not. The error of the permission is that of the tool and of the model's call as well.
func refused(f *fact.Fact) string {
	switch {
	case !f.Failed:
		return ""
	case f.ErrorType == "PermissionDeniedError", strings.HasPrefix(f.Error, deniedByRule):
		return "deny"
	case f.ErrorType == "PermissionRejectedError", f.ErrorType == "PermissionCorrectedError",
		strings.HasPrefix(f.Error, rejectedByUser):
		return "reject"
	}
	return ""
}

const (
	deniedByRule   = "The user has specified a rule which prevents you from using this specific tool call."
	rejectedByUser = "The user rejected permission to use this specific tool call"
	withFeedback   = " with the following feedback: "
)

// readOpenCodeAsk reads how an ask ended. What was asked, and whether a rule or a person answered,
// is reported by the records that were emitted in the span; an Action is here only if the refusal
// shows it.
func readOpenCodeAsk(f *fact.Fact) {
	f.Decision = &fact.Decision{Outcome: "allowed"}
	switch refused(f) {
	case "deny":
		*f.Decision = fact.Decision{Action: "deny", Outcome: "denied", Source: "rule", Reason: f.Error}
	case "reject":
		*f.Decision = fact.Decision{Action: "ask", Outcome: "denied", Reply: "reject", Source: "user",
			WaitedMS: new((f.End - f.Start) / 1e6)}
		_, f.Decision.Reason, _ = strings.Cut(f.Error, withFeedback)
	default:
		if f.Failed {
			f.Decision.Outcome = ""
		}
		return
	}
	clearFailure(f) // a refusal is not a failure
}

// readOpenCodeAI reads a span of the AI SDK. Objects are asked for outside of any conversation, to
// describe a new agent.
func readOpenCodeAI(s *Span, out *Emitter) {
	first := len(out.All)
	readAISDK(s, out)
	if len(out.All) == first {
		return
	}
	f, operation := &out.All[first], aiOperation(s)
	f.Agent = "" // the SDK's function is session.llm for every agent
	if f.SessionAttrs != nil && f.SessionAttrs.UserID == "unknown" {
		f.SessionAttrs = nil // it had nothing else
	}
	switch f.Kind {
	case fact.ToolCall:
		f.Tool.Denied = f.Tool.Denied || refused(f) != ""
		if o, ok := objectOf(f.Tool.Output); ok {
			f.Tool.Truncated = o.inner("metadata").truth("truncated")
		}
	case fact.Turn:
		if f.Purpose = openCodeSide(f); !strings.HasSuffix(operation, "Object") {
			readOpenCodeStep(f)
		}
	case fact.ModelCall:
		if f.Purpose = openCodeSide(f); !strings.Contains(operation, "Object") {
			f.RequestID = f.ParentID
		}
		title := openCodeTitle(f.Output)
		if title != "" && f.Purpose == "title" && !f.Failed && f.Finish != "" {
			out.Add(fact.Session).SessionAttrs = &fact.SessionAttrs{Title: title}
		}
	}
}

// readOpenCodeStep makes of a root of the AI SDK what it is here: a step, whose one model call has
// a span of its own. That span never arrives when the call is aborted; then the root, which has no
// end state, is all that is known of the call.
func readOpenCodeStep(f *fact.Fact) {
	if f.Finish == "" {
		f.Kind, f.RequiresTurn, f.RequestID = fact.ModelCall, true, f.SpanID
		return
	}
	f.Kind, f.RequiresTurn = fact.Step, true
	f.Model, f.Input, f.History, f.Output, f.SystemPrompt, f.Finish = nil, nil, 0, nil, "", ""
	f.Before, f.BeforeTurns = 0, 0
	f.Usage, f.Temperature, f.Extra, f.Problems = nil, nil, nil, nil
}

// openCodePrompts are how the prompts of opencode's own agents begin, those of the system and those
// of the user.
var openCodePrompts = map[string][]string{
	"title": {"You are a title generator.", "Generate a title for this conversation:"},
	"compaction": {"You are an anchored context summarization assistant",
		"You are a helpful AI assistant tasked with summarizing conversations",
		"Create a new anchored summary from the conversation history", "Update the anchored summary below",
		"Provide a detailed prompt for continuing our conversation above"},
	"summary": {"Summarize what was done in this conversation."},
}

// openCodeSide reports what a model is called for, "" for the conversation itself. opencode's own
// agents have no tools, so that nobody who types the beginning of one of their prompts is taken for
// one.
func openCodeSide(f *fact.Fact) string {
	if f.ToolCatalog != "" {
		return ""
	}
	texts := []string{f.SystemPrompt}
	for _, m := range f.Input {
		for _, p := range m.Parts {
			if m.Role == "user" && p.Kind == fact.PartText {
				texts = append(texts, p.Text)
			}
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
var thoughts = regexp.MustCompile(`(?s)<think>.*?</think>`)

// openCodeTitle returns the title that opencode makes of an answer: the first line that is not
// empty, after what the model thought aloud, of at most 100 characters.
func openCodeTitle(output []fact.Part) string {
	var text strings.Builder
	for _, p := range output {
		if p.Kind == fact.PartText {
			text.WriteString(p.Text)
		}
	}
	for line := range strings.Lines(thoughts.ReplaceAllString(text.String(), "")) {
		if line = strings.TrimSpace(line); line != "" {
			if r := []rune(line); len(r) > 100 {
				return string(r[:97]) + "..."
			}
			return line
		}
	}
	return ""
}
