package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/agenttrace/agenttrace/session"
)

// Format is the wire format of a provider: how it is asked, and how it answers.
type Format struct {
	Name, Title string
	// KeyEnv is the variable of the environment in which programs of the provider
	// look for the key of the API.
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

// Encode writes the request that asks for the turn's answer, as indented JSON.
func (b *Bundle) Encode(w io.Writer, f *Format) error {
	return encodeJSON(w, f.request(b, nil), "  ")
}

func encodeJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// reply is what a provider answered to one request.
type reply struct {
	blocks []block
	// usage is nil where the provider reports none. usageRaw is what it reported, basis
	// how it counts.
	usage     *session.Usage
	usageRaw  json.RawMessage
	basis     string
	stop      string
	id, model string
}

// conversation is the context, and what came since.
func (b *Bundle) conversation(since []entry) []entry {
	return slices.Concat(b.context, since)
}

// effort is the model's variant where it is one of the words by which providers
// take how much to reason.
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
