package hostcheckextension

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// A request that means another host, or that a page of another host sends, is refused with a text that has the remedy.
func TestRequestsOfOtherHostsAreRefused(t *testing.T) {
	config := &Config{AllowedHosts: []string{"Collector.internal", "*.corp.example", "[fd00::1]"},
		AllowedOrigins: []string{"https://app.example", "https://*.ok.example:8443", "chrome-extension://abc"}}
	ext, err := NewFactory().Create(t.Context(), extensiontest.NewNopSettings(componentType), config)
	testscale.Must(t, err)
	testscale.Must(t, ext.Start(t.Context(), componenttest.NewNopHost()))
	wrap, err := ext.(extensionmiddleware.HTTPServer).GetHTTPHandler(t.Context())
	testscale.Must(t, err)
	handler, err := wrap(t.Context(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	testscale.Must(t, err)
	for _, c := range []struct {
		host, origin string
		refused      string
	}{
		{"localhost:4318", "", ""}, {"LOCALHOST", "", ""}, {"localhost.", "", ""}, {"app.localhost:1", "", ""},
		{"127.0.0.1:4318", "", ""}, {"127.9.9.9", "", ""},
		{"[::1]:4318", "", ""}, {"[::1]", "", ""}, {"[::ffff:127.0.0.1]:1", "", ""},
		{"collector.internal:4318", "", ""},
		{"a.corp.example", "", ""}, {"[fd00::1]:4318", "", ""},
		{"evil.example:4318", "", "host"}, {"", "", "host"}, {"localhost.evil.example", "", "host"},
		{"evil-localhost", "", "host"}, {"127.0.0.1.nip.io", "", "host"},
		{"0.0.0.0:4318", "", "host"}, {"192.168.1.5:4318", "", "host"}, {"2130706433", "", "host"},
		{"corp.example", "", "host"}, {"evilcorp.example", "", "host"}, {"[::2]:1", "", "host"},
		{"localhost@evil.example", "", "host"},
		{"localhost:4318", "http://localhost:3000", ""}, {"localhost:4318", "https://127.0.0.1", ""},
		{"localhost:4318", "http://[::1]:8080", ""}, {"localhost:4318", "https://app.example", ""},
		{"localhost:4318", "https://a.ok.example:8443", ""}, {"localhost:4318", "chrome-extension://abc", ""},
		{"collector.internal:4318", "https://Collector.internal:4318", ""}, // the server's own pages
		{"a.corp.example", "http://a.corp.example", ""},
		{"collector.internal:4318", "http://collector.internal:4319", "origin"},
		{"collector.internal:4318", "http://evil.example://collector.internal:4318", "origin"},
		{"a.corp.example", "http://b.corp.example", "origin"},
		{"localhost:4318", "null", "origin"}, {"localhost:4318", "http://evil.example", "origin"},
		{"localhost:4318", "http://app.example", "origin"}, {"localhost:4318", "https://app.example:444", "origin"},
		{"localhost:4318", "https://ok.example:8443", "origin"}, {"localhost:4318", "file://localhost", "origin"},
		{"localhost:4318", "http://localhost.evil.example", "origin"},
		{"localhost:4318", "chrome-extension://abcd", "origin"},
		{"evil.example:4318", "http://evil.example:4318", "host"}, {"localhost:4318", "::", "origin"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodOptions} {
			r := httptest.NewRequest(method, "/v1/traces", nil)
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if refused := w.Code == http.StatusForbidden; refused != (c.refused != "") ||
				!strings.HasPrefix(w.Body.String(), c.refused) || refused &&
				!strings.Contains(w.Body.String(), "allowed_"+c.refused+"s") {
				t.Errorf("%s of %q from %q: %d %q", method, c.host, c.origin, w.Code, w.Body)
			}
		}
	}
	testscale.Must(t, ext.Shutdown(t.Context()))
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		hosts, origins []string
		want           string
	}{
		{nil, nil, ""}, {[]string{"a.example", "*.b.example", "[::2]", "10.0.0.1"},
			[]string{"*", "https://*.example", "http://a:1"}, ""},
		{[]string{"a.example:80"}, nil, `"a.example:80"`}, {[]string{""}, nil, `""`}, {[]string{"*"}, nil, `"*"`},
		{[]string{"http://a"}, nil, `"http://a"`},
		{nil, []string{"a.example"}, `"a.example"`}, {nil, []string{"https://a/path"}, `"https://a/path"`},
		{nil, []string{"https://*.*"}, `"https://*.*"`},
	} {
		config := NewFactory().CreateDefaultConfig()
		m := map[string]any{"allowed_hosts": c.hosts, "allowed_origins": c.origins}
		err := confmap.NewFromStringMap(m).Unmarshal(config)
		if err == nil {
			err = confmap.Validate(config)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v %v: %v, want %q", c.hosts, c.origins, err, c.want)
		}
	}
}
