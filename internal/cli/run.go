package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/agenttrace/agenttrace/extension/hostcheckextension"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/web"
)

// runOptions are the flags of run.
type runOptions struct {
	pipeOptions
	Content, NoContent, Env, NoProxy, Quiet bool
	Experiment, Case                        string // its name, and that of the case
	Watch                                   string // a file of rules

	environ  []string // what the agent's environment is made of; nil is this process's
	connects []int    // the ports that the agent can connect to besides that of the run; nil are all
	recorded []string // the ids of the sessions, when the run has ended
}

// A run has two processes besides the agent. This one starts the agent, with what it has been started with, waits for
// it, and passes its requests to models on. The other one, the recorder, gets a copy of what passes, takes telemetry,
// and stores both: what that takes of processor and memory is not this one's, where a request would wait for it. The
// recorder is of a session of its own, so that what a terminal sends reaches the agent alone. Both have the listeners:
// if one of them dies, the other serves in its place.
func newRun() *cobra.Command {
	var o runOptions
	cmd := described("run", &o, cobra.ArbitraryArgs,
		func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !o.Env {
				return usagef("run what? name the agent's command, as in %s run -- claude -p hello", ownName())
			}
			if o.Watch != "" && os.Getenv(envRun) != "" {
				return usagef("--watch is of the outermost run; leave it out in a run, and use agenttrace watch")
			}
			if o.pipeOptions != (pipeOptions{}) {
				return o.runPiped(cmd, args)
			}
			return o.run(cmd, args)
		})
	cmd.Flags().SetInterspersed(false) // flags after the command are the agent's
	cmd.AddCommand(newRecord(), newEnclosed(), newShell())
	return cmd
}

// exited is how the agent ended: the command ends likewise, without a word.
type exited struct{ code int }

func (e exited) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// Exit codes of shells for a command that cannot be started.
const (
	exitNotExecutable   = 126
	exitCommandNotFound = 127
)

// exitStopped is the exit code of a run whose agent broke a rule that stops it.
const exitStopped = 6

// runRecord is what a recorder needs to know of the run.
type runRecord struct {
	// ID is that of the run, Directory where its files are.
	ID        string `json:"id"`
	Directory string `json:"directory"`
	// Agent names the agent, Client is the name of the client that it is, "" for one that is not known.
	Agent  string `json:"agent"`
	Client string `json:"client,omitempty"`
	// Servers are the base URLs of the servers of models, by the names under which the recorder serves them.
	Servers map[string]string `json:"servers"`
	// Working is the agent's working directory, "" where that is removed, Began when it was started, in Unix milliseconds.
	Working string `json:"working"`
	Began   int64  `json:"began"`
	// Watch is a file of rules, "" for none.
	Watch string `json:"watch,omitempty"`
}

// ran is what a recorder answers at the end. Before that it may answer with Stop alone: why the agent is to be stopped.
type ran struct {
	Sessions []string `json:"sessions"`
	Problems []string `json:"problems"`
	Found    []string `json:"found,omitempty"` // by rules
	Stop     string   `json:"stop,omitempty"`
}

func (o *runOptions) run(cmd *cobra.Command, args []string) error {
	cmd.SetContext(context.WithoutCancel(cmd.Context())) // a signal is the agent's
	if os.Getenv(envRun) != "" && !o.Env {               // the run around it records what this one does
		return o.start(cmd, args, os.Environ(), nil)
	}
	r := &recorderProcess{answered: make(chan struct{}), stop: make(chan struct{})}
	for _, listener := range []*net.Listener{&r.listener, &r.telemetry} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen on a port of this machine: %w", err)
		}
		defer l.Close()
		if *listener = l; o.connects != nil {
			o.connects = append(o.connects, l.Addr().(*net.TCPAddr).Port)
		}
	}
	var err error
	record := runRecord{ID: newRunID(), Began: time.Now().UnixMilli()}
	record.Working, _ = os.Getwd()
	r.flags = storeFlags(cmd)
	if f := cmd.Flags().Lookup("prices"); f != nil && f.Changed {
		r.flags = append(r.flags, "--prices="+f.Value.String())
	}
	var rules *gate.Rules
	if o.Watch != "" {
		if rules, err = gate.ReadRules(o.Watch); err != nil {
			return usageError{err}
		}
		if record.Watch, err = filepath.Abs(o.Watch); err != nil {
			return err
		}
	}
	program := programOf(args)
	var client *client
	if len(args) > 0 {
		record.Agent = strings.TrimSuffix(filepath.Base(args[program]), filepath.Ext(args[program]))
		if client = clientOf(args[program]); client != nil {
			record.Client, record.Agent = client.Name, client.Name
		}
	}
	content := o.Content || !o.NoContent && o.mayHaveContent(cmd, client)
	env := agentEnvironment{address: r.listener.Addr().String(), telemetry: r.telemetry.Addr().String(), run: record.ID,
		content: content, proxied: !o.NoProxy, client: client, own: environment(o.environ)}
	if o.environ == nil {
		env.own = environment(os.Environ())
	}
	env.fill()
	record.Servers = env.servers
	if o.Env {
		return env.print(cmd.OutOrStdout(), args)
	}
	if record.Directory, err = runDirectory(record.ID); err != nil {
		return err
	}
	args = slices.Insert(slices.Clone(args), program+1, env.arguments...)
	if err := r.start(&record); err != nil {
		return err
	}
	err = o.supervise(cmd, r, rules, args, env.all)
	problem := r.end()
	o.recorded = r.ran.Sessions
	if o.Experiment != "" && len(r.ran.Sessions) > 0 {
		problem = errors.Join(problem, o.enroll(cmd, r.ran.Sessions))
	}
	select {
	case <-r.stop:
		_ = note(cmd, "agenttrace: the agent is stopped: %s\n", document.Line(r.stopReason))
		_, err = dieOf(0), exited{exitStopped}
	default:
	}
	if !o.Quiet && r.hasBegun {
		o.report(cmd, &r.ran, problem)
	}
	return err
}

// supervise runs the agent, which is stopped where the recorder says so, for a rule.
func (o *runOptions) supervise(cmd *cobra.Command, r *recorderProcess, rules *gate.Rules, args, env []string) error {
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	err := o.start(cmd, args, env, func(pid int) {
		r.began(pid)
		if rules == nil {
			return
		}
		stopping.Go(func() {
			select {
			case <-ended:
			case <-r.stop:
				endAgent(pid, r.run, rules.Stop.Grace)
			}
		})
	})
	close(ended)
	stopping.Wait()
	return err
}

// report prints what the run was, and what was wrong with its recording.
func (o *runOptions) report(cmd *cobra.Command, of *ran, problem error) {
	for _, text := range of.Found {
		_ = note(cmd, "agenttrace: %s\n", document.Line(text))
	}
	if len(of.Sessions) > 0 {
		problem = errors.Join(problem, o.summarize(cmd, of.Sessions))
	} else if problem == nil && len(of.Problems) == 0 {
		_ = note(cmd, "\nagenttrace: nothing of the agent was recorded; %s run --env shows what it gets\n", ownName())
	}
	for _, text := range of.Problems {
		_ = note(cmd, "agenttrace: %s\n", text)
	}
	if problem != nil {
		_ = note(cmd, "agenttrace: %v\n", problem)
	}
}

// start runs the agent and returns when it has ended: an [exited] with its exit code. began is called with its process.
func (o *runOptions) start(cmd *cobra.Command, args, env []string, began func(pid int)) error {
	path, err := exec.LookPath(args[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	} else if err != nil {
		return notRun(cmd, args[0], err)
	}
	name, code := args[0], 0
	if o.connects != nil {
		path, args, err = enclosed(o.connects, path, args)
	}
	if err == nil {
		code, err = runAgent(path, args, env, began)
	}
	if err != nil {
		return notRun(cmd, name, err)
	}
	return exited{code}
}

// notRun reports that a command cannot be started, with the exit code that shells have for that.
func notRun(cmd *cobra.Command, name string, err error) error {
	_ = note(cmd, "agenttrace: %s\n", document.Line(fmt.Sprintf("run %s: %v", name, err)))
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exited{exitCommandNotFound}
	}
	return exited{exitNotExecutable}
}

// recorderProcess is the process that records, as the one that started it has it, which passes requests on.
type recorderProcess struct {
	cmd                 *exec.Cmd
	flags               []string // those of the command line that are for it, too
	run                 string   // its id
	hasBegun            bool     // the agent was started
	listener, telemetry net.Listener
	servers             servers
	tee                 *recorder.Tee
	to                  io.WriteCloser
	answered            chan struct{} // closed when it has answered, or died
	stop                chan struct{} // closed when the agent is to be stopped, for stopReason
	ran                 ran
	whole               bool

	stopReason string
	log        string // a file with what it said before it died
}

// start starts the process that records the run, and returns without waiting for it.
func (r *recorderProcess) start(record *runRecord) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the recorder: %w", err)
	}
	r.run = record.ID
	copies, to, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the recorder: %w", err)
	}
	defer copies.Close()
	r.cmd = exec.Command(self, append([]string{"run", "record"}, r.flags...)...)
	for _, l := range []net.Listener{r.telemetry, r.listener} {
		file, err := l.(*net.TCPListener).File()
		if err != nil { // as on Windows
			return fmt.Errorf("start the recorder: %w; use %s proxy and %[2]s import --watch instead", err, ownName())
		}
		defer file.Close()
		r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, file)
	}
	r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, copies)
	r.cmd.SysProcAttr = ownSession()
	log, err := os.OpenFile(filepath.Join(record.Directory, "recorder.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil { // else nobody reads what it has to say
		defer log.Close()
		r.cmd.Stderr, r.log = log, log.Name()
	}
	if r.to, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	from, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start the recorder: %w", err)
	}
	for _, file := range r.cmd.ExtraFiles[:2] {
		unblock(file)
	}
	passFirst()
	r.tee = recorder.NewTee(recorder.NewTransport(), to)
	r.servers.pass(r.listener, record.Servers, r.tee)
	if err := json.NewEncoder(r.to).Encode(record); err != nil {
		r.ran.Problems = append(r.ran.Problems, err.Error())
	}
	go r.watch(from)
	return nil
}

// collectGarbageLess has garbage collected less often, in bounded memory, unless the environment decides on it.
func collectGarbageLess(percent int) {
	if _, decided := os.LookupEnv("GOGC"); !decided {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), 256<<20))
	}
}

// passFirst has what passes go before what is made of it, unless the environment decides on it: the runtime finds a
// thread for what arrives also while others have one for each core.
func passFirst() {
	collectGarbageLess(1600)
	if _, decided := os.LookupEnv("GOMAXPROCS"); !decided {
		runtime.GOMAXPROCS(2 * runtime.NumCPU())
	}
}

// watch waits for the answer. If there is none, the recorder has died: then telemetry is received and forgotten.
func (r *recorderProcess) watch(from io.Reader) {
	for lines := json.NewDecoder(bufio.NewReader(from)); !r.whole; {
		var line ran
		if lines.Decode(&line) != nil {
			break
		}
		if line.Stop == "" {
			r.ran, r.whole = line, true
		} else if r.stopReason == "" {
			r.stopReason = line.Stop
			close(r.stop)
		}
	}
	if _ = r.cmd.Wait(); !r.whole {
		new(servers).serve(r.telemetry, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	close(r.answered)
}

// began names the agent's process to the recorder, which it waits for if this one is killed.
func (r *recorderProcess) began(pid int) {
	r.hasBegun = true
	_, _ = fmt.Fprintf(r.to, "{\"agent\":%d}\n", pid)
}

// storeLimit is how long the recorder may take to store what is left when the agent has ended.
const storeLimit = 30 * time.Second

// end has the recorder store the rest, and waits for that.
func (r *recorderProcess) end() error {
	r.servers.close()
	go func() {
		_ = r.tee.Close()
		_, _ = io.WriteString(r.to, "{\"ended\":true}\n")
		_ = r.to.Close()
	}()
	select {
	case <-r.answered:
	case <-time.After(storeLimit):
		return fmt.Errorf("what the agent did is still being stored after %v; %s ls shows it later", storeLimit, ownName())
	}
	if !r.whole {
		return fmt.Errorf("the process that records has died; requests were passed on without it, and "+
			"what it had not stored is lost; see %s", r.log)
	}
	return nil
}

// newServer returns a server for agents. Some of the clients of AWS speak HTTP/2 only, also without TLS.
func newServer(handler http.Handler) *http.Server {
	s := &http.Server{Handler: handler, ErrorLog: silent, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// forThisMachine refuses what a page of another site sends from a browser on this machine (see package
// hostcheckextension). Agents in containers of Docker Desktop know the machine by a name of their own.
func forThisMachine(next http.Handler, hosts ...string) http.Handler {
	return hostcheckextension.Handler(&hostcheckextension.Config{
		AllowedHosts: append(hosts, "host.docker.internal")}, next)
}

// servers serve an agent.
type servers []*http.Server

// pass passes requests on to servers by their names. A client may address them by their own hosts.
func (s *servers) pass(listener net.Listener, to map[string]string, by http.RoundTripper) {
	var hosts []string
	all := upstreams(to)
	for _, u := range all {
		hosts = append(hosts, u.URL.Hostname())
	}
	s.serve(listener, recorder.Proxy(all, by), hosts...)
}

func (s *servers) serve(listener net.Listener, handler http.Handler, hosts ...string) {
	server := newServer(forThisMachine(handler, hosts...))
	*s = append(*s, server)
	go func() { _ = server.Serve(listener) }()
}

// close ends them. What is just ending has a moment for that.
func (s *servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, server := range *s {
		_ = server.Shutdown(ctx)
		_ = server.Close()
	}
}

const closeLimit = 200 * time.Millisecond

func upstreams(servers map[string]string) (all []recorder.Upstream) {
	for name, address := range servers {
		if u, err := parseServer(address); err == nil {
			all = append(all, recorder.Upstream{Name: name, URL: u})
		}
	}
	return all
}

// enroll makes the sessions of the run part of the experiment.
func (o *runOptions) enroll(cmd *cobra.Command, ids []string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), enrollTimeout)
	defer cancel()
	s, err := patientOpener(cmd)(ctx)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", o.Experiment, err)
	}
	for _, id := range ids {
		row, missing := s.Session(ctx, id)
		if err = errors.Join(err, missing); missing != nil || row.ParentID != nil {
			continue // a sub-agent's session is part of another
		}
		n := store.Annotation{Kind: store.AnnotationTag, Name: gate.TagExperiment + o.Experiment, Label: o.Case}
		_, failed := web.AddAnnotation(ctx, s, id, n)
		err = errors.Join(err, failed)
	}
	return errors.Join(err, s.Close())
}

// enrollTimeout is how long other programs may hold the store until a session is not made part of its experiment.
const enrollTimeout = 30 * time.Second

// mayHaveContent asks once whether telemetry may have what is said, where a client leaves it out otherwise.
func (o *runOptions) mayHaveContent(cmd *cobra.Command, c *client) bool {
	if c == nil || len(c.Content)+len(c.ContentArguments) == 0 {
		return false
	}
	dir, err := stateDirectory()
	if err != nil {
		return false
	}
	path := filepath.Join(dir, "run-content")
	if text, err := os.ReadFile(path); err == nil {
		return strings.TrimSpace(string(text)) == "yes"
	}
	if o.Env || !isTerminal(cmd.ErrOrStderr()) || !isTerminal(os.Stdin) {
		return false
	}
	_ = note(cmd, "agenttrace: %s leaves what is said out of its telemetry unless it is set otherwise.\n"+
		"Shall it be in? It stays on this machine. --content and --no-content decide for one run. [y/N] ", c.Name)
	line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	answer := "no"
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y") {
		answer = "yes"
	}
	if err := os.WriteFile(path, []byte(answer+"\n"), 0o600); err != nil {
		_ = note(cmd, "agenttrace: the answer is not remembered: %v\n", err)
	}
	return answer == "yes"
}

// summarize prints a line for each session: what became of it, and how to open it.
func (o *runOptions) summarize(cmd *cobra.Command, ids []string) error {
	return reading(cmd, func(ctx context.Context, r document.Reader, _ *prices) error {
		for _, id := range ids {
			doc, err := r.LoadAll(ctx, id)
			if err != nil {
				return err
			}
			st, err := r.LoadStatus(ctx, id)
			if err != nil {
				return err
			}
			state := string(doc.Session.State)
			if st.State.Waiting() || st.State.Trouble() || state == "" {
				state = string(st.State)
			}
			_, words := document.OutcomeWords(state)
			ran := struct {
				*document.Document
				State, Title, Flags string
			}{doc, cmp.Or(words, state), doc.Session.Title, shownFlags(cmd)}
			if ran.Title == session.Untitled {
				ran.Title = ""
			}
			if err := note(cmd, "agenttrace: %s\n", document.Join(phrases.Facts("ran", ran)...)); err != nil {
				return err
			}
		}
		return nil
	})
}
