package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
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
	capture  string
	from, to float64
}

var steppedShape = stepShape{capture: "vercel-ai-sdk-v6/toolerror", from: 11, to: 39}

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
		} else {
			some, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
			if err != nil {
				t.Fatal(err)
			}
			some.ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		}
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

// BenchmarkLongTurn has a turn arrive step by step, and at once: what a step costs in a turn of 200 steps, and how much
// more the whole turn does.
func BenchmarkLongTurn(b *testing.B) {
	for _, n := range []int{200, 2000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := newLongTurn(b, steppedShape)
			cost := func(all func(in *ingest.Ingester)) float64 {
				s := open(b, newPath(b), Options{})
				in := ingest.New(s, ingest.Options{})
				begin := testscale.CPUSeconds()
				stepRequest{l.head, l.headLogs}.deliver(b, in)
				all(in)
				l.rootOf(n).deliver(b, in)
				if err := s.Rebuild(b.Context()); err != nil {
					b.Fatal(err)
				}
				return testscale.CPUSeconds() - begin
			}
			for range b.N {
				one := cost(func(in *ingest.Ingester) {
					for i := range n {
						l.at(b, i).deliver(b, in)
					}
				})
				all := cost(func(in *ingest.Ingester) {
					l.deliver(b, in, 0, n)
				})
				b.ReportMetric(one/float64(n)*1000, "CPU-ms/step")
				b.ReportMetric(all, "CPU-s/at-once")
				b.ReportMetric(one/all, "times")
			}
		})
	}
}

// deferring stores batches as its store does, and rebuilds nothing afterwards.
type deferring struct{ *Store }

func (d deferring) Apply(ctx context.Context, b *store.Batch) (result store.Result, err error) {
	some := *b
	some.Defer = true
	err = d.Transact(ctx, func(tx store.Tx) (err error) {
		result, err = store.Apply(tx, &some)
		return err
	})
	return result, err
}

// TestALongTurnIsRebuiltLater: what is added to a long turn is stored and marked at first, and its answer is incomplete;
// when it is rebuilt, all of it is there, also by a process that opens the store after the one that stored it has died.
func TestALongTurnIsRebuiltLater(t *testing.T) {
	l := newLongTurn(t, steppedShape)
	const n = 100
	path := newPath(t)
	s := open(t, path, Options{})
	in := ingest.New(deferring{s}, ingest.Options{})
	l.rootOf(2*n).deliver(t, in)
	l.deliver(t, in, 0, n)
	counts := func(s *Store) (parts, marks, incomplete int64) {
		for query, to := range map[string]*int64{
			`SELECT count(*) FROM chat_parts WHERE tool_call_id IS NOT NULL`:                    &parts,
			`SELECT count(*) FROM unbuilt_turns`:                                                &marks,
			`SELECT count(*) FROM chat_messages WHERE metadata_json LIKE '%"incomplete":true%'`: &incomplete,
		} {
			if err := s.run(t.Context(), func(tx *tx) (err error) {
				*to, err = sqlitex.ResultInt64(tx.prep(query))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		return parts, marks, incomplete
	}
	rebuild := func(s *Store) {
		if err := ingest.New(s, ingest.Options{}).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rebuild(s)
	before, _, _ := counts(s)
	l.at(t, n).deliver(t, in)
	if parts, marks, incomplete := counts(s); parts != before || marks != 1 || incomplete != 1 {
		t.Errorf("after a step: %d parts of %d, %d marks, %d incomplete answers", parts, before, marks, incomplete)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	later := open(t, copied, Options{})
	rebuild(later)
	if parts, marks, _ := counts(later); parts != before+2 || marks != 0 {
		t.Errorf("rebuilt: %d parts of %d, %d marks", parts, before+2, marks)
	}
}

// TestManyToolCallsInOneRequest: a turn of thousands of tool calls that arrives in one
// request is one message, however it is delivered.
func TestManyToolCallsInOneRequest(t *testing.T) {
	many := testscale.Rounds(400, 4000)
	l := newLongTurn(t, steppedShape)
	all := ptrace.NewTraces()
	for n := range many / 2 { // each step calls two tools
		r := l.at(t, n)
		r.traces.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	l.rootOf(many / 2).traces.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	s := open(t, newPath(t), Options{})
	if _, err := ingest.New(s, ingest.Options{}).Traces(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := s.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
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
