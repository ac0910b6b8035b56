//go:build !unix

package cli

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func unblock(*os.File) {}

// ownSession is nothing that these systems have.
func ownSession() *syscall.SysProcAttr { return nil }

// runAgent runs a program with the files of this process, and returns its exit code.
func runAgent(path string, args, env []string, began func(pid int)) (code int, err error) {
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if began != nil {
		began(cmd.Process.Pid)
	}
	err = cmd.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode(), nil
	}
	return 0, err
}

func takeSignals() (relay func(*os.Process), stop func()) { return func(*os.Process) {}, func() {} }

func dieOf(s syscall.Signal) int { return 128 + int(s) }

// dieLikeAgent is for systems with signals.
func dieLikeAgent() {}

func isAlive(pid int) bool {
	_, err := os.FindProcess(pid)
	return err == nil
}

// endAgent ends an agent at once: these systems have no signal that asks for it.
func endAgent(pid int, _ string, _ time.Duration) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// replayAddress is the URL where a replay answers calls of tools, "" where this process is in none.
func replayAddress() string { return os.Getenv(envReplay) }
