package collector

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/web"
)

// A program that follows the API of a collector gets what is imported through it, until the collector stops.
func TestProgramsFollowTheAPIOfACollector(t *testing.T) {
	clean(t)
	r := started(t, Options{Store: filepath.Join(t.TempDir(), "s.db")})
	send := func(method, path string, body io.Reader) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.ViewEndpoint()+web.Prefix+path, body)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", keyOf(t, r))
		return http.DefaultClient.Do(req)
	}
	stream, err := send("GET", "events", nil)
	testscale.Must(t, err)
	defer stream.Body.Close()
	file, err := os.Open("../session/testdata/reference.jsonl")
	testscale.Must(t, err)
	defer file.Close()
	answer, err := send("POST", "import", file)
	testscale.Must(t, err)
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

// packed is a text of which most is a piece that repeats, compressed.
func packed(t *testing.T, begin, piece string, times int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	testscale.Must(t, err)
	if _, err := io.WriteString(z, begin); err != nil {
		t.Fatal(err)
	}
	const each = 1000
	pieces := strings.Repeat(piece, each)
	for range times / each {
		if _, err := io.WriteString(z, pieces); err != nil {
			t.Fatal(err)
		}
	}
	testscale.Must(t, z.Close())
	return b.Bytes()
}

// Files that are small until they are unpacked or decoded are refused, and senders that do not go on hold nothing up.
func TestImportsOfOthersAreNotHeldUp(t *testing.T) {
	clean(t)
	t.Setenv("TMPDIR", t.TempDir())
	r := started(t, Options{Store: filepath.Join(t.TempDir(), "s.db")})
	defer func() { _ = r.Shutdown(context.WithoutCancel(t.Context())) }()
	key := keyOf(t, r)
	send := func(ctx context.Context, body io.Reader) (status int, content string) {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.ViewEndpoint()+web.Prefix+"import", body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", key)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		return answer.StatusCode, string(b)
	}
	reference := testscale.ReadFile(t, "../session/testdata/reference.jsonl")

	slow, cancel := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel()
	var begun []io.Closer
	for range 20 {
		body, begin := io.Pipe()
		defer begin.Close()
		begun = append(begun, begin)
		senders.Go(func() { send(slow, body) })
		if _, err := begin.Write(reference[:1000]); err != nil {
			t.Fatal(err)
		}
	}
	const head = `{"record":"session","id":"ses_big","title":"`
	for name, body := range map[string][]byte{
		"lists in JSON":      packed(t, `{"resourceSpans":[{"x":[`, "[],", 2_000_000),
		"lists in a session": packed(t, `{"session_id":"a","messages":[`, "[],", 2_000_000),
		"a text in JSON":     packed(t, head, strings.Repeat("x", 1000), 150_000),
		"bodies of OTLP":     packed(t, "", "{\"resourceSpans\":[]}\n", 1_000_000),
	} {
		if len(body) > 2<<20 {
			t.Fatalf("%s: the file has %d bytes", name, len(body))
		}
		if status, content := send(t.Context(), bytes.NewReader(body)); status != 413 ||
			!strings.Contains(content, "128 MiB") {
			t.Errorf("%s: %d %s", name, status, content)
		}
	}
	if status, content := send(t.Context(), bytes.NewReader(reference)); status != 200 ||
		!strings.Contains(content, `"sessions_added":3`) {
		t.Errorf("a file beside them: %d %s", status, content)
	}
	large := io.MultiReader(bytes.NewReader(reference), strings.NewReader(strings.Repeat("\n", 3<<20)))
	if status, content := send(t.Context(), large); status != 200 || !strings.Contains(content, `"sessions":3`) {
		t.Errorf("a file that is kept while it arrives: %d %s", status, content)
	}
	cancel()
	for _, begin := range begun {
		_ = begin.Close()
	}
	senders.Wait()
	var left []string
	var err error
	for range 500 { // until the server has noticed that the slow senders are gone
		if left, err = filepath.Glob(filepath.Join(os.TempDir(), "agenttrace-import-*")); err != nil || len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}
