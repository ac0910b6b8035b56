package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/ingest"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// request is one OTLP request: spans or log records.
type request struct {
	traces ptrace.Traces
	logs   plog.Logs
	isLogs bool
}

// readCapture reads the requests that an agent sent, in their order.
func readCapture(t testing.TB, dir string) []request {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no bodies in %s: %v", dir, err)
	}
	slices.Sort(files)
	var all []request
	for _, file := range files {
		raw := testscale.ReadFile(t, file)
		var r request
		if strings.HasSuffix(file, "-logs.json") {
			r.isLogs = true
			r.logs, err = new(plog.JSONUnmarshaler).UnmarshalLogs(raw)
		} else {
			r.traces, err = new(ptrace.JSONUnmarshaler).UnmarshalTraces(raw)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, r)
	}
	return all
}

// split makes a request of every span and every record.
func split(all []request) []request {
	var single []request
	for _, r := range all {
		if r.isLogs {
			for _, rl := range r.logs.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, rec := range sl.LogRecords().All() {
						ld := plog.NewLogs()
						to := ld.ResourceLogs().AppendEmpty()
						rl.Resource().CopyTo(to.Resource())
						scope := to.ScopeLogs().AppendEmpty()
						sl.Scope().CopyTo(scope.Scope())
						rec.CopyTo(scope.LogRecords().AppendEmpty())
						single = append(single, request{logs: ld, isLogs: true})
					}
				}
			}
			continue
		}
		for _, rs := range r.traces.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					td := ptrace.NewTraces()
					to := td.ResourceSpans().AppendEmpty()
					rs.Resource().CopyTo(to.Resource())
					scope := to.ScopeSpans().AppendEmpty()
					ss.Scope().CopyTo(scope.Scope())
					s.CopyTo(scope.Spans().AppendEmpty())
					single = append(single, request{traces: td})
				}
			}
		}
	}
	return single
}

// join makes one request of the spans and one of the records of several.
func join(all []request) []request {
	td, ld := ptrace.NewTraces(), plog.NewLogs()
	for _, r := range all {
		if r.isLogs {
			for _, rl := range r.logs.ResourceLogs().All() {
				rl.CopyTo(ld.ResourceLogs().AppendEmpty())
			}
			continue
		}
		for _, rs := range r.traces.ResourceSpans().All() {
			rs.CopyTo(td.ResourceSpans().AppendEmpty())
		}
	}
	var joined []request
	if td.SpanCount() > 0 {
		joined = append(joined, request{traces: td})
	}
	if ld.LogRecordCount() > 0 {
		joined = append(joined, request{logs: ld, isLogs: true})
	}
	return joined
}

// to has a request ingested.
func (r *request) to(ctx context.Context, in *ingest.Ingester) (ingest.Report, error) {
	if r.isLogs {
		return in.Logs(ctx, r.logs)
	}
	return in.Traces(ctx, r.traces)
}

func deliver(t testing.TB, s *sqlitestore.Store, all []request) ingest.Report {
	t.Helper()
	return deliverTo(t, s, ingest.Options{}, all)
}

func deliverTo(t testing.TB, s *sqlitestore.Store, o ingest.Options, all []request) ingest.Report {
	t.Helper()
	in := ingest.New(s, o)
	sum := ingest.Report{Dialects: make(map[string]int)}
	for _, r := range all {
		report, err := r.to(t.Context(), in)
		testscale.Must(t, err)
		sum.Spans += report.Spans
		sum.Records += report.Records
		sum.Accepted += report.Accepted
		sum.Ignored += report.Ignored
		sum.Malformed += report.Malformed
		sum.Refused += report.Refused
		for name, n := range report.Dialects {
			sum.Dialects[name] += n
		}
	}
	testscale.Must(t, s.Rebuild(t.Context()))
	return sum
}

// captures lists the runs of testdata/captures, as client/run.
func captures(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/captures/*/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no captures", err)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		return filepath.Ext(dir) == ".txtar" || filepath.Ext(dir) == ".facts"
	})
}

// TestCaptures builds the sessions of what real agents sent. What the user typed and the agent did is in prose at the
// head of each golden file, written from the bodies; the rest is what the store holds.
func TestCaptures(t *testing.T) {
	for _, dir := range captures(t) {
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			s := openStore(t)
			report := deliver(t, s, readCapture(t, dir))
			storetest.CheckSessions(t, s)
			if report.Malformed+int(report.Refused) != 0 {
				t.Errorf("malformed %d, refused %d", report.Malformed, report.Refused)
			}
			names, _ := json.Marshal(report.Dialects)
			got := []txtar.File{
				{Name: "report", Data: fmt.Appendf(nil, "spans %d, records %d, placed %d %s, ignored %d\n",
					report.Spans,
					report.Records, report.Accepted, names, report.Ignored)},
				{Name: "sessions", Data: []byte(narrate(t, s))},
			}
			file := dir + ".txtar"
			archive := new(txtar.Archive)
			if old, err := txtar.ParseFile(file); err == nil {
				archive = old
			}
			archive.Files = got
			codectest.CheckGolden(t, file, string(txtar.Format(archive)), *update)
			if len(bytes.TrimSpace(archive.Comment)) == 0 {
				t.Error("the scenario has no description")
			}
		})
	}
}

// TestCaptureOrder: a capture's spans and records, mixed in any order, in any
// batches and delivered again, give the same bytes in every table.
func TestCaptureOrder(t *testing.T) {
	for i, dir := range captures(t) {
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			testOrder(t, readCapture(t, dir), testscale.Rounds(1+i%2, 12))
		})
	}
}

// testOrder delivers spans and records in as many orders, batches and repetitions as there
// are rounds, and fails unless every table has the same bytes.
func testOrder(t *testing.T, all []request, rounds int) {
	t.Helper()
	reference := openStore(t)
	deliver(t, reference, join(all))
	testOrderWith(t, reference, ingest.Options{}, all, rounds)
}

// testOrderWith is testOrder for who has a store to which all was delivered at once.
func testOrderWith(t *testing.T, reference *sqlitestore.Store, o ingest.Options, all []request, rounds int) {
	t.Helper()
	want := dump(t, reference.Path())
	single := split(all)
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		order := slices.Clone(single)
		switch seed {
		case 0:
			slices.Reverse(order)
		case 2: // as sent, one by one
		default:
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		var requests []request
		for len(order) > 0 {
			n := min(len(order), 1+r.IntN(1+r.IntN(1+len(single)/4)))
			if seed%2 == 0 && seed <= 2 && len(single) < 100 {
				n = 1
			}
			requests = append(requests, join(order[:n])...)
			order = order[n:]
			if r.IntN(3) == 0 {
				requests = append(requests, requests[r.IntN(len(requests))]) // a client that did not see the answer
			}
		}
		s := openStore(t)
		deliverTo(t, s, o, requests)
		if got := dump(t, s.Path()); got != want {
			t.Fatalf("seed %d: tables differ (-want +got):\n%s", seed,
				differ(want, got))
		}
	}
}

// narrate writes every session of a store as a person would read it aloud.
func narrate(t testing.TB, s *sqlitestore.Store) string {
	t.Helper()
	var b strings.Builder
	for _, tr := range rowsOf(t, s) {
		id := tr.Session.ID
		narrateSession(&b, &tr.Session)
		for _, m := range tr.Messages {
			at := time.UnixMilli(m.Message.CreatedAt).UTC()
			fmt.Fprintf(&b, "  %s %s for %d ms %s\n", m.Message.Role, at.Format("15:04:05.000"),
				m.Message.UpdatedAt-m.Message.CreatedAt, m.Message.MetadataJSON)
			for _, p := range m.Parts {
				fmt.Fprintf(&b, "    %d %s\n", p.Index, p.DataJSON)
			}
		}
		decisions, err := s.Decisions(t.Context(), id)
		testscale.Must(t, err)
		for _, d := range decisions {
			d.ID, d.MessageID, d.PartID, d.SessionID, d.TraceID, d.SpanID = "", "", "", "", "", ""
			raw, _ := json.Marshal(d)
			fmt.Fprintf(&b, "  decision %s\n", raw)
		}
		links, err := s.SpanRefs(t.Context(), id)
		testscale.Must(t, err)
		for _, l := range links {
			fmt.Fprintf(&b, "  link %s %s %.6s/%.6s -> %s\n", l.Dialect, l.Kind, l.TraceID, l.SpanID,
				role(tr, l.MessageID, l.PartID))
		}
	}
	return b.String()
}

func narrateSession(b *strings.Builder, s *session.Session) {
	text := func(p *string) string {
		if p == nil {
			return "-"
		}
		return *p
	}
	fmt.Fprintf(b, "session %s %q agent=%s model=%s parent=%s mode=%s root=%s tokens=%d/%d/%d/%d/%d cost=%g rules=%s "+
		"%s\n",
		s.ID, s.Title, s.Agent, text(s.ModelJSON),
		text(s.ParentID), text(s.Mode), text(s.WorkspaceRoot), s.PromptTokens, s.CompletionTokens, s.ReasoningTokens,
		s.CacheRead, s.CacheWrite, s.CostUSD,
		s.PermissionsJSON, s.MetadataJSON)
}

// role says where a row stands: the message's place and the part's index.
func role(tr *session.Transcript, messageID, partID string) string {
	for i, m := range tr.Messages {
		if m.Message.ID != messageID {
			continue
		}
		for _, p := range m.Parts {
			if p.ID == partID {
				return fmt.Sprintf("%s %d part %d", m.Message.Role, i, p.Index)
			}
		}
		return fmt.Sprintf("%s %d", m.Message.Role, i)
	}
	return "-"
}
