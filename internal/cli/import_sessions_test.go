package cli_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// imported is what import --json says.
type imported struct {
	Total struct {
		Added     int `json:"sessions_added"`
		Sessions  int `json:"sessions"`
		Messages  int `json:"messages"`
		Parts     int `json:"parts"`
		Unchanged int `json:"unchanged"`
		Damaged   int `json:"damaged"`
	} `json:"total"`
	Files []struct {
		File    string   `json:"file"`
		Format  string   `json:"format"`
		Damages []string `json:"damages"`
	} `json:"files"`
}

// importJSON imports a file or directory, which may be damaged.
func importJSON(t *testing.T, store string, stdin []byte, args ...string) imported {
	t.Helper()
	out, stderr, code := piped(stdin, append([]string{"--store", store, "import", "--json"}, args...)...)
	var got imported
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 && got.Total.Damaged == 0 {
		t.Fatalf("import %v: exit code %d, %v\n%s", args, code, err, stderr)
	}
	return got
}

const samples = "../../session/codec/"

// TestImportSessions imports the samples of every format as a file or directory, and those that are streams from
// standard input, and wants the rows that the format's own tests want.
func TestImportSessions(t *testing.T) {
	for _, tt := range []struct {
		path, format string
		golden       string // of a session, "" for any
		sessions     int
		// stream says that standard input gives the same.
		stream bool
	}{
		{path: "../testdata/reference.jsonl", format: "jsonl", golden: "../testdata/reference.jsonl", stream: true},
		{path: "formats/testdata/jutul/trace.sqlite", format: "jutul",
			golden: "formats/testdata/jutul/trace.golden.jsonl", sessions: 1,
			stream: true},
		{path: "formats/testdata/agentdbg/export.json", format: "agentdbg",
			golden: "formats/testdata/agentdbg/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1, stream: true},
		{path: "formats/testdata/agentdbg/data", format: "agentdbg",
			golden: "formats/testdata/agentdbg/3cb3426d-1fa6-417a-b821-6be9c94cd9f4.jsonl", sessions: 4},
		{path: "formats/testdata/agentdbg/data/runs", format: "agentdbg",
			golden: "formats/testdata/agentdbg/46e80958-2ba7-4329-9bda-377db118f630.jsonl", sessions: 4},
		{path: "formats/testdata/agentdbg/data/runs/f0ca8552-c91a-473d-a112-286a75226e66", format: "agentdbg",
			golden: "formats/testdata/agentdbg/f0ca8552-c91a-473d-a112-286a75226e66.jsonl", sessions: 1},
		{path: "formats/testdata/agentdbg/data/runs/dff117f0-c969-44c1-8173-1523b6eb1213/events.jsonl", format: "agentdbg",
			golden: "formats/testdata/agentdbg/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1},
		{path: "formats/testdata/agentdbg/maida/runs", format: "maida", sessions: 3},
		{path: "formats/testdata/agentdbg/maida/runs/b2000000000000000000000000000002", format: "maida", sessions: 1},
		{path: "formats/testdata/agentdbg/maida/runs/c3000000000000000000000000000003/meta.json",
			format: "maida", sessions: 1},
		{path: "formats/testdata/agentdbg/maida/runs/b2000000000000000000000000000002/spans.jsonl",
			format: "maida", sessions: 1},
		{path: "formats/testdata/agentdbg/maida/export.json", format: "agentdbg", sessions: 1, stream: true},
		{path: "formats/testdata/skillet/state", format: "skillet",
			golden: "formats/testdata/skillet/both.golden.jsonl", sessions: 1},
		{path: "formats/testdata/skillet/state/.agent_sessions.sqlite", format: "skillet",
			golden: "formats/testdata/skillet/store.golden.jsonl", sessions: 1, stream: true},
		{
			path: "formats/testdata/skillet/state/.agent_session_logs/john_example_com/" +
				"session_2026-05-27T20_11_02_482Z_ab12.jsonl",
			format: "skillet", golden: "formats/testdata/skillet/log.golden.jsonl", sessions: 1},
		{path: "formats/testdata/acp/handmade_raw.ndjson", format: "acp", stream: true},
		{path: "formats/testdata/acp/handmade_zed.json", format: "acp", stream: true},
		{path: "formats/testdata/acp/handmade_inspector.jsonl", format: "acp", stream: true},
		{path: "formats/testdata/acp/handmade_conductor.jsons", format: "acp", stream: true},
		{path: "formats/testdata/acp/inspector_proxy-chain.jsonl", format: "acp", stream: true},
		{path: "formats/testdata/acp/version2.ndjson", format: "acp", stream: true},
		{path: "formats/testdata/atif/harbor.json", format: "atif",
			golden: "formats/testdata/atif/harbor.golden", sessions: 1,
			stream: true},
		{path: "formats/testdata/atif/subagents.json", format: "atif", sessions: 2, stream: true},
		{path: "formats/testdata/pi/session.jsonl", format: "pi", sessions: 1, stream: true},
		{path: "formats/testdata/sts/llama.jsonl", format: "sts", sessions: 1, stream: true},
	} {
		t.Run(tt.path, func(t *testing.T) {
			path, store := filepath.Join(samples, filepath.FromSlash(tt.path)), filepath.Join(t.TempDir(), "s.db")
			path = copied(t, path)
			got := importJSON(t, store, nil, path)
			if len(got.Files) != 1 || got.Files[0].Format != tt.format || got.Total.Sessions == 0 ||
				tt.sessions > 0 && got.Total.Sessions != tt.sessions {
				t.Fatalf("imported %+v", got)
			}
			if got.Total.Added != got.Total.Sessions || got.Total.Unchanged != 0 {
				t.Errorf("imported %+v", got.Total)
			}
			if tt.golden != "" {
				wantRows(t, store, filepath.Join(samples, tt.golden))
			}
			before := string(run(t, "--store", store, "export", "--all"))
			again := importJSON(t, store, nil, path)
			if again.Total.Messages+again.Total.Parts+again.Total.Added != 0 ||
				again.Total.Unchanged < got.Total.Messages+got.Total.Parts {
				t.Errorf("imported %+v the second time", again.Total)
			}
			if d := cmp.Diff(before, string(run(t, "--store", store, "export", "--all"))); d != "" {
				t.Errorf("importing again changed rows:\n%s", d)
			}
			if out := commandLine("--store", store, "store", "check"); !strings.HasSuffix(out, "exit code 0\n") {
				t.Errorf("check: %s", out)
			}
			if !tt.stream {
				return
			}
			text := testscale.ReadFile(t, path)
			other := filepath.Join(t.TempDir(), "other.db")
			if piped := importJSON(t, other, text); piped.Files[0].Format != tt.format {
				t.Errorf("standard input is %q", piped.Files[0].Format)
			}
			if d := cmp.Diff(before, string(run(t, "--store", other, "export", "--all"))); d != "" {
				t.Errorf("standard input gives other rows:\n%s", d)
			}
		})
	}
}

// copied copies a sample with its directories, so that nothing is made beside it.
// The last two names of its path stay, for a format may read them.
func copied(t *testing.T, path string) string {
	t.Helper()
	parent := filepath.Join(t.TempDir(), filepath.Base(filepath.Dir(path)))
	info, err := os.Stat(path)
	testscale.Must(t, err)
	if info.IsDir() {
		to := filepath.Join(parent, filepath.Base(path))
		testscale.Must(t, os.CopyFS(to, os.DirFS(path)))
		return to
	}
	testscale.Must(t, os.CopyFS(parent, os.DirFS(filepath.Dir(path))))
	return filepath.Join(parent, filepath.Base(path))
}

// contents are the lines of what other formats keep of a session: not what a store remembers of how it came about.
func contents(export []byte, but ...string) string {
	var kept strings.Builder
	for line := range bytes.Lines(export) {
		if !slices.ContainsFunc(append(but, "session_state", "session_trace", "session_span", "requested_index"),
			func(kind string) bool {
				return bytes.HasPrefix(line, []byte(`{"type":"`+kind+`"`))
			}) {
			kept.Write(line)
		}
	}
	return kept.String()
}

// wantRows wants the transcript of a file in the store, byte for byte.
func wantRows(t *testing.T, store, golden string) {
	t.Helper()
	text := testscale.ReadFile(t, golden)
	var rows []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(`{"type":`)) { // what else there is are no rows
			rows = append(rows, line...)
		}
	}
	for want, err := range jsonl.Decode(bytes.NewReader(rows), nil) {
		testscale.Must(t, err)
		got := run(t, "--store", store, "export", want.Session.ID)
		var expected strings.Builder
		testscale.Must(t, jsonl.Encode(&expected, want))
		if d := cmp.Diff(expected.String(), contents(got, "permission_decision", "system_prompt",
			"tool_catalog")); d != "" {
			t.Errorf("session %s (-want +got):\n%s", want.Session.ID, d)
		}
	}
}

// opencodeHome makes a home directory where opencode has its database open.
func opencodeHome(t *testing.T) (home, database string) {
	t.Helper()
	home = t.TempDir()
	database = filepath.Join(home, ".local", "share", "opencode", "opencode.db")
	testscale.Must(t, os.MkdirAll(filepath.Dir(database), 0o700))
	conn, err := sqlite.OpenConn(database, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	testscale.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for _, name := range []string{"schema.sql", "sessions.sql"} {
		script := testscale.ReadFile(t, samples+"transcripts/testdata/opencode/"+name)
		testscale.Must(t, sqlitex.ExecuteScript(conn, string(script), nil))
	}
	return home, database
}

// TestImportCompressed imports session files and a database from gzip and zstd as from the file itself.
func TestImportCompressed(t *testing.T) {
	_, database := opencodeHome(t)
	// What the program has not moved into the file yet is beside it.
	testscale.Script(t, database, "PRAGMA wal_checkpoint(TRUNCATE)")
	for _, tt := range []struct{ path, name, format string }{
		{samples + "transcripts/testdata/gemini/tmp/parser/chats/session-2026-01-02T03-04-0f4c2f6e.jsonl", "a.jsonl.gz",
			"gemini-cli"},
		{database, "c.db.gz", "opencode"},
		{samples + "../ingest/testdata/captures/adk-go-2.0.0/three-turns/001-traces.json", "o.json.gz", "otlp"},
	} {
		data := testscale.ReadFile(t, tt.path)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		testscale.Must(t, w.Close())
		encoder, err := zstd.NewWriter(nil)
		testscale.Must(t, err)
		dir := t.TempDir()
		testscale.WriteFile(t, filepath.Join(dir, tt.name), z.Bytes())
		want := importJSON(t, filepath.Join(t.TempDir(), "s.db"), nil, tt.path)
		for name, from := range map[string]struct {
			stdin []byte
			args  []string
		}{
			"directory": {nil, []string{dir}}, "standard input": {z.Bytes(), []string{"-"}},
			"format": {nil, []string{"--format", tt.format, filepath.Join(dir, tt.name)}},
			"zstd":   {encoder.EncodeAll(data, nil), []string{"-"}},
		} {
			got := importJSON(t, filepath.Join(t.TempDir(), "s.db"), from.stdin, from.args...)
			if d := cmp.Diff(want.Total, got.Total); d != "" || got.Files[0].Format != tt.format {
				t.Errorf("%s, %s: %s (-plain +packed):\n%s", tt.name, name, got.Files[0].Format, d)
			}
		}
		if tt.format != "gemini-cli" {
			continue
		}
		cut := importJSON(t, filepath.Join(t.TempDir(), "s.db"), z.Bytes()[:z.Len()/2], "-")
		if cut.Total.Sessions == 0 || !strings.Contains(strings.Join(cut.Files[0].Damages, "\n"),
			"it is damaged as a gzip file: the rest is left out: unexpected EOF") {
			t.Errorf("%s, cut: %+v", tt.name, cut)
		}
	}
}
