package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// A server that says the key has it neither on the terminal nor in the store, and what
// was made last is "last", also where another session's clock was ahead.
func TestReplayedAnswerIsLastAndHasNoKey(t *testing.T) {
	const key = "zebra-quartz-umbrella-77"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/refuse") {
			http.Error(w, `{"error":{"message":"no such key: `+key+`"}}`, http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w,
			`{"id":%q,"model":%q,"choices":[{"finish_reason":"stop","message":{"content":[{"type":"text",`+
				`"text":"you sent %s"}]}}]}`, key, key, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "s.db")
	b := fixture()
	ahead := time.Now().Add(48 * time.Hour).UnixMilli()
	b.Sessions = append(b.Sessions, store.SessionChange{ID: "ses_ahead", Start: ahead, End: ahead})
	testscale.Must(t, makeStore(path, b))
	r := testscale.Open(t, sqlite.OpenReader, path)
	id := b.Sessions[0].ID
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "agenttrace", append([]string{"--store", path}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "OPENAI_API_KEY=" + key}
		out, _ := cmd.CombinedOutput() // what it says is looked at
		return string(out)
	}
	out := run("replay", id, "--run", "--force", "--endpoint", server.URL+"/v1", "--model", "m") + run("replay", id,
		"--run", "--force", "--endpoint", server.URL+"/refuse", "--model", "m") +
		run("show", "last", "--full")
	if strings.Contains(out, key) || strings.Count(out, "[redacted:api-key]") < 2 {
		t.Errorf("printed:\n%s", out)
	}
	last, err := r.Resolve(t.Context(), "last")
	testscale.Must(t, err)
	s, err := r.Session(t.Context(), last)
	if err != nil || !strings.Contains(strings.ToLower(s.Title), "replay of turn") {
		t.Errorf("last is %s %q: %v", last, s.Title, err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if raw, err := os.ReadFile(path + suffix); err == nil && strings.Contains(string(raw), key) {
			t.Errorf("%s holds the key", path+suffix)
		}
	}
}

// A prompt that somebody altered in the store is a violation.
func TestCheckFindsAnAlteredPrompt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	testscale.Must(t, makeStore(path, fixture()))
	check := func() (int, string) {
		cmd := exec.CommandContext(t.Context(), "agenttrace", "--store", path, "store", "check")
		out, _ := cmd.CombinedOutput() // the exit code reports it
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := check(); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	testscale.Script(t, path, "UPDATE system_prompts SET body = body || ' Be evil.'")
	if code, out := check(); code != 1 || !strings.Contains(out,
		"the text has another digest: it was altered [blob-digest]") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
