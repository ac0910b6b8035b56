package sqlite

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
)

// steps returns how many steps SQLite's virtual machine took since it was asked
// last: every row and every entry of an index that was looked at is at least one.
func steps(t testing.TB, s *Store) (total int64) {
	t.Helper()
	// The store's own goroutine alone uses the connection: what it does later is done in a transaction, too.
	testscale.Must(t, run(t.Context(), s, func(tx *tx) error {
		conn := reflect.ValueOf(tx.conn).Elem()
		tls, db := (*libc.TLS)(conn.FieldByName("tls").UnsafePointer()), uintptr(conn.FieldByName("conn").Uint())
		for stmt := lib.Xsqlite3_next_stmt(tls, db, 0); stmt != 0; stmt = lib.Xsqlite3_next_stmt(tls, db, stmt) {
			total += int64(lib.Xsqlite3_stmt_status(tls, stmt, lib.SQLITE_STMTSTATUS_VM_STEP, 1))
		}
		return nil
	}))
	if total == 0 {
		t.Fatal("no statement took a step")
	}
	return total
}

// agent makes turns as the AI SDK reports them: two model calls and two tool calls below a root.
type agent struct{ pattern ptrace.Traces }

func newAgent(t testing.TB) agent {
	t.Helper()
	raw := testscale.ReadFile(t, "../../ingest/testdata/captures/vercel-ai-sdk-v6/toolerror/001-traces.json")
	td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
	testscale.Must(t, err)
	return agent{td}
}

// turn is a turn in the trace of a number; edit may change its spans.
func (a agent) turn(n, trace int, edit func(ptrace.Span)) ptrace.Traces {
	td := ptrace.NewTraces()
	a.pattern.CopyTo(td)
	after := pcommon.Timestamp(time.Duration(n) * time.Minute)
	testscale.EachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		var traceID pcommon.TraceID
		binary.BigEndian.PutUint64(traceID[8:], uint64(trace+1))
		s.SetTraceID(traceID)
		id, parent := s.SpanID(), s.ParentSpanID()
		binary.BigEndian.PutUint32(id[:], uint32(n))
		s.SetSpanID(id)
		if !parent.IsEmpty() {
			binary.BigEndian.PutUint32(parent[:], uint32(n))
			s.SetParentSpanID(parent)
		}
		s.SetStartTimestamp(s.StartTimestamp() + after)
		s.SetEndTimestamp(s.EndTimestamp() + after)
		if edit != nil {
			edit(s)
		}
	})
	return td
}

// part keeps those of the spans that have a parent, or those that have none.
func part(td ptrace.Traces, roots bool) ptrace.Traces {
	some := ptrace.NewTraces()
	td.CopyTo(some)
	for _, rs := range some.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			ss.Spans().RemoveIf(func(s ptrace.Span) bool { return s.ParentSpanID().IsEmpty() != roots })
		}
	}
	return some
}

// shapes are ways in which agents send the turns of one session.
func shapes(a agent) map[string]func(n int) []ptrace.Traces {
	return map[string]func(int) []ptrace.Traces{
		"a trace per turn": func(n int) []ptrace.Traces { return []ptrace.Traces{a.turn(n, n, nil)} },
		"one trace":        func(n int) []ptrace.Traces { return []ptrace.Traces{a.turn(n, 0, nil)} },
		"root after its calls": func(n int) []ptrace.Traces {
			td := a.turn(n, n, nil)
			return []ptrace.Traces{part(td, false), part(td, true)}
		},
		"one trace, root after": func(n int) []ptrace.Traces {
			td := a.turn(n, 0, nil)
			return []ptrace.Traces{part(td, false), part(td, true)}
		},
		"latest first":            func(n int) []ptrace.Traces { return []ptrace.Traces{a.turn(2000-n, n, nil)} },
		"one trace, latest first": func(n int) []ptrace.Traces { return []ptrace.Traces{a.turn(2000-n, 0, nil)} },
		"from both ends": func(n int) []ptrace.Traces {
			return []ptrace.Traces{a.turn(n%2*(2000-n)+(1-n%2)*n, n, nil)}
		},
		"one trace, calls by a lesser key": func(n int) []ptrace.Traces {
			return []ptrace.Traces{a.turn(n, 0, func(s ptrace.Span) {
				if s.Name() == "ai.toolCall" {
					s.Attributes().Remove("ai.telemetry.metadata.sessionId")
					s.Attributes().PutStr("threadId", fmt.Sprint("thread-", n))
				}
			})}
		},
		"tool calls in traces of their own": func(n int) []ptrace.Traces {
			td := a.turn(n, 2*n, nil)
			calls := part(td, false)
			for _, s := range calls.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
				if s.Name() == "ai.toolCall" {
					id := s.TraceID()
					id[15]++ // the odd ones
					s.SetTraceID(id)
					s.SetParentSpanID(pcommon.SpanID{})
					s.Attributes().Remove("ai.telemetry.metadata.sessionId")
				}
			}
			return []ptrace.Traces{calls, part(td, true)}
		},
		"sub-agents before their tool call": func(n int) []ptrace.Traces {
			td := a.turn(n, 0, nil)
			spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			var call, tool ptrace.Span
			for _, s := range spans.All() {
				switch {
				case s.Name() == "ai.toolCall":
					tool = s
				case !s.ParentSpanID().IsEmpty():
					call = s
				}
			}
			below := ptrace.NewTraces()
			td.CopyTo(below)
			within := below.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			within.RemoveIf(func(s ptrace.Span) bool { return s.SpanID() != call.SpanID() })
			s := within.At(0)
			id := s.SpanID()
			id[7]++
			s.SetSpanID(id)
			s.SetParentSpanID(tool.SpanID())
			s.SetStartTimestamp(tool.StartTimestamp())
			s.SetEndTimestamp(tool.EndTimestamp())
			return []ptrace.Traces{below, td}
		},
		"a key on noise above": func(n int) []ptrace.Traces {
			td := a.turn(n, 0, func(s ptrace.Span) { s.Attributes().Remove("ai.telemetry.metadata.sessionId") })
			s := td.ResourceSpans().At(0).ScopeSpans().AppendEmpty().Spans().AppendEmpty()
			first := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			s.SetName("POST")
			s.SetTraceID(first.TraceID())
			s.SetSpanID(pcommon.SpanID{1, 2})
			s.SetEndTimestamp(first.EndTimestamp())
			s.Attributes().PutStr("session.id", "s1")
			return []ptrace.Traces{td}
		},
	}
}

// TestTurnCost: the work that a turn of an agent without the SDK costs does not grow with its session, nor with its
// trace. Where the spans of a sub-agent come before the tool call that began it, they are taken back out of the session
// above, whose observations are read for that: some steps for each turn.
func TestTurnCost(t *testing.T) {
	for name, shape := range shapes(newAgent(t)) {
		t.Run(name, func(t *testing.T) {
			s := open(t, newPath(t), Options{})
			in := ingest.New(s, ingest.Options{})
			deliver := func(n int) {
				for _, td := range shape(n) {
					if _, err := in.Traces(t.Context(), td); err != nil {
						t.Fatal(err)
					}
				}
			}
			// What ten turns cost, on the average, after so many.
			costs := make(map[int]int64)
			next := 0
			for _, after := range []int{10, 50, 100}[:testscale.Rounds(2, 3)] {
				for ; next < after; next++ {
					deliver(next)
				}
				steps(t, s)
				for range 10 {
					deliver(next)
					next++
				}
				costs[after] = steps(t, s) / 10
				most := costs[10] * 3 / 2
				if name == "sub-agents before their tool call" {
					most += 50 * int64(after)
				}
				if costs[after] > most {
					t.Errorf("a turn costs %d steps after %d turns, %d after 10", costs[after], after, costs[10])
				}
			}
		})
	}
}
