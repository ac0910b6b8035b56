package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/collector"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/gate"
)

// A fact reaches the webhook once, although the server fails at first and the watch is killed before it is delivered,
// and after. Nothing that the session says is in it.
func TestWatchTellsAWebhookOnce(t *testing.T) {
	dir := t.TempDir()
	path, rules := filepath.Join(dir, "s.db"), filepath.Join(dir, "rules.yaml")
	type request struct{ id, body string }
	requests, answers := make(chan request), make(chan int)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if want := gate.Sign([]byte("key"), r.Header.Get(gate.HeaderTimestamp), body); want !=
			r.Header.Get(gate.HeaderSignature) {
			t.Errorf("the signature is %q, want %q", r.Header.Get(gate.HeaderSignature), want)
		}
		requests <- request{r.Header.Get(gate.HeaderID), string(body)}
		w.WriteHeader(<-answers)
	}))
	defer hook.Close()
	if err := os.WriteFile(rules, fmt.Appendf(nil, `
version: 1
rules:
  - name: expensive
    max: {tokens: 100}
webhook: {url: %q, secret_env: HOOK_SECRET}
`, hook.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	c := collecting(t, path, collector.Options{Store: path})
	spent := func(id string) {
		now := time.Now().UnixNano()
		body := fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"chat m","traceId":"%032x",
			"spanId":"%016x","startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[
			{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},
			{"key":"gen_ai.conversation.id","value":{"stringValue":%q}},
			{"key":"gen_ai.input.messages","value":{"stringValue":
				"[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"swordfish\"}]}]"}},
			{"key":"gen_ai.request.model","value":{"stringValue":"m"}},
			{"key":"gen_ai.usage.input_tokens","value":{"intValue":"500"}}]}]}]}]}`, now, now, now-1e9, now, id)
		resp, err := http.Post("http://"+c.HTTPEndpoint()+"/v1/traces", "application/json", strings.NewReader(body))
		testscale.Must(t, err)
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("the collector answers %s", resp.Status)
		}
	}
	start := func() (kill func()) {
		cmd := exec.CommandContext(t.Context(), "agenttrace", "--store", path, "watch", "--rules", rules)
		cmd.Env = append(os.Environ(), "HOOK_SECRET=key")
		testscale.Must(t, cmd.Start())
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	kill := start()
	spent("first")
	first := <-requests
	answers <- http.StatusInternalServerError
	if again := <-requests; again != first {
		t.Errorf("tried again: %v, want %v", again, first)
	}
	kill()
	answers <- http.StatusOK // to nobody
	kill = start()
	if again := <-requests; again != first || again.id == "" || strings.Contains(again.body, "swordfish") ||
		!strings.Contains(again.body, `"session_id":"first"`) {
		t.Errorf("after a kill: %v, want %v", again, first)
	}
	answers <- http.StatusOK
	spent("second")
	second := <-requests // is sent when the delivery of the first was noted
	kill()
	answers <- http.StatusOK
	kill = start()
	defer kill()
	if again := <-requests; again != second || second.id == first.id {
		t.Errorf("after another kill: %v, want %v", again, second)
	}
	answers <- http.StatusOK
}
