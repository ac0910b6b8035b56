package recorder

import (
	"os/exec"
	"syscall"
)

// dieTogether has the system kill a program that is to be started when this process is killed.
func dieTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
