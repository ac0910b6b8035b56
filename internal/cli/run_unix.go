//go:build unix

package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownSession keeps a process from the signals of the terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// relayed are the signals that are passed on to the agent: all that can be caught, except for those of this process's
// own affairs and SIGTSTP, which stops both.
var relayed = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH}

// runAgent runs a program with what this process was given: its files, terminal and process group. It returns the exit
// code, or ends this process by the signal that ended the agent.
//
// In one process group, a terminal sends its signals to both. So what a terminal sends is not passed on; what another
// process sends to this one alone is. If the agent stops itself, this process stops too, so that the shell
// notices.
func runAgent(path string, args, env []string, began func(pid int)) (code int, err error) {
	relay, stop := takeSignals()
	defer stop()
	process, err := os.StartProcess(path, args, &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	if began != nil {
		began(process.Pid)
	}
	relay(process)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case status.Stopped():
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		case status.Signaled():
			return dieOf(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}

// takeSignals takes the signals that are passed on until stop. relay passes them on to a process.
func takeSignals() (relay func(*os.Process), stop func()) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a program inherits that a signal is ignored
	received, done := make(chan os.Signal, 16), make(chan struct{})
	signal.Notify(received, slices.DeleteFunc(slices.Clone(relayed), signal.Ignored)...)
	relay = func(to *os.Process) {
		go func() {
			for {
				select {
				case s := <-received:
					if !(fromTerminal(s) && inForeground()) {
						_ = to.Signal(s)
					}
				case <-done:
					return
				}
			}
		}()
	}
	return relay, func() {
		signal.Stop(received)
		close(done)
	}
}

// fromTerminal reports whether a terminal sends the signal.
func fromTerminal(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH || s == syscall.SIGCONT
}

// inForeground reports whether this process is in the foreground of its terminal.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// diesOf is the signal that the command ends by, when it has said what it has to say.
var diesOf syscall.Signal

// dieOf notes the signal that ended the agent, and returns the exit code that a shell makes of it.
func dieOf(s syscall.Signal) int {
	diesOf = s
	return 128 + int(s)
}

// dieLikeAgent ends this process by the signal that ended the agent, if one did. The runtime prints the stacks of all
// goroutines at some signals: of these the exit code is all that is left.
func dieLikeAgent() {
	switch diesOf {
	case 0, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE,
		syscall.SIGSEGV, syscall.SIGSYS:
		return
	}
	signal.Reset(diesOf)
	_ = syscall.Kill(syscall.Getpid(), diesOf)
	select {} // until it arrives
}

// isAlive reports whether a process runs.
func isAlive(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) == nil }
