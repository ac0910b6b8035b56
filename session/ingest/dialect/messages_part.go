package dialect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/ingest/fact"
)

type shape int

const (
	shapeText shape = iota + 1
	shapeReasoning
	shapeCall
	shapeProviderCall
	shapeResult
	shapeFile
	shapeSource
	shapeCompaction
	shapeMark // shows where something begins, and is empty
)

var (
	shapeNames = strings.Fields("none text reasoning call provider_call result file source compaction mark")
	// shapes are the types of parts in the field.
	shapes = valuesOf("shapes", func(name string) shape { return shape(slices.Index(shapeNames, name)) })
)

// appendBody reads the content of a message: text, parts, one part, or JSON text that holds parts.
func appendBody(parts []fact.Part, raw json.RawMessage) []fact.Part {
	raw = bytes.TrimSpace(raw)
	if isNull(raw) {
		return parts
	}
	if raw[0] == '"' {
		s := text(raw)
		if inner := partsInText(s); inner != nil {
			return appendBody(parts, inner)
		}
		return appendText(parts, fact.PartText, s)
	}
	if o, ok := objectOf(raw); ok {
		if _, isList := elements(o["parts"]); isList { // a message of Gemini in a message
			return appendBody(parts, o["parts"])
		}
		return appendPart(parts, raw)
	}
	list, ok := elements(raw)
	if !ok {
		return appendText(parts, fact.PartText, string(raw)) // a number or truth value
	}
	for _, e := range list {
		parts = appendPart(parts, e)
	}
	return parts
}

// partsInText returns the JSON of parts that a client has written as a text, nil when the text is
// only a text.
func partsInText(s string) json.RawMessage {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return nil
	}
	raw := json.RawMessage(s)
	list, ok := elements(raw)
	if !ok || len(list) == 0 || !json.Valid(raw) {
		return nil
	}
	for _, e := range list {
		if o, _ := objectOf(e); shapes[o.str("type")] == 0 {
			return nil
		}
	}
	return raw
}

func appendText(parts []fact.Part, kind, s string) []fact.Part {
	if s == "" {
		return parts
	}
	return append(parts, fact.Part{Kind: kind, Text: s})
}

// invocation returns the part of the AI SDK that has a call with its result, and the tool's name: a
// part of its own type, or one within a part. It returns nil for other parts.
func invocation(o object, kind string) (in object, name string) {
	own := strings.HasPrefix(kind, "tool-") && shapes[kind] == 0 && !strings.HasPrefix(kind, "tool-approval-")
	switch {
	case o.has("toolCallId") && own:
		return o, strings.TrimPrefix(kind, "tool-")
	case o.has("toolCallId") && kind == "dynamic-tool":
		return o, o.str("toolName")
	case kind == "tool-invocation":
		in = o.inner("toolInvocation")
		return in, in.str("toolName")
	}
	return nil, ""
}

// appendPart reads a part, which is several where a client keeps a call and its result in one, and
// none where nothing is in it.
func appendPart(parts []fact.Part, raw json.RawMessage) []fact.Part {
	raw = bytes.TrimSpace(raw)
	o, ok := objectOf(raw)
	if !ok {
		if s := text(raw); s != "" {
			return appendText(parts, fact.PartText, s)
		}
		if len(raw) == 0 || raw[0] == '"' || raw[0] == 'n' {
			return parts
		}
		return append(parts, fact.Part{Kind: fact.PartOther, Data: bytes.Clone(raw)})
	}
	kind := o.str("type")
	if in, name := invocation(o, kind); in != nil {
		return appendInvocation(parts, in, name)
	}
	switch shapes[kind] {
	case shapeText:
		return appendText(parts, fact.PartText, plainText(o.first("text", "content", "refusal", "value")))
	case shapeReasoning:
		return appendText(parts, fact.PartReasoning, cmp.Or(
			plainText(o.first("text", "content", "thinking", "reasoning", "reasoning_content")),
			plainText(o["summary"])))
	case shapeCall, shapeProviderCall:
		return appendCall(parts, o, shapes[kind] == shapeProviderCall || o.truth("providerExecuted"))
	case shapeResult:
		return appendResult(parts, o)
	case shapeFile:
		return appendFile(parts, o, raw)
	case shapeSource:
		return append(parts, fact.Part{Kind: fact.PartSource, URL: o.str("url"), Name: o.str("title", "filename"),
			MediaType: o.str("mediaType")})
	case shapeCompaction:
		return append(parts, fact.Part{Kind: fact.PartCompaction,
			Text: plainText(o.first("content", "text", "summary"))})
	case shapeMark:
		return parts
	}
	if kind == "" || kind == "generic" {
		if more, ok := appendUntyped(parts, o); ok {
			return more
		}
	}
	return append(parts, fact.Part{Kind: fact.PartOther, Name: kind, Data: bytes.Clone(raw)})
}

// appendUntyped reads the parts whose members show what they are: those of Gemini, Genkit and
// Bedrock.
func appendUntyped(parts []fact.Part, o object) ([]fact.Part, bool) {
	call := o.inner("functionCall", "function_call", "toolRequest", "toolUse")
	result := o.inner("functionResponse", "function_response", "toolResponse", "toolResult")
	file := o.inner("inlineData", "inline_data", "fileData", "file_data",
		"media", "image", "document", "video", "audio")
	thought := o.inner("reasoningContent")
	switch {
	case call != nil:
		return appendCall(parts, call, false), true
	case result != nil:
		return appendResult(parts, result), true
	case file != nil:
		return appendFile(parts, file, encode(o)), true
	case thought != nil:
		if t := thought.inner("reasoningText"); t != nil {
			thought = t
		}
		return appendText(parts, fact.PartReasoning, thought.str("text")), true
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

// plainText returns the text of a text or of a list of text parts.
func plainText(raw json.RawMessage) string {
	if o, ok := objectOf(raw); ok {
		return o.str("text", "content", "value")
	}
	list, ok := elements(raw)
	if !ok {
		return text(raw)
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

// appendCalls reads the calls that are beside a message's content. LangChain keeps some in both
// places.
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
	return o.str("call_id", "toolCallId", "tool_call_id", "tool_use_id", "toolUseId", "ref", "id")
}

func appendCall(parts []fact.Part, o object, provider bool) []fact.Part {
	fn := o.inner("function")
	p := fact.Part{Kind: fact.PartCall, CallID: callID(o), Provider: provider,
		Name: cmp.Or(o.str("name", "toolName", "tool_name"), fn.str("name"))}
	if p.Name == "" && provider {
		p.Name = strings.TrimSuffix(o.str("type"), "_call")
	}
	p.Input = unwrapped(firstRaw(o.first("input", "arguments", "args", "parameters"),
		fn.first("arguments", "args", "input"), o.first("server_tool_call", "action", "operation", "queries", "code")))
	if p.CallID == "" && p.Name == "" && p.Input == nil {
		return parts
	}
	parts = append(parts, p)
	// A call that the provider executed may hold its own result.
	if provider && o.str("type") == "mcp_call" && (o.has("output") || o.has("error")) {
		return appendResult(parts, object{"call_id": o["id"], "name": o["name"], "output": o["output"],
			"error": o["error"]})
	}
	return parts
}

// appendInvocation reads a call of the AI SDK's UI messages, which holds its result once there is
// one.
func appendInvocation(parts []fact.Part, o object, name string) []fact.Part {
	id, provider := o.str("toolCallId"), o.truth("providerExecuted")
	parts = append(parts, fact.Part{Kind: fact.PartCall, CallID: id, Name: name, Provider: provider,
		Input: unwrapped(o.first("input", "args", "rawInput"))})
	result := fact.Part{Kind: fact.PartResult, CallID: id, Name: name, Provider: provider}
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
	if body == nil && o.has("error") {
		body, failed = o["error"], true
	}
	setResult(&p, body, failed)
	return append(parts, p)
}

// holdsResults reports whether a content is made of results of tools, which then need not be taken
// for one.
func holdsResults(raw json.RawMessage) bool {
	return slices.ContainsFunc(appendBody(nil, raw), func(p fact.Part) bool { return p.Kind == fact.PartResult })
}

// setResult stores what a tool answered. The AI SDK and MCP wrap it in an object that states how it
// went.
func setResult(p *fact.Part, raw json.RawMessage, failed bool) {
	if isNull(raw) {
		if failed {
			p.Error = orUnreported("")
		} else if len(raw) > 0 {
			p.Output = json.RawMessage("null")
		}
		return
	}
	if o, ok := objectOf(raw); ok {
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
	}
	raw = oneText(raw)
	if failed {
		p.Error = errorText(raw)
		return
	}
	p.Output = structured(raw)
}

// oneText returns the text of a list that is one text part, and else what it got.
func oneText(raw json.RawMessage) json.RawMessage {
	raw = bytes.TrimSpace(raw)
	list, ok := elements(raw)
	if !ok || len(list) != 1 {
		return raw
	}
	o, _ := objectOf(list[0])
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

// unwrapped returns the arguments of a call, also where a text holds them. It is nil when there are
// none.
func unwrapped(raw json.RawMessage) json.RawMessage {
	if isNull(raw) {
		return nil
	}
	raw = bytes.TrimSpace(raw)
	if raw[0] != '"' {
		return bytes.Clone(raw)
	}
	s := text(raw)
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return TextJSON(s)
}

// structured returns a tool's output, also where a text holds it. A text that is a number or such
// stays the text that it is.
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

func appendFile(parts []fact.Part, o object, raw json.RawMessage) []fact.Part {
	kind := o.str("type")
	p := fact.Part{Kind: fact.PartFile, MediaType: mediaType(o),
		Name: o.str("filename", "name", "title", "displayName", "file_name")}
	source := []object{o}
	for _, key := range []string{"source", "image_url", "input_audio", "audio", "file", "document", "inlineData",
		"fileData", "media", "data"} {
		if in := o.inner(key); in != nil {
			source = append(source, in)
		}
	}
	var id string
	for _, o := range source {
		p.MediaType = cmp.Or(p.MediaType, mediaType(o))
		p.Name = cmp.Or(p.Name, o.str("filename", "name", "file_name"))
		p.URL = cmp.Or(p.URL, o.str("url", "uri", "fileUri", "file_uri", "image_url", "file_url", "fileUrl"))
		if p.URL == "" {
			p.URL = o.str("data", "content", "file_data", "fileData", "image", "bytes", "base64")
			if p.URL != "" && !hasPrefix(p.URL, "data:") && !strings.Contains(p.URL[:min(len(p.URL), 40)], "://") {
				p.URL = dataURL(p.MediaType, p.URL)
			}
		}
		id = cmp.Or(id, o.str("file_id", "fileId"))
	}
	p.Name = cmp.Or(p.Name, id)
	if rest, ok := strings.CutPrefix(p.URL, "data:"); ok {
		if end := strings.IndexAny(rest, ";,"); p.MediaType == "" && end > 0 && end < 100 {
			p.MediaType = rest[:end]
		}
		if len(p.URL) > inlineSize {
			p.URL = ""
		}
	}
	if p.MediaType == "" {
		if modality := o.str("modality"); modality != "" {
			p.MediaType = modality + "/*"
		} else if strings.Contains(kind, "image") {
			p.MediaType = "image/*"
		} else if strings.Contains(kind, "audio") {
			p.MediaType = "audio/*"
		}
	}
	if p.MediaType == "" && p.URL == "" && p.Name == "" {
		p = fact.Part{Kind: fact.PartOther, Name: kind}
		if len(raw) <= inlineSize {
			p.Data = bytes.Clone(raw)
		}
	}
	return append(parts, p)
}

// formats are short names of media types, of OpenAI's audio and Bedrock's images.
var formats = map[string]string{
	"wav": "audio/wav", "mp3": "audio/mp3", "flac": "audio/flac", "opus": "audio/opus", "png": "image/png",
	"jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "pdf": "application/pdf",
}

func mediaType(o object) string {
	return cmp.Or(o.str("mediaType", "media_type", "mime_type", "mimeType", "contentType"), formats[o.str("format")])
}

// dataURL returns bytes in base64, or text, as a data: URL. The caller drops what is too long.
func dataURL(mediaType, s string) string {
	if len(s) <= inlineSize {
		_, err := base64.StdEncoding.DecodeString(s)
		_, urlErr := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
		if err != nil && urlErr != nil {
			s = base64.StdEncoding.EncodeToString([]byte(s))
		}
	}
	return "data:" + mediaType + ";base64," + s
}
