package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlstore"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// roleVariable makes the test binary play a part in another process.
const roleVariable = "AGENTTRACE_SQLITE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Args[1]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// roles are what other processes do with the store at a path.
var roles = map[string]func(path string) error{
	"hold":  holdStore,
	"write": writeForever,
	"open":  openEveryWay,
}

// process is the test binary in one of its roles.
type process struct {
	*osexec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func start(t *testing.T, role, path string, prepare ...func(*osexec.Cmd)) *process {
	t.Helper()
	binary, err := os.Executable()
	testscale.Must(t, err)
	cmd := osexec.Command(binary, path)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	for _, f := range prepare {
		f(cmd)
	}
	stdin, err := cmd.StdinPipe()
	testscale.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	testscale.Must(t, err)
	testscale.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &process{cmd, stdin, bufio.NewScanner(stdout)}
}

// line returns the next line that the process prints, or "" at the end.
func (p *process) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// all returns every line until the process ends.
func (p *process) all() []string {
	var all []string
	for p.lines.Scan() {
		all = append(all, p.lines.Text())
	}
	return all
}

// holdStore opens the store and keeps it until its input ends.
func holdStore(path string) error {
	s, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// writeForever writes turns from several goroutines and prints each that was acknowledged.
func writeForever(path string) error {
	s, err := Open(context.Background(), path, Options{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				b := turnBatch(fmt.Sprintf("ses_%d", w), id)
				if _, err := s.Apply(context.Background(), &b); err != nil {
					fmt.Println("error:", err)
					return
				}
				mu.Lock()
				fmt.Println("stored", fmt.Sprintf("ses_%d", w), id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return nil
}

// openEveryWay opens the store for writing and for reading and prints what came of it.
func openEveryWay(path string) error {
	s, err := Open(context.Background(), path, Options{})
	if err == nil {
		s.Close()
	}
	fmt.Println("write:", err)
	r, err := OpenReader(context.Background(), path)
	fmt.Println("read:", err)
	if err != nil {
		return nil
	}
	defer r.Close()
	for row, err := range r.Sessions(context.Background(), store.SessionQuery{}) {
		fmt.Println("session:", row.ID, err)
	}
	return nil
}

// at is when everything in these tests happened, Unix milliseconds.
const at = 1_795_000_000_000

// turnBatch is one turn of a session: two messages with a part each, and a span.
func turnBatch(sessionID, id string) store.Batch {
	var b store.Batch
	b.Sessions = []store.SessionChange{{ID: sessionID, Start: at, End: at}}
	for _, role := range []string{session.RoleUser, session.RoleAssistant} {
		message := role + "-" + id
		b.Messages = append(b.Messages, store.MessageChange{ID: message, SessionID: sessionID, Role: role,
			CreatedAt: at,
			UpdatedAt: at, Rank: store.RankFinal})
		b.Parts = append(b.Parts, store.PartChange{ID: "part-" + message, MessageID: message, SessionID: sessionID,
			Type: "text",
			Data: []byte(`{"type":"text","text":"` + strings.Repeat("word ", 100) + `"}`), CreatedAt: at, UpdatedAt: at,
			Rank: store.RankFinal})
	}
	b.SpanRefs = []store.SpanRef{{TraceID: "trace", SpanID: id, SessionID: sessionID, MessageID: "assistant-" + id,
		Kind: "session.turn", Dialect: "test",
		StartNano: at * 1e6, EndNano: at * 1e6, TurnStats: &store.TurnStats{Usage: &session.Usage{Input: 1}}}}
	return b
}

// bigBatch is session n with 64 KiB of text.
func bigBatch(n int) store.Batch {
	b := turnBatch(fmt.Sprintf("ses_%d", n), fmt.Sprint(n))
	b.Parts[0].Data = []byte(`{"type":"text","text":"` + strings.Repeat("0123456789abcdef", 4096) + `"}`)
	return b
}

func open(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	testscale.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openReader opens a store until the test ends.
func openReader(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := OpenReader(t.Context(), path)
	testscale.Must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "sessions.db") }

func apply(t *testing.T, s *Store, b store.Batch) {
	t.Helper()
	if _, err := s.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// sound fails the test unless the file is whole and every session in it is.
func sound(t *testing.T, path string) {
	t.Helper()
	if got := testscale.Query(t, path, "PRAGMA integrity_check"); !slices.Equal(got, []string{"ok"}) {
		t.Errorf("integrity: %q", got)
	}
	if got := testscale.Query(t, path, "PRAGMA foreign_key_check"); got != nil {
		t.Errorf("foreign keys: %q", got)
	}
	storetest.CheckSessions(t, openReader(t, path))
}

// run has do executed in a transaction and returns when it is committed.
func run(ctx context.Context, s *Store, do func(*tx) error) error {
	return s.start(ctx, func(t sqlstore.Tx) error { return do(t.(*tx)) })()
}
