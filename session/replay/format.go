package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
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
