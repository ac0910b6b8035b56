//go:build unix

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestTerminated: a command that waits for a pipe ends when it is terminated, and so does a collector that waits for
// its database.
func TestTerminated(t *testing.T) {
	const absent = "postgres://postgres@127.0.0.1:1/none"
	for _, args := range [][]string{{"import", "p"}, {"store", "check", "p"}, {"import"}, {"import", "--watch", "."},
		{"collect", "--view-endpoint", testscale.MustAddress(), "--store", absent}} {
		dir := t.TempDir()
		testscale.Must(t, syscall.Mkfifo(filepath.Join(dir, "p"), 0o600))
		cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", "s.db"}, args...)...)
		cmd.Dir = dir
		stdin, err := cmd.StdinPipe()
		testscale.Must(t, err)
		stderr, err := cmd.StderrPipe()
		testscale.Must(t, errors.Join(err, cmd.Start()))
		switch args[len(args)-1] {
		case "p": // opening it returns when the command opens it
			w, err := os.OpenFile(filepath.Join(dir, "p"), os.O_WRONLY, 0)
			testscale.Must(t, err)
			defer w.Close()
		case ".", absent: // it prints that it follows the directory, or waits
			if _, err := stderr.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		default: // more than a pipe holds is read
			if _, err := stdin.Write(bytes.Repeat([]byte(`{"resourceSpans":[]}`+"\n"), 10000)); err != nil {
				t.Fatal(err)
			}
		}
		testscale.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		go func() { _, _ = io.Copy(io.Discard, stderr) }()
		begin := time.Now()
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("agenttrace %v: %v", args, err)
		} else if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("agenttrace %v ended after %v", args, took)
		}
	}
}

// TestAnImportCountsWhatAFullDiskTook: what it says of stored sessions is what the store has, and with room it goes on.
func TestAnImportCountsWhatAFullDiskTook(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	testscale.Must(t, os.Mkdir(filepath.Join(dir, "files"), 0o700))
	for i := range 100 {
		testscale.Must(t, os.WriteFile(filepath.Join(dir, "files", fmt.Sprint(i, ".jsonl")), fmt.Appendf(nil,
			`{"type":"session","version":3,"id":"s%d","timestamp":"2026-10-03T14:00:00.000Z","cwd":"/p"}
{"type":"message","id":"a1","parentId":null,"timestamp":"2026-10-03T14:00:01.000Z",`+
				`"message":{"role":"user","content":"%s","timestamp":1791036001000}}`, i, strings.Repeat("word ", 9999)), 0o600))
	}
	count := func() int { return len(decode[[]any](t, command(t, 0, "--store", path, "ls", "--all", "--json"))) }
	stderr, err := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 6000
		agenttrace --store "$0" import "$1" 2>&1 >/dev/null`, path, filepath.Join(dir, "files")).Output()
	got := count()
	if want := fmt.Sprintf("agenttrace: %d sessions stored so far", got); err == nil || got == 0 || got == 100 ||
		!strings.Contains(string(stderr), want) {
		t.Errorf("%v: %s; want %q", err, stderr, want)
	}
	command(t, 0, "--store", path, "import", filepath.Join(dir, "files"))
	if got := count(); got != 100 {
		t.Errorf("with room there are %d sessions, want 100", got)
	}
}

// TestExportNeverReplacesWhatIsNoRegularFile: devices and FIFOs are written to and stay what
// they are, with --force and without it.
func TestExportNeverReplacesWhatIsNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	newStore(t, path, fixture())
	want, _, _ := piped(nil, "--store", path, "export", "last")
	fifo := filepath.Join(dir, "fifo")
	testscale.Must(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(dir, "link")
	testscale.Must(t, os.Symlink(fifo, link))
	kept := func(name string, mode os.FileMode) {
		t.Helper()
		if info, err := os.Stat(name); err != nil || info.Mode().Type() != mode {
			t.Errorf("%s is now %v, %v", name, info.Mode(), err)
		}
	}
	for _, name := range []string{fifo, link} {
		for _, force := range [][]string{nil, {"--force"}} {
			read := make(chan string)
			go func() {
				b, _ := os.ReadFile(name)
				read <- string(b)
			}()
			if _, stderr, code := piped(nil, append([]string{"--store", path, "export", "last", "--output", name},
				force...)...); code != 0 {
				t.Fatalf("to %s: exit code %d, %s", name, code, stderr)
			}
			if got := <-read; got != want {
				t.Errorf("%s got %d bytes, want %d", name, len(got), len(want))
			}
			kept(fifo, os.ModeNamedPipe)
		}
	}
	// What Linux has as a device, in a directory where this process could replace it.
	for _, args := range [][]string{
		{"export", "last", "--output"}, {"export", "--all", "--format", "csv", "--output"},
		{"export", "last", "--format", "html", "--bundle"},
		{"replay", "last", "--format", "anthropic", "--output"},
		{"diff", "last", "1fa2bdc57", "--format", "html", "--output"},
	} {
		args = append([]string{"--store", path}, append(args, "/dev/null")...)
		for _, force := range []bool{false, true} {
			if force {
				args = append(args, "--force")
			}
			if _, stderr, code := piped(nil, args...); code > 1 {
				t.Errorf("%v: exit code %d, %s", args, code, stderr)
			}
			kept("/dev/null", os.ModeDevice|os.ModeCharDevice)
		}
	}
	for _, args := range [][]string{
		{"export", "last", "--format", "sqlite", "--force", "--output"},
		{"export", "last", "--format", "jutul", "--force", "--output"},
		{"export", "--all", "--format", "json", "--force", "--output"}, {"store", "backup"},
	} {
		_, stderr, code := piped(nil, append(append([]string{"--store", path}, args...), "/dev/null")...)
		if code != 2 || !strings.Contains(stderr, "/dev/null") {
			t.Errorf("%v /dev/null: exit code %d, %s", args, code, stderr)
		}
		kept("/dev/null", os.ModeDevice|os.ModeCharDevice)
	}
}
