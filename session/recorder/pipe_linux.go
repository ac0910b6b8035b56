package recorder

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieTogether has the system kill a program that is to be started when this process is killed.
func dieTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// enlarge has a pipe hold as much as the system gives everyone: some requests of an agent that works, where 64 KiB are
// less than one.
func enlarge(pipe *os.File) {
	if c, err := pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}
