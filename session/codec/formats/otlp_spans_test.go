package formats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// otlpSent is what an exporter makes of recorded spans.
func otlpSent(recording agenttracetest.Recording) ptrace.Traces {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName(semconv.ScopeName)
	for _, s := range recording {
		sp := ss.Spans().AppendEmpty()
		sp.SetName(s.Name)
		if sp.SetKind(ptrace.SpanKindInternal); s.Kind == trace.SpanKindClient {
			sp.SetKind(ptrace.SpanKindClient)
		}
		sp.SetTraceID(pcommon.TraceID(s.SpanContext.TraceID()))
		sp.SetSpanID(pcommon.SpanID(s.SpanContext.SpanID()))
		sp.SetParentSpanID(pcommon.SpanID(s.Parent.SpanID()))
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(s.Start))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(s.End))
		if s.Status == codes.Error {
			sp.Status().SetCode(ptrace.StatusCodeError)
			sp.Status().SetMessage(s.StatusText)
		}
		otlpfile.PutAttributes(sp.Attributes(), s.Attributes)
	}
	return td
}

// otlpLines describes each span, with the attributes of model calls that a trace is read for.
func otlpLines(all ...ptrace.Traces) (described []string) {
	for _, td := range all {
		testscale.EachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
			line := fmt.Sprintf("%s %s of %s: %s, %s, %d to %d, %s %q", s.TraceID(), s.SpanID(), s.ParentSpanID(),
				s.Name(), s.Kind(), s.StartTimestamp(), s.EndTimestamp(), s.Status().Code(), s.Status().Message())
			for key, v := range s.Attributes().All() {
				if strings.HasPrefix(s.Name(), "chat ") && (strings.Contains(key, "usage") ||
					strings.Contains(key, "response") || strings.Contains(key, "model")) {
					line += "\n\t" + key + "=" + v.AsString()
				}
			}
			described = append(described, line)
		})
	}
	slices.Sort(described)
	return described
}

// otlpWorked is what an agent sends of a session with everything that has a span, and of its sub-agent's.
func otlpWorked(t *testing.T) (td ptrace.Traces, ids []string) {
	t.Helper()
	now := time.Unix(1_795_198_540, 123_456_789)
	rec := agenttracetest.NewRecorder()
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: rec,
		Now: func() time.Time { now = now.Add(1_234_567); return now }})
	cost := 0.25
	result := agenttrace.ModelResult{StopReason: "stop", ResponseID: "resp_1", ResponseModel: "m-2", CostUSD: &cost,
		Usage:    agenttrace.ExclusiveUsage{Input: 100, Output: 20, CacheRead: 30},
		RawUsage: []byte(`{"total_tokens":150}`)}
	ask := func(ctx context.Context, turn *agenttrace.Turn, answer string, err error) {
		_, call := turn.StartModelCall(ctx, agenttrace.ModelCallOptions{})
		if err != nil {
			call.End(agenttrace.ModelResult{}, err)
			return
		}
		call.Text(answer)
		call.End(result, nil)
	}
	sess := tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "coder",
		Rules: []agenttrace.Rule{{Permission: "*", Action: agenttrace.ActionAllow}}})
	options := agenttrace.RunOptions{Model: agenttrace.Model{Provider: "p", ID: "m"}}
	runCtx, run := sess.StartRun(t.Context(), options)
	ctx, turn := run.StartTurn(runCtx, agenttrace.UserMessage{Text: "q"},
		agenttrace.TurnOptions{SystemPrompt: "be good"})
	ask(ctx, turn, "", errors.New("overloaded"))
	ask(ctx, turn, "I ask another", nil)
	toolCtx, tool := turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_1", Name: "task", Input: `{"q":1}`})
	tool.Authorize(toolCtx, "task")
	child := tracer.NewSession(toolCtx, agenttrace.SessionOptions{Agent: "finder"})
	childCtx, childRun := child.StartRun(toolCtx, agenttrace.RunOptions{Model: agenttrace.Model{ID: "small"}})
	childCtx, childTurn := childRun.StartTurn(childCtx, agenttrace.UserMessage{Text: "q1"}, agenttrace.TurnOptions{})
	ask(childCtx, childTurn, "found", nil)
	childTurn.End(agenttrace.TurnResult{})
	childRun.End(nil)
	tool.Fail(errors.New("not found"))
	_, tool = turn.StartTool(ctx, agenttrace.ToolOptions{ID: "call_2", Name: "bash", Input: `{"command":"ls"}`})
	tool.AwaitApproval("")
	turn.End(agenttrace.TurnResult{})
	_, compaction := run.StartCompaction(runCtx, agenttrace.CompactionOptions{})
	compaction.Fail(errors.New("the summary is empty"))
	run.End(nil)

	runCtx, run = sess.StartRun(t.Context(), options)
	ctx, turn, err := run.ContinueTurn(runCtx, agenttrace.TurnOptions{})
	testscale.Must(t, err)
	_, tool, _, err = turn.ResumeTool(ctx, "call_2", agenttrace.Answer{Reply: agenttrace.ReplyOnce})
	testscale.Must(t, err)
	tool.EndText("a file")
	ask(ctx, turn, "done", nil)
	turn.End(agenttrace.TurnResult{})
	_, compaction = run.StartCompaction(runCtx, agenttrace.CompactionOptions{})
	compaction.End(agenttrace.CompactionResult{Summary: "all is well"})
	ctx, turn = run.StartTurn(runCtx, agenttrace.UserMessage{Text: "again"}, agenttrace.TurnOptions{})
	ask(ctx, turn, "", errors.New("no model"))
	turn.Fail(errors.New("no model"))
	run.End(errors.New("no model"))
	testscale.Must(t, rec.Err())
	return otlpSent(rec.All()), []string{sess.ID(), child.ID()}
}

// otlpExported is what is written of sessions of a store.
func otlpExported(t *testing.T, st *sqlite.Store, ids ...string) (all []ptrace.Traces) {
	t.Helper()
	for _, id := range ids {
		s, refs := otlpStored(t, st, id)
		s.SpanRefs = refs
		td, err := TurnSpans(s, nil)
		testscale.Must(t, err)
		all = append(all, td)
	}
	return all
}

// TestOTLPExportHasEverySpanThatTheSDKSent exports what an agent's spans came to, as the same spans: model calls with
// their usage among them, times to the nanosecond.
func TestOTLPExportHasEverySpanThatTheSDKSent(t *testing.T) {
	td, ids := otlpWorked(t)
	st := otlpEmptyStore(t)
	if _, err := ingest.New(st, ingest.Options{}).Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	out := otlpExported(t, st, ids...)
	if d := gocmp.Diff(otlpLines(td), otlpLines(out...)); d != "" {
		t.Errorf("spans (-sent +exported):\n%s", d)
	}
	otlpReadAgain(t, st, out, ids...)
}

// otlpReadAgain reads exported sessions into an empty store, and wants the same rows and spans there.
func otlpReadAgain(t *testing.T, st *sqlite.Store, out []ptrace.Traces, ids ...string) {
	t.Helper()
	again := otlpEmptyStore(t)
	for _, td := range out {
		if _, err := ingest.New(again, ingest.Options{}).Traces(t.Context(), td); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		want, wantRefs := otlpStored(t, st, id)
		got, gotRefs := otlpStored(t, again, id)
		want.SpanRefs, got.SpanRefs = wantRefs, gotRefs
		if d := codectest.Diff(want, got); d != "" {
			t.Errorf("session %s is read as another %s", id, d)
		}
	}
}

// otlpCapturedRequests delivers what a program of another instrumentation sent, in the order of its requests.
func otlpCapturedRequests(t *testing.T, st *sqlite.Store, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no requests in %s: %v", dir, err)
	}
	for _, file := range files { // in order
		if err := otlpInto(t.Context(), st, bytes.NewReader(testscale.ReadFile(t, file)), nil); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// TestOTLPExportHasEverySpanOfOtherAgents exports sessions that were built from the telemetry of other programs: each
// span that the store lists is there, under its own ids, with its own times.
func TestOTLPExportHasEverySpanOfOtherAgents(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("..", "..", "ingest", "testdata", "captures", "*", "*"))
	testscale.Must(t, err)
	for i, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || i%testscale.Rounds(6, 1) != 0 {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(dir))+" "+filepath.Base(dir), func(t *testing.T) {
			st := otlpEmptyStore(t)
			otlpCapturedRequests(t, st, dir)
			var ids []string
			for _, row := range storetest.Sessions(t, st) {
				ids = append(ids, row.ID)
			}
			again := otlpEmptyStore(t)
			for _, id := range ids {
				transcript, refs := otlpStored(t, st, id)
				out := otlpExported(t, st, id)
				have := make(map[string]bool)
				var input int64 // as who adds it up over spans finds it
				for _, s := range out[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
					if v, ok := s.Attributes().Get(string(semconv.GenAIUsageInputTokensKey)); ok {
						input += v.Int()
					}
					have[fmt.Sprintf("%s %s %s %d %d %t", s.TraceID(), s.SpanID(), s.ParentSpanID(), s.StartTimestamp(),
						s.EndTimestamp(), s.Status().Code() == ptrace.StatusCodeError)] = true
				}
				for _, r := range refs {
					if !have[fmt.Sprintf("%s %s %s %d %d %t", r.TraceID, r.SpanID, r.ParentSpanID, r.StartNano, r.EndNano,
						r.Error)] {
						t.Errorf("session %s: %s %s of %s is not exported as it was", id, r.Kind, r.SpanID, r.Dialect)
					}
				}
				var total int64
				for i := range transcript.Messages {
					meta := session.ParseMessageMetadata([]byte(transcript.Messages[i].Message.MetadataJSON))
					if u := meta.Usage; u != nil && otlpCompaction(&transcript.Messages[i]) == nil {
						total += u.Input + u.CacheRead + u.CacheWrite
					}
				}
				if input != total {
					t.Errorf("session %s: the exported spans have %d input tokens, the messages %d", id, input, total)
				}
				if len(refs) == 0 {
					t.Errorf("session %s has no spans", id)
				}
				if _, err := ingest.New(again, ingest.Options{}).Traces(t.Context(), out[0]); err != nil {
					t.Fatal(err)
				}
				want, _ := otlpStored(t, st, id)
				got, gotRefs := otlpStored(t, again, id)
				if d := codectest.Diff(want, got); d != "" {
					t.Errorf("session %s is read as another %s", id, d)
				}
				if got.SpanRefs = gotRefs; len(gotRefs) < len(refs) {
					t.Errorf("session %s has %d spans, want at least %d", id, len(gotRefs), len(refs))
				}
				if d := gocmp.Diff(otlpLines(out[0]), otlpLines(otlpExported(t, again, id)...)); d != "" {
					t.Errorf("session %s: exported again (-first +second):\n%s", id, d)
				}
			}
		})
	}
}
