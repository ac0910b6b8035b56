package testscale

import (
	"os"
	"syscall"
)

// Tests make thousands of small databases, and half of what they take is waiting until a disk has them. They are made in
// memory where a few GiB of it are for files, programs among them, which containers seldom have, unless TMPDIR says where.
func init() {
	const memory, enough, noExec = "/dev/shm", 4 << 30, 0x8
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") == "" && syscall.Statfs(memory, &fs) == nil && fs.Flags&noExec == 0 &&
		fs.Bavail*uint64(fs.Bsize) > enough {
		os.Setenv("TMPDIR", memory)
	}
}
