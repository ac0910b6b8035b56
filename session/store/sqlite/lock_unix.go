//go:build unix && !linux

package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// inodeLock is a lock on a file of the user's that is named after the device and the inode of the database. The
// database itself cannot be locked: here the locks of flock(2) and those of fcntl(2), which SQLite takes, are one.
type inodeLock struct {
	f    *os.File
	held *flock.Flock
}

// lock locks the file, which it owns when it returns neither a holder nor an error. holder names who has it.
func (l *inodeLock) lock(f *os.File) (holderName string, err error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &stat); err != nil {
		return "", err
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("agenttrace-locks-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, fmt.Sprintf("%d-%d%s", stat.Dev, stat.Ino, lockSuffix))
	held := flock.New(name, flock.SetPermissions(0o600))
	got, err := held.TryLock()
	if err != nil {
		return "", err
	}
	if !got {
		return holder(name), nil
	}
	_ = os.WriteFile(name, fmt.Appendf(nil, "process %d (%s), by another name of the file\n", os.Getpid(),
		filepath.Base(os.Args[0])), 0o600)
	l.f, l.held = f, held
	return "", nil
}

func (l *inodeLock) unlock() error {
	if l.f == nil {
		return nil
	}
	err := l.held.Unlock() // the file stays: removing it would let two lock two files of its name
	files.close(l.f)
	l.f = nil
	return err
}
