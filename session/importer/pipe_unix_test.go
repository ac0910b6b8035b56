//go:build unix

package importer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
)

// pipe makes a named pipe.
func pipe(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	testscale.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), syscall.Mkfifo(path, 0o600)))
	return path
}

// TestNamedPipeIsReadAsAStream: one that is named is read to its end, as the shell's <(zcat x) is.
func TestNamedPipeIsReadAsAStream(t *testing.T) {
	path := pipe(t, t.TempDir(), "p")
	go func() { _ = os.WriteFile(path, []byte(claudeFile("s1", "why")), 0) }()
	if got, _ := run(t, filepath.Join(t.TempDir(), "s.db"), importer.Options{}, path); got.Total.Added != 1 {
		t.Errorf("imported %+v, want a session", got.Total)
	}
}

// TestPipeThatNobodyWrites: an import of it ends when it is interrupted, before and after somebody opened it.
func TestPipeThatNobodyWrites(t *testing.T) {
	for _, open := range []bool{false, true} {
		path := pipe(t, t.TempDir(), "p.jsonl")
		ctx, cancel := context.WithCancel(t.Context())
		if open {
			go func() {
				w, err := os.OpenFile(path, os.O_WRONLY, 0)
				cancel()
				<-t.Context().Done()
				_ = errors.Join(err, w.Close())
			}()
		}
		im, err := importer.New(filepath.Join(t.TempDir(), "s.db"), importer.Options{Progress: func(importer.Progress) {
			if !open {
				cancel()
			}
		}})
		testscale.Must(t, err)
		if _, err := im.Run(ctx, importer.Inputs([]string{path}, nil, nil)); !errors.Is(err, context.Canceled) {
			t.Errorf("opened %v: error %v, want %v", open, err, context.Canceled)
		}
		if !open { // what waits for a writer is let go
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err := errors.Join(err, w.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestWhatIsNoFileIsLeftOut: below a directory pipes, devices and links in a circle are left out, with a word, also
// where a format has a file of their name.
func TestWhatIsNoFileIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "s1.jsonl"), claudeFile("s1", "why"))
	write(t, filepath.Join(dir, "agent-a.jsonl"),
		strings.ReplaceAll(claudeFile("s2", "why"), `"isSidechain":false`, `"isSidechain":true,"agentId":"a"`))
	pipe(t, dir, "agent-a.meta.json")
	pipe(t, dir, "b", "p.jsonl")
	pipe(t, dir, "runs", "1", "run.json")
	pipe(t, dir, "storage", "session", "p", "ses_1.json")
	testscale.Must(t, errors.Join(os.Symlink("/dev/zero", filepath.Join(dir, "z.jsonl")), os.Symlink(".",
		filepath.Join(dir, "c")), os.Symlink("l.jsonl", filepath.Join(dir, "l.jsonl"))))
	var warned []string
	got, _ := run(t, filepath.Join(t.TempDir(), "s.db"), importer.Options{Warn: func(text string) {
		warned = append(warned, text)
	}}, dir)
	if got.Total.Added != 2 {
		t.Errorf("imported %+v, want two sessions", got.Total)
	}
	for _, want := range []string{
		filepath.Join(dir, "b", "p.jsonl") + " is left out: nothing that import knows: it is a named pipe, not a file",
		filepath.Join(dir, "z.jsonl") + " is left out: nothing that import knows: it is a device, not a file",
	} {
		if all := strings.Join(warned, "\n"); !strings.Contains(all, want) {
			t.Errorf("warnings:\n%s\nwant %q", all, want)
		}
	}
	w := importer.Watch{Paths: []string{filepath.Join(dir, "b", "p.jsonl")}}
	if err := w.Run(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "named pipe") {
		t.Errorf("a watch of a pipe: %v", err)
	}
}

// TestPlacesWithPipes: known agents' places are searched and imported, whatever is in them.
func TestPlacesWithPipes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"CLAUDE_CONFIG_DIR", "AGENTDBG_DATA_DIR", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	pipe(t, home, ".claude", "projects", "p", "x.jsonl")
	pipe(t, home, ".agentdbg", "runs", "1", "run.json")
	pipe(t, home, ".local", "share", "opencode", "opencode.db")
	write(t, filepath.Join(home, ".claude", "projects", "p", "s1.jsonl"), claudeFile("s1", "why"))
	places, err := importer.Discover()
	testscale.Must(t, err)
	im, err := importer.New(filepath.Join(t.TempDir(), "s.db"), importer.Options{})
	testscale.Must(t, err)
	defer im.Close()
	if failed, err := im.Run(t.Context(), importer.InputsOf(places)); failed != nil || err != nil ||
		im.Summary.Total.Added != 1 {
		t.Errorf("imported %+v, %v, %v", im.Summary.Total, failed, err)
	}
}

// TestFileThatGrowsWhileItIsRead: reading it ends where it ended when it was opened. What came since is read the next
// time.
func TestFileThatGrowsWhileItIsRead(t *testing.T) {
	span := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":%q}]}]}]}`+
		"\n", 1, 1, strings.Repeat("x", 40<<10))
	question := strings.Repeat("x", 40<<10)
	for name, text := range map[string]string{"spans.jsonl": span, "s1.jsonl": claudeFile("s1", question)} {
		path, db := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "s.db")
		write(t, path, text)
		for range 2 {
			grow := func(importer.Progress) {
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err == nil {
					_, err = io.WriteString(f, text)
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}
			im, err := importer.New(db, importer.Options{Progress: grow})
			testscale.Must(t, err)
			failed, err := im.Run(t.Context(), importer.Inputs([]string{path}, nil, nil))
			if err := errors.Join(failed, err, im.Close()); err != nil || im.Summary.Total.Damaged > 0 {
				t.Errorf("%s: %v, %+v", name, err, im.Summary.Total)
			}
		}
	}
}
