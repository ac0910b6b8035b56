package collector

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// envCollect makes the test binary the collector; see TestMain.
const envCollect = "AGENTTRACE_TEST_COLLECT"

// TestMain runs the tests, or the collector for the tests that kill one.
func TestMain(m *testing.M) {
	debug.SetGCPercent(100) // garbage counts where memory is limited
	if os.Getenv(envCollect) != "" {
		if err := Command("test").Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// clean keeps the environment of the user who runs the tests out of them.
func clean(t *testing.T) {
	for _, name := range []string{EnvStore, EnvGRPCEndpoint, EnvHTTPEndpoint, EnvOTLPEndpoint, EnvKeepOTLP,
		"AGENTTRACE_LOG_LEVEL", "AGENTTRACE_MEMORY_MIB", "AGENTTRACE_METRICS_LEVEL"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
}

// Every collector configuration in the repository is one that this collector
// accepts. A configuration is known by its service.
func TestConfigurationsAreValid(t *testing.T) {
	clean(t)
	for name, value := range map[string]string{EnvStore: "sessions.db", "JAEGER_ENDPOINT": "jaeger:4317",
		"TEMPO_ENDPOINT": "tempo:4317"} {
		t.Setenv(name, value)
	}
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != ".." && strings.HasPrefix(name, ".") || name == "node_modules" ||
				name == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var c struct {
			Service struct {
				Pipelines map[string]any
			}
			Exporters map[string]map[string]any
		}
		// Jaeger's configurations have the same shape, with components of its own.
		if yaml.Unmarshal(b, &c) != nil || len(c.Service.Pipelines) == 0 ||
			strings.Contains(string(b), "jaeger_storage") {
			return nil
		}
		found++
		t.Run(path, func(t *testing.T) {
			if _, ok := c.Exporters["session"]["dsn"]; ok {
				t.Setenv(EnvStore, "postgres://agenttrace@localhost/agenttrace")
			}
			if err := Validate(t.Context(), Options{Config: []string{path}}); err != nil {
				t.Error(err)
			}
		})
		return nil
	})
	testscale.Must(t, err)
	if found < 3 {
		t.Errorf("%d configurations found, want at least the embedded one and those of the compose files", found)
	}
}

func TestValidate(t *testing.T) {
	config := func(t *testing.T, text string) string {
		name := filepath.Join(t.TempDir(), "my.yaml")
		testscale.WriteFile(t, name, text)
		return name
	}
	const minimal = `
receivers: {otlp: {protocols: {grpc: {endpoint: "0.0.0.0:4317"}}}}
exporters: {session: {path: sessions.db}}
service: {pipelines: {traces: {receivers: [otlp], exporters: [session]}}}
`
	for _, tt := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want []string // nothing: valid
	}{
		{name: "no flags"},
		{name: "flags", args: []string{"--store", "a $HOME: b.db", "--grpc-endpoint", "127.0.0.1:1", "--http-endpoint",
			"[::1]:2", "--otlp-endpoint", "jaeger:4317"}},
		{name: "environment", env: map[string]string{EnvStore: "x.db", EnvGRPCEndpoint: "localhost:9",
			EnvOTLPEndpoint: "https://tempo.example:4317"}},
		{name: "a file may listen anywhere", file: minimal},
		{name: "all interfaces", args: []string{"--grpc-endpoint", "0.0.0.0:4317"},
			want: []string{`"0.0.0.0:4317"`, "authenticator", "--config"}},
		{name: "no host", args: []string{"--http-endpoint", ":4318"}, want: []string{`":4318"`, "authenticator"}},
		{name: "all interfaces by environment", env: map[string]string{EnvHTTPEndpoint: "[::]:4318"},
			want: []string{`"[::]:4318"`, "authenticator"}},
		{name: "a name that is not localhost", args: []string{"--grpc-endpoint", "localhost.example:1"},
			want: []string{"authenticator"}},
		{name: "no port", args: []string{"--grpc-endpoint", "localhost"},
			want: []string{`"localhost"`, "localhost:4317"}},
		{name: "second place without port", args: []string{"--otlp-endpoint", "jaeger"},
			want: []string{`"jaeger"`, "localhost:4317"}},
		{name: "second place of another kind", args: []string{"--otlp-endpoint", "ftp://jaeger:1"},
			want: []string{"https://host:port"}},
		{name: "flag beside file", args: []string{"--store", "x.db"}, file: minimal,
			want: []string{`--store "x.db"`, "exporters::session::path"}},
		{name: "unknown component", file: strings.ReplaceAll(minimal, "otlp", "kafka"), want: []string{"kafka"}},
		{name: "invalid value", file: strings.ReplaceAll(minimal, "path: sessions.db", "path: ''"),
			want: []string{"path is empty"}},
		{name: "unknown keys",
			file: strings.ReplaceAll(minimal, "path: sessions.db", "pth: s.db, redaction: {omit: {tool: true}}"),
			want: []string{"my.yaml: exporters::session: ", "has no key pth", "redaction.omit: has no key tool"}},
		{name: "wrong type below a key", file: strings.ReplaceAll(minimal, "sessions.db", "s.db, retention: {max_age: 3m}"),
			want: []string{"my.yaml: exporters::session: retention: max_age: \"3m\" can mean minutes or months"}},
		{name: "tab", file: "receivers:\n\totlp:", want: []string{"my.yaml: not valid YAML: yaml: line 2"}},
		{name: "no such file", args: []string{"--config", "missing.yaml"}, want: []string{"missing.yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			args := append([]string{"validate"}, tt.args...)
			if tt.file != "" {
				args = append(args, "--config", config(t, tt.file))
			}
			cmd := Command("test")
			cmd.SetArgs(args)
			cmd.SetOut(new(bytes.Buffer))
			cmd.SetErr(new(bytes.Buffer))
			err := cmd.ExecuteContext(t.Context())
			if len(tt.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, text := range tt.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v does not contain %q", err, text)
				}
			}
		})
	}
}

func TestComponentsCommand(t *testing.T) {
	var out bytes.Buffer
	cmd := Command("1.2.3")
	cmd.SetArgs([]string{"components"})
	cmd.SetOut(&out)
	testscale.Must(t, cmd.Execute())
	for _, text := range []string{"version: 1.2.3", "name: session", "name: otlp_grpc", "scheme: env"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("output does not contain %q:\n%s", text, &out)
		}
	}
}

func TestDefaultStore(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for state, want := range map[string]string{
		"":               filepath.Join(home, ".local/state/agenttrace/sessions.db"),
		"relative":       filepath.Join(home, ".local/state/agenttrace/sessions.db"),
		"/var/lib/state": "/var/lib/state/agenttrace/sessions.db",
	} {
		t.Setenv("XDG_STATE_HOME", state)
		if got, err := DefaultStore(); err != nil || got != want {
			t.Errorf("XDG_STATE_HOME=%q: DefaultStore() = %q, %v; want %q", state, got, err, want)
		}
	}
}

func oneRun(id string) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "test")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName(semconv.SpanSessionRun)
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetStartTimestamp(1_795_198_540_000_000_000)
	s.SetEndTimestamp(1_795_198_541_000_000_000)
	s.Attributes().PutStr(string(semconv.SessionIDKey), id)
	s.Attributes().PutStr(string(semconv.AgentKey), "test")
	return td
}

// started returns a collector that runs until the test ends, or is stopped before.
func started(t *testing.T, o Options) *Running {
	t.Helper()
	r, err := Start(t.Context(), o)
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// stop shuts down a collector, or a provider of the SDK.
func stop(t *testing.T, r interface{ Shutdown(context.Context) error }) {
	t.Helper()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// send delivers a request over gRPC and returns when it is acknowledged.
func send(t *testing.T, endpoint string, td ptrace.Traces) error {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testscale.Must(t, err)
	defer conn.Close()
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
	return err
}

// received is an OTLP server that keeps what it gets.
type received struct {
	ptraceotlp.UnimplementedGRPCServer
	traces   chan ptrace.Traces
	requests atomic.Int32
	endpoint string
}

// receiveAt starts a second place until the test ends.
func receiveAt(t *testing.T) *received {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testscale.Must(t, err)
	server, r := grpc.NewServer(), &received{traces: make(chan ptrace.Traces, 100), endpoint: l.Addr().String()}
	ptraceotlp.RegisterGRPCServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return r
}

func (r *received) Export(_ context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	td := ptrace.NewTraces()
	req.Traces().CopyTo(td)
	r.requests.Add(1)
	r.traces <- td
	return ptraceotlp.NewExportResponse(), nil
}

// What is acknowledged is in the store at once, and reaches the second place.
func TestStart(t *testing.T) {
	clean(t)
	second := receiveAt(t)

	path := filepath.Join(t.TempDir(), "deep", "sessions.db")
	r := started(t, Options{Store: path, OTLPEndpoint: second.endpoint})
	defer func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
	}()
	if r.Store() != path || r.Endpoint() == r.HTTPEndpoint() {
		t.Errorf("store %q, endpoints %q and %q", r.Store(), r.Endpoint(), r.HTTPEndpoint())
	}
	testscale.Must(t, send(t, r.Endpoint(), oneRun("ses_1")))
	reader := testscale.Open(t, sqlite.OpenReader, path)
	if s, err := reader.Session(t.Context(), "ses_1"); err != nil || s.Agent != "test" {
		t.Errorf("after the acknowledgement the store has %+v, %v", s, err)
	}
	td := <-second.traces
	if got := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name(); got != semconv.SpanSessionRun {
		t.Errorf("the second place got span %q", got)
	}
	stop(t, r)
	// The store is free for the next writer.
	next, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	testscale.Must(t, next.Close())
}

// A request larger than the 4 MiB that the second place takes goes on in pieces, and
// of a span that is larger by itself the longest values are cut.
func TestForwardedRequestsAreNoLargerThanReceiversTake(t *testing.T) {
	clean(t)
	second := receiveAt(t)
	r := started(t, Options{Store: filepath.Join(t.TempDir(), "sessions.db"),
		OTLPEndpoint: second.endpoint})
	td := oneRun("ses_1")
	all := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	const calls = 20
	for i := range calls {
		s := all.AppendEmpty()
		s.SetName(semconv.SpanToolCall)
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{2, byte(i)})
		s.Attributes().PutStr("session.id", "ses_1")
		s.Attributes().PutStr("tool_call.id", fmt.Sprint("call_", i))
		s.Attributes().PutStr("gen_ai.tool.call.result", strings.Repeat("word ", 200_000))
		if i == 7 {
			s.Attributes().PutStr("gen_ai.tool.call.arguments", `{"text":"`+strings.Repeat("word ", 1_000_000)+`"}`)
		}
	}
	testscale.Must(t, send(t, r.Endpoint(), td))
	stop(t, r)
	close(second.traces)
	got, requests := map[string]int{}, 0
	for td := range second.traces {
		requests++
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if id, ok := s.Attributes().Get("tool_call.id"); ok {
						result, _ := s.Attributes().Get("gen_ai.tool.call.result")
						got[id.Str()] = len(result.Str())
						if input, ok := s.Attributes().Get("gen_ai.tool.call.arguments"); ok &&
							(!json.Valid([]byte(input.Str())) ||
								len(input.Str()) < 500_000) {
							t.Errorf("the input that is too long arrives as %d bytes: %.60s", len(input.Str()),
								input.Str())
						}
					}
				}
			}
		}
	}
	if len(got) != calls || requests < 5 {
		t.Errorf("%d of %d calls arrived in %d requests", len(got), calls, requests)
	}
	for id, n := range got {
		if n != 1_000_000 {
			t.Errorf("the result of %s arrives with %d bytes", id, n)
		}
	}
}

// The command prints where it listens and stops with its context.
func TestCollect(t *testing.T) {
	clean(t)
	grpcAt, httpAt := testscale.MustAddress(), testscale.MustAddress()
	path := filepath.Join(t.TempDir(), "sessions.db")
	cmd := Command("test")
	cmd.SetArgs([]string{"--store", path, "--grpc-endpoint", grpcAt, "--http-endpoint", httpAt})
	out, in := io.Pipe()
	cmd.SetErr(in)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- cmd.ExecuteContext(ctx)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no flags: %v, %v", err, <-done)
	}
	if want := fmt.Sprintf("accepting OTLP on %s (gRPC) and %s (HTTP), storing sessions in %s\n", grpcAt, httpAt,
		path); line != want {
		t.Errorf("printed %q, want %q", line, want)
	}
	if err := send(t, grpcAt, oneRun("ses_1")); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A start that its context ends leaves nothing behind.
func TestStartCanceled(t *testing.T) {
	clean(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	if r, err := Start(ctx, Options{Store: path}); err == nil {
		// It may have been quicker.
		stop(t, r)
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("Start = %v, want %v", err, context.Canceled)
	}
	r := started(t, Options{Store: path})
	stop(t, r)
}

// A second place that is down holds up nothing: what is acknowledged is stored.
func TestSecondPlaceDown(t *testing.T) {
	clean(t)
	nobody := testscale.MustAddress()
	path := filepath.Join(t.TempDir(), "sessions.db")
	r := started(t, Options{Store: path, OTLPEndpoint: nobody})
	if err := send(t, r.Endpoint(), oneRun("ses_1")); err != nil {
		t.Error(err)
	}
	stop(t, r)
	reader := testscale.Open(t, sqlite.OpenReader, path)
	if _, err := reader.Session(t.Context(), "ses_1"); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	clean(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testscale.Must(t, err)
	defer l.Close()
	path := filepath.Join(t.TempDir(), "sessions.db")
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Store: path, GRPCEndpoint: l.Addr().String()}, "address already in use"},
		{Options{Store: t.TempDir()}, "not a session store"},
		{Options{Store: path, GRPCEndpoint: "0.0.0.0:0"}, "authenticator"},
	} {
		r, err := Start(t.Context(), tt.o)
		if err == nil {
			_ = r.Shutdown(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Start(%+v) = %v, want an error that contains %q", tt.o, err, tt.want)
		}
	}
	// A failed start leaves nothing locked.
	stop(t, started(t, Options{Store: path}))
}

// The fragments that options add change what they name and nothing else.
func TestFragments(t *testing.T) {
	o := Options{Store: "$HOME/${env:X}.db", GRPCEndpoint: "localhost:1", HTTPEndpoint: "localhost:2",
		OTLPEndpoint: "https://tempo.example:3"}
	uris, err := o.resolve()
	testscale.Must(t, err)
	want := []string{
		"yaml:" + strings.Replace(embedded, "exporters:\n  #", "connectors:\n  #", 1),
		`yaml:{"connectors":{"session":{"path":"$$HOME/$${env:X}.db"}},` +
			`"extensions":{"session_view":{"endpoint":"localhost:4320"}},` +
			`"receivers":{"otlp":{"protocols":{"grpc":{"endpoint":"localhost:1"},"http":{"endpoint":"localhost:2"}}}}}`,
		"yaml:" + fmt.Sprintf(forwardYAML, `"tempo.example:3"`, false),
	}
	if d := diff.Diff(want, uris); d != "" {
		t.Errorf("configuration (-want +got):\n%s", d)
	}
}
