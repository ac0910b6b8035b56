package modelapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
