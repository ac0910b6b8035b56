package collector

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// evidence is everything that a run left behind, by where.
type evidence map[string][]byte

// leaks returns the plants that are found somewhere.
func (e evidence) leaks(plants []plant) []string {
	var found []string
	for where, all := range e {
		for _, p := range plants {
			if i := bytes.Index(all, []byte(p.core[:24])); i >= 0 {
				found = append(found, fmt.Sprintf("%s holds %s in %s: …%q…", where, p.kind, p.place,
					all[max(0, i-60):min(len(all), i+50)]))
			}
		}
	}
	slices.Sort(found)
	return found
}

// missing returns the plants whose canary is not found: their place was not kept, so
// that nothing is proven of it.
func (e evidence) missing(where string, plants []plant) []string {
	var lost []string
	for _, p := range plants {
		if !bytes.Contains(e[where], []byte(p.canary)) {
			lost = append(lost, p.kind+" in "+p.place)
		}
	}
	return lost
}

// files adds every file below dir, as it is.
func (e evidence) files(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() == fs.ModeSocket {
			return err
		}
		b, err := os.ReadFile(path)
		e[strings.TrimPrefix(path, dir)] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rows adds every value of every row of the store, and what is compressed in them.
func (e evidence) rows(t *testing.T, path string) {
	t.Helper()
	conn, err := zombie.OpenConn(path, zombie.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	var tables []string
	if err := sqlitex.Execute(conn, "SELECT name FROM sqlite_master WHERE type = 'table'",
		&sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
			tables = append(tables, stmt.ColumnText(0))
			return nil
		}}); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, table := range tables {
		if err := sqlitex.Execute(conn, `SELECT * FROM "`+table+`"`,
			&sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
				for i := range stmt.ColumnCount() {
					b := make([]byte, stmt.ColumnLen(i))
					stmt.ColumnBytes(i, b)
					all.Write(b)
					all.WriteByte('\n')
					if len(b) > 1 && b[0] == 'z' {
						if raw, err := decoder.DecodeAll(b[1:], nil); err == nil {
							all.Write(raw)
							all.WriteByte('\n')
						}
					}
				}
				return nil
			}}); err != nil {
			t.Fatal(err)
		}
	}
	e["rows"] = all.Bytes()
}

// report fails the test for what leaked and for what proves nothing. What a run left
// behind is kept for "make secrets".
func (e evidence) report(t *testing.T, plants []plant, kept map[string][]plant) {
	t.Helper()
	if dir := os.Getenv("AGENTTRACE_EVIDENCE"); dir != "" {
		for where, all := range e {
			name := strings.Map(func(c rune) rune {
				if c == '/' || c == ' ' {
					return '_'
				}
				return c
			}, t.Name()+"-"+where)
			if err := os.WriteFile(filepath.Join(dir, name), all, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found := e.leaks(plants); len(found) > 0 {
		t.Errorf("%d secrets are where they must not be:\n%s", len(found),
			strings.Join(found[:min(len(found), 40)], "\n"))
	}
	for where, want := range kept {
		if lost := e.missing(where, want); len(lost) > 0 {
			t.Errorf("%s lacks what stood beside %d secrets: %s", where, len(lost),
				strings.Join(lost[:min(len(lost), 20)], ", "))
		}
	}
}

// attributed returns the plants of the places that stay.
func placed(plants []plant, stay func(place string) bool) []plant {
	return slices.DeleteFunc(slices.Clone(plants), func(p plant) bool { return !stay(p.place) })
}

// jsonlFiles is the configuration that writes a file per session below dir when the collector stops.
func jsonlFiles(dir string) string {
	return fragmentURI(map[string]any{"exporters": map[string]any{"session": map[string]any{
		"jsonl": map[string]any{"directory": filepath.Join(dir, "sessions"), "quiet_period": "1h"}}}})
}

// Of a secret in any place nothing is left in the store's files, those of sessions, the collector's output, or what the
// second place gets.
func TestSecretsThroughCollector(t *testing.T) {
	clean(t)
	c := newCorpus()
	second := receiveAt(t)

	dir := t.TempDir()
	path := filepath.Join(dir, "sessions.db")
	endpoint := testscale.MustAddress()
	t.Setenv("AGENTTRACE_LOG_LEVEL", "debug")
	forward, err := forwarding(second.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvStore, path)
	t.Setenv(EnvGRPCEndpoint, endpoint)
	t.Setenv(EnvHTTPEndpoint, testscale.MustAddress())
	p := startProcess(t, "--config", "config.yaml", "--config", forward, "--config", jsonlFiles(dir))
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := plogotlp.NewGRPCClient(conn).Export(t.Context(),
		plogotlp.NewExportRequestFromLogs(c.logs)); err != nil {
		t.Fatal(err)
	}
	if _, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(),
		ptraceotlp.NewExportRequestFromTraces(c.traces)); err != nil {
		t.Fatal(err)
	}
	got := <-second.traces

	e := make(evidence)
	e.files(t, dir) // while the WAL is there
	if len(e["/sessions.db-wal"]) == 0 {
		t.Error("there is no WAL to look into")
	}
	e.report(t, c.plants, nil)
	p.stop(t)

	e = make(evidence)
	e.files(t, dir)
	e.rows(t, path)
	e["output"] = p.output()
	forwarded, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(got)
	if err != nil {
		t.Fatal(err)
	}
	e["second place"] = forwarded
	for where, b := range e {
		if strings.HasPrefix(where, "/sessions/") {
			e["JSONL"] = append(e["JSONL"], b...)
		}
	}
	// A transcript has no permission decisions, prompts or errors of spans.
	beside := []string{"permission", "system prompt", "tool catalog", "span of no session", "tool by the conventions"}
	logged := []string{"live part", "status", "record of Claude Code"}
	e.report(t, c.plants, map[string][]plant{
		"rows":         placed(c.plants, func(place string) bool { return place != "span of no session" }),
		"second place": placed(c.plants, func(place string) bool { return !slices.Contains(logged, place) }),
		"JSONL":        placed(c.plants, func(place string) bool { return !slices.Contains(beside, place) }),
	})
}

// lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}

// process is a collector that runs as a process of its own.
type process struct {
	cmd     *exec.Cmd
	printed *lockedBuffer
	read    chan struct{} // closed when the process prints nothing more
}

// startProcess starts one and returns when it accepts telemetry.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(args, "--config") {
		args = append(args, "--http-endpoint", testscale.MustAddress())
	}
	p := &process{cmd: exec.Command(self, args...), printed: new(lockedBuffer), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envCollect+"=1")
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = p.printed
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // for tests that fail before they do
	accepts := make(chan struct{})
	go func() {
		defer close(p.read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		begun := false
		for lines.Scan() {
			_, _ = p.printed.Write(append(lines.Bytes(), '\n'))
			if !begun && (bytes.HasPrefix(lines.Bytes(), []byte("accepting OTLP")) ||
				bytes.Contains(lines.Bytes(), []byte("Everything is ready"))) {
				begun = true
				close(accepts)
			}
		}
	}()
	select {
	case <-accepts:
	case <-p.read:
		t.Fatalf("the collector did not start: %v\n%s", p.cmd.Wait(), p.printed.bytes())
	}
	return p
}

// stop asks the process to stop, as a service manager does, and waits until it has.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-p.read
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the collector did not stop well: %v\n%s", err, p.printed.bytes())
	}
}

// kill ends the process without a word.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.read
	_ = p.cmd.Wait() // the error is that it was killed
}

func (p *process) output() []byte { return p.printed.bytes() }
