//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

const root = "../.."

// TestCompose runs what docker-compose.yml starts, and sends it one run of the demo agent. The run is a trace in Jaeger
// and where Tempo is, and sessions in the store. All have the same turns and tool calls, by id, and links lead from one
// to the other, for those who have signed in. The picture of the README shows both.
func TestCompose(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, binary := compose(t), jaegerBinary(t, ctx)
	j, tempo := c.startJaeger(t, ctx, binary), c.startTempo(t, ctx, binary)
	stop := c.startCollector(t, ctx)
	result := runAgent(t, ctx, c.local("collector", "localhost:4317"))
	stop() // which delivers everything
	path := c.path("collector", "/var/lib/agenttrace/sessions.db")

	spans := jaegerSpans(t, ctx, j, result.TraceIDs)
	if diff := cmp.Diff(spanLines(spans), spanLines(jaegerSpans(t, ctx, tempo, result.TraceIDs))); diff != "" {
		t.Errorf("spans (-in Jaeger +where Tempo is):\n%s", diff)
	}
	reader, err := sqlite.OpenReader(ctx, path)
	testscale.Must(t, err)
	defer reader.Close()
	for _, id := range append([]string{result.SessionID}, result.ChildSessionIDs...) {
		transcript := storetest.Transcript(t, reader, id)
		for _, v := range session.Check(transcript) {
			t.Errorf("session %s: %s", id, v)
		}
		compareFile(t, filesBeside(path), transcript)
	}
	compareExport(t, ctx, binary, reader, append([]string{result.SessionID}, result.ChildSessionIDs...), result.TraceIDs,
		spans)
	if turns, calls := operations(spans); turns < 4 || calls < 10 {
		t.Errorf("compared %d turns and %d tool calls; the demo has more", turns, calls)
	}
	if services, err := get(ctx, j.query+"/api/services"); err != nil || bytes.Contains(services, []byte(`"jaeger"`)) {
		t.Errorf("Jaeger has traces of itself: %s, %v", services, err)
	}
	c.startCollector(t, ctx)
	b := c.checkLinks(t, ctx, j, result.SessionID, spans)
	c.takePicture(t, ctx, j, b, result.TraceIDs[0], result.SessionID)
}

// TestJaegerOfLogs sends the log records of Codex to our collector. What Jaeger has of them equals the session's rows.
func TestJaegerOfLogs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	binary := jaegerBinary(t, ctx)
	j := compose(t).startJaeger(t, ctx, binary)
	path := filepath.Join(t.TempDir(), "sessions.db")
	c, err := collector.Start(ctx, collector.Options{Store: path, OTLPEndpoint: j.otlp})
	for _, name := range []string{"001-logs.json", "006-logs.json"} {
		var body []byte
		if err == nil {
			body, err = os.ReadFile(root + "/session/ingest/testdata/captures/codex-cli-0.169.0/exec-shell/" + name)
		}
		if err == nil {
			_, err = http.Post("http://"+c.HTTPEndpoint()+"/v1/logs", "application/json", bytes.NewReader(body))
		}
	}
	if err != nil || c.Shutdown(ctx) != nil { // a turn that has ended is sent at once
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(ctx, path)
	testscale.Must(t, err)
	defer reader.Close()
	s, err := formats.Read(ctx, reader, "01a1fa2f-1e4a-7b31-a55d-4564d5182253")
	testscale.Must(t, err)
	spans, tokens := jaegerSpans(t, ctx, j, s.Traces), ""
	for _, span := range spans {
		tokens += span.tag("tokens")
	}
	compareExport(t, ctx, binary, reader, []string{s.Session.ID}, s.Traces, spans)
	if turns, calls := operations(spans); turns != 1 || calls != 1 || tokens != fmt.Sprint(s.Session.TotalTokens) {
		t.Errorf("Jaeger has %d turns, %d calls and %s tokens", turns, calls, tokens)
	}
}

// runAgent runs the demo agent with a collector, and returns when that has everything.
func runAgent(t *testing.T, ctx context.Context, endpoint string) codeagent.Result {
	t.Helper()
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint))
	testscale.Must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "codeagent"))))
	result, err := codeagent.Run(ctx, codeagent.Config{TracerProvider: provider})
	if err != nil {
		t.Error(err)
	}
	if !result.TestsPass {
		t.Error("the agent did not fix the failing test")
	}
	testscale.Must(t, provider.Shutdown(ctx))
	return result
}

// jaegerSpan is a span in the response of Jaeger's query API.
type jaegerSpan struct {
	TraceID       string `json:"traceID"`
	SpanID        string `json:"spanID"`
	OperationName string `json:"operationName"`
	StartTime     int64  `json:"startTime"` // in microseconds, as the duration
	Duration      int64  `json:"duration"`
	References    []struct {
		SpanID string `json:"spanID"`
	} `json:"references"`
	Tags []struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	} `json:"tags"`
}

func (s jaegerSpan) tag(key string) string {
	for _, t := range s.Tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

func jaegerSpans(t *testing.T, ctx context.Context, j jaeger, traces []string) []jaegerSpan {
	t.Helper()
	var all []jaegerSpan
	for _, trace := range traces {
		body, err := get(ctx, j.query+"/api/traces/"+trace)
		testscale.Must(t, err)
		var reply struct {
			Data []struct {
				Spans []jaegerSpan `json:"spans"`
			} `json:"data"`
		}
		testscale.Must(t, json.Unmarshal(body, &reply))
		for _, d := range reply.Data {
			all = append(all, d.Spans...)
		}
	}
	return all
}

// compareExport sends what is exported of the sessions to another Jaeger, which must have the same spans as the one
// that the agent's were sent to.
func compareExport(t *testing.T, ctx context.Context, binary string, reader store.Reader, ids, traces []string,
	sent []jaegerSpan) {
	t.Helper()
	other := compose(t).startJaeger(t, ctx, binary)
	conn, err := grpc.NewClient(other.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testscale.Must(t, err)
	defer conn.Close()
	for _, id := range ids {
		s, err := formats.Read(ctx, reader, id)
		testscale.Must(t, err)
		var spans bytes.Buffer
		testscale.Must(t, formats.Named("otlp-proto", nil).Stream(&spans)(&formats.Source{Session: s}))
		request := ptraceotlp.NewExportRequest()
		testscale.Must(t, request.UnmarshalProto(spans.Bytes()))
		if _, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(spanLines(sent), spanLines(jaegerSpans(t, ctx, other, traces))); diff != "" {
		t.Errorf("spans in Jaeger (-sent by the agent +exported):\n%s", diff)
	}
}

// spanLines are what identifies and measures spans and the contents of turns and calls, a line for each, in order.
func spanLines(spans []jaegerSpan) (all []string) {
	for _, s := range spans {
		if strings.HasPrefix(s.OperationName, "log.") {
			continue // a log record, of which only an export makes a span
		}
		line := fmt.Sprint(s.TraceID, " ", s.SpanID, s.References, s.OperationName, " ", s.StartTime, s.Duration)
		for _, key := range []attribute.Key{"span.kind", semconv.ErrorKey, semconv.SessionIDKey,
			semconv.UserMessageIDKey, semconv.AssistantMessageIDKey, semconv.GenAIUsageInputTokensKey, semconv.ToolCallIDKey,
			semconv.PartIDKey, semconv.ToolIDKey, semconv.ToolStateKey, semconv.GenAIToolCallArgumentsKey,
			semconv.GenAIToolCallResultKey} {
			line += fmt.Sprintf(" %s=%s", key, s.tag(string(key)))
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// operations counts turns and tool calls.
func operations(spans []jaegerSpan) (turns, calls int) {
	for _, s := range spans {
		switch s.OperationName {
		case semconv.SpanSessionTurn:
			turns++
		case semconv.SpanToolCall:
			calls++
		}
	}
	return turns, calls
}

// filesBeside is the directory for the JSONL files of the sessions in a store.
func filesBeside(store string) string { return filepath.Join(filepath.Dir(store), "sessions") }

// compareFile requires the session's JSONL file to equal the store. Its name begins with the id.
func compareFile(t *testing.T, dir string, transcript *session.Transcript) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, transcript.Session.ID+"*.jsonl"))
	if err != nil || len(names) != 1 {
		t.Errorf("session %s has files %v, %v; want one", transcript.Session.ID, names, err)
		return
	}
	got := testscale.ReadFile(t, names[0])
	var want bytes.Buffer
	testscale.Must(t, jsonl.Encode(&want, transcript))
	// The file also has the state that a restored session needs, which readers do not return.
	var rows strings.Builder
	for line := range strings.Lines(string(got)) {
		for _, kind := range []string{"session", "message", "part"} {
			if strings.HasPrefix(line, `{"type":"`+kind+`",`) {
				rows.WriteString(line)
			}
		}
	}
	if diff := cmp.Diff(want.String(), rows.String()); diff != "" {
		t.Errorf("%s (-store +file):\n%s", names[0], diff)
	}
}
