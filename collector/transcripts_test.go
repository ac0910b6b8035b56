package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// claudeTurn is a turn of a transcript of Claude Code.
func claudeTurn(n int) string {
	parent := "null"
	if n > 0 {
		parent = fmt.Sprintf(`"a%d"`, n-1)
	}
	return fmt.Sprintf(`{"type":"user","uuid":"u%d","parentUuid":%s,"sessionId":"grows",`+
		`"timestamp":"2026-05-01T10:0%d:00Z",`+
		`"message":{"role":"user","content":"task %d with password=hunter2hunter2"}}`+"\n", n, parent, n, n) +
		fmt.Sprintf(`{"type":"assistant","uuid":"a%d","parentUuid":"u%d","sessionId":"grows",`+
			`"timestamp":"2026-05-01T10:0%d:09Z",`+
			`"message":{"id":"m%d","role":"assistant","model":"claude-x","content":[{"type":"text","text":"done %d"}],`+
			`"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}}`+"\n", n, n, n, n, n)
}

// A collector that follows a directory has a transcript that grows while it takes telemetry, in
// the rows that an import gives.
func TestCollectorFollowsTranscripts(t *testing.T) {
	clean(t)
	dir, stores := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "-work", "grows.jsonl")
	testscale.Must(t, os.Mkdir(filepath.Dir(file), 0o700))
	text := ""
	grow := func(n int) {
		text += claudeTurn(n)
		testscale.WriteFile(t, file, text)
	}
	grow(0)
	endpoint := testscale.MustAddress()
	path := filepath.Join(stores, "sessions.db")
	config := filepath.Join(stores, "collector.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}
exporters: {session: {path: %q, transcripts: {directories: [%q]}}}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [session]}
    logs: {receivers: [otlp], exporters: [session]}
  telemetry: {metrics: {level: none}, logs: {level: error}}
`, endpoint, path, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	r := started(t, Options{Config: []string{config}})
	reader := testscale.Open(t, sqlite.OpenReader, path)
	transcript := func(messages int) *session.Transcript {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			got, err := reader.Transcript(t.Context(), "grows")
			if err == nil && len(got.Messages) == messages {
				return got
			}
			if time.Now().After(end) {
				t.Fatalf("%d messages are wanted, there is %+v, %v", messages, got, err)
			}
		}
	}
	transcript(2)
	for n := 1; n < 3; n++ {
		grow(n)
		testscale.Must(t, send(t, endpoint, oneRun(fmt.Sprint("ses_", n))))
		transcript(2 + 2*n)
	}
	got := transcript(6)

	// The store knows the file: an import of it has nothing to do.
	for known := false; !known; time.Sleep(20 * time.Millisecond) {
		files, err := reader.ImportSources(t.Context(), "")
		testscale.Must(t, err)
		known = slices.ContainsFunc(files, func(f store.ImportSource) bool { return f.Size == int64(len(text)) })
	}
	stop(t, r)
	again, want := imported(t, path, dir), imported(t, filepath.Join(stores, "whole.db"), dir)
	if !again.Summary.Files[0].Same || again.Summary.Total.Rows > 0 {
		t.Errorf("an import after the collector did: %+v", again.Summary.Total)
	}
	whole := storetest.Transcript(t, want.Store(), "grows")
	if diff := cmp.Diff(whole, got); diff != "" {
		t.Errorf("(-imported +collected):\n%s", diff)
	}
}

// imported imports a directory into the store at path.
func imported(t *testing.T, path, dir string) *importer.Importer {
	t.Helper()
	im, err := importer.New(path, importer.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := im.Close(); err != nil {
			t.Error(err)
		}
	})
	if failed, err := im.Run(t.Context(), importer.Inputs([]string{dir}, nil, nil)); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return im
}
