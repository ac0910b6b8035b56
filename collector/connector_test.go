package collector

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/formats"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// TestConnector sends the log records of a client that sends nothing else, the last of them over several connections at
// once. The session reaches the second place as the spans that an export of it has, when its turn has ended. The
// collector is killed before it has an answer: then the same bytes arrive again, and nothing else.
func TestConnector(t *testing.T) {
	clean(t)
	t.Setenv("AGENTTRACE_LOG_LEVEL", "info")
	second := receiveAt(t)
	second.traces = make(chan ptrace.Traces) // a request is answered when it is read
	o := Options{Store: filepath.Join(t.TempDir(), "sessions.db"), GRPCEndpoint: testscale.MustAddress(),
		HTTPEndpoint: testscale.MustAddress(), ViewEndpoint: testscale.MustAddress(), OTLPEndpoint: second.endpoint}
	args, uris := configArgs(t, &o, "yaml:connectors::session::spans::settle: 1s")
	post := func(name string) {
		body, err := os.ReadFile("../session/ingest/testdata/captures/codex-cli-0.169.0/exec-shell/" + name)
		var answer *http.Response
		if err == nil {
			answer, err = http.Post("http://"+o.HTTPEndpoint+"/v1/logs", "application/json", bytes.NewReader(body))
		}
		if err != nil || answer.Body.Close() != nil {
			t.Error(err)
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	begun := started(t, Options{Config: uris})
	post("001-logs.json")
	if stop(t, begun); second.requests.Load() > 0 {
		t.Error("a turn was sent whose call goes on")
	}
	killed := startProcess(t, args...)
	var senders sync.WaitGroup
	for _, name := range []string{"001-logs.json", "006-logs.json", "001-logs.json", "006-logs.json"} {
		senders.Go(func() { post(name) })
	}
	senders.Wait()
	until(t, "the spans arrive", func() bool { return second.requests.Load() == 1 })
	killed.kill(t)
	got := []ptrace.Traces{<-second.traces}
	again := started(t, Options{Config: uris})
	got = append(got, <-second.traces)
	stop(t, again)
	stop(t, started(t, Options{Config: uris}))
	reader := testscale.Open(t, sqlite.OpenReader, o.Store)
	s, err := formats.Read(t.Context(), reader, "01a1fa2f-1e4a-7b31-a55d-4564d5182253")
	testscale.Must(t, err)
	want, err := formats.TurnSpans(s, func(string, string, string) bool { return true })
	if n := second.requests.Load(); err != nil || want.SpanCount() != 4 || n != 2 {
		t.Fatalf("an export has %d spans, %v, and %d requests arrived", want.SpanCount(), err, n)
	}
	// Requests have a bound, so that servers take them.
	o.Store, o.HTTPEndpoint, o.GRPCEndpoint = o.Store+".bounded", testscale.MustAddress(), testscale.MustAddress()
	_, uris = configArgs(t, &o, "yaml:connectors::session::spans: {settle: 1s, max_size: 1}")
	begun = started(t, Options{Config: uris})
	post("001-logs.json")
	post("006-logs.json")
	for _, n := range []int{2, 1, 1} { // that of the session with the first
		if td := <-second.traces; td.SpanCount() != n {
			t.Errorf("a bounded request has %d spans instead of %d", td.SpanCount(), n)
		}
	}
	stop(t, begun)
	for _, td := range got {
		same := diff.Comparer(func(x, y ptrace.Traces) bool { return reflect.DeepEqual(x, y) })
		if d := diff.Diff(want, td, same); d != "" {
			t.Errorf("spans (-exported +received):\n%s", d)
		}
	}
}
