package cli_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/internal/cli"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

const captures = "../../session/ingest/testdata/captures"

// manyAgents makes a store with what the example agent leaves and with what other agents
// sent; then a session of its own is forked, and others are rewound, renamed and archived.
func manyAgents(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "from.db")
	rec, err := recorder.Open(t.Context(), path, recorder.Options{})
	testscale.Must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter()))
	_, err = codeagent.Run(t.Context(), codeagent.Config{TracerProvider: provider})
	testscale.Must(t, errors.Join(err, provider.Shutdown(t.Context()), rec.Close(t.Context())))
	var out bytes.Buffer
	if code := cli.Main("v1.2.3", []string{"--store", path, "import", captures}, strings.NewReader(""), io.Discard,
		&out); code > 1 {
		t.Fatalf("import captures: %s", out.String())
	}
	sessions := sessionsOf(t, path)
	for _, args := range [][]string{
		{"fork", sessions[0]}, {"edit", sessions[len(sessions)-1], "--title", "By hand", "--archive"},
		{"rewind", "sess_42", "--turn", "2"},
	} {
		if said := commandLine(append([]string{"--store", path}, args...)...); !strings.HasSuffix(said,
			"exit code 0\n") {
			t.Fatalf("%v: %s", args, said)
		}
	}
	return path
}

func sessionsOf(t *testing.T, path string) (ids []string) {
	t.Helper()
	for _, s := range storetest.Sessions(t, testscale.Open(t, sqlite.OpenReader, path)) {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestRestoredSessionsAreWhatTheyWere: a store that was restored from an export shows
// everything as the store that the export is of, and its sessions can be asked again.
func TestRestoredSessionsAreWhatTheyWere(t *testing.T) {
	from := manyAgents(t)
	ids := sessionsOf(t, from)
	if len(ids) < 10 {
		t.Fatalf("%d sessions", len(ids))
	}
	for _, format := range []struct{ name, file string }{{"jsonl", "all.jsonl"}, {"json", "json/"},
		{"sqlite", "all.db"}}[:testscale.Rounds(1, 3)] {
		t.Run(format.name, func(t *testing.T) {
			dir := t.TempDir()
			file, to := filepath.Join(dir, format.file), filepath.Join(dir, "to.db")
			if strings.HasSuffix(format.file, "/") {
				file += string(filepath.Separator)
			}
			if said := commandLine("--store", from, "export", "--all", "--format", format.name, "-o",
				file); said != "exit code 0\n" {
				t.Fatal(said)
			}
			if said := commandLine("--store", to, "import", file); !strings.HasSuffix(said, "exit code 0\n") {
				t.Fatal(said)
			}
			same := func(args ...string) {
				t.Helper()
				said := func(path string) string {
					return strings.ReplaceAll(commandLine(append([]string{"--store", path}, args...)...), path, "STORE")
				}
				want, got := said(from), said(to)
				for again := said(from); again != want; again = said(from) {
					want, got = again, said(to) // an age passed a whole second in between
				}
				if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
					t.Errorf("agenttrace %v (-want +got):\n%s", args, d)
				}
			}
			same("ls", "--all", "--archived")
			same("ls", "--all", "--archived", "--json")
			same("stats")
			same("stats", "--json")
			same("store", "check")
			same("export", "--all")
			for _, id := range ids[:testscale.Rounds(1, len(ids))] {
				same("show", id, "--full")
				same("show", id, "--json")
				for _, view := range []string{"--prompt", "--tools", "--permissions"} {
					same("show", id, view)
				}
				same("replay", id)
				for _, f := range []string{"bundle", "openai-chat", "anthropic"} {
					same("replay", id, "--format", f)
				}
				same("diff", ids[0], id)
			}
			for table, want := range traceRows(t, from) {
				if d := cmp.Diff(want, traceRows(t, to)[table]); d != "" {
					t.Errorf("%s (-want +got):\n%s", table, d)
				}
			}
			testscale.Must(t, os.RemoveAll(file))
		})
	}
}

// traceRows are the references to spans and traces, as a store reads them.
func traceRows(t *testing.T, path string) map[string]string {
	t.Helper()
	r := testscale.Open(t, sqlite.OpenReader, path)
	rows := map[string]string{}
	for _, id := range sessionsOf(t, path) {
		links, err := r.Spans(t.Context(), id)
		testscale.Must(t, err)
		var b strings.Builder
		for i := range links {
			b.Write(append(links[i].AppendJSON(nil), '\n'))
		}
		rows["spans of "+id] = b.String()
	}
	return rows
}
