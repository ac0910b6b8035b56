package ingest_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func nest(open, inside, end string, n int) string {
	return strings.Repeat(open, n) + inside + strings.Repeat(end, n)
}

// hostileValues are what an attribute of any key may be set to by somebody who wants
// the request, or the process, to fail.
func hostileValues() map[string]func(pcommon.Value) {
	all := make(map[string]func(pcommon.Value))
	for _, bad := range badValues {
		all[bad.name] = bad.set
	}
	text := func(name, s string) { all[name] = func(v pcommon.Value) { v.SetStr(s) } }
	for _, n := range []int{499, 500, 501, 998, 1000, 1001, 9_990, 9_998, 9_999, 10_000, 10_001, 100_000} {
		text(fmt.Sprint("arrays ", n), nest("[", "", "]", n))
		text(fmt.Sprint("objects ", n), nest(`{"a":`, "1", "}", n))
		text(fmt.Sprint("deep text part ", n), `[{"role":"user","content":`+nest("[", `"x"`, "]", n)+
			`,"parts":[{"type":"text","content":`+nest(`{"text":`, `"x"`, "}", n)+`}]}]`)
		text(fmt.Sprint("deep tool call ", n),
			`[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":`+
				nest("[", "",
					"]", n)+`}}]},{"role":"tool","tool_call_id":"c","content":`+nest(`{"a":`, "1", "}", n)+`}]`)
	}
	text("JSON in JSON in JSON", `"`+strings.Repeat(`\"`, 3000)+`"`)
	text("unclosed", strings.Repeat(`[{"a":`, 50_000))
	text("number without end", "1"+strings.Repeat("0", 100_000))
	text("beyond doubles", `[1e400,-1e400,-0,1e-400,0.1e999999999]`)
	text("NUL in JSON", `{"a":"\u0000","\u0000":"b"}`)
	text("lone surrogates", `["\ud800","\udc00\ud800",{"\udfff":1}]`)
	text("invalid UTF-8 in JSON", "[\"\xff\xfe\",{\"\xc0\x80\":\"\xed\xa0\x80\"}]")
	text("mark of byte order", "\uFEFF{\"a\":1}")
	text("names twice",
		`{"role":"user","role":"assistant","content":"a","content":"b","parts":[],"parts":[{"type":"text",`+
			`"type":"tool_call"}]}`)
	text("long", strings.Repeat("ä", 3<<20))
	text("long JSON", `["`+strings.Repeat(`\u0041`, 1<<20)+`"]`)
	text("many", "["+strings.Repeat(`{"role":"user","content":"x"},`, 20_000)+`{}]`)
	text("controls", "\x01\x02\x1b[31m\u2028\u2029\u202e\x7f\u0085")
	text("path", "../../../etc/passwd\x00")
	text("number", "99999999999999999999999999999999")
	for _, levels := range []int{490, 499, 500, 501, 5_000} {
		all[fmt.Sprint("map ", levels)] = func(v pcommon.Value) {
			for range levels {
				v = v.SetEmptyMap().PutEmpty("role")
			}
		}
		all[fmt.Sprint("list ", levels)] = func(v pcommon.Value) {
			for range levels {
				v = v.SetEmptySlice().AppendEmpty()
			}
			v.SetStr("user")
		}
	}
	all["odd keys"] = func(v pcommon.Value) {
		m := v.SetEmptyMap()
		m.PutStr("", "empty")
		m.PutStr("\x00", "NUL")
		m.PutStr("\xff", "invalid")
		m.PutDouble("NaN", math.NaN())
		m.PutDouble("inf", math.Inf(-1))
		m.PutEmpty("nothing")
	}
	all["many bytes"] = func(v pcommon.Value) { v.SetEmptyBytes().FromRaw(make([]byte, 2<<20)) }
	return all
}

// goodRequests are sessions of the SDK and of every captured client.
func goodRequests(t *testing.T) []request {
	all := []request{{traces: traces(whole().spans...)}}
	for _, dir := range captures(t) {
		all = append(all, readCapture(t, dir)...)
	}
	return join(all)
}

// hostileTimes are times no clock shows.
var hostileTimes = []uint64{0, 1, 1e6, 1 << 62, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, 1795219200000,
	1795219200000 * 1e6}

// spoilIdentity makes a span or record that of a session of its own: an id that two sessions claim is another matter.
func spoilIdentity(m pcommon.Map, n int) {
	for _, key := range dialect.SessionKeys() {
		if _, has := m.Get(key); has {
			m.PutStr(key, fmt.Sprint("hostile-", n))
		}
	}
	for key, v := range m.All() {
		if strings.HasSuffix(key, "id") && v.Type() == pcommon.ValueTypeStr && v.Str() != "" {
			v.SetStr(fmt.Sprint(v.Str(), "-hostile-", n))
		}
		if v.Type() == pcommon.ValueTypeSlice { // the parts of a message, with their ids
			for _, e := range v.Slice().All() {
				if e.Type() == pcommon.ValueTypeStr {
					e.SetStr(strings.ReplaceAll(e.Str(), "_1fa2b", fmt.Sprintf("_%05x", n)))
				}
			}
		}
	}
}

func spoilValues(r *rand.Rand, m pcommon.Map, n int, names []string, values map[string]func(pcommon.Value)) (
	what string) {
	var keys []string
	for key := range m.All() {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return ""
	}
	for range 1 + r.IntN(3) {
		key, name := keys[r.IntN(len(keys))], names[r.IntN(len(names))]
		v, _ := m.Get(key)
		own := strings.HasSuffix(key, "id") || slices.Contains(dialect.SessionKeys(), key)
		values[name](v)
		if own && v.Type() == pcommon.ValueTypeStr {
			v.SetStr(fmt.Sprint("hostile-", n, "-", v.Str()))
		}
		what += key + "=" + name + " "
	}
	return what
}

// hostileBatch spoils some of the spans and records.
func hostileBatch(r *rand.Rand, from []request, n *int, count int) (_ []request, what []string) {
	values := hostileValues()
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	single := split(from)
	var all []request
	for range count {
		*n++
		original := single[r.IntN(len(single))]
		if original.isLogs {
			ld := plog.NewLogs()
			original.logs.CopyTo(ld)
			rl := ld.ResourceLogs().At(0)
			rec := rl.ScopeLogs().At(0).LogRecords().At(0)
			rec.SetTraceID(pcommon.TraceID{})
			rec.SetSpanID(pcommon.SpanID{})
			for _, m := range []pcommon.Map{rec.Attributes(), rl.Resource().Attributes(),
				rl.ScopeLogs().At(0).Scope().Attributes()} {
				spoilIdentity(m, *n)
			}
			// What names no session is built by none; this is that session.
			if _, has := rec.Attributes().Get("session.id"); !has {
				rec.Attributes().PutStr("session.id", fmt.Sprint("hostile-", *n))
			}
			what = append(what, rec.EventName()+": "+spoilValues(r, rec.Attributes(), *n, names, values))
			if r.IntN(4) == 0 {
				values[names[r.IntN(len(names))]](rec.Body())
			}
			if r.IntN(4) == 0 {
				rec.SetTimestamp(pcommon.Timestamp(hostileTimes[r.IntN(len(hostileTimes))]))
			}
			all = append(all, request{logs: ld, isLogs: true})
			continue
		}
		td := ptrace.NewTraces()
		original.traces.CopyTo(td)
		rs := td.ResourceSpans().At(0)
		ss := rs.ScopeSpans().At(0)
		s := ss.Spans().At(0)
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[8:], uint64(*n)|1<<60)
		s.SetTraceID(trace)
		if s.ParentSpanID().IsEmpty() { // it may be another report of a call that its program makes at the time
			rs.Resource().Attributes().PutStr("service.name", fmt.Sprint("hostile-", *n))
		}
		for _, m := range []pcommon.Map{s.Attributes(), rs.Resource().Attributes(), ss.Scope().Attributes()} {
			spoilIdentity(m, *n)
		}
		for _, e := range s.Events().All() {
			spoilIdentity(e.Attributes(), *n)
		}
		line := s.Name() + ": " + spoilValues(r, s.Attributes(), *n, names, values)
		if e := s.Events(); e.Len() > 0 && r.IntN(2) == 0 {
			line += "event " + spoilValues(r, e.At(r.IntN(e.Len())).Attributes(), *n, names, values)
		}
		switch r.IntN(8) {
		case 0:
			s.SetStartTimestamp(pcommon.Timestamp(hostileTimes[r.IntN(len(hostileTimes))]))
		case 1:
			s.SetEndTimestamp(pcommon.Timestamp(hostileTimes[r.IntN(len(hostileTimes))]))
		case 2:
			s.SetSpanID(pcommon.SpanID{})
		case 3:
			s.SetParentSpanID(s.SpanID())
		case 4:
			s.SetName(strings.Repeat("\xff\x00", 1<<16))
			s.Status().SetCode(ptrace.StatusCodeError)
			s.Status().SetMessage(strings.Repeat("\x00\xff", 1<<16))
		case 5: // the same span with other content
			again := ss.Spans().AppendEmpty()
			ss.Spans().At(0).CopyTo(again)
			line += "again " + spoilValues(r, again.Attributes(), *n, names, values)
		}
		what = append(what, line)
		all = append(all, request{traces: td})
	}
	return all, what
}

// sessionsOf returns what a store holds of each session.
func sessionsOf(t *testing.T, s *sqlitestore.Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, tr := range rowsOf(t, s) {
		var b strings.Builder
		narrateSession(&b, &tr.Session)
		for _, m := range tr.Messages {
			row, _ := json.Marshal(m.Message)
			fmt.Fprintf(&b, "%s\n", row)
			for _, p := range m.Parts {
				fmt.Fprintf(&b, "  %d %s %s\n", p.Index, p.ID, p.DataJSON)
			}
		}
		all[tr.Session.ID] = b.String()
	}
	return all
}

func deliverWith(t *testing.T, s *sqlitestore.Store, r *redact.Redactor, all []request) error {
	t.Helper()
	in := ingest.New(s, ingest.Options{Redactor: r})
	for _, q := range all {
		if _, err := q.to(t.Context(), in); err != nil {
			return err
		}
	}
	return nil
}

// A request with hostile spans or records stores its good ones as a request without
// them does, and everything it stored can be read and is valid.
func TestHostileSpansLeaveTheRestOfTheirRequestAsItIs(t *testing.T) {
	good := goodRequests(t)
	redactor, err := redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes})
	testscale.Must(t, err)
	alone := openStore(t)
	testscale.Must(t, deliverWith(t, alone, redactor, good))
	want := sessionsOf(t, alone)
	rounds := testscale.Rounds(2, 8)
	n := 0
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		hostile, what := hostileBatch(r, good, &n, 40)
		s := openStore(t)
		if err := deliverWith(t, s, redactor, join(append(slices.Clone(hostile), good...))); err != nil {
			t.Errorf("seed %d: the request failed: %v\n%s", seed, err,
				strings.Join(culprits(t, redactor, hostile, what), "\n"))
			continue
		}
		storetest.CheckSessions(t, s)
		got := sessionsOf(t, s)
		for id, rows := range want {
			if got[id] != rows {
				t.Errorf("seed %d: session %s differs (-without hostile spans +with them):\n%s", seed, id,
					differ(rows, got[id]))
			}
		}
		// What is delivered again, and what comes later, is not held up by what is stored.
		if err := deliverWith(t, s, redactor, join(hostile)); err != nil {
			t.Errorf("seed %d: delivered again: %v", seed, err)
		}
		if t.Failed() {
			return
		}
	}
}

// culprits names the hostile spans that fail alone.
func culprits(t *testing.T, redactor *redact.Redactor, hostile []request, what []string) (all []string) {
	for i := range hostile {
		if err := deliverWith(t, openStore(t), redactor, hostile[i:i+1]); err != nil {
			all = append(all, fmt.Sprintf("%.300s\n\t%.300v", what[i], err))
		}
	}
	return all
}

// A tool's result that is JSON nested deeper than readers follow is kept as text, and
// can be read; the sessions beside it are stored.
func TestToolResultNestedDeepIsKept(t *testing.T) {
	for _, levels := range []int{499, 500, 501, 998, 1000, 9_990, 9_998, 9_999, 10_000, 10_001, 50_000} {
		result := nest("[", "", "]", levels)
		td := traces(whole().spans...)
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		s := ss.Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{9})
		s.SetSpanID(pcommon.SpanID{9})
		s.SetName("execute_tool search")
		s.SetStartTimestamp(1795198540000 * 1e6)
		s.SetEndTimestamp(1795198541000 * 1e6)
		for key, value := range map[string]string{
			"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "call_1",
			"gen_ai.conversation.id":     "deep",
			"gen_ai.tool.call.arguments": result, "gen_ai.tool.call.result": result,
		} {
			s.Attributes().PutStr(key, value)
		}
		store := openStore(t)
		if err := deliverWith(t, store, nil, []request{{traces: td}}); err != nil {
			t.Fatalf("%d levels: %v", levels, err)
		}
		storetest.CheckSessions(t, store)
		rows := sessionsOf(t, store)
		if len(rows) < 2 {
			t.Fatalf("%d levels: %d sessions stored", levels, len(rows))
		}
		if got := strings.Count(rows["deep"], result); got != 2 {
			t.Errorf("%d levels: the result and the arguments are there %d times, want 2:\n%.1000s", levels, got,
				rows["deep"])
		}
		// Beyond 10,000 levels it is no JSON to any reader here, but a text like others.
		if problem := strings.Contains(rows["deep"], "kept as text"); problem != (levels > 500 && levels <= 10_000) {
			t.Errorf("%d levels: reported as a problem %v", levels, problem)
		}
	}
}

// agentSpan is a span of a model call in a session.
func agentSpan(session string) (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{7})
	s.SetSpanID(pcommon.SpanID{7})
	s.SetName("chat gpt-5")
	s.SetStartTimestamp(1795198540000 * 1e6)
	s.SetEndTimestamp(1795198541000 * 1e6)
	s.Attributes().PutStr("gen_ai.operation.name", "chat")
	s.Attributes().PutStr("gen_ai.conversation.id", session)
	return td, s
}

// An id is stored in every row that refers to it: one of megabytes would take minutes and gigabytes.
func TestIdsOfMegabytesStayIdsAndAreCut(t *testing.T) {
	redactor, err := redact.New(redact.Config{})
	testscale.Must(t, err)
	store := openStore(t)
	for _, end := range []string{"a", "b"} {
		long := strings.Repeat("i", 8<<20) + end
		td, s := agentSpan(long)
		s.SetTraceID(pcommon.TraceID{end[0]})
		for _, key := range []string{"gen_ai.agent.name", "gen_ai.request.model", "gen_ai.response.id",
			"gen_ai.provider.name"} {
			s.Attributes().PutStr(key, long)
		}
		testscale.Must(t, deliverWith(t, store, redactor, []request{{traces: td}}))
	}
	storetest.CheckSessions(t, store)
	rows := sessionsOf(t, store)
	for id, row := range rows {
		if len(id) > 20_000 || len(row) > 1<<20 {
			t.Errorf("an id of %d bytes in rows of %d", len(id), len(row))
		}
	}
	if len(rows) != 2 {
		t.Errorf("%d sessions of two ids", len(rows))
	}
}
