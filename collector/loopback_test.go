package collector

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// post sends an empty request and returns the status and the text of the answer.
func post(t *testing.T, method, endpoint, host string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+endpoint+"/v1/traces",
		strings.NewReader("{}"))
	testscale.Must(t, err)
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", "application/json")
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	testscale.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testscale.Must(t, err)
	return resp.StatusCode, string(body)
}

// A page in a browser on this machine cannot write to the store, whatever name it makes resolve to 127.0.0.1.
func TestPagesOfOtherHostsCannotReachTheReceiver(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	r := started(t, Options{Store: filepath.Join(dir, "s.db")})
	defer func() { _ = r.Shutdown(t.Context()) }()
	check := func(endpoint string, origins ...string) {
		t.Helper()
		for _, c := range []struct {
			method, host, origin string
			want                 int
		}{
			{"POST", "", "", 200}, {"POST", "localhost:4318", "http://localhost:3000", 200},
			{"POST", "evil.example:4318", "", 403}, {"POST", "evil.example:4318", "http://evil.example:4318", 403},
			{"POST", "", "http://evil.example", 403},
			{"OPTIONS", "", "http://evil.example", 403}, {"GET", "evil.example", "", 403}, {"POST", "", "null", 403},
		} {
			h := make(http.Header)
			if c.origin != "" {
				h.Set("Origin", c.origin)
			}
			if c.method == "OPTIONS" {
				h.Set("Access-Control-Request-Method", "POST")
				if len(origins) > 0 {
					continue // answered by cors itself
				}
			}
			if got, body := post(t, c.method, endpoint, c.host, h); got != c.want ||
				got == 403 && !strings.Contains(body,
					"host_check") {
				t.Errorf("%s as %q from %q: %d %s", c.method, c.host, c.origin, got, body)
			}
		}
		for _, origin := range origins {
			if got, body := post(t, "POST", endpoint, "", http.Header{"Origin": {origin}}); got != 200 {
				t.Errorf("from %q, which cors allows: %d %s", origin, got, body)
			}
		}
	}
	check(r.HTTPEndpoint())

	// A configuration of the user's own is guarded as well.
	endpoint := testscale.MustAddress()
	file := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`
receivers:
  otlp:
    protocols:
      http:
        endpoint: %s
        cors: {allowed_origins: ["https://*.app.example"]}
exporters: {nop: {}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [nop]}}
`, endpoint)
	testscale.WriteFile(t, file, text)
	own := started(t, Options{Config: []string{file}})
	defer func() { _ = own.Shutdown(t.Context()) }()
	check(endpoint, "https://my.app.example")
}

func TestOnlyLoopbackServersAreGuarded(t *testing.T) {
	type object = map[string]any
	guard := []any{object{"id": "host_check"}}
	for _, c := range []struct {
		name      string
		in, want  object // below receivers::otlp/x::protocols
		extension any
		started   any
	}{
		{"loopback", object{"http": object{"endpoint": "127.0.0.1:1"}},
			object{"http": object{"endpoint": "127.0.0.1:1", "middlewares": guard}}, object{}, []any{"host_check"}},
		{"default", object{"http": nil}, object{"http": object{"middlewares": guard}}, object{}, []any{"host_check"}},
		{"other middlewares", object{"http": object{"middlewares": []any{object{"id": "limit"}}}},
			object{"http": object{"middlewares": []any{object{"id": "host_check"}, object{"id": "limit"}}}}, object{},
			[]any{"host_check"}},
		{"has one", object{"http": object{"middlewares": []any{object{"id": "host_check/my"}}}},
			object{"http": object{"middlewares": []any{object{"id": "host_check/my"}}}}, nil, nil},
		{"every address", object{"http": object{"endpoint": "0.0.0.0:4318"}},
			object{"http": object{"endpoint": "0.0.0.0:4318"}}, nil, nil},
		{"another machine", object{"http": object{"endpoint": "10.1.2.3:4318"}},
			object{"http": object{"endpoint": "10.1.2.3:4318"}}, nil, nil},
		{"gRPC", object{"grpc": nil}, object{"grpc": nil}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := confmap.NewFromStringMap(object{"receivers": object{"otlp/x": object{"protocols": c.in}}})
			testscale.Must(t, (loopbackConverter{}).Convert(t.Context(), conf))
			if d := cmp.Diff(c.want, conf.Get("receivers::otlp/x::protocols")); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]any{c.extension, c.started},
				[]any{conf.Get("extensions::host_check"), conf.Get("service::extensions")}); d != "" {
				t.Error(d)
			}
		})
	}
}
