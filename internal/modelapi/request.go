package modelapi

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
)

// Role is the side of a conversation that a message comes from. Results of tools come from the user's side.
type Role byte

// The roles.
const (
	User      Role = 'u'
	Assistant Role = 'a'
)

// Kind is what an item of a message or a block of an answer is.
type Kind byte

// The kinds. Reasoning is of answers only, results and files are of messages.
const (
	Text Kind = iota
	Reasoning
	Call
	Result
	FileItem
)

// Item is a part of a message of a request.
type Item struct {
	Kind Kind
	// Text is that of a text.
	Text string
	File File
	// ID and Name are those of a call, and of the call that a result is of. A provider may leave out either.
	ID, Name string
	// Value is the JSON of a call's input or of a result's output.
	Value json.RawMessage
	// Failed reports a result that the API marks as an error.
	Failed bool
}

// File is a file in a message. The bytes of one that is in the request itself are not kept, only their number.
type File struct {
	MediaType, Name, URL string
	Size                 int
}

// Message is a message of a request. What the assistant sends between two messages of the user is one message.
type Message struct {
	Role  Role
	Items []Item
}

// Tool is a tool that the model may call. Parameters is the JSON schema of its input.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage
}

// Request is a model call as its client sends it.
type Request struct {
	// Model is empty, and Provider always is, where the URL has it.
	Provider, Model, Variant string
	Temperature              *float64
	// System is the system prompt. Inserted is what the system says in the midst of the conversation.
	System, Inserted string
	Tools            []Tool
	Messages         []Message
	// Limit is that of the answer's tokens, 0 if there is none, Form what is stated of its form, such as a schema.
	Limit int
	Form  json.RawMessage
	// Previous and Conversation name the history that the provider keeps: the answer
	// before, or the conversation. Continuation is the token of an interrupted answer.
	Previous, Conversation, Continuation string

	// between reports that what is added next is not of the message before.
	between bool
}

// form is where the requests of an API have what they state. Each field has paths of which the first that leads to a
// value counts.
type form struct {
	messages, model, variant, temperature, limit, shape, system, tools string
	previous, conversation, continuation                               string
	// isInput reports that the messages may be one text, or none.
	isInput bool
	// add adds a message that differs from those of other APIs; nil is addMessage.
	add func(r *Request, m object)
}

// request decodes the body of a request.
func (f form) request(body []byte) *Request {
	in := parse(body)
	list := in.at(f.messages)
	messages := list.objects()
	if len(messages) == 0 && !(f.isInput && list != "") {
		return nil
	}
	r := &Request{
		Model: in.at(f.model).text(), Variant: strings.ToLower(in.at(f.variant).text()),
		Limit: int(in.at(f.limit).count()), Form: in.at(f.shape).raw(), Previous: in.at(f.previous).text(),
		Conversation: in.at(f.conversation).text(), Continuation: in.at(f.continuation).text(),
	}
	r.System, _ = textOf(in.at(f.system), "\n\n")
	r.Temperature = in.at(f.temperature).number()
	for _, t := range in.at(f.tools).objects() {
		r.addTools(t)
	}
	r.addText(User, list.text())
	for _, m := range messages {
		r.between = true
		if f.add != nil {
			f.add(r, m)
		} else {
			r.addMessage(m)
		}
	}
	return r
}

// googleTools are those that Google executes, by their members in the tools of Gemini's API.
var googleTools = [...]string{"googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "googleMaps",
	"fileSearch", "computerUse"}

// addTools adds the tool of a list of any of the APIs, or the several that Gemini's and the namespaces of OpenAI's
// have. Those of a provider may have no name but their type.
func (r *Request) addTools(t object) {
	if inner := t.get("tools").objects(); inner != nil {
		for _, t := range inner {
			r.addTools(t)
		}
		return
	}
	for _, name := range googleTools {
		if t.get(name) != "" {
			r.Tools = append(r.Tools, Tool{Name: name})
		}
	}
	tools := t.get("functionDeclarations").objects()
	if tools == nil {
		inner := t.get("function", "custom", "toolSpec").object()
		if inner == nil {
			inner = t
		}
		tools = []object{inner}
	}
	for _, t := range tools {
		schema := t.at("input_schema parameters parametersJsonSchema inputSchema.json")
		if name := t.text("name", "type"); name != "" {
			r.Tools = append(r.Tools, Tool{name, t.text("description"), schema.raw()})
		}
	}
}

// add appends an item to the message of the role, which it begins if need be.
func (r *Request) add(from Role, i Item) {
	n := len(r.Messages)
	if n == 0 || r.Messages[n-1].Role != from || r.between && from == User {
		r.Messages = append(r.Messages, Message{Role: from})
		n++
	}
	r.between = false
	m := &r.Messages[n-1]
	m.Items = append(m.Items, i)
}

func (r *Request) addText(from Role, text string) {
	if text != "" {
		r.add(from, Item{Kind: Text, Text: text})
	}
}

// Instructions are all that the system says.
func (r *Request) Instructions() string { return joined(r.System, r.Inserted) }

// joined are texts with a blank line between them.
func joined(x, y string) string {
	if x != "" && y != "" {
		x += "\n\n"
	}
	return x + y
}

// addMessage adds a message of any of the APIs: its content is a text, or parts. What the system says before the
// conversation is of the system prompt.
func (r *Request) addMessage(m object) {
	from, content := User, m.get("content", "parts")
	switch m.text("role") {
	case "assistant", "model":
		from = Assistant
	case "system", "developer":
		text, _ := textOf(content, "")
		if len(r.Messages) == 0 {
			r.System = joined(r.System, text)
		} else {
			r.Inserted = joined(r.Inserted, text)
		}
		return
	}
	r.addText(from, content.text())
	for _, p := range content.objects() {
		r.addPart(from, p)
	}
}

// addPart adds a part of a message. The types of parts differ between the APIs, or their members do, so that it need
// not be known whose it is.
func (r *Request) addPart(from Role, p object) {
	call, response := p.in("functionCall"), p.in("functionResponse")
	use, result := p.in("toolUse"), p.in("toolResult")
	switch kind := p.text("type"); {
	case kind == "tool_use":
		r.add(from, Item{Kind: Call, ID: p.text("id"), Name: p.text("name"), Value: p.get("input").raw()})
	case kind == "tool_result":
		r.add(from, Item{Kind: Result, ID: p.text("tool_use_id"), Value: outputOf(p.get("content"), "\n\n", "text"),
			Failed: p.isTrue("is_error")})
	case use != nil:
		r.add(from, Item{Kind: Call, ID: use.text("toolUseId"), Name: use.text("name"), Value: use.get("input").raw()})
	case result != nil:
		r.add(from, Item{Kind: Result, ID: result.text("toolUseId"), Value: converseOutput(result.get("content")),
			Failed: result.text("status") == "error"})
	case call != nil:
		r.add(from, Item{Kind: Call, ID: call.text("id"), Name: call.text("name"),
			Value: cmp.Or(call.get("args"), "{}").raw()})
	case response != nil:
		out, failed := geminiOutput(response.get("response"))
		if files := response.get("parts"); files != "" {
			out, _ = json.Marshal(map[string]json.RawMessage{"output": cmp.Or(value(out), "{}").raw(), "parts": files.raw()})
		}
		r.add(from, Item{Kind: Result, ID: response.text("id"), Name: response.text("name"), Value: out, Failed: failed})
	case p.isTrue("thought"):
	default:
		if f, ok := fileOf(kind, p); ok {
			r.add(from, Item{Kind: FileItem, File: f})
		} else {
			r.addText(from, p.text("text", "refusal"))
		}
	}
}

// fileOf reads a part that is a file.
func fileOf(kind string, p object) (f File, ok bool) {
	source, data, file := p.in("source"), p.in("inlineData"), p.in("fileData")
	switch {
	case data != nil:
		return inline(data.text("mimeType"), data.text("displayName"), data.text("data")), true
	case file != nil:
		return File{MediaType: file.text("mimeType"), Name: file.text("displayName"), URL: file.text("fileUri")}, true
	}
	switch kind {
	case "image", "document":
		f = linked(source.text("media_type"), p.text("title"), source.text("url"), source.text("file_id"))
		if data := source.text("data"); data != "" && source.get("file_id") == "" {
			f = inline(f.MediaType, f.Name, data)
		}
		return f, true
	case "image_url":
		return linked("image/*", "", p.in("image_url").text("url"), ""), true
	case "input_image":
		return linked("image/*", "", p.text("image_url"), p.text("file_id")), true
	case "input_audio":
		audio := p.in("input_audio")
		return inline("audio/"+audio.text("format"), "", audio.text("data")), true
	case "file", "input_file":
		if f := p.in("file"); f != nil {
			p = f
		}
		return linked("application/octet-stream", p.text("filename"), p.text("file_url", "file_data"),
			p.text("file_id")), true
	}
	for _, of := range [...][2]string{{"image", "image/"}, {"document", "application/"}, {"video", "video/"}} {
		in := p.in(of[0]) // Bedrock's
		if in == nil {
			continue
		}
		f = File{MediaType: of[1] + in.text("format"), Name: in.text("name")}
		if f.URL = in.in("source", "s3Location").text("uri"); f.URL == "" {
			f = inline(f.MediaType, f.Name, in.in("source").text("bytes"))
		}
		return f, true
	}
	return f, false
}

// inline returns a file whose content is in the request as base64.
func inline(mediaType, name, data string) File {
	return File{MediaType: mediaType, Name: name, Size: len(strings.TrimRight(data, "=")) * 3 / 4}
}

// linked returns a file by its id, if it has one, or by its URL, which may have the content in it.
func linked(mediaType, name, url, id string) (f File) {
	if data, ok := strings.CutPrefix(url, "data:"); ok {
		kind, content, _ := strings.Cut(data, ",")
		kind, _, _ = strings.Cut(kind, ";")
		f = inline(kind, name, content)
	} else {
		f = File{MediaType: mediaType, Name: name, URL: url}
	}
	if id != "" {
		f.URL = "file:" + id
	}
	return f
}

// value is a JSON value as its document has it. It is "" where there is none, or null. Its methods return nothing
// where it is of another type.
type value string

// maxLevels is how deep encoding/json reads, too.
const maxLevels = 10_000

// parse returns the object that a document is, nil if it is something else.
func parse(document []byte) object { return trimmed(document).object() }

func trimmed(document []byte) value { return value(strings.Trim(string(document), " \t\r\n")) }

// Valid reports whether a document is JSON.
func Valid(document []byte) bool { return jsonscan.Valid(string(document)) }

// raw returns a copy.
func (v value) raw() json.RawMessage {
	if v == "" {
		return nil
	}
	return json.RawMessage(v)
}

func (v value) isText() bool { return v != "" && v[0] == '"' }

func (v value) text() (s string) {
	if !v.isText() {
		return ""
	}
	if inner := string(v[1 : len(v)-1]); strings.IndexByte(inner, '\\') < 0 && utf8.ValidString(inner) {
		return strings.Clone(inner) // which the document may be forgotten without
	}
	_ = json.Unmarshal([]byte(v), &s) // what cannot be read is none
	return s
}

// count returns a number without what follows its point.
func (v value) count() int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n
	}
	n, _ := strconv.ParseFloat(string(v), 64) // 0 of what is not a number
	return int64(n)
}

// number returns a number, nil of what is none.
func (v value) number() *float64 {
	if n, err := strconv.ParseFloat(string(v), 64); err == nil {
		return &n
	}
	return nil
}

// members returns the members of an object or the elements of a list, whichever begins with the bracket. Those of an
// empty one are not nil.
func (v value) members(bracket byte) object {
	if v == "" || v[0] != bracket {
		return nil
	}
	all := make(object, 0, 8)
	if end := jsonscan.Container(string(v), 0, func(key jsonscan.Key, i int) int {
		end := jsonscan.Value(string(v), i, maxLevels)
		if end < 0 {
			return end
		}
		m := member{value: v[i:end]}
		if bracket == '{' {
			if m.name = string(v[key.From+1 : key.To-1]); strings.IndexByte(m.name, '\\') >= 0 {
				m.name = v[key.From:key.To].text()
			}
			if m.value == "null" {
				m.value = ""
			}
		}
		all = append(all, m)
		return end
	}); end != len(v) {
		return nil
	}
	return all
}

func (v value) object() object { return v.members('{') }

func (v value) elements() object { return v.members('[') }

// objects returns the elements of a list that are objects.
func (v value) objects() (all []object) {
	for _, e := range v.elements() {
		if o := e.value.object(); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// object has the members of an object, of which there are few.
type object []member

type member struct {
	name  string
	value value
}

// get returns the value of the first of the names that has one.
func (o object) get(names ...string) value {
	for _, name := range names {
		for i := len(o) - 1; i >= 0; i-- { // of two members with one name the last counts
			if o[i].name == name && o[i].value != "" {
				return o[i].value
			}
		}
	}
	return ""
}

// text returns the first of the texts that is not empty.
func (o object) text(names ...string) string {
	for _, name := range names {
		if s := o.get(name).text(); s != "" {
			return s
		}
	}
	return ""
}

// in returns an object within the object.
func (o object) in(path ...string) object {
	for _, name := range path {
		o = o.get(name).object()
	}
	return o
}

// at returns the value at the first of some paths that leads to one.
func (o object) at(paths string) (v value) {
	for path := range strings.FieldsSeq(paths) {
		names := strings.Split(path, ".")
		last := len(names) - 1
		if v = o.in(names[:last]...).get(names[last]); v != "" {
			break
		}
	}
	return v
}

// count returns the count at a path.
func (o object) count(path string) int64 { return o.at(path).count() }

func (o object) isTrue(name string) bool { return o.get(name) == "true" }

// textOf returns a text, or the texts of a list of parts with the separator between them. ok is false if a part is of
// none of the types, if any are given, or if the value is neither.
func textOf(v value, separator string, types ...string) (text string, ok bool) {
	if v == "" || v.isText() {
		return v.text(), true
	}
	parts := v.elements()
	ok = parts != nil
	var texts []string
	for _, part := range parts {
		o := part.value.object()
		if len(types) > 0 && (o == nil || !slices.Contains(types, o.text("type"))) {
			ok = false
		} else if s := cmp.Or(part.value.text(), o.text("text", "refusal"), o.in("text").text("value")); s != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, separator), ok
}

// outputOf returns the JSON of a tool's output: the text of parts of the types, or all if it has others.
func outputOf(v value, separator string, types ...string) json.RawMessage {
	if text, ok := textOf(v, separator, types...); ok {
		return output(text)
	}
	return v.raw()
}

// output returns the JSON of a tool's output. A text that is itself a JSON object or list
// becomes that, as APIs that take only texts have them so.
func output(text string) json.RawMessage {
	if t := strings.TrimSpace(text); len(t) > 1 && (t[0] == '{' || t[0] == '[') && jsonscan.Valid(t) {
		return json.RawMessage(t)
	}
	return Quote(text)
}

// Quote returns a text as JSON.
func Quote(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil { // texts always encode
		return json.RawMessage(`""`)
	}
	return b
}

// Input returns the JSON of a tool call's input, which a model wrote.
func Input(text string) json.RawMessage {
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage("{}")
	case jsonscan.Valid(text):
		return json.RawMessage(text)
	}
	return Quote(text)
}
