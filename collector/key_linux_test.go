package collector

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

// Another user of the machine, who may enter the directory, reads neither the key nor the store, and does not reach the
// socket.
func TestOtherUsersReachNothing(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testscale.Must(t, os.Chmod(d, 0o755))
	}
	store := filepath.Join(dir, "s.db")
	r := started(t, Options{Store: store})
	defer func() { _ = r.Shutdown(context.WithoutCancel(t.Context())) }()
	tries := map[string]func() error{
		"reads the store": func() error { _, err := os.ReadFile(store); return err },
		"reads the key":   func() error { _, err := os.ReadFile(store + ".key"); return err },
		"reads the lock":  func() error { _, err := os.ReadFile(store + ".lock"); return err },
		"connects to the socket": func() error {
			c, err := net.Dial("unix", stores.Socket(store))
			if err == nil {
				c.Close()
			}
			return err
		},
	}
	for what, try := range tries {
		if err := try(); err != nil {
			t.Errorf("the user %s: %v", what, err)
		}
	}
	if os.Getuid() != 0 {
		return // nobody else is at hand
	}
	socket := stores.Socket(store)
	tries["connects to the socket"] = func() error {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err
	}
	for what, try := range tries {
		if err := asNobody(try); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user %s: %v", what, err)
		}
	}
}

// asNobody calls do on a thread that has the rights of the user nobody for files.
func asNobody(do func() error) error {
	const nobody = 65534
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	return <-done
}
