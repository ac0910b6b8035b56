package modelhttp

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/agenttrace"
)

// api is the format of one provider's requests and answers.
type api struct {
	// request decodes the body of a request. It returns nil for a body that is not a
	// conversation, which is then passed on without being recorded.
	request func(t *target, body []byte) *request
	// answer returns what decodes the answer into a.
	answer func(a *answer) decoder
}

// decoder decodes an answer: its events one by one, or its body as a whole.
type decoder interface {
	// event decodes an event of a stream. The name is that of the event stream's frame
	// or of the server-sent event; it may be empty.
	event(name string, data []byte)
	body(data []byte)
}

// target is what the URL of a request states.
type target struct {
	api *api
	// provider is a value of gen_ai.provider.name; model is empty if the URL has none.
	provider, model string
}

// role is the side of a conversation that a message comes from. Results of tools come
// from the user's side.
type role byte

const (
	user      role = 'u'
	assistant role = 'a'
)

type itemKind byte

const (
	textItem itemKind = iota
	fileItem
	callItem
	resultItem
)

// item is a part of a message of a request.
type item struct {
	kind itemKind
	// text is that of a text.
	text string
	file file
	// id and name are those of a call, and of the call that a result is of. A provider
	// may leave out either.
	id, name string
	// value is the JSON of a call's input or of a result's output.
	value json.RawMessage
	// failed reports a result that the API marks as an error.
	failed bool
}

// file is a file in a message. The bytes of one that is in the request itself are not
// kept, only their number.
type file struct {
	mediaType, name, url string
	size                 int
}

func (f file) part() agenttrace.Part {
	if f.url != "" {
		return agenttrace.FilePart(agenttrace.File{MediaType: f.mediaType, URL: f.url, Filename: f.name})
	}
	return agenttrace.DataPart("file", "", struct {
		MediaType string `json:"mediaType,omitempty"`
		Filename  string `json:"filename,omitempty"`
		Size      int    `json:"size"`
	}{f.mediaType, f.name, f.size})
}

// message is a message of a request. What the assistant sends between two messages of the
// user is one message.
type message struct {
	role  role
	items []item
}

// request is a model call as its client sends it.
type request struct {
	model       agenttrace.Model
	temperature *float64
	system      string
	tools       []agenttrace.Tool
	messages    []message
	// limit is that of the answer's tokens, 0 if there is none, form what is stated of its form, such as a schema.
	limit int
	form  json.RawMessage
	// previous and conversation name the history that the provider keeps: the answer
	// before, or the conversation. continuation is the token of an interrupted answer.
	previous, conversation, continuation string

	// between reports that what is added next is not of the message before.
	between bool
}

// next states that a message of the request ends.
func (r *request) next() { r.between = true }

// add appends an item to the message of the role, which it begins if need be.
func (r *request) add(from role, i item) {
	n := len(r.messages)
	if n == 0 || r.messages[n-1].role != from || r.between && from == user {
		r.messages = append(r.messages, message{role: from})
		n++
	}
	r.between = false
	m := &r.messages[n-1]
	m.items = append(m.items, i)
}

func (r *request) addText(from role, text string) {
	if text != "" {
		r.add(from, item{kind: textItem, text: text})
	}
}

// addSystem appends to the system prompt.
func (r *request) addSystem(text string) {
	if r.system != "" && text != "" {
		r.system += "\n\n"
	}
	r.system += text
}

// setLimit sets the limit of the answer's tokens to the first number.
func (r *request) setLimit(given ...json.RawMessage) {
	for _, raw := range given {
		if n, err := strconv.ParseFloat(string(raw), 64); err == nil {
			r.limit = int(n)
			return
		}
	}
}

// stringOr decodes a value that is a text or, if it is not, something else.
func stringOr(raw json.RawMessage, other any) (text string, isText bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", true
	}
	if raw[0] == '"' {
		return textOf(raw)
	}
	if other != nil {
		_ = unmarshal(raw, other) // of a value that is neither nothing is known
	}
	return "", false
}

// textOf is [unmarshal] of a text.
func textOf(raw []byte) (text string, ok bool) {
	s := scanners.Get().(*scanner)
	defer scanners.Put(s)
	var read []byte
	s.reset(raw)
	if s.str(&read); s.end() {
		return string(read), true
	}
	err := json.Unmarshal(raw, &text)
	return text, err == nil
}

// output returns the JSON of a tool's output. A text that is itself a JSON object or list
// becomes that, as APIs that take only texts have them so.
func output(text string) json.RawMessage {
	if t := strings.TrimSpace(text); len(t) > 1 && (t[0] == '{' || t[0] == '[') {
		if raw := []byte(t); isJSON(raw) {
			return raw
		}
	}
	return quote(text)
}

func quote(text string) json.RawMessage {
	b, err := json.Marshal(text)
	if err != nil { // texts always encode
		return json.RawMessage(`""`)
	}
	return b
}

// input returns the JSON of a tool call's input, which a model wrote.
func input(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("{}")
	}
	if raw := []byte(text); isJSON(raw) {
		return raw
	}
	return quote(text)
}

// inline returns a file whose content is in the request as base64.
func inline(mediaType, name, data string) file {
	return file{mediaType: mediaType, name: name, size: len(strings.TrimRight(data, "=")) * 3 / 4}
}

// linked returns a file by its URL, which may have the content in it.
func linked(mediaType, name, u string) file {
	if data, ok := strings.CutPrefix(u, "data:"); ok {
		kind, content, _ := strings.Cut(data, ",")
		kind, _, _ = strings.Cut(kind, ";")
		return inline(kind, name, content)
	}
	return file{mediaType: mediaType, name: name, url: u}
}
