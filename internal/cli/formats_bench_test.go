package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/internal/cli"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/sqlitefile"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

const benchSessions = 1000

// benchStore is a store of 1,000 copies of what the example agent leaves: four turns,
// two compactions, and a sub-agent's session.
func benchStore(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	demo := filepath.Join(dir, "demo.db")
	rec, err := recorder.Open(b.Context(), demo, recorder.Options{})
	if err != nil {
		b.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter()))
	_, err = codeagent.Run(b.Context(), codeagent.Config{TracerProvider: provider})
	if err := errors.Join(err, provider.Shutdown(b.Context()), rec.Close(b.Context())); err != nil {
		b.Fatal(err)
	}
	var sessions []*codec.Session
	for s, err := range sqlitefile.DecodeFile(b.Context(), demo, nil) {
		if err != nil {
			b.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	path := filepath.Join(dir, "sessions.db")
	s, err := sqlite.Open(b.Context(), path, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for n := range benchSessions / len(sessions) {
		for _, one := range sessions {
			if _, err := s.Import(b.Context(), again(b, one, n)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

var anyID = regexp.MustCompile(`(ses|msg|prt|per)_[0-9A-Za-z]{26}`)

// again is the session under other ids.
func again(b *testing.B, s *codec.Session, n int) *store.Imported {
	b.Helper()
	rename := func(text string) string {
		return anyID.ReplaceAllStringFunc(text, func(id string) string { return id[:25] + fmt.Sprintf("%05d", n) })
	}
	var text bytes.Buffer
	if err := jsonl.Encode(&text, s.Transcript); err != nil {
		b.Fatal(err)
	}
	out := &store.Imported{Blobs: s.Blobs}
	for t, err := range jsonl.Decode(strings.NewReader(rename(text.String()))) {
		if err != nil {
			b.Fatal(err)
		}
		out.Transcript = t
	}
	for _, d := range s.Decisions {
		d.ID, d.SessionID, d.MessageID, d.PartID = rename(d.ID), rename(d.SessionID), rename(d.MessageID),
			rename(d.PartID)
		out.Decisions = append(out.Decisions, d)
	}
	return out
}

// BenchmarkFormats exports 1,000 sessions in each format to files, and imports these
// into an empty store, as a user does. Beside it are what reading the sessions alone
// costs, which is the floor of any export, and a backup, which is SQLite's own copy.
func BenchmarkFormats(b *testing.B) {
	path := benchStore(b)
	dir := b.TempDir()
	command := func(b *testing.B, args ...string) {
		b.Helper()
		var said bytes.Buffer
		if code := cli.Main("v1.2.3", args, strings.NewReader(""), io.Discard, &said); code != 0 {
			b.Fatalf("agenttrace %v: exit code %d: %s", args, code, said.String())
		}
	}
	rate := func(b *testing.B) {
		b.ReportMetric(float64(benchSessions*b.N)/b.Elapsed().Seconds(), "sessions/s")
	}
	b.Run("floor/read", func(b *testing.B) {
		for b.Loop() {
			r, err := sqlite.OpenReader(b.Context(), path)
			if err != nil {
				b.Fatal(err)
			}
			for s, err := range r.Sessions(b.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
				if err != nil {
					b.Fatal(err)
				}
				read(b, b.Context(), r, s)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	b.Run("floor/backup", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			command(b, "--store", path, "backup", filepath.Join(b.TempDir(), fmt.Sprint(n)))
		}
		rate(b)
	})
	for _, f := range []struct {
		name    string
		output  string // a directory where it ends in a slash
		imports bool
	}{
		{"jsonl", "all.jsonl", true}, {"json", "json/", true}, {"csv", "all.csv", false}, {"sqlite", "all.db", true},
		{"otlp-json", "all.json", true}, {"otlp-proto", "all.pb", true}, {"agentdbg", "agentdbg/", true},
		{"jutul", "jutul/", true},
		{"skillet", "skillet/", true}, {"acp", "acp/", true}, {"atif", "atif/", true}, {"sts", "sts/", true},
		{"pi", "pi/", true},
		{"markdown", "markdown/", false}, {"html", "html/", false},
	} {
		var last string
		b.Run("export/"+f.name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				last = filepath.Join(dir, f.name, fmt.Sprint(b.N, n), f.output)
				if strings.HasSuffix(f.output, "/") {
					last += string(filepath.Separator)
				}
				if err := os.MkdirAll(filepath.Dir(strings.TrimSuffix(last, string(filepath.Separator))),
					0o700); err != nil {
					b.Fatal(err)
				}
				command(b, "--store", path, "export", "--all", "--format", f.name, "--output", last)
			}
			rate(b)
		})
		if !f.imports || last == "" {
			continue
		}
		b.Run("import/"+f.name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				command(b, "--store", filepath.Join(b.TempDir(), fmt.Sprint(n, ".db")), "import", last)
			}
			rate(b)
		})
	}
}

func read(b *testing.B, ctx context.Context, r *sqlite.Reader, s session.Session) {
	b.Helper()
	if _, err := r.Transcript(ctx, s.ID); err != nil {
		b.Fatal(err)
	}
}
