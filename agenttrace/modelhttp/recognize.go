package modelhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/internal/modelapi"
)

// target is what the URL of a request states.
type target struct {
	api *modelapi.API // nil if the body of the request shows it
	// provider is a value of gen_ai.provider.name; model is empty if the URL has none.
	provider, model string
}

// route is a path of an API. Its first group is the model, if it has one.
type route struct {
	path     func() *regexp.Regexp
	api      *modelapi.API
	provider string
	byHost   bool // the provider is that of the host, if that is known
}

// routes are the paths of the APIs. The first that matches counts. They are escaped: the id of a Bedrock model may be
// an ARN with slashes.
var routes = []route{
	{lazy.Regexp(`/model/(.+)/converse(-stream)?$`), modelapi.Converse, "aws.bedrock", false},
	{lazy.Regexp(`/model/(.+)/invoke(-with-response-stream)?$`), nil, "aws.bedrock", false},
	{lazy.Regexp(`/(?:publishers|endpoints)/(?:.*/)?([^/:]+):(generate|streamGenerate)Content$`), modelapi.Gemini,
		"gcp.vertex_ai", false},
	{lazy.Regexp(`/([^/:]+):(generate|streamGenerate)Content$`), modelapi.Gemini, "gcp.gemini", true},
	{lazy.Regexp(`/publishers/anthropic/(?:.*/)?([^/:]+):(raw|streamRaw)Predict$`), modelapi.Anthropic,
		"gcp.vertex_ai", false},
	{lazy.Regexp(`/([^/:]+):(raw|streamRaw)Predict$`), modelapi.Chat, "gcp.vertex_ai", false},
	{lazy.Regexp(`/v1/messages()$`), modelapi.Anthropic, "anthropic", false},
	{lazy.Regexp(`(?:/deployments/(.+))?/chat/completions$`), modelapi.Chat, "openai", true},
	{lazy.Regexp(`/responses()$`), modelapi.Responses, "openai", true},
}

// recognize returns the API that a request is for, or nil.
func recognize(method string, u *url.URL) *target {
	if method != http.MethodPost || u == nil {
		return nil
	}
	host, path := strings.ToLower(u.Hostname()), strings.TrimSuffix(u.EscapedPath(), "/")
	for _, r := range routes {
		if m := r.path().FindStringSubmatch(path); m != nil {
			model, err := url.PathUnescape(m[1])
			if err != nil {
				model = m[1]
			}
			provider := r.provider
			if r.byHost {
				provider = cmp.Or(modelapi.ProviderOf(host), provider)
			}
			return &target{r.api, provider, model}
		}
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
