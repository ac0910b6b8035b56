//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
)

// composed has services of docker-compose.yml, which it runs without Docker: as processes, with the commands, the
// environments and the files of the compose file. In copies of all these, a path in a container is one below dir, and
// the address of a service is one on loopback.
type composed struct {
	Services map[string]struct {
		Command        []string
		Environment    map[string]string
		Ports, Volumes []string
		Healthcheck    struct{ Test []string }
	}
	dir string
	// addresses are those on loopback, by service and port such as "jaeger:4317".
	addresses map[string]string
}

// compose reads the compose file.
func compose(t *testing.T) *composed {
	t.Helper()
	c := &composed{dir: t.TempDir(), addresses: make(map[string]string)}
	text := testscale.ReadFile(t, filepath.Join(root, "docker-compose.yml"))
	// Variables have their defaults.
	text = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAll(text, []byte("$1"))
	testscale.Must(t, yaml.Unmarshal(text, c))
	return c
}

// address is the address of a service and its port.
func (c *composed) address(service string) string {
	if c.addresses[service] == "" {
		c.addresses[service] = testscale.MustAddress()
	}
	return c.addresses[service]
}

// path is that of a path in the container of a service.
func (c *composed) path(service, path string) string { return filepath.Join(c.dir, service, path) }

// local is a text of a service with paths and addresses of this machine.
func (c *composed) local(service, text string) string {
	var paths []string
	for _, volume := range c.Services[service].Volumes {
		target := strings.Split(volume, ":")[1]
		paths = append(paths, target, c.path(service, target))
	}
	return addresses.ReplaceAllStringFunc(strings.NewReplacer(paths...).Replace(text), func(at string) string {
		host, port, _ := net.SplitHostPort(at)
		if host == "localhost" { // where a browser is, or the container itself
			for name, s := range c.Services {
				if slices.Contains(s.Ports, fmt.Sprintf("127.0.0.1:%s:%[1]s", port)) {
					host = name
				}
			}
		}
		if c.Services[host].Volumes == nil {
			host = service
		}
		return c.address(host + ":" + port)
	})
}

var addresses = regexp.MustCompile(`\b(localhost|0\.0\.0\.0|collector|grafana|jaeger|tempo):\d+\b`)

// mount copies the files that are mounted into the container of a service, and makes its volumes.
func (c *composed) mount(t *testing.T, service string) {
	t.Helper()
	for _, volume := range c.Services[service].Volumes {
		source, target, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
		target = c.path(service, target)
		if !strings.HasPrefix(source, ".") {
			testscale.Must(t, os.MkdirAll(target, 0o700))
			continue
		}
		err := filepath.WalkDir(filepath.Join(root, source), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			to := target + strings.TrimPrefix(path, filepath.Join(root, source))
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			return os.WriteFile(to, []byte(c.local(service, string(text))), 0o600)
		})
		testscale.Must(t, err)
	}
}

// command is one in the container of a service.
func (c *composed) command(ctx context.Context, service, binary string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary)
	for _, arg := range args {
		cmd.Args = append(cmd.Args, c.local(service, arg))
	}
	// Where OpenTelemetry sends by default is a port of the container itself.
	_, metrics, _ := net.SplitHostPort(c.address(service + ":8888"))
	cmd.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address(service+":4317"),
		"AGENTTRACE_METRICS_PORT=" + metrics}
	for name, value := range c.Services[service].Environment {
		cmd.Env = append(cmd.Env, name+"="+c.local(service, value))
	}
	return cmd
}

// start starts a service and returns when it is ready. It runs until stop is called, or the test ends.
func (c *composed) start(t *testing.T, ctx context.Context, service, binary string,
	ready func(context.Context) error) (stop func()) {
	t.Helper()
	c.mount(t, service)
	ctx, cancel := context.WithCancel(ctx)
	cmd := c.command(ctx, service, binary, c.Services[service].Command)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	testscale.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); cancel(); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := ready(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			t.Fatalf("wait for %s: %v", service, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s ended with %v", service, err)
		}
	}
}

// startJaeger starts Jaeger.
func (c *composed) startJaeger(t *testing.T, ctx context.Context, binary string) jaeger {
	t.Helper()
	j := jaeger{c.address("jaeger:4317"), "http://" + c.address("jaeger:16686")}
	c.start(t, ctx, "jaeger", binary, j.ready)
	return j
}

// startTempo starts a Jaeger in the place of Tempo, which no registry of modules has. It has the receivers of Tempo's
// configuration: what receives spans in both is OpenTelemetry's receiver. What else Tempo reads is not tested.
func (c *composed) startTempo(t *testing.T, ctx context.Context, binary string) jaeger {
	t.Helper()
	var config struct{ Distributor struct{ Receivers any } }
	text, err := os.ReadFile(filepath.Join(root, "deploy", "tempo.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	receivers, errJSON := json.Marshal(map[string]any{"receivers": config.Distributor.Receivers})
	if err != nil || errJSON != nil {
		t.Fatal(err, errJSON)
	}
	tempo, like := c.Services["tempo"], c.Services["jaeger"]
	tempo.Command = append(slices.Clip(like.Command), "--config", "yaml:"+string(receivers))
	tempo.Volumes = append(tempo.Volumes, like.Volumes...)
	tempo.Environment = map[string]string{"JAEGER_HTTP_LISTEN": "0.0.0.0:3200", "JAEGER_GRPC_LISTEN": "0.0.0.0:16685"}
	c.Services["tempo"] = tempo
	j := jaeger{c.address("tempo:4317"), "http://" + c.address("tempo:3200")}
	c.start(t, ctx, "tempo", binary, j.ready)
	return j
}

// startCollector starts the collector. It is ready when its health check says so.
func (c *composed) startCollector(t *testing.T, ctx context.Context) (stop func()) {
	t.Helper()
	binary := filepath.Join(c.dir, "agenttrace")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/agenttrace")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return c.start(t, ctx, "collector", binary, func(ctx context.Context) error {
		out, err := c.command(ctx, "collector", binary, c.Services["collector"].Healthcheck.Test[2:]).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// checkLinks follows the links between the session, Jaeger and Grafana, before and after a person has signed in. The
// browser that it returns sees the pages.
func (c *composed) checkLinks(t *testing.T, ctx context.Context, j jaeger, sessionID string,
	spans []jaegerSpan) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testscale.Must(t, err)
	b, pages := &browser{t, ctx, http.Client{Jar: jar}}, "http://"+c.address("collector:4320")
	links := c.links(t, ctx, j, sessionID, spans)
	links[pages+"/s/"+sessionID] = sessionID
	for link := range links {
		if at, _ := b.open(http.MethodGet, link, nil, http.StatusOK); at.Path != "/sign-in" {
			t.Errorf("%s leads to %s before somebody has signed in", link, at)
		}
	}
	form := url.Values{"token": {"wrong"}, "to": {"/s/" + sessionID}}
	b.open(http.MethodPost, pages+"/sign-in", form, http.StatusUnauthorized)
	form.Set("token", c.Services["collector"].Environment["AGENTTRACE_TOKEN"])
	at, page := b.open(http.MethodPost, pages+"/sign-in", form, http.StatusOK)
	if at.Path != "/s/"+sessionID {
		t.Errorf("signing in leads to %s", at)
	}
	for link, id := range links {
		if at, _ := b.open(http.MethodGet, link, nil, http.StatusOK); at.Path != "/s/"+id {
			t.Errorf("%s leads to %s, want session %s", link, at, id)
		}
	}

	toSpan := regexp.MustCompile(`"` + regexp.QuoteMeta(j.query) + `/trace/(\w+)\?uiFind=(\w+)"`)
	found := toSpan.FindAllStringSubmatch(page, -1)
	for _, link := range found {
		if !slices.ContainsFunc(spans, func(s jaegerSpan) bool { return s.TraceID == link[1] && s.SpanID == link[2] }) {
			t.Errorf("%s is no span in Jaeger", link[0])
		}
	}
	if len(found) < 10 {
		t.Errorf("the page of the session has %d links to Jaeger", len(found))
	}
	return b
}

// links are the addresses to which Jaeger and Grafana link the spans of a session and its sub-agents, each with the id
// of the session that it shall lead to.
func (c *composed) links(t *testing.T, ctx context.Context, j jaeger, sessionID string,
	spans []jaegerSpan) map[string]string {
	t.Helper()
	links := make(map[string]string)
	trace := spans[0].TraceID
	page, err := get(ctx, j.query+"/trace/"+trace)
	var ui struct {
		LinkPatterns []struct{ Type, Key, URL string }
	}
	if config := uiConfig.FindSubmatch(page); err != nil || config == nil || json.Unmarshal(config[1], &ui) != nil {
		t.Fatalf("the page of a trace in Jaeger has no configuration: %v", err)
	}
	for _, l := range ui.LinkPatterns {
		if l.Type == "traces" {
			links[strings.ReplaceAll(l.URL, "#{traceID}", trace)] = sessionID
			continue
		}
		for _, s := range spans {
			if value := s.tag(l.Key); value != "" {
				links[strings.ReplaceAll(l.URL, "#{"+l.Key+"}", value)] = s.tag(string(semconv.SessionIDKey))
			}
		}
	}

	c.mount(t, "grafana")
	text, err := os.ReadFile(c.path("grafana", "/etc/grafana/provisioning/datasources/datasources.yaml"))
	if err != nil || !strings.Contains(string(text), "url: "+j.query+"\n") {
		t.Errorf("Grafana does not read %s: %v", j.query, err)
	}
	for _, l := range correlation.FindAllStringSubmatch(string(text), -1) {
		links[l[1]+trace] = sessionID
	}
	if len(links) < 3 {
		t.Errorf("Jaeger and Grafana have %d links", len(links))
	}
	return links
}

var (
	// uiConfig matches the configuration in a page of Jaeger.
	uiConfig = regexp.MustCompile(`JAEGER_CONFIG = (\{.*\});`)
	// correlation matches the address in a link of Grafana's from a trace.
	correlation = regexp.MustCompile(`url: (\S+)\$\$\{traceID\}`)
)

// browser opens pages as a person does: it follows redirects and keeps cookies.
type browser struct {
	t      *testing.T
	ctx    context.Context
	client http.Client
}

// open returns the page at an address, which must have the status, and where it is.
func (b browser) open(method, address string, form url.Values, status int) (at *url.URL, page string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		b.t.Errorf("%s %s: %s, %v; want status %d", method, address, resp.Status, err, status)
	}
	return resp.Request.URL, string(body)
}
