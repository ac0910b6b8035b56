package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		Format  string   `json:"format"`
		Damages []string `json:"damages"`
	} `json:"files"`
}

// importJSON imports a file or directory, which may be damaged.
func importJSON(t *testing.T, store string, stdin []byte, args ...string) imported {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", store, "import", "--json"}, args...)...)
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
		{path: "jutul/testdata/trace.sqlite", format: "jutul", golden: "jutul/testdata/trace.golden.jsonl", sessions: 1, stream: true},
		{path: "jutul/testdata", format: "jutul", golden: "jutul/testdata/trace.golden.jsonl", sessions: 1},
		{path: "agentdbg/testdata/export.json", format: "agentdbg", golden: "agentdbg/testdata/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1, stream: true},
		{path: "agentdbg/testdata/data", format: "agentdbg", golden: "agentdbg/testdata/3cb3426d-1fa6-417a-b821-6be9c94cd9f4.jsonl", sessions: 4},
		{path: "agentdbg/testdata/data/runs", format: "agentdbg", golden: "agentdbg/testdata/46e80958-2ba7-4329-9bda-377db118f630.jsonl", sessions: 4},
		{path: "agentdbg/testdata/data/runs/f0ca8552-c91a-473d-a112-286a75226e66", format: "agentdbg", golden: "agentdbg/testdata/f0ca8552-c91a-473d-a112-286a75226e66.jsonl", sessions: 1},
		{path: "agentdbg/testdata/data/runs/dff117f0-c969-44c1-8173-1523b6eb1213/events.jsonl", format: "agentdbg", golden: "agentdbg/testdata/dff117f0-c969-44c1-8173-1523b6eb1213.jsonl", sessions: 1},
		{path: "skillet/testdata/state", format: "skillet", golden: "skillet/testdata/both.golden.jsonl", sessions: 1},
		{path: "skillet/testdata/state/.agent_sessions.sqlite", format: "skillet", golden: "skillet/testdata/store.golden.jsonl", sessions: 1, stream: true},
		{path: "skillet/testdata/state/.agent_session_logs/john_example_com/session_2026-05-27T20_11_02_482Z_ab12.jsonl", format: "skillet", golden: "skillet/testdata/log.golden.jsonl", sessions: 1},
		{path: "acp/testdata/handmade_raw.ndjson", format: "acp", stream: true},
		{path: "acp/testdata/handmade_zed.json", format: "acp", stream: true},
		{path: "acp/testdata/handmade_inspector.jsonl", format: "acp", stream: true},
		{path: "acp/testdata/handmade_conductor.jsons", format: "acp", stream: true},
		{path: "acp/testdata/inspector_proxy-chain.jsonl", format: "acp", stream: true},
		{path: "acp/testdata/version2.ndjson", format: "acp", stream: true},
	} {
		t.Run(tt.path, func(t *testing.T) {
			path, store := filepath.Join(samples, filepath.FromSlash(tt.path)), filepath.Join(t.TempDir(), "s.db")
			path = copied(t, path)
			got := importJSON(t, store, nil, path)
			if len(got.Files) != 1 || got.Files[0].Format != tt.format || got.Total.Sessions == 0 || tt.sessions > 0 && got.Total.Sessions != tt.sessions {
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
			if again.Total.Messages+again.Total.Parts+again.Total.Added != 0 || again.Total.Unchanged < got.Total.Messages+got.Total.Parts {
				t.Errorf("imported %+v the second time", again.Total)
			}
			if d := cmp.Diff(before, string(run(t, "--store", store, "export", "--all"))); d != "" {
				t.Errorf("importing again changed rows:\n%s", d)
			}
			if out, err := exec.CommandContext(t.Context(), "agenttrace", "--store", store, "check").CombinedOutput(); err != nil {
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

// wantRows wants the session of a file in the store, byte for byte.
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
		if d := cmp.Diff(expected.String(), string(got)); d != "" {
			t.Errorf("session %s (-want +got):\n%s", want.Session.ID, d)
		}
	}
}

// TestImportExported imports what export writes in every format that import
// reads, and wants the session back.
func TestImportExported(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.db")
	if err := makeStore(from, fixture()); err != nil {
		t.Fatal(err)
	}
	const id = "ses_1fa2bdc08000YO9dOSXjsMd9kP"
	want := string(run(t, "--store", from, "export", id))
	for format, name := range map[string]string{"jsonl": "a.jsonl", "json": "a.json", "agentdbg": "b.json", "acp": "a.ndjson", "jutul": "a.sqlite"} {
		path, store := filepath.Join(dir, format+"-"+name), filepath.Join(dir, format+".db")
		run(t, "--store", from, "export", "--format", format, "-o", path, id)
		got := importJSON(t, store, nil, path)
		if got.Files[0].Format != format || got.Total.Added != 1 {
			t.Errorf("%s: imported %+v", format, got)
			continue
		}
		if d := cmp.Diff(want, string(run(t, "--store", store, "export", id))); d != "" {
			t.Errorf("%s: session (-want +got):\n%s", format, d)
		}
	}
	whole := filepath.Join(dir, "whole.db")
	if got := importJSON(t, whole, nil, from); got.Files[0].Format != "sqlite" || got.Total.Added != 3 {
		t.Errorf("store: imported %+v", got)
	}
	if d := cmp.Diff(string(run(t, "--store", from, "export", "--all")), string(run(t, "--store", whole, "export", "--all"))); d != "" {
		t.Errorf("store: sessions (-want +got):\n%s", d)
	}
	if got := importJSON(t, from, nil, whole); got.Total.Added+got.Total.Messages+got.Total.Parts != 0 {
		t.Errorf("store: imported %+v on the way back", got)
	}
}
