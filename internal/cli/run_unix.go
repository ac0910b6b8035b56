//go:build unix

package cli

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownSession keeps a process from the signals of the terminal.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// unblock has accepting connections not block a thread, as [os.File.Fd] does, which starting a process calls: also that
// of the listener of which the file is a copy.
func unblock(listener *os.File) {
	if conn, err := listener.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), true) })
	}
}

// relayed are the signals that are passed on to the agent: all that can be caught, except for those of this process's
// own affairs and SIGTSTP, which stops both.
var relayed = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH}

// fromTerminal are those of them that a terminal sends.
var fromTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT}

// runAgent runs a program with what this process was given: its files, terminal and process group. It returns the exit
// code, or ends this process by the signal that ended the agent.
//
// In one process group, a terminal sends its signals to both. So what a terminal sends is not passed on; what another
// process sends to this one alone is. If the agent stops itself, this process stops too, so that the shell
// notices.
func runAgent(path string, args, env []string, began func(pid int)) (code int, err error) {
	relay, stop := takeSignals()
	defer stop()
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}
	process, err := os.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script that names no interpreter is the shell's, as for execvp
		process, err = os.StartProcess("/bin/sh", slices.Concat([]string{"/bin/sh", path}, args[1:]), attr)
	}
	if err != nil {
		return 0, err
	}
	if began != nil {
		began(process.Pid)
	}
	relay(process)
	for options := syscall.WUNTRACED; ; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(process.Pid, &status, options, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case pid == 0: // it is stopped still
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
			options = syscall.WUNTRACED
		case status.Stopped():
			// A terminal stops both, and by now both may go on again. Until it has stopped this process, too, the agent
			// would be found stopped still.
			time.Sleep(50 * time.Millisecond)
			options = syscall.WUNTRACED | syscall.WCONTINUED | syscall.WNOHANG
		case status.Continued():
			options = syscall.WUNTRACED
		case status.Signaled():
			return dieOf(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}

// isInterruptIgnored reports whether this process was started to ignore Ctrl-C, before it takes any signal.
var isInterruptIgnored = signal.Ignored(syscall.SIGINT)

// takeSignals takes the signals that are passed on until stop. relay passes them on to a process.
func takeSignals() (relay func(*os.Process), stop func()) {
	if isInterruptIgnored {
		signal.Ignore(syscall.SIGINT)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a program inherits that a signal is ignored
	received := make(chan os.Signal, 16)
	signal.Notify(received, slices.DeleteFunc(slices.Clone(relayed), signal.Ignored)...)
	relay = func(to *os.Process) {
		go func() {
			for s := range received {
				if !(slices.Contains(fromTerminal, s) && inForeground()) {
					_ = to.Signal(s)
				}
			}
		}()
	}
	return relay, func() {
		signal.Stop(received)
		close(received)
	}
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

// dieLikeAgent ends this process by the signal that ended the agent, if one did. Of some signals the exit code is all
// that is left: the runtime prints the stacks of all goroutines at those of faults and does nothing at SIGPIPE and
// most others, what this process was started to ignore does not end it, and nothing ends the first process of a
// container.
func dieLikeAgent() {
	ends := []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
	if !slices.Contains(ends, diesOf) || signal.Ignored(diesOf) || os.Getpid() == 1 {
		return
	}
	signal.Reset(diesOf)
	_ = syscall.Kill(syscall.Getpid(), diesOf)
	select {} // until it arrives
}

// isAlive reports whether a process runs.
func isAlive(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) == nil }

// endAgent has an agent and the processes that it has started end, by SIGTERM. It kills those that are left after the
// grace period, and what they start meanwhile.
func endAgent(pid int, run string, grace time.Duration) {
	left := map[int]string{pid: processes()[pid].began}
	send := func(s syscall.Signal) {
		for _, p := range slices.Sorted(maps.Keys(left)) { // the older first: when theirs ends, they may start another
			_ = syscall.Kill(p, s)
		}
	}
	findProcesses(left, run)
	send(syscall.SIGTERM)
	send(syscall.SIGCONT) // one that is stopped takes it then
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	limit := time.After(grace)
	for kills := 0; len(left) > 0 && kills < 20; findProcesses(left, run) { // the system may not be able to end one
		select {
		case <-look.C:
			if kills == 0 {
				continue
			}
		case <-limit:
		}
		send(syscall.SIGKILL)
		kills++
	}
}

// process is one that runs: its parent, and when it began, by which it differs from one that had its id before.
type process struct {
	parent int
	began  string
}

// processes are those that run, zombies aside, as /proc has them, or else ps.
func processes() map[int]process {
	all := make(map[int]process)
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may have ended
		_, rest, _ := strings.Cut(string(text[max(bytes.LastIndexByte(text, ')'), 0):]), " ")
		if f := strings.Fields(rest); len(f) > 19 && f[0] != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			parent, _ := strconv.Atoi(f[1])
			all[pid] = process{parent, f[19]}
		}
	}
	if len(files) > 0 {
		return all
	}
	text, _ := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=", "-o", "lstart=").Output()
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && !strings.HasPrefix(f[2], "Z") {
			pid, _ := strconv.Atoi(f[0])
			parent, _ := strconv.Atoi(f[1])
			all[pid] = process{parent, strings.Join(f[3:], " ")}
		}
	}
	return all
}

// replayAddress is the URL where a replay answers calls of tools, "" where this process is in none. Some clients start
// programs without their own environment: then a parent's has it, where the system shows that.
func replayAddress() string {
	if address := os.Getenv(envReplay); address != "" {
		return address
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return "" // what asks ps for the parents is of no use then
	}
	all := processes()
	for pid := os.Getppid(); pid > 1; pid = all[pid].parent {
		if address := variableOf(pid, envReplay); address != "" {
			return address
		}
	}
	return ""
}

// findProcesses takes out of some processes, by when they began, those that have ended. It adds those that have the run
// in their environment, where the system shows it, and what all of them have started: a starter may have ended.
func findProcesses(some map[int]string, run string) {
	all := processes()
	maps.DeleteFunc(some, func(p int, began string) bool { return all[p].began != began || began == "" })
	for p, of := range all {
		if _, known := some[p]; !known && variableOf(p, envRun) == run {
			some[p] = of.began
		}
	}
	for found := true; found; {
		found = false
		for p, of := range all {
			_, below := some[of.parent]
			if _, known := some[p]; below && !known {
				some[p], found = of.began, true
			}
		}
	}
}

// variableOf is a variable of the environment with which a process was started, "" where it is not set, and where the
// system does not show it, as another user's.
func variableOf(pid int, name string) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
