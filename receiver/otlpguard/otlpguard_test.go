package otlpguard

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// Every configuration that sets no times of its own has those that close a connection which sends half a request.
func TestDefaultsCloseHalfOpenConnections(t *testing.T) {
	c := NewFactory().CreateDefaultConfig().(*otlpreceiver.Config)
	h := c.Protocols.HTTP.GetOrInsertDefault().ServerConfig
	if h.ReadHeaderTimeout != headerTimeout || h.ReadTimeout != requestTimeout { // which is the idle time too
		t.Errorf("HTTP: header %v, request %v", h.ReadHeaderTimeout, h.ReadTimeout)
	}
	g := c.Protocols.GRPC.GetOrInsertDefault()
	if !g.Keepalive.HasValue() || !g.Keepalive.Get().ServerParameters.HasValue() {
		t.Fatal("gRPC has no keepalive")
	}
	if p := g.Keepalive.Get().ServerParameters.Get(); p.Time != pingAfter || p.Timeout != pingTimeout ||
		p.MaxConnectionIdle != idleTimeout {
		t.Errorf("gRPC: %+v", p)
	}
	if NewFactory().Type().String() != "otlp" {
		t.Error("the type is another than that of the receiver it stands for")
	}
}

// The path of a signal may be configured; what arrives there is bounded as that signal.
func TestConfiguredPathsAreBounded(t *testing.T) {
	deep := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"a","value":` +
		strings.Repeat(`{"arrayValue":{"values":[`, 100_000) + strings.Repeat(`]}}`, 100_000) + `}]}]}]}]}`
	for path, paths := range map[string]map[string]nesting.Signal{
		"/custom":    {"/custom": nesting.SignalTraces, "/v1/logs": nesting.SignalLogs},
		"/any/where": {"/": nesting.SignalTraces},
	} {
		wrap, err := middleware{paths: paths}.GetHTTPHandler(t.Context())
		testscale.Must(t, err)
		var refused error
		handler, err := wrap(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, refused = io.ReadAll(r.Body)
		}))
		testscale.Must(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader([]byte(deep)))
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if !errors.Is(refused, nesting.ErrTooDeep) {
			t.Errorf("%s: the handler read a value of 100,000 levels: %v", path, refused)
		}
	}
}
