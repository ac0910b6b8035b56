package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// lockInode locks the database itself by flock(2), which on Linux has nothing to do with the locks of fcntl(2) that
// SQLite takes on the same file, and reports whether nobody else has. A file system without such locks is locked by
// name alone; so is a network's, which makes of them the locks that SQLite takes.
func lockInode(f *os.File) bool {
	const nfs, smb, cifs, smb2 = 0x6969, 0x517b, 0xff534d42, 0xfe534d42
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &system); err == nil {
		switch uint32(system.Type) {
		case nfs, smb, cifs, smb2:
			return true
		}
	}
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	return !errors.Is(err, syscall.EWOULDBLOCK)
}

func unlockInode(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
