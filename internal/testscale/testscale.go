// Package testscale has what tests of many packages share: how much they do, ports for servers that are configured with
// one before they listen, and the secrets of the corpus of package redact. A newcomer's `go test ./...` runs few rounds
// of the suites that deliver, generate or kill at random; with the build tag long, as in `make long`, they run all of
// them:
//
//	for seed := range testscale.Rounds(8, 40) {
package testscale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Tests have small heaps and make much garbage: a collection for every few MiB of it takes a fifth of their time.
func init() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(512 << 20)
	}
}

// Rounds returns few, or with the build tag long many.
func Rounds(few, many int) int {
	if Long {
		return many
	}
	return few
}

// Linear fails the test if the processor time of work grows faster than its size. It compares two sizes in one process
// instead of asking a clock, so that a busy machine does not fail it: work that grows with the square takes 256 times
// as much for sixteen times the size, and 80 times as much is taken for that.
func Linear(t *testing.T, size int, work func(size int)) {
	t.Helper()
	least := func(size int) float64 {
		best := 0.0
		for i := range 3 {
			before := CPUSeconds()
			work(size)
			if took := CPUSeconds() - before; i == 0 || took < best {
				best = took
			}
		}
		return best
	}
	small, large := least(size), least(16*size)
	const noise = 0.02 // a collection of garbage, or the clock's own step
	if large > 80*max(small, noise/16) {
		t.Errorf("size %d takes %.3f s of the processor, size %d takes %.3f s: more than in proportion",
			size, small, 16*size, large)
	}
}

// Copies returns a function that gives each test a file of its own, a copy of one that write makes when the first asks.
// It is safe for concurrent use. An empty store takes twice as long to make as to copy and open.
func Copies(write func(path string) error) func(t testing.TB) (path string) {
	made := sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "file")
		if err := write(path); err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	})
	return func(t testing.TB) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "sessions.db")
		content, err := made()
		Must(t, err)
		WriteFile(t, path, content)
		return path
	}
}

// Open opens something at a place, as a store for reading, until the test ends.
func Open[T io.Closer](t testing.TB, open func(ctx context.Context, place string) (T, error), place string) T {
	t.Helper()
	opened, err := open(t.Context(), place)
	Must(t, err)
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the content of a file that is there.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	Must(t, err)
	return content
}

// WriteFile writes a file that nobody else may read.
func WriteFile[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	Must(t, os.WriteFile(path, []byte(content), 0o600))
}

// EachSpan calls f with each span of a request, its scope and its resource.
func EachSpan(td ptrace.Traces, f func(ptrace.Span, pcommon.InstrumentationScope, pcommon.Resource)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(s, ss.Scope(), rs.Resource())
			}
		}
	}
}

// EachRecord calls f with each log record of a request, its scope and its resource.
func EachRecord(ld plog.Logs, f func(plog.LogRecord, pcommon.InstrumentationScope, pcommon.Resource)) {
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				f(r, sl.Scope(), rl.Resource())
			}
		}
	}
}

// A port is free when it is found, and its server listens later, often in another process. So
// it must not be one that a system gives meanwhile to a connection, or to a server that leaves
// the choice to it: Linux gives those from 32768 on, macOS and Windows those from 49152 on.
const (
	firstPort = 10_000
	endPort   = 32_768
)

var ports = struct {
	sync.Mutex
	found map[int]bool
}{found: make(map[int]bool)}

// Port returns a TCP port on which nobody listens on any of the hosts, and that it did not return
// before in this process. Without hosts it is a port of 127.0.0.1. It is safe for concurrent use.
func Port(hosts ...string) (int, error) {
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1"}
	}
	ports.Lock()
	defer ports.Unlock()
	err := errors.New("none is left")
	for range 100 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if ports.found[port] {
			continue
		}
		if err = listens(port, hosts); err == nil {
			ports.found[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// listens returns an error unless a server may listen on the port on each of the hosts.
func listens(port int, hosts []string) error {
	for _, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// MustAddress returns "127.0.0.1:" and a [Port], for tests. It panics when there is none.
func MustAddress() string {
	port, err := Port()
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Script executes SQL on the SQLite database at a path, as another program does. It makes the database if there is
// none.
func Script(t testing.TB, path, script string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err == nil {
		err = errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close())
	}
	Must(t, err)
}

// Query returns the rows that a query finds in the SQLite database at a path, with | between the columns.
func Query(t testing.TB, path, query string) (rows []string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	Must(t, err)
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		columns := make([]string, stmt.ColumnCount())
		for i := range columns {
			columns[i] = stmt.ColumnText(i)
		}
		rows = append(rows, strings.Join(columns, "|"))
		return nil
	}})
	Must(t, err)
	return rows
}
