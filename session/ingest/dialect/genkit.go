package dialect

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genkit reads Genkit for Go, JavaScript and Python. Every span states what it is in genkit:type
// and genkit:metadata:subtype, and where it is in genkit:path. The content is JSON in genkit:input
// and genkit:output.
var genkit = Dialect{
	Name:  "genkit",
	Title: "Genkit",
	Spans: func(s *Span) bool { return s.Has("genkit") || s.Scope.Name() == "genkit-tracer" },

	ReadSpan: readGenkit,
}

// genkitSessionRank comes after the keys that are looked up on every span.
const genkitSessionRank = 1000

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
	case genkitTurnOfAgent(g.kind, g.name),
		opens && (g.subtype == "flow" || g.subtype == "executable-prompt" || genkitCalls(g.kind, g.subtype)):
		g.turn()
	default:
		g.add(fact.Step)
	}
}

type genkitSpan struct {
	Attrs
	facts               *Emitter
	kind, subtype, name string
	inTurn              bool
}

func (g *genkitSpan) add(kind fact.Kind) *fact.Fact {
	f := g.facts.Add(kind)
	f.Agent = g.Str("genkit:metadata:flow:name")
	if f.Session == "" {
		if f.Session, f.SessionKey = g.session(); f.Session != "" {
			f.SessionRank = genkitSessionRank
		}
	}
	if f.Failed = f.Failed || g.Str("genkit:state") == "error"; f.Failed {
		f.Error = cmp.Or(g.Str("genkit:error"), f.Error)
	}
	return f
}

// session finds the session of a chat or an agent. The threads of a chat have nothing in common but
// its state, so each is a session; "main" is the one that a chat begins with.
func (g *genkitSpan) session() (id, key string) {
	if id = g.Str("genkit:sessionId"); id != "" {
		if thread := g.Str("genkit:threadName"); thread != "" && thread != "main" {
			id += "/" + thread
		}
		return id, "genkit:sessionId"
	}
	if id = g.Str("genkit:metadata:agent:sessionId"); id != "" {
		return id, "genkit:metadata:agent:sessionId"
	}
	if init, _ := objectOf(g.JSON("genkit:init")); g.subtype == "agent" && init.str("sessionId") != "" {
		return init.str("sessionId"), "genkit:init"
	}
	return "", ""
}

// object reads an attribute that is an object.
func (g *genkitSpan) object(key string) object {
	raw := g.JSON(key)
	if s := text(raw); strings.HasPrefix(s, "{") && !json.Valid([]byte(s)) {
		g.facts.Problem(key + " is no JSON: it may have been cut before export")
	}
	o, _ := objectOf(raw)
	return o
}

// response reads the output of a model and of generate. Until there was one answer only, it had
// candidates.
func (g *genkitSpan) response() (answer, response object) {
	response = g.object("genkit:output")
	candidates := objectsOf(response["candidates"])
	if answer = response; response["message"] == nil && len(candidates) > 0 {
		if answer = candidates[0]; answer["usage"] == nil {
			answer["usage"] = response["usage"]
		}
	}
	return answer, response
}

func (g *genkitSpan) modelCall() {
	asked := g.object("genkit:input")
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
	f.Output = genkitParts(answer["message"])
	f.Finish = answer.str("finishReason")
	f.Usage = genkitUsage(provider, answer["usage"])
	readResponse(f, firstRaw(response["raw"], response["custom"])) // the latter is the older name
}

func genkitParts(message json.RawMessage) []fact.Part {
	if _, ok := objectOf(message); !ok {
		return nil
	}
	messages, _ := Messages(slices.Concat(json.RawMessage("["), message, json.RawMessage("]")))
	return fact.PartsOf(messages)
}

// genkitUsage reads a count of tokens. Genkit passes on what each provider states: OpenAI counts
// the cache in the input and the reasoning in the output, Anthropic's input excludes the cache,
// Google's output the reasoning. How others count is not known.
func genkitUsage(provider string, raw json.RawMessage) *fact.Usage {
	u, _ := objectOf(raw)
	count := func(key string) *int64 {
		if n := u.count(key); n == nil || *n < 1e15 {
			return n
		}
		return new(int64) // not a count
	}
	c := Counts{Input: count("inputTokens"), Output: count("outputTokens"), Total: count("totalTokens"),
		CacheRead: count("cachedContentTokens"), Reasoning: count("thoughtsTokens"), Raw: raw}
	switch provider = strings.ToLower(provider); {
	case strings.Contains(provider, "anthropic"):
		return c.Usage(fact.CacheApart)
	case hasPrefix(provider, "google", "vertex"):
		// A total may show that it does not exclude it.
		if c.Output != nil && (c.Total == nil || *c.Total != *counted(c.Input)+*c.Output ||
			*counted(c.Reasoning) > *c.Output) {
			c.Output = plus(c.Output, c.Reasoning)
		}
		return c.Usage(0)
	case provider == "openai":
		return c.WithThoughts().Usage(0)
	}
	return c.Assumed(provider)
}

// toolCall reads the call of a tool. Its id is not on the span. A tool that waits for a person is
// interrupted, which looks like an error where the interrupt's data are missing.
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
	if out := g.JSON("genkit:output"); !f.Failed && out != nil {
		f.Tool.Output = out
		if g.subtype == "tool.v2" {
			f.Tool.Output = genkitToolOutput(out)
		}
	}
	f.Tool.Succeeded = !f.Failed && g.Str("genkit:state") == "success"
	if resumed, _ := objectOf(g.JSON("genkit:metadata:resumed")); resumed.truth("toolApproved") {
		g.decided(fact.Decision{Action: "ask", Outcome: "allowed", Reply: "once", Source: "resumed"})
	}
}

func (g *genkitSpan) decided(d fact.Decision) {
	f := g.add(fact.Permission)
	clearFailure(f)
	f.RequiresTurn, f.Decision, d.ToolName = g.inTurn, &d, g.name
}

// genkitToolOutput takes a result out of its envelope, {"output": …, "content": […]}, unless there
// is content besides.
func genkitToolOutput(raw json.RawMessage) json.RawMessage {
	envelope, _ := objectOf(raw)
	if content, _ := elements(envelope["content"]); envelope["output"] == nil ||
		content != nil || envelope.has("content") && string(envelope["content"]) != "[]" {
		return raw
	}
	return envelope["output"]
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

// turn reads what encloses the model calls of one request: a flow, a prompt, or generate itself.
// The usage of generate is that of its last model call.
func (g *genkitSpan) turn() {
	asked := g.object("genkit:input")
	answer, _ := g.response()
	f := g.add(fact.Turn)
	if f.Agent == "" && !genkitCalls(g.kind, g.subtype) && !genkitTurnOfAgent(g.kind, g.name) {
		f.Agent = g.name
	}
	input, output, extra := g.JSON("genkit:input"), g.JSON("genkit:output"), object{}
	raw := asked["messages"]
	if message := asked["message"]; len(raw) == 0 && len(message) > 0 {
		raw = slices.Concat(json.RawMessage("["), message, json.RawMessage("]"))
	}
	if messages, ok := Messages(raw); ok {
		ReadInput(f, messages)
	} else if f.Input = userMessages(genkitString(input), ""); f.Input == nil && genkitReported(input) {
		extra["input"] = input
	}
	if f.Output = genkitParts(answer["message"]); f.Output == nil {
		f.Output = appendText(nil, fact.PartText, genkitString(output))
		if f.Output == nil && genkitReported(output) {
			extra["output"] = output
		}
	}
	f.Finish, f.Extra = answer.str("finishReason"), encode(extra)
}

// genkitString returns the text of a value that is one, or an object of which one field is
// obviously what was written.
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

// genkitSegment is a span in a path: {name,t:type,s:subtype}.
type genkitSegment struct{ name, kind, subtype string }

// genkitPath reads a path from the root to the span itself. It is nil for a path without types, as
// in old versions.
func genkitPath(path string) (segments []genkitSegment) {
	if !strings.HasPrefix(path, "/{") {
		return nil
	}
	for _, m := range genkitSegments.FindAllStringSubmatch(path, -1) {
		segments = append(segments, genkitSegment{m[1], m[2], m[3]})
	}
	return segments
}

var genkitSegments = regexp.MustCompile(`/\{(.*?)(?:,t:([^,}]*))?(?:,s:([^,}]*))?(?:\}|$)`)

// genkitInTurn reports whether the path leads through a turn, without a tool between the two: what
// a tool asks a model is a turn of its own.
func genkitInTurn(path []genkitSegment) bool {
	for i := len(path) - 2; i >= 0; i-- {
		switch s := path[i]; {
		case s.kind == "flow", s.subtype == "flow", s.subtype == "executable-prompt", genkitCalls(s.kind, s.subtype),
			genkitTurnOfAgent(s.kind, s.name):
			return true
		case s.subtype == "tool", s.subtype == "tool.v2":
			return false
		case s.kind == "action" && s.subtype == "":
			// JavaScript has no subtype but the last. What generate calls that calls others in turn
			// is a tool, and what nothing calls is a prompt.
			return i == 0 || !genkitCalls(path[i-1].kind, path[i-1].subtype)
		}
	}
	return false
}

// genkitCalls reports whether a span of the type calls models: generate, the send of a chat, or a
// prompt.
func genkitCalls(kind, subtype string) bool {
	return kind == "util" || kind == "helper" || kind == "dotprompt" || kind == "action" && subtype == "util"
}

// genkitTurnOfAgent reports whether a span is a turn of an agent, whose own span lasts as long as
// its session is connected.
func genkitTurnOfAgent(kind, name string) bool {
	return kind == "flowStep" && strings.HasPrefix(name, "runTurn-")
}
