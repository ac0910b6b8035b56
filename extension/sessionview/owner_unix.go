//go:build unix

package sessionview

import (
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether a file belongs to the user.
func owned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// private reports whether only its user may use a file.
func private(info fs.FileInfo) bool { return owned(info) && info.Mode().Perm()&0o077 == 0 }
