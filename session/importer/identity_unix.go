//go:build unix

package importer

import (
	"io/fs"
	"syscall"
)

// identity returns the device and the inode of a file.
func identity(info fs.FileInfo) (device, inode int64) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(s.Dev), int64(s.Ino) //nolint:unconvert // their types differ between systems
	}
	return 0, 0
}
