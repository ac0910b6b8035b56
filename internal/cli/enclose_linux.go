package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// landlockNetwork is the version of Landlock from which on it restricts connections.
const landlockNetwork = 4

// canEnclose returns an error if the kernel cannot close the network for a process.
func canEnclose() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockNetwork {
		return errors.New("it needs the Landlock of Linux 6.7")
	}
	return nil
}

// enclosed is the command that runs another one, which can connect by TCP to the ports only, in its own process.
func enclosed(ports []int, path string, args []string) (string, []string, error) {
	self, err := os.Executable()
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ","), "[]")
	return self, append([]string{"agenttrace", "run", "enclosed", list, path}, args...), err
}

// newEnclosed is the process that becomes the agent.
func newEnclosed() *cobra.Command {
	return &cobra.Command{Use: "enclosed", Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			runtime.LockOSThread() // what is restricted is a thread, and what that executes
			var ports []uint64
			for text := range strings.SplitSeq(args[0], ",") {
				port, err := strconv.ParseUint(text, 10, 16)
				if err != nil {
					return err
				}
				ports = append(ports, port)
			}
			if err := restrict(ports); err != nil {
				return fmt.Errorf("close the network: %w", err)
			}
			err := syscall.Exec(args[1], args[2:], os.Environ())
			_ = note(cmd, "agenttrace: run %s: %v\n", args[2], err)
			return exited{exitNotExecutable}
		}}
}

// restrict has this thread connect by TCP to the ports only, for good.
func restrict(ports []uint64) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	rules := unix.LandlockRulesetAttr{Handled_access_net: unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)),
		unsafe.Offsetof(rules.Scoped), 0) // what follows is of later versions
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	for _, port := range ports {
		const netPort = 2 // LANDLOCK_RULE_NET_PORT
		rule := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, port}
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, netPort, uintptr(unsafe.Pointer(&rule)), 0, 0,
			0); errno != 0 {
			return errno
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
