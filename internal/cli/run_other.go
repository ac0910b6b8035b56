//go:build !unix

package cli

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// What follows is of systems on which no agent is run, because its recorder cannot have the same listener: see
// [recorderProcess.start]. Programs with pipes are.

func ownSession() *syscall.SysProcAttr { return nil }

func unblock(*os.File) {}

func runAgent(string, []string, []string, func(int)) (int, error) { return 0, errors.ErrUnsupported }

func isAlive(int) bool { return false }

func endAgent(int, string, time.Duration) {}

func takeSignals() (relay func(*os.Process), stop func()) { return func(*os.Process) {}, func() {} }

func dieOf(s syscall.Signal) int { return 128 + int(s) }

func dieLikeAgent() {}

// replayAddress is the URL where a replay answers calls of tools, "" where this process is in none.
func replayAddress() string { return os.Getenv(envReplay) }
