package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/render"
	"github.com/agenttrace/agenttrace/session/replay"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// replayer is one run of replay.
type replayer struct {
	output
	Run, Session, Local, JSON, Full         bool
	Format, Endpoint, Model, Effort, KeyEnv string
	Header, Tools                           []string
	Turn, From, MaxCalls                    int
	Timeout                                 time.Duration

	cmd    *cobra.Command
	bundle *replay.Bundle // what the model was given
}

func newReplay() *cobra.Command {
	var p replayer
	return described("replay", &p, func(cmd *cobra.Command, args []string) error {
		if p.Session && len(args) > 1 {
			return nil
		} else if p.Session {
			return usagef("--session runs the agent again; name its command after a --, as in replay %s --session -- claude",
				"last")
		}
		return exactly(1, "a session")(cmd, args)
	}, func(cmd *cobra.Command, args []string) error {
		p.cmd = cmd
		if p.Session {
			return p.play(args[0], args[1:])
		}
		if err := p.check(); err != nil {
			return err
		}
		if p.Run {
			return p.ask(args[0])
		}
		return withSession(cmd, args[0], func(ctx context.Context, r document.Reader, id string) error {
			in, err := document.Collect(ctx, r, id)
			if err != nil {
				return err
			}
			if doc := document.Build(in); p.Format == "" && p.Output == "" {
				return p.report(doc)
			} else if p.bundle, err = replay.ForTurn(doc, in.Transcript, p.Turn, p.Model, p.Effort); err != nil {
				return err
			}
			p.source = r.Name()
			return p.write()
		})
	})
}

func replayFormats() string {
	var b strings.Builder
	for _, f := range replay.Formats() {
		fmt.Fprintf(&b, "  %-16s  %s\n", f.Name, f.Title)
	}
	fmt.Fprintf(&b, "  %-16s  %s\n", replay.BundleName, "the request in a provider-neutral form, with what is missing")
	return b.String()
}

// check finds what on the command line contradicts itself.
func (p *replayer) check() error {
	switch writes := p.Format != "" || p.Output != ""; {
	case p.Format != "" && p.Format != replay.BundleName && replay.FormatOf(p.Format) == nil:
		return usagef("unknown format %q: use %s", p.Format, either(replay.Names()))
	case p.Run && p.Format == replay.BundleName:
		return usagef("a bundle is not a request; use --format %s with --run",
			either(replay.Names()[:len(replay.Names())-1]))
	case p.Run && p.Timeout <= 0:
		return usagef("--timeout %s is not a time to wait; give more than 0", p.Timeout)
	case p.Run:
	case !writes && (p.Model != "" || p.Effort != ""):
		return usagef("--model and --effort are for requests; add --format or --run")
	case p.Output != "" && p.Format == "" && !p.toDirectory():
		return usagef("--output %s needs --format; name a directory, ending in a slash, for all formats", p.Output)
	case p.Format != "" && p.toDirectory():
		return usagef("--output %s is a directory, which gets all formats; leave out --format, or name a file",
			p.Output)
	}
	return nil
}

func (p *replayer) toDirectory() bool {
	if p.Output == "" {
		return false
	}
	info, err := os.Stat(p.Output)
	return err == nil && info.IsDir() || os.IsPathSeparator(p.Output[len(p.Output)-1])
}

// report prints which turns can be rerun, or whether the one that is named can.
func (p *replayer) report(doc *document.Document) (err error) {
	verdict := doc.Eligibility()
	if p.Turn > 0 {
		one := doc.TurnEligibility(p.Turn)
		if one == nil {
			return doc.NoTurn(p.Turn)
		}
		verdict = &document.Eligibility{SessionID: doc.Session.ID, Eligible: one.Eligible,
			Turns: []*document.TurnEligibility{one}}
	}
	if p.JSON {
		err = writeJSON(p.cmd, verdict)
	} else {
		o := terminal(p.cmd)
		o.Full = p.Full || p.Turn > 0
		err = render.Eligibility(p.cmd.OutOrStdout(), verdict, o)
	}
	if err == nil && !verdict.Eligible {
		err = errFinding
	}
	return err
}

// write writes the request of a turn, or all forms of it.
func (p *replayer) write() error {
	p.warn()
	if !p.toDirectory() {
		return p.output.write(p.cmd, p.Output, true, func(w io.Writer) error { return p.bundle.Encode(w, p.Format) })
	}
	if err := makeDirectory(p.Output); err != nil {
		return err
	}
	for _, name := range replay.Names() {
		path := filepath.Join(p.Output, name+".json")
		encode := func(w io.Writer) error { return p.bundle.Encode(w, name) }
		if err := p.file(path, true, encode); err != nil {
			return err
		}
		fmt.Fprintln(p.cmd.OutOrStdout(), document.Sanitize(path))
	}
	return nil
}

// warn says on standard error what the requests do not hold.
func (p *replayer) warn() {
	for _, m := range p.bundle.Missing {
		_ = note(p.cmd, "missing: %s: %s\n", strings.ReplaceAll(m.What, "_", " "), document.Sanitize(m.Why))
	}
	for _, n := range p.bundle.Notes {
		_ = note(p.cmd, "note: %s\n", n)
	}
}

func (p *replayer) client() (*replay.Client, error) {
	c := &replay.Client{Format: replay.Formats()[0], Endpoint: p.Endpoint, MaxCalls: p.MaxCalls, Header: http.Header{}}
	if p.Format != "" {
		c.Format = replay.FormatOf(p.Format)
	}
	if _, err := c.URL(); err != nil {
		return nil, usagef("%w", err)
	}
	if env := cmp.Or(p.KeyEnv, c.Format.KeyEnv); env != "" {
		c.Key = os.Getenv(env)
	}
	if c.Key == "" && p.KeyEnv != "" {
		return nil, usagef("%s is empty, or not in the environment; "+
			"set it to the key of the API, or leave out --key-env",
			p.KeyEnv)
	}
	for _, h := range p.Header {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usagef("--header %q is not a header; write it as %q", h, "name: value")
		}
		c.Header.Add(name, strings.TrimSpace(value))
	}
	var err error
	c.Redactor, err = redact.New(redact.Config{MaxBytes: ingest.DefaultMaxBytes})
	return c, err
}

func (p *replayer) ask(name string) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	// The store is taken first, so that no answer is paid for that cannot be kept.
	err = withIdle(p.cmd, name, func(ctx context.Context, s store.Service, of *web.Conversation) error {
		b, err := replay.ForTurn(of.Timeline, of.Transcript, p.Turn, p.Model, p.Effort)
		if err != nil {
			return err
		}
		if p.bundle = b; b.MessageID == "" {
			return usagef("turn %d of session %s has no user message to ask again; choose another with --turn", b.Turn,
				of.ID)
		}
		if !b.Eligible && !p.Force {
			p.warn()
			return usagef("turn %d of session %s is not replay-eligible; add --force to ask with what there is", b.Turn,
				of.ID)
		}
		if p.Model != "" {
			b.Model.ProviderID = c.Provider()
		}
		asking, cancel := context.WithTimeout(ctx, p.Timeout)
		defer cancel()
		a, err := b.Run(asking, c)
		if err != nil {
			return p.refused(err, c)
		}
		ctx = context.WithoutCancel(ctx) // what has come is kept, also when nobody waits for more
		fork, err := keepAnswer(ctx, s, of, c, b, a)
		if err == nil {
			err = p.printReport(a, fork)
		}
		if err == nil {
			err = a.Err
		}
		return err
	})
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("%w; stop it, or replay in a copy: agenttrace store backup copy.db", err)
	}
	return err
}

// keepAnswer stores an answer in a fork of the session, and returns its id.
func keepAnswer(ctx context.Context, s store.Service, of *web.Conversation, c *replay.Client, b *replay.Bundle,
	a *replay.Answer) (fork string, err error) {
	title := replayTitle(of.Transcript.Session.Title, b)
	fork, err = s.Fork(ctx, store.ForkOptions{From: of.ID, Message: b.MessageID, Title: title, Now: time.Now()})
	if errors.Is(err, store.ErrHidden) {
		return "", usagef("%w; rewind --undo brings it back", err)
	}
	if err != nil {
		return "", err
	}
	changes, err := a.Changes(b, c, fork)
	if err != nil {
		return "", err
	}
	// The fork is the newest session, also where the clock of what recorded another is
	// ahead of this one: "last" is what was made last.
	for newest, err := range s.Sessions(ctx, store.SessionQuery{Limit: 1, Children: true}) {
		if err != nil {
			return "", err
		}
		c := &changes.Sessions[0]
		c.End = max(c.End, newest.UpdatedAt+1)
	}
	_, err = s.Apply(ctx, changes)
	return fork, err
}

func (p *replayer) refused(err error, c *replay.Client) error {
	status, isStatus := errors.AsType[*replay.StatusError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w; --timeout waits longer than %s", err, p.Timeout)
	case !isStatus || status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden:
		return err
	}
	return fmt.Errorf("%w; put a key that the server accepts into the environment variable %s, or name another "+
		"with --key-env", err, cmp.Or(p.KeyEnv, c.Format.KeyEnv, "of its own"))
}

func replayTitle(of string, b *replay.Bundle) string {
	what := fmt.Sprintf("replay of turn %d", b.Turn)
	if b.Model.ModelID != "" {
		what += " with " + b.Model.ModelID
	}
	if of == "" || of == session.Untitled {
		return strings.ToUpper(what[:1]) + what[1:]
	}
	return of + " (" + what + ")"
}

// report is what is printed of a run, as JSON.
type report struct {
	SessionID  string         `json:"session_id"`
	Turn       int            `json:"turn"`
	ForkID     string         `json:"fork_id"`
	Model      string         `json:"model"`
	ModelCalls int            `json:"model_calls"`
	StopReason string         `json:"stop_reason"`
	Reused     int            `json:"recorded_outputs"`
	Open       []string       `json:"open_calls,omitempty"`
	Limited    bool           `json:"limited,omitempty"`
	DurationMS int64          `json:"duration_ms"`
	Usage      *session.Usage `json:"usage,omitempty"`
	Error      string         `json:"error,omitempty"`
	// Took, Tokens and Flags are for a person.
	Took   time.Duration `json:"-"`
	Tokens int64         `json:"-"`
	Flags  string        `json:"-"`
}

func (p *replayer) printReport(a *replay.Answer, fork string) error {
	b := p.bundle
	t := report{
		SessionID: b.SessionID, Turn: b.Turn, ForkID: fork, Model: a.Model.ModelID, ModelCalls: a.ModelCalls,
		StopReason: a.StopReason, Reused: a.Reused, Open: a.Open, Limited: a.Limited, Usage: a.Usage,
		DurationMS: a.Duration().Milliseconds(), Took: a.Duration().Round(time.Millisecond), Flags: shownFlags(p.cmd),
	}
	if a.Usage != nil {
		t.Tokens = a.Usage.Total()
	}
	if a.Err != nil {
		t.Error = a.Err.Error()
	}
	if p.JSON {
		return writeJSON(p.cmd, t)
	}
	_, err := io.WriteString(p.cmd.OutOrStdout(), phrases.Text("rerun", &t))
	return err
}

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
