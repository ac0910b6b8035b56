// Package setup sets OpenTelemetry up for an agent in one call:
//
//	shutdown, err := setup.Init(ctx)
//	if err != nil {
//		return err
//	}
//	defer func() { err = errors.Join(err, shutdown(context.WithoutCancel(ctx))) }()
//	tracer := agenttrace.New(agenttrace.Options{LoggerProvider: otel.GetLoggerProvider()})
//
// Package agenttrace imports the API of OpenTelemetry only; this package imports its SDK and
// its exporters. A program that has set them up already needs none of it.
//
// # Sampling
//
// A sampler that decides by trace damages sessions: the runs of a session are in traces of their own, so that some of
// its turns are stored and others are not. [SessionSampler] decides by session. What is not sampled is not stored, has
// no live events and no metrics; permissions, limits and loop detection work as before. A sampler in a collector, such
// as tail_sampling, should decide by the attribute session.id too, or come after the session exporter.
package setup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/agenttrace/agenttrace/semconv"
)

// Init sets the global tracer, logger and meter providers and the propagator, and returns what sends everything
// that is queued and ends them. Call shutdown when the last run has ended. It takes as long as its context has
// time; with a context that has no deadline, it gives up after two and a half seconds in which the collector
// accepted nothing. Its error names the endpoint, and how many of the spans and live events since Init were lost. What
// ends later is lost, which is reported to [otel.Handle] once.
//
// The environment variables of OpenTelemetry configure it, where they are set:
//
//   - OTEL_EXPORTER_OTLP_ENDPOINT and those of single signals; without, http://localhost:4317,
//     where "agenttrace collect" listens. OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _CERTIFICATE and
//     so on, as exporters read them.
//   - OTEL_EXPORTER_OTLP_PROTOCOL, and those of single signals: grpc or http/protobuf. Without,
//     it is http/protobuf for an endpoint with port 4318, and grpc otherwise.
//   - OTEL_TRACES_EXPORTER, OTEL_LOGS_EXPORTER and OTEL_METRICS_EXPORTER: otlp or none. Traces
//     and logs, which are the live events, are sent by default. Metrics are sent only where
//     their exporter or endpoint is set, because "agenttrace collect" does not take them.
//   - OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; parentbased_traceidratio is
//     [SessionSampler], which is that sampler for all but runs of sessions. Without, each
//     session is sent, also one in the trace of a request that is not sampled.
//   - OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_…, OTEL_BLRP_… and OTEL_SDK_DISABLED.
//
// Requests are bounded in bytes, by [BoundSpans] and [BoundLogs]. Nothing waits for a connection. What has ended is
// sent within a second, and a request is repeated for a minute, so that a collector may be restarted, unless
// OTEL_BSP_…, OTEL_BLRP_… and OTEL_EXPORTER_OTLP_TIMEOUT state other times. One that is back is found within a second
// and a half, which shutdown waits for, unless it asked for a longer pause.
func Init(ctx context.Context) (shutdown func(context.Context) error, err error) {
	var ends []func(context.Context) error
	var once sync.Once
	shutdown = func(ctx context.Context) error {
		var errs []error
		once.Do(func() {
			errs = make([]error, len(ends))
			var wg sync.WaitGroup
			for i, end := range ends {
				wg.Go(func() { errs[i] = end(ctx) })
			}
			wg.Wait()
		})
		return errors.Join(errs...)
	}
	if disabled, _ := strconv.ParseBool(strings.ToLower(os.Getenv("OTEL_SDK_DISABLED"))); disabled {
		return shutdown, nil
	}
	// The SDK's default remembers the environment as it was first.
	service, err := resource.New(ctx, resource.WithFromEnv())
	if err == nil {
		service, err = resource.Merge(resource.Default(), service)
	}
	if err != nil {
		otel.Handle(fmt.Errorf("set up telemetry: detect the resource: %w", err)) // the rest of it is there
	}
	spans, events := newDelivery("spans"), newDelivery("live events")
	traces, processor, err := tracerProvider(ctx, service, spans)
	if traces != nil { // after its own Shutdown, spans would be lost without a word
		ends = append(ends, func(ctx context.Context) error { return spans.shutdown(ctx, processor.Shutdown) })
	}
	logs, logsErr := loggerProvider(ctx, service, events)
	if logs != nil {
		ends = append(ends, func(ctx context.Context) error { return events.shutdown(ctx, logs.Shutdown) })
	}
	metrics, metricsErr := meterProvider(ctx, service)
	if metrics != nil {
		ends = append(ends, func(ctx context.Context) error {
			if _, limited := ctx.Deadline(); !limited {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, maxQuiet)
				defer cancel()
			}
			return metrics.Shutdown(ctx)
		})
	}
	if err = errors.Join(err, logsErr, metricsErr); err != nil {
		return nil, errors.Join(fmt.Errorf("set up telemetry: %w", err), shutdown(ctx))
	}
	if traces != nil {
		otel.SetTracerProvider(traces)
	}
	if logs != nil {
		otel.SetLoggerProvider(logs)
	}
	if metrics != nil {
		otel.SetMeterProvider(metrics)
	}
	otel.SetTextMapPropagator(
		propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	return shutdown, nil
}

func tracerProvider(
	ctx context.Context, service *resource.Resource, d *delivery,
) (*sdktrace.TracerProvider, sdktrace.SpanProcessor, error) {
	s, err := signalOf("TRACES", true)
	if !s.on || err != nil {
		return nil, nil, err
	}
	sampler, err := sampler()
	if err != nil {
		return nil, nil, err
	}
	var exporter sdktrace.SpanExporter
	if s.http {
		exporter, err = otlptracehttp.New(ctx, append(when(s.insecure, otlptracehttp.WithInsecure()),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig(retry)))...)
	} else {
		exporter, err = otlptracegrpc.New(ctx, slices.Concat(when(s.insecure, otlptracegrpc.WithInsecure()),
			when(s.patient, otlptracegrpc.WithTimeout(retry.MaxElapsedTime)), []otlptracegrpc.Option{
				otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(retry)),
				otlptracegrpc.WithDialOption(reconnect...)})...)
	}
	if err != nil {
		return nil, nil, err
	}
	d.endpoint = s.endpoint
	processor := spanProcessor{
		sdktrace.NewBatchSpanProcessor(BoundSpans(spanExporter{exporter, d}), spanBatches()...), d,
	}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(service), sdktrace.WithSpanProcessor(processor),
	}
	if sampler != nil {
		options = append(options, sdktrace.WithSampler(sampler))
	}
	return sdktrace.NewTracerProvider(options...), processor, nil
}

// spanBatches are the options of the span processor that no variable sets.
func spanBatches() []sdktrace.BatchSpanProcessorOption {
	unset := func(name string) bool { return os.Getenv(name) == "" }
	return slices.Concat(
		// A burst of tool calls must not fill the queue, which drops silently.
		when(unset("OTEL_BSP_MAX_QUEUE_SIZE"), sdktrace.WithMaxQueueSize(1<<14)),
		// An agent that is killed loses the usage of turns that are not sent yet.
		when(unset("OTEL_BSP_SCHEDULE_DELAY"), sdktrace.WithBatchTimeout(time.Second)),
		when(unset("OTEL_BSP_EXPORT_TIMEOUT"), sdktrace.WithExportTimeout(retry.MaxElapsedTime)),
	)
}

func loggerProvider(
	ctx context.Context, service *resource.Resource, d *delivery,
) (*sdklog.LoggerProvider, error) {
	s, err := signalOf("LOGS", true)
	if !s.on || err != nil {
		return nil, err
	}
	var exporter sdklog.Exporter
	if s.http {
		exporter, err = otlploghttp.New(ctx, append(when(s.insecure, otlploghttp.WithInsecure()),
			otlploghttp.WithRetry(otlploghttp.RetryConfig(retry)))...)
	} else {
		exporter, err = otlploggrpc.New(ctx, slices.Concat(when(s.insecure, otlploggrpc.WithInsecure()),
			when(s.patient, otlploggrpc.WithTimeout(retry.MaxElapsedTime)), []otlploggrpc.Option{
				otlploggrpc.WithRetry(otlploggrpc.RetryConfig(retry)),
				otlploggrpc.WithDialOption(reconnect...)})...)
	}
	if err != nil {
		return nil, err
	}
	// Live events are for people who watch.
	batches := slices.Concat(
		when(os.Getenv("OTEL_BLRP_SCHEDULE_DELAY") == "", sdklog.WithExportInterval(time.Second/4)),
		when(os.Getenv("OTEL_BLRP_EXPORT_TIMEOUT") == "", sdklog.WithExportTimeout(retry.MaxElapsedTime)))
	d.endpoint = s.endpoint
	return sdklog.NewLoggerProvider(sdklog.WithResource(service), sdklog.WithProcessor(logProcessor{
		sdklog.NewBatchProcessor(BoundLogs(logExporter{exporter, d}), batches...), d})), nil
}

func meterProvider(ctx context.Context, service *resource.Resource) (*sdkmetric.MeterProvider, error) {
	s, err := signalOf("METRICS", os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != "")
	if !s.on || err != nil {
		return nil, err
	}
	var exporter sdkmetric.Exporter
	if s.http {
		exporter, err = otlpmetrichttp.New(ctx, when(s.insecure, otlpmetrichttp.WithInsecure())...)
	} else {
		exporter, err = otlpmetricgrpc.New(ctx, when(s.insecure, otlpmetricgrpc.WithInsecure())...)
	}
	if err != nil {
		return nil, err
	}
	return sdkmetric.NewMeterProvider(sdkmetric.WithResource(service),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter))), nil
}

// retry is how requests are repeated that a collector may accept later, such as while it is restarted. The exporters'
// first interval, 5 seconds, is longer than shutdown waits, which has to see within it that a collector is back; and a
// collector may be away for longer than their timeout, 10 seconds.
var retry = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, time.Second / 2, time.Second, time.Minute}

// reconnect has requests wait for a connection, and bounds how long gRPC waits between attempts to connect, by itself up
// to two minutes, and for an answer to one, 20 seconds. A program that ends cannot have it try at once: the method of
// gRPC that resets the wait reads a map that is written at the same time.
var reconnect = []grpc.DialOption{
	grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: retry.InitialInterval, Jitter: 0.2, MaxDelay: retry.InitialInterval},
		MinConnectTimeout: 5 * time.Second,
	}),
}

// when returns the option if it applies.
func when[T any](applies bool, option T) []T {
	if applies {
		return []T{option}
	}
	return nil
}

// signal is how traces, logs or metrics are sent.
type signal struct {
	on, http bool
	// endpoint is for messages.
	endpoint string
	// insecure reports that requests go without TLS, also where a variable of the exporters wants it for http://.
	insecure bool
	// patient reports that no variable limits the time of a request.
	patient bool
}

// signalOf reads the environment variables of a signal.
func signalOf(name string, byDefault bool) (s signal, err error) {
	first := func(names ...string) (variable, value string) {
		for _, variable = range names {
			if value = strings.TrimSpace(os.Getenv(variable)); value != "" {
				break
			}
		}
		return variable, value
	}
	switch variable, exporter := first("OTEL_" + name + "_EXPORTER"); exporter {
	case "":
		s.on = byDefault
	case "otlp":
		s.on = true
	case "none":
	default:
		return s, fmt.Errorf("%s is %q: want otlp or none", variable, exporter)
	}
	of := func(what string) (variable, value string) {
		return first("OTEL_EXPORTER_OTLP_"+name+"_"+what, "OTEL_EXPORTER_OTLP_"+what)
	}
	variable, endpoint := of("ENDPOINT")
	u, err := url.Parse(endpoint)
	if s.on && endpoint != "" && (err != nil || u.Host == "") {
		return s, fmt.Errorf("%s is %q: want a URL such as http://localhost:4317", variable, endpoint)
	}
	_, insecure := of("INSECURE")
	s.insecure = endpoint == "" && insecure == "" || err == nil && u.Scheme == "http"
	_, timeout := of("TIMEOUT")
	s.patient = timeout == ""
	switch variable, protocol := of("PROTOCOL"); protocol {
	case "":
		s.http = err == nil && u.Port() == "4318"
	case "grpc":
	case "http/protobuf":
		s.http = true
	default:
		return s, fmt.Errorf("%s is %q: want grpc or http/protobuf", variable, protocol)
	}
	if s.endpoint = "http://localhost:4317"; endpoint != "" && err == nil {
		s.endpoint = u.Redacted()
	} else if s.http {
		s.endpoint = "http://localhost:4318"
	}
	return s, nil
}

// sampler returns the sampler that the environment selects if it is one of this package. Others are those of the SDK,
// which reads the same variables. Its default would drop sessions in requests that a proxy does not sample.
func sampler() (sdktrace.Sampler, error) {
	switch os.Getenv("OTEL_TRACES_SAMPLER") {
	case "":
		return SessionSampler(1), nil
	case "parentbased_traceidratio":
	default:
		return nil, nil
	}
	fraction := 1.0
	if arg := os.Getenv("OTEL_TRACES_SAMPLER_ARG"); arg != "" {
		var err error
		if fraction, err = strconv.ParseFloat(arg, 64); err != nil || !(fraction >= 0 && fraction <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: want a fraction from 0 to 1", arg)
		}
	}
	return SessionSampler(fraction), nil
}

// SessionSampler returns a sampler that keeps a fraction of the sessions, from 0 to 1, each with all of its runs,
// sub-agents and forks, or nothing of it. Every process that uses the same fraction decides alike, because the
// decision depends on the id of the session, or of the one at the top of its parents, alone.
//
// A session.run span is decided by its session, whatever its parent is; all other spans go
// by their parent. A span without a parent that is none of a session, such as that of a
// request, is kept with the same probability, by its trace.
func SessionSampler(fraction float64) sdktrace.Sampler {
	fraction = min(max(fraction, 0), 1)
	return sessionSampler{fraction, sdktrace.ParentBased(sdktrace.TraceIDRatioBased(fraction))}
}

type sessionSampler struct {
	fraction float64
	others   sdktrace.Sampler
}

// ShouldSample implements [sdktrace.Sampler].
func (s sessionSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	id := ""
	if p.Name == semconv.SpanSessionRun {
		for _, kv := range p.Attributes {
			switch kv.Key {
			case semconv.SessionRootIDKey:
				id = kv.Value.AsString()
			case semconv.SessionIDKey:
				id = cmp.Or(id, kv.Value.AsString())
			}
		}
	}
	if id == "" {
		return s.others.ShouldSample(p)
	}
	result := sdktrace.SamplingResult{Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if s.keeps(id) {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

// keeps compares 53 bits of the id's checksum, which a float64 holds exactly, with the fraction.
func (s sessionSampler) keeps(id string) bool {
	sum := sha256.Sum256([]byte(id))
	return float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < s.fraction
}

// Description implements [sdktrace.Sampler].
func (s sessionSampler) Description() string { return fmt.Sprintf("SessionSampler{%g}", s.fraction) }
