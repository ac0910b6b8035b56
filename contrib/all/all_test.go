package alltrace_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/e2e"
)

// example builds the example with a command that is "go build" or its like, runs it, and returns its output.
func example(t *testing.T, command ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "example")
	command = append(command, "-o", path, "./internal/example")
	build := exec.CommandContext(t.Context(), command[0], command[1:]...)
	build.Env = append(os.Environ(), "ORCHESTRION_LOG_LEVEL=WARN")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	script := &e2e.Script{Turns: []e2e.Turn{
		{User: "Are you there?", Steps: []e2e.Step{{Text: "Yes.", Input: 40, Output: 2}}},
	}}
	var urls []string
	for _, api := range []string{"anthropic", "chat", "gemini", "bedrock converse"} {
		server := httptest.NewServer(&e2e.Server{API: e2e.Named(api), Script: script})
		defer server.Close()
		urls = append(urls, server.URL)
	}
	out, err := exec.CommandContext(t.Context(), path, urls...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestClientsAreRecordedWithoutAChange builds a program with and without orchestrion.
func TestClientsAreRecordedWithoutAChange(t *testing.T) {
	if got := example(t, "go", "build"); got != "" {
		t.Errorf("without orchestrion there is recorded %q", got)
	}
	const want = `{"type":"text","text":"Are you there?"} {"type":"text","text":"Yes."} end_turn, 40+2 tokens
{"type":"text","text":"Are you there?"} {"type":"text","text":"Yes."} stop, 40+2 tokens
{"type":"text","text":"Are you there?"} {"type":"text","text":"Yes."} STOP, 40+2 tokens
{"type":"text","text":"Are you there?"} {"type":"text","text":"Yes."} end_turn, 40+2 tokens
`
	// Orchestrion compiles everything that the program needs, the standard library, too. That takes minutes, and a third
	// less without optimization.
	got := example(t, "go", "run", "github.com/DataDog/orchestrion", "go", "build", "-gcflags=all=-N -l")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}
