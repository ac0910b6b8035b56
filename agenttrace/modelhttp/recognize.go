package modelhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// target is what the URL of a request states.
type target struct {
	api *modelapi.API // nil if the body of the request shows it
	// provider is a value of gen_ai.provider.name; model is empty if the URL has none.
	provider, model string
}

// recognize returns the API that a request is for, or nil.
func recognize(method string, u *url.URL) *target {
	if method != http.MethodPost || u == nil {
		return nil
	}
	// Not Path: the id of a Bedrock model may be an ARN with escaped slashes.
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	host := strings.ToLower(u.Hostname())
	if rest, ok := cutModel(path, "/model/"); ok {
		return recognizeBedrock(rest)
	}
	at := strings.LastIndexByte(path, '/')
	if id, method, ok := strings.Cut(path[at+1:], ":"); ok {
		return recognizeGoogle(host, path, unescape(id), method)
	}
	switch {
	case strings.HasSuffix(path, "/v1/messages"):
		return &target{api: modelapi.Anthropic, provider: "anthropic"}
	case strings.HasSuffix(path, "/chat/completions"):
		t := &target{api: modelapi.Chat, provider: openAIProvider(host)}
		if rest, ok := cutModel(path, "/deployments/"); ok {
			t.model = unescape(strings.TrimSuffix(rest, "/chat/completions"))
		}
		return t
	case strings.HasSuffix(path, "/responses"):
		return &target{api: modelapi.Responses, provider: openAIProvider(host)}
	}
	return nil
}

// others are the APIs of models without conversations, and beside them, by the ends of their paths.
var others = []string{"/embeddings", "/count_tokens", ":countTokens", "mbedContent", "mbedContents",
	"/moderations", "/files", "/uploads", "/token", "/batches", "/input_tokens", "/v1/traces", "/v1/logs", "/v1/metrics"}

// unrecognized counts a request that has a document to a path that is none of those known, and reports each path once.
func (t *Transport) unrecognized(req *http.Request) {
	path := req.URL.EscapedPath()
	if req.Method != http.MethodPost || !strings.Contains(req.Header.Get("Content-Type"), "json") ||
		slices.ContainsFunc(others, func(end string) bool { return strings.HasSuffix(path, end) }) {
		return
	}
	const most = 20 // paths may have ids
	if n := t.passed.Add(1); n > 1000*most {
		return
	}
	if _, known := t.paths.LoadOrStore(req.URL.Host+path, true); !known && t.reported.Add(1) <= most {
		otel.Handle(fmt.Errorf("record model calls: no known API has the path %s%s: its requests are not recorded",
			req.URL.Host, path))
	}
}

func recognizeBedrock(rest string) *target {
	at := strings.LastIndexByte(rest, '/')
	if at < 0 {
		return nil
	}
	t := &target{provider: "aws.bedrock", model: unescape(rest[:at])}
	switch rest[at+1:] {
	case "converse", "converse-stream":
		t.api = modelapi.Converse
	case "invoke", "invoke-with-response-stream":
	default:
		return nil
	}
	return t
}

func recognizeGoogle(host, path, id, method string) *target {
	t := &target{provider: "gcp.gemini", model: id}
	if strings.Contains(host, "aiplatform") || strings.Contains(path, "/publishers/") ||
		strings.Contains(path, "/endpoints/") {
		t.provider = "gcp.vertex_ai"
	}
	switch method {
	case "generateContent", "streamGenerateContent":
		t.api = modelapi.Gemini
	case "rawPredict", "streamRawPredict":
		t.api = modelapi.Chat
		if strings.Contains(path, "/publishers/anthropic/") {
			t.api = modelapi.Anthropic
		}
	default:
		return nil
	}
	return t
}

// openAIProvider names the provider of an API in OpenAI's format by its host.
func openAIProvider(host string) string { return cmp.Or(modelapi.ProviderOf(host), "openai") }

// cutModel returns what follows the last marker in a path.
func cutModel(path, marker string) (rest string, ok bool) {
	at := strings.LastIndex(path, marker)
	if at < 0 {
		return "", false
	}
	return path[at+len(marker):], true
}

func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}
