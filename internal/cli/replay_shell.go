package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/replay"
)

// bashFile is what bash reads before it executes the script of -c, wherever it was found: it asks this program for the
// script to execute instead.
const bashFile = `
if [ -n "${BASH_EXECUTION_STRING+x}" ] && AGENTTRACE_SCRIPT=$(%s run shell '' -c "$BASH_EXECUTION_STRING"); then
	eval "$AGENTTRACE_SCRIPT"
	exit
fi
`

// shells has the shells that the agent starts ask the replay: bash by its own means, and others if they are found in a
// directory at the beginning of PATH, or by SHELL.
func (e *agentEnvironment) shells(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	self = quote(self)
	text := fmt.Sprintf(bashFile, self)
	if own := e.value("BASH_ENV"); own != "" {
		text = ". " + quote(own) + text
	}
	e.added["BASH_ENV"] = filepath.Join(dir, "bash_env")
	all := os.WriteFile(e.added["BASH_ENV"], []byte(text), 0o600)
	for _, name := range []string{"sh", "dash", "zsh"} {
		if path, err := exec.LookPath(name); err == nil {
			text := fmt.Sprintf("#!/bin/sh\nexec %s run shell %s \"$@\"\n", self, quote(path))
			all = errors.Join(all, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
			if filepath.Base(e.value("SHELL")) == name {
				e.added["SHELL"] = filepath.Join(dir, name)
			}
		}
	}
	e.added["PATH"] = dir + string(os.PathListSeparator) + e.value("PATH")
	return all
}

// newShell is what a shell of an agent is started by: it becomes the shell at the path that comes first. Bash, which
// goes on itself, has no path there, and gets the script on standard output, or the exit code 1.
func newShell() *cobra.Command {
	return &cobra.Command{Use: "shell", Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, at := args[0], 1+replay.ScriptAt(args[1:])
			script := ""
			if address := replayAddress(); at > 0 && address != "" {
				request, _ := json.Marshal(map[string]string{"script": args[at]}) // texts always encode
				answer, err := recorder.AskReplay(address, request)
				if script = string(answer); err != nil { // a tool that is not to be executed is not, for that
					script = "echo " + quote("agenttrace replay: "+strings.TrimSpace(err.Error())) + " >&2; exit 126"
				}
			}
			if path == "" && script == "" {
				return exited{1}
			} else if path == "" {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), script)
				return err
			}
			if args[0] = filepath.Base(path); script != "" {
				args[at] = script
			}
			err := syscall.Exec(path, args, os.Environ())
			return fmt.Errorf("run %s: %w", path, err)
		}}
}
