package setup_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/setup"
)

func TestAnAgentThatIsKilledKeepsTheTurnsThatEndedASecondBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(sent, setup.SpanBatches()...))
		_, span := provider.Tracer("").Start(t.Context(), "session.turn")
		span.End()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(sent.GetSpans()); n != 1 {
			t.Errorf("%d spans are sent a second after their end, want 1", n)
		}
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// away is an exporter by HTTP whose collector begins to listen at a time.
type away struct {
	*tracetest.InMemoryExporter
	until time.Time
}

func (e away) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if time.Now().Before(e.until) {
		return &url.Error{Op: "Post", URL: "http://localhost:4318/v1/traces", Err: &net.OpError{
			Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	}
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}

func TestACollectorByHTTPThatIsRestartedGetsWhatEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collector := away{tracetest.NewInMemoryExporter(), time.Now().Add(45 * time.Second)}
		provider := sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(setup.CountSpans(collector), setup.SpanBatches()...))
		_, span := provider.Tracer("").Start(t.Context(), "session.turn")
		span.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(collector.GetSpans()); n != 1 {
			t.Errorf("%d spans arrived, want 1", n)
		}
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// tracesServer and logsServer report what comes.
type (
	tracesServer struct {
		ptraceotlp.UnimplementedGRPCServer
		take func(ctx context.Context, n int)
	}
	logsServer struct {
		plogotlp.UnimplementedGRPCServer
		take func(ctx context.Context, n int)
	}
)

func (s *tracesServer) Export(ctx context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	s.take(ctx, r.Traces().SpanCount())
	return ptraceotlp.NewExportResponse(), nil
}

func (s *logsServer) Export(ctx context.Context, r plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	s.take(ctx, r.Logs().LogRecordCount())
	return plogotlp.NewExportResponse(), nil
}

// serveGRPC serves a collector until stop is called.
func serveGRPC(l net.Listener, spans, events func(ctx context.Context, n int)) (stop func()) {
	server := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, &tracesServer{take: spans})
	plogotlp.RegisterGRPCServer(server, &logsServer{take: events})
	go server.Serve(l)
	return server.Stop
}

func TestACollectorMayBeAwayForAMinuteAndNothingIsLost(t *testing.T) {
	listener, limits := listen(t), map[string]chan time.Duration{}
	note := func(signal string) func(context.Context, int) { // how long a request may take
		limits[signal] = make(chan time.Duration, 100)
		return func(ctx context.Context, _ int) {
			deadline, _ := ctx.Deadline()
			limits[signal] <- time.Until(deadline)
		}
	}
	defer serveGRPC(listener, note("spans"), note("live events"))()
	shutdown := initialize(t, "http://"+listener.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
	ctx, run := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder"}).
		StartRun(t.Context(), agenttrace.RunOptions{})
	_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	for signal, requests := range limits { // before shutdown, which has less time
		if got := <-requests; got < 45*time.Second {
			t.Errorf("%s are sent again for %v only", signal, got)
		}
	}
	if err := shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestASessionBehindAProxyThatDoesNotSampleTheRequestIsSent(t *testing.T) {
	collector := newReceiver(t)
	shutdown := initialize(t, collector.URL)
	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
	request := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true,
	}))
	ctx, run := tracer.NewSession(request, agenttrace.SessionOptions{Agent: "coder"}).
		StartRun(request, agenttrace.RunOptions{})
	_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "hi"}, agenttrace.TurnOptions{})
	turn.End(agenttrace.TurnResult{})
	run.End(nil)
	if err := shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	collector.mu.Lock()
	defer collector.mu.Unlock()
	for _, name := range []string{"session.run", "session.turn"} {
		if !strings.Contains(collector.bodies["/v1/traces"], name) {
			t.Errorf("no %s is sent", name)
		}
	}
}
