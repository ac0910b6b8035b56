package setup_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
	"github.com/agenttrace/agenttrace/internal/testscale"
)

// listen returns a listener on a free port.
func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testscale.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// collectors that take nothing, by what is wrong with them. Each returns the address of one.
var collectors = map[string]func(t *testing.T, protocol string) string{
	"refused": func(t *testing.T, _ string) string {
		l := listen(t)
		l.Close()
		return l.Addr().String()
	},
	"black hole": func(t *testing.T, _ string) string { // the kernel accepts
		return listen(t).Addr().String()
	},
	"unavailable": func(t *testing.T, protocol string) string {
		l := listen(t)
		if protocol == "grpc" {
			s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				return status.Error(codes.Unavailable, "the disk is full")
			}))
			go s.Serve(l)
			t.Cleanup(s.Stop)
			return l.Addr().String()
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the disk is full", http.StatusServiceUnavailable)
		})}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return l.Addr().String()
	},
}

// work ends a session of seven spans.
func work(t *testing.T) {
	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
	ctx, run := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"}).StartRun(t.Context(),
		agenttrace.RunOptions{})
	for range 3 {
		_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hello"}, agenttrace.TurnOptions{})
		turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
		turn.End(agenttrace.TurnResult{})
	}
	run.End(nil)
}

// TestAProgramWithoutACollectorEndsAndReportsWhatIsLost would hang if shutdown waited for the exporters' timeout.
func TestAProgramWithoutACollectorEndsAndReportsWhatIsLost(t *testing.T) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	defer setup.SetMaxQuiet(50 * time.Millisecond)()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
	own := errors.New("the program's own limit")
	for name, collector := range collectors {
		for _, protocol := range []string{"grpc", "http/protobuf"} {
			for limit, bound := range map[string]func(*testing.T) (context.Context, context.CancelFunc){
				"": func(t *testing.T) (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
				", own limit": func(t *testing.T) (context.Context, context.CancelFunc) {
					return context.WithTimeoutCause(t.Context(), time.Millisecond, own)
				},
			} {
				t.Run(name+", "+protocol+limit, func(t *testing.T) {
					address := collector(t, protocol)
					shutdown := initialize(t, "http://"+address, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)
					work(t)
					ctx, cancel := bound(t)
					defer cancel()
					err := shutdown(ctx)
					if err == nil {
						t.Fatal("shutdown reports success")
					}
					wanted := []string{
						address, "7 of 7 spans are lost", "live events are lost", "OTEL_EXPORTER_OTLP_ENDPOINT",
					}
					if name == "refused" && limit == "" {
						wanted = append(wanted, "connection refused")
					}
					for _, want := range wanted {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("%q does not contain %q", err, want)
						}
					}
					if err := shutdown(t.Context()); err != nil {
						t.Errorf("the second shutdown reports %v", err)
					}
				})
			}
		}
	}
}

func TestAnErrorNamesTheVariableThatIsWrong(t *testing.T) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	defer setup.SetMaxQuiet(2 * time.Second)()
	answer := http.NewServeMux() // 404 of other paths
	answer.HandleFunc("/v1/traces", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, test := range [][3]string{
		{"http://" + collectors["refused"](t, ""), "grpc", "agenttrace collect"},
		{plain.URL, "grpc", "PROTOCOL=http/protobuf"},
		{"https" + plain.URL[4:], "grpc", "ENDPOINT with http://"},
		{"https" + plain.URL[4:], "http/protobuf", "ENDPOINT with http://"},
		{secure.URL, "grpc", "PROTOCOL=http/protobuf"},
		{secure.URL, "http/protobuf", "CERTIFICATE"},
		{"http" + secure.URL[5:], "http/protobuf", "ENDPOINT with https://"},
		{plain.URL, "http/protobuf", "HEADERS"},
		{plain.URL + "/no", "http/protobuf", "ENDPOINT without /v1/traces"},
	} {
		shutdown := initialize(t, test[0], "OTEL_EXPORTER_OTLP_PROTOCOL="+test[1], "OTEL_LOGS_EXPORTER=none",
			"OTEL_EXPORTER_OTLP_INSECURE=false") // the endpoint's scheme takes precedence
		work(t)
		if err := shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), test[2]) {
			t.Errorf("%v: %v", test, err)
		}
	}
}

// counted returns what counts the spans that a collector by HTTP takes, each request after a delay.
func counted(delay time.Duration) (http.HandlerFunc, *atomic.Int64) {
	var spans atomic.Int64
	return func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if request := ptraceotlp.NewExportRequest(); r.URL.Path == "/v1/traces" && request.UnmarshalProto(b) == nil {
			select {
			case <-time.After(delay):
			case <-r.Context().Done():
				return
			}
			spans.Add(int64(request.Traces().SpanCount()))
		}
	}, &spans
}

// TestASlowCollectorGetsEverything answers each request after more than half of what shutdown waits for all.
func TestASlowCollectorGetsEverything(t *testing.T) {
	defer setup.SetMaxQuiet(400 * time.Millisecond)()
	handler, spans := counted(100 * time.Millisecond)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	shutdown := initialize(t, server.URL, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=10")
	for range 10 {
		work(t)
	}
	if err := shutdown(context.WithoutCancel(t.Context())); err != nil || spans.Load() != 70 {
		t.Errorf("%d of 70 spans arrived: %v", spans.Load(), err)
	}
}

// TestACollectorThatIsBackWhenTheProgramEndsGetsEverything has one that begins to listen while exporters wait.
func TestACollectorThatIsBackWhenTheProgramEndsGetsEverything(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		address := collectors["refused"](t, protocol)
		shutdown := initialize(t, "http://"+address, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol,
			"OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BLRP_SCHEDULE_DELAY=1")
		work(t)
		time.Sleep(700 * time.Millisecond)
		l, err := net.Listen("tcp", address)
		testscale.Must(t, err)
		handler, spans := counted(0)
		if protocol == "grpc" {
			defer serveGRPC(l, func(_ context.Context, n int) { spans.Add(int64(n)) }, func(context.Context, int) {})()
		} else {
			server := &http.Server{Handler: handler}
			go server.Serve(l)
			defer server.Close()
		}
		err = shutdown(context.WithoutCancel(t.Context()))
		var late []string
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { late = append(late, err.Error()) }))
		work(t)
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
		if len(late) != 1 || !strings.Contains(late[0], "ended after shutdown") {
			t.Errorf("%s: what ends after shutdown is reported as %q", protocol, late)
		}
		if err != nil || spans.Load() != 7 {
			t.Errorf("%s: %d of 7 spans arrived: %v", protocol, spans.Load(), err)
		}
	}
}

// TestAPartOfARequestThatIsRejectedIsCounted has a collector that takes all but two spans of each request.
func TestAPartOfARequestThatIsRejectedIsCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			return
		}
		answer := ptraceotlp.NewExportResponse()
		answer.PartialSuccess().SetRejectedSpans(2)
		answer.PartialSuccess().SetErrorMessage("too old")
		w.Header().Set("Content-Type", "application/x-protobuf")
		b, _ := answer.MarshalProto()
		_, _ = w.Write(b)
	}))
	t.Cleanup(server.Close)
	shutdown := initialize(t, server.URL)
	work(t)
	if err := shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "2 of 7 spans are lost") {
		t.Errorf("err = %v", err)
	}
}
