//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/e2e/modelserver"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store/stores"
)

func init() {
	programs["agent"], programs["gemini"], programs["claude"] = agentMain, geminiMain, claudeMain
}

// geminiMain is an agent that keeps a session of its own, as Gemini CLI does, in which calls have ids that the model's
// server does not know. It asks for a title, too, and starts another agent if it has an argument.
func geminiMain() {
	s, api := &modelserver.Weather, modelserver.Named("gemini")
	now := time.Now().UTC().Format(time.RFC3339Nano)
	file := []any{map[string]any{"sessionId": "home", "projectHash": "p", "startTime": now, "kind": "main"},
		map[string]any{"id": "u1", "timestamp": now, "type": "user", "content": s.Turns[0].User}}
	for i, step := range s.Turns[0].Steps {
		path, body := api.Request(s, 0, i, false)
		text, _ := json.Marshal(body)
		if err := post(os.Getenv("GOOGLE_GEMINI_BASE_URL")+path, text, new(any)); err != nil {
			panic(err)
		}
		var calls []any
		for k, c := range step.Calls {
			calls = append(calls, map[string]any{"id": fmt.Sprintf("own-call-%d-%d", i, k), "name": c.Name, "status": "success",
				"args": json.RawMessage(c.Input), "resultDisplay": c.Output, "timestamp": now})
		}
		file = append(file, map[string]any{"id": fmt.Sprint("a", i), "timestamp": time.Now().UTC().Format(time.RFC3339Nano),
			"type": "gemini", "model": "gemini-x", "content": step.Text, "toolCalls": calls})
	}
	title := `{"contents":[{"role":"user","parts":[{"text":"A title for this:"},{"text":"` + s.Turns[0].User + `"}]}]}`
	if err := post(os.Getenv("GOOGLE_GEMINI_BASE_URL")+api.Path, []byte(title), new(any)); err != nil {
		panic(err)
	}
	keep(".gemini/tmp/p/chats/session-2026-01-01T00-00-home.jsonl", file...)
	if len(os.Args) > 1 {
		if err := exec.Command(os.Args[1], os.Args[2:]...).Run(); err != nil {
			panic(err)
		}
	}
}

// claudeMain is another one, as Claude Code.
func claudeMain() {
	dir, _ := os.Getwd()
	line := func(id, after, kind string, message any) any {
		return map[string]any{"sessionId": "inner", "uuid": id, "parentUuid": after, "cwd": dir, "type": kind,
			"timestamp": time.Now().UTC().Format(time.RFC3339Nano), "message": message}
	}
	keep(".claude/projects/p/inner.jsonl", line("u1", "", "user", map[string]any{"role": "user", "content": "help"}),
		line("a1", "u1", "assistant", map[string]any{"id": "msg_inner1", "content": []any{map[string]any{"type": "text",
			"text": "I do"}}}))
}

// keep writes lines into a file below the home.
func keep(path string, lines ...any) {
	path = filepath.Join(os.Getenv("HOME"), path)
	var text []byte
	for _, l := range lines {
		line, _ := json.Marshal(l)
		text = append(append(text, line...), '\n')
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
		panic(err)
	}
}

// TestRunMakesOneSessionOfWhatHasNoIDsInCommon: what the proxy saw joins the session that the client keeps, though it
// gives calls ids of its own; the request for a title stays beside it. What an agent that it starts keeps is its child.
func TestRunMakesOneSessionOfWhatHasNoIDsInCommon(t *testing.T) {
	o := newOutside(t)
	o.server.Config.Handler = &modelserver.Server{API: modelserver.Named("gemini"), Script: &modelserver.Weather}
	cmd := o.command("agenttrace", "run", "--", "gemini", "agenttrace", "run", "--", "claude")
	cmd.Env = append(cmd.Env, "GOOGLE_GEMINI_BASE_URL="+o.server.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := stores.OpenReader(t.Context(), filepath.Join(o.home, ".local/state/agenttrace/sessions.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, err := r.Transcript(t.Context(), "home")
	if err != nil {
		t.Fatal(err)
	}
	answer := in.Messages[len(in.Messages)-1]
	about := session.ParseMessageMetadata([]byte(answer.Message.MetadataJSON))
	sources := []string{"gemini-cli transcript", "proxy"}
	if about.Trace.ModelCalls != 2 || about.Usage.Total() != 270 || !slices.Equal(about.Trace.Sources, sources) {
		t.Errorf("%d calls, %+v, of %q; want 2 with 270 tokens of %q", about.Trace.ModelCalls, about.Usage,
			about.Trace.Sources, sources)
	}
	inner, err := r.Session(t.Context(), "inner")
	if parent := session.Deref(inner.ParentID); err != nil || parent != "home" {
		t.Errorf("the agent that was started has the parent %q: %v", parent, err)
	}
	if n := len(o.sessions()); n != 1 {
		t.Errorf("%d sessions besides children, want one", n)
	}
}

// agentMain is an agent without any instrumentation. It has the conversation of [modelserver.Weather] with the server
// that OPENAI_BASE_URL names, or does what its argument says.
func agentMain() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "copy":
			_, _ = io.Copy(os.Stdout, os.Stdin)
			fmt.Fprint(os.Stderr, "copied")
			os.Exit(7)
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "wait": // until it is terminated
			fmt.Println("ready")
			_, _ = io.Copy(io.Discard, os.Stdin)
		case "kill-recorder":
			n, _ := strconv.Atoi(os.Getenv("AGENT_TURN"))
			if err := converse(n, killRecorder); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	if err := converse(-1, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// killRecorder kills the process that records: that of the agent's parent whose command is run record.
func killRecorder() error {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(os.Getppid()), "-f", "run record").Output()
	if err != nil {
		return fmt.Errorf("find the recorder: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// converse has the conversation, and calls at before a turn.
func converse(turn int, at func() error) error {
	s := &modelserver.Weather
	type call struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	type message struct {
		Role       string `json:"role"`
		Content    string `json:"content"`
		ToolCalls  []call `json:"tool_calls,omitempty"`
		ToolCallID string `json:"tool_call_id,omitempty"`
	}
	var tools []any
	for _, t := range s.Tools {
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": t.Name,
			"description": t.Description, "parameters": json.RawMessage(t.Schema)}})
	}
	messages := []message{{Role: "system", Content: s.System}}
	for i, t := range s.Turns {
		if i == turn {
			if err := at(); err != nil {
				return err
			}
		}
		messages = append(messages, message{Role: "user", Content: t.User})
		for {
			body, _ := json.Marshal(map[string]any{"model": "m", "messages": messages, "tools": tools})
			var answer struct {
				Choices []struct{ Message message }
			}
			if err := post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", body, &answer); err != nil {
				return err
			}
			m := answer.Choices[0].Message
			messages = append(messages, m)
			if len(m.ToolCalls) == 0 {
				break
			}
			for _, c := range m.ToolCalls {
				output, _ := s.Call(c.Function.Name, c.Function.Arguments)
				if other := os.Getenv("AGENT_OUTPUT"); other != "" {
					output = other
				}
				messages = append(messages, message{Role: "tool", ToolCallID: c.ID, Content: output})
			}
		}
	}
	return nil
}

// post sends a request as any client does: after a connection that broke, again.
func post(url string, body []byte, answer any) (err error) {
	for range 20 {
		var resp *http.Response
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer sk-key-of-the-user")
		if token := os.Getenv("AGENT_TOKEN"); token != "" {
			req.Header.Set("X-Agenttrace-Token", token)
		}
		if resp, err = http.DefaultClient.Do(req); err != nil {
			continue
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(answer)
	}
	return err
}

// outside is a home of a user, and a server of models.
type outside struct {
	t      *testing.T
	home   string
	server *httptest.Server
	mu     sync.Mutex
	asked  [][]byte // requests as they came, without what differs from run to run
	model  *modelserver.Server
}

// answered has the server go on as after so many answers.
func (o *outside) answered(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := modelserver.Script{Turns: []modelserver.Turn{{}}}
	for _, s := range modelserver.Weather.Steps()[n:] {
		rest.Turns[0].Steps = append(rest.Turns[0].Steps, *s)
	}
	o.model = &modelserver.Server{API: modelserver.Named("chat"), Script: &rest}
}

func newOutside(t *testing.T) *outside {
	o := &outside{t: t, home: t.TempDir()}
	o.answered(0)
	o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		head, _ := json.Marshal([]any{r.Method, r.URL.String(), r.Host, r.ContentLength, r.Header})
		o.mu.Lock()
		o.asked = append(o.asked, append(head, body...))
		model := o.model
		o.mu.Unlock()
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(o.server.Close)
	return o
}

// command returns a command in the home.
func (o *outside) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(o.t.Context(), args[0], args[1:]...)
	cmd.Dir = o.home
	cmd.Env = append(os.Environ(), "HOME="+o.home, "XDG_STATE_HOME=", "AGENTTRACE_STORE=",
		"OPENAI_BASE_URL="+o.server.URL+"/v1")
	return cmd
}

// sessions are what is in the sessions of the user's store.
func (o *outside) sessions() (all [][]string) {
	o.t.Helper()
	r, err := stores.OpenReader(o.t.Context(), filepath.Join(o.home, ".local/state/agenttrace/sessions.db"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	docs, err := modelserver.Read(o.t.Context(), r)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, d := range docs {
		all = append(all, modelserver.Lines(d, true))
	}
	return all
}

// TestRunRecordsAnAgentThatReportsNothing: the session is what was said, whoever wrote the agent, and what the model's
// server gets is the same as without us. Nothing of the user's key is stored.
func TestRunRecordsAnAgentThatReportsNothing(t *testing.T) {
	o := newOutside(t)
	if out, err := o.command("agent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	without := o.asked
	with := newOutside(t)
	cmd := with.command("agenttrace", "run", "--", "agent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host := strings.NewReplacer(o.server.Listener.Addr().String(), "server",
		with.server.Listener.Addr().String(), "server")
	for i := range max(len(without), len(with.asked)) {
		if a, b := host.Replace(string(without[i])), host.Replace(string(with.asked[i])); a != b {
			t.Errorf("request %d differs:\n%s\n%s", i, a, b)
		}
	}
	want := [][]string{modelserver.Weather.Want(modelserver.Named("chat"))}
	if d := cmp.Diff(want, with.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
	if !bytes.Contains(out, []byte("agenttrace show ")) {
		t.Errorf("it does not say how to open the session: %s", out)
	}
	_ = filepath.WalkDir(with.home, func(path string, d os.DirEntry, _ error) error {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte("sk-key-of-the-user")) {
			t.Errorf("%s has the key", path)
		}
		return nil
	})
}

// TestReplayRunsTheAgentAgain: it gets the answers of the session, and nobody else is asked; what it does otherwise is
// named, by turn and step. From a turn on the server answers.
func TestReplayRunsTheAgentAgain(t *testing.T) {
	o := newOutside(t)
	replay := func(code int, env string, args ...string) string {
		t.Helper()
		cmd := o.command(append(append([]string{"agenttrace", "replay"}, args...), "--", "agent")...)
		cmd.Env = append(cmd.Env, env)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("%v: exit code %d, want %d: %s", args, cmd.ProcessState.ExitCode(), code, out)
		}
		return string(out)
	}
	if out, err := o.command("agenttrace", "run", "--", "agent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	asked := len(o.asked)
	original := o.sessions()[0]
	if out := replay(0, "", "last", "--session"); !strings.Contains(out, "the agent did the same as in the session") {
		t.Error(out)
	}
	if len(o.asked) != asked {
		t.Errorf("the server was asked %d times", len(o.asked)-asked)
	}
	all := o.sessions()
	if len(all) != 2 {
		t.Fatalf("%d sessions", len(all))
	}
	ids := regexp.MustCompile(`(call_\w+?_\d{4,5})(?:_[a-z0-9]{8})?`)
	for _, lines := range all {
		for i, line := range lines {
			if want := original[i]; ids.ReplaceAllString(line, "$1") != want {
				t.Errorf("line %d is %s, want %s", i, line, want)
			}
		}
	}
	steps := len(modelserver.Weather.Turns[1].Steps)
	o.answered(len(modelserver.Weather.Turns[0].Steps))
	if replay(0, "", "last", "--session", "--from", "2"); len(o.asked) != asked+steps {
		t.Errorf("from turn 2 on the server was asked %d times, want %d", len(o.asked)-asked, steps)
	}
	if out := replay(1, "AGENT_OUTPUT=snow", "last", "--session"); !strings.Contains(out,
		`turn 1, step 2: get_weather results in "snow" instead of "sunny"`) {
		t.Error(out)
	}
	if out := replay(2, "", "last", "--session", "--from", "9"); !strings.Contains(out, "its turns are 1 to 2") {
		t.Error(out)
	}
}

// TestRunIsAsTheAgentAlone: what it reads, writes and exits with, and what signals do.
func TestRunIsAsTheAgentAlone(t *testing.T) {
	o := newOutside(t)
	input := bytes.Repeat([]byte("a\x00\xff\r\n"), 100000)
	cmd := o.command("agenttrace", "run", "--quiet", "--", "agent", "copy")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("exit code %d: %v", cmd.ProcessState.ExitCode(), err)
	}
	if !bytes.Equal(stdout.Bytes(), input) || stderr.String() != "copied" {
		t.Errorf("%d of %d bytes came back; standard error %q", stdout.Len(), len(input), stderr.String())
	}
	status := func(cmd *exec.Cmd) syscall.WaitStatus { return cmd.ProcessState.Sys().(syscall.WaitStatus) }
	cmd = o.command("agenttrace", "run", "--quiet", "--", "agent", "die")
	if _ = cmd.Run(); status(cmd).Signal() != syscall.SIGKILL {
		t.Errorf("killed agent: %v", cmd.ProcessState)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			continue // below nohup, an agent ignores it, too
		}
		cmd = o.command("agenttrace", "run", "--quiet", "--", "agent", "wait")
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 6)); err != nil { // it is ready
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait()
		if status(cmd).Signal() != s {
			t.Errorf("after %v: %v", s, cmd.ProcessState)
		}
		_ = in.Close()
	}
	for args, code := range map[string]int{"no-such-agent": 127, o.home: 126} {
		cmd = o.command("agenttrace", "run", "--", args)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || !bytes.Contains(out, []byte(args)) {
			t.Errorf("%s: exit code %d: %s", args, cmd.ProcessState.ExitCode(), out)
		}
	}
}

// TestAnAgentRunsOnWithoutItsRecorder: it is killed before the second turn, which is passed on all the same.
func TestAnAgentRunsOnWithoutItsRecorder(t *testing.T) {
	o := newOutside(t)
	cmd := o.command("agenttrace", "run", "--", "agent", "kill-recorder")
	cmd.Env = append(cmd.Env, "AGENT_TURN=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the agent failed: %v: %s", err, out)
	}
	if !bytes.Contains(out, []byte("has died")) {
		t.Errorf("the user is not told: %s", out)
	}
	// The store may have been left at any point. The next run goes on with it.
	o.server.Config.Handler = newOutside(t).server.Config.Handler
	if out, err := o.command("agenttrace", "run", "--", "agent").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said, whole := modelserver.Weather.Want(modelserver.Named("chat")), 0
	for _, lines := range o.sessions() {
		if slices.Equal(lines, said) {
			whole++
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "turn ") && !slices.Contains(said, line) {
				t.Errorf("stored, and nobody said so: %s", line)
			}
		}
	}
	if whole != 1 {
		t.Errorf("%d whole sessions, want that of the second run", whole)
	}
}

// TestADeadStoreStopsNoAgent: the agent runs, what was recorded is in a file that is named, and importing that stores
// it.
func TestADeadStoreStopsNoAgent(t *testing.T) {
	o := newOutside(t)
	if err := os.WriteFile(filepath.Join(o.home, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := o.command("agenttrace", "run", "--store", "file/s.db", "--", "agent").CombinedOutput()
	if err != nil {
		t.Fatalf("the agent failed: %v: %s", err, out)
	}
	path := regexp.MustCompile(`are in (\S+),`).FindSubmatch(out)
	if path == nil {
		t.Fatalf("it does not say where the recording is: %s", out)
	}
	if out, err := o.command("agenttrace", "import", string(path[1])).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if d := cmp.Diff([][]string{modelserver.Weather.Want(modelserver.Named("chat"))}, o.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
}

// TestAgentsAtOnceAreRecordedInOneStore: several runs share a store, each of which leaves one session.
func TestAgentsAtOnceAreRecordedInOneStore(t *testing.T) {
	o := newOutside(t)
	var wg sync.WaitGroup
	const agents = 4
	for range agents {
		other := newOutside(t)
		wg.Go(func() {
			cmd := o.command("agenttrace", "run", "--", "agent")
			cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+other.server.URL+"/v1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	want := modelserver.Weather.Want(modelserver.Named("chat"))
	if d := cmp.Diff(slices.Repeat([][]string{want}, agents), o.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
}

// TestProxyIsAService: a session is named by the path or goes on by its history, the token is needed where other
// machines reach it, and neither is passed on.
func TestProxyIsAService(t *testing.T) {
	o := newOutside(t)
	proxy := o.command("agenttrace", "proxy", "--listen", "127.0.0.1:0", "--upstream", "m="+o.server.URL)
	proxy.Env = append(proxy.Env, "AGENTTRACE_PROXY_TOKEN=secret")
	stderr, err := proxy.StderrPipe()
	if err := errors.Join(err, proxy.Start()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.Fields(line)[1]
	for _, without := range []string{address, strings.TrimSuffix(address, "m") + "other"} {
		resp, err := http.Post(without+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without the token: %v %v", resp, err)
		}
	}
	agent := o.command("agent")
	agent.Env = append(agent.Env, "OPENAI_BASE_URL="+strings.Replace(address, "/m", "/session/nightly/m/v1", 1),
		"AGENT_TOKEN=secret")
	if out, err := agent.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	_ = proxy.Process.Signal(syscall.SIGTERM)
	_ = proxy.Wait()
	if d := cmp.Diff([][]string{modelserver.Weather.Want(modelserver.Named("chat"))}, o.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
	for _, asked := range o.asked {
		if bytes.Contains(asked, []byte("secret")) || bytes.Contains(asked, []byte("nightly")) {
			t.Errorf("passed on: %s", asked)
		}
	}
	if out, _ := o.command("agenttrace", "show", "nightly").CombinedOutput(); !bytes.Contains(out, []byte("nightly")) {
		t.Errorf("the session does not have the name: %s", out)
	}
	refused := o.command("agenttrace", "proxy", "--listen", "0.0.0.0:0", "--upstream", o.server.URL)
	if out, _ := refused.CombinedOutput(); refused.ProcessState.ExitCode() != 2 ||
		!bytes.Contains(out, []byte("AGENTTRACE_PROXY_TOKEN")) {
		t.Errorf("it listens for other machines without a token: %s", out)
	}
}
