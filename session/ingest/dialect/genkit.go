package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// genkit reads Genkit for Go, JavaScript and Python. Every span states what it is in
// genkit:type and genkit:metadata:subtype, and where it is in genkit:path. What
// was said is JSON in genkit:input and genkit:output.
var genkit = Dialect{
	Name:  "genkit",
	Title: "Genkit",
	Spans: func(s *Span) bool { return s.Has(MarkGenkit) || s.Scope.Name() == "genkit-tracer" },

	ReadSpan: readGenkit,

	Capabilities: capabilities{
		"span (of chats and agents)": {TopicSession},
		"span": {TopicTurn, TopicUser, TopicText, TopicReasoning, TopicToolInput, TopicToolOutput, TopicToolError,
			TopicPrompt, TopicCatalog, TopicModel, TopicTokens, TopicCache, TopicThinking, TopicFinish},
		"span (of interrupts)": {TopicPermission},
	}.byTopic(),
}

// genkitSessionRank stands behind the keys that are looked up on every span.
const genkitSessionRank = 1000

func readGenkit(s *Span, facts *Emitter) {
	g := genkitSpan{Attrs: s.Attrs(), facts: facts}
	g.kind, g.subtype, g.name = g.Str("genkit:type"), g.Str("genkit:metadata:subtype"), g.Str("genkit:name")
	if g.name == "" {
		g.name = Text(s.Name())
	}
	root, _ := g.Bool("genkit:isRoot")
	path := genkitPath(g.Str("genkit:path"))
	g.inTurn = genkitInTurn(path)
	opens := root || len(path) > 0 && !g.inTurn || len(path) == 0 && s.ParentSpanID().IsEmpty()

	switch {
	case g.subtype == "model" || g.subtype == "background-model":
		g.modelCall()
	case g.subtype == "tool" || g.subtype == "tool.v2":
		g.toolCall()
	case g.subtype == "userFeedback" || g.subtype == "userAcceptance":
		// Written long after the turn, about it.
	case genkitTurnOfAgent(g.kind, g.name):
		g.turn()
	case opens && (g.subtype == "flow" || g.subtype == "executable-prompt" || genkitCalls(g.kind, g.subtype)):
		g.turn()
	default:
		g.add(fact.Step)
	}
}

// genkitSpan is a span of Genkit while it is read.
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
		f.Session, f.SessionKey = g.session()
		if f.Session != "" {
			f.SessionRank = genkitSessionRank
		}
	}
	if g.Str("genkit:state") == "error" {
		f.Failed = true
	}
	if reported := g.Str("genkit:error"); f.Failed && reported != "" {
		f.Error = reported
	}
	return f
}

// session finds the session of a chat or an agent. The threads of a chat have
// nothing in common but its state, so each is a session; "main" is the one that a
// chat begins with.
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
	var init struct {
		SessionID string `json:"sessionId"`
	}
	if g.subtype == "agent" && json.Unmarshal(g.JSON("genkit:init"), &init) == nil && init.SessionID != "" {
		return Text(init.SessionID), "genkit:init"
	}
	return "", ""
}

// genkitRequest is the input of a model, of generate and of an agent's turn.
type genkitRequest struct {
	Messages json.RawMessage `json:"messages"`
	Message  json.RawMessage `json:"message"`
	Tools    json.RawMessage `json:"tools"`
	Config   struct {
		Temperature *float64 `json:"temperature"`
		Version     string   `json:"version"`
	} `json:"config"`
}

// genkitResponse is the output of a model and of generate. Until there was one
// answer only, it had candidates.
type genkitResponse struct {
	genkitCandidate
	Candidates []genkitCandidate `json:"candidates"`
	// Raw is the provider's own response, Custom its older name.
	Raw    json.RawMessage `json:"raw"`
	Custom json.RawMessage `json:"custom"`
}

type genkitCandidate struct {
	Message      json.RawMessage `json:"message"`
	FinishReason string          `json:"finishReason"`
	Usage        json.RawMessage `json:"usage"`
}

// object decodes an attribute that is an object. Its fields may be of other types
// than Genkit gives them, which leaves them out.
func (g *genkitSpan) object(key string, dst any) {
	raw := g.JSON(key)
	switch {
	case len(raw) > 0 && raw[0] == '{':
		_ = json.Unmarshal(raw, dst)
	case raw != nil && string(raw) != "null":
		if text := genkitText(raw); strings.HasPrefix(text, "{") && !json.Valid([]byte(text)) {
			g.facts.Problem(key + " is no JSON: it may have been cut before export")
		}
	}
}

func (g *genkitSpan) response() (answer genkitCandidate, raw json.RawMessage) {
	var r genkitResponse
	g.object("genkit:output", &r)
	if raw = r.Raw; len(raw) == 0 {
		raw = r.Custom
	}
	if len(r.Message) == 0 && len(r.Candidates) > 0 {
		first := r.Candidates[0]
		if len(first.Usage) == 0 {
			first.Usage = r.Usage
		}
		return first, raw
	}
	return r.genkitCandidate, raw
}

func (g *genkitSpan) modelCall() {
	var asked genkitRequest
	g.object("genkit:input", &asked)
	answer, response := g.response()

	f := g.add(fact.ModelCall)
	f.RequiresTurn = g.inTurn
	provider, model, found := strings.Cut(g.name, "/")
	if !found {
		provider, model = "", g.name
	}
	f.Model = &session.Model{ProviderID: provider, ModelID: model}
	f.ResponseModel = Text(asked.Config.Version)
	f.Temperature = asked.Config.Temperature
	if messages, ok := Messages(asked.Messages); ok {
		ReadInput(f, messages)
	}
	if len(asked.Tools) > 2 && asked.Tools[0] == '[' {
		f.ToolCatalog = string(asked.Tools)
	}
	f.Output = genkitParts(answer.Message)
	f.Finish = Text(answer.FinishReason)
	f.Usage = genkitUsage(provider, answer.Usage)
	readResponse(f, response)
}

// genkitParts returns the parts of one message.
func genkitParts(message json.RawMessage) []fact.Part {
	if len(message) == 0 || message[0] != '{' {
		return nil
	}
	messages, _ := Messages(slices.Concat(json.RawMessage("["), message, json.RawMessage("]")))
	var parts []fact.Part
	for _, m := range messages {
		parts = append(parts, m.Parts...)
	}
	return parts
}

// genkitUsage reads a count of tokens. Genkit passes on what each provider states: OpenAI
// counts the cache in the input and the reasoning in the output, Anthropic's input excludes
// the cache, Google's output the reasoning. How others count is not known.
func genkitUsage(provider string, raw json.RawMessage) *fact.Usage {
	var u struct {
		Input    *float64 `json:"inputTokens"`
		Output   *float64 `json:"outputTokens"`
		Total    *float64 `json:"totalTokens"`
		Thoughts *float64 `json:"thoughtsTokens"`
		Cached   *float64 `json:"cachedContentTokens"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil {
		return nil
	}
	count := func(f *float64) *int64 {
		switch {
		case f == nil:
			return nil
		case *f > 0 && *f < 1e15:
			return new(int64(*f))
		}
		return new(int64)
	}
	input, output, cached, thoughts, total := count(u.Input), count(u.Output), count(u.Cached), count(u.Thoughts), count(u.Total)
	switch provider = strings.ToLower(provider); {
	case strings.Contains(provider, "anthropic"):
		return MixedUsage(input, output, cached, nil, thoughts, raw)
	case strings.HasPrefix(provider, "google") || strings.HasPrefix(provider, "vertex"):
		// A total may show that it does not exclude it.
		if output != nil && thoughts != nil && (total == nil || *total != *counted(input)+*output || *thoughts > *output) {
			output = new(*output + *thoughts)
		}
		return InclusiveUsage(input, output, cached, nil, thoughts, raw)
	case provider == "openai":
		return TotaledUsage(input, output, cached, nil, thoughts, total, raw)
	}
	return AssumedUsage(provider, input, output, cached, nil, thoughts, total, raw)
}

// toolCall reads the call of a tool. Its id is not on the span. A tool that waits
// for a person is interrupted, which looks like an error where the interrupt's data
// are not told.
func (g *genkitSpan) toolCall() {
	f := g.add(fact.ToolCall)
	f.RequiresTurn = g.inTurn
	f.Tool = &fact.Tool{Name: g.name, Input: g.JSON("genkit:input")}
	interrupt, interrupted := g.Value("genkit:metadata:interrupt")
	if interrupted || strings.HasSuffix(f.ErrorType, "InterruptError") || strings.Contains(f.Error, "tool execution interrupted") {
		f.Failed, f.Error, f.ErrorType = false, "", ""
		reason := ""
		if interrupted {
			reason = genkitReason(TextJSON(interrupt.AsString()))
		}
		p := g.add(fact.Permission)
		p.Failed, p.Error, p.ErrorType = false, "", ""
		p.RequiresTurn = g.inTurn
		p.Decision = &fact.Decision{ToolName: g.name, Action: "ask", Outcome: "pending", Source: "interrupt", Reason: reason}
		return
	}
	if out := g.JSON("genkit:output"); !f.Failed && out != nil {
		f.Tool.Output = out
		if g.subtype == "tool.v2" {
			f.Tool.Output = genkitToolOutput(out)
		}
	}
	f.Tool.Succeeded = !f.Failed && g.Str("genkit:state") == "success"

	var resumed struct {
		Approved *bool `json:"toolApproved"`
	}
	if json.Unmarshal(g.JSON("genkit:metadata:resumed"), &resumed) == nil && resumed.Approved != nil && *resumed.Approved {
		p := g.add(fact.Permission)
		p.Failed, p.Error, p.ErrorType = false, "", ""
		p.RequiresTurn = g.inTurn
		p.Decision = &fact.Decision{ToolName: g.name, Action: "ask", Outcome: "allowed", Reply: "once", Source: "resumed"}
	}
}

// genkitToolOutput takes a result out of its envelope, {"output": …, "content":
// […]}, unless there is content besides.
func genkitToolOutput(raw json.RawMessage) json.RawMessage {
	var envelope map[string]json.RawMessage
	if json.Unmarshal(raw, &envelope) != nil {
		return raw
	}
	output, content := envelope["output"], envelope["content"]
	if len(content) > 0 && string(content) != "null" && string(content) != "[]" {
		return raw
	}
	if output == nil {
		return raw
	}
	return output
}

// genkitReason is what an interrupt reports of itself, in a line.
func genkitReason(raw json.RawMessage) string {
	if text := genkitText(raw); text != "" {
		return text
	}
	if string(raw) == "true" || string(raw) == "null" {
		return ""
	}
	var data map[string]json.RawMessage
	if json.Unmarshal(raw, &data) == nil {
		for _, key := range []string{"reason", "message", "question"} {
			if text := genkitText(data[key]); text != "" {
				return text
			}
		}
	}
	return string(raw)
}

// turn reads what encloses the model calls of one request: a flow, a prompt, or
// generate itself. The usage of generate is that of its last model call.
func (g *genkitSpan) turn() {
	var asked genkitRequest
	g.object("genkit:input", &asked)
	answer, _ := g.response()
	f := g.add(fact.Turn)
	if f.Agent == "" && !genkitCalls(g.kind, g.subtype) && !genkitTurnOfAgent(g.kind, g.name) {
		f.Agent = g.name
	}
	input, output := g.JSON("genkit:input"), g.JSON("genkit:output")
	extra := map[string]json.RawMessage{}
	if len(asked.Message) > 0 && len(asked.Messages) == 0 {
		asked.Messages = slices.Concat(json.RawMessage("["), asked.Message, json.RawMessage("]"))
	}
	if messages, ok := Messages(asked.Messages); ok && len(asked.Messages) > 0 {
		ReadInput(f, messages)
	} else if text := genkitString(input); text != "" {
		f.Input = []fact.Message{{Role: "user", Parts: []fact.Part{{Kind: fact.PartText, Text: text}}}}
	} else if genkitReported(input) {
		extra["input"] = input
	}
	if f.Output = genkitParts(answer.Message); f.Output == nil {
		if text := genkitString(output); text != "" {
			f.Output = []fact.Part{{Kind: fact.PartText, Text: text}}
		} else if genkitReported(output) {
			extra["output"] = output
		}
	}
	f.Finish = Text(answer.FinishReason)
	if len(extra) > 0 {
		f.Extra, _ = json.Marshal(extra)
	}
}

// genkitString returns the text of a value that is one, or an object of which one
// field is obviously what is said.
func genkitString(raw json.RawMessage) string {
	if text := genkitText(raw); text != "" {
		if text[0] == '{' {
			return "" // an object, whole or cut
		}
		return text
	}
	var fields map[string]json.RawMessage
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	for _, key := range []string{"text", "prompt", "message", "question", "query", "input", "response", "answer", "output", "result"} {
		if text := genkitText(fields[key]); text != "" {
			return text
		}
	}
	return ""
}

// genkitReported reports whether a value is worth keeping where no field holds it.
func genkitReported(raw json.RawMessage) bool {
	const maximum = 16 << 10
	return len(raw) > 0 && len(raw) <= maximum && string(raw) != "null" && string(raw) != "{}" && string(raw) != `""`
}

func genkitText(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return Text(text)
}

// genkitSegment is a span in a path: {name,t:type,s:subtype}.
type genkitSegment struct{ name, kind, subtype string }

// genkitPath reads a path from the root to the span itself. It is nil where the
// path tells no types, as in old versions.
func genkitPath(path string) []genkitSegment {
	path, ok := strings.CutPrefix(path, "/{")
	if !ok {
		return nil
	}
	var segments []genkitSegment
	for text := range strings.SplitSeq(strings.TrimSuffix(path, "}"), "}/{") {
		var s genkitSegment
		if i := strings.LastIndex(text, ",s:"); i >= 0 {
			text, s.subtype = text[:i], text[i+3:]
		}
		if i := strings.LastIndex(text, ",t:"); i >= 0 {
			text, s.kind = text[:i], text[i+3:]
		}
		s.name = text
		segments = append(segments, s)
	}
	return segments
}

// genkitInTurn reports whether the path leads through a turn, without a tool between
// the two: what a tool asks a model is a turn of its own.
func genkitInTurn(path []genkitSegment) bool {
	for i := len(path) - 2; i >= 0; i-- {
		switch s := path[i]; {
		case s.kind == "flow", s.subtype == "flow", s.subtype == "executable-prompt", genkitCalls(s.kind, s.subtype), genkitTurnOfAgent(s.kind, s.name):
			return true
		case s.subtype == "tool", s.subtype == "tool.v2":
			return false
		case s.kind == "action" && s.subtype == "":
			// JavaScript tells no subtypes but the last. What generate calls that
			// calls others in turn is a tool, and what nothing calls is a prompt.
			return i == 0 || !genkitCalls(path[i-1].kind, path[i-1].subtype)
		}
	}
	return false
}

// genkitCalls reports whether a span of the type calls models: generate, the send of a
// chat, or a prompt.
func genkitCalls(kind, subtype string) bool {
	return kind == "util" || kind == "helper" || kind == "dotprompt" || kind == "action" && subtype == "util"
}

// genkitTurnOfAgent reports whether a span is a turn of an agent, whose own span lasts
// as long as its session is connected.
func genkitTurnOfAgent(kind, name string) bool {
	return kind == "flowStep" && strings.HasPrefix(name, "runTurn-")
}
