package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// unusual makes a store with two plain sessions between ones that make trouble: of ids that
// are not file names, or alike, and with rows that cannot be read.
func unusual(t *testing.T) (path string, ids int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, new(store.Batch))
	all := []string{
		"plain-1", strings.Repeat("x", 5000), strings.Repeat("x", 5000) + "y", "a/b", "..", "...", "Case", "CASE",
		"case",
		"nul", "CON", "with\x1b[31m\ncontrol", "plain-2", " ",
	}
	var sql strings.Builder
	for i, id := range append(all, "damaged") {
		quoted := strings.ReplaceAll(id, "'", "''")
		fmt.Fprintf(&sql,
			"INSERT INTO chat_sessions(id, title, agent, created_at, updated_at) VALUES ('%s', 't', 'a', "+
				"1795198540000, %d);\n",
			quoted, 1795198540000+i)
		const data = `{"type":"text","text":"hello"}`
		if id == "damaged" {
			fmt.Fprintf(&sql,
				"INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('other', 'plain-1', "+
					"'user', 1, 1);\n"+
					"INSERT INTO chat_parts(id, message_id, session_id, \"index\", type, data_json, created_at, "+
					"updated_at) VALUES ('elsewhere', 'other', 'damaged', 0, 'text', '%s', 1, 1);\n"+
					"INSERT INTO permission_decisions(id, session_id, tool_id, action, decided_at) VALUES (x'00', "+
					"'damaged', 'bash', 'allow', 1);\n"+
					"INSERT INTO span_refs(session_id, trace_id, span_id, kind, dialect, start_nano, end_nano, "+
					"facts_json) VALUES ('damaged', '1', '2', 'chat', 'x', 1, 2, '{');\n", data)
		}
		fmt.Fprintf(&sql,
			"INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('m%d', '%s', 'user', "+
				"1795198540000, 1795198540000);\n", i, quoted)
		fmt.Fprintf(&sql,
			"INSERT INTO chat_parts(id, message_id, session_id, \"index\", type, data_json, created_at, updated_at) "+
				"VALUES ('p%d', 'm%d', '%s', 0, 'text', '%s', 1795198540000, 1795198540000);\n", i, i, quoted, data)
	}
	testscale.Script(t, path, sql.String())
	return path, len(all)
}

// TestExportAllGoesOnAfterAnUnusualSession: in every format each session that can be exported
// is, and the others are named; the exit code reports it.
func TestExportAllGoesOnAfterAnUnusualSession(t *testing.T) {
	path, want := unusual(t)
	help, _, _ := piped(nil, "export", "--help")
	formats := []string{"jsonl", "json", "csv", "parquet", "markdown", "html", "otlp-json", "otlp-proto", "agentdbg",
		"maida", "jutul", "skillet", "acp", "atif", "pi", "sts", "sqlite"}
	for _, format := range formats {
		if !strings.Contains(help, "  "+format+" ") {
			t.Errorf("there is no format %s", format)
		}
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			_, stderr, code := piped(nil, "--store", path, "export", "--all", "--format", format, "--output", dir+"/")
			left := strings.Count(stderr, " is left out: ")
			if left > 1 || left == 1 != (code == 1) || code > 1 {
				t.Errorf("exit code %d, %d sessions left out:\n%.600s", code, left, stderr)
			}
			if left == 1 && !strings.Contains(stderr, fmt.Sprintf("%d sessions exported, 1 left out\n", want)) {
				t.Errorf("the end does not count:\n%.600s", stderr)
			}
			files := 0
			for _, f := range entries(t, dir) {
				if name := filepath.Base(f); strings.HasPrefix(name, ".") && name != ".agent_sessions.sqlite" {
					t.Errorf("%s is left behind", f)
				}
				files++
			}
			if files < want {
				t.Errorf("%d files of %d sessions:\n%.600s", files, want, stderr)
			}
		})
	}
	stdout, stderr, code := piped(nil, "--store", path, "export", "--all")
	if n := strings.Count(stdout, `{"type":"session"`); n != want || code != 1 ||
		!strings.Contains(stderr, "session damaged is left out: ") {
		t.Errorf("%d sessions on standard output, want %d; exit code %d\n%.600s", n, want, code, stderr)
	}
	if strings.Contains(stderr, "\x1b") {
		t.Errorf("control characters on standard error: %q", stderr)
	}
	if _, stderr, code := piped(nil, "--store", path, "export", "damaged"); code == 0 || stderr == "" {
		t.Errorf("a damaged session alone: exit code %d, %q", code, stderr)
	}
}

func entries(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	testscale.Must(t, err)
	return files
}

// TestExportToStandardOutput: /dev/stdout is what is open, at its place in the file, whatever it leads to.
func TestExportToStandardOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	newStore(t, path, fixture())
	want, _, _ := piped(nil, "--store", path, "export", "last")
	for _, name := range []string{"-", "/dev/stdout"} {
		f, err := os.CreateTemp(dir, "out")
		testscale.Must(t, err)
		if _, err := f.WriteString("before\n"); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "agenttrace", "--store", path, "export", "last", "--output", name)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = f, &stderr
		if err := cmd.Run(); err != nil {
			t.Errorf("to %s: %v, %s", name, err, stderr.String())
		}
		if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "before\n"+want {
			t.Errorf("to %s: the file has %d bytes, want %d; %v", name, len(b), len("before\n"+want), err)
		}
		f.Close()
	}
}
