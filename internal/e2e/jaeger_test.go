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
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
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
)

const root = "../.."

// TestJaeger sends one run of the demo agent through our collector with the configuration
// of docker-compose.yml. The run is a trace in Jaeger and sessions in the store. Both
// have the same turns and tool calls, by id, and the ids lead from one to the other.
func TestJaeger(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	binary := jaegerBinary(t, ctx)
	j := startJaeger(t, ctx, binary)
	path, result := runAgent(t, ctx, j.otlp)

	spans := jaegerSpans(t, ctx, j, result.TraceIDs)
	reader, err := sqlite.OpenReader(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var turns, calls int
	for _, id := range append([]string{result.SessionID}, result.ChildSessionIDs...) {
		transcript, err := reader.Transcript(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range session.Check(transcript) {
			t.Errorf("session %s: %s", id, v)
		}
		links, err := reader.SpanRefs(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		compareFile(t, filesBeside(path), transcript)
		turns += compareTurns(t, transcript, spans)
		calls += compareCalls(t, transcript, spans)
		compareLinks(t, id, links, spans)
	}
	compareExport(t, ctx, binary, reader, append([]string{result.SessionID}, result.ChildSessionIDs...), result.TraceIDs,
		spans)
	if turns < 4 || calls < 10 {
		t.Errorf("compared %d turns and %d tool calls; the demo has more", turns, calls)
	}
	// From Jaeger to the session: a trace id identifies a session.
	for _, trace := range result.TraceIDs {
		if got, err := reader.Resolve(ctx, trace); err != nil || got != result.SessionID {
			t.Errorf("Resolve(%s) = %q, %v; want %s", trace, got, err, result.SessionID)
		}
	}
}

// TestJaegerOfLogs sends the log records of Codex to our collector. What Jaeger has of them equals the session's rows.
func TestJaegerOfLogs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	j := startJaeger(t, ctx, jaegerBinary(t, ctx))
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
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s, err := formats.Read(ctx, reader, "01a1fa2f-1e4a-7b31-a55d-4564d5182253")
	if err != nil {
		t.Fatal(err)
	}
	spans, tokens := jaegerSpans(t, ctx, j, s.Traces), ""
	for _, span := range spans {
		tokens += span.tag("tokens")
	}
	turns, calls := compareTurns(t, s.Transcript, spans), compareCalls(t, s.Transcript, spans)
	if turns != 1 || calls != 1 || tokens != fmt.Sprint(s.Session.TotalTokens) {
		t.Errorf("Jaeger has %d turns, %d calls and %s tokens", turns, calls, tokens)
	}
}

// runAgent runs the demo agent with our collector, which forwards its traces to otlp, and
// returns the store when both have everything.
func runAgent(t *testing.T, ctx context.Context, otlp string) (string, codeagent.Result) {
	t.Helper()
	path, endpoint := filepath.Join(t.TempDir(), "sessions.db"), testscale.MustAddress()
	for key, value := range map[string]string{
		"AGENTTRACE_STORE": path, "AGENTTRACE_JSONL": filesBeside(path),
		"AGENTTRACE_GRPC_ENDPOINT": endpoint, "AGENTTRACE_HTTP_ENDPOINT": testscale.MustAddress(),
		"AGENTTRACE_HEALTH_ENDPOINT": testscale.MustAddress(), "AGENTTRACE_VIEW_ENDPOINT": testscale.MustAddress(),
		"JAEGER_ENDPOINT": otlp, "TEMPO_ENDPOINT": otlp, "AGENTTRACE_QUEUE": filepath.Join(filepath.Dir(path), "queue"),
	} {
		t.Setenv(key, value)
	}
	c, err := collector.Start(ctx, collector.Options{Config: []string{filepath.Join(root, "deploy", "collector.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	result, err := codeagent.Run(ctx, codeagent.Config{TracerProvider: provider})
	if err != nil {
		t.Error(err)
	}
	if !result.TestsPass {
		t.Error("the agent did not fix the failing test")
	}
	// Both shut down in order, so everything is delivered.
	if err := provider.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	return path, result
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
		if err != nil {
			t.Fatal(err)
		}
		var reply struct {
			Data []struct {
				Spans []jaegerSpan `json:"spans"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &reply); err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, d := range reply.Data {
			for _, s := range d.Spans {
				// Two pipelines lead to the only server of the test, so a span may be there twice.
				if !seen[s.SpanID] {
					seen[s.SpanID] = true
					all = append(all, s)
				}
			}
		}
	}
	return all
}

// compareTurns requires one session.turn span for every assistant message with a turn, and a user message before it.
func compareTurns(t *testing.T, transcript *session.Transcript, spans []jaegerSpan) int {
	t.Helper()
	var inTrace, inStore []string
	for _, s := range spans {
		if s.OperationName == semconv.SpanSessionTurn && s.tag(string(semconv.SessionIDKey)) == transcript.Session.ID {
			inTrace = append(inTrace,
				s.tag(string(semconv.UserMessageIDKey))+" "+s.tag(string(semconv.AssistantMessageIDKey)))
		}
	}
	user := ""
	for _, m := range transcript.Messages {
		switch {
		case m.Message.Role == session.RoleUser:
			user = m.Message.ID
		case len(m.Parts) > 0 && m.Parts[0].Type != session.TypeCompaction:
			inStore = append(inStore, user+" "+m.Message.ID)
		}
	}
	slices.Sort(inTrace)
	slices.Sort(inStore)
	if diff := cmp.Diff(inTrace, inStore); diff != "" {
		t.Errorf("session %s: turns (-jaeger +store):\n%s", transcript.Session.ID, diff)
	}
	return len(inStore)
}

// compareCalls requires one tool.call span for every tool part, with its input and output.
func compareCalls(t *testing.T, transcript *session.Transcript, spans []jaegerSpan) int {
	t.Helper()
	inTrace, inStore := make(map[string]string), make(map[string]string)
	for _, s := range spans {
		if s.OperationName == semconv.SpanToolCall && s.tag(string(semconv.SessionIDKey)) == transcript.Session.ID {
			inTrace[s.tag(string(semconv.ToolCallIDKey))] = fmt.Sprintf("%s %s %s in %s out %s error %s",
				s.tag(string(semconv.PartIDKey)), s.tag(string(semconv.ToolIDKey)),
				s.tag(string(semconv.ToolStateKey)), s.tag(string(semconv.GenAIToolCallArgumentsKey)),
				s.tag(string(semconv.GenAIToolCallResultKey)), s.tag(string(semconv.ErrorKey)))
		}
	}
	for _, m := range transcript.Messages {
		for _, p := range m.Parts {
			if p.ToolCallID == nil {
				continue
			}
			var data struct {
				Type      string          `json:"type"`
				State     string          `json:"state"`
				Input     json.RawMessage `json:"input"`
				Output    json.RawMessage `json:"output"`
				ErrorText string          `json:"errorText"`
			}
			if err := json.Unmarshal([]byte(p.DataJSON), &data); err != nil {
				t.Fatal(err)
			}
			inStore[*p.ToolCallID] = fmt.Sprintf("%s %s %s in %s out %s error %s", p.ID, data.Type[len("tool-"):],
				data.State,
				data.Input, data.Output, data.ErrorText)
		}
	}
	if diff := cmp.Diff(inTrace, inStore); diff != "" {
		t.Errorf("session %s: tool calls (-jaeger +store):\n%s", transcript.Session.ID, diff)
	}
	return len(inStore)
}

// compareLinks requires every span of the session to be in Jaeger, and every span of our
// scope in Jaeger to be in the session.
func compareLinks(t *testing.T, sessionID string, links []store.SpanRef, spans []jaegerSpan) {
	t.Helper()
	var inTrace, inStore []string
	for _, s := range spans {
		if s.tag(string(semconv.SessionIDKey)) == sessionID {
			inTrace = append(inTrace, s.TraceID+" "+s.SpanID)
		}
	}
	for _, l := range links {
		inStore = append(inStore, l.TraceID+" "+l.SpanID)
	}
	slices.Sort(inTrace)
	slices.Sort(inStore)
	if diff := cmp.Diff(inTrace, inStore); diff != "" {
		t.Errorf("session %s: spans (-jaeger +store):\n%s", sessionID, diff)
	}
}

// compareExport sends what is exported of the sessions to another Jaeger, which must have the same spans as the one
// that the agent's were sent to.
func compareExport(t *testing.T, ctx context.Context, binary string, reader store.Reader, ids, traces []string,
	sent []jaegerSpan) {
	t.Helper()
	other := startJaeger(t, ctx, binary)
	conn, err := grpc.NewClient(other.otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, id := range ids {
		s, err := formats.Read(ctx, reader, id)
		if err != nil {
			t.Fatal(err)
		}
		var spans bytes.Buffer
		if err := formats.Named("otlp-proto", nil).Stream(&spans)(&formats.Source{Session: s}); err != nil {
			t.Fatal(err)
		}
		request := ptraceotlp.NewExportRequest()
		if err := request.UnmarshalProto(spans.Bytes()); err != nil {
			t.Fatal(err)
		}
		if _, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(spans []jaegerSpan) (all []string) {
		for _, s := range spans {
			all = append(all, fmt.Sprintf("%s %s %v %s %d %d %s %s %s", s.TraceID, s.SpanID, s.References, s.OperationName,
				s.StartTime, s.Duration, s.tag("span.kind"), s.tag("error"),
				s.tag(string(semconv.GenAIUsageInputTokensKey))))
		}
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(lines(sent), lines(jaegerSpans(t, ctx, other, traces))); diff != "" {
		t.Errorf("spans in Jaeger (-sent by the agent +exported):\n%s", diff)
	}
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
	got, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := jsonl.Encode(&want, transcript); err != nil {
		t.Fatal(err)
	}
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
