package ingest_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/ingest/dialect"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/spans"
)

// turnMaker makes turns of a real one of the AI SDK's version 6: two model calls and two tool calls below a root.
type turnMaker struct{ pattern ptrace.Traces }

func newTurnMaker(t testing.TB) turnMaker {
	t.Helper()
	return turnMaker{readCapture(t, "testdata/captures/vercel-ai-sdk-v6/toolerror")[0].traces}
}

// turn is the turn number n, in a trace of its own, that begins after a while. No key names its session.
func (m turnMaker) turn(n int, after time.Duration) ptrace.Traces {
	td := ptrace.NewTraces()
	m.pattern.CopyTo(td)
	words := strings.NewReplacer("Weather in Paris and remove /etc/hosts", fmt.Sprint("question ", n),
		"12C and rain. I could not delete /etc/hosts.", fmt.Sprint("answer ", n))
	eachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		trace, id, parent := s.TraceID(), s.SpanID(), s.ParentSpanID()
		binary.BigEndian.PutUint64(trace[:], uint64(n))
		binary.BigEndian.PutUint32(id[:], uint32(n))
		s.SetTraceID(trace)
		s.SetSpanID(id)
		if !parent.IsEmpty() {
			binary.BigEndian.PutUint32(parent[:], uint32(n))
			s.SetParentSpanID(parent)
		}
		s.SetStartTimestamp(s.StartTimestamp() + pcommon.Timestamp(after))
		s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(after))
		s.Attributes().RemoveIf(func(key string, _ pcommon.Value) bool {
			return slices.Contains(dialect.SessionKeys, key)
		})
		for _, v := range s.Attributes().All() {
			if v.Type() == pcommon.ValueTypeStr {
				v.SetStr(words.Replace(v.Str()))
			}
		}
	})
	return td
}

func eachSpan(td ptrace.Traces, f func(ptrace.Span, pcommon.InstrumentationScope, pcommon.Resource)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(s, ss.Scope(), rs.Resource())
			}
		}
	}
}

// onSpans puts the key of a session on the spans of a name, which may be empty for all.
func onSpans(td ptrace.Traces, name, key, id string) ptrace.Traces {
	eachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		if name == "" || s.Name() == name {
			s.Attributes().PutStr(key, id)
		}
	})
	return td
}

// below puts the trace's roots below an HTTP server span that names a session.
func below(td ptrace.Traces, key, id string) ptrace.Traces {
	var server ptrace.Span
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "web")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("@opentelemetry/instrumentation-http")
	server = ss.Spans().AppendEmpty()
	server.SetName("POST /api/chat")
	server.SetKind(ptrace.SpanKindServer)
	server.Attributes().PutStr("http.request.method", "POST")
	server.Attributes().PutStr(key, id)
	server.SetSpanID(pcommon.SpanID{7})
	eachSpan(td, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		switch {
		case s.ParentSpanID().IsEmpty() && s != server:
			server.SetTraceID(s.TraceID())
			server.SetStartTimestamp(s.StartTimestamp() - 1e6)
			server.SetEndTimestamp(s.EndTimestamp() + 1e6)
			s.SetParentSpanID(server.SpanID())
		}
	})
	return td
}

// detach makes the tool calls roots of traces of their own, without any key, as
// versions 5 and 6 do in the first step of a stream.
func detach(td ptrace.Traces) (turn ptrace.Traces, calls []ptrace.Traces) {
	turn = ptrace.NewTraces()
	td.CopyTo(turn)
	n := byte(0)
	eachSpan(td, func(s ptrace.Span, scope pcommon.InstrumentationScope, resource pcommon.Resource) {
		if s.Name() != "ai.toolCall" {
			return
		}
		n++
		call := ptrace.NewTraces()
		rs := call.ResourceSpans().AppendEmpty()
		resource.CopyTo(rs.Resource())
		ss := rs.ScopeSpans().AppendEmpty()
		scope.CopyTo(ss.Scope())
		sp := ss.Spans().AppendEmpty()
		s.CopyTo(sp)
		trace := s.TraceID()
		trace[15] += n
		sp.SetTraceID(trace)
		sp.SetParentSpanID(pcommon.SpanID{})
		sp.Attributes().RemoveIf(func(key string, _ pcommon.Value) bool {
			return slices.Contains(dialect.SessionKeys, key)
		})
		calls = append(calls, call)
	})
	for _, rs := range turn.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			ss.Spans().RemoveIf(func(s ptrace.Span) bool { return s.Name() == "ai.toolCall" })
		}
	}
	return turn, calls
}

// outline is what a person would note of a store: its sessions in order of id, with
// the key that they were found by, and what was asked, called and answered.
func outline(t testing.TB, s *sqlitestore.Store) []string {
	t.Helper()
	var lines []string
	for _, tr := range rowsOf(t, s) {
		row := tr.Session
		var metadata struct {
			Agenttrace struct {
				SessionKey string `json:"session_key"`
			} `json:"agenttrace"`
		}
		if err := json.Unmarshal([]byte(row.MetadataJSON), &metadata); err != nil {
			t.Fatal(err)
		}
		line := row.ID
		if strings.HasPrefix(line, spans.PrefixSession) {
			line = "own"
		}
		if key := metadata.Agenttrace.SessionKey; key != "" {
			line += " by " + key
		}
		for _, m := range tr.Messages {
			line += " | " + m.Message.Role
			for _, p := range m.Parts {
				var part struct{ Type, Text, State string }
				if err := json.Unmarshal([]byte(p.DataJSON), &part); err != nil {
					t.Fatal(err)
				}
				switch {
				case part.Type == "text" && strings.HasPrefix(part.Text, "question"),
					part.Type == "text" && strings.HasPrefix(part.Text, "answer"):
					line += " " + part.Text
				case part.State != "":
					line += " " + strings.TrimPrefix(part.Type, "tool-") + ":" + strings.TrimPrefix(part.State,
						"output-")
				}
			}
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// inAnyOrder returns the outline of what requests come to, in whatever order they are delivered.
func inAnyOrder(t *testing.T, o ingest.Options, all []request) []string {
	t.Helper()
	testOrderWith(t, o, all, testscale.Rounds(4, 6))
	s := openStore(t)
	deliverTo(t, s, o, join(all))
	check(t, s)
	return outline(t, s)
}

func requestsOf(all ...ptrace.Traces) []request {
	var requests []request
	for _, td := range all {
		requests = append(requests, request{traces: td})
	}
	return requests
}

const (
	hour = time.Hour
	// builtTurn is how a turn of turnMaker reads.
	builtTurn = " | user question %d | assistant get_weather:available delete_file:error answer %[1]d"
)

func built(head string, turns ...int) string {
	for _, n := range turns {
		head += fmt.Sprintf(builtTurn, n)
	}
	return head
}

// TestIdentity: which session a trace is built in.
func TestIdentity(t *testing.T) {
	m := newTurnMaker(t)
	const call, root = "ai.generateText.doGenerate", "ai.generateText"
	chat := func(td ptrace.Traces, id string) ptrace.Traces {
		return onSpans(td, root, "ai.telemetry.metadata.sessionId", id)
	}
	detached, calls := detach(chat(m.turn(1, hour), "s1"))
	onResource := m.turn(1, 0)
	onResource.ResourceSpans().At(0).Resource().Attributes().PutStr("session.id", "s1")
	onScope := m.turn(1, 0)
	onScope.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("session.id", "s1")
	both := requestsOf(chat(m.turn(1, 0), "s1"), chat(m.turn(2, hour), "s2"))
	eachSpan(both[1].traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		s.SetTraceID(m.turn(1, 0).ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).TraceID())
	})
	for _, c := range []struct {
		name string
		keys []string
		all  []request
		want []string
	}{
		{"no key", nil, requestsOf(m.turn(1, 0), m.turn(2, hour)), []string{built("own", 1), built("own", 2)}},
		{"on the root alone", nil, requestsOf(chat(m.turn(1, 0), "s1")),
			[]string{built("s1 by ai.telemetry.metadata.sessionId", 1)}},
		{"on the model calls alone", nil, requestsOf(onSpans(m.turn(1, 0), call, "session.id", "s1")),
			[]string{built("s1 by session.id", 1)}},
		{"on a tool call alone", nil, requestsOf(onSpans(m.turn(1, 0), "ai.toolCall", "conversation.id", "s1")),
			[]string{built("s1 by conversation.id", 1)}},
		{"on the resource", nil, requestsOf(onResource), []string{built("s1 by session.id", 1)}},
		{"on the scope", nil, requestsOf(onScope), []string{built("s1 by session.id", 1)}},
		{"on a server span above", nil, requestsOf(below(m.turn(1, 0), "session.id", "s1")), []string{built("s1", 1)}},
		{"a server span above and a key of its own", nil,
			requestsOf(below(onSpans(m.turn(1, 0), root, "threadId", "s1"), "session.id", "browser")),
			[]string{built("s1 by threadId", 1)}},
		{"two keys", nil, requestsOf(onSpans(onSpans(m.turn(1, 0), call, "threadId", "t1"), root, "session.id", "s1"),
			onSpans(m.turn(2, hour), "", "threadId", "t1")),
			[]string{built("s1 by session.id", 1), built("t1 by threadId", 2)}},
		{"keys of one's own", []string{"app.chat", "session.id"},
			requestsOf(onSpans(onSpans(m.turn(1, 0), root, "session.id", "other"), call, "app.chat", "s1"),
				m.turn(2, hour)),
			[]string{built("own", 2), built("s1 by app.chat", 1)}},
		{"two sessions in one trace", nil, both, []string{built("s1 by ai.telemetry.metadata.sessionId", 1),
			built("s2 by ai.telemetry.metadata.sessionId", 2)}},
		{"turns of two sessions in turn", nil, requestsOf(chat(m.turn(1, 0), "s1"), chat(m.turn(2, hour), "s2"),
			chat(m.turn(3, 2*hour), "s1"), chat(m.turn(4, 3*hour), "s2")),
			[]string{built("s1 by ai.telemetry.metadata.sessionId", 1, 3),
				built("s2 by ai.telemetry.metadata.sessionId", 2, 4)}},
		{"tool calls in traces of their own", nil, requestsOf(append(calls, detached)...),
			[]string{built("s1 by ai.telemetry.metadata.sessionId", 1)}},
		{"tool calls in traces of their own, whose ids repeat", nil,
			requestsOf(append(calls, detached, chat(m.turn(2, 0), "s2"), chat(m.turn(3, 2*hour), "s3"))...),
			[]string{built("s1 by ai.telemetry.metadata.sessionId", 1),
				built("s2 by ai.telemetry.metadata.sessionId", 2),
				built("s3 by ai.telemetry.metadata.sessionId", 3)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, inAnyOrder(t, ingest.Options{SessionKeys: c.keys}, c.all)); d != "" {
				t.Errorf("sessions (-want +got):\n%s", d)
			}
		})
	}
}

// TestIdentityOfManyTurns: fifty turns of one session, a trace each, hours apart, come in any order.
func TestIdentityOfManyTurns(t *testing.T) {
	m := newTurnMaker(t)
	var all []request
	var numbers []int
	for n := 1; n <= 50; n++ {
		all = append(all,
			requestsOf(onSpans(m.turn(n, time.Duration(n)*5*hour), "ai.generateText", "session.id", "s1"))...)
		numbers = append(numbers, n)
	}
	got := inAnyOrder(t, ingest.Options{}, all)
	if d := cmp.Diff([]string{built("s1 by session.id", numbers...)}, got); d != "" {
		t.Errorf("sessions (-want +got):\n%s", d)
	}
}

// TestIdentityBesideSDK: what the SDK reports is not reported again by what else
// instruments the program, except where that names another session.
func TestIdentityBesideSDK(t *testing.T) {
	m := newTurnMaker(t)
	for _, c := range []struct {
		name, id string
		want     int
		built    string
	}{
		{"no key", "", 1, ""},
		{"the same session", "ses_1", 1, ""},
		{"another session", "s2", 2, built("s2 by session.id", 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScenario()
			s.run("ses_1", 1, 2, 0)
			foreign := m.turn(1, 0)
			eachSpan(foreign, func(sp ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
				sp.SetTraceID(s.spans[0].TraceID())
				if sp.ParentSpanID().IsEmpty() {
					sp.SetParentSpanID(s.spans[0].SpanID())
				}
			})
			if c.id != "" {
				onSpans(foreign, "", "session.id", c.id)
			}
			all := requestsOf(traces(s.spans...), foreign)
			// An orphan tool call of the foreign instrumentation is the SDK's as well.
			turn, calls := detach(foreign)
			got := inAnyOrder(t, ingest.Options{}, append(all[:1], requestsOf(append(calls, turn)...)...))
			if len(got) != c.want || c.built != "" && got[0] != c.built && got[1] != c.built {
				t.Errorf("sessions: %q", got)
			}
		})
	}
}

// TestIdentityOfRecords: an agent's log records report the same session as its spans, whichever come first.
func TestIdentityOfRecords(t *testing.T) {
	all := readCapture(t, "testdata/captures/claude-code-2.1.329/print-bash")
	var records, spans []request
	for _, r := range all {
		if r.isLogs {
			records = append(records, r)
		} else {
			spans = append(spans, r)
		}
	}
	want := ""
	for _, order := range [][]request{slices.Concat(records, spans), slices.Concat(spans, records),
		slices.Concat(records[1:], spans, records[:1])} {
		s := openStore(t)
		for i := range order {
			deliver(t, s, order[i:i+1])
			if got := outline(t, s); len(got) != 1 {
				t.Errorf("%d sessions after %d requests", len(got), i+1)
			}
		}
		if got := dump(t, s.Path()); want == "" {
			want = got
		} else if got != want {
			t.Errorf("tables differ (-want +got):\n%s", differ(want, got))
		}
	}
}
