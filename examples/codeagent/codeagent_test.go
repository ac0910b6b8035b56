package codeagent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/agenttrace/agenttracetest"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/spans"
)

var update = flag.Bool("update", false, "write the golden file")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDemo checks that the demo's session has every feature of a session.
func TestDemo(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	var progress strings.Builder
	result, err := Run(t.Context(), Config{TracerProvider: rec, Progress: &progress})
	testscale.Must(t, err)
	if err := rec.Err(); err != nil {
		t.Errorf("recorded spans: %v", err)
	}
	if open := rec.Open(); len(open) > 0 {
		t.Errorf("spans never ended: %v", open)
	}
	all := rec.Session(result.SessionID)
	turns := all.Turns()
	if len(turns) != 4 {
		t.Fatalf("%d turns, want 4", len(turns))
	}

	t.Run("result", func(t *testing.T) {
		if !result.TestsPass {
			t.Error("the tests do not pass at the end")
		}
		if _, err := os.Stat(result.Workspace); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the scratch copy is still there: %v", err)
		}
		run := rec.All().Named("session.run")
		if want := []string{run[0].SpanContext.TraceID().String()}; !slices.Equal(result.TraceIDs, want) {
			t.Errorf("trace ids = %v, want %v", result.TraceIDs, want)
		}
		runs := all.Runs()
		if len(runs) != 1 || runs[0].Outcome != "finish" || runs[0].Title != script().Prompts[1] ||
			runs[0].Mode != "build" {
			t.Errorf("runs = %+v", runs)
		}
		if !strings.Contains(progress.String(), "Rate limit reached. Trying again in 20ms.") {
			t.Errorf("no rate limit was met:\n%s", progress.String())
		}
	})

	t.Run("conversation", func(t *testing.T) {
		codectest.CheckGolden(t, "testdata/demo.golden", narrate(all), *update)
		byID := map[string]*spans.ToolCall{}
		for _, c := range all.ToolCalls() {
			byID[c.CallID] = c
		}
		if c := byID["call_why_0_1"]; c.ErrorType != "os/exec.ExitError" ||
			!strings.Contains(c.Error, "FAIL: TestLines/accents") {
			t.Errorf("the failing test is recorded as %s: %s", c.ErrorType, c.Error)
		}
		sample := txtar.Parse(scratch).Files[4].Data
		c := byID["call_check_0_0"]
		if c.OutputPath != ".agent/output/call_check_0_0.txt" || c.OutputSize != int64(len(sample)) ||
			len(c.OutputSHA256) != 64 || len(c.Output) >= len(sample) {
			t.Errorf("truncated output: %s, %d bytes, sha256 %s", c.OutputPath, c.OutputSize, c.OutputSHA256)
		}
	})

	t.Run("compactions", func(t *testing.T) {
		got := all.Compactions()
		if len(got) != 2 {
			t.Fatalf("%d compactions, want 2", len(got))
		}
		for i, c := range got {
			if !c.Auto || c.SummarizedMessages != int64(2+i) || c.TailStartID != turns[i+1].User.ID ||
				c.InputTokens == 0 ||
				c.OutputTokens == 0 {
				t.Errorf("compaction %d = %+v", i, c)
			}
			if !strings.Contains(c.Summary, "n := len(word)") {
				t.Errorf("summary %d lost the cause: %s", i, c.Summary)
			}
		}
		// The model's input before and after the first compaction.
		inputs := map[string]int64{}
		for _, call := range all.ModelCalls() {
			inputs[call.ResponseID] = call.Usage.Tokens.Input + call.Usage.Tokens.CacheRead
		}
		if before, after := inputs["chatcmpl-fix_2"], inputs["chatcmpl-check_0"]; after >= before {
			t.Errorf("the context grew over the compaction: %d, then %d tokens", before, after)
		}
	})

	t.Run("usage", func(t *testing.T) {
		sums := map[string]spans.Tokens{}
		for _, call := range rec.All().ModelCalls() {
			sums[call.MessageID] = sums[call.MessageID].Add(*call.Usage.Tokens)
		}
		var total spans.Tokens
		for i, turn := range turns {
			if turn.Usage.Tokens == nil || *turn.Usage.Tokens != sums[turn.Assistant.ID] ||
				turn.Usage.Basis != "inclusive" {
				t.Errorf("turn %d: usage %+v, want the sum of its calls %+v", i, turn.Usage, sums[turn.Assistant.ID])
			}
			if turn.Usage.CostUSD != nil {
				t.Errorf("turn %d has a cost that nobody stated", i)
			}
			total = total.Add(*turn.Usage.Tokens)
		}
		if total.Input == 0 || total.Output == 0 || total.Reasoning == 0 || total.CacheRead == 0 {
			t.Errorf("total usage = %+v", total)
		}
	})

	t.Run("sub-agent", func(t *testing.T) {
		if len(result.ChildSessionIDs) != 1 {
			t.Fatalf("children = %v, want one", result.ChildSessionIDs)
		}
		child := rec.Session(result.ChildSessionIDs[0])
		runs := child.Runs()
		if len(runs) != 1 || runs[0].ParentID != result.SessionID || runs[0].ParentMessageID != turns[2].User.ID ||
			runs[0].Agent != "reviewer" {
			t.Errorf("runs of the sub-agent = %+v", runs)
		}
		if n := len(child.Turns()); n != 1 {
			t.Errorf("%d turns of the sub-agent, want 1", n)
		}
		if c := all.ToolCalls("review"); len(c) != 1 || c[0].ChildSessionID != result.ChildSessionIDs[0] {
			t.Errorf("review calls = %+v", c)
		}
	})
}

// narrate is what happens in each turn: the models, prompts and tools, by numbers, the parts, the calls of tools and
// the decisions about them.
func narrate(all agenttracetest.Recording) string {
	var b strings.Builder
	var digests []string
	number := func(digest string) int {
		if !slices.Contains(digests, digest) {
			digests = append(digests, digest)
		}
		return slices.Index(digests, digest)
	}
	for i, turn := range all.Turns() {
		fmt.Fprintf(&b, "turn %d of %s %s, with prompt %d and tools %d, ends by %s, %s\n", i, turn.Model.ModelID,
			turn.Model.Variant, number(turn.SystemPromptDigest), number(turn.ToolCatalogDigest), turn.EndReason,
			turn.StopReason)
		if turn.ToolCatalog != "" {
			fmt.Fprintf(&b, "  edits: %t\n", strings.Contains(turn.ToolCatalog, `"edit"`))
		}
		for _, p := range turn.Assistant.Parts {
			fmt.Fprintf(&b, "  %s %s\n", p.Type, p.ToolCallID)
			if strings.HasPrefix(p.Type, "data-") || strings.Contains(string(p.Data), `"streaming"`) {
				fmt.Fprintf(&b, "    %s\n", p.Data)
			}
		}
	}
	var calls []string
	for _, c := range all.ToolCalls() {
		reason, _, _ := strings.Cut(c.Error, "\n")
		calls = append(calls, fmt.Sprintf("%s %s denied=%t truncated=%t %s\n", c.CallID, c.State, c.Denied, c.Truncated,
			reason))
	}
	for _, p := range all.Permissions() {
		calls = append(calls, fmt.Sprintf("%s is decided by %s %q: %s %s\n", p.CallID, p.Action, p.Pattern, p.Outcome,
			p.Reply))
	}
	slices.Sort(calls)
	return strings.ReplaceAll(b.String()+strings.Join(calls, ""), " \n", "\n")
}

// TestDemoRepeats runs the demo with and without telemetry: the conversation is the same,
// because telemetry must not change what an agent does.
func TestDemoRepeats(t *testing.T) {
	var first, second strings.Builder
	for w, tp := range map[*strings.Builder]*agenttracetest.Recorder{&first: nil,
		&second: agenttracetest.NewRecorder()} {
		c := Config{Progress: w}
		if tp != nil {
			c.TracerProvider = tp
		}
		if result, err := Run(t.Context(), c); err != nil || !result.TestsPass ||
			(len(result.TraceIDs) > 0) != (tp != nil) {
			t.Fatalf("result %+v, %v", result, err)
		}
	}
	seconds := regexp.MustCompile(`\d+\.\d+s|\(cached\)`) // Go may have cached the result of a test
	if diff := cmp.Diff(seconds.ReplaceAllString(first.String(), "s"),
		seconds.ReplaceAllString(second.String(), "s")); diff != "" {
		t.Errorf("two conversations (-first +second):\n%s", diff)
	}
}

// canceling cancels the run when it reads a text.
type canceling struct {
	word   string
	cancel context.CancelFunc
}

func (c canceling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.word) {
		c.cancel()
	}
	return len(p), nil
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := agenttracetest.NewRecorder()
	_, err := Run(ctx, Config{TracerProvider: rec, Progress: canceling{"Fix it.", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	turns, runs := rec.All().Turns(), rec.All().Runs()
	if len(turns) != 2 || turns[1].EndReason != "abort" || len(runs) != 1 || runs[0].Outcome != "abort" {
		t.Errorf("turns %+v, runs %+v", turns, runs)
	}
	if open := rec.Open(); len(open) > 0 {
		t.Errorf("spans never ended: %v", open)
	}
}

// TestScriptStops runs the demo with other programs than Go: the script does not claim what did
// not happen, and the error names the step.
func TestScriptStops(t *testing.T) {
	for want, script := range map[string]string{
		`"go test ./..." should report the failing test: got "ok fine"`: `echo ok fine`,
		`"go test ./..." should pass: got "exit status 1 --- FAIL: TestLines/greek"`: `case "$*" in "test ./...")
			echo "--- FAIL: TestLines/greek"; exit 1; esac`,
	} {
		dir := t.TempDir()
		testscale.Must(t, os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		t.Setenv("PATH", dir)
		result, err := Run(t.Context(), Config{TracerProvider: agenttracetest.NewRecorder()})
		if err == nil || !strings.Contains(err.Error(), want) || result.TestsPass {
			t.Errorf("error = %v, want one that contains %q", err, want)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	if _, err := Run(t.Context(), Config{Prompts: []string{"/dance"}}); err == nil || !strings.Contains(err.Error(),
		"/dance") {
		t.Errorf("error = %v, want one that names /dance", err)
	}
}

// newAgent returns an agent in a workspace with one file. Its model answers from a list.
func newAgent(t *testing.T, rec *agenttracetest.Recorder, answers ...func() (*http.Response, error)) *agent {
	t.Helper()
	a := &agent{ws: newWorkspace(t, "one\n"), limit: contextTokens, say: func(string, ...any) {},
		model: agenttrace.Model{ID: "m"}}
	a.tracer = agenttrace.New(agenttrace.Options{TracerProvider: rec, Rules: rules, Watchdog: watchdog})
	a.session = a.tracer.NewSession(t.Context(), agenttrace.SessionOptions{Agent: "test"})
	a.client = &client{baseURL: "http://model", http: http.Client{Transport: &roundTripper{answers: answers}}}
	a.equip("build")
	return a
}

// stream returns an answer that calls tools: pairs of name and arguments.
func stream(calls ...string) func() (*http.Response, error) {
	var made []toolCall
	for i := 0; i < len(calls); i += 2 {
		made = append(made, newToolCall(fmt.Sprint("call_", i/2), calls[i], calls[i+1]))
	}
	data, _ := json.Marshal(made)
	return answer(200, `data: {"choices":[{"finish_reason":"tool_calls","delta":{"tool_calls":`+string(data)+`}}]}`+"\n\n")
}

// TestModelMistakes checks that the model gets an error for its mistakes.
func TestModelMistakes(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	a := newAgent(t, rec, stream("dance", `{}`, "read", `{"file":"a.txt"}`, "read", `{"path":`, "run",
		`{"command":"go vet"}`), answer(200, hello))
	ctx, run := a.session.StartRun(t.Context(), agenttrace.RunOptions{Model: a.model})
	text, err := a.turn(ctx, run, "go")
	run.End(err)
	if text != "Hello" || err != nil {
		t.Fatalf("turn = %q, %v", text, err)
	}
	var got []string
	for _, m := range a.messages[2:6] {
		got = append(got, m.Content)
	}
	want := []string{
		`there is no tool "dance" now`,
		`read arguments: json: unknown field "file"`,
		`read arguments: unexpected EOF`,
		`permission denied: nobody is there to approve it`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	for _, c := range rec.All().ToolCalls() {
		if c.State != "output-error" {
			t.Errorf("%s %s ended as %s", c.ToolID, c.CallID, c.State)
		}
	}
	if err := rec.Err(); err != nil {
		t.Error(err)
	}
}

// TestParallelTools makes two calls that wait for each other.
func TestParallelTools(t *testing.T) {
	a := newAgent(t, agenttracetest.NewRecorder(), stream("meet", `{}`, "meet", `{}`), answer(200, hello))
	met := make(chan struct{})
	a.tools = []tool{{name: "meet", kind: agenttrace.ToolRead, subject: arguments.path,
		call: func(ctx context.Context, _ arguments) (string, error) {
			select {
			case met <- struct{}{}:
			case <-met:
			case <-ctx.Done():
			}
			return "met", ctx.Err()
		}}}
	ctx, run := a.session.StartRun(t.Context(), agenttrace.RunOptions{Model: a.model})
	defer run.End(nil)
	if text, err := a.turn(ctx, run, "meet"); text != "Hello" || err != nil {
		t.Errorf("turn = %q, %v", text, err)
	}
}

// TestModelFails checks a turn in which the server fails in the middle of a word: the
// text so far is kept, and the turn has failed.
func TestModelFails(t *testing.T) {
	rec := agenttracetest.NewRecorder()
	a := newAgent(t, rec, answer(200, hello[:strings.Index(hello, ": a comment")]))
	ctx, run := a.session.StartRun(t.Context(), agenttrace.RunOptions{Model: a.model})
	_, err := a.turn(ctx, run, "hello")
	run.End(err)
	if err == nil {
		t.Fatal("the turn succeeded")
	}
	turn := rec.All().Turns()[0]
	if turn.EndReason != "error" || !strings.Contains(turn.Error, "unexpected EOF") || len(turn.Assistant.Parts) != 1 ||
		string(turn.Assistant.Parts[0].Data) != `{"type":"text","text":"Hel","state":"streaming"}` {
		t.Errorf("turn = %+v", turn)
	}
	if runs := rec.All().Runs(); runs[0].Outcome != "error" {
		t.Errorf("run ended %s", runs[0].Outcome)
	}
}
