package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// inodeLock is a lock of flock(2) on the database itself. On Linux it has nothing to do with
// the locks of fcntl(2), which SQLite takes on the same file.
type inodeLock struct{ f *os.File }

// lock locks the file, which it owns when it returns neither a holder nor an error. holder
// names who has it. A file system without such locks has none, and is locked by name alone; so
// is a network's, which makes of them the locks that SQLite takes.
func (l *inodeLock) lock(f *os.File) (holder string, err error) {
	const nfs, smb, cifs, smb2 = 0x6969, 0x517b, 0xff534d42, 0xfe534d42
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &system); err == nil {
		switch uint32(system.Type) {
		case nfs, smb, cifs, smb2:
			l.f = f
			return "", nil
		}
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return unknownHolder + ", it uses another name of the file", nil
		}
		l.f = f // also where the file system has no such locks
		return "", nil
	}
}

func (l *inodeLock) unlock() error {
	if l.f == nil {
		return nil
	}
	err := syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN)
	files.close(l.f)
	l.f = nil
	return err
}
