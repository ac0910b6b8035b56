//go:build unix

package cli

import "golang.org/x/sys/unix"

// inheritedDescriptor reports whether the process was started with the descriptor open: what
// the process opens itself is closed when it starts another.
func inheritedDescriptor(n int) bool {
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
