//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

func init() { roles["fill"] = fillDisk }

// fillDisk writes until the limit on the size of its files is met, then lifts the limit and writes on.
func fillDisk(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := old
	limit.Cur = 2 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	var failed int
	for i := range 200 {
		b := bigBatch(i)
		if _, err := s.Apply(context.Background(), &b); err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				return fmt.Errorf("batch %d: not ErrUnavailable: %w", i, err)
			}
			failed = i
			break
		}
	}
	if failed == 0 {
		return errors.New("200 batches of 64 KiB fit under a limit of 2 MiB")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if _, err := s.Session(context.Background(), fmt.Sprintf("ses_%d", failed)); !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("something of the batch that failed is stored: %w", err)
	}
	b := bigBatch(failed)
	if _, err := s.Apply(context.Background(), &b); err != nil {
		return fmt.Errorf("write after the limit was lifted: %w", err)
	}
	fmt.Println("failed", failed)
	return s.Close()
}

// TestPrivate: nobody else may read the files.
func TestPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "sessions.db")
	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "1"))
	for _, name := range []string{path, path + "-wal", path + "-shm", path + ".lock"} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
		}
	}
	for _, name := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v; want 0700", name, info.Mode(), err)
		}
	}
}

// TestDiskFull: the same where the operating system refuses to write.
func TestDiskFull(t *testing.T) {
	path := newPath(t)
	p := start(t, "fill", path)
	lines := p.all()
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "failed ") {
		t.Fatalf("%q", lines)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	sound(t, path)
}

// TestReadOnly: where nothing can be written, a writer says so and a reader
// reads. Run by root, who may write anywhere, it is nobody who tries.
func TestReadOnly(t *testing.T) {
	dir, err := os.MkdirTemp("", "agenttrace-readonly")
	testscale.Must(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o700) })
		_ = os.RemoveAll(dir)
	})
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		testscale.Must(t, os.Chmod(name, mode))
	}
	chmod(dir, 0o755)
	binary := filepath.Join(dir, "test")
	copyFile(t, binary, 0o755)
	asNobody := func(cmd *osexec.Cmd) {
		cmd.Path, cmd.Dir = binary, dir
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	}
	for _, c := range []struct {
		name      string
		file, dir os.FileMode
	}{
		{"file", 0o444, 0o777},
		{"directory", 0o666, 0o555},
		{"both", 0o444, 0o555},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := filepath.Join(dir, c.name)
			path := filepath.Join(inner, "sessions.db")
			s, err := Open(t.Context(), path, Options{})
			testscale.Must(t, err)
			apply(t, s, turnBatch("ses_1", "1"))
			testscale.Must(t, s.Close())
			testscale.Must(t, os.Remove(path+".lock"))
			chmod(path, c.file)
			chmod(inner, c.dir)
			got := start(t, "open", path, asNobody).all()
			if len(got) != 3 || !strings.Contains(got[0], store.ErrUnavailable.Error()) ||
				!strings.Contains(got[0], path) ||
				!strings.Contains(got[0], "make it writable") {
				t.Errorf("writer: %q", got)
			}
			if len(got) != 3 || got[1] != "read: <nil>" || got[2] != "session: ses_1 <nil>" {
				t.Errorf("reader: %q", got)
			}
		})
	}
	t.Run("unreadable", func(t *testing.T) {
		path := filepath.Join(dir, "secret.db")
		testscale.Script(t, path, referenceDDL)
		chmod(path, 0o000)
		got := start(t, "open", path, asNobody).all()
		if len(got) != 2 || !strings.Contains(got[1], path) || strings.Contains(got[1], "<nil>") {
			t.Errorf("%q", got)
		}
	})
}

func copyFile(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	binary, err := os.Executable()
	testscale.Must(t, err)
	from, err := os.Open(binary)
	testscale.Must(t, err)
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	testscale.Must(t, err)
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
