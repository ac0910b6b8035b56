//go:build long

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

var crashes = flag.Int("crashes", 12, "how often a process is killed")

// writers share sessions: turn i of writer w is in session (w + i) % sharedSessions.
const writers, sharedSessions = 3, 4

// turnOf is what writer w reports in its ith batch: a turn, its tool call, and the title of the session, so that
// writers change the same rows.
func turnOf(w, i int) *store.Batch {
	id, at := fmt.Sprintf("ses_%d", (w+i)%sharedSessions), int64(1_700_000_000_000+1000*i+w)
	question, answer := fmt.Sprintf("msg_%d_%06d_q", w, i), fmt.Sprintf("msg_%d_%06d_r", w, i)
	text := func(message, part, what string, index int64) store.PartChange {
		data, _ := json.Marshal(map[string]string{"type": "text", "text": what})
		return store.PartChange{ID: part, MessageID: message, SessionID: id, Index: index, Type: "text", Data: data,
			CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal}
	}
	return &store.Batch{
		Sessions: []store.SessionChange{{ID: id, Start: at, End: at + 500,
			Agent: &store.Value{Text: "writer", At: at, Rank: store.RankFinal},
			Title: &store.Value{Text: fmt.Sprintf("turn %d of %d", i, w), At: at, Rank: store.RankFinal}}},
		Messages: []store.MessageChange{
			{ID: question, SessionID: id, Role: session.RoleUser, CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal},
			{ID: answer, SessionID: id, Role: session.RoleAssistant, CreatedAt: at + 1, UpdatedAt: at + 500,
				Rank: store.RankFinal},
		},
		Parts: []store.PartChange{
			text(question, fmt.Sprintf("prt_%d_%06d_q", w, i), "question", 0),
			text(answer, fmt.Sprintf("prt_%d_%06d_a", w, i), "first", 0),
			text(answer, fmt.Sprintf("prt_%d_%06d_b", w, i), "second", 1),
		},
		SpanRefs: []store.SpanRef{{SessionID: id, TraceID: fmt.Sprintf("%032x", w<<32|i+1),
			SpanID:    fmt.Sprintf("%016x", i+1),
			MessageID: answer, Kind: "session.turn", Dialect: store.DialectSDK, StartNano: at * 1e6,
			EndNano:   (at + 500) * 1e6,
			TurnStats: &store.TurnStats{Usage: &session.Usage{Input: 10, Output: 1}}}},
	}
}

// writeForever is another process: it stores batches from the first argument on, reports each that was acknowledged,
// and delivers again what was not.
func writeForever(dsn, from string) error {
	var w, i int
	if _, err := fmt.Sscanf(from, "%d:%d", &w, &i); err != nil {
		return err
	}
	var s *postgres.Store
	var err error
	for { // the server may be down right now
		if s, err = postgres.Open(context.Background(), dsn, postgres.Options{}); err == nil {
			break
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	for ; ; i++ {
		for {
			_, err := s.Apply(context.Background(), turnOf(w, i))
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrUnavailable) {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		fmt.Println(i)
	}
}

// writer is a process that writes, and how far it has come.
type writer struct {
	n      int
	dsn    string
	cmd    *exec.Cmd
	output *sync.WaitGroup

	mu    sync.Mutex
	acked int // how many batches, from 0 on, were acknowledged
	err   strings.Builder
}

func (w *writer) start(t *testing.T) {
	t.Helper()
	binary, err := os.Executable()
	testscale.Must(t, err)
	w.mu.Lock()
	w.cmd = exec.Command(binary, w.dsn, fmt.Sprintf("%d:%d", w.n, w.acked))
	w.mu.Unlock()
	w.cmd.Env = append(os.Environ(), roleVariable+"=write")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.cmd.Stderr = &w.err
	out, err := w.cmd.StdoutPipe()
	testscale.Must(t, err)
	testscale.Must(t, w.cmd.Start())
	w.output = new(sync.WaitGroup)
	w.output.Go(func() { w.follow(out) })
}

func (w *writer) follow(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if i, err := strconv.Atoi(lines.Text()); err == nil {
			w.mu.Lock()
			w.acked = i + 1
			w.mu.Unlock()
		}
	}
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

func (w *writer) kill(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatalf("writer %d has ended by itself: %v\n%s", w.n, err, w.err.String())
	}
	w.output.Wait()
	if err := w.cmd.Wait(); err == nil || w.err.Len() > 0 {
		t.Fatalf("writer %d has ended by itself: %s", w.n, w.err.String())
	}
}

// TestKilledWriters kills processes that write the same sessions, and the server, at random moments. What was
// acknowledged is there once, and all is as if one had written it in order into a file.
func TestKilledWriters(t *testing.T) {
	server := storetest.StartPostgres(t)
	dsn := server.Create(t)
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]*writer, writers)
	for n := range all {
		all[n] = &writer{n: n, dsn: dsn}
		all[n].start(t)
	}
	killed := map[string]int{}
	for range *crashes {
		time.Sleep(time.Duration(20+r.IntN(200)) * time.Millisecond)
		if r.IntN(3) == 0 {
			killed["server"]++
			testscale.Must(t, server.Kill())
			testscale.Must(t, server.Run())
			continue
		}
		killed["writer"]++
		w := all[r.IntN(len(all))]
		w.kill(t)
		w.start(t)
	}
	before := make([]int, writers)
	for n, w := range all {
		before[n] = w.count()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		alive := true
		for n, w := range all {
			alive = alive && w.count() > before[n]
		}
		if alive {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a writer does not go on")
		}
	}
	// What was in flight may be stored and not acknowledged; it is delivered again.
	last := make([]int, writers)
	for n, w := range all {
		w.kill(t)
		last[n] = w.count() + 1
	}
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	testscale.Must(t, err)
	defer s.Close()
	reference, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
	testscale.Must(t, err)
	defer reference.Close()
	for n := range all {
		if _, err := s.Apply(t.Context(), turnOf(n, last[n]-1)); err != nil {
			t.Fatal(err)
		}
		for i := range last[n] {
			if _, err := reference.Apply(t.Context(), turnOf(n, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(storetest.Lines(t, reference), storetest.Lines(t, s)); diff != "" {
		t.Errorf("the sessions differ from those that one writer stores in order (-want +got):\n%.3000s", diff)
	}
	t.Logf("killed %v; acknowledged %v batches", killed, last)
}
