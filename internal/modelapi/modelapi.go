// Package modelapi reads what clients and the providers of models send each other: requests, answers, and answers as
// streams, of Anthropic Messages, OpenAI chat completions and Responses, Gemini generateContent and Bedrock Converse.
//
//	r := modelapi.Chat.Request(body)                 // what the client sends: messages, tools, limits
//	a := &modelapi.Answer{Budget: 1 << 20, Sink: s}  // s has the text as it arrives
//	modelapi.Chat.Decode(a).Event(name, data)        // for each event of a Stream, or Body for a document
//
// What it does not know it passes over: a value of another type than expected is none.
package modelapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// API is the format of one provider's requests and answers.
type API struct {
	// Request decodes the body of a request. It returns nil for a body that is not a conversation.
	Request func(body []byte) *Request
	// NewDecoder returns what decodes an answer that has a sink.
	NewDecoder func(a *Answer) Decoder
}

// Decode returns what decodes an answer into a.
func (api *API) Decode(a *Answer) Decoder {
	if a.Sink == nil {
		a.Sink = keeper{a}
	}
	return api.NewDecoder(a)
}

// Decoder decodes an answer: its events one by one, or its body as a whole.
type Decoder interface {
	// Event decodes an event of a stream. The name is that of the event stream's frame
	// or of the server-sent event; it may be empty.
	Event(name string, data []byte)
	Body(data []byte)
}

// Anthropic is the Messages API, also on Vertex AI and Bedrock. Chat is OpenAI's chat completions API and Responses
// its Responses API, also on Azure and on compatible servers. Gemini is generateContent of the Gemini API and of
// Vertex AI. Converse is Bedrock's, which differs little from the format of Nova models.
var (
	Anthropic = &API{anthropicForm.request, func(a *Answer) Decoder { return &anthropicAnswer{a: a} }}
	Chat      = &API{chatForm.request, func(a *Answer) Decoder { return &chatAnswer{a} }}
	Responses = &API{responsesForm.request, func(a *Answer) Decoder { return &responsesAnswer{a: a} }}
	Gemini    = &API{geminiForm.request, func(a *Answer) Decoder { return &geminiAnswer{a: a} }}
	Converse  = &API{converseForm.request, func(a *Answer) Decoder { return &converseAnswer{a} }}
)

// OfInvoke returns the API whose format the body of a request of Bedrock's InvokeModel has: that of the model.
func OfInvoke(body []byte) *API {
	in := parse(body)
	var content []object
	if messages := in.get("messages").objects(); len(messages) > 0 {
		content = messages[0].get("content").objects()
	}
	switch {
	case in.text("anthropic_version") != "":
		return Anthropic
	// Content that is a text is no list; the formats differ in that.
	case in.get("inferenceConfig") != "", len(content) > 0 && content[0].get("type") == "":
		return Converse
	}
	return Chat
}

// providers are values of gen_ai.provider.name by the ends of hosts.
var providers = []struct{ host, provider string }{
	{"openai.azure.com", "azure.ai.openai"}, {"services.ai.azure.com", "azure.ai.inference"},
	{"cognitiveservices.azure.com", "azure.ai.openai"}, {"openai.com", "openai"}, {"anthropic.com", "anthropic"},
	{"deepseek.com", "deepseek"}, {"groq.com", "groq"}, {"mistral.ai", "mistral_ai"},
	{"perplexity.ai", "perplexity"}, {"x.ai", "x_ai"}, {"openrouter.ai", "openrouter"},
	{"aiplatform.googleapis.com", "gcp.vertex_ai"}, {"generativelanguage.googleapis.com", "gcp.gemini"},
	{"amazonaws.com", "aws.bedrock"},
}

// ProviderOf returns the provider whose a host is, "" if it is nobody's that is known.
func ProviderOf(host string) string {
	for _, known := range providers {
		if host == known.host || strings.HasSuffix(host, "."+known.host) {
			return known.provider
		}
	}
	return ""
}

// RetryAfter returns how long a server asks to wait, if it does: in seconds or until a date.
func RetryAfter(h http.Header, now time.Time) (wait time.Duration, asked bool) {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond)), true
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 && seconds < 1e7 {
		return time.Duration(seconds * float64(time.Second)), true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// Retryable reports whether clients try again after a response that is no answer.
func Retryable(resp *http.Response) bool {
	switch resp.Header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch c := resp.StatusCode; c {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return c >= 500
	}
}

// Body is a body that the caller reads as it is. Took gets what was read before the caller has it, and Closed is called
// when it is closed.
type Body struct {
	io.ReadCloser
	Took   func(p []byte, err error)
	Closed func()
}

func (b *Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.Took(p[:n], err)
	return n, err
}

// Close implements [io.Closer].
func (b *Body) Close() error {
	err := b.ReadCloser.Close()
	b.Closed()
	return err
}
