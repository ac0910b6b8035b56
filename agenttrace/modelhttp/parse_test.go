package modelhttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
)

// panicking is a decoder with a mistake.
type panicking struct{}

func (panicking) event(string, []byte) { panic("a mistake in event") }
func (panicking) body([]byte)          { panic("a mistake in body") }

// TestAMistakeInAParserNeverReachesTheAgent has parsers that panic.
func TestAMistakeInAParserNeverReachesTheAgent(t *testing.T) {
	good := anthropicAPI
	defer func() { anthropicAPI = good }()
	var handled []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	for name, mistaken := range map[string]api{
		"request": {request: func(*target, []byte) *request { panic("a mistake in request") }},
		"answer":  {request: good.request, answer: func(*answer) decoder { return panicking{} }},
		"decoder": {request: good.request, answer: func(*answer) decoder { panic("a mistake in answer") }},
	} {
		for _, kind := range []string{"application/json", "text/event-stream"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				anthropicAPI, handled = mistaken, nil
				rec := agenttracetest.NewRecorder()
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got, _ := io.ReadAll(r.Body)
					w.Header().Set("Content-Type", kind)
					fmt.Fprintf(w, "{}\ndata: {}\n\n%s", got)
				}))
				defer server.Close()
				tr := New(agenttrace.New(agenttrace.Options{TracerProvider: rec}), Options{})
				body := `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
				resp, err := (&http.Client{Transport: tr}).Post(server.URL+"/v1/messages", "application/json",
					strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != "{}\ndata: {}\n\n"+body {
					t.Errorf("read %q, %v", got, err)
				}
				_ = tr.Close()
				if open := rec.Open(); len(open) > 0 {
					t.Errorf("spans left open: %q", open)
				}
				if len(handled) == 0 && (name != "answer" || kind == "text/event-stream") {
					t.Error("nothing was reported to otel.Handle")
				}
			})
		}
	}
}

// TestEveryPathOfTheAPIsIsRecognized has those of the providers, other clouds and compatible
// servers.
func TestEveryPathOfTheAPIsIsRecognized(t *testing.T) {
	for _, test := range []struct {
		url, provider, model string
		api                  *api
	}{
		{"https://api.anthropic.com/v1/messages", "anthropic", "", &anthropicAPI},
		{"https://api.anthropic.com/v1/messages?beta=true", "anthropic", "", &anthropicAPI},
		{"https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:streamRawPredict",
			"gcp.vertex_ai", "claude-x", &anthropicAPI},
		{"https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-x%3A0/invoke-with-response-stream",
			"aws.bedrock", "anthropic.claude-x:0", &invokeAPI},
		{"https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3A%3A1%3Ainference-profile%2Fm/converse",
			"aws.bedrock", "arn:aws:bedrock::1:inference-profile/m", &converseAPI},
		{"https://api.openai.com/v1/chat/completions", "openai", "", &chatAPI},
		{"https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", "azure.ai.openai", "d", &chatAPI},
		{"https://r.openai.azure.com/openai/responses?api-version=1", "azure.ai.openai", "", &responsesAPI},
		{"https://api.deepseek.com/chat/completions", "deepseek", "", &chatAPI},
		{"https://api.groq.com/openai/v1/chat/completions", "groq", "", &chatAPI},
		{"http://localhost:11434/v1/chat/completions", "openai", "", &chatAPI},
		{"https://api.openai.com/v1/responses", "openai", "", &responsesAPI},
		{"https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
			"gcp.gemini", "gemini-x", &geminiAPI},
		{"https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google/models/gemini-x:generateContent",
			"gcp.vertex_ai", "gemini-x", &geminiAPI},
		{"https://api.openai.com/v1/embeddings", "", "", nil},
		{"https://generativelanguage.googleapis.com/v1beta/models/gemini-x:countTokens", "", "", nil},
	} {
		u, err := url.Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		got := recognize(http.MethodPost, u)
		switch {
		case test.api == nil && got != nil:
			t.Errorf("%s is taken for a model call", test.url)
		case test.api != nil && (got == nil || got.api != test.api || got.provider != test.provider ||
			got.model != test.model):
			t.Errorf("%s: %+v", test.url, got)
		}
	}
}

// seeds adds the requests and answers of the script to a corpus.
func seeds(f *testing.F, stream bool, names ...string) {
	for _, name := range names {
		a := modelserver.Named(name)
		for turn := range modelserver.Weather.Turns {
			for k := range modelserver.Weather.Turns[turn].Steps {
				_, chunks := a.Chunks(&modelserver.Weather.Turns[turn].Steps[k], "resp_1", stream)
				f.Add(bytes.Join(chunks, nil), 7)
			}
		}
	}
}

// decode has an API decode bytes as an answer of each kind, in pieces of the size.
func decode(a *api, data []byte, size int) {
	size = max(1, size&0xffff)
	for _, split := range []splitter{&sse{max: 1 << 16}, &frames{max: 1 << 16}} {
		ans := &answer{budget: 1 << 20}
		d := a.answer(ans)
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			split.feed(rest[:n], d.event)
			rest = rest[n:]
		}
		split.end(d.event)
		ans.calls()
	}
	ans := &answer{budget: 1 << 20}
	a.answer(ans).body(data)
	a.answer(ans).event("", data)
	ans.result()
	if a.request != nil {
		a.request(&target{}, data)
	}
}

func FuzzAnthropic(f *testing.F) {
	seeds(f, true, "anthropic", "bedrock invoke")
	f.Fuzz(func(_ *testing.T, data []byte, size int) { decode(&anthropicAPI, data, size) })
}

func FuzzChat(f *testing.F) {
	seeds(f, true, "chat")
	f.Fuzz(func(_ *testing.T, data []byte, size int) { decode(&chatAPI, data, size) })
}

func FuzzResponses(f *testing.F) {
	seeds(f, true, "responses")
	f.Fuzz(func(_ *testing.T, data []byte, size int) { decode(&responsesAPI, data, size) })
}

func FuzzGemini(f *testing.F) {
	seeds(f, true, "gemini")
	f.Fuzz(func(_ *testing.T, data []byte, size int) { decode(&geminiAPI, data, size) })
}

func FuzzConverse(f *testing.F) {
	seeds(f, true, "bedrock converse")
	f.Fuzz(func(_ *testing.T, data []byte, size int) { decode(&converseAPI, data, size) })
}

// FuzzServerSentEvents checks that the pieces in which a stream arrives make no difference.
func FuzzServerSentEvents(f *testing.F) {
	seeds(f, true, "anthropic", "chat")
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		samePieces(t, data, size, func() splitter { return &sse{max: 1 << 20} })
	})
}

// FuzzEventStream does the same for AWS's frames.
func FuzzEventStream(f *testing.F) {
	seeds(f, true, "bedrock converse", "bedrock invoke")
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		samePieces(t, data, size, func() splitter { return &frames{max: 1 << 20} })
	})
}

func samePieces(t *testing.T, data []byte, size int, split func() splitter) {
	run := func(size int) (out string) {
		s := split()
		emit := func(name string, data []byte) { out += fmt.Sprintf("%q %q\n", name, data) }
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			s.feed(rest[:n], emit)
			rest = rest[n:]
		}
		s.end(emit)
		return out
	}
	whole, pieces := run(max(1, len(data))), run(max(1, size&0xff))
	if whole != pieces {
		t.Errorf("as a whole %s\nin pieces %s", whole, pieces)
	}
}
