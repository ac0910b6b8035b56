package ingest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/spans"
)

// logs packs records into one request.
func logs(all ...plog.LogRecord) plog.Logs {
	ld := plog.NewLogs()
	sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	sl.Scope().SetName(semconv.ScopeName)
	for _, r := range all {
		r.CopyTo(sl.LogRecords().AppendEmpty())
	}
	return ld
}

// record is an event at a time, in Unix nanoseconds.
func record(e *spans.Event, atNano int64) plog.LogRecord {
	r := plog.NewLogRecord()
	r.SetEventName(e.Name)
	r.SetTimestamp(pcommon.Timestamp(atNano))
	otlpfile.PutAttributes(r.Attributes(), spans.Append(nil, e))
	return r
}

// TestLiveGolden reads the scenarios of testdata/live: the events, in the form in which parseText has spans (the name
// is that of the event, at= its time), the spans that arrive besides, and what they come to. Each is built in other
// orders too.
func TestLiveGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/live/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var order []request
			var given []txtar.File
			for _, f := range archive.Files {
				if f.Name != "events" && f.Name != "spans" {
					continue
				}
				given = append(given, f)
				requests, err := parseText(string(f.Data), semconv.ScopeName)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range requests {
					if f.Name == "spans" {
						order = append(order, request{traces: r.traces})
						continue
					}
					order = append(order, request{logs: asEvents(r.traces), isLogs: true})
				}
			}
			if len(order) == 0 || len(bytes.TrimSpace(archive.Comment)) == 0 {
				t.Fatal("the scenario has no description")
			}
			got := append(given[:len(given):len(given)], buildLive(t, order)...)
			compare(t, file, archive, got)
			for seed := range testscale.Rounds(3, 8) {
				r := rand.New(rand.NewPCG(uint64(seed), 5))
				again := slices.Clone(order)
				r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
				again = append(again, again[r.IntN(len(again))])
				if d := cmp.Diff(sections(got[len(given)+1:]), sections(buildLive(t, again)[1:])); d != "" {
					t.Fatalf("in another order (-want +got):\n%s", d)
				}
			}
		})
	}
}

// asEvents makes events of what is written as spans.
func asEvents(td ptrace.Traces) plog.Logs {
	ld := plog.NewLogs()
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
			ss.Scope().CopyTo(sl.Scope())
			for _, s := range ss.Spans().All() {
				r := sl.LogRecords().AppendEmpty()
				r.SetEventName(s.Name())
				r.SetTimestamp(s.StartTimestamp())
				r.SetTraceID(s.TraceID())
				r.SetSpanID(s.SpanID())
				s.Attributes().CopyTo(r.Attributes())
			}
		}
	}
	return ld
}

func buildLive(t *testing.T, order []request) []txtar.File {
	t.Helper()
	s := openStore(t)
	r := deliver(t, s, order)
	check(t, s)
	var rows bytes.Buffer
	for _, row := range rowsIn(t, s) {
		transcript, err := s.Transcript(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := jsonl.Encode(&rows, transcript); err != nil {
			t.Fatal(err)
		}
	}
	return []txtar.File{
		{Name: "report", Data: fmt.Appendf(nil, "events %d, spans %d, placed %d, ignored %d, malformed %d, refused "+
			"%d\n",
			r.Records, r.Spans, r.Accepted, r.Ignored, r.Malformed, r.Refused)},
		{Name: "session", Data: rows.Bytes()},
	}
}

// events makes a few events of a few sessions.
func (c *choices) events() []plog.LogRecord {
	var all []plog.LogRecord
	names := []string{semconv.EventSession, semconv.EventMessage, semconv.EventPart, semconv.EventStatus}
	attributes := semconv.Attributes()
	for len(*c) > 0 && len(all) < 12 {
		session := string('A' + c.byte()%3)
		r := plog.NewLogRecord()
		r.SetEventName(names[c.of(len(names))])
		r.SetTraceID(pcommon.TraceID{session[0]})
		r.SetTimestamp(pcommon.Timestamp(uint64(1795219200000+int64(c.byte()))*1e6 + uint64(c.of(4))))
		if c.of(8) == 0 {
			r.SetTimestamp(0)
		}
		put := r.Attributes()
		put.PutStr(string(semconv.SessionIDKey), session)
		// Messages are of one role each: a compaction can only be in an answer.
		who := c.of(4)
		put.PutStr(string(semconv.MessageIDKey), session+string(rune('a'+who)))
		put.PutStr(string(semconv.MessageRoleKey), [][]string{{"assistant", ""}, {"assistant", "x"}, {"user", ""},
			{"system", ""}}[who][c.of(2)])
		put.PutStr(string(semconv.StatusKey), []string{"busy", "idle", "error", "x"}[c.of(4)])
		parts := put.PutEmptySlice(string(semconv.MessagePartsKey))
		for range c.of(3) {
			parts.AppendEmpty().SetStr(c.part(session))
		}
		for range c.of(4) {
			a := attributes[c.of(len(attributes))]
			if a.Key != semconv.MessageRoleKey && a.Key != semconv.MessageIDKey {
				c.value(string(a.Key), session, put.PutEmpty(string(a.Key)))
			}
		}
		all = append(all, r)
	}
	return all
}

// FuzzEvents: whatever events come, among whatever spans, they make valid sessions, and the same ones in any order.
func FuzzEvents(f *testing.F) {
	addRandom(f, 2)
	f.Fuzz(func(t *testing.T, data []byte) {
		half := choices(data[:len(data)/2])
		rest := choices(data[len(data)/2:])
		var all []request
		for _, e := range half.events() {
			all = append(all, request{logs: logs(e), isLogs: true})
		}
		for _, s := range rest.spans() {
			all = append(all, request{traces: traces(s)})
		}
		if len(all) == 0 {
			return
		}
		var rows [2]string
		refused := int64(0)
		for i := range rows {
			s := openStore(t)
			refused += deliver(t, s, all).Refused
			check(t, s)
			rows[i] = withoutMetIndexes(dump(t, s.Path()))
			rand.New(rand.NewPCG(uint64(len(data)), 9)).Shuffle(len(all), func(i, j int) {
				all[i], all[j] = all[j], all[i]
			})
			all = append(all, all[0])
		}
		if refused == 0 && rows[0] != rows[1] {
			t.Fatalf("tables differ (-one order +another):\n%s",
				cmp.Diff(strings.Split(rows[0], "\n"), strings.Split(rows[1], "\n")))
		}
	})
}

// withoutMetIndexes leaves out of a dump the claims of parts, which a part that
// got the place it claims in the end may have left behind or not.
func withoutMetIndexes(rows string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(rows, "\n"), func(row string) bool {
		return strings.HasPrefix(row, "message_id=") && strings.Contains(row, "| requested_index=")
	}), "\n")
}
