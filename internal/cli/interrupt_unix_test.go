//go:build unix

package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestTerminated: a command that waits for a pipe ends when it is terminated.
func TestTerminated(t *testing.T) {
	for _, args := range [][]string{{"import", "p"}, {"store", "check", "p"}, {"import"}, {"import", "--watch", "."}} {
		dir := t.TempDir()
		testscale.Must(t, syscall.Mkfifo(filepath.Join(dir, "p"), 0o600))
		cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", "s.db"}, args...)...)
		cmd.Dir = dir
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := cmd.StderrPipe()
		testscale.Must(t, errors.Join(err, cmd.Start()))
		switch args[len(args)-1] {
		case "p": // opening it returns when the command opens it
			w, err := os.OpenFile(filepath.Join(dir, "p"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
		case ".": // it prints that it follows the directory
			if _, err := stderr.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		default: // more than a pipe holds is read
			if _, err := stdin.Write(bytes.Repeat([]byte(`{"resourceSpans":[]}`+"\n"), 10000)); err != nil {
				t.Fatal(err)
			}
		}
		testscale.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("agenttrace %v: %v", args, err)
		}
	}
}
