package alltrace

import (
	"net/http"
	"sync/atomic"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/modelhttp"
)

var transport atomic.Pointer[modelhttp.Transport]

func init() {
	// The global tracer provider may be set later.
	transport.Store(modelhttp.New(agenttrace.New(agenttrace.Options{}), modelhttp.Options{}))
}

// SetTransport replaces what records the requests that begin from now on, for example to name
// sessions. Its base is not used. It is safe for concurrent use.
func SetTransport(t *modelhttp.Transport) { transport.Store(t) }

// Close ends the turns that are open. Call it before the tracer provider is shut down. It always returns nil.
func Close() error { return transport.Load().Close() }

// Middleware is for option.WithMiddleware of anthropic-sdk-go and openai-go.
func Middleware(
	req *http.Request, next func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	return transport.Load().Middleware()(req, next)
}

type roundTripper struct{ http.RoundTripper }

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return Middleware(req, r.RoundTripper.RoundTrip)
}

// Client returns a copy of a client, or of the default one for nil, whose requests are recorded.
func Client(c *http.Client) *http.Client {
	recorded := http.Client{}
	if c != nil {
		recorded = *c
	}
	if recorded.Transport == nil {
		recorded.Transport = http.DefaultTransport
	}
	recorded.Transport = roundTripper{recorded.Transport}
	return &recorded
}

// HTTPDoer is the client of the AWS SDK.
type HTTPDoer interface {
	Do(*http.Request) (*http.Response, error)
}

type doer struct{ HTTPDoer }

func (d doer) Do(req *http.Request) (*http.Response, error) { return Middleware(req, d.HTTPDoer.Do) }

// Doer returns a client whose requests are recorded; nil means [http.DefaultClient].
func Doer(d HTTPDoer) HTTPDoer {
	if d == nil {
		d = http.DefaultClient
	}
	return doer{d}
}
