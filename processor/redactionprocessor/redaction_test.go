package redactionprocessor

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
)

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name   string
		config map[string]any
		want   string // empty: valid
	}{
		{"nothing configured", nil, ""},
		{"everything", map[string]any{"keys": []string{"my_secret"}, "allow_keys": []string{"a"}, "disable_keys": false,
			"disable_patterns": true,
			"disable_rules":    []string{"jwt"}, "max_bytes": 1000, "max_depth": 10}, ""},
		{"short key", map[string]any{"keys": []string{"pw"}}, `read key "pw"`},
		{"unknown rule", map[string]any{"disable_rules": []string{"github"}}, `disable rule "github"`},
		{"small limit", map[string]any{"max_bytes": 5}, "max_bytes 5"},
		{"bounded span", map[string]any{"max_span_bytes": 1 << 20}, ""},
		{"small span", map[string]any{"max_span_bytes": 1000}, "max_span_bytes is 1000"},
		{"negative span", map[string]any{"max_span_bytes": -1}, "max_span_bytes is -1"},
		{"negative depth", map[string]any{"max_depth": -5}, "max_depth -5"},
		{"kinds of content", map[string]any{"omit": map[string]any{"prompts": true}},
			"omit it in the SDK or in the session exporter"},
		{"unknown key", map[string]any{"key": []string{"my_secret"}}, "key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := createDefaultConfig()
			err := confmap.NewFromStringMap(c.config).Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want one that contains %q", err, c.want)
			}
		})
	}
}

const (
	token    = "ghp_" + "aZ3kQ9xW7mB2vN5tL8rDhF4jY6cP1sG0uE9o"
	redacted = "[redacted:github-token]"
)

// values are attributes before and after.
func values() (before, after map[string]any) {
	before = map[string]any{
		"session.id": "ses_1", "gen_ai.usage.input_tokens": int64(7), "max_token": int64(9), "ratio": 0.5, "on": true,
		"text": "use " + token, "json": `{"password": "a b", "tokens": 5}`, "db.password": "hunter2",
		"api_key": int64(12345),
		"secret":  1.5, "user.token": int64(12), "password": true,
		"http.request.header.authorization": []any{"Basic YTpi", "x"}, "list": []any{"a", token, int64(1)}, "empty": "",
		"process.command_args": []any{"deploy", "--password", "hunter2", "--yes"},
		"bytes":                []byte("use " + token), "binary": []byte{0xff, 0xfe},
		"credentials": map[string]any{"user": "a"},
		"nested":      map[string]any{"deep": []any{map[string]any{"x-api-key": "k", "n": int64(1)}}},
	}
	after = map[string]any{
		"session.id": "ses_1", "gen_ai.usage.input_tokens": int64(7), "max_token": int64(9), "ratio": 0.5, "on": true,
		"text": "use " + redacted, "json": `{"password": "__REDACTED__", "tokens": 5}`, "db.password": redact.Marker,
		"api_key": redact.Marker, "secret": redact.Marker, "user.token": int64(12), "password": true,
		"http.request.header.authorization": []any{redact.Marker, redact.Marker},
		"list":                              []any{"a", redacted, int64(1)},
		"process.command_args":              []any{"deploy", "--password", redact.Marker, "--yes"},
		"empty":                             "", "bytes": []byte("use " + redacted), "binary": []byte{0xff, 0xfe},
		"credentials": redact.Marker, "nested": map[string]any{
			"deep": []any{map[string]any{"x-api-key": redact.Marker, "n": int64(1)}}},
	}
	return before, after
}

func fill(t *testing.T, maps ...pcommon.Map) {
	t.Helper()
	before, _ := values()
	for _, m := range maps {
		testscale.Must(t, m.FromRaw(before))
	}
}

func check(t *testing.T, maps map[string]pcommon.Map) {
	t.Helper()
	_, after := values()
	for where, m := range maps {
		if d := cmp.Diff(after, m.AsRaw()); d != "" {
			t.Errorf("attributes of %s (-want +got):\n%s", where, d)
		}
	}
}

func TestTraces(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	sink := new(consumertest.TracesSink)
	set := processortest.NewNopSettings(componentType)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	p, err := NewFactory().CreateTraces(t.Context(), set,
		&Config{Redaction: redact.Config{MaxBytes: 1000}}, sink)
	testscale.Must(t, err)
	if !p.Capabilities().MutatesData {
		t.Error("the processor does not report that it changes what it is given")
	}
	testscale.Must(t, p.Start(t.Context(), componenttest.NewNopHost()))
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ss := rs.ScopeSpans().AppendEmpty()
	s := ss.Spans().AppendEmpty()
	e, l := s.Events().AppendEmpty(), s.Links().AppendEmpty()
	maps := map[string]pcommon.Map{
		"the resource": rs.Resource().Attributes(), "the scope": ss.Scope().Attributes(), "the span": s.Attributes(),
		"the event": e.Attributes(), "the link": l.Attributes(),
	}
	for _, m := range maps {
		fill(t, m)
	}
	s.SetName("GET /?q=" + token)
	s.Status().SetMessage("password=hunter2swordfish")
	e.SetName("saw " + token)
	s.TraceState().FromRaw("a=b")
	long := ss.Spans().AppendEmpty()
	long.Attributes().PutStr("text", strings.Repeat("x", 5000))
	testscale.Must(t, p.ConsumeTraces(t.Context(), td))
	check(t, maps)
	if got, want := []string{s.Name(), s.Status().Message(), e.Name(), s.TraceState().AsRaw()},
		[]string{"GET /?q=" + redacted, "password=__REDACTED__", "saw " + redacted, "a=b"}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if v, _ := long.Attributes().Get("text"); len(v.Str()) > 1000 || !strings.HasSuffix(v.Str(),
		"__TRUNCATED__[5000 bytes]") {
		t.Errorf("%d bytes are left of 5000", len(v.Str()))
	}
	testscale.Must(t, p.Shutdown(t.Context()))
	for name, want := range map[string]int64{"values_redacted": 5*12 + 3, "values_truncated": 1} {
		m, err := tel.GetMetric("otelcol_processor_agent_redaction_" + name)
		testscale.Must(t, err)
		if got := m.Data.(metricdata.Sum[int64]).DataPoints[0].Value; got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

func TestLogs(t *testing.T) {
	sink := new(consumertest.LogsSink)
	p, err := NewFactory().CreateLogs(t.Context(), processortest.NewNopSettings(componentType), createDefaultConfig(),
		sink)
	testscale.Must(t, err)
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	sl := rl.ScopeLogs().AppendEmpty()
	text, structured := sl.LogRecords().AppendEmpty(), sl.LogRecords().AppendEmpty()
	maps := map[string]pcommon.Map{
		"the resource": rl.Resource().Attributes(), "the scope": sl.Scope().Attributes(),
		"the record": text.Attributes(),
		"the body":   structured.Body().SetEmptyMap(),
	}
	for _, m := range maps {
		fill(t, m)
	}
	text.Body().SetStr("use " + token)
	testscale.Must(t, p.ConsumeLogs(t.Context(), ld))
	check(t, maps)
	if got := text.Body().Str(); got != "use "+redacted {
		t.Errorf("body %q", got)
	}
	if sink.LogRecordCount() != 2 {
		t.Errorf("%d records came through", sink.LogRecordCount())
	}
	testscale.Must(t, p.Shutdown(t.Context()))
}

func TestASpanThatIsTooLargeIsCutAndNoOther(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.MaxSpanBytes = 1 << 20
	next := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(componentType), config, next)
	testscale.Must(t, err)
	td := ptrace.NewTraces()
	all := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	small := all.AppendEmpty()
	small.Attributes().PutStr("text", strings.Repeat("a", 1<<20-100))
	large := all.AppendEmpty()
	large.Attributes().PutStr("session.id", "ses_1")
	large.Attributes().PutStr("text", strings.Repeat("a", 100<<10))
	parts := large.Attributes().PutEmptySlice("parts")
	for range 4 {
		parts.AppendEmpty().SetStr(`{"id":"prt_1","data":{"text":"` + strings.Repeat("word ", 200<<10) + `"}}`)
	}
	large.Attributes().PutEmptyMap("map").PutEmptyBytes("raw").FromRaw([]byte(strings.Repeat("b", 1<<20)))
	large.Events().AppendEmpty().Attributes().PutStr("stack", strings.Repeat("s", 1<<20))
	large.Links().AppendEmpty().Attributes().PutStr("link", strings.Repeat("s", 1<<20))
	testscale.Must(t, p.ConsumeTraces(t.Context(), td))
	spans := next.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	if v, _ := spans.At(0).Attributes().Get("text"); len(v.Str()) != 1<<20-100 {
		t.Error("a span within the limit was cut")
	}
	if size := (&ptrace.ProtoMarshaler{}).SpanSize(spans.At(1)); size > 1<<20 || size < 1<<18 {
		t.Errorf("the span has %d bytes", size)
	}
	if v, _ := spans.At(1).Attributes().Get("text"); len(v.Str()) != 100<<10 {
		t.Errorf("a short value was cut to %d bytes", len(v.Str()))
	}
	if v, _ := spans.At(1).Attributes().Get("parts"); v.Slice().Len() != 4 ||
		!json.Valid([]byte(v.Slice().At(3).Str())) {
		t.Error("a part is no JSON any more")
	}
}

// Different keys stay different, an id is what the session store makes of it, and the members of a trace state are
// redacted one by one. That no field of the protocol keeps a secret is tested through the collector.
func TestRedactedKeysIDsAndStates(t *testing.T) {
	sink := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(componentType), createDefaultConfig(),
		sink)
	testscale.Must(t, err)
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.TraceState().FromRaw("vendor=" + token + "," + token + "=1,other=ok,token=x")
	m := span.Attributes()
	m.PutStr("k."+token, "1")
	m.PutStr("k."+token[:39]+"X", "2")
	m.PutStr("session.id", token)
	testscale.Must(t, p.ConsumeTraces(t.Context(), td))
	if m.Len() != 3 {
		t.Errorf("attributes %v", m.AsRaw())
	}
	if v, _ := m.Get("session.id"); v.Str() != redacted+"~e66c084457c32182" {
		t.Errorf("session.id %q", v.Str())
	}
	if got, want := span.TraceState().AsRaw(), "other=ok"; got != want {
		t.Errorf("trace state %q, want %q", got, want)
	}
}
