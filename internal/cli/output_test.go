//go:build unix

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/formats"
)

// writers are the commands that write a file, each to the path that is appended.
var writers = [][]string{
	{"export", "last", "--format", "jsonl", "--output"}, {"export", "last", "--format", "json", "--output"},
	{"export", "last", "--format", "csv", "--output"}, {"export", "last", "--format", "markdown", "--output"},
	{"export", "last", "--format", "html", "--output"}, {"export", "last", "--format", "otlp-json", "--output"},
	{"export", "last", "--format", "otlp-proto", "--output"}, {"export", "last", "--format", "agentdbg", "--output"},
	{"export", "last", "--format", "jutul", "--output"}, {"export", "last", "--format", "skillet", "--output"},
	{"export", "last", "--format", "acp", "--output"}, {"export", "last", "--format", "sqlite", "--output"},
	{"export", "--all", "--format", "jsonl", "--output"}, {"export", "--all", "--format", "sqlite", "--output"},
	{"export", "last", "--format", "markdown", "--bundle"}, {"replay", "last", "--format", "anthropic", "--output"},
	{"diff", "last", "1fa2bdc57", "--format", "html", "--output"}, {"store", "backup"},
}

// inShell runs the command in a process of its own after what a shell does first.
func inShell(t *testing.T, first string, args ...string) (stderr string, code int) {
	t.Helper()
	path, err := exec.LookPath("agenttrace")
	testscale.Must(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", first + ` && exec "$0" "$@"`, path},
		args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return errs.String(), cmd.ProcessState.ExitCode()
}

// large makes a store with a session of so many more parts, and no log beside it.
func large(t *testing.T, path string, parts int) {
	t.Helper()
	newStore(t, path, fixture())
	var sql strings.Builder
	for i := range parts {
		fmt.Fprintf(&sql,
			"INSERT INTO chat_parts(id, message_id, session_id, \"index\", type, data_json, created_at, updated_at)"+
				" SELECT 'prt_large_%d', message_id, session_id, %d, 'text', json_object('type', 'text', 'text', "+
				"hex(randomblob(400))), created_at, updated_at"+
				" FROM chat_parts WHERE session_id = 'ses_1fa2bdc08000YO9dOSXjsMd9kP' ORDER BY rowid LIMIT 1;\n", i,
			1000+i)
	}
	testscale.Script(t, path, sql.String())
	testscale.Must(t, formats.SettleStore(path))
}

// TestWhatCannotBeWrittenLeavesNothing: past the limit on the size of files, as on a full disk,
// each command names the file that the user named, why it is not there, and what to do; nothing
// is left of it, and a file that was there is as it was.
func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	large(t, store, 1500)
	out := filepath.Join(dir, "out")
	testscale.Must(t, os.Mkdir(out, 0o700))
	file := filepath.Join(out, "file.x")
	for _, args := range writers {
		if args[2%len(args)] == "--format" && args[3] == "csv" {
			args = append([]string{"export", "--all"}, args[2:]...)
		}
		for _, old := range []bool{true, false}[:testscale.Rounds(1, 2)] {
			args := append(append([]string{"--store", store}, args...), file)
			if old {
				if args[3] == "backup" {
					continue // which replaces nothing
				}
				testscale.WriteFile(t, file, "old")
				args = append(args, "--force")
			}
			stderr, code := inShell(t, "ulimit -f 68", args...) // blocks: what readers share of the log has 32 KiB
			first, hint, _ := strings.Cut(stderr[max(0, strings.Index(stderr, "agenttrace: ")):], "\nhint: ")
			if code != 5 || !strings.Contains(first, "agenttrace: write "+file+": ") ||
				strings.Contains(stderr, "/.") ||
				hint == "" {
				t.Errorf("%v: exit code %d, %s", args, code, stderr)
			}
			if b, err := os.ReadFile(file); old != (err == nil) || old && string(b) != "old" {
				t.Errorf("%v: the file has %d bytes, %v", args, len(b), err)
			}
			_ = os.Remove(file)
			if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
				t.Errorf("%v: left behind: %v, %v", args, left, err)
				_ = os.RemoveAll(filepath.Join(out, left[0].Name()))
			}
		}
	}
}

// TestASkilletDirectoryHasBothOrNone: wherever the disk is full, a session is in the database and
// has its log, or neither; one that is replaced keeps both.
func TestASkilletDirectoryHasBothOrNone(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	large(t, store, 60)
	for blocks := 66; blocks < 330; blocks += 18 {
		out := filepath.Join(dir, fmt.Sprintf("out%d", blocks))
		args := []string{"--store", store, "export", "--all", "--format", "skillet", "--output", out + "/"}
		stderr, code := inShell(t, fmt.Sprintf("ulimit -f %d", blocks), args...)
		logs := 0
		for _, name := range entries(t, out) {
			switch {
			case strings.HasSuffix(name, ".jsonl"):
				logs++
			case filepath.Base(name) != ".agent_sessions.sqlite":
				t.Errorf("%d blocks: %s is left behind", blocks, name)
			}
		}
		if (code == 0) != (stderr == "") {
			t.Errorf("%d blocks: exit code %d, %d logs, %s", blocks, code, logs, stderr)
		}
		// A log without its rows would be in the way of the next export.
		stored := 0
		if conn, err := zombie.OpenConn(filepath.Join(out, ".agent_sessions.sqlite"), zombie.OpenReadOnly); err == nil {
			_ = sqlitex.ExecuteTransient(conn, "SELECT count(DISTINCT session_name) FROM session_items",
				&sqlitex.ExecOptions{
					ResultFunc: func(stmt *zombie.Stmt) error { stored = stmt.ColumnInt(0); return nil },
				})
			_ = conn.Close()
		}
		if logs != stored {
			t.Errorf("%d blocks: %d logs, %d sessions in the database: %s", blocks, logs, stored, stderr)
		}
	}
}

// TestAFullDeviceIsNamed: what is written to a device that is full names it, the reason and the
// remedy, and so does standard output.
func TestAFullDeviceIsNamed(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	newStore(t, store, fixture())
	for _, args := range writers {
		if args[1] == "backup" || strings.Contains(strings.Join(args, " "), "sqlite") ||
			strings.Contains(strings.Join(args, " "), "jutul") {
			continue // which are files, and none is replaced
		}
		_, stderr, code := piped(nil, append(append([]string{"--store", store}, args...), "/dev/full")...)
		if want := "agenttrace: write /dev/full: no space left on device\nhint: make room"; code != 5 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	for _, args := range [][]string{{"export", "last"}, {"export", "--all"}, {"show", "last"}, {"ls", "--json"},
		{"export", "last", "-o", "-"}} {
		stderr, code := inShell(t, "exec >/dev/full", append([]string{"--store", store}, args...)...)
		if want := "agenttrace: write standard output: no space left on device\nhint: make room"; code != 5 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestAPathThatCannotBe: the message names the path as the user gave it, and the remedy.
func TestAPathThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	newStore(t, store, fixture())
	testscale.WriteFile(t, filepath.Join(dir, "file"), "")
	paths := []string{filepath.Join(dir, "missing", "x"), filepath.Join(dir, "file", "x"),
		filepath.Join(dir, strings.Repeat("n", 300))}
	if os.Geteuid() != 0 {
		locked := filepath.Join(dir, "locked")
		testscale.Must(t, os.Mkdir(locked, 0o500))
		paths = append(paths, filepath.Join(locked, "x"))
	} else if info, err := os.Stat("/proc/self"); err == nil && info.IsDir() {
		paths = append(paths, "/proc/x") // where root can make nothing
	}
	for _, args := range writers {
		for _, path := range paths {
			_, stderr, code := piped(nil, append(append([]string{"--store", store}, args...), path)...)
			if code != 2 && code != 5 || !strings.Contains(stderr, "agenttrace: write "+path+": ") ||
				strings.Contains(stderr, "/.") ||
				!strings.Contains(stderr, "\nhint: ") {
				t.Errorf("%v %s: exit code %d, %s", args, path, code, stderr)
			}
		}
	}
	want := []string{"file", "s.db", "s.db.lock"}
	for _, e := range entries(t, dir) {
		name := filepath.Base(e)
		if !strings.HasPrefix(name, "s.db") && name != "file" {
			t.Errorf("%s is left behind; want %v", e, want)
		}
	}
}

// TestNoOutputReplacesTheStore: neither the store that is read nor the files that belong to it
// are written, whatever the command, by whatever name.
func TestNoOutputReplacesTheStore(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	newStore(t, store, fixture())
	before := testscale.ReadFile(t, store)
	link := filepath.Join(dir, "link.db")
	hard := filepath.Join(dir, "hard.db")
	for _, err := range []error{os.Symlink("s.db", link), os.Link(store, hard),
		os.WriteFile(store+"-journal", nil, 0o600)} {
		testscale.Must(t, err)
	}
	for _, named := range []string{store, link} {
		for _, args := range writers {
			if args[1] == "backup" {
				continue
			}
			for _, path := range []string{store, link, hard, store + "-wal", store + "-journal"} {
				if _, err := os.Stat(path); err != nil {
					continue
				}
				_, stderr, code := piped(nil, append(append([]string{"--store", named}, args...), path, "--force")...)
				if code != 2 || !strings.Contains(stderr, "it is the store that is read") {
					t.Errorf("%v %s: exit code %d, %s", args, path, code, stderr)
				}
			}
		}
	}
	if after, err := os.ReadFile(store); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the store is changed, %v", err)
	}
}
