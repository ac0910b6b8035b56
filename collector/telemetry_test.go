package collector

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestCollectorReportsOnItself: Prometheus reads the collector's metrics where the
// configuration says, with the collector's version, and the log is written as it says.
func TestCollectorReportsOnItself(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	host, port, err := net.SplitHostPort(testscale.MustAddress())
	testscale.Must(t, err)
	config := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: "localhost:0"}}}}
exporters: {session: {path: %q}}
service:
  telemetry:
    logs: {level: info, encoding: json, output_paths: [%q]}
    metrics: {level: normal, readers: [{pull: {exporter: {prometheus: {host: %q, port: %s}}}}]}
  pipelines: {traces: {receivers: [otlp], exporters: [session]}}
`, filepath.Join(dir, "s.db"), filepath.Join(dir, "log"), host, port)
	r := started(t, Options{Config: []string{"yaml:" + config}})
	resp, err := http.Get("http://" + net.JoinHostPort(host, port) + "/metrics")
	testscale.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testscale.Must(t, err)
	for _, want := range []string{"otelcol_process_uptime", `service_version="`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the metrics have no %s:\n%s", want, body)
		}
	}
	stop(t, r)
	log := testscale.ReadFile(t, filepath.Join(dir, "log"))
	for _, want := range []string{`"resource":{`, `"otelcol.component.id":"otlp"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
}
