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

// runAgent runs a session as the package documentation shows.
func runAgent(t *testing.T) {
	t.Helper()
	shutdown, err := setup.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
	for _, test := range []struct {
		name string
		env  map[string]string
		want map[string]string
	}{
		{"traces and live events", nil,
			map[string]string{"/v1/traces": "session.turn", "/v1/logs": "agenttrace.message"}},
		{"metrics too", map[string]string{"OTEL_METRICS_EXPORTER": "otlp"}, map[string]string{
			"/v1/traces": "session.turn", "/v1/logs": "agenttrace.message",
			"/v1/metrics": "gen_ai.client.operation.duration"}},
		{"traces only", map[string]string{"OTEL_LOGS_EXPORTER": "none"},
			map[string]string{"/v1/traces": "session.turn"}},
		{"by name of the service", map[string]string{"OTEL_SERVICE_NAME": "my-coder", "OTEL_LOGS_EXPORTER": "none"},
			map[string]string{"/v1/traces": "my-coder"}},
		{"every session", map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
			"OTEL_LOGS_EXPORTER": "none"}, map[string]string{"/v1/traces": "ses_setup"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newReceiver(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			runAgent(t)
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.bodies) != len(test.want) {
				t.Errorf("%d signals arrived, want %d", len(r.bodies), len(test.want))
			}
			for path, want := range test.want {
				if !strings.Contains(r.bodies[path], want) {
					t.Errorf("%s lacks %s: %q", path, want, r.bodies[path])
				}
			}
		})
	}
}

func TestNothingIsSentWhereNothingIsAskedFor(t *testing.T) {
	for _, env := range []map[string]string{
		{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
		{"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"},
	} {
		r := newReceiver(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
		for k, v := range env {
			t.Setenv(k, v)
		}
		shutdown, err := setup.Init(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, run := agenttrace.New(agenttrace.Options{TracerProvider: otel.GetTracerProvider()}).NewSession(t.Context(),
			agenttrace.SessionOptions{Agent: "a"}).StartRun(t.Context(), agenttrace.RunOptions{})
		run.End(nil)
		if err := shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if len(r.bodies) > 0 {
			t.Errorf("%v: %q was sent", env, r.bodies)
		}
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	shutdown, err := setup.Init(t.Context())
	if err != nil || shutdown(t.Context()) != nil {
		t.Errorf("disabled: %v", err)
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
		"OTEL_TRACES_SAMPLER_ARG": "half",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
			t.Setenv(variable, value)
			shutdown, err := setup.Init(t.Context())
			if err == nil || !strings.Contains(err.Error(), value) || shutdown != nil {
				t.Errorf("err = %v, want one that names %s", err, value)
			}
		})
	}
}
