package ingest_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// crews reads what a collector kept of the programs of internal/e2e/agents whose agent asks another one by a tool, by
// program. The scripts that they played are in model.mjs there.
func crews(t testing.TB) map[string][]request {
	t.Helper()
	file, err := os.Open("testdata/crews/otlp-frames.zst")
	testscale.Must(t, err)
	defer file.Close()
	all := make(map[string][]request)
	for body, err := range otlpfile.Read(file, otlpfile.Options{}) {
		testscale.Must(t, err)
		for _, rs := range body.Traces.ResourceSpans().All() {
			program, _ := rs.Resource().Attributes().Get("service.name")
			td := ptrace.NewTraces()
			rs.CopyTo(td.ResourceSpans().AppendEmpty())
			all[program.Str()] = append(all[program.Str()], request{traces: td})
		}
	}
	if len(all) != 6 {
		t.Fatalf("telemetry of %v, want that of six programs", slices.Sorted(maps.Keys(all)))
	}
	return all
}

// TestCrews holds the sessions of the crews, those of the sub-agents included, to what the model server answered and
// the tools returned. The files are written as those of TestCaptureFacts.
func TestCrews(t *testing.T) {
	for program, all := range crews(t) {
		t.Run(program, func(t *testing.T) {
			s := openStore(t)
			deliver(t, s, all)
			storetest.CheckSessions(t, s)
			want := testscale.ReadFile(t, filepath.Join("testdata/crews", program+".facts"))
			if d := gocmp.Diff(string(want), recount(t, s)); d != "" {
				t.Errorf("the sessions are not what happened (-happened +sessions):\n%s", d)
			}
		})
	}
}

// TestCrewsInAnyOrder: the spans of a crew give the same bytes in every table in any order,
// in any requests and delivered again.
func TestCrewsInAnyOrder(t *testing.T) {
	for program, all := range crews(t) {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			testOrder(t, all, testscale.Rounds(2, 8))
		})
	}
}

// TestCrewsWithoutAPause: the sessions of a crew are the same where each turn begins when
// the span of the one before it ends, while that is still storing what it came to.
func TestCrewsWithoutAPause(t *testing.T) {
	for program, all := range crews(t) {
		t.Run(program, func(t *testing.T) {
			reference := openStore(t)
			deliver(t, reference, all)
			want := spokenOf(t, reference)
			s := openStore(t)
			deliver(t, s, withoutPauses(all))
			storetest.CheckSessions(t, s)
			if d := gocmp.Diff(want, spokenOf(t, s)); d != "" {
				t.Errorf("sessions (-with pauses +without):\n%s", d)
			}
		})
	}
}

// spokenOf is what [spoken] is of every session that no other started.
func spokenOf(t testing.TB, s *sqlitestore.Store) (all string) {
	t.Helper()
	for _, row := range storetest.Sessions(t, s) {
		if row.ParentID == nil {
			all += spoken(t, s, row.ID)
		}
	}
	return all
}

// withoutPauses moves each turn to where the root of the one before it ends. The traces of
// a turn begin within the first of them: an instrumentation may have its own.
func withoutPauses(all []request) []request {
	all = join(all)
	type times struct{ from, until, earlier pcommon.Timestamp } // of a trace and its root, and by how much it is moved
	traces := make(map[pcommon.TraceID]*times)
	testscale.EachSpan(all[0].traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		at := traces[s.TraceID()]
		if at == nil {
			at = &times{from: s.StartTimestamp()}
			traces[s.TraceID()] = at
		}
		at.from = min(at.from, s.StartTimestamp())
		if s.ParentSpanID().IsEmpty() {
			at.until = max(at.until, s.EndTimestamp())
		}
	})
	inOrder := slices.SortedFunc(maps.Values(traces), func(x, y *times) int { return cmp.Compare(x.from, y.from) })
	turn := inOrder[0]
	for _, trace := range inOrder[1:] {
		if trace.earlier = turn.earlier; trace.from >= turn.until {
			trace.earlier += trace.from - turn.until
			turn = trace
		}
	}
	testscale.EachSpan(all[0].traces, func(s ptrace.Span, _ pcommon.InstrumentationScope, _ pcommon.Resource) {
		by := traces[s.TraceID()].earlier
		s.SetStartTimestamp(s.StartTimestamp() - by)
		s.SetEndTimestamp(s.EndTimestamp() - by)
	})
	return all
}

// spoken is a line for each message of a session and of those below it: its texts and calls.
func spoken(t testing.TB, s *sqlitestore.Store, id string) string {
	t.Helper()
	transcript := storetest.Transcript(t, s, id)
	var b strings.Builder
	for i := range transcript.Messages {
		m := &transcript.Messages[i]
		fmt.Fprintf(&b, "%s:", m.Message.Role)
		for _, p := range m.Parts {
			switch {
			case p.ToolCallID != nil:
				fmt.Fprintf(&b, " %s %s,", strings.TrimPrefix(p.Type, "tool-"), *p.ToolCallID)
			case p.Type == "text":
				fmt.Fprintf(&b, " %s", textOfPart(p))
				if m.Message.Role == "assistant" {
					b.WriteString(",")
				}
			case p.Type != "step-start":
				fmt.Fprintf(&b, " %s", p.Type)
			}
		}
		b.WriteString("\n")
	}
	for _, row := range storetest.Sessions(t, s) {
		if row.ParentID != nil && *row.ParentID == id {
			b.WriteString("child\n" + spoken(t, s, row.ID))
		}
	}
	return b.String()
}
