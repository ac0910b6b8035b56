package ingest_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/store/storetest"
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

// events makes a few events of a few sessions.
func (c *choices) events() []plog.LogRecord {
	var all []plog.LogRecord
	names := []string{semconv.EventSession, semconv.EventMessage, semconv.EventPart, semconv.EventStatus}
	attributes := testscale.Attributes()
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
			storetest.CheckSessions(t, s)
			rows[i] = withoutMetIndexes(dump(t, s.Path()))
			rand.New(rand.NewPCG(uint64(len(data)), 9)).Shuffle(len(all), func(i, j int) {
				all[i], all[j] = all[j], all[i]
			})
			all = append(all, all[0])
		}
		if refused == 0 && rows[0] != rows[1] {
			t.Fatalf("tables differ (-one order +another):\n%s",
				differ(rows[0], rows[1]))
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
