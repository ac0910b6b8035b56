package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genkit reads Genkit for Go, JavaScript and Python. Every span states what it is in genkit:type and
// genkit:metadata:subtype, and where it is in genkit:path. The content is JSON in genkit:input and genkit:output.
var genkit = Dialect{
	Name:     "genkit",
	Spans:    func(s *Span) bool { return s.Has("genkit") || s.Scope.Name() == "genkit-tracer" },
	ReadSpan: readGenkit,
}

func readGenkit(s *Span, facts *Emitter) {
	g := genkitSpan{Attrs: s.Attrs(), facts: facts}
	g.kind, g.subtype = g.Str("genkit:type"), g.Str("genkit:metadata:subtype")
	g.name = cmp.Or(g.Str("genkit:name"), Text(s.Name()))
	path := genkitPath(g.Str("genkit:path"))
	g.inTurn = genkitInTurn(path)
	opens := g.True("genkit:isRoot") || len(path) > 0 && !g.inTurn || len(path) == 0 && s.ParentSpanID().IsEmpty()

	switch {
	case g.subtype == "model" || g.subtype == "background-model":
		g.modelCall()
	case g.subtype == "tool" || g.subtype == "tool.v2":
		g.toolCall()
	case g.subtype == "userFeedback" || g.subtype == "userAcceptance":
		// Written long after the turn, about it.
	case g.isTurnOfAgent(), opens && (g.subtype == "flow" || g.subtype == "executable-prompt" || g.calls()):
		g.turn()
	default:
		g.add(fact.Step)
	}
}

// genkitSegment is a span in a path: {name,t:type,s:subtype}.
type genkitSegment struct{ name, kind, subtype string }

// calls reports whether a span of the type calls models: generate, the send of a chat, or a prompt.
func (s *genkitSegment) calls() bool {
	return s.kind == "util" || s.kind == "helper" || s.kind == "dotprompt" || s.kind == "action" && s.subtype == "util"
}

// isTurnOfAgent reports whether a span is a turn of an agent, whose own span lasts as long as its session is connected.
func (s *genkitSegment) isTurnOfAgent() bool {
	return s.kind == "flowStep" && strings.HasPrefix(s.name, "runTurn-")
}

var genkitSegments = lazy.Regexp(`/\{(.*?)(?:,t:([^,}]*))?(?:,s:([^,}]*))?(?:\}|$)`)

// genkitPath reads a path from the root to the span itself. It is nil for a path without types, as in old versions.
func genkitPath(path string) (segments []genkitSegment) {
	if strings.HasPrefix(path, "/{") {
		for _, m := range genkitSegments().FindAllStringSubmatch(path, -1) {
			segments = append(segments, genkitSegment{m[1], m[2], m[3]})
		}
	}
	return segments
}

// genkitInTurn reports whether the path leads through a turn, without a tool between the two: what a tool asks a model
// is a turn of its own.
func genkitInTurn(path []genkitSegment) bool {
	for i := len(path) - 2; i >= 0; i-- {
		switch s := path[i]; {
		case s.kind == "flow", s.subtype == "flow", s.subtype == "executable-prompt", s.calls(), s.isTurnOfAgent():
			return true
		case s.subtype == "tool", s.subtype == "tool.v2":
			return false
		case s.kind == "action" && s.subtype == "":
			// JavaScript has no subtype but the last. What generate calls that calls others in turn is a tool, and what
			// nothing calls is a prompt.
			return i == 0 || !path[i-1].calls()
		}
	}
	return false
}

type genkitSpan struct {
	Attrs
	genkitSegment
	facts  *Emitter
	inTurn bool
}

func (g *genkitSpan) add(kind fact.Kind) *fact.Fact {
	const rank = 1000 // after the keys that are looked up on every span
	f := g.facts.Add(kind)
	f.Agent = g.Str("genkit:metadata:flow:name")
	if id, key := g.session(); f.Session == "" && id != "" {
		f.Session, f.SessionKey, f.SessionRank = id, key, rank
	}
	if f.Failed = f.Failed || g.Str("genkit:state") == "error"; f.Failed {
		f.Error = cmp.Or(g.Str("genkit:error"), f.Error)
	}
	return f
}

// session finds the session of a chat or an agent. The threads of a chat have nothing in common but its state, so each
// is a session; "main" is the one that a chat begins with.
func (g *genkitSpan) session() (id, key string) {
	if id = g.Str("genkit:sessionId"); id != "" {
		if thread := g.Str("genkit:threadName"); thread != "" && thread != "main" {
			id += "/" + thread
		}
		return id, "genkit:sessionId"
	}
	key = "genkit:metadata:agent:sessionId"
	if id = g.Str(key); id == "" && g.subtype == "agent" {
		id, key = g.object("genkit:init").str("sessionId"), "genkit:init"
	}
	return id, key
}

// whole reads an attribute that is an object.
func (g *genkitSpan) whole(key string) object {
	problemIfCut(g.facts, key, g.JSON(key))
	return g.object(key)
}

// response reads the output of a model and of generate. Until there was one answer only, it had candidates.
func (g *genkitSpan) response() (answer, response object) {
	response = g.whole("genkit:output")
	candidates := objectsOf(response["candidates"])
	if answer = response; response["message"] == nil && len(candidates) > 0 {
		if answer = candidates[0]; answer["usage"] == nil {
			answer["usage"] = response["usage"]
		}
	}
	return answer, response
}

func (g *genkitSpan) modelCall() {
	asked := g.whole("genkit:input")
	answer, response := g.response()

	f := g.add(fact.ModelCall)
	f.RequiresTurn = g.inTurn
	provider, model, found := strings.Cut(g.name, "/")
	if !found {
		provider, model = "", g.name
	}
	f.Model = &session.Model{ProviderID: provider, ModelID: model}
	config := asked.inner("config")
	f.ResponseModel, f.Temperature = config.str("version"), number(string(config["temperature"]))
	if messages, ok := Messages(asked["messages"]); ok {
		ReadInput(f, messages)
	}
	if tools, _ := elements(asked["tools"]); len(tools) > 0 {
		f.ToolCatalog = string(asked["tools"])
	}
	f.Output = genkitParts(answer)
	f.Finish = answer.str("finishReason")
	f.Usage = genkitUsage(provider, answer["usage"])
	readResponse(f, response.first("raw", "custom")) // the latter is the older name
}

// genkitParts returns the parts of the message in an answer.
func genkitParts(answer object) []fact.Part {
	if message := answer.inner("message"); message != nil {
		return fact.PartsOf(genkitMessage(answer["message"]))
	}
	return nil
}

func genkitMessage(message json.RawMessage) []fact.Message {
	messages, _ := Messages(slices.Concat(json.RawMessage("["), message, json.RawMessage("]")))
	return messages
}

// genkitUsage reads a count of tokens. Genkit passes on what each provider states: OpenAI counts the cache in the input
// and the reasoning in the output, Anthropic's input excludes the cache, Google's output the reasoning. How others
// count is not known.
func genkitUsage(provider string, raw json.RawMessage) *fact.Usage {
	u, _ := objectOf(raw)
	c := countsOf(u.count, "inputTokens", "outputTokens", "cachedContentTokens", "", "thoughtsTokens", "totalTokens")
	c.Raw = raw
	switch provider = strings.ToLower(provider); {
	case strings.Contains(provider, "anthropic"):
		return c.Usage(fact.CacheApart)
	case hasPrefix(provider, "google", "vertex"):
		// A total may show that it does not exclude it.
		if c.Output != nil && (c.Total == nil || *c.Total != counted(c.Input)+*c.Output ||
			counted(c.Reasoning) > *c.Output) {
			c.Output = plus(c.Output, c.Reasoning)
		}
		return c.Usage(0)
	case provider == "openai":
		return c.WithThoughts().Usage(0)
	}
	return c.Assumed(provider)
}

// toolCall reads the call of a tool. Its id is not on the span. A tool that waits for a person is interrupted, which
// looks like an error where the interrupt's data are missing.
func (g *genkitSpan) toolCall() {
	f := g.add(fact.ToolCall)
	f.RequiresTurn = g.inTurn
	f.Tool = &fact.Tool{Name: g.name, Input: g.JSON("genkit:input")}
	interrupt, interrupted := g.Value("genkit:metadata:interrupt")
	if interrupted || strings.HasSuffix(f.ErrorType, "InterruptError") ||
		strings.Contains(f.Error, "tool execution interrupted") {
		clearFailure(f)
		d := fact.Decision{Action: "ask", Outcome: "pending", Source: "interrupt"}
		if interrupted {
			d.Reason = genkitReason(TextJSON(interrupt.AsString()))
		}
		g.decided(d)
		return
	}
	if !f.Failed {
		f.Tool.Output, f.Tool.Succeeded = g.JSON("genkit:output"), g.Str("genkit:state") == "success"
		// An envelope, {"output": …, "content": […]}, is taken off, unless there is content besides.
		envelope := g.object("genkit:output")
		content, hasContent := envelope["content"]
		if list, ok := elements(content); envelope["output"] != nil && g.subtype == "tool.v2" &&
			(!hasContent || isNull(content) || ok && len(list) == 0) {
			f.Tool.Output = envelope["output"]
		}
	}
	if g.object("genkit:metadata:resumed").truth("toolApproved") {
		g.decided(fact.Decision{Action: "ask", Outcome: "allowed", Reply: "once", Source: "resumed"})
	}
}

func (g *genkitSpan) decided(d fact.Decision) {
	f := g.add(fact.Permission)
	clearFailure(f)
	f.RequiresTurn, f.Decision, d.ToolName = g.inTurn, &d, g.name
}

// genkitReason is what an interrupt reports of itself, in a line.
func genkitReason(raw json.RawMessage) string {
	data, _ := objectOf(raw)
	reason := cmp.Or(text(raw), data.str("reason", "message", "question"))
	if reason == "" && string(raw) != "true" && string(raw) != "null" && string(raw) != `""` {
		return string(raw)
	}
	return reason
}

// turn reads what encloses the model calls of one request: a flow, a prompt, or generate itself. The usage of generate
// is that of its last model call.
func (g *genkitSpan) turn() {
	asked := g.whole("genkit:input")
	answer, _ := g.response()
	f := g.add(fact.Turn)
	if f.Agent == "" && !g.calls() && !g.isTurnOfAgent() {
		f.Agent = g.name
	}
	input, output, extra := g.JSON("genkit:input"), g.JSON("genkit:output"), object{}
	messages, ok := Messages(asked["messages"])
	if message := asked["message"]; len(asked["messages"]) == 0 && len(message) > 0 {
		messages = genkitMessage(message)
		ok = messages != nil
	}
	if ok {
		ReadInput(f, messages)
	} else if f.Input = userMessages(genkitString(input), ""); f.Input == nil && genkitReported(input) {
		extra["input"] = input
	}
	if f.Output = genkitParts(answer); f.Output == nil {
		f.Output = appendText(nil, fact.PartText, genkitString(output))
		if f.Output == nil && genkitReported(output) {
			extra["output"] = output
		}
	}
	f.Finish, f.Extra = answer.str("finishReason"), encode(extra)
}

// genkitString returns the text of a value that is one, or an object of which one field is obviously what was written.
func genkitString(raw json.RawMessage) string {
	if s := text(raw); !strings.HasPrefix(s, "{") { // an object, whole or cut
		fields, _ := objectOf(raw)
		return cmp.Or(s, fields.str("text", "prompt", "message", "question", "query", "input", "response", "answer",
			"output", "result"))
	}
	return ""
}

// genkitReported reports whether a value is worth keeping where no field holds it.
func genkitReported(raw json.RawMessage) bool {
	const maximum = 16 << 10
	return len(raw) <= maximum && !isNull(raw) && string(raw) != "{}" && string(raw) != `""`
}
