package sessionview

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/confmap"
)

// Every setting that the README has is read, those of the server and those of the extension.
func TestSettingsAreRead(t *testing.T) {
	c := createDefaultConfig().(*Config)
	if err := confmap.NewFromStringMap(map[string]any{
		"endpoint": "0.0.0.0:4321", "auth": map[string]any{"authenticator": "bearertokenauth"},
		"tls":           map[string]any{"cert_file": "server.crt", "key_file": "server.key"},
		"allowed_hosts": []any{"collector.example"}, "allowed_origins": []any{"https://app.example"},
		"trace_url": "https://jaeger.example/trace/{trace_id}", "no_socket": true,
	}).Unmarshal(c); err != nil {
		t.Fatal(err)
	}
	got := []any{c.Server.NetAddr.Endpoint, c.Server.Auth.HasValue(), c.Server.TLS.Get().CertFile,
		c.Allowed.AllowedHosts,
		c.Allowed.AllowedOrigins, c.TraceURL, c.NoSocket, c.Server.MaxRequestBodySize}
	want := []any{"0.0.0.0:4321", true, "server.crt", []string{"collector.example"}, []string{"https://app.example"},
		"https://jaeger.example/trace/{trace_id}", true, int64(256 << 20)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
