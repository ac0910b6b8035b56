package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// readProvisioning reads a file of Grafana's provisioning. Fields that are not documented are errors.
func readProvisioning(t *testing.T, name string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readText(t, filepath.Join("grafana", name))))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// Data sources point at services and their ports, and their links at each other or at ports that are published. Nothing
// is downloaded for them when Grafana starts.
func TestDataSources(t *testing.T) {
	var config struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `yaml:"isDefault"`
			JSONData                     struct {
				AuthMethod   string   `yaml:"auth_method"`
				AllowedHosts []string `yaml:"allowedHosts"`
			} `yaml:"jsonData"`
			SecureJSONData struct {
				BearerToken string `yaml:"bearerToken"`
			} `yaml:"secureJsonData"`
			Correlations []struct {
				TargetUID                string `yaml:"targetUID"`
				Label, Description, Type string
				Config                   struct {
					Field  string
					Target map[string]string
				}
			}
		}
	}
	readProvisioning(t, "datasources/datasources.yaml", &config)
	var dashboards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	readProvisioning(t, "dashboards/dashboards.yaml", &dashboards)
	if len(dashboards.Providers) != 1 || dashboards.Providers[0].Type != "file" || config.APIVersion != 1 ||
		dashboards.APIVersion != 1 {
		t.Errorf("data sources have version %d, dashboards are %+v", config.APIVersion, dashboards)
	}
	image := readText(t, "grafana/Dockerfile")
	c := readCompose(t, withSQLite)
	got := make(map[string]string)
	for _, d := range config.Datasources {
		got[d.UID] = d.URL
	}
	want := map[string]string{"sessions": "http://collector:4320", "tempo": "http://tempo:3200",
		"jaeger": "http://jaeger:16686", "prometheus": "http://prometheus:9090"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("data sources (-want +got):\n%s", diff)
	}
	if _, port, _ := net.SplitHostPort(c.Services["jaeger"].Environment["JAEGER_HTTP_LISTEN"]); port != "16686" {
		t.Errorf("jaeger serves on port %s", port)
	}
	for _, d := range config.Datasources {
		if d.UID == "sessions" && (d.SecureJSONData.BearerToken != "$AGENTTRACE_TOKEN" ||
			d.JSONData.AuthMethod != "bearerToken" || !slices.Equal(d.JSONData.AllowedHosts, []string{d.URL})) {
			t.Errorf("sessions: token %q, %+v", d.SecureJSONData.BearerToken, d.JSONData)
		}
		bundled := []string{"jaeger", "tempo", "prometheus"} // with Grafana
		if !slices.Contains(bundled, d.Type) && !strings.Contains(image, "plugins install "+d.Type+" ") ||
			d.Access != "proxy" {
			t.Errorf("%s: type %s is not in the image, or access is %s", d.UID, d.Type, d.Access)
		}
		if len(d.Correlations) == 0 && d.UID != "prometheus" { // a counter is of no session
			t.Errorf("%s: no links to the others", d.UID)
		}
		for _, l := range d.Correlations {
			if l.Label == "" || l.Description == "" || l.Config.Field == "" { // Grafana does not start without them
				t.Errorf("%s: a link lacks its label, description or field: %+v", d.UID, l)
			}
			if l.Type == "external" {
				published(t, c, l.Config.Target["url"])
			} else if got[l.TargetUID] == "" {
				t.Errorf("%s: a link leads to %q, which is no data source", d.UID, l.TargetUID)
			}
		}
	}
	if a, b := c.Services["collector"].Environment, c.Services["grafana"].Environment; a["AGENTTRACE_TOKEN"] == "" ||
		a["AGENTTRACE_TOKEN"] != b["AGENTTRACE_TOKEN"] {
		t.Errorf("the collector wants the token %q, Grafana has %q", a["AGENTTRACE_TOKEN"], b["AGENTTRACE_TOKEN"])
	}
	published(t, c, c.Services["collector"].Environment["AGENTTRACE_TRACE_URL"])
}

// published checks that an address is one of a service on this machine.
func published(t *testing.T, c compose, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Hostname() != "localhost" {
		t.Errorf("%q is not an address on this machine: %v", address, err)
		return
	}
	for _, s := range c.Services {
		if slices.Contains(s.Ports, fmt.Sprintf("127.0.0.1:%s:%[1]s", u.Port())) {
			return
		}
	}
	t.Errorf("%s: nobody publishes port %s", address, u.Port())
}

// panel is a panel of a dashboard, with the fields that the tests use.
type panel struct {
	Title   string
	Targets []struct {
		URL          string
		RootSelector string `json:"root_selector"`
		Columns      []struct{ Selector, Text, Type string }
		Expr         string // of Prometheus
	}
}

// Every panel of the dashboard has figures of the collector of the compose file: its address is answered, and each
// column is in the answer; the metrics that Prometheus is asked for, with the labels, are those that the collector
// publishes.
func TestDashboardShowsSessions(t *testing.T) {
	b := testscale.ReadFile(t, "grafana/dashboards/sessions.json")
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(b, &dashboard); err != nil || len(dashboard.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(dashboard.Panels), err)
	}
	address, metrics := composeCollector(t)
	published := string(fetch(t, "http://"+metrics+"/metrics"))
	now := time.Now().UTC()
	times := strings.NewReplacer("${__from:date:iso}", now.AddDate(-1, 0, 0).Format("2006-01-02T15:04:05.000Z"),
		"${__to:date:iso}", now.Add(time.Minute).Format("2006-01-02T15:04:05.000Z"))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			if target.Expr != "" {
				label := regexp.MustCompile(`by \((\w+)\)`).FindStringSubmatch(target.Expr)[1]
				for _, name := range regexp.MustCompile(`otelcol_\w+`).FindAllString(target.Expr, -1) {
					if !regexp.MustCompile(name + `\{.*\b` + label + `=".*`).MatchString(published) {
						t.Errorf("%s: the collector publishes no %s by %s", p.Title, name, label)
					}
				}
				continue
			}
			rows := query(t, "http://"+address+times.Replace(target.URL), target.RootSelector)
			for _, column := range target.Columns {
				values := 0
				for _, row := range rows {
					if v := selected(row, column.Selector); v != nil {
						values++
						if _, number := v.(float64); number != (column.Type == "number" ||
							column.Type == "timestamp_epoch") {
							t.Errorf("%s: %s is %v, not of type %s", p.Title, column.Selector, v, column.Type)
						}
					}
				}
				if values == 0 {
					t.Errorf("%s: no row has %s", p.Title, column.Selector)
				}
			}
		}
	}
	// Without the token there is nothing.
	resp, err := http.Get("http://" + address + "/api/v1/stats")
	testscale.Must(t, err)
	if resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token the answer is %s", resp.Status)
	}
}

// composeCollector runs the collector of the compose file with some sessions, and returns the addresses of its pages
// and metrics.
func composeCollector(t *testing.T) (view, metrics string) {
	t.Helper()
	dir := t.TempDir()
	view, otlp, metrics := testscale.MustAddress(), testscale.MustAddress(), testscale.MustAddress()
	_, metricsPort, _ := net.SplitHostPort(metrics)
	for name, value := range map[string]string{"AGENTTRACE_VIEW_ENDPOINT": view, "AGENTTRACE_HTTP_ENDPOINT": otlp,
		"AGENTTRACE_GRPC_ENDPOINT": testscale.MustAddress(), "AGENTTRACE_HEALTH_ENDPOINT": testscale.MustAddress(),
		"JAEGER_ENDPOINT": testscale.MustAddress(), "TEMPO_ENDPOINT": testscale.MustAddress(),
		"AGENTTRACE_STORE": filepath.Join(dir, "s.db"), "AGENTTRACE_JSONL": dir, "AGENTTRACE_QUEUE": dir,
		"AGENTTRACE_METRICS_LEVEL": "normal", "AGENTTRACE_METRICS_HOST": "127.0.0.1",
		"AGENTTRACE_METRICS_PORT": metricsPort} {
		t.Setenv(name, value)
	}
	c, err := collector.Start(t.Context(), collector.Options{Config: []string{"collector.yaml"}})
	testscale.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			t.Log(err) // what is forwarded has no receiver here
		}
	})
	captures, err := filepath.Glob("../session/ingest/testdata/captures/*/*/*-traces.json")
	if err != nil || len(captures) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	nanoseconds := regexp.MustCompile(`\b1\d{18}\b`)
	for _, name := range captures[:min(30, len(captures))] {
		text := testscale.ReadFile(t, name)
		// What is older than yesterday is in no counter: the capture is of this minute.
		first, _ := strconv.ParseInt(string(nanoseconds.Find(text)), 10, 64)
		later := time.Now().UnixNano() - first
		text = nanoseconds.ReplaceAllFunc(text, func(digits []byte) []byte {
			at, _ := strconv.ParseInt(string(digits), 10, 64)
			return strconv.AppendInt(nil, at+later, 10)
		})
		resp, err := http.Post("http://"+otlp+"/v1/traces", "application/json", bytes.NewReader(text))
		testscale.Must(t, err)
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", name, resp.Status)
		}
	}
	return view, metrics
}

// fetch returns what is at an address.
func fetch(t *testing.T, address string) []byte {
	t.Helper()
	resp, err := http.Get(address)
	testscale.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, resp.Status, err)
	}
	return body
}

// query asks the API as Grafana's data source does, and returns the rows at a member of the answer.
func query(t *testing.T, address, root string) []any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	testscale.Must(t, err)
	req.Host = "collector:4320"
	req.Header.Set("Authorization", "Bearer agenttrace")
	resp, err := http.DefaultClient.Do(req)
	testscale.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var answer any
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		t.Errorf("%s: %s %.300s", address, resp.Status, body)
		return nil
	}
	found := selected(answer, root)
	if rows, ok := found.([]any); ok {
		return rows
	}
	return []any{found}
}

// selected is the value at a path of names with dots, nil where there is none.
func selected(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}
