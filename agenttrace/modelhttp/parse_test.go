package modelhttp

import (
	"bytes"
	"compress/gzip"
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
	"github.com/agenttrace/agenttrace/internal/modelapi"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// panicking is a decoder with a mistake.
type panicking struct{}

func (panicking) Event(string, []byte) { panic("a mistake in event") }
func (panicking) Body([]byte)          { panic("a mistake in body") }

// TestAMistakeInAParserNeverReachesTheAgent has parsers that panic.
func TestAMistakeInAParserNeverReachesTheAgent(t *testing.T) {
	good := *modelapi.Anthropic
	defer func() { *modelapi.Anthropic = good }()
	var handled []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	for name, mistaken := range map[string]modelapi.API{
		"request": {Request: func([]byte) *modelapi.Request { panic("a mistake in request") }},
		"answer":  {Request: good.Request, NewDecoder: func(*modelapi.Answer) modelapi.Decoder { return panicking{} }},
		"decoder": {Request: good.Request, NewDecoder: func(*modelapi.Answer) modelapi.Decoder {
			panic("a mistake in answer")
		}},
	} {
		for _, kind := range []string{"application/json", "text/event-stream"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				*modelapi.Anthropic, handled = mistaken, nil
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
				testscale.Must(t, err)
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
		api                  *modelapi.API
	}{
		{"https://api.anthropic.com/v1/messages", "anthropic", "", modelapi.Anthropic},
		{"https://api.anthropic.com/v1/messages?beta=true", "anthropic", "", modelapi.Anthropic},
		{"https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:streamRawPredict",
			"gcp.vertex_ai", "claude-x", modelapi.Anthropic},
		{"https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-x%3A0/invoke-with-response-stream",
			"aws.bedrock", "anthropic.claude-x:0", nil},
		{"https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3A%3A1%3Ainference-profile%2Fm/converse",
			"aws.bedrock", "arn:aws:bedrock::1:inference-profile/m", modelapi.Converse},
		{"https://api.openai.com/v1/chat/completions", "openai", "", modelapi.Chat},
		{"https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", "azure.ai.openai", "d", modelapi.Chat},
		{"https://r.openai.azure.com/openai/responses?api-version=1", "azure.ai.openai", "", modelapi.Responses},
		{"https://api.deepseek.com/chat/completions", "deepseek", "", modelapi.Chat},
		{"https://api.groq.com/openai/v1/chat/completions", "groq", "", modelapi.Chat},
		{"http://localhost:11434/v1/chat/completions", "openai", "", modelapi.Chat},
		{"https://api.openai.com/v1/responses", "openai", "", modelapi.Responses},
		{"https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
			"gcp.gemini", "gemini-x", modelapi.Gemini},
		{"https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google/models/gemini-x:generateContent",
			"gcp.vertex_ai", "gemini-x", modelapi.Gemini},
		{"http://localhost:11434/api/chat", "ollama", "", modelapi.Chat},
		{"https://api.openai.com/v1/embeddings", "", "", nil},
		{"https://generativelanguage.googleapis.com/v1beta/models/gemini-x:countTokens", "", "", nil},
	} {
		u, err := url.Parse(test.url)
		testscale.Must(t, err)
		got := recognize(http.MethodPost, u)
		switch {
		case test.provider == "" && got != nil:
			t.Errorf("%s is taken for a model call", test.url)
		case test.provider != "" && (got == nil || got.api != test.api || got.provider != test.provider ||
			got.model != test.model):
			t.Errorf("%s: %+v", test.url, got)
		}
	}
}

// TestACompressedAnswerIsSeenAsItComes: what the server has flushed is decompressed before its answer ends.
func TestACompressedAnswerIsSeenAsItComes(t *testing.T) {
	open, _ := new(Options).decoder(http.Header{"Content-Encoding": {"gzip"}})
	var sent, got, want bytes.Buffer
	w, z := gzip.NewWriter(&sent), newInflater(open, func(data []byte) { got.Write(data) }, recovered)
	for want.Len() < 90_000 {
		_, _ = io.MultiWriter(w, &want).Write(bytes.Repeat([]byte("data: {}\n\n"), 1+want.Len()))
		_ = w.Flush()
		z.feed(sent.Next(sent.Len() / 2))
		if z.feed(sent.Next(sent.Len())); got.String() != want.String() {
			t.Fatalf("%d bytes of %d", got.Len(), want.Len())
		}
	}
	z.end()
}
