package dialect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

// shapes are the types of parts in the field, and formats the media types of short names.
var shapes, formats = meanings[string]("shapes"), meanings[string]("formats")

// appendBody reads the content of a message: text, parts, one part, or JSON text that holds parts.
func appendBody(parts []fact.Part, raw json.RawMessage) []fact.Part {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return parts
	}
	list, ok := elements(raw)
	switch o, isObject := objectOf(raw); {
	case raw[0] == '"':
		s := text(raw)
		if list = partsInText(s); list == nil {
			return appendText(parts, fact.PartText, s)
		}
	case isObject:
		if list, ok = elements(o["parts"]); !ok { // else it is a message of Gemini in a message
			return appendPart(parts, raw)
		}
	case !ok:
		return appendText(parts, fact.PartText, string(raw)) // a number or truth value
	}
	for _, e := range list {
		parts = appendPart(parts, e)
	}
	return parts
}

// partsInText returns the parts that a client has written as a text, nil when the text is only a text.
func partsInText(s string) []json.RawMessage {
	if s = strings.TrimSpace(s); !strings.HasPrefix(s, "[") {
		return nil
	}
	list, _ := elements(json.RawMessage(s))
	for _, e := range list {
		if o, _ := objectOf(e); shapes()[o.str("type")] == "" {
			return nil
		}
	}
	return list
}

func appendText(parts []fact.Part, kind, s string) []fact.Part {
	if s == "" {
		return parts
	}
	return append(parts, fact.Part{Kind: kind, Text: s})
}

// appendPart reads a part, which is several where a client keeps a call and its result in one, and none where nothing
// is in it.
func appendPart(parts []fact.Part, raw json.RawMessage) []fact.Part {
	raw = bytes.TrimSpace(raw)
	o, ok := objectOf(raw)
	if !ok {
		if isNull(raw) || raw[0] == '"' {
			return appendText(parts, fact.PartText, text(raw))
		}
		return append(parts, fact.Part{Kind: fact.PartOther, Data: bytes.Clone(raw)})
	}
	kind := o.str("type", "block_type") // the latter is LlamaIndex's
	// The AI SDK has a call with its result as a part of its own type, or within a part.
	name, own := strings.CutPrefix(kind, "tool-")
	switch {
	case o.has("toolCallId") && own && shapes()[kind] == "" && !strings.HasPrefix(name, "approval-"):
		return appendInvocation(parts, o, name)
	case o.has("toolCallId") && kind == "dynamic-tool":
		return appendInvocation(parts, o, o.str("toolName"))
	case kind == "tool-invocation" && o.inner("toolInvocation") != nil:
		in := o.inner("toolInvocation")
		return appendInvocation(parts, in, in.str("toolName"))
	}
	switch shapes()[kind] {
	case "text":
		return appendBody(parts, quoted(plainText(o.first("text", "content", "refusal", "value"))))
	case "reasoning":
		return appendText(parts, fact.PartReasoning, cmp.Or(
			plainText(o.first("text", "content", "thinking", "reasoning", "reasoning_content")),
			plainText(o["summary"])))
	case "call", "provider_call":
		return appendCall(parts, o, shapes()[kind] == "provider_call" || o.truth("providerExecuted"))
	case "result":
		return appendResult(parts, o)
	case "file":
		return appendFile(parts, o, raw)
	case "source":
		return append(parts, fact.Part{Kind: fact.PartSource, URL: o.str("url"), Name: o.str("title", "filename"),
			MediaType: o.str("mediaType")})
	case "compaction":
		return append(parts, fact.Part{Kind: fact.PartCompaction,
			Text: plainText(o.first("content", "text", "summary"))})
	case "mark":
		return parts
	}
	if kind == "" || kind == "generic" {
		if more, ok := appendUntyped(parts, o); ok {
			return more
		}
	}
	if kind == "generic" {
		kind = cmp.Or(o.str("generic_type"), kind)
	}
	return append(parts, fact.Part{Kind: fact.PartOther, Name: kind, Data: bytes.Clone(raw)})
}

// appendUntyped reads the parts whose members show what they are: those of Gemini, Genkit, Bedrock and Haystack.
func appendUntyped(parts []fact.Part, o object) ([]fact.Part, bool) {
	if call := o.inner("functionCall", "function_call", "toolRequest", "toolUse", "tool_call"); call != nil {
		return appendCall(parts, call, false), true
	}
	if result := o.inner("functionResponse", "function_response", "toolResponse", "toolResult",
		"tool_call_result"); result != nil {
		return appendResult(parts, result), true
	}
	if file := o.inner("inlineData", "inline_data", "fileData", "file_data", "media", "image", "document", "video",
		"audio", "file"); file != nil {
		return appendFile(parts, file, encode(o)), true
	}
	if thought := o.inner("reasoningContent"); thought != nil {
		if t := thought.inner("reasoningText"); t != nil {
			thought = t
		}
		return appendText(parts, fact.PartReasoning, thought.str("text")), true
	}
	switch {
	case o.has("reasoning"):
		return appendText(parts, fact.PartReasoning, plainText(o["reasoning"])), true
	case o.has("text") && o.truth("thought"):
		return appendText(parts, fact.PartReasoning, plainText(o["text"])), true
	case o.has("text"):
		return appendText(parts, fact.PartText, plainText(o["text"])), true
	}
	s := text(o["content"])
	return appendText(parts, fact.PartText, s), s != ""
}

// plainText returns the text of a text, of a part or of a list of either.
func plainText(raw json.RawMessage) string {
	list, ok := elements(raw)
	if !ok {
		o, _ := objectOf(raw)
		return cmp.Or(text(raw), o.str("text", "content", "value", "reasoning_text"))
	}
	var texts []string
	for _, e := range list {
		o, _ := objectOf(e)
		if s := cmp.Or(text(e), o.str("text", "content", "value")); s != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, "\n")
}

// appendCalls reads the calls that are beside a message's content. LangChain keeps some in both places.
func appendCalls(parts []fact.Part, o object) []fact.Part {
	calls := objectsOf(o["tool_calls"])
	if len(calls) == 0 {
		calls = objectsOf(o["toolCalls"])
	}
	known := make(map[string]bool, len(calls))
	for i := range parts {
		if len(calls) > 0 && parts[i].Kind == fact.PartCall {
			known[parts[i].CallID] = true
		}
	}
	for _, call := range calls {
		if id := callID(call); id == "" || !known[id] {
			parts, known[id] = appendCall(parts, call, false), true
		}
	}
	if in := o.inner("function_call"); in != nil && len(calls) == 0 {
		parts = appendCall(parts, in, false)
	}
	if !o.has("parts") {
		for _, in := range objectsOf(o["toolInvocations"]) {
			parts = appendInvocation(parts, in, in.str("toolName"))
		}
	}
	return parts
}

func callID(o object) string {
	return o.str("call_id", "callId", "toolCallId", "tool_call_id", "tool_use_id", "toolUseId", "ref", "id")
}

func appendCall(parts []fact.Part, o object, provider bool) []fact.Part {
	fn, kind := o.inner("function"), o.str("type")
	p := fact.Part{Kind: fact.PartCall, CallID: callID(o), Provider: provider,
		Name: cmp.Or(o.str("name", "toolName", "tool_name"), fn.str("name"))}
	if p.Name == "" && provider {
		p.Name = strings.TrimSuffix(kind, "_call")
	}
	p.Input = unwrapped(firstRaw(o.first("input", "arguments", "args", "parameters"),
		fn.first("arguments", "args", "input"), o.first("server_tool_call", "action", "operation", "queries", "code")))
	if p.CallID == "" && p.Name == "" && p.Input == nil {
		return parts
	}
	parts = append(parts, apart(p)...)
	// A call that the provider executed may hold its own result.
	if provider && (kind == "mcp_call" || kind == "hosted_tool_call") && o.has("output", "error") {
		return appendResult(parts, object{"call_id": o["id"], "name": o["name"], "output": o["output"],
			"error": o["error"]})
	}
	return parts
}

// apart returns the calls that one is made of: some instrumentations append the pieces of all calls that are streamed
// beside each other to one, ids, names and arguments alike, such as OpenInference and Langfuse for OpenAI.
//
//	call_1call_2  get_tideget_tide  {"port":"Oslo"}{"port":"Moss"}
//
// What is not known of each is left out: the next request has it.
func apart(p fact.Part) (calls []fact.Part) {
	d := json.NewDecoder(strings.NewReader(text(p.Input)))
	for {
		var input json.RawMessage
		if d.Decode(&input) != nil || input[0] != '{' {
			break
		}
		calls = append(calls, fact.Part{Kind: p.Kind, Provider: p.Provider, Input: input})
	}
	n := len(calls)
	if n < 2 || int(d.InputOffset()) != len(strings.TrimRight(text(p.Input), " \n")) {
		return []fact.Part{p}
	}
	piece := func(s string, i int) string { return s[i*len(s)/n : (i+1)*len(s)/n] }
	for i := range calls {
		c := &calls[i]
		if id := piece(p.CallID, i); len(p.CallID)%n == 0 && strings.HasPrefix(id, piece(p.CallID, 0)[:min(3, len(id))]) {
			c.CallID = id
		}
		if name := piece(p.Name, i); name != "" && p.Name == strings.Repeat(name, n) {
			c.Name = name
		}
	}
	return calls
}

// appendInvocation reads a call of the AI SDK's UI messages, which holds its result once there is one.
func appendInvocation(parts []fact.Part, o object, name string) []fact.Part {
	p := fact.Part{Kind: fact.PartCall, CallID: o.str("toolCallId"), Name: name, Provider: o.truth("providerExecuted")}
	result := p
	p.Input, result.Kind = unwrapped(o.first("input", "args", "rawInput")), fact.PartResult
	parts = append(parts, p)
	switch o.str("state") {
	case "output-available", "result":
		setResult(&result, o.first("output", "result"), false)
	case "output-error":
		result.Error = orUnreported(o.str("errorText"))
	case "output-denied":
		result.Denied, result.Error = true, o.inner("approval").str("reason")
	default:
		return parts
	}
	return append(parts, result)
}

func appendResult(parts []fact.Part, o object) []fact.Part {
	kind := o.str("type")
	p := fact.Part{Kind: fact.PartResult, CallID: callID(o), Name: o.str("name", "toolName", "tool_name"),
		Provider: o.truth("providerExecuted") || kind == "server_tool_call_response" ||
			strings.HasSuffix(kind, "_tool_result")}
	body := o.first("response", "result", "output", "content", "server_tool_call_response")
	failed := o.truth("isError", "is_error") || o.str("status") == "error" || kind == "tool-error"
	if call := o.inner("origin"); call != nil { // Haystack's results have the call in them
		p.CallID, p.Name, failed = callID(call), call.str("tool_name"), o.truth("error")
	}
	if body == nil && o.has("error") {
		body, failed = o["error"], true
	}
	setResult(&p, body, failed)
	return append(parts, p)
}

// setResult stores what a tool answered. The AI SDK and MCP wrap it in an object that states how it went.
func setResult(p *fact.Part, raw json.RawMessage, failed bool) {
	if isNull(raw) {
		if failed {
			p.Error = orUnreported("")
		} else if len(raw) > 0 {
			p.Output = json.RawMessage("null")
		}
		return
	}
	o, _ := objectOf(raw)
	if kind := o.str("type"); len(o) <= 3 && (o.has("value") || kind == "execution-denied") {
		switch kind {
		case "json", "text", "content":
			raw = o["value"]
		case "error-text", "error-json":
			raw, failed = o["value"], true
		case "execution-denied":
			p.Denied, p.Error = true, o.str("reason")
			return
		}
	} else if o.truth("isError", "is_error") && o.has("content") {
		raw, failed = o["content"], true
	}
	raw = oneText(raw)
	if failed {
		p.Error = errorText(raw)
		return
	}
	p.Output = structured(raw)
}

// setOutput stores what a tool answered, nil for nothing. LangChain has it answer with a message that names the call.
func setOutput(f *fact.Fact, answered json.RawMessage) {
	if answered == nil {
		return
	}
	var p fact.Part
	o, _ := objectOf(answered)
	if o.has("output") && o.has("kwargs") {
		answered = o["output"]
	}
	if o != nil && bytes.Contains(answered, []byte(`"tool_call_id"`)) {
		message := firstRaw(o.first("output"), answered)
		if command := o.inner("output"); command.str("lg_name") == "Command" {
			message = command["update"] // a tool of LangGraph may change the graph's state, messages included
		}
		messages, _ := Messages(message)
		for _, answer := range fact.PartsOf(messages) {
			if answer.Kind == fact.PartResult && answer.CallID != "" {
				p = answer
			}
		}
	}
	if p.CallID == "" {
		setResult(&p, answered, false)
	}
	f.CallID, f.Tool.Name = cmp.Or(f.CallID, p.CallID), cmp.Or(f.Tool.Name, p.Name)
	f.Tool.Output, f.Tool.Denied = p.Output, p.Denied
	if p.Error != "" {
		f.Failed, f.Error = f.Failed || !p.Denied, cmp.Or(f.Error, p.Error)
	}
}

// oneText returns the text of a text part, or of a list that is one, and else what it got.
func oneText(raw json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	o, _ := objectOf(raw)
	if list, _ := elements(raw); len(list) == 1 {
		o, _ = objectOf(list[0])
	} else if len(o) != 2 || o.str("type") != "text" {
		return raw
	}
	switch kind := o.str("type"); {
	case kind != "" && kind != "text" && kind != "output_text" && kind != "input_text":
	case o.str("text") != "":
		return o["text"]
	case kind == "text" && o.str("content") != "": // as the GenAI conventions have it
		return o["content"]
	case kind == "" && len(o) == 1 && o.has("json"):
		return o["json"]
	}
	return raw
}

// errorText returns an error as a person may read it. It is never empty.
func errorText(raw json.RawMessage) string {
	o, _ := objectOf(raw)
	if s := cmp.Or(text(raw), o.str("message")); s != "" || isNull(raw) || len(raw) == 2 { // "", [] and {}
		return orUnreported(s)
	}
	return Text(string(raw))
}

// orUnreported returns the text of an error of which the source reports only that there was one.
func orUnreported(s string) string { return cmp.Or(s, "error") }

// unwrapped returns the arguments of a call, also where a text holds them. It is nil when there are none.
func unwrapped(raw json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	switch s := text(raw); {
	case isNull(raw):
		return nil
	case raw[0] != '"':
		return bytes.Clone(raw)
	case strings.TrimSpace(s) == "":
		return nil
	default:
		return TextJSON(s)
	}
}

// arguments returns what a function was called with, of an object that an instrumentation made of the call: by name, as
// the one argument, or else everything.
//
//	{"args": [], "kwargs": {"city": "Oslo"}, "sanitize_inputs_outputs": false}    smolagents; LlamaIndex has no args
//	{"tool": "…", "calling": {"tool_name": "weather", "arguments": {"city": …}}}  CrewAI
func arguments(raw json.RawMessage) json.RawMessage {
	o, _ := objectOf(raw)
	if calling := o.inner("calling"); calling.has("arguments") {
		return calling["arguments"]
	}
	args, _ := elements(o["args"])
	named, ok := objectOf(o["kwargs"])
	for key := range o {
		ok = ok && slices.Contains([]string{"args", "kwargs", "sanitize_inputs_outputs"}, key)
	}
	switch {
	case !ok:
	case len(args) == 0:
		return o["kwargs"]
	case len(args) == 1 && len(named) == 0:
		return args[0]
	}
	return raw
}

// structured returns a tool's output, also where a text holds it. A text that is a number or such stays the text that
// it is.
func structured(raw json.RawMessage) json.RawMessage {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '"' {
		return bytes.Clone(raw)
	}
	s := text(raw)
	if hasPrefix(strings.TrimSpace(s), "{", "[") {
		return TextJSON(s)
	}
	return quoted(s)
}

// inlineSize is up to how long a data: URL may be to be kept, in bytes.
const inlineSize = 16 << 10

// elsewhere begins what Langfuse's SDK writes for the bytes that it uploads: @@@langfuseMedia:type=image/png|id=…@@@.
const elsewhere = "@@@langfuseMedia:type="

func appendFile(parts []fact.Part, o object, raw json.RawMessage) []fact.Part {
	source, id := []object{o}, ""
	for _, key := range []string{"source", "image_url", "input_audio", "image", "audio", "video", "file", "document",
		"inlineData", "fileData", "media", "data"} {
		if in := o.inner(key); in != nil {
			source, id = append(source, in), cmp.Or(id, in.str("id"))
		}
	}
	p := fact.Part{Kind: fact.PartFile, Name: o.str("filename", "name", "title", "displayName", "file_name")}
	for _, o := range source {
		p.MediaType = cmp.Or(p.MediaType, o.str("mediaType", "media_type", "mime_type", "mimeType", "contentType"),
			formats()[o.str("format")])
		p.Name = cmp.Or(p.Name, o.str("filename", "name", "file_name"))
		p.URL = cmp.Or(p.URL, o.str("url", "uri", "fileUri", "file_uri", "image_url", "file_url", "fileUrl"))
		if p.URL == "" {
			p.URL = o.str("data", "content", "file_data", "fileData", "file", "image", "bytes", "base64")
			if p.URL != "" && !hasPrefix(p.URL, "data:", elsewhere) &&
				!strings.Contains(p.URL[:min(len(p.URL), 40)], "://") {
				p.URL = dataURL(p.MediaType, p.URL)
			}
		}
		id = cmp.Or(id, o.str("file_id", "fileId"))
	}
	if p.Name = cmp.Or(p.Name, id); p.URL == "" && id != "" {
		p.URL = "file:" + id // as package modelapi has it
	}
	for _, prefix := range []string{"data:", elsewhere} {
		rest, ok := strings.CutPrefix(p.URL, prefix)
		if end := strings.IndexAny(rest, ";,|"); ok && end > 0 && end < 100 &&
			cmp.Or(p.MediaType, "application/octet-stream") == "application/octet-stream" {
			p.MediaType = rest[:end]
		}
	}
	if len(p.URL) > inlineSize && hasPrefix(p.URL, "data:") {
		p.URL, p.Omitted = "", int64(session.DataURLSize(p.URL))
	}
	for _, of := range []string{o.str("modality"), "image", "audio", "video"} {
		if p.MediaType == "" && of != "" && strings.Contains(o.str("modality", "type"), of) {
			p.MediaType = of + "/*"
		}
	}
	if p.MediaType == "" && p.URL == "" && p.Name == "" {
		p = fact.Part{Kind: fact.PartOther, Name: o.str("type")}
		if len(raw) <= inlineSize {
			p.Data = bytes.Clone(raw)
		}
	}
	return append(parts, p)
}

// dataURL returns bytes in base64, or text, as a data: URL.
func dataURL(mediaType, s string) string {
	_, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		_, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	}
	if err != nil {
		s = base64.StdEncoding.EncodeToString([]byte(s))
	}
	return "data:" + mediaType + ";base64," + s
}
