package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.opentelemetry.io/collector/pdata/ptrace"

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
)

// emptyStore opens a store that is closed when the test ends.
func emptyStore(tb testing.TB) *sqlite.Store {
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

// stored reads a session back, with the spans it came from.
func stored(tb testing.TB, r store.Reader, id string) (*codec.Session, []store.SpanRef) {
	tb.Helper()
	in, err := document.Collect(context.Background(), r, id)
	if err != nil {
		tb.Fatal(err)
	}
	s := &codec.Session{Transcript: in.Transcript, Decisions: in.Decisions, Annotations: in.Annotations}
	for i := range s.Messages {
		var m session.MessageMetadata
		if err := json.Unmarshal([]byte(s.Messages[i].Message.MetadataJSON), &m); err != nil {
			tb.Fatal(err)
		}
		for kind, digest := range map[store.BlobKind]string{store.BlobSystemPrompt: m.SystemPromptDigest,
			store.BlobToolCatalog: m.Trace.ToolCatalogDigest} {
			if b, err := r.Blob(context.Background(), kind, digest); err == nil && !slices.Contains(s.Blobs, b) {
				s.Blobs = append(s.Blobs, b)
			}
		}
	}
	return s, in.SpanRefs
}

// ingested is what an empty store makes of the session's spans.
func ingested(tb testing.TB, s *codec.Session) (*codec.Session, []store.SpanRef) {
	tb.Helper()
	td, err := Encode(s)
	if err != nil {
		tb.Fatal(err)
	}
	st := emptyStore(tb)
	r, err := ingest.New(st, ingest.Options{}).Traces(context.Background(), td)
	if err != nil {
		tb.Fatal(err)
	}
	if len(r.Problems) > 0 && len(Explain(s)) == 0 {
		tb.Errorf("session %s: %d of its spans are malformed: %s", s.Session.ID, r.Malformed,
			strings.Join(r.Problems, "\n"))
	}
	return stored(tb, st, s.Session.ID)
}

// generated are n sessions of the suite of which nothing is lost, with messages.
func generated(tb testing.TB, n int) (all []*codec.Session) {
	tb.Helper()
	for _, s := range codectest.Generated(200) {
		if len(s.Session.Messages) > 2 && len(Explain(s.Session)) == 0 {
			if all = append(all, s.Session); len(all) == n {
				return all
			}
		}
	}
	tb.Fatalf("%d sessions of which nothing is lost, want %d", len(all), n)
	return nil
}

// comesBack checks the promise of the package: what Explain lists nothing of comes out
// as it went in, and anything else does the second time.
func comesBack(tb testing.TB, s *codec.Session) {
	tb.Helper()
	losses := Explain(s)
	got, refs := ingested(tb, s)
	if len(losses) == 0 {
		if d := codectest.Diff(s, got); d != "" {
			tb.Errorf("session %s %s", s.Session.ID, d)
		}
	}
	if v := session.Check(got.Transcript); len(v) > 0 {
		tb.Errorf("session %s: the replay is invalid: %v", s.Session.ID, v)
	}
	if again := Explain(got); len(again) > 0 {
		tb.Errorf("session %s: a replay is not what the next one gives: %+v", s.Session.ID, again)
	}
	// With the spans that are known.
	got.SpanRefs = refs
	twice, refsAgain := ingested(tb, got)
	got.SpanRefs = nil
	if d := codectest.Diff(got, twice); d != "" {
		tb.Errorf("session %s, again %s", s.Session.ID, d)
	}
	if d := gocmp.Diff(places(refs), places(refsAgain)); d != "" && len(losses) == 0 {
		tb.Errorf("session %s: spans have other ids (-want +got):\n%s", s.Session.ID, d)
	}
}

func places(refs []store.SpanRef) []string {
	var all []string
	for _, l := range refs {
		all = append(all, l.Kind+" "+l.TraceID+" "+l.SpanID+" "+l.ParentSpanID)
	}
	slices.Sort(all)
	return all
}

// corpus are the sessions of the goldens of ingest and of codecs: of the SDK, of
// agents without it, and of imports.
func corpus(tb testing.TB) map[string]*codec.Session {
	tb.Helper()
	all := make(map[string]*codec.Session)
	read := func(name string, rows, decisions []byte) {
		for t, err := range jsonl.Decode(bytes.NewReader(rows)) {
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
	for _, pattern := range []string{"*.txtar", "live/*.txtar", "captures/*/*.txtar"} {
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
	goldens, err := filepath.Glob(filepath.Join("..", "*", "testdata", "*.golden*"))
	if err != nil || len(goldens) == 0 {
		tb.Fatalf("no goldens: %v", err)
	}
	for _, file := range goldens {
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
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

// TestCorpus wants all that telemetry and imports ever came to to come back as it is.
func TestCorpus(t *testing.T) {
	all := corpus(t)
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			for _, l := range Explain(s) {
				t.Errorf("would lose %+v", l)
			}
			comesBack(t, s)
		})
	}
}

// TestFiles writes sessions one after the other, in JSON and in protobuf, and reads
// the files as import does.
func TestFiles(t *testing.T) {
	both := generated(t, 2)
	for name, write := range map[string]func(io.Writer, *codec.Session) error{
		"json": WriteJSON, "proto": WriteProto,
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			for _, s := range both {
				if err := write(&file, s); err != nil {
					t.Fatal(err)
				}
			}
			if !otlpfile.Sniff(file.Bytes()[:min(file.Len(), otlpfile.SniffSize)]) {
				t.Error("the file is not recognized")
			}
			st := emptyStore(t)
			in := ingest.New(st, ingest.Options{})
			for body, err := range otlpfile.Read(&file, otlpfile.Options{}) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := in.Traces(t.Context(), body.Traces); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range both {
				got, _ := stored(t, st, s.Session.ID)
				if d := codectest.Diff(s, got); d != "" {
					t.Errorf("session %s %s", s.Session.ID, d)
				}
			}
		})
	}
}

// TestAnyOrder delivers each span by itself, the last one first, and some twice.
func TestAnyOrder(t *testing.T) {
	td, ids := worked(t)
	st := emptyStore(t)
	if _, err := ingest.New(st, ingest.Options{}).Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	measured, refs := stored(t, st, ids[0])
	measured.SpanRefs = refs
	for _, s := range append(generated(t, 6), measured) {
		td, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		st := emptyStore(t)
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
		got, _ := stored(t, st, s.Session.ID)
		if d := codectest.Diff(&want, got); d != "" {
			t.Errorf("session %s %s", s.Session.ID, d)
		}
	}
}

// TestCutOff replays a session through something that limits the length of
// attributes: where rows are not whole, the span's own attributes are read.
func TestCutOff(t *testing.T) {
	s := generated(t, 4)[3]
	td, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, sp := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		if v, ok := sp.Attributes().Get(ingest.RowsKey); ok && sp.Name() == semconv.SpanToolCall {
			v.SetStr(v.Str()[:len(v.Str())/2])
		}
	}
	st := emptyStore(t)
	if _, err := ingest.New(st, ingest.Options{}).Traces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	got, _ := stored(t, st, s.Session.ID)
	if v := session.Check(got.Transcript); len(v) > 0 {
		t.Errorf("invalid: %v", v)
	}
	if len(got.Messages) != len(s.Messages) {
		t.Errorf("have %d messages, want %d", len(got.Messages), len(s.Messages))
	}
}

// deliver ingests spans of which nothing is known, and wants what comes of them sound.
func deliver(tb testing.TB, st *sqlite.Store, td ptrace.Traces) {
	tb.Helper()
	if _, err := ingest.New(st, ingest.Options{}).Traces(context.Background(), td); err != nil {
		tb.Fatal(err)
	}
	for row, err := range st.Sessions(context.Background(),
		store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			tb.Fatal(err)
		}
		got, _ := stored(tb, st, row.ID)
		if v := session.Check(got.Transcript); len(v) > 0 {
			tb.Errorf("session %s is invalid: %v", row.ID, v)
		}
	}
}
