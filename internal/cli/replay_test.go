package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/examples/codeagent"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// plannedModel is a server that speaks Chat Completions, streamed or not, answers by
// plan, and remembers what it was asked.
type plannedModel struct {
	t *testing.T

	mu    sync.Mutex
	asked []chatAsked
}

type chatAsked struct {
	Model           string           `json:"model"`
	ReasoningEffort string           `json:"reasoning_effort,omitempty"`
	Messages        []map[string]any `json:"messages"`
	Tools           []any            `json:"tools,omitempty"`

	Stream bool `json:"stream"`
}

type plannedCall struct{ name, arguments string }

// plan is what the model says after a user message, step by step.
var plan = map[string][]struct {
	text  string
	calls []plannedCall
}{
	"What is here?": {
		{"I look around.", []plannedCall{{"list", `{}`}, {"read", `{"path":"go.mod"}`}}},
		{"", []plannedCall{{"read", `{"path":"missing.go"}`}}},
		{"A Go module.", nil},
	},
	"Push it.": {
		{"", []plannedCall{{"run", `{"command":"git push"}`}}},
		{"I may not.", nil},
	},
	"Thanks.":    {{"You are welcome.", nil}},
	"Summarize.": {{"A module was looked at.", nil}},
}

func (m *plannedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked chatAsked
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		m.t.Errorf("the model was sent no JSON: %v", err)
	}
	m.mu.Lock()
	m.asked = append(m.asked, asked)
	m.mu.Unlock()
	user, step := "", 0
	for _, message := range asked.Messages {
		switch message["role"] {
		case "user":
			user, step = message["content"].(string), 0
		case "assistant":
			step++
		}
	}
	next := plan[user][step]
	if asked.Model == "careless" && user == "Push it." {
		next.calls = []plannedCall{{"run", `{"command":"git push --force"}`}}
	}
	message := map[string]any{"role": "assistant", "content": next.text}
	reason := "stop"
	var calls []map[string]any
	for i, c := range next.calls {
		reason = "tool_calls"
		calls = append(calls, map[string]any{
			"index": i, "id": fmt.Sprintf("call_%d_%d_%d", len(user), step, i), "type": "function",
			"function": map[string]string{"name": c.name, "arguments": c.arguments},
		})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	used := 100 + 10*step
	if user == "Push it." {
		used = 5000 // the context is full now
	}
	body := map[string]any{
		"id": "chatcmpl-1", "model": asked.Model,
		"usage": map[string]any{"prompt_tokens": used, "completion_tokens": 20,
			"completion_tokens_details": map[string]int{"reasoning_tokens": 5}},
	}
	choice := map[string]any{"index": 0, "finish_reason": reason}
	if !asked.Stream {
		choice["message"] = message
		body["choices"] = []any{choice}
		json.NewEncoder(w).Encode(body)
		return
	}
	choice["delta"] = message
	body["choices"] = []any{choice}
	w.Header().Set("Content-Type", "text/event-stream")
	event, _ := json.Marshal(body)
	fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", event)
}

// TestReplayAgent has a real agent ask a model, and asks again from what is stored: the requests are those that the
// agent sent, and a model that answers the same leaves a fork in which nothing differs.
func TestReplayAgent(t *testing.T) {
	model := &plannedModel{t: t}
	server := httptest.NewServer(model)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "s.db")
	rec, err := recorder.Open(t.Context(), path, recorder.Options{})
	testscale.Must(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(rec.SpanExporter()))
	prompts := []string{"What is here?", "/model gpt-5 high", "Push it.", "Thanks."}
	result, err := codeagent.Run(t.Context(), codeagent.Config{
		TracerProvider: provider, BaseURL: server.URL + "/v1", Prompts: prompts, ContextTokens: 1000,
	})
	testscale.Must(t, errors.Join(err, provider.Shutdown(t.Context()), rec.Close(t.Context())))
	sent := map[string]chatAsked{} // the first request of each turn
	for _, asked := range model.asked {
		if last := asked.Messages[len(asked.Messages)-1]; last["role"] == "user" {
			sent[last["content"].(string)] = asked
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", path}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("agenttrace %v: exit code %d (%v), want %d\n%s%s", args, got, err, code, stdout.String(),
				stderr.String())
		}
		return stdout.String()
	}
	run(0, "replay", result.SessionID)

	for turn, prompt := range []string{"What is here?", "Push it.", "Thanks."} {
		var got chatAsked
		text := run(0, "replay", result.SessionID, "--turn", fmt.Sprint(turn+1), "--format", "openai-chat")
		testscale.Must(t, json.Unmarshal([]byte(text), &got))
		want := sent[prompt]
		want.Stream = false
		for _, message := range want.Messages {
			// How the agent words a summary is its own; it leaves an empty content where the request has none.
			if text, ok := message["content"].(string); ok {
				message["content"] = strings.TrimPrefix(text, "What happened before, in short: ")
			}
			if message["content"] == "" {
				message["content"] = nil
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("turn %d (-sent +replayed):\n%s", turn+1, diff)
		}
	}
	if first := sent["Thanks."].Messages[1]["content"]; first != "A module was looked at." {
		t.Errorf("the context was not compacted: it begins with %q", first)
	}

	var reported struct {
		ForkID     string   `json:"fork_id"`
		ModelCalls int      `json:"model_calls"`
		Reused     int      `json:"recorded_outputs"`
		Open       []string `json:"open_calls"`
	}
	again := func(args ...string) {
		t.Helper()
		reported.ForkID, reported.ModelCalls, reported.Reused, reported.Open = "", 0, 0, nil
		text := run(0, append([]string{"replay", result.SessionID, "--run", "--endpoint", server.URL + "/v1", "--json"},
			args...)...)
		testscale.Must(t, json.Unmarshal([]byte(text), &reported))
		run(0, "store", "check", reported.ForkID)
	}
	again("--turn", "3")
	if reported.ModelCalls != 1 {
		t.Errorf("turn 3: %+v", reported)
	}
	run(0, "diff", result.SessionID, reported.ForkID)

	// Of the other turns the fork has no later ones.
	again("--turn", "1")
	if reported.ModelCalls != 3 || reported.Reused != 3 {
		t.Errorf("turn 1: %+v", reported)
	}
	var d struct {
		Turns []struct {
			A       int `json:"a_turn"`
			Changes []any
		}
	}
	differences := func() (turns []int) {
		t.Helper()
		testscale.Must(t, json.Unmarshal([]byte(run(1, "diff", result.SessionID, reported.ForkID, "--json")), &d))
		for _, turn := range d.Turns {
			if len(turn.Changes) > 0 {
				turns = append(turns, turn.A)
			}
		}
		return turns
	}
	if diff := cmp.Diff([]int{2, 3}, differences()); diff != "" {
		t.Errorf("turns that differ (-want +got):\n%s\n%s", diff, run(1, "diff", result.SessionID, reported.ForkID))
	}
	again("--turn", "2")
	if reported.ModelCalls != 2 || reported.Reused != 1 {
		t.Errorf("turn 2: %+v", reported)
	}
	// The summary that came after the answer stands in its turn.
	if text := run(1, "diff", result.SessionID, reported.ForkID, "--unified"); strings.Count(text, "\n    - ") != 2 ||
		!strings.Contains(text, "compaction: A module was looked at.") {
		t.Errorf("more differs than the summary and the turn after it:\n%s", text)
	}
	if diff := cmp.Diff([]int{2, 3}, differences()); diff != "" {
		t.Errorf("turns that differ (-want +got):\n%s\n%s", diff, run(1, "diff", result.SessionID, reported.ForkID))
	}

	again("--turn", "2", "--model", "careless")
	if diff := cmp.Diff([]string{"run"}, reported.Open); diff != "" || reported.Reused != 0 {
		t.Errorf("another model: %+v\n%s", reported, diff)
	}
	if diff := cmp.Diff([]int{2, 3}, differences()); diff != "" {
		t.Errorf("turns that differ (-want +got):\n%s", diff)
	}
	if text := run(0, "show", reported.ForkID); !strings.Contains(text, "git push --force") ||
		!strings.Contains(text, "careless") {
		t.Errorf("the fork does not show what the other model did:\n%s", text)
	}
}

// TestReplayRefused: a server's refusal says what to do, and stores nothing.
func TestReplayRefused(t *testing.T) {
	slow := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") {
			select {
			case <-slow:
			case <-r.Context().Done():
			}
			return
		}
		http.Error(w, `{"error":{"message":"Incorrect API key"}}`, http.StatusUnauthorized)
	}))
	defer server.Close()
	defer close(slow)
	path := filepath.Join(t.TempDir(), "s.db")
	testscale.Must(t, makeStore(path, fixture()))
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no key": {nil, []string{"--endpoint", server.URL},
			"401 Unauthorized: Incorrect API key; put a key that the server accepts into the environment variable OPENAI_API_KEY"},
		"named key": {[]string{"MINE=x"}, []string{"--endpoint", server.URL, "--key-env", "MINE"},
			"into the environment variable MINE"},
		"no variable": {nil, []string{"--endpoint", server.URL, "--format", "ai-sdk"}, "--key-env"},
		"slow": {nil, []string{"--endpoint", server.URL + "/slow", "--timeout", "50ms"},
			"deadline exceeded; --timeout waits longer than 50ms"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "agenttrace",
				append([]string{"--store", path, "replay", "last", "--run", "--force"}, c.args...)...)
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, c.env...)
			out, _ := cmd.CombinedOutput() // the exit code reports it
			if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(string(out), c.want) {
				t.Errorf("exit code %d, want 5, and %q in:\n%s", code, c.want, out)
			}
		})
	}
	r := testscale.Open(t, sqlite.OpenReader, path)
	for _, s := range storetest.Sessions(t, r) {
		if strings.Contains(s.Title, "replay") {
			t.Errorf("session %q", s.Title)
		}
	}
}
