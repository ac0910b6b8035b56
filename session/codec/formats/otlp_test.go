package formats

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// otlpEmptyStore opens a store that is closed when the test ends.
func otlpEmptyStore(tb testing.TB) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), filepath.Join(tb.TempDir(), "sessions.db"), sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// otlpStored reads a session back, with the spans it came from.
func otlpStored(tb testing.TB, r store.Reader, id string) (*codec.Session, []store.SpanRef) {
	tb.Helper()
	in, err := document.Collect(context.Background(), r, id)
	if err != nil {
		tb.Fatal(err)
	}
	s := &codec.Session{Transcript: in.Transcript, Decisions: in.Decisions, Annotations: in.Annotations}
	for i := range s.Messages {
		var m session.MessageMetadata
		testscale.Must(tb, json.Unmarshal([]byte(s.Messages[i].Message.MetadataJSON), &m))
		for kind, digest := range map[store.BlobKind]string{store.BlobSystemPrompt: m.SystemPromptDigest,
			store.BlobToolCatalog: m.Trace.ToolCatalogDigest} {
			if b, err := r.Blob(context.Background(), kind, digest); err == nil && !slices.Contains(s.Blobs, b) {
				s.Blobs = append(s.Blobs, b)
			}
		}
	}
	return s, in.SpanRefs
}

// otlpIngested is what an empty store makes of the session's spans.
func otlpIngested(tb testing.TB, s *codec.Session) (*codec.Session, []store.SpanRef) {
	tb.Helper()
	td, err := TurnSpans(s, nil)
	if err != nil {
		tb.Fatal(err)
	}
	st := otlpEmptyStore(tb)
	r, err := ingest.New(st, ingest.Options{}).Traces(context.Background(), td)
	if err != nil {
		tb.Fatal(err)
	}
	if len(r.Problems) > 0 && len(otlpExplain(s)) == 0 {
		tb.Errorf("session %s: %d of its spans are malformed: %s", s.Session.ID, r.Malformed,
			strings.Join(r.Problems, "\n"))
	}
	return otlpStored(tb, st, s.Session.ID)
}

// otlpGenerated are n sessions of the suite of which nothing is lost, with messages.
func otlpGenerated(tb testing.TB, n int) (all []*codec.Session) {
	tb.Helper()
	for _, s := range codectest.Generated(200) {
		if len(s.Session.Messages) > 2 && len(otlpExplain(s.Session)) == 0 {
			if all = append(all, s.Session); len(all) == n {
				return all
			}
		}
	}
	tb.Fatalf("%d sessions of which nothing is lost, want %d", len(all), n)
	return nil
}

// otlpComesBack checks the promise of the package: what Explain lists nothing of comes out
// as it went in, and anything else does the second time.
func otlpComesBack(tb testing.TB, s *codec.Session) {
	tb.Helper()
	losses := otlpExplain(s)
	got, refs := otlpIngested(tb, s)
	if len(losses) == 0 {
		if d := codectest.Diff(s, got); d != "" {
			tb.Errorf("session %s %s", s.Session.ID, d)
		}
	}
	if v := session.Check(got.Transcript); len(v) > 0 {
		tb.Errorf("session %s: the replay is invalid: %v", s.Session.ID, v)
	}
	if again := otlpExplain(got); len(again) > 0 {
		tb.Errorf("session %s: a replay is not what the next one gives: %+v", s.Session.ID, again)
	}
	// With the spans that are known.
	got.SpanRefs = refs
	twice, refsAgain := otlpIngested(tb, got)
	got.SpanRefs = nil
	if d := codectest.Diff(got, twice); d != "" {
		tb.Errorf("session %s, again %s", s.Session.ID, d)
	}
	if d := gocmp.Diff(otlpPlaces(refs), otlpPlaces(refsAgain)); d != "" && len(losses) == 0 {
		tb.Errorf("session %s: spans have other ids (-want +got):\n%s", s.Session.ID, d)
	}
}

func otlpPlaces(refs []store.SpanRef) []string {
	var all []string
	for _, l := range refs {
		all = append(all, l.Kind+" "+l.TraceID+" "+l.SpanID+" "+l.ParentSpanID)
	}
	slices.Sort(all)
	return all
}

// otlpCorpus are the sessions of the goldens of ingest and of codecs: of the SDK, of
// agents without it, and of imports.
func otlpCorpus(tb testing.TB) map[string]*codec.Session {
	tb.Helper()
	all := make(map[string]*codec.Session)
	read := func(name string, rows, decisions []byte) {
		for t, err := range jsonl.Decode(bytes.NewReader(rows), nil) {
			if err != nil {
				break // a golden that says something else besides
			}
			s := &codec.Session{Transcript: t}
			for line := range bytes.Lines(decisions) {
				var d store.Decision
				if json.Unmarshal(line, &d) == nil && d.SessionID == t.Session.ID {
					s.Decisions = append(s.Decisions, d)
				}
			}
			all[name+" "+t.Session.ID] = s
		}
	}
	for _, pattern := range []string{"*.txtar", "captures/*/*.txtar"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "ingest", "testdata", pattern))
		if err != nil || len(files) == 0 {
			tb.Fatalf("no goldens %s: %v", pattern, err)
		}
		for _, file := range files {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			var rows, decisions []byte
			for _, f := range archive.Files {
				switch f.Name {
				case "session", "sessions":
					rows = f.Data
				case "decisions":
					decisions = f.Data
				}
			}
			read(filepath.Base(file), rows, decisions)
		}
	}
	goldens, err := filepath.Glob(filepath.Join("testdata", "*", "*.golden*"))
	more, _ := filepath.Glob(filepath.Join("..", "transcripts", "testdata", "*.golden*")) // of a pattern that is one
	goldens = append(goldens, more...)
	if err != nil || len(goldens) == 0 {
		tb.Fatalf("no goldens: %v", err)
	}
	for _, file := range goldens {
		raw := testscale.ReadFile(tb, file)
		var rows []byte
		for line := range bytes.Lines(raw) {
			if bytes.HasPrefix(line, []byte(`{"type":"`)) {
				rows = append(rows, line...)
			}
		}
		read(filepath.Base(file), rows, nil)
	}
	return all
}

// TestOTLPCorpus wants all that telemetry and imports ever came to to come back as it is.
func TestOTLPCorpus(t *testing.T) {
	all := otlpCorpus(t)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i%testscale.Rounds(4, 1) != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, l := range otlpExplain(all[name]) {
				t.Errorf("would lose %+v", l)
			}
			otlpComesBack(t, all[name])
		})
	}
}

// TestOTLPFiles writes sessions one after the other, in JSON and in protobuf, and reads
// the files as import does.
func TestOTLPFiles(t *testing.T) {
	both := otlpGenerated(t, 2)
	for name, write := range map[string]func(io.Writer, *codec.Session) error{
		"json": otlpWriteJSON, "proto": otlpWriteProto,
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			for _, s := range both {
				testscale.Must(t, write(&file, s))
			}
			if !otlpfile.Sniff(file.Bytes()[:min(file.Len(), otlpfile.SniffSize)]) {
				t.Error("the file is not recognized")
			}
			st := otlpEmptyStore(t)
			testscale.Must(t, otlpInto(t.Context(), st, &file, nil))
			for _, s := range both {
				want := *s
				want.SpanRefs, want.Traces, want.State, want.RequestedIndexes = nil, nil, nil, nil
				got, _ := otlpStored(t, st, s.Session.ID)
				if d := codectest.Diff(&want, got); d != "" {
					t.Errorf("session %s %s", s.Session.ID, d)
				}
			}
		})
	}
}

// TestOTLPAnyOrder delivers each span by itself, the last one first, and some twice.
func TestOTLPAnyOrder(t *testing.T) {
	td, ids := otlpWorked(t)
	st := otlpEmptyStore(t)
	if _, err := ingest.New(st, ingest.Options{}).Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	measured, refs := otlpStored(t, st, ids[0])
	measured.SpanRefs = refs
	for _, s := range append(otlpGenerated(t, 6), measured) {
		td, err := TurnSpans(s, nil)
		testscale.Must(t, err)
		st := otlpEmptyStore(t)
		in := ingest.New(st, ingest.Options{})
		all := td.ResourceSpans().At(0).ScopeSpans().At(0)
		for i := all.Spans().Len() - 1; i >= 0; i-- {
			one := ptrace.NewTraces()
			ss := one.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			all.Scope().CopyTo(ss.Scope())
			all.Spans().At(i).CopyTo(ss.Spans().AppendEmpty())
			for range 1 + i%2 {
				if _, err := in.Traces(t.Context(), one); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := *s
		want.SpanRefs, want.Traces, want.State, want.RequestedIndexes = nil, nil, nil, nil
		got, _ := otlpStored(t, st, s.Session.ID)
		if d := codectest.Diff(&want, got); d != "" {
			t.Errorf("session %s %s", s.Session.ID, d)
		}
	}
}

// TestOTLPCutOff replays a session through something that limits the length of
// attributes: where rows are not whole, the span's own attributes are read.
func TestOTLPCutOff(t *testing.T) {
	s := otlpGenerated(t, 4)[3]
	td, err := TurnSpans(s, nil)
	testscale.Must(t, err)
	for _, sp := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		if v, ok := sp.Attributes().Get(ingest.RowsKey); ok && sp.Name() == semconv.SpanToolCall {
			v.SetStr(v.Str()[:len(v.Str())/2])
		}
	}
	st := otlpEmptyStore(t)
	if _, err := ingest.New(st, ingest.Options{}).Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	got, _ := otlpStored(t, st, s.Session.ID)
	if v := session.Check(got.Transcript); len(v) > 0 {
		t.Errorf("invalid: %v", v)
	}
	if len(got.Messages) != len(s.Messages) {
		t.Errorf("have %d messages, want %d", len(got.Messages), len(s.Messages))
	}
}

// otlpDeliver ingests spans of which nothing is known, and wants what comes of them sound.
func otlpDeliver(tb testing.TB, st *sqlite.Store, td ptrace.Traces) {
	tb.Helper()
	if _, err := ingest.New(st, ingest.Options{}).Traces(context.Background(), td); err != nil {
		tb.Fatal(err)
	}
	storetest.CheckSessions(tb, st)
}

// FuzzOTLPReplay delivers spans whose rows anybody may have written: whatever they say,
// what is stored is sound.
func FuzzOTLPReplay(f *testing.F) {
	kinds := []string{semconv.SpanSessionRun, semconv.SpanSessionTurn, semconv.SpanToolCall, semconv.SpanCompactionRun,
		semconv.SpanPermissionEvaluate, "chat m"}
	for _, s := range otlpGenerated(f, 4) {
		td, err := TurnSpans(s, nil)
		if err != nil {
			f.Fatal(err)
		}
		for _, sp := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			if v, ok := sp.Attributes().Get(ingest.RowsKey); ok {
				f.Add(uint8(max(0, slices.Index(kinds, sp.Name()))), v.Str())
			}
		}
	}
	for _, rows := range []string{
		`{`, `null`, `{"messages":[{"id":"m","role":"robot"}]}`, `{"messages":[{"id":"m\u0000","role":"user"}]}`,
		`{"messages":[{"id":"m","role":"assistant","metadata_json":"{\"usage\":{\"input\":-1}}"}]}`,
		`{"parts":[{"id":"p","message_id":"m","index":-5,"type":"text","data_json":"{}"}]}`,
		`{"parts":[{"id":"p","message_id":"m","type":"tool-x","data_json":"{\"type\":\"tool-x\u0001\"}"}]}`,
		`{"facts_of":"m","facts":{"usage":{"input":-7},"system_prompt_digest":"no","agenttrace":{"cost_usd":-1,` +
			`"usage_raw":7},"extra":{"a":1}}}`,
		`{"session":{"id":"other","permissions":{"text":"{}"},"model":{"text":"[]"},"parent_id":{"text":"ses_f"},` +
			`"metadata":{"a":{"text":"{"}},"start":-1,"rewinds":[{"to":"","at":1}],"fork":{"from":"x"}}}`,
		`{"decision":{"id":"d","session_id":"elsewhere","action":"","decided_at":-3}}`,
	} {
		f.Add(uint8(1), rows)
	}
	f.Fuzz(func(t *testing.T, kind uint8, rows string) {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		ss.Scope().SetName(semconv.ScopeName)
		sp := ss.Spans().AppendEmpty()
		sp.SetName(kinds[int(kind)%len(kinds)])
		sp.SetTraceID([16]byte{1})
		sp.SetSpanID([8]byte{1})
		sp.SetStartTimestamp(1_795_198_540_000 * 1e6)
		sp.SetEndTimestamp(1_795_198_540_000 * 1e6)
		sp.Attributes().PutStr(string(semconv.SessionIDKey), "ses_f")
		sp.Attributes().PutStr(ingest.RowsKey, rows)
		otlpDeliver(t, otlpEmptyStore(t), td)
	})
}
