package collector

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// evidence is everything that a run left behind, by where.
type evidence map[string][]byte

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
	testscale.Must(t, err)
}

// rows adds every value of every row of the store, and what is compressed in them.
func (e evidence) rows(t *testing.T, path string) {
	t.Helper()
	conn, err := zombie.OpenConn(path, zombie.OpenReadOnly)
	testscale.Must(t, err)
	defer conn.Close()
	decoder, err := zstd.NewReader(nil)
	testscale.Must(t, err)
	defer decoder.Close()
	var tables []string
	testscale.Must(t, sqlitex.Execute(conn, "SELECT name FROM sqlite_master WHERE type = 'table'",
		&sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
			tables = append(tables, stmt.ColumnText(0))
			return nil
		}}))
	var all bytes.Buffer
	for _, table := range tables {
		testscale.Must(t, sqlitex.Execute(conn, `SELECT * FROM "`+table+`"`,
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
			}}))
	}
	e["rows"] = all.Bytes()
}

// keep writes what a run left behind where "make secrets" has it judged.
func (e evidence) keep(t *testing.T) {
	t.Helper()
	dir := os.Getenv("AGENTTRACE_EVIDENCE")
	for where, all := range e {
		name := t.Name() + "-" + strings.NewReplacer("/", "_", " ", "_").Replace(where)
		if dir == "" {
			return
		}
		testscale.WriteFile(t, filepath.Join(dir, name), all)
	}
}

// jsonlFiles is the configuration that writes a file per session below dir when the collector stops.
func jsonlFiles(dir string) string {
	return "yaml:" + literal(map[string]any{"connectors": map[string]any{"session": map[string]any{
		"jsonl": map[string]any{"directory": filepath.Join(dir, "sessions"), "quiet_period": "1h"}}}})
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

// configArgs returns the configuration of the options, with another merged into it: as arguments, and as URIs.
func configArgs(t *testing.T, o *Options, more string) (args, uris []string) {
	t.Helper()
	uris, err := o.resolve()
	testscale.Must(t, err)
	uris = append(uris, more)
	for _, uri := range uris {
		args = append(args, "--config", uri)
	}
	return args, uris
}

// startProcess starts one and returns when it accepts telemetry.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	testscale.Must(t, err)
	if !slices.Contains(args, "--config") {
		args = append(args, "--http-endpoint", testscale.MustAddress())
	}
	p := &process{cmd: exec.Command(self, args...), printed: new(lockedBuffer), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envCollect+"=1")
	out, err := p.cmd.StderrPipe()
	testscale.Must(t, err)
	p.cmd.Stdout = p.printed
	testscale.Must(t, p.cmd.Start())
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
	testscale.Must(t, p.cmd.Process.Signal(os.Interrupt))
	<-p.read
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the collector did not stop well: %v\n%s", err, p.printed.bytes())
	}
}

// kill ends the process without a word.
func (p *process) kill(t *testing.T) {
	t.Helper()
	testscale.Must(t, p.cmd.Process.Kill())
	<-p.read
	_ = p.cmd.Wait() // the error is that it was killed
}

func (p *process) output() []byte { return p.printed.bytes() }
