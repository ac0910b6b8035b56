package collector

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/session/api"
)

// A program that follows the API of a collector gets what is imported through it, until the collector stops.
func TestProgramsFollowTheAPIOfACollector(t *testing.T) {
	clean(t)
	r, err := Start(t.Context(), Options{Store: filepath.Join(t.TempDir(), "s.db")})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path string, body io.Reader) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.ViewEndpoint()+api.Prefix+path, body)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", keyOf(t, r))
		return http.DefaultClient.Do(req)
	}
	stream, err := send("GET", "events", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	file, err := os.Open("../session/testdata/reference.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	answer, err := send("POST", "import", file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || !strings.Contains(string(content), `"sessions_added":3`) {
		t.Fatalf("the file is imported as %s (%v)", content, err)
	}
	sessions := 0
	lines := bufio.NewScanner(stream.Body)
	for sessions < 3 && lines.Scan() {
		if lines.Text() == "event: session" {
			sessions++
		}
	}
	if sessions != 3 {
		t.Errorf("%d events of sessions came, then %v", sessions, lines.Err())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("the collector waits for a stream: %v", err)
	}
	for lines.Scan() {
	}
}
