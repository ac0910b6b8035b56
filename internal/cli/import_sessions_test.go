package cli_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
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
	cmd := exec.CommandContext(t.Context(), "agenttrace",
		append([]string{"--store", store, "import", "--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	out, err := cmd.Output()
	var got imported
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || err != nil && got.Total.Damaged == 0 {
		t.Fatalf("import %v: %v, %v\n%s", args, err, jsonErr, stderr.String())
	}
	return got
}

const samples = "../../session/codec/"

// TestImportSessions imports the samples of every format as a file or directory,
// and those that are streams from standard input, and wants the rows that the
// format's own tests want.
func TestImportSessions(t *testing.T) {
	for _, tt := range []struct {
		path, format string
		golden       string // of a session, "" for any
		sessions     int
		// stream says that standard input gives the same.
		stream bool
	}{
		{path: "../testdata/reference.jsonl", format: "jsonl", golden: "../testdata/reference.jsonl", stream: true},
		{path: "jutul/testdata/trace.sqlite", format: "jutul", golden: "jutul/testdata/trace.golden.jsonl", sessions: 1,
			stream: true},
		{path: "agentdbg/testdata/export.json", format: "agentdbg",
			golden: "agentdbg/testdata/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1, stream: true},
		{path: "agentdbg/testdata/data", format: "agentdbg",
			golden: "agentdbg/testdata/3cb3426d-1fa6-417a-b821-6be9c94cd9f4.jsonl", sessions: 4},
		{path: "agentdbg/testdata/data/runs", format: "agentdbg",
			golden: "agentdbg/testdata/46e80958-2ba7-4329-9bda-377db118f630.jsonl", sessions: 4},
		{path: "agentdbg/testdata/data/runs/f0ca8552-c91a-473d-a112-286a75226e66", format: "agentdbg",
			golden: "agentdbg/testdata/f0ca8552-c91a-473d-a112-286a75226e66.jsonl", sessions: 1},
		{path: "agentdbg/testdata/data/runs/dff117f0-c969-44c1-8173-1523b6eb1213/events.jsonl", format: "agentdbg",
			golden: "agentdbg/testdata/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1},
		{path: "agentdbg/testdata/maida/runs", format: "maida", sessions: 3},
		{path: "agentdbg/testdata/maida/runs/b2000000000000000000000000000002", format: "maida", sessions: 1},
		{path: "agentdbg/testdata/maida/runs/c3000000000000000000000000000003/meta.json", format: "maida", sessions: 1},
		{path: "agentdbg/testdata/maida/runs/b2000000000000000000000000000002/spans.jsonl", format: "maida", sessions: 1},
		{path: "agentdbg/testdata/maida/export.json", format: "agentdbg", sessions: 1, stream: true},
		{path: "skillet/testdata/state", format: "skillet", golden: "skillet/testdata/both.golden.jsonl", sessions: 1},
		{path: "skillet/testdata/state/.agent_sessions.sqlite", format: "skillet",
			golden: "skillet/testdata/store.golden.jsonl", sessions: 1, stream: true},
		{
			path:   "skillet/testdata/state/.agent_session_logs/john_example_com/session_2026-05-27T20_11_02_482Z_ab12.jsonl",
			format: "skillet", golden: "skillet/testdata/log.golden.jsonl", sessions: 1},
		{path: "acp/testdata/handmade_raw.ndjson", format: "acp", stream: true},
		{path: "acp/testdata/handmade_zed.json", format: "acp", stream: true},
		{path: "acp/testdata/handmade_inspector.jsonl", format: "acp", stream: true},
		{path: "acp/testdata/handmade_conductor.jsons", format: "acp", stream: true},
		{path: "acp/testdata/inspector_proxy-chain.jsonl", format: "acp", stream: true},
		{path: "acp/testdata/version2.ndjson", format: "acp", stream: true},
		{path: "atif/testdata/harbor.json", format: "atif", golden: "atif/testdata/harbor.golden.jsonl", sessions: 1,
			stream: true},
		{path: "atif/testdata/subagents.json", format: "atif", sessions: 2, stream: true},
		{path: "pi/testdata/session.jsonl", format: "pi", sessions: 1, stream: true},
		{path: "sts/testdata/llama.jsonl", format: "sts", sessions: 1, stream: true},
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
			if out, err := exec.CommandContext(t.Context(), "agenttrace", "--store", store,
				"check").CombinedOutput(); err != nil {
				t.Errorf("check: %v\n%s", err, out)
			}
			if !tt.stream {
				return
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		to := filepath.Join(parent, filepath.Base(path))
		if err := os.CopyFS(to, os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	if err := os.CopyFS(parent, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(parent, filepath.Base(path))
}

// contents are the lines of what other formats keep of a session: not what a store
// remembers of how it came about.
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
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var rows []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(`{"type":`)) { // what else there is are no rows
			rows = append(rows, line...)
		}
	}
	for want, err := range jsonl.Decode(bytes.NewReader(rows)) {
		if err != nil {
			t.Fatal(err)
		}
		got := run(t, "--store", store, "export", want.Session.ID)
		var expected strings.Builder
		if err := jsonl.Encode(&expected, want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(expected.String(), contents(got, "permission_decision", "system_prompt",
			"tool_catalog")); d != "" {
			t.Errorf("session %s (-want +got):\n%s", want.Session.ID, d)
		}
	}
}

// decoded is the one session of JSON lines.
func decoded(t *testing.T, lines []byte) *codec.Session {
	t.Helper()
	var found *codec.Session
	for s, err := range jsonl.Recover(bytes.NewReader(lines), func(p codec.Problem) { t.Error(p) }) {
		if err != nil || found != nil {
			t.Fatalf("a second session, or %v", err)
		}
		found = s
	}
	return found
}

// TestImportExported imports what export writes in every format that import
// reads, and wants the session back: whole in our own formats.
func TestImportExported(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.db")
	if err := makeStore(from, fixture()); err != nil {
		t.Fatal(err)
	}
	const id = "ses_1fa2bdc08000YO9dOSXjsMd9kP"
	exported := string(run(t, "--store", from, "export", id))
	for format, name := range map[string]string{"jsonl": "a.jsonl", "json": "a.json", "agentdbg": "b.json",
		"acp": "a.ndjson", "jutul": "a.sqlite",
		"atif": "a.json", "sts": "a.jsonl", "pi": "b.jsonl"} {
		path, store := filepath.Join(dir, format+"-"+name), filepath.Join(dir, format+".db")
		run(t, "--store", from, "export", "--format", format, "-o", path, id)
		got := importJSON(t, store, nil, path)
		added := 1
		if format == "atif" {
			added = 2 // the session and its sub-agent's
		}
		if got.Files[0].Format != format || got.Total.Added != added {
			t.Errorf("%s: imported %+v", format, got)
			continue
		}
		if format != "jsonl" && format != "json" {
			// A format of another program has what it has words for.
			want, have := decoded(t, []byte(exported)), decoded(t, run(t, "--store", store, "export", "last"))
			for _, l := range codec.Lost(want, have) {
				if slices.Contains([]string{"title", "texts"}, l.What) {
					t.Errorf("%s: %d %s did not come back", format, l.Count, l.What)
				}
			}
			if invented := codec.Invented(want, have); invented != nil {
				t.Errorf("%s: %v", format, invented)
			}
			continue
		}
		if d := cmp.Diff(exported, string(run(t, "--store", store, "export", id))); d != "" {
			t.Errorf("%s: session (-want +got):\n%s", format, d)
		}
	}
	whole := filepath.Join(dir, "whole.db")
	if got := importJSON(t, whole, nil, from); got.Files[0].Format != "sqlite" || got.Total.Added != 3 {
		t.Errorf("store: imported %+v", got)
	}
	if d := cmp.Diff(string(run(t, "--store", from, "export", "--all")),
		string(run(t, "--store", whole, "export", "--all"))); d != "" {
		t.Errorf("store: sessions (-want +got):\n%s", d)
	}
	if got := importJSON(t, from, nil, whole); got.Total.Added+got.Total.Messages+got.Total.Parts != 0 {
		t.Errorf("store: imported %+v on the way back", got)
	}
}

// TestImportGrowing imports a transcript each time that a record was added to it, and
// wants the store to hold what the whole gives: also what a later record hides.
func TestImportGrowing(t *testing.T) {
	gemini, err := os.ReadFile(
		samples + "transcripts/testdata/gemini/tmp/parser/chats/session-2026-01-02T03-04-0f4c2f6e.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	const claude = `{"parentUuid":null,"sessionId":"s1","type":"user","message":{"role":"user","content":"one"},"uuid":"u1","timestamp":"2026-01-02T03:04:01.000Z"}
{"parentUuid":"u1","sessionId":"s1","type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"1"}],"usage":{"input_tokens":1}},"uuid":"a1","timestamp":"2026-01-02T03:04:02.000Z"}
{"parentUuid":"a1","sessionId":"s1","type":"user","message":{"role":"user","content":"two"},"uuid":"u2","timestamp":"2026-01-02T03:04:03.000Z"}
{"parentUuid":"u2","sessionId":"s1","type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"2"}],"usage":{"input_tokens":2}},"uuid":"a2","timestamp":"2026-01-02T03:04:04.000Z"}
{"parentUuid":"a1","sessionId":"s1","type":"user","message":{"role":"user","content":"TWO"},"uuid":"u3","timestamp":"2026-01-02T03:04:05.000Z"}
`
	// Messages of a protocol without times: what says more is the later.
	acp, err := os.ReadFile(samples + "acp/testdata/handmade_raw.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for id, data := range map[string][]byte{"0f4c2f6e-55d1-4f0e-9a36-1c0c9a3b7d11": gemini, "s1": []byte(claude),
		"sess_1": acp} {
		dir := t.TempDir()
		grown, fresh := filepath.Join(dir, "grown.db"), filepath.Join(dir, "fresh.db")
		var part []byte
		for line := range bytes.Lines(data) {
			part = append(part, line...)
			if got := importJSON(t, grown, part, "-"); got.Total.Damaged > 0 {
				t.Fatalf("%s: %+v", id, got)
			}
		}
		importJSON(t, fresh, data, "-")
		rows := func(store string) []string {
			out, err := exec.CommandContext(t.Context(), "agenttrace", "--store", store, "export", "--format", "jsonl",
				id).Output()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Split(string(out), "\n")
		}
		want := rows(fresh)
		if d := cmp.Diff(want, rows(grown)); d != "" {
			t.Errorf("%s (-whole +grown):\n%s", id, d)
		}
		if says := map[string]string{"sess_1": `\"stop_reason\":\"end_turn\"`}[id]; !strings.Contains(
			strings.Join(want, "\n"), hiddenOr(says)) {
			t.Errorf("%s: nothing is hidden, or ended", id)
		}
		importJSON(t, grown, data[:len(data)/2], "-") // an earlier copy
		if d := cmp.Diff(want, rows(grown)); d != "" {
			t.Errorf("%s, an earlier one imported again (-whole +grown):\n%s", id, d)
		}
	}
}

// hiddenOr is what shows in rows that a message is hidden, unless they are to show
// something else.
func hiddenOr(says string) string {
	if says != "" {
		return says
	}
	return `"hidden_at":17`
}

// opencodeHome makes a home directory where opencode has its database open.
func opencodeHome(t *testing.T) (home, database string) {
	t.Helper()
	home = t.TempDir()
	database = filepath.Join(home, ".local", "share", "opencode", "opencode.db")
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		t.Fatal(err)
	}
	conn, err := sqlite.OpenConn(database, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, name := range []string{"schema.sql", "sessions.sql"} {
		script, err := os.ReadFile(samples + "transcripts/testdata/opencode/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitex.ExecuteScript(conn, string(script), nil); err != nil {
			t.Fatal(err)
		}
	}
	return home, database
}

// TestImportOpencode imports the database of a program that runs: as a file, by its
// directory, by what --discover finds, and by the variable that names it.
func TestImportOpencode(t *testing.T) {
	home, database := opencodeHome(t)
	for _, name := range []string{"GEMINI_CLI_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME",
		"AGENTDBG_DATA_DIR", "MAIDA_DATA_DIR", "OPENCODE_DB"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	for _, tt := range []struct {
		name, variable string
		args           []string
	}{
		{"file", "", []string{database}}, {"directory", "", []string{filepath.Dir(database)}},
		{"discover", "", []string{"--discover", "--yes"}},
		{"variable", database, []string{"--discover", "--yes"}},
	} {
		name, args := tt.name, tt.args
		if tt.variable != "" {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("OPENCODE_DB", tt.variable)
		}
		store := filepath.Join(t.TempDir(), "s.db")
		got := importJSON(t, store, nil, args...)
		if got.Total.Added != 3 || got.Total.Damaged > 0 || got.Files[0].Format != "opencode" {
			t.Errorf("%s: %+v", name, got)
		}
		if again := importJSON(t, store, nil, args...); again.Total.Messages+again.Total.Parts > 0 {
			t.Errorf("%s again: %+v", name, again)
		}
	}
}

// TestImportCompressed imports each kind of session file, and a database, from gzip and
// zstd as from the file itself.
func TestImportCompressed(t *testing.T) {
	_, database := opencodeHome(t)
	gemini := samples + "transcripts/testdata/gemini/tmp/parser/chats/"
	for _, tt := range []struct{ path, name, format string }{
		{gemini + "session-2026-01-02T03-04-0f4c2f6e.jsonl", "a.jsonl.gz", "gemini-cli"},
		{gemini + "session-2025-08-20T10-00-77aa0b1c.json", "a.json.gz", "gemini-cli"},
		{samples + "transcripts/testdata/opencode/sessions.golden.jsonl", "b.jsonl.gz", "jsonl"},
		{database, "c.db.gz", "opencode"},
	} {
		if tt.format == "opencode" { // what the program has not moved into the file yet is beside it
			checkpoint(t, tt.path)
		}
		data, err := os.ReadFile(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, tt.name), z.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		want := importJSON(t, filepath.Join(t.TempDir(), "s.db"), nil, tt.path)
		for name, args := range map[string][]string{
			"file": {filepath.Join(dir, tt.name)}, "directory": {dir}, "standard input": {"-"},
			"format": {"--format", tt.format, filepath.Join(dir, tt.name)},
		} {
			got := importJSON(t, filepath.Join(t.TempDir(), "s.db"), z.Bytes(), args...)
			if d := cmp.Diff(want.Total, got.Total); d != "" || got.Files[0].Format != tt.format {
				t.Errorf("%s, %s: %s (-plain +gzip):\n%s", tt.name, name, got.Files[0].Format, d)
			}
		}
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := encoder.EncodeAll(data, nil)
		if got := importJSON(t, filepath.Join(t.TempDir(), "s.db"), packed, "-"); got.Files[0].Format != tt.format ||
			cmp.Diff(want.Total, got.Total) != "" {
			t.Errorf("%s in zstd: %+v", tt.name, got)
		}
		if !strings.HasSuffix(tt.name, ".jsonl.gz") {
			continue
		}
		cut := importJSON(t, filepath.Join(t.TempDir(), "s.db"), z.Bytes()[:z.Len()/2], "-")
		if cut.Total.Sessions == 0 || cut.Total.Damaged == 0 ||
			!strings.Contains(strings.Join(cut.Files[0].Damages, "\n"),
				"it is damaged as a gzip file: the rest is left out: unexpected EOF") {
			t.Errorf("%s, cut: %+v", tt.name, cut)
		}
	}
}

func checkpoint(t *testing.T, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil),
		conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestImportDirectory reads what programs laid out as a whole, wherever it is, and all
// that is beside it.
func TestImportDirectory(t *testing.T) {
	dir := t.TempDir()
	put := func(name, from string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(samples, filepath.FromSlash(from)))
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	files := func() map[string]string {
		t.Helper()
		all := map[string]string{}
		got := importJSON(t, filepath.Join(t.TempDir(), "s.db"), nil, dir)
		for _, f := range got.Files {
			name, err := filepath.Rel(dir, f.File)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.ToSlash(name)] = f.Format
		}
		return all
	}
	want := func(want map[string]string) {
		t.Helper()
		if d := cmp.Diff(want, files()); d != "" {
			t.Errorf("files (-want +got):\n%s", d)
		}
	}
	put("trace.sqlite", "jutul/testdata/trace.sqlite")
	want(map[string]string{".": "jutul"})
	put("more.jsonl", "transcripts/testdata/opencode/sessions.golden.jsonl")
	want(map[string]string{"trace.sqlite": "jutul", "more.jsonl": "jsonl"})
	const run = "dff117f0-c969-44c1-8173-1523b6eb1213"
	put("a/runs/"+run+"/run.json", "agentdbg/testdata/data/runs/"+run+"/run.json")
	put("a/runs/"+run+"/events.jsonl", "agentdbg/testdata/data/runs/"+run+"/events.jsonl")
	put("b/c/gemini.json", "transcripts/testdata/gemini/tmp/parser/chats/session-2025-08-20T10-00-77aa0b1c.json")
	put(".hidden/gemini.json", "transcripts/testdata/gemini/tmp/parser/chats/session-2025-08-20T10-00-77aa0b1c.json")
	want(map[string]string{"trace.sqlite": "jutul", "more.jsonl": "jsonl", "a": "agentdbg",
		"b/c/gemini.json": "gemini-cli"})
}

// TestMaidaIsDiscoveredAndWritten: the runs in Maida's data directory become sessions, which are written and imported
// as they are.
func TestMaidaIsDiscoveredAndWritten(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("MAIDA_DATA_DIR", "")
	runs := os.DirFS(filepath.Join(samples, "agentdbg/testdata/maida"))
	if err := os.CopyFS(filepath.Join(home, ".maida"), runs); err != nil {
		t.Fatal(err)
	}
	store, again := filepath.Join(t.TempDir(), "s.db"), filepath.Join(t.TempDir(), "s.db")
	got := importJSON(t, store, nil, "--discover", "--yes")
	if got.Total.Added != 3 || got.Total.Damaged > 0 || got.Files[0].Format != "maida" {
		t.Errorf("%+v", got)
	}
	dir := filepath.Join(t.TempDir(), "out")
	run(t, "--store", store, "export", "--all", "--format", "maida", "--output", dir+"/")
	importJSON(t, again, nil, dir)
	one, other := string(run(t, "--store", store, "export", "--all")), string(run(t, "--store", again, "export", "--all"))
	if d := cmp.Diff(one, other); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestImportTranscriptBesideTelemetry imports what Claude Code reports of a session and
// the transcript that it keeps, in both orders and again: it is one session each time,
// which export writes alike.
func TestImportTranscriptBesideTelemetry(t *testing.T) {
	dir := t.TempDir()
	transcript := filepath.Join(dir, "transcript.jsonl")
	const record = `{"sessionId":"ef8b65a1-f918-492b-ab49-64ed656ea4c5",` +
		`"uuid":"9e2458a6-4121-4270-a1aa-19a31ad4e9fc","type":"user",` +
		`"promptId":"535dbdcb-308b-46c6-90e3-7d0b086f5b0a","timestamp":"2026-11-20T18:19:17.335Z",` +
		`"message":{"role":"user","content":"List the files here"}}` + "\n"
	if err := os.WriteFile(transcript, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	const telemetry = "../../session/ingest/testdata/captures/claude-code-2.1.329/print-bash"
	var want string
	for i, files := range [][]string{{telemetry, transcript}, {transcript, telemetry},
		{transcript, telemetry, transcript, telemetry}} {
		store := filepath.Join(dir, strings.Repeat("s", i+1)+".db")
		for _, file := range files {
			importJSON(t, store, nil, file)
		}
		got := string(run(t, "--store", store, "export", "--all", "--format", "jsonl"))
		if n := strings.Count(got, `"type":"session"`); n != 1 {
			t.Errorf("%v: %d sessions, want 1", files, n)
		}
		if n := strings.Count(got, "List the files here"); want == "" && n == 0 {
			t.Errorf("%v: the prompt is not there:\n%s", files, got)
		}
		if want == "" {
			want = got
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v (-telemetry first +got):\n%s", files, d)
		}
	}
}

// TestStatsAndShowCountTurnsAlike counts the turns of what every program keeps: what a
// program adds for the model before the first turn, a command that it ran by itself and
// a compaction are no turns to either.
func TestStatsAndShowCountTurnsAlike(t *testing.T) {
	dir := t.TempDir()
	const rollout = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"c1","cwd":"/w"}}
{"timestamp":"2026-01-02T03:04:05.100Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x</environment_context>"}]}}
{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}}
{"timestamp":"2026-01-02T03:04:07.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"1"}]}}
{"timestamp":"2026-01-02T03:04:08.000Z","type":"compacted","payload":{"message":"so far"}}
{"timestamp":"2026-01-02T03:04:09.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"two"}]}}
`
	if err := os.WriteFile(filepath.Join(dir, "rollout.jsonl"), []byte(rollout), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{filepath.Join(dir, "rollout.jsonl"), samples + "transcripts/testdata/gemini",
		samples + "transcripts/testdata/opencode/sessions.golden.jsonl"} {
		store := filepath.Join(t.TempDir(), "s.db")
		importJSON(t, store, nil, from)
		var stats struct {
			Total struct{ Turns int }
		}
		if err := json.Unmarshal(run(t, "--store", store, "stats", "--json"), &stats); err != nil {
			t.Fatal(err)
		}
		var sessions []struct{ ID string }
		if err := json.Unmarshal(run(t, "--store", store, "ls", "--json", "--all"), &sessions); err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, s := range sessions {
			var timeline struct {
				Totals struct{ Turns int }
			}
			if err := json.Unmarshal(run(t, "--store", store, "show", "--json", s.ID), &timeline); err != nil {
				t.Fatal(err)
			}
			shown += timeline.Totals.Turns
		}
		if shown == 0 || shown != stats.Total.Turns {
			t.Errorf("%s: stats count %d turns, show %d", from, stats.Total.Turns, shown)
		}
	}
}
