//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.yaml.in/yaml/v3"

	"github.com/agenttrace/agenttrace/internal/e2e"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store/stores"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func init() {
	programs["agent"], programs["gemini"], programs["claude"] = agentMain, geminiMain, claudeMain
	programs["asker"], programs["weather"] = askerMain, weatherMain
}

// geminiMain is an agent that keeps a session of its own, as Gemini CLI does, in which calls have ids that the model's
// server does not know. It asks for a title, too, and starts another agent if it has an argument.
func geminiMain() {
	s, api := &e2e.Weather, e2e.Named("gemini")
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
		return
	}
	lost := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"opencode"},"spans":[{`+
		`"name":"SessionPrompt.run","traceId":"0af7651916cd43dd8448eb211c80319c",`+
		`"spanId":"b7ad6b7169203331","parentSpanId":"00f067aa0ba902b7",`+
		`"startTimeUnixNano":"%d","endTimeUnixNano":"%[1]d"}]}]}]}`, time.Now().UnixNano())
	if err := post(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+"/v1/traces", []byte(lost), new(any)); err != nil {
		panic(err)
	}
}

// claudeMain is another one, as Claude Code. With an argument it has a sub-agent, which asks the model.
func claudeMain() {
	dir, _ := os.Getwd()
	line := func(id, after, kind string, message any) any {
		return map[string]any{"sessionId": "inner", "uuid": id, "parentUuid": after, "cwd": dir, "type": kind,
			"timestamp": time.Now().UTC().Format(time.RFC3339Nano), "message": message}
	}
	if len(os.Args) > 1 {
		ofAgent := func(line any) any {
			line.(map[string]any)["agentId"], line.(map[string]any)["isSidechain"] = "scout", true
			return line
		}
		asked := map[string]any{"role": "user", "content": "look"}
		body, _ := json.Marshal(map[string]any{"model": "m", "max_tokens": 9, "messages": []any{asked}})
		answer := make(map[string]any)
		if err := post(os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", body, &answer); err != nil {
			panic(err)
		}
		keep(".claude/projects/p/inner/subagents/agent-scout.jsonl", ofAgent(line("s1", "", "user", asked)),
			ofAgent(line("s2", "s1", "assistant", answer)))
	}
	keep(".claude/projects/p/inner.jsonl", line("u1", "", "user", map[string]any{"role": "user", "content": "help"}),
		line("a1", "u1", "assistant", map[string]any{"id": "msg_inner1", "content": []any{map[string]any{"type": "text",
			"text": "I do"}}}))
}

// mustRun runs a command that succeeds, and returns what it prints.
func mustRun(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
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
	o.server.Config.Handler = &e2e.Server{API: e2e.Named("gemini"), Script: &e2e.Weather}
	cmd := o.command("agenttrace", "run", "--", "gemini", "agenttrace", "run", "--", "claude")
	cmd.Env = append(cmd.Env, "GOOGLE_GEMINI_BASE_URL="+o.server.URL)
	mustRun(t, cmd)
	r := testscale.Open(t, stores.OpenReader, filepath.Join(o.home, ".local/state/agenttrace/sessions.db"))
	in := storetest.Transcript(t, r, "home")
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

// TestRunCountsASubagentOnce: what the proxy saw of a sub-agent that its client names within a session is no further
// call of that sub-agent.
func TestRunCountsASubagentOnce(t *testing.T) {
	o := newOutside(t)
	o.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Millisecond) // Claude Code writes times in whole ones
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"msg_look","type":"message","role":"assistant","model":"m","stop_reason":"end_turn",`+
			`"content":[{"type":"text","text":"Calm."}],"usage":{"input_tokens":10,"output_tokens":2}}`)
	})
	cmd := o.command("agenttrace", "run", "--", "claude", "look")
	cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+o.server.URL)
	mustRun(t, cmd)
	r := testscale.Open(t, stores.OpenReader, filepath.Join(o.home, ".local/state/agenttrace/sessions.db"))
	in := storetest.Transcript(t, r, "inner-scout")
	about := session.ParseMessageMetadata([]byte(in.Messages[len(in.Messages)-1].Message.MetadataJSON))
	got := fmt.Sprintf("%d %d %d %s", len(in.Messages), about.Trace.ModelCalls, in.Session.TotalTokens,
		session.Deref(in.Session.ParentID))
	if want := "2 1 12 inner"; got != want {
		t.Errorf("messages, calls, tokens, parent: %s, want %s", got, want)
	}
}

// TestRunRecordsASessionWithoutTimes: one that went on has no time but that at which it began.
func TestRunRecordsASessionWithoutTimes(t *testing.T) {
	o := newOutside(t)
	out, err := o.command("agenttrace", "run", "--", "agent", "untimed").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("agenttrace show s-1")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRunKeepsTelemetryThatNamesNoSessionWithTheClientsOwn: a client that ends in haste loses the span with the name.
func TestRunKeepsTelemetryThatNamesNoSessionWithTheClientsOwn(t *testing.T) {
	o := newOutside(t)
	o.server.Config.Handler = &e2e.Server{API: e2e.Named("gemini"), Script: &e2e.Weather}
	cmd := o.command("agenttrace", "run", "--", "gemini")
	cmd.Env = append(cmd.Env, "GOOGLE_GEMINI_BASE_URL="+o.server.URL)
	mustRun(t, cmd)
	out, err := o.command("agenttrace", "ls", "--children", "--json").CombinedOutput()
	if err != nil || bytes.Count(out, []byte(`"id"`)) != 1 || !bytes.Contains(out, []byte(`"home"`)) {
		t.Errorf("%v: %s", err, out)
	}
}

// agentMain is an agent without any instrumentation. It has the conversation of [e2e.Weather] with the server
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
		case "agent.py":
			s := &e2e.Script{Turns: []e2e.Turn{{User: os.Args[2]}}}
			if err := converse(s, -1, nil); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case "untimed": // as Continue, which goes on with a session of yesterday
			dir, _ := os.Getwd()
			turn := func(role, text string) any {
				return map[string]any{"message": map[string]any{"role": role, "content": text}}
			}
			keep(".continue/sessions/s-1.json", map[string]any{"sessionId": "s-1", "title": "t", "workspaceDirectory": dir,
				"history": []any{turn("user", "go"), turn("assistant", "on")}})
			keep(".continue/sessions/sessions.json", []any{map[string]any{"sessionId": "s-1", "dateCreated": "1767323041000"}})
			return
		case "kill-recorder":
			n, _ := strconv.Atoi(os.Getenv("AGENT_TURN"))
			if err := converse(&e2e.Weather, n, killRecorder); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	if address := os.Getenv("AGENT_DIAL"); address != "" {
		c, err := net.Dial("tcp", address)
		if err == nil {
			fmt.Println("it can connect")
			err = c.Close()
		}
		fmt.Println(err)
	}
	if err := converse(&e2e.Weather, -1, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// recorderOf returns the process that records: that of the agent's parent whose command is run record.
func recorderOf(parent int) (int, error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(parent), "-f", "run record").Output()
	if err != nil {
		return 0, fmt.Errorf("find the recorder: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

func killRecorder() error {
	pid, err := recorderOf(os.Getppid())
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// converse has a conversation, and calls at before a turn.
func converse(s *e2e.Script, turn int, at func() error) (err error) {
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
			began := time.Now().UnixNano()
			var answer struct {
				Choices []struct{ Message message }
			}
			if err := post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", body, &answer); err != nil {
				return err
			}
			m := answer.Choices[0].Message
			if os.Getenv("AGENT_TELLS") != "" { // a trace for each turn, of which none names a session
				asked, _ := json.Marshal(messages)
				said, _ := json.Marshal([]message{m})
				span := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"chat","traceId":"%032x","spanId":"%016x",`+
					`"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[{"key":"gen_ai.operation.name","value":`+
					`{"stringValue":"chat"}},{"key":"gen_ai.input.messages","value":{"stringValue":%q}},`+
					`{"key":"gen_ai.output.messages","value":{"stringValue":%q}}]}]}]}]}`, i+1, began, began,
					time.Now().UnixNano(), asked, said)
				if err := post(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+"/v1/traces", []byte(span), new(any)); err != nil {
					return err
				}
			}
			messages = append(messages, m)
			if len(m.ToolCalls) == 0 {
				break
			}
			for _, c := range m.ToolCalls {
				output, _ := s.Call(c.Function.Name, c.Function.Arguments)
				if tools := os.Getenv("AGENT_TOOLS"); tools != "" {
					if output, err = callTool(strings.Fields(tools), c.Function.Name, c.Function.Arguments); err != nil {
						return err
					}
				}
				if shell := strings.Fields(os.Getenv("AGENT_SHELL")); len(shell) > 0 {
					var in struct{ Command string }
					_ = json.Unmarshal([]byte(c.Function.Arguments), &in)
					cmd := exec.Command(shell[0], append(shell[1:], "(\n"+in.Command+"\n)")...)
					out, _ := cmd.Output()
					output = fmt.Sprintf("Exit code: %d\nOutput:\n%s", cmd.ProcessState.ExitCode(), out)
				}
				if other := os.Getenv("AGENT_OUTPUT"); other != "" {
					output = other
				}
				messages = append(messages, message{Role: "tool", ToolCallID: c.ID, Content: output})
			}
		}
	}
	return nil
}

// callTool has a server that the command starts call a tool. As many clients do, it starts it without its environment.
func callTool(command []string, name, input string) (output string, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = []string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH")}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(context.Background(),
		&mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if other := os.Getenv("AGENT_INPUT"); other != "" {
		input = other
	}
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(input)})
	if err != nil {
		return "", err
	}
	return r.Content[0].(*mcp.TextContent).Text, nil
}

// weatherMain is a server of the tools of [e2e.Weather]. It notes each call in a file.
func weatherMain() {
	s := mcp.NewServer(&mcp.Implementation{Name: "weather"}, nil)
	for _, t := range e2e.Weather.Tools {
		s.AddTool(&mcp.Tool{Name: t.Name, InputSchema: json.RawMessage(t.Schema)}, func(_ context.Context,
			r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			keep(fmt.Sprintf("executed-%d", os.Getpid()), string(r.Params.Arguments))
			output, err := e2e.Weather.Call(r.Params.Name, string(r.Params.Arguments))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: output}}, IsError: err}, nil
		})
	}
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
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

// askerMain sends a request, of which the server makes what the argument says, and prints what it gets.
func askerMain() {
	kind := os.Args[1]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before, after := `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello there`, `"}]}`
	body := io.Reader(strings.NewReader(before + after))
	if kind == "large" {
		body = io.MultiReader(strings.NewReader(before), bytes.NewReader(make([]byte, hundredMB)), strings.NewReader(after))
	}
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost,
		os.Getenv("OPENAI_BASE_URL")+"/chat/completions?kind="+kind, body)
	if kind == "zstd" { // as Codex sends them
		z, _ := zstd.NewWriter(nil)
		packed := z.EncodeAll([]byte(before+after), nil)
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(packed)), int64(len(packed))
		req.Header.Set("Content-Encoding", "zstd")
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept-Encoding", "gzip") // so that it is as it came
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(kind != "http2")
	transport.Protocols.SetUnencryptedHTTP2(kind == "http2") // as the client of AWS for JavaScript
	resp, err := transport.RoundTrip(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Header.Del("Date")
	fmt.Println(resp.Status, resp.Header)
	sum, got := sha256.New(), make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(got)
		sum.Write(got[:n])
		if kind == "stall" && n > 0 {
			cancel()
		}
		if kind == "gone" {
			fmt.Printf("%s", got[:n])
		}
	}
	fmt.Printf("%x %v\n", sum.Sum(nil), err)
	if recorder, err := recorderOf(os.Getppid()); kind == "large" && err == nil {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", recorder))
		fmt.Fprintf(os.Stderr, "%s", regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status)[1])
	}
}

// hundredMB are more bytes than are recorded.
const hundredMB = 100 << 20

// TestFaultsAreAsWithoutARecording: an agent gets the same bytes, headers and errors of an answer that stalls, breaks
// off, is compressed, comes by HTTP/2, or is large, and the session has how it ended. Only where there is no server, it
// gets the reason.
func TestFaultsAreAsWithoutARecording(t *testing.T) {
	api, step := e2e.Named("chat"), e2e.Step{Text: "Good morning to you.", Input: 10, Output: 5}
	_, chunks := api.Chunks(&step, "resp_1", true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		_, _ = io.Copy(sum, r.Body)
		w.Header().Set("X-Got", fmt.Sprintf("%x", sum.Sum(nil)))
		w.Header().Set("Content-Type", "text/event-stream")
		switch r.URL.Query().Get("kind") {
		case "stall":
			_, _ = w.Write(bytes.Join(chunks[:2], nil))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "cut":
			_, _ = w.Write(append(bytes.Join(chunks[:2], nil), chunks[2][:9]...))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(bytes.Join(chunks, nil))
			_ = z.Close()
		case "br":
			w.Header().Set("Content-Encoding", "br")
			z := brotli.NewWriter(w)
			_, _ = z.Write(bytes.Join(chunks, nil))
			_ = z.Close()
		case "zstd":
			w.Header().Set("Content-Encoding", "zstd")
			z, _ := zstd.NewWriter(w)
			_, _ = z.Write(bytes.Join(chunks, nil))
			_ = z.Close()
		case "http2":
			_, _ = w.Write(bytes.Join(chunks, nil))
		case "large":
			w.Header().Set("Content-Type", "application/json")
			_, whole := api.Chunks(&e2e.Step{Text: strings.Repeat("x", hundredMB)}, "resp_1", false)
			_, _ = w.Write(bytes.Join(whole, nil))
		}
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	const usual = "user text hello there assistant text Good morni"
	for kind, want := range map[string]string{
		"stall": usual + " turn 0+0  1 calls abort ",
		"cut":   usual + " turn 0+0  1 calls error the answer's stream ended early",
		"gzip":  usual + "ng to you. turn 10+5 stop 1 calls finish ",
		"br":    usual + "ng to you. turn 10+5 stop 1 calls finish ",
		"zstd":  usual + "ng to you. turn 10+5 stop 1 calls finish ",
		"http2": usual + "ng to you. turn 10+5 stop 1 calls finish ",
		"large": "", // it is more than is looked into
		"gone": `user text hello there assistant data-error {"text":"dial tcp ADDRESS: connect: connection refused"} ` +
			"turn 0+0  1 calls error dial tcp ADDRESS: connect: connection refused",
	} {
		t.Run(kind, func(t *testing.T) {
			o := newOutside(t)
			ask := func(args ...string) (stdout, stderr string) {
				cmd := o.command(append(args, "asker", kind)...)
				url := server.URL
				if kind == "gone" {
					url = gone.URL
				}
				var said bytes.Buffer
				cmd.Env, cmd.Stderr = append(cmd.Env, "OPENAI_BASE_URL="+url+"/v1"), &said
				out, err := cmd.Output()
				if err != nil {
					t.Errorf("%v: %s", err, &said)
				}
				return string(out), said.String()
			}
			without, _ := ask()
			with, peak := ask("agenttrace", "run", "--quiet", "--")
			if kind == "gone" {
				without = "502"
				with, _, _ = strings.Cut(with, " ")
			}
			if with != without {
				t.Errorf("with a recording: %s\nwithout: %s", with, without)
			}
			const most = 400_000 // kB, of which the program alone takes 100,000
			if kb, _ := strconv.Atoi(peak); kb > most || (kind == "large") != (kb > 0) {
				t.Errorf("the recorder took %d kB: %s", kb, peak)
			}
			var got []string
			for _, d := range o.documents() {
				got = append(got, e2e.Lines(d, false)...)
				got = append(got, d.Turns[0].EndReason, d.Turns[0].Error)
			}
			all := strings.ReplaceAll(strings.Join(got, " "), gone.Listener.Addr().String(), "ADDRESS")
			if d := cmp.Diff(want, all); d != "" {
				t.Errorf("session (-said +stored):\n%s", d)
			}
		})
	}
}

// outside is a home of a user, and a server of models.
type outside struct {
	t      *testing.T
	home   string
	server *httptest.Server
	mu     sync.Mutex
	asked  [][]byte // requests as they came, without what differs from run to run
	model  *e2e.Server
}

// answered has the server go on as after so many answers.
func (o *outside) answered(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := e2e.Script{Turns: []e2e.Turn{{}}}
	for _, s := range e2e.Weather.Steps()[n:] {
		rest.Turns[0].Steps = append(rest.Turns[0].Steps, *s)
	}
	o.model = &e2e.Server{API: e2e.Named("chat"), Script: &rest}
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
	for _, d := range o.documents() {
		all = append(all, e2e.Lines(d, true))
	}
	return all
}

func (o *outside) documents() []*document.Document {
	o.t.Helper()
	r, err := stores.OpenReader(o.t.Context(), filepath.Join(o.home, ".local/state/agenttrace/sessions.db"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	return e2e.Read(o.t, r)
}

// TestRunRecordsAnAgentThatReportsNothing: the session is what was said, and what the model's
// server gets is the same as without us. Nothing of the user's key is stored. One that reports
// each turn in a trace without a session has one session, too.
func TestRunRecordsAnAgentThatReportsNothing(t *testing.T) {
	o := newOutside(t)
	mustRun(t, o.command("agent"))
	without := o.asked
	with := newOutside(t)
	cmd := with.command("agenttrace", "run", "--", "agent")
	out := mustRun(t, cmd)
	host := strings.NewReplacer(o.server.Listener.Addr().String(), "server",
		with.server.Listener.Addr().String(), "server")
	for i := range max(len(without), len(with.asked)) {
		if a, b := host.Replace(string(without[i])), host.Replace(string(with.asked[i])); a != b {
			t.Errorf("request %d differs:\n%s\n%s", i, a, b)
		}
	}
	want := [][]string{e2e.Weather.Want(e2e.Named("chat"))}
	tells := newOutside(t)
	cmd = tells.command("agenttrace", "run", "--", "agent")
	cmd.Env = append(cmd.Env, "AGENT_TELLS=1")
	mustRun(t, cmd)
	if d := cmp.Diff(want, with.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
	want[0] = slices.DeleteFunc(want[0], func(s string) bool { return strings.HasPrefix(s, "assistant reasoning") })
	if d := cmp.Diff(want, tells.sessions()); d != "" { // it reports no reasoning
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
	mustRun(t, o.command("agenttrace", "run", "--", "agent"))
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
	// By TCP the agent reaches nobody else, the server of the test either, which heeds no proxy.
	dial := "AGENT_DIAL=" + o.server.Listener.Addr().String()
	out, local := replay(0, dial, "last", "--session"), replay(0, dial, "last", "--session", "--local")
	closed := strings.Contains(out, "permission denied")
	if closed == strings.Contains(out, "missing: the kernel cannot") ||
		closed == strings.Contains(out, "it can connect") || !strings.Contains(local, "it can connect") {
		t.Errorf("%s\nwith --local: %s", out, local)
	}
	steps := len(e2e.Weather.Turns[1].Steps)
	o.answered(len(e2e.Weather.Turns[0].Steps))
	if replay(0, "", "last", "--session", "--from", "2"); len(o.asked) != asked+steps {
		t.Errorf("from turn 2 on the server was asked %d times, want %d", len(o.asked)-asked, steps)
	}
	if out := replay(1, "AGENT_OUTPUT=sun", "last", "--session"); !strings.Contains(out,
		`turn 1, step 2: get_weather results in "sun" instead of "sunny"`) {
		t.Error(out)
	}
	if out := replay(2, "", "last", "--session", "--from", "9"); !strings.Contains(out, "its turns are 1 to 2") {
		t.Error(out)
	}
}

// TestReplayExecutesNoToolThatIsChosen: the agent's server of tools is asked for them, and no call of a chosen tool.
func TestReplayExecutesNoToolThatIsChosen(t *testing.T) {
	o := newOutside(t)
	executed := func() int {
		files, _ := filepath.Glob(filepath.Join(o.home, "executed-*"))
		return len(files)
	}
	const server = "AGENT_TOOLS=agenttrace run --quiet --mcp -- weather"
	cmd := o.command("agenttrace", "run", "--", "agent")
	cmd.Env = append(cmd.Env, server)
	if out, err := cmd.CombinedOutput(); err != nil || executed() != 3 {
		t.Fatalf("%d calls, %v: %s", executed(), err, out)
	}
	const missing = "missing: the outputs of tools are not replayed"
	const note = "missing: the output of get_weather is replayed only where the agent reaches it by agenttrace run --mcp"
	for _, c := range []struct {
		env, tools, want string
		code, executed   int
		not              string
	}{
		{tools: "", want: missing, executed: 3},
		{tools: "all", want: "the agent did the same as in the session", not: missing},
		{tools: "get_weather", env: `AGENT_INPUT={"city":"Bern"}`, code: 1,
			want: `turn 1, step 1: get_weather is called with {"city":"Bern"} instead of {"city":"Paris"}`},
		{tools: "all", env: "AGENT_TOOLS=weather", executed: 3, want: note},
		{tools: "get_weather", env: "AGENT_TOOLS=weather", executed: 3, code: 1,
			want: `turn 1, step 1: nobody asked for the recorded output of get_weather {"city":"Paris"}`},
		{tools: "get_wether", code: 2, want: "its tools are get_weather"},
	} {
		cmd := o.command("agenttrace", "replay", "last", "--session", "--tools", c.tools, "--", "agent")
		cmd.Env = append(cmd.Env, server, c.env)
		before := executed()
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.code || executed()-before != c.executed ||
			!strings.Contains(string(out), c.want) || c.not != "" && strings.Contains(string(out), c.not) {
			t.Errorf("--tools %q %s: exit code %d, %d calls executed: %s", c.tools, c.env, cmd.ProcessState.ExitCode(),
				executed()-before, out)
		}
	}
}

// TestReplayExecutesNoCommandInAShell: a command that the agent gives to a shell is not executed, wherever bash is; one
// that another shell at a fixed path executes is named.
func TestReplayExecutesNoCommandInAShell(t *testing.T) {
	o := newOutside(t)
	call := e2e.Call{ID: "call_1", Name: "shell", Input: `{"command":"echo $$ | tee -a executed; exit 3"}`}
	steps := []e2e.Step{{Calls: []e2e.Call{call}}, {Text: "It is so."}}
	script := e2e.Script{Turns: []e2e.Turn{{Steps: steps}}}
	o.server.Config.Handler = &e2e.Server{API: e2e.Named("chat"), Script: &script}
	agent := func(shell string, args ...string) (string, int) {
		cmd := o.command(append(append([]string{"agenttrace"}, args...), "--", "agent", "agent.py", "Is it so?")...)
		cmd.Env = append(cmd.Env, "SHELL=/bin/sh", "AGENT_SHELL="+shell)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	executed := func() string {
		text, _ := os.ReadFile(filepath.Join(o.home, "executed"))
		return string(text)
	}
	out, code := agent("/bin/bash -c", "run")
	first := executed()
	if code != 0 || first == "" {
		t.Fatalf("exit code %d: %s", code, out)
	}
	bash, err := exec.LookPath("bash")
	testscale.Must(t, err)
	id := regexp.MustCompile(`show (\S+)`).FindStringSubmatch(out)[1]
	for _, shell := range []string{"bash -c", bash + " -lc", "sh -ec", "/bin/sh -c"} {
		out, code := agent(shell, "replay", id, "--session", "--tools", "shell")
		want, exit := "the agent did the same as in the session", 0
		if shell == "/bin/sh -c" {
			want, exit = `turn 1, step 1: nobody asked for the recorded output of shell {"command":"echo $$`, 1
		}
		if code != exit || !strings.Contains(out, want) || (executed() != first) != (exit == 1) {
			t.Errorf("%s: exit code %d, executed %q: %s", shell, code, executed(), out)
		}
	}
}

// TestFilesOfTheGuideJudgeAnAgent: the workflow, and the assertions and the hook of docs/gate.md, are run as a user
// copies them. A pull request is red if the agent answers something else or fails, and its comment says so.
func TestFilesOfTheGuideJudgeAnAgent(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		testscale.Must(t, err)
		return string(text)
	}
	var workflow struct {
		Jobs map[string]struct{ Steps []struct{ If, Run string } }
	}
	var hooks struct {
		Repos []struct{ Hooks []struct{ Entry string } }
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read("../../docs/gate.md"), -1)
	testscale.Must(t, errors.Join(yaml.Unmarshal([]byte(read("../../deploy/github/agenttrace-gate.yaml")), &workflow),
		yaml.Unmarshal([]byte(blocks[1][1]), &hooks)))
	const note, green = "#!/bin/sh\necho \"${0##*/}\" \"$@\" >> \"$HOME/commands\"\n", ".agenttrace-green.jsonl"
	baseline := ""
	for _, row := range []struct{ answer, want string }{
		{"Bergen: high water at 06:10.", "agenttrace gate: green"}, {"I do not know.", "agenttrace gate: red"},
		{"", "agenttrace gate: red"}, // the model's server fails
	} {
		o, answered := newOutside(t), 0
		o.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			step := e2e.Step{Text: row.answer, Input: 100, Output: 10}
			if !bytes.Contains(body, []byte(`"role":"tool"`)) {
				step.Text, step.Calls = "", []e2e.Call{{ID: "call_1", Name: "get_tide", Input: `{"port":"Bergen"}`}}
			} else if row.answer == "" {
				w.WriteHeader(http.StatusBadRequest)
			}
			answered++
			_, chunks := e2e.Named("chat").Chunks(&step, fmt.Sprintf("resp_%04d", answered), false)
			_, _ = w.Write(bytes.Join(chunks, nil))
		})
		for path, text := range map[string]string{"agenttrace.gate.yaml": blocks[0][1], "bin/go": note, "bin/gh": note,
			"bin/python": "#!/bin/sh\nexec agent \"$@\"\n", "tasks/tide.txt": "What is the tide in Bergen?", green: baseline} {
			path = filepath.Join(o.home, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); text != "" {
				testscale.Must(t, errors.Join(err, os.WriteFile(path, []byte(text), 0o700)))
			}
		}
		shell := func(line string) ([]byte, error) {
			cmd := o.command("bash", "-e", "-c", strings.NewReplacer("${{ github.event.number }}", "7",
				"1 2 3 4 5", "1").Replace(line))
			cmd.Env = append(cmd.Env, "PATH="+o.home+"/bin:"+os.Getenv("PATH"), "GITHUB_STEP_SUMMARY="+o.home+"/summary")
			return cmd.CombinedOutput()
		}
		var said []byte
		var failed error
		for _, step := range workflow.Jobs["gate"].Steps {
			if step.Run != "" && (failed == nil || strings.HasPrefix(step.If, "always()")) {
				out, err := shell(step.Run)
				if said = append(said, out...); failed == nil {
					failed = err
				}
			}
		}
		isRed := !strings.Contains(row.want, "green")
		if (failed != nil) != isRed || !strings.Contains(read(o.home+"/summary"), row.want) {
			t.Errorf("%q: %v: %s", row.answer, failed, said)
		}
		const commands = "go install github.com/agenttrace/agenttrace/cmd/agenttrace@latest\n" +
			"gh pr comment 7 --edit-last --create-if-none --body-file gate.md\n"
		if d := cmp.Diff(commands, read(o.home+"/commands")); d != "" {
			t.Errorf("commands:\n%s", d)
		}
		out, err := shell("agenttrace export --all --format jsonl --output out/\n" + hooks.Repos[0].Hooks[0].Entry)
		if (err != nil) != isRed {
			t.Errorf("the hook: %v: %s", err, out)
		}
		baseline = read(filepath.Join(o.home, green))
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
		testscale.Must(t, cmd.Start())
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
	script := func(name, text string) string {
		path := filepath.Join(o.home, name)
		testscale.Must(t, os.WriteFile(path, []byte(text), 0o700))
		return path
	}
	for path, code := range map[string]int{"no-such-agent": 127, o.home: 126, script("lost", "#!/no/such/shell\n"): 127,
		script("plain", "echo $0\nexit 3\n"): 3,
		// These end by signals that do not end a program in Go.
		script("pipe", "#!/bin/sh\necho $0\nkill -PIPE $$\n"): 141, script("alarm", "echo $0\nkill -ALRM $$\n"): 142} {
		cmd = o.command("agenttrace", "run", "--", path)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !bytes.Contains(out, []byte(path)) {
			t.Errorf("%s: exit code %d: %s", path, cmd.ProcessState.ExitCode(), out)
		}
	}
	// A terminal stops both, as Ctrl-Z does, and a shell has both go on.
	for range 5 {
		cmd = o.command("agenttrace", "run", "--quiet", "--", "sh", "-c", "echo ready; read end; exit 5")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		testscale.Must(t, cmd.Start())
		_, _ = out.Read(make([]byte, 6))
		var stopped, ended syscall.WaitStatus
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTSTP)
		_, _ = syscall.Wait4(cmd.Process.Pid, &stopped, syscall.WUNTRACED, nil)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT)
		_ = in.Close()
		_, _ = syscall.Wait4(cmd.Process.Pid, &ended, syscall.WUNTRACED, nil)
		if !stopped.Stopped() || ended.ExitStatus() != 5 {
			t.Errorf("stopped: %#x, and when it went on: %#x", stopped, ended)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	// In the background of a script, a shell starts programs like this.
	cmd = o.command("sh", "-c", "trap '' INT && exec agenttrace run -- sh -c 'kill -INT $$ && exit 4'")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("an agent that is started to ignore Ctrl-C: %v: %s", cmd.ProcessState, out)
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
		t.Errorf("the output does not report it: %s", out)
	}
	// The store may have been left at any point. The next run goes on with it.
	o.server.Config.Handler = newOutside(t).server.Config.Handler
	mustRun(t, o.command("agenttrace", "run", "--", "agent"))
	said, whole := e2e.Weather.Want(e2e.Named("chat")), 0
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

// TestAnAnswerGoesOnWithoutTheRecorder: it is killed in the middle of an answer, the rest of which arrives.
func TestAnAnswerGoesOnWithoutTheRecorder(t *testing.T) {
	cmd := newOutside(t).command("agenttrace", "run", "--quiet", "--", "asker", "cut")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		pid, err := recorderOf(cmd.Process.Pid)
		if err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "and last")
	}))
	defer server.Close()
	cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+server.URL+"/v1")
	want := fmt.Sprintf("%x", sha256.Sum256([]byte("first and last")))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("the agent got %q: %v", out, err)
	}
}

// TestADeadStoreStopsNoAgent: the agent runs, what was recorded is in a file that is named, and importing that stores
// it.
func TestADeadStoreStopsNoAgent(t *testing.T) {
	for _, name := range []string{"file", "file/s.db"} {
		o := newOutside(t)
		testscale.Must(t, os.WriteFile(filepath.Join(o.home, "file"), []byte("no store"), 0o600))
		out, err := o.command("agenttrace", "run", "--store", name, "--", "agent").CombinedOutput()
		if err != nil {
			t.Fatalf("the agent failed: %v: %s", err, out)
		}
		path := regexp.MustCompile(`are in (\S+),`).FindSubmatch(out)
		if path == nil || bytes.Contains(out, []byte("lost")) {
			t.Fatalf("%s: it does not say where the recording is: %s", name, out)
		}
		mustRun(t, o.command("agenttrace", "import", string(path[1])))
		if d := cmp.Diff([][]string{e2e.Weather.Want(e2e.Named("chat"))}, o.sessions()); d != "" {
			t.Errorf("sessions (-said +stored):\n%s", d)
		}
	}
}

// TestRunKeepsWhatTheEnvironmentSays: the user in a base URL, and what is not reached through a proxy.
func TestRunKeepsWhatTheEnvironmentSays(t *testing.T) {
	o := newOutside(t)
	for direct, both := range map[string]string{"no_proxy=a.b": "a.b,127.0.0.1", "NO_PROXY=*": "*", "X=": "127.0.0.1"} {
		cmd := o.command("agenttrace", "run", "--quiet", "--", "sh", "-c",
			"echo ${NO_PROXY-$no_proxy} ${no_proxy-$NO_PROXY} $OPENAI_BASE_URL")
		cmd.Env = append(cmd.Env, "HTTP_PROXY=http://p", "OPENAI_BASE_URL=https://u:pw@h/v%201?k=v", direct)
		out, err := cmd.CombinedOutput()
		want := regexp.QuoteMeta(both+" "+both) + ` http://u:pw@127\.0\.0\.1:\d+/openai/v%201\?k=v\n`
		if matched, _ := regexp.Match("^"+want+"$", out); err != nil || !matched {
			t.Errorf("%s: %v: %s", direct, err, out)
		}
	}
}

// TestRunRecordsAClientOfOllama: however its variable names the server, which gets what it would without us.
func TestRunRecordsAClientOfOllama(t *testing.T) {
	o := newOutside(t)
	address := o.server.Listener.Addr().String()
	_, port, _ := strings.Cut(address, ":")
	for i, host := range []string{"http://" + address, address + "/p/", "'http://" + address + "/p'", "0.0.0.0:" + port, ":" + port} {
		o.answered(0)
		cmd := o.command("agenttrace", "run", "--", "sh", "-c", "OPENAI_BASE_URL=http://${OLLAMA_HOST#http://}/v1 agent agent.py hi")
		cmd.Env = append(cmd.Env, "OLLAMA_HOST="+host)
		out, err := cmd.CombinedOutput()
		want := `["POST","` + map[bool]string{true: "/p"}[strings.Contains(host, "/p")] + `/v1/chat/completions","` + address
		if asked := string(o.asked[len(o.asked)-1]); err != nil || !strings.HasPrefix(asked, want) || len(o.documents()) != i+1 {
			t.Errorf("%s: %v, the server got %s: %s", host, err, asked, out)
		}
	}
}

// TestARuleStopsAnAgent: one that ends when it is asked to, one that does not and starts another program for each that
// is killed, and one whose shell has left a program behind. Nothing of them is left.
func TestARuleStopsAnAgent(t *testing.T) {
	for name, script := range map[string]string{
		"heeds": "agent; exec sleep 1000", "ignores": "trap '' TERM; agent; while :; do sleep 1000; done",
		"leaves": "trap '' TERM; (sleep 1000 &); agent; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			rules := "version: 1\nstop: {grace: 300ms}\nrules:\n" +
				"  - {name: cheap, max: {tokens: 1}, actions: [stop]}\n"
			testscale.Must(t, os.WriteFile(filepath.Join(o.home, "rules.yaml"), []byte(rules), 0o600))
			cmd := o.command("agenttrace", "run", "--watch", "rules.yaml", "--", "sh", "-c", script)
			cmd.WaitDelay = time.Second // for what still runs, which has the output
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 6 ||
				!strings.Contains(string(out), `is stopped: rule "cheap" in session`) {
				t.Errorf("%v: %s", err, out)
			}
			if len(o.sessions()) != 1 {
				t.Errorf("sessions: %q", o.sessions())
			}
			files, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, file := range files {
				if env, _ := os.ReadFile(file); bytes.Contains(env, []byte("HOME="+o.home)) {
					command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
					t.Errorf("%s still runs: %q", file, command)
				}
			}
		})
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
	want := e2e.Weather.Want(e2e.Named("chat"))
	if d := cmp.Diff(slices.Repeat([][]string{want}, agents), o.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
}

// proxy starts a proxy before the server of models, and returns its address for clients, and what ends it and returns
// what it printed.
func (o *outside) proxy(t *testing.T, env ...string) (address string, stop func() string) {
	t.Helper()
	proxy := o.command("agenttrace", "proxy", "--listen", "127.0.0.1:0", "--upstream", "m="+o.server.URL)
	proxy.Env = append(proxy.Env, env...)
	stderr, err := proxy.StderrPipe()
	testscale.Must(t, errors.Join(err, proxy.Start()))
	printed := bufio.NewReader(stderr)
	line, err := printed.ReadString('\n')
	testscale.Must(t, err)
	return strings.Fields(line)[1], func() string {
		_ = proxy.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(printed)
		_ = proxy.Wait()
		return string(rest)
	}
}

// TestProxyKeepsWhatItCannotStore: a store that cannot be opened is reported once, and what waits for it at the end is
// in a file, which import stores.
func TestProxyKeepsWhatItCannotStore(t *testing.T) {
	o := newOutside(t)
	notDir := filepath.Join(t.TempDir(), "file")
	testscale.Must(t, os.WriteFile(notDir, nil, 0o600))
	address, stop := o.proxy(t, "AGENTTRACE_STORE="+filepath.Join(notDir, "s.db"))
	agent := o.command("agent")
	agent.Env = append(agent.Env, "OPENAI_BASE_URL="+address+"/v1")
	mustRun(t, agent)
	printed := stop()
	found := regexp.MustCompile(`records are in (\S+), which agenttrace import stores`).FindStringSubmatch(printed)
	if len(found) == 0 || strings.Count(printed, "what is recorded waits for the store") != 1 {
		t.Fatalf("it prints: %s", printed)
	}
	mustRun(t, o.command("agenttrace", "import", found[1]))
	if d := cmp.Diff([][]string{e2e.Weather.Want(e2e.Named("chat"))}, o.sessions()); d != "" {
		t.Errorf("sessions (-said +stored):\n%s", d)
	}
}

// TestProxyRefusesPages: what a page of another site sends from a browser is neither passed on nor recorded, also where
// the name of the site leads to this machine. So it is with all that listens while an agent runs.
func TestProxyRefusesPages(t *testing.T) {
	o := newOutside(t)
	address, stop := o.proxy(t)
	defer stop()
	agent := o.command("agenttrace", "run", "--", "sh", "-c",
		"echo $OPENAI_BASE_URL/chat/completions $OTEL_EXPORTER_OTLP_ENDPOINT/v1/traces; read end; true")
	agent.Env = append(agent.Env, "OPENAI_BASE_URL="+o.server.URL+"/v1")
	stdin, err := agent.StdinPipe()
	testscale.Must(t, err)
	stdout, err := agent.StdoutPipe()
	testscale.Must(t, errors.Join(err, agent.Start()))
	defer func() { testscale.Must(t, errors.Join(stdin.Close(), agent.Wait())) }()
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	for _, to := range append(strings.Fields(line), address+"/v1/chat/completions") {
		for _, from := range []struct {
			origin, host string
			refused      bool
		}{{"https://evil.example", "", true}, {"", "evil.example:80", true}, {"", "", false}} {
			r, err := http.NewRequest(http.MethodPost, to,
				strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
			testscale.Must(t, err)
			r.Header.Set("Content-Type", "application/json")
			if r.Host = from.host; from.origin != "" {
				r.Header.Set("Origin", from.origin)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil || (resp.StatusCode == http.StatusForbidden) != from.refused {
				t.Errorf("%s %+v: %v %v", to, from, resp, err)
			}
		}
	}
	if n := len(o.asked); n != 2 {
		t.Errorf("%d requests were passed on, want the two that are no page's", n)
	}
}

// TestProxyIsAService: a session is named by the path or goes on by its history, the token is needed where other
// machines reach it, and neither is passed on.
func TestProxyIsAService(t *testing.T) {
	o := newOutside(t)
	address, stop := o.proxy(t, "AGENTTRACE_PROXY_TOKEN=secret")
	for _, without := range []string{address, strings.TrimSuffix(address, "m") + "other"} {
		resp, err := http.Post(without+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without the token: %v %v", resp, err)
		}
	}
	agent := o.command("agent")
	agent.Env = append(agent.Env, "OPENAI_BASE_URL="+strings.Replace(address, "/m", "/session/nightly/m/v1", 1),
		"AGENT_TOKEN=secret")
	mustRun(t, agent)
	stop()
	if d := cmp.Diff([][]string{e2e.Weather.Want(e2e.Named("chat"))}, o.sessions()); d != "" {
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
