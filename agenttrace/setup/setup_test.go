package setup_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a server of OTLP by HTTP that keeps what it receives.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string]string // by path
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{bodies: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies[req.URL.Path] += string(b)
	}))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		r.Close()
	})
	return r
}

// initialize calls Init for a collector by HTTP, unless the variables say otherwise.
func initialize(t *testing.T, url string, variables ...string) func(context.Context) error {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	shutdown, err := setup.Init(t.Context())
	testscale.Must(t, err)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return shutdown
}

// runAgent runs a session as the package documentation shows.
func runAgent(t *testing.T, shutdown func(context.Context) error) {
	t.Helper()
	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{ID: "ses_setup", Agent: "coder"})
	ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{Model: agenttrace.Model{Provider: "p", ID: "m"}})
	ctx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hello"}, agenttrace.TurnOptions{})
	_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
	call.End(agenttrace.ModelResult{}, nil)
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	if carrier["traceparent"] == "" {
		t.Error("the global propagator does not propagate")
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := shutdown(stop); err != nil {
		t.Error(err)
	}
	if err := shutdown(stop); err != nil {
		t.Errorf("the second shutdown reports %v", err)
	}
}

// TestOneCallSendsSessionsAsTheVariablesSay reads what arrives at a server.
func TestOneCallSendsSessionsAsTheVariablesSay(t *testing.T) {
	both := map[string]string{"/v1/traces": "session.turn", "/v1/logs": "agenttrace.message"}
	for variables, want := range map[string]map[string]string{
		"": both,
		"OTEL_METRICS_EXPORTER=otlp": {"/v1/traces": "session.turn", "/v1/logs": "agenttrace.message",
			"/v1/metrics": "gen_ai.client.operation.duration"},
		"OTEL_LOGS_EXPORTER=none":                                              {"/v1/traces": "session.turn"},
		"OTEL_LOGS_EXPORTER=none OTEL_SERVICE_NAME=my-coder":                   {"/v1/traces": "my-coder"},
		"OTEL_LOGS_EXPORTER=none OTEL_TRACES_SAMPLER=parentbased_traceidratio": {"/v1/traces": "ses_setup"},
	} {
		t.Run(variables, func(t *testing.T) {
			r := newReceiver(t)
			runAgent(t, initialize(t, r.URL, strings.Fields(variables)...))
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.bodies) != len(want) {
				t.Errorf("%d signals arrived, want %d", len(r.bodies), len(want))
			}
			for path, text := range want {
				if !strings.Contains(r.bodies[path], text) {
					t.Errorf("%s lacks %s: %q", path, text, r.bodies[path])
				}
			}
		})
	}
}

func TestNothingIsSentWhereNothingIsAskedFor(t *testing.T) {
	for _, variables := range [][]string{
		{"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0"},
		{"OTEL_TRACES_EXPORTER=none", "OTEL_LOGS_EXPORTER=none"},
		{"OTEL_SDK_DISABLED=tRUE", "OTEL_TRACES_EXPORTER=otlp"},
	} {
		r := newReceiver(t)
		shutdown := initialize(t, r.URL, variables...)
		_, run := agenttrace.New(agenttrace.Options{TracerProvider: otel.GetTracerProvider()}).NewSession(t.Context(),
			agenttrace.SessionOptions{Agent: "a"}).StartRun(t.Context(), agenttrace.RunOptions{})
		run.End(nil)
		if err := shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if len(r.bodies) > 0 {
			t.Errorf("%v: %q was sent", variables, r.bodies)
		}
	}
}

// TestACollectorThatIsAwayDoesNotDelayTheStart has nothing at the default endpoint.
func TestACollectorThatIsAwayDoesNotDelayTheStart(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	start := time.Now()
	shutdown, err := setup.Init(t.Context())
	if err != nil || time.Since(start) > 5*time.Second {
		t.Fatalf("Init took %v: %v", time.Since(start), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := shutdown(ctx); err != nil {
		t.Errorf("nothing is queued, and shutdown reports %v", err)
	}
}

func TestVariablesThatCannotBeFollowedAreErrors(t *testing.T) {
	for variable, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon",
		"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json", "OTEL_METRICS_EXPORTER": "prometheus",
		"OTEL_TRACES_SAMPLER_ARG": "half", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "10.0.0.1:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc-web",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
			t.Setenv(variable, value)
			shutdown, err := setup.Init(t.Context())
			if err == nil || !strings.Contains(err.Error(), variable+` is "`+value) || shutdown != nil {
				t.Errorf("err = %v, want one that names %s and %s", err, variable, value)
			}
		})
	}
}
