package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/spans"
)

// Format is the wire format of a provider: how it is asked, and how it answers.
type Format struct {
	Name, Title string
	// KeyEnv is the variable of the environment in which programs of the provider look for the key of the API.
	KeyEnv string

	path string // of the resource below an endpoint
	// request makes the body of a request: the bundle, and what came since.
	request func(b *Bundle, since []entry) any
	// reply reads what a provider answered, and the error that reading ended with.
	reply func(text []byte, readErr error) (*reply, error)
	// header is what every request has, by name.
	header map[string]string
	// authorize puts the key of the API into a request.
	authorize func(h http.Header, key string)
}

// Formats are all formats, the default first.
func Formats() []*Format {
	return []*Format{openAIChat, openAIResponses, anthropicMessages, aiSDK}
}

// FormatOf returns the format with the name, or nil.
func FormatOf(name string) *Format {
	all := Formats()
	i := slices.IndexFunc(all, func(f *Format) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// reply is what a provider answered to one request.
type reply struct {
	blocks []block
	// usage is nil where the provider reports none. usageRaw is what it reported, basis how it counts.
	usage     *session.Usage
	usageRaw  json.RawMessage
	basis     string
	stop      string
	id, model string
}

func (b *Bundle) conversation(since []entry) []entry {
	return slices.Concat(b.context, since)
}

// effort is the model's variant where it is one of the words by which providers take how much to reason.
func (b *Bundle) effort() string {
	if slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}, b.Model.Variant) {
		return b.Model.Variant
	}
	return ""
}

// schema is the schema of a tool's input; any object where it is not known.
func (t *Tool) schema() json.RawMessage {
	if len(t.InputSchema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return t.InputSchema
}

// empty is the error of a reply that reports nothing.
func (r *reply) empty() error {
	for i := range r.blocks {
		if b := &r.blocks[i]; b.kind != textBlock || b.text != "" {
			return nil
		}
	}
	if r.stop != "" {
		return fmt.Errorf("the answer is empty: neither text nor a call, and the reason to stop is %q", r.stop)
	}
	return errors.New("the answer is empty: neither text nor a call")
}

func bearer(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// object is a JSON object of a request, with its members in their order. What is nil or an empty text is left out.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, m := range o {
		if v := reflect.ValueOf(m.value); !v.IsValid() || v.IsZero() && v.Kind() != reflect.Bool {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + m.name + `":`)
		if err := document.EncodeJSON(&b, "", m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// textObject is a piece of content that is text.
func textObject(kind, text string) object { return object{{"type", kind}, {"text", &text}} }

// toolsOf makes a tool of each that the model could call.
func (b *Bundle) toolsOf(tool func(t *Tool) object) (all []object) {
	for i := range b.Tools {
		all = append(all, tool(&b.Tools[i]))
	}
	return all
}

// decodes returns what reads a reply that is one JSON document with the member, which has a list. It is given the error
// that reading ended with.
func decodes(api *modelapi.API, member string) func([]byte, error) (*reply, error) {
	return func(text []byte, err error) (*reply, error) {
		text = bytes.TrimSpace(text)
		switch {
		case err != nil:
			return nil, err
		case len(text) == 0:
			return nil, errors.New("the reply is empty")
		case !json.Valid(text):
			return nil, fmt.Errorf("the reply is not JSON: it begins with %q; check that --endpoint is that of the API",
				document.Head(string(text), 60))
		}
		a := &modelapi.Answer{Budget: len(text)}
		api.Decode(a).Body(text)
		list := gjson.GetBytes(text, member)
		switch {
		case a.Err != nil: // with status 200, as some proxies have it
			return nil, a.Err
		case !list.IsArray() || api == modelapi.Chat && len(list.Array()) == 0:
			return nil, errors.New("it has no " + member)
		}
		out := replyOf(a, api)
		return out, out.empty()
	}
}

// replyOf returns what an answer came to. What the provider executed is not part of it.
func replyOf(a *modelapi.Answer, api *modelapi.API) *reply {
	out := &reply{stop: a.Stop, id: a.ID, model: a.Model}
	called := false
	for i, b := range a.Blocks {
		text := b.Content()
		switch {
		case b.Kind == modelapi.Call:
			if !b.Server {
				called = true
				out.blocks = append(out.blocks, block{kind: callBlock, id: b.ID, name: b.Name, input: b.Input()})
			}
		case b.Kind == modelapi.Text && text != "":
			out.blocks = append(out.blocks, block{kind: textBlock, text: text})
		case b.Kind == modelapi.Reasoning && api == modelapi.Anthropic:
			meta, _ := json.Marshal(struct {
				Signature    string `json:"signature,omitempty"`
				RedactedData string `json:"redactedData,omitempty"`
			}{b.Signature, b.Redacted}) // strings always encode
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text,
				meta: map[string]json.RawMessage{"anthropic": meta}})
		case b.Kind == modelapi.Reasoning && i > 0 && api == modelapi.Responses && len(out.blocks) > 0 &&
			a.Blocks[i-1].Kind == modelapi.Reasoning && a.Blocks[i-1].SameItem(b):
			out.blocks[len(out.blocks)-1].text += text
		case b.Kind == modelapi.Reasoning && text != "":
			out.blocks = append(out.blocks, block{kind: reasoningBlock, text: text})
		}
	}
	if api == modelapi.Responses && (out.stop == "" || out.stop == "completed") { // which has no other word for it
		if out.stop = "stop"; called {
			out.stop = "tool-calls"
		}
	}
	out.count(a.Usage)
	return out
}

func (r *reply) count(u *modelapi.Usage) {
	if u == nil || u.Input+u.Output+u.Reasoning+u.CacheRead+u.CacheWrite == 0 {
		return
	}
	tokens := spans.Tokens{
		Input: u.Input, Output: u.Output, Reasoning: u.Reasoning, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
	}
	if r.usageRaw, r.basis = u.Raw, semconv.BasisExclusive; u.Basis == modelapi.Inclusive {
		tokens, r.basis = tokens.Disjoint(), semconv.BasisInclusive
	}
	r.usage = (*session.Usage)(&tokens)
}

func events(text []byte) (all []json.RawMessage) {
	s := modelapi.StreamOf("text/event-stream", len(text))
	emit := func(_ string, data []byte) {
		if len(data) > 0 && string(data) != "[DONE]" {
			all = append(all, bytes.Clone(data))
		}
	}
	s.Feed(text, emit)
	s.End(emit)
	return all
}
