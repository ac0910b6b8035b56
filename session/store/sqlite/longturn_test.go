package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// longTurn makes a turn of any number of steps of what a real agent sent of one of a
// few: what it sent between two times is one step, which is repeated.
type longTurn struct {
	// head is sent before the steps; the step is what begins between from and to; the
	// root reaches across.
	head, step, root ptrace.Traces
	headLogs, logs   plog.Logs
	length           time.Duration
	begin            pcommon.Timestamp
	ids              []string // of spans and traces that are the step's own
}

// stepShape says what of a capture is a step, in milliseconds after its beginning.
type stepShape struct {
	name, capture string
	from, to      float64
	// only is "spans" or "logs" where the agent sends nothing else. Logs then are of no
	// trace.
	only string
	// root is "first" where it is sent before the steps, "never" where it is lost.
	root string
	// long has its cost measured after 5,000 steps too.
	long bool
	// uncounted has calls that prove, each again, that nobody knew how they are counted.
	uncounted bool
}

var stepShapes = []stepShape{
	{name: "AI SDK, root last", capture: "vercel-ai-sdk-v6/toolerror", from: 11, to: 39, long: true},
	{name: "AI SDK, root first", capture: "vercel-ai-sdk-v6/toolerror", from: 11, to: 39, root: "first"},
	{name: "AI SDK, without a root", capture: "vercel-ai-sdk-v6/toolerror", from: 11, to: 39, root: "never"},
	{name: "OpenInference LangChain", capture: "openinference-langchain-4.1.1/openai-chat", from: 90, to: 509},
	{name: "OpenInference Vercel, root first", capture: "openinference-vercel-2.8.1-on-ai-v6/multistep", from: 25,
		to:   175,
		root: "first", long: true},
	{name: "Strands", capture: "strands-js-1.19.0/chat", from: 6, to: 131},
	{name: "Strands, a model without its maker's name", capture: "strands-js-1.19.0/chat", from: 6, to: 131,
		uncounted: true},
	{name: "opencode", capture: "opencode-1.18.33/serve-bash", from: 8436.9, to: 10187.9},
	{name: "Claude Code", capture: "claude-code-2.1.329/print-bash", from: 359, to: 775.9},
	{name: "Claude Code, logs", capture: "claude-code-2.1.329/print-bash", from: 359, to: 775.9, only: "logs",
		long: true},
	{name: "Codex", capture: "codex-cli-0.169.0/exec-shell", from: 144, to: 993.7},
	{name: "Codex, logs", capture: "codex-cli-0.169.0/exec-shell", from: 144, to: 993.7, only: "logs", long: true},
	{name: "Gemini CLI", capture: "gemini-cli-0.61.0/prompt-shell", from: 88, to: 341},
	{name: "Gemini CLI, logs", capture: "gemini-cli-0.61.0/prompt-shell", from: 88, to: 341, only: "logs"},
}

func eachSpan(td ptrace.Traces, do func(s ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				do(s)
			}
		}
	}
}

func eachRecord(ld plog.Logs, do func(r plog.LogRecord)) {
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				do(r)
			}
		}
	}
}

func keepSpans(td ptrace.Traces, keep func(ptrace.Span) bool) ptrace.Traces {
	some := ptrace.NewTraces()
	td.CopyTo(some)
	for _, rs := range some.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			ss.Spans().RemoveIf(func(s ptrace.Span) bool { return !keep(s) })
		}
	}
	return some
}

func keepRecords(ld plog.Logs, keep func(plog.LogRecord) bool) plog.Logs {
	some := plog.NewLogs()
	ld.CopyTo(some)
	for _, rl := range some.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			sl.LogRecords().RemoveIf(func(r plog.LogRecord) bool { return !keep(r) })
		}
	}
	return some
}

func recordTime(r plog.LogRecord) pcommon.Timestamp {
	if r.Timestamp() != 0 {
		return r.Timestamp()
	}
	return r.ObservedTimestamp()
}

func newLongTurn(t testing.TB, shape stepShape) *longTurn {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../ingest/testdata/captures", shape.capture, "*-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no capture ", shape.capture)
	}
	slices.Sort(files)
	td, ld := ptrace.NewTraces(), plog.NewLogs()
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "-logs.json") {
			some, err := new(plog.JSONUnmarshaler).UnmarshalLogs(raw)
			if err != nil {
				t.Fatal(err)
			}
			some.ResourceLogs().MoveAndAppendTo(ld.ResourceLogs())
		} else if shape.only != "logs" {
			some, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
			if err != nil {
				t.Fatal(err)
			}
			some.ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		}
	}
	if shape.only == "spans" {
		ld = plog.NewLogs()
	}
	if shape.uncounted {
		eachSpan(td, func(s ptrace.Span) {
			a := s.Attributes()
			for _, key := range []string{"gen_ai.request.model", "gen_ai.response.model"} {
				if v, ok := a.Get(key); ok {
					v.SetStr("pilot")
				}
			}
			if v, ok := a.Get("gen_ai.usage.input_tokens"); ok {
				a.PutInt("gen_ai.usage.cache_read.input_tokens", v.Int()+1)
			}
		})
	}
	l := &longTurn{length: time.Duration((shape.to - shape.from) * 1e6)}
	// Times are counted as in what an ingester reads of the capture.
	l.begin = beginning(t, shape.capture)
	from, to := l.begin+pcommon.Timestamp(shape.from*1e6), l.begin+pcommon.Timestamp(shape.to*1e6)
	inside := func(at pcommon.Timestamp) bool { return at >= from && at < to }
	l.head = keepSpans(td, func(s ptrace.Span) bool { return s.EndTimestamp() < from })
	l.step = keepSpans(td, func(s ptrace.Span) bool { return inside(s.StartTimestamp()) })
	l.root = keepSpans(td, func(s ptrace.Span) bool { return s.StartTimestamp() < from && s.EndTimestamp() >= from })
	l.headLogs = keepRecords(ld, func(r plog.LogRecord) bool { return recordTime(r) < from })
	l.logs = keepRecords(ld, func(r plog.LogRecord) bool { return inside(recordTime(r)) })
	outside := make(map[string]bool)
	eachSpan(td, func(s ptrace.Span) {
		if !inside(s.StartTimestamp()) {
			outside[s.TraceID().String()] = true
		}
	})
	eachSpan(l.step, func(s ptrace.Span) {
		l.ids = append(l.ids, s.SpanID().String())
		if trace := s.TraceID().String(); !outside[trace] && !slices.Contains(l.ids, trace) {
			l.ids = append(l.ids, trace)
		}
	})
	if shape.only == "logs" {
		for _, ld := range []plog.Logs{l.headLogs, l.logs} {
			eachRecord(ld, func(r plog.LogRecord) {
				r.SetTraceID(pcommon.TraceID{})
				r.SetSpanID(pcommon.SpanID{})
			})
		}
	}
	if shape.root == "never" {
		l.root = ptrace.NewTraces()
	}
	return l
}

// beginning is when the first observation of a capture begins.
func beginning(t testing.TB, capture string) pcommon.Timestamp {
	t.Helper()
	s := open(t, newPath(t), Options{})
	in := ingest.New(s, ingest.Options{})
	files, _ := filepath.Glob(filepath.Join("../../ingest/testdata/captures", capture, "*-*.json"))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "-logs.json") {
			var ld plog.Logs
			if ld, err = new(plog.JSONUnmarshaler).UnmarshalLogs(raw); err == nil {
				_, err = in.Logs(t.Context(), ld)
			}
		} else {
			var td ptrace.Traces
			if td, err = new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw); err == nil {
				_, err = in.Traces(t.Context(), td)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stmt := s.conn.Prep(`SELECT min(start_nano) FROM observations`)
	at, err := sqlitex.ResultInt64(stmt)
	if err != nil {
		t.Fatal(err)
	}
	return pcommon.Timestamp(at)
}

// named are ids of calls and requests in what an agent sent.
var named = regexp.MustCompile(
	`\b(toolu|call|req|resp|chatcmpl|msg|fc|stream|r)([_-]?)(oslo|lima|del|[0-9][0-9A-Za-z]*)\b`)

// rename makes what is the step's own another's.
func (l *longTurn) rename(text string, n int) string {
	text = named.ReplaceAllString(text, fmt.Sprintf("${1}${2}${3}n%d", n))
	var pairs []string
	for _, id := range l.ids {
		pairs = append(pairs, id, fmt.Sprintf("%08x%s", n+1, id[8:]))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// stepRequest is what the agent sends of a step.
type stepRequest struct {
	traces ptrace.Traces
	logs   plog.Logs
}

func (r stepRequest) deliver(t testing.TB, in *ingest.Ingester) {
	t.Helper()
	if r.traces != (ptrace.Traces{}) && r.traces.SpanCount() > 0 {
		if _, err := in.Traces(t.Context(), r.traces); err != nil {
			t.Fatal(err)
		}
	}
	if r.logs != (plog.Logs{}) && r.logs.LogRecordCount() > 0 {
		if _, err := in.Logs(t.Context(), r.logs); err != nil {
			t.Fatal(err)
		}
	}
}

// at is the nth step.
func (l *longTurn) at(t testing.TB, n int) stepRequest {
	t.Helper()
	after := pcommon.Timestamp(time.Duration(n) * l.length)
	var r stepRequest
	if l.step.SpanCount() > 0 {
		raw, err := new(ptrace.JSONMarshaler).MarshalTraces(l.step)
		if err == nil {
			r.traces, err = new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(l.rename(string(raw), n)))
		}
		if err != nil {
			t.Fatal(err)
		}
		eachSpan(r.traces, func(s ptrace.Span) {
			s.SetStartTimestamp(s.StartTimestamp() + after)
			s.SetEndTimestamp(s.EndTimestamp() + after)
			for _, e := range s.Events().All() {
				e.SetTimestamp(e.Timestamp() + after)
			}
		})
	}
	if l.logs.LogRecordCount() > 0 {
		raw, err := new(plog.JSONMarshaler).MarshalLogs(l.logs)
		if err == nil {
			r.logs, err = new(plog.JSONUnmarshaler).UnmarshalLogs([]byte(l.rename(string(raw), n)))
		}
		if err != nil {
			t.Fatal(err)
		}
		eachRecord(r.logs, func(rec plog.LogRecord) {
			if rec.Timestamp() != 0 {
				rec.SetTimestamp(rec.Timestamp() + after)
			}
			if rec.ObservedTimestamp() != 0 {
				rec.SetObservedTimestamp(rec.ObservedTimestamp() + after)
			}
			if v, ok := rec.Attributes().Get("event.timestamp"); ok {
				if at, err := time.Parse(time.RFC3339Nano, v.Str()); err == nil {
					v.SetStr(at.Add(time.Duration(n) * l.length).Format("2006-01-02T15:04:05.000Z"))
				}
			}
		})
	}
	return r
}

// deliver sends the steps from one number to below another, many in a request: only
// the requests whose cost is measured need to have one step each.
func (l *longTurn) deliver(t testing.TB, in *ingest.Ingester, from, to int) {
	t.Helper()
	for from < to {
		many := stepRequest{ptrace.NewTraces(), plog.NewLogs()}
		for end := min(from+100, to); from < end; from++ {
			r := l.at(t, from)
			if r.traces != (ptrace.Traces{}) {
				r.traces.ResourceSpans().MoveAndAppendTo(many.traces.ResourceSpans())
			}
			if r.logs != (plog.Logs{}) {
				r.logs.ResourceLogs().MoveAndAppendTo(many.logs.ResourceLogs())
			}
		}
		many.deliver(t, in)
	}
}

// rootOf is the root of a turn of n steps.
func (l *longTurn) rootOf(n int) stepRequest {
	td := ptrace.NewTraces()
	l.root.CopyTo(td)
	eachSpan(td, func(s ptrace.Span) {
		s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(time.Duration(n)*l.length))
	})
	return stepRequest{traces: td}
}

// TestStepCost: the work that a step of a turn costs does not grow with the turn.
func TestStepCost(t *testing.T) {
	for _, shape := range stepShapes[:testscale.Rounds(2, len(stepShapes))] {
		t.Run(shape.name, func(t *testing.T) {
			l := newLongTurn(t, shape)
			s := open(t, newPath(t), Options{})
			in := ingest.New(s, ingest.Options{})
			at := []int{50, testscale.Rounds(200, 500)}
			if testscale.Long && shape.long {
				at = append(at, 5000)
			}
			stepRequest{l.head, l.headLogs}.deliver(t, in)
			if shape.root == "first" {
				l.rootOf(6000).deliver(t, in)
			}
			costs := make(map[int]int64)
			next := 0
			const some = 48 // as many windows as come to the same
			for _, after := range at {
				l.deliver(t, in, next, after)
				next = after
				steps(t, s)
				for range some {
					l.at(t, next).deliver(t, in)
					next++
				}
				costs[after] = steps(t, s) / some
				t.Logf("after %d steps: %d SQLite steps each", after, costs[after])
				if costs[after] > costs[50]*13/10 {
					t.Errorf("a step costs %d SQLite steps after %d, %d after 50", costs[after], after, costs[50])
				}
			}
		})
	}
}

// BenchmarkStep prints what a request of one step costs in a turn of so many.
func BenchmarkStep(b *testing.B) {
	for _, shape := range stepShapes {
		b.Run(shape.name, func(b *testing.B) {
			l := newLongTurn(b, shape)
			for range b.N {
				s := open(b, newPath(b), Options{})
				in := ingest.New(s, ingest.Options{})
				stepRequest{l.head, l.headLogs}.deliver(b, in)
				if shape.root == "first" {
					l.rootOf(6000).deliver(b, in)
				}
				next := 0
				for _, after := range []int{50, 1133, 5000} {
					for ; next < after; next++ {
						l.at(b, next).deliver(b, in)
					}
					var took time.Duration
					for range 48 {
						r := l.at(b, next)
						next++
						began := time.Now()
						r.deliver(b, in)
						took += time.Since(began)
					}
					b.ReportMetric(float64(took.Microseconds())/48/1000, fmt.Sprintf("ms/at-%d", after))
				}
				began := time.Now()
				l.rootOf(next).deliver(b, in)
				b.ReportMetric(time.Since(began).Seconds()*1000, "ms/root")
			}
		})
	}
}

// TestManyToolCallsInOneRequest: a turn of thousands of tool calls that arrives in one
// request is one message, however it is delivered.
func TestManyToolCallsInOneRequest(t *testing.T) {
	many := testscale.Rounds(400, 4000)
	if n, err := strconv.Atoi(os.Getenv("TOOL_CALLS")); err == nil {
		many = n
	}
	l := newLongTurn(t, stepShapes[0])
	all := ptrace.NewTraces()
	for n := range many / 2 { // each step calls two tools
		r := l.at(t, n)
		r.traces.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	l.rootOf(many / 2).traces.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	s := open(t, newPath(t), Options{})
	began := time.Now()
	if _, err := ingest.New(s, ingest.Options{}).Traces(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tool calls in %v", many, time.Since(began))
	stmt := s.conn.Prep(`SELECT count(*) FROM chat_parts WHERE tool_call_id IS NOT NULL`)
	calls, err := sqlitex.ResultInt64(stmt)
	if err != nil || calls != int64(many) {
		t.Errorf("%d parts of tool calls: %v", calls, err)
	}
	stmt = s.conn.Prep(`SELECT count(*) FROM chat_messages WHERE role = 'assistant'`)
	if messages, err := sqlitex.ResultInt64(stmt); err != nil || messages != 1 {
		t.Errorf("%d messages: %v", messages, err)
	}
}
