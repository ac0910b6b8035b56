package sessionexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// fakeStore keeps the ids of sessions, with an outbox, and fails when set to.
type fakeStore struct {
	store.Store // nil: what is not below is not called
	mu          sync.Mutex
	apply       func(call int) error // nil never fails
	read        error                // error of Transcript
	calls       int
	sessions    map[string]int // number of batches applied per session
	outbox      map[string]int64
	closed      int
}

func newFakeStore() *fakeStore {
	return &fakeStore{sessions: make(map[string]int), outbox: make(map[string]int64)}
}

func (s *fakeStore) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.apply != nil {
		if err := s.apply(s.calls); err != nil {
			return store.Result{}, err
		}
	}
	for _, c := range b.Sessions {
		s.sessions[c.ID]++
		s.outbox[c.ID] = time.Now().UnixMilli()
	}
	return store.Result{Rows: int64(len(b.Sessions))}, nil
}

func (s *fakeStore) Decisions(context.Context, string) ([]store.Decision, error) { return nil, nil }
func (s *fakeStore) Origin(context.Context, *store.Imported) error               { return nil }
func (s *fakeStore) Sessions(context.Context, store.SessionQuery) iter.Seq2[session.Session, error] {
	return func(func(session.Session, error) bool) {}
}
func (s *fakeStore) Stats(context.Context, store.StatsQuery) (store.Stats, error) {
	return store.Stats{}, nil
}
func (s *fakeStore) Delete(context.Context, string) error { return nil }
func (s *fakeStore) Annotations(context.Context, ...string) ([]store.Annotation, error) {
	return nil, nil
}
func (s *fakeStore) Blob(_ context.Context, kind store.BlobKind, digest string) (store.Blob, error) {
	return store.Blob{}, fmt.Errorf("%s %s: %w", kind, digest, store.ErrNotFound)
}

func (s *fakeStore) Transcript(_ context.Context, id string) (*session.Transcript, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read != nil {
		return nil, s.read
	}
	if s.sessions[id] == 0 {
		return nil, store.ErrNotFound
	}
	return &session.Transcript{Session: session.Session{ID: id, Agent: "test", Title: fmt.Sprint(s.sessions[id])}}, nil
}

func (s *fakeStore) Outbox(context.Context) (map[string]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.outbox), nil
}

func (s *fakeStore) Exported(_ context.Context, id string, at int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outbox[id] <= at {
		delete(s.outbox, id)
	}
	return nil
}

func (s *fakeStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *fakeStore) due() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outbox)
}

func (s *fakeStore) open(context.Context, string, stores.Options) (store.Store, error) {
	return s, nil
}

// hostRecorder remembers the statuses that a component reports.
type hostRecorder struct {
	component.Host
	mu       sync.Mutex
	statuses []componentstatus.Status
}

func (h *hostRecorder) Report(e *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses = append(h.statuses, e.Status())
}

// runs is a request with one session.run span per id.
func runs(ids ...string) ptrace.Traces {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	for i, id := range ids {
		s := ss.Spans().AppendEmpty()
		s.SetName(semconv.SpanSessionRun)
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{1, byte(i)})
		s.SetStartTimestamp(1_795_198_540_000_000_000)
		s.SetEndTimestamp(1_795_198_541_000_000_000)
		s.Attributes().PutStr(string(semconv.SessionIDKey), id)
		s.Attributes().PutStr(string(semconv.AgentKey), "test")
	}
	return td
}

func testConfig(t *testing.T) *Config {
	c := createDefaultConfig().(*Config)
	c.Path = filepath.Join(t.TempDir(), "sessions.db")
	return c
}

// bubbleConfig is for use in a synctest bubble, where the queue cannot go: it
// keeps its channels in a pool that all tests share.
func bubbleConfig(t *testing.T) *Config {
	c := testConfig(t)
	c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	return c
}

func tracesOf(t *testing.T, f exporter.Factory, set exporter.Settings, c *Config) exporter.Traces {
	t.Helper()
	e, err := f.CreateTraces(t.Context(), set, c)
	testscale.Must(t, err)
	return e
}

// both makes the exporters of c for traces and for logs.
func both(t *testing.T, f exporter.Factory, set exporter.Settings, c *Config) (exporter.Traces, exporter.Logs) {
	t.Helper()
	logs, err := f.CreateLogs(t.Context(), set, c)
	testscale.Must(t, err)
	return tracesOf(t, f, set, c), logs
}

func begin(t *testing.T, all ...component.Component) {
	t.Helper()
	for _, e := range all {
		testscale.Must(t, e.Start(t.Context(), componenttest.NewNopHost()))
	}
}

func end(t *testing.T, all ...component.Component) {
	t.Helper()
	for _, e := range all {
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// deliver sends runs of sessions to an exporter.
func deliver(t *testing.T, e exporter.Traces, ids ...string) {
	t.Helper()
	testscale.Must(t, e.ConsumeTraces(t.Context(), runs(ids...)))
}

// start makes and starts the traces exporter of c. It is shut down with the test.
func start(t *testing.T, open openFunc, c *Config, set exporter.Settings, host component.Host) exporter.Traces {
	t.Helper()
	e := tracesOf(t, newFactory(open), set, c)
	testscale.Must(t, e.Start(t.Context(), host))
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e
}

func nop() exporter.Settings { return exportertest.NewNopSettings(componentType) }

func TestFactory(t *testing.T) {
	f := NewFactory()
	if got, want := f.Type().String(), "session"; got != want {
		t.Errorf("type %q, want %q", got, want)
	}
	if got := f.MetricsStability(); got != component.StabilityLevelUndefined {
		t.Errorf("metrics stability %v, want undefined: the exporter has no use for metrics", got)
	}
	if _, err := f.CreateMetrics(t.Context(), nop(), f.CreateDefaultConfig()); err == nil {
		t.Error("a metrics exporter was made")
	}
}

func TestLifecycle(t *testing.T) {
	f, c := NewFactory(), testConfig(t)
	for range 2 { // the second time on a store that is there
		traces, logs := both(t, f, nop(), c)
		if traces.Capabilities().MutatesData || logs.Capabilities().MutatesData {
			t.Error("the exporter reports that it changes what it is given")
		}
		begin(t, traces, logs)
		td, ld := runs("a"), plog.NewLogs()
		ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("hello")
		td.MarkReadOnly()
		ld.MarkReadOnly()
		if err := errors.Join(traces.ConsumeTraces(t.Context(), td), logs.ConsumeLogs(t.Context(), ld)); err != nil {
			t.Error(err)
		}
		end(t, traces, logs)
	}
}

// Traces and logs of one component share a store; another component does not.
func TestShareStore(t *testing.T) {
	var opened []*fakeStore
	f := newFactory(func(context.Context, string, stores.Options) (store.Store, error) {
		s := newFakeStore()
		opened = append(opened, s)
		return s, nil
	})
	a, b := testConfig(t), testConfig(t)
	var all []component.Component
	for _, c := range []*Config{a, b} {
		traces, logs := both(t, f, nop(), c)
		all = append(all, traces, logs)
	}
	for _, e := range all {
		begin(t, e)
	}
	if len(opened) != 2 {
		t.Fatalf("%d stores were opened, want 2", len(opened))
	}
	for i, e := range all {
		end(t, e)
		// The store outlives all but the last exporter that writes to it.
		if got, want := opened[i/2].closed, i%2; got != want {
			t.Errorf("after shutdown %d its store was closed %d times, want %d", i, got, want)
		}
	}
}

// The helper around the exporter panics when it is shut down twice with retries on; what is ours does not.
func TestDoubleShutdown(t *testing.T) {
	s := newFakeStore()
	f := &factory{open: s.open, sinks: make(map[*Config]*sink)}
	c := testConfig(t)
	var all []*sessionExporter
	for range 2 {
		e, _, err := f.exporterOf(c, new(nop()))
		testscale.Must(t, err)
		testscale.Must(t, e.start(t.Context(), componenttest.NewNopHost()))
		all = append(all, e)
	}
	for i, want := range []int{0, 0, 1, 1} {
		testscale.Must(t, all[i/2].shutdown(t.Context()))
		if s.closed != want {
			t.Errorf("after shutdown %d the store was closed %d times, want %d", i, s.closed, want)
		}
	}
	if len(f.sinks) != 0 {
		t.Errorf("the factory still holds %d stores", len(f.sinks))
	}
}

func TestShutdownWithoutStart(t *testing.T) {
	f := newFactory(func(context.Context, string, stores.Options) (store.Store, error) {
		t.Error("a store was opened")
		return newFakeStore(), nil
	})
	c := testConfig(t)
	traces, logs := both(t, f, nop(), c)
	end(t, traces, logs)
}

func TestStartFails(t *testing.T) {
	c := testConfig(t)
	start(t, stores.Open, c, nop(), componenttest.NewNopHost())
	again := *c
	e := tracesOf(t, NewFactory(), nop(), &again)
	if err := e.Start(t.Context(), componenttest.NewNopHost()); !errors.Is(err, store.ErrLocked) {
		t.Errorf("Start = %v, want %v", err, store.ErrLocked)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown after a failed start: %v", err)
	}
}

// The four ways a store can behave: every request that was acknowledged is stored, whatever is not may be sent again,
// and permanent failures are not retried.
func TestConsume(t *testing.T) {
	permanent := errors.New("row is beyond repair")
	unavailable := fmt.Errorf("disk full: %w", store.ErrUnavailable)
	for _, tt := range []struct {
		name  string
		apply func(r *rand.Rand) error
	}{
		{"always stored", func(*rand.Rand) error { return nil }},
		{"unavailable at random", func(r *rand.Rand) error {
			if r.IntN(2) == 0 {
				return unavailable
			}
			return nil
		}},
		{"permanent at random", func(r *rand.Rand) error {
			if r.IntN(2) == 0 {
				return permanent
			}
			return nil
		}},
		{"both at random", func(r *rand.Rand) error {
			return []error{nil, unavailable, permanent}[r.IntN(3)]
		}},
	} {
		for _, queue := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s queue=%v", tt.name, queue), func(t *testing.T) {
				s, random := newFakeStore(), rand.New(rand.NewPCG(1, 2))
				s.apply = func(int) error { return tt.apply(random) }
				c := testConfig(t)
				c.RetryConfig.InitialInterval = time.Millisecond
				c.RetryConfig.MaxInterval = time.Millisecond
				if !queue {
					c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
				}
				e := start(t, s.open, c, nop(), componenttest.NewNopHost())
				const n = 50
				errs := make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() { errs[i] = e.ConsumeTraces(t.Context(), runs(fmt.Sprint("s", i))) })
				}
				wg.Wait()
				for i, err := range errs {
					times := s.sessions[fmt.Sprint("s", i)]
					switch {
					case err == nil && times != 1:
						t.Errorf("request %d was acknowledged and stored %d times", i, times)
					case err != nil && !consumererror.IsPermanent(err):
						t.Errorf("request %d was given up: %v", i, err)
					case err != nil && times != 0:
						t.Errorf("request %d failed and was stored", i)
					}
				}
			})
		}
	}
}

// A scope that no dialect knows is logged once, and once more with its counts when the exporter stops.
func TestUnknownScopeIsLoggedOnceAndCounted(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	set := nop()
	set.Logger = zap.New(core)
	s := newFakeStore()
	e := tracesOf(t, newFactory(s.open), set, testConfig(t))
	begin(t, e)
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	for range 3 {
		td := runs("known")
		for name, attrs := range map[string][2]string{
			"acme-sdk " + secret: {"acme.prompt", "acme.completion"},
			"http-client":        {"http.request.method", "url.path"},
		} {
			ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			ss.Scope().SetName(name)
			ss.Scope().SetVersion("3.1.4")
			for range 2 {
				span := ss.Spans().AppendEmpty()
				span.SetTraceID(pcommon.TraceID{2})
				span.SetSpanID(pcommon.SpanID{2})
				span.Attributes().PutStr(attrs[0], "Weather in Oslo?")
				span.Attributes().PutStr(attrs[1], "It is 4 C.")
			}
		}
		testscale.Must(t, e.ConsumeTraces(t.Context(), td))
	}
	end(t, e)
	all := logs.All()
	if len(all) != 2 {
		t.Fatalf("%d log lines, want one when it is seen first and one at the end: %v", len(all), all)
	}
	for i, spans := range []int64{2, 6} {
		fields := all[i].ContextMap()
		if !strings.HasPrefix(fmt.Sprint(fields["scope"]), "acme-sdk ") || fields["version"] != "3.1.4" ||
			fields["spans"] != spans || fields["read"] != spans {
			t.Errorf("line %d: %v, want acme-sdk 3.1.4 with %d spans", i, fields, spans)
		}
		if strings.Contains(fmt.Sprint(fields), secret) {
			t.Errorf("line %d holds a secret: %v", i, fields)
		}
	}
}

// An attempt that ends with its context is not the fault of the data.
func TestCanceled(t *testing.T) {
	s := newFakeStore()
	c := testConfig(t)
	c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	c.RetryConfig.Enabled = false
	e := start(t, s.open, c, nop(), componenttest.NewNopHost())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := e.ConsumeTraces(ctx, runs("a"))
	if !errors.Is(err, context.Canceled) || consumererror.IsPermanent(err) {
		t.Errorf("error = %v, want a canceled context that is not permanent", err)
	}
	s.apply = func(int) error { return store.ErrClosed }
	if err := e.ConsumeTraces(t.Context(), runs("a")); err == nil || consumererror.IsPermanent(err) {
		t.Errorf("error of a closed store = %v, want one that is not permanent", err)
	}
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		s.apply = func(call int) error {
			if call == 2 || call == 3 {
				return fmt.Errorf("disk full: %w", store.ErrUnavailable)
			}
			return nil
		}
		host := &hostRecorder{Host: componenttest.NewNopHost()}
		e := start(t, s.open, bubbleConfig(t), nop(), host)
		for range 3 {
			deliver(t, e, "a")
		}
		want := []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}
		if diff := cmp.Diff(want, host.statuses); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
	})
}

// An outage is one line, however many requests it refuses, and its end another. What is refused for good is logged as
// before.
func TestOutageIsLoggedOnce(t *testing.T) {
	s, c := newFakeStore(), testConfig(t)
	c.RetryConfig.Enabled = false
	var fail error
	s.apply = func(int) error { return fail }
	core, logs := observer.New(zap.WarnLevel)
	set := nop()
	set.Logger = zap.New(core)
	e := start(t, s.open, c, set, componenttest.NewNopHost())
	got := ""
	for _, fail = range []error{nil, store.ErrUnavailable, store.ErrUnavailable, nil, errors.New("beyond repair")} {
		_ = e.ConsumeTraces(t.Context(), runs("a"))
	}
	for _, l := range logs.All() {
		got += fmt.Sprintln(l.Level, l.Message, l.ContextMap()["error"])
	}
	if diff := cmp.Diff(`error The session store is unavailable: senders are asked to try again. store is unavailable
warn The session store is available again. <nil>
error Exporting failed. Dropping data. Try enabling retry_on_failure config option to retry on retryable errors. Permanent error: store request: beyond repair
error Exporting failed. Rejecting data. Try enabling retry_on_failure config option to retry on retryable errors. Permanent error: store request: beyond repair
`, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// What a session holds must not reach the collector's log, whatever goes wrong.
func TestLogHoldsNoContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "my-password-is-swordfish"
		core, logs := observer.New(zap.DebugLevel)
		set := nop()
		set.Logger = zap.New(core)
		s := newFakeStore()
		s.apply = func(call int) error {
			return []error{store.ErrUnavailable, errors.New("beyond repair")}[(call-1)%2]
		}
		e := start(t, s.open, bubbleConfig(t), set, componenttest.NewNopHost())
		td := runs("a")
		span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		span.Attributes().PutStr(string(semconv.SessionTitleKey), secret)
		span.Attributes().PutStr(string(semconv.SessionMetadataKey), "{"+secret)
		span.Status().SetMessage(secret)
		if err := e.ConsumeTraces(t.Context(), td); err == nil {
			t.Fatal("no error from a store that fails")
		}
		if logs.Len() == 0 {
			t.Error("nothing was logged of a failed request")
		}
		for _, entry := range logs.All() {
			if line := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(line, secret) {
				t.Errorf("logged: %s", line)
			}
		}
	})
}

func TestTelemetry(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	set := measured(tel)
	f := NewFactory()
	c := testConfig(t)
	c.JSONL = configoptional.Some(JSONLConfig{Directory: t.TempDir(), QuietPeriod: time.Hour})
	traces, logs := both(t, f, set, c)
	begin(t, traces, logs)
	td := runs("a", "b")
	scope := td.ResourceSpans().At(0).ScopeSpans().At(0)
	scope.Spans().AppendEmpty().SetName("GET /")    // of no session
	scope.Spans().At(1).SetSpanID(pcommon.SpanID{}) // a problem
	scope.Spans().At(0).Attributes().PutStr(string(semconv.SessionTitleKey), "password=hunter2swordfish")
	scope.Spans().At(1).Attributes().PutStr(string(semconv.SessionTitleKey), strings.Repeat("x", 2<<20))
	testscale.Must(t, traces.ConsumeTraces(t.Context(), td))
	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("hello")
	testscale.Must(t, logs.ConsumeLogs(t.Context(), ld))
	end(t, traces, logs)
	for name, want := range map[string]int64{
		"spans_received": 3, "log_records_received": 1, "items_accepted": 2, "items_ignored": 2, "items_malformed": 1,
		"rows_refused": 0, "jsonl_files": 2, "values_redacted": 1, "values_truncated": 1, "values_omitted": 0,
	} {
		if got := counted(t, tel, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := counted(t, tel, "rows_written"); got < 4 {
		t.Errorf("%d rows written, want at least two sessions and their links", got)
	}
	duration, err := tel.GetMetric("otelcol_exporter_session_write_duration")
	testscale.Must(t, err)
	if got := duration.Data.(metricdata.Histogram[float64]).DataPoints[0].Count; got != 2 {
		t.Errorf("%d writes timed, want 2", got)
	}
}

// What agents use is counted once, although batches are delivered again and the collector starts again, and in a
// bounded number of series.
func TestUsageIsCountedOnce(t *testing.T) {
	c := testConfig(t)
	td := ptrace.NewTraces()
	all := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	const n = maxUsageValues + 20
	for i := range n {
		s := all.AppendEmpty()
		s.SetName("chat")
		s.SetTraceID(pcommon.TraceID{2, byte(i)})
		s.SetSpanID(pcommon.SpanID{2, byte(i)})
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Second)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		s.Attributes().PutStr("gen_ai.operation.name", "chat")
		s.Attributes().PutStr("gen_ai.provider.name", "acme")
		s.Attributes().PutStr("gen_ai.request.model", fmt.Sprintf("m%d", i))
		s.Attributes().PutStr("gen_ai.conversation.id", fmt.Sprintf("c%d", i))
		s.Attributes().PutInt("gen_ai.usage.input_tokens", 100)
		s.Attributes().PutInt("gen_ai.usage.output_tokens", 20)
	}
	for _, want := range []float64{n, 0} { // the second is another process on the same store
		tel := componenttest.NewTelemetry()
		traces, logs := both(t, NewFactory(), measured(tel), c)
		begin(t, traces, logs)
		for range 2 {
			testscale.Must(t, traces.ConsumeTraces(t.Context(), td))
			var tokens, other float64
			if m, err := tel.GetMetric("otelcol_exporter_session_usage_tokens"); err == nil {
				for _, point := range m.Data.(metricdata.Sum[float64]).DataPoints {
					tokens += point.Value
					if model, _ := point.Attributes.Value("model"); model.AsString() == otherUsage {
						other += point.Value
					}
				}
			}
			if tokens != 120*want || other != 120*max(0, want-maxUsageValues) {
				t.Errorf("%v tokens, %v of them of other models, want %v", tokens, other, 120*want)
			}
		}
		end(t, traces, logs)
		_ = tel.Shutdown(t.Context())
	}
}

// measured are the settings of an exporter whose metrics tel takes.
func measured(tel *componenttest.Telemetry) exporter.Settings {
	set := exportertest.NewNopSettings(componentType)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	return set
}

// counted returns the value of a counter.
func counted(t *testing.T, tel *componenttest.Telemetry, name string) int64 {
	t.Helper()
	m, err := tel.GetMetric("otelcol_exporter_session_" + name)
	testscale.Must(t, err)
	return m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
}

// TestTheREADMEListsTheMetrics: every metric is described for those who watch a collector.
func TestTheREADMEListsTheMetrics(t *testing.T) {
	readme := testscale.ReadFile(t, "README.md")
	for line := range strings.Lines(counters) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit, description, _ := strings.Cut(text, " ")
		row := fmt.Sprintf("| `otelcol_exporter_session_%s` | %s | %s |\n", name, unit, description)
		if !bytes.Contains(readme, []byte(row)) {
			t.Errorf("%s is not described", name)
		}
	}
}
