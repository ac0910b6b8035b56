package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/replay"
)

// envReplay is the URL where a replay answers calls of tools. Who does not know it cannot ask.
const envReplay = "AGENTTRACE_REPLAY"

const discard = "http://127.0.0.1:9"

// play runs an agent as run does, with the model's answers of a session. Where the agent has none of them left, and at
// any other address, there is no network: by TCP it can connect to this process and to the run's only, where the kernel
// has that.
func (p *replayer) play(name string, command []string) error {
	var doc *document.Document
	err := withSession(p.cmd, name, func(ctx context.Context, r document.Reader, id string) (err error) {
		doc, err = r.LoadAll(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if p.From != 0 && doc.Turn(p.From) == nil {
		return doc.NoTurn(p.From)
	}
	player := replay.NewPlayer(doc)
	player.From = p.From
	tools := strings.FieldsFunc(strings.Join(p.Tools, ","), func(r rune) bool { return r == ',' })
	if err := player.Tools(tools...); err != nil {
		return usagef("--tools: %w", err)
	}
	for _, what := range player.Missing() {
		_ = note(p.cmd, "missing: %s\n", document.Sanitize(what))
	}
	if len(tools) == 0 {
		_ = note(p.cmd, "missing: the outputs of tools are not replayed: the agent runs its tools itself\n")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	path := "/tools/" + rand.Text()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			player.ServeTool(w, r)
		} else {
			player.ServeHTTP(w, r)
		}
	})}
	env := agentEnvironment{address: listener.Addr().String(), own: environment(os.Environ()), added: map[string]string{},
		servers: map[string]string{}}
	env.redirect()
	if len(tools) > 0 {
		env.added[envReplay] = "http://" + env.address + path
		if player.Shells, err = os.MkdirTemp("", "agenttrace-replay-"); err != nil {
			return err
		}
		defer os.RemoveAll(player.Shells)
		if err := env.shells(player.Shells); err != nil {
			return err
		}
	}
	o := runOptions{NoContent: true}
	if p.From != 0 {
		player.Live = recorder.Proxy(upstreams(env.servers), recorder.NewTransport())
	} else {
		o.connects = p.closeNetwork(&env, listener.Addr().(*net.TCPAddr).Port)
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	o.environ = env.merged()
	ended := o.run(p.cmd, command)
	same := p.reportPartings(player)
	for _, id := range o.recorded {
		_ = note(p.cmd, "agenttrace: agenttrace diff %s %s\n", document.Sanitize(doc.Session.ID), document.Sanitize(id))
	}
	if code, ran := errors.AsType[exited](ended); ran && code.code == 0 && !same {
		return errFinding
	}
	return ended
}

// closeNetwork has what goes elsewhere find nobody at the discard port, and returns the ports that the kernel shall let
// the agent connect to, beside that of the run; nil are all.
func (p *replayer) closeNetwork(env *agentEnvironment, port int) []int {
	for name, value := range map[string]string{"HTTP_PROXY": discard, "HTTPS_PROXY": discard, "ALL_PROXY": discard,
		"NO_PROXY": "127.0.0.1,localhost,::1"} {
		env.added[name], env.added[strings.ToLower(name)] = value, value
	}
	if p.Local {
		_ = note(p.cmd, "missing: with --local, programs that heed no proxy variables have the network\n")
		return nil
	} else if err := canEnclose(); err != nil {
		_ = note(p.cmd, "missing: the kernel cannot close the network: %v; programs that heed no proxy variables have it\n",
			err)
		return nil
	}
	return []int{port}
}

// reportPartings prints what the agent did otherwise than in the session, and reports whether that is nothing.
func (p *replayer) reportPartings(player *replay.Player) (same bool) {
	partings, left := player.Partings()
	for _, d := range partings {
		_ = note(p.cmd, "agenttrace: %s\n", document.Line(d.String()))
	}
	if left > 0 {
		_ = note(p.cmd, "agenttrace: the agent ended before %s of the session\n", counted(left, "answer"))
	}
	if same = len(partings) == 0 && left == 0; same {
		_ = note(p.cmd, "agenttrace: the agent did the same as in the session\n")
	}
	return same
}

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
	if own := e.own["BASH_ENV"]; own != "" {
		text = ". " + quote(own) + text
	}
	e.added["BASH_ENV"] = filepath.Join(dir, "bash_env")
	all := os.WriteFile(e.added["BASH_ENV"], []byte(text), 0o600)
	for _, name := range []string{"sh", "dash", "zsh"} {
		if path, err := exec.LookPath(name); err == nil {
			text := fmt.Sprintf("#!/bin/sh\nexec %s run shell %s \"$@\"\n", self, quote(path))
			all = errors.Join(all, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
			if filepath.Base(e.own["SHELL"]) == name {
				e.added["SHELL"] = filepath.Join(dir, name)
			}
		}
	}
	e.added["PATH"] = dir + string(os.PathListSeparator) + e.own["PATH"]
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
