package modelapi

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

var geminiForm = form{
	messages: "contents", variant: "generationConfig.thinkingConfig.thinkingLevel",
	temperature: "generationConfig.temperature", limit: "generationConfig.maxOutputTokens",
	shape:  "generationConfig.responseSchema generationConfig.responseJsonSchema",
	system: "systemInstruction.parts system_instruction.parts", tools: "tools",
	continuation: "continuationToken generationConfig.continuationToken",
}

// geminiOutput returns the output in the response of a function. By convention an object
// with the one member "error" is an error, one with "output" or "result" is an output.
func geminiOutput(v value) (out json.RawMessage, failed bool) {
	o := v.object()
	failed = o.get("error") != "" && o.get("output") == ""
	if inner := o.get("error", "output", "result"); len(o) == 1 && inner != "" {
		if inner.isText() {
			return output(inner.text()), failed
		}
		return inner.raw(), failed
	}
	return v.raw(), failed
}

type geminiAnswer struct {
	a *Answer
	// partial is the call whose arguments arrive in pieces, args what came of them.
	partial *Block
	args    map[string]any
	// code counts the pieces of code that Google executed.
	code int
}

// Body takes one response, or a list of them, which is a stream without server-sent events.
func (d *geminiAnswer) Body(data []byte) {
	if list := trimmed(data).elements(); list != nil {
		for _, v := range list {
			d.chunk(v.value.object())
		}
	} else {
		d.chunk(parse(data))
	}
	d.a.closeAll()
}

func (d *geminiAnswer) Event(_ string, data []byte) { d.chunk(parse(data)) }

func (d *geminiAnswer) chunk(c object) {
	d.a.failed(c)
	d.a.ID, d.a.Model = cmp.Or(c.text("responseId"), d.a.ID), cmp.Or(c.text("modelVersion"), d.a.Model)
	for _, candidate := range c.get("candidates").objects() {
		parts := candidate.in("content").get("parts").objects()
		if candidate.count("index") != 0 {
			continue // an alternative
		}
		for _, p := range parts {
			d.part(p)
		}
		if finish := candidate.text("finishReason"); finish != "" && finish != "FINISH_REASON_UNSPECIFIED" {
			d.a.Stop, d.a.Ended = finish, true
			d.a.Continuation = candidate.text("continuationToken")
			d.a.Paused = d.a.Continuation != ""
			d.a.closeAll()
		}
	}
	if blocked := c.in("promptFeedback").text("blockReason"); blocked != "" {
		d.a.Stop, d.a.Ended = blocked, true
	}
	d.usage(c.get("usageMetadata"))
}

func (d *geminiAnswer) part(p object) {
	codeID := func() string { return "code_" + strconv.Itoa(d.code%10) }
	call, data := p.in("functionCall"), p.in("inlineData")
	code, result := p.in("executableCode"), p.in("codeExecutionResult")
	// The call and the response of a tool that Google executes.
	serverCall, serverResponse := p.in("toolCall"), p.in("toolResponse")
	switch text := p.text("text"); {
	case call != nil:
		d.call(call)
	case code != nil:
		d.code++
		d.a.call(d.a.next(Call), codeID(), "code_execution", Quote(code.text("code")), true)
	case result != nil:
		outcome := result.text("outcome")
		d.a.Sink.Output(codeID(), output(result.text("output")), outcome != "" && outcome != "OUTCOME_OK")
	case serverCall != nil:
		d.a.call(d.a.next(Call), serverCall.text("id"), strings.ToLower(serverCall.text("toolType")),
			serverCall.get("args").raw(), true)
	case serverResponse != nil:
		out, failed := geminiOutput(serverResponse.get("response"))
		d.a.Sink.Output(serverResponse.text("id"), out, failed)
	case data != nil:
		d.a.Sink.File(inline(data.text("mimeType"), data.text("displayName"), data.text("data")))
	case text == "":
	case p.isTrue("thought"):
		d.a.add(d.a.next(Reasoning), text)
	default:
		d.a.add(d.a.next(Text), text)
	}
}

// call takes a call, which comes as a whole, or with its arguments in pieces.
func (d *geminiAnswer) call(c object) {
	b := d.partial
	if b == nil {
		b = d.a.next(Call)
		b.ID, b.Name, b.content = c.text("id"), c.text("name"), []byte(d.a.Take(string(c.get("args"))))
		d.args = nil
	}
	for _, arg := range c.get("partialArgs").objects() {
		if d.args == nil {
			d.args = make(map[string]any)
		}
		d.setArg(arg)
	}
	if c.isTrue("willContinue") {
		d.partial = b
		return
	}
	d.partial = nil
	if d.args != nil {
		if encoded, err := json.Marshal(d.args); err == nil {
			b.content = encoded
		}
	}
	d.a.close(b)
}

// setArg puts a piece of an argument, a value or the next part of a text, at its path, such as $.city.
func (d *geminiAnswer) setArg(arg object) {
	args := d.args
	path := strings.Split(strings.TrimPrefix(strings.TrimPrefix(arg.text("jsonPath"), "$"), "."), ".")
	for len(path) > 1 {
		inner, ok := args[path[0]].(map[string]any)
		if !ok {
			inner = make(map[string]any)
			args[path[0]] = inner
		}
		args, path = inner, path[1:]
	}
	name := path[0]
	if text := arg.get("stringValue"); text != "" {
		before, _ := args[name].(string)
		args[name] = before + d.a.Take(text.text())
	} else if v := arg.get("numberValue", "boolValue"); v != "" {
		args[name] = v.raw()
	}
}

func (d *geminiAnswer) usage(v value) {
	u := v.object()
	if u.get("promptTokenCount") == "" {
		return
	}
	d.a.Usage = &Usage{
		Basis: GeminiBasis, Input: u.count("promptTokenCount"), CacheRead: u.count("cachedContentTokenCount"),
		ToolPrompt: u.count("toolUsePromptTokenCount"), Output: u.count("candidatesTokenCount"),
		Reasoning: u.count("thoughtsTokenCount"), Raw: v.raw(),
	}
}
