package sqlite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

var crashes = flag.Int("crashes", 20, "how many processes TestCrash kills")

// blocked makes the writing goroutine wait until the returned function is called.
func blocked(t *testing.T, s *Store) (release func()) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- run(context.Background(), s, func(*tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	return func() {
		close(leave)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// queued waits until n requests wait for the writing goroutine.
func queued(s *Store, n int) {
	for len(s.requests) < n {
		wait()
	}
}

// wait yields to other goroutines.
func wait() { <-func() chan struct{} { c := make(chan struct{}); go close(c); return c }() }

// TestGroupCommit: calls that wait at the same time share a transaction. If some of them fail or panic, each has one of
// its own, and its own error: nothing that was answered with success is missing, and of the others nothing is stored.
func TestGroupCommit(t *testing.T) {
	errBad := errors.New("bad batch")
	after := map[string]func() error{
		"":                func() error { return nil },
		"bad batch":       func() error { return errBad },
		"a bug":           func() error { panic("a bug") },
		"row was refused": func() error { return nil },
	}
	for name, fails := range map[string]map[int]string{
		"none fails": {},
		"some fail":  {7: "bad batch", 8: "a bug", 19: "bad batch"},
		// What the engine refuses is left out of a transaction of its own.
		"a row is refused": {3: "row was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, newPath(t), Options{})
			release := blocked(t, s)
			const n = 20
			transactions := make(map[*tx]bool) // one goroutine executes them all
			results, errs := make([]store.Result, n), make([]error, n)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					b := turnBatch(fmt.Sprintf("ses_%02d", i), fmt.Sprint(i))
					var result store.Result
					errs[i] = run(context.Background(), s, func(x *tx) (err error) {
						transactions[x] = true
						var in store.Tx = x
						if fails[i] == "row was refused" {
							in = refuser{x}
						}
						if result, err = store.Apply(in, &b); err != nil {
							return err
						}
						return after[fails[i]]()
					})
					results[i] = result
				})
			}
			queued(s, n)
			release()
			wg.Wait()
			if want := map[bool]int{true: 1, false: n + 1}[len(fails) == 0]; len(transactions) != want {
				t.Errorf("%d transactions, want %d", len(transactions), want)
			}
			for i, err := range errs {
				_, readErr := s.Session(t.Context(), fmt.Sprintf("ses_%02d", i))
				want, failed := fails[i]
				if failed = failed && want != "row was refused"; !failed && (err != nil || readErr != nil) {
					t.Errorf("call %d: %v, %v", i, err, readErr)
				}
				if failed && (err == nil || !strings.Contains(err.Error(), want) || !errors.Is(readErr, store.ErrNotFound)) {
					t.Errorf("call %d: %v; read %v", i, err, readErr)
				}
				if refused := results[i].Refused > 0; refused != (want == "row was refused") {
					t.Errorf("call %d: %d rows refused", i, results[i].Refused)
				}
			}
			sound(t, s.path)
		})
	}
}

// refuser is an engine that cannot hold parts of a user's message.
type refuser struct{ *tx }

func (r refuser) Do(add func(store.Statements)) error {
	return r.tx.Do(func(s store.Statements) { add(storetest.Refusing(s, "chat_parts", session.RoleUser)) })
}

// TestCanceled: a caller who stops waiting in the queue gets its error at once
// and nothing is stored; one whose commit is under way gets the commit's answer.
func TestCanceled(t *testing.T) {
	s := open(t, newPath(t), Options{})
	release := blocked(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		b := turnBatch("ses_waiting", "1")
		_, err := s.Apply(ctx, &b)
		done <- err
	}()
	queued(s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	release()

	ctx, cancel = context.WithCancel(context.Background())
	entered, leave := make(chan struct{}), make(chan struct{})
	go func() {
		done <- run(ctx, s, func(x *tx) error {
			close(entered)
			<-leave
			b := turnBatch("ses_committing", "2")
			_, err := store.Apply(x, &b)
			return err
		})
	}()
	<-entered
	cancel()
	select {
	case err := <-done:
		t.Fatalf("answered before the commit: %v", err)
	default:
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("committing: %v", err)
	}
	if _, err := s.Session(t.Context(), "ses_waiting"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the canceled batch: %v", err)
	}
	if _, err := s.Session(t.Context(), "ses_committing"); err != nil {
		t.Errorf("the committed batch: %v", err)
	}
}

// TestClose: what was accepted before Close is committed, what comes after it is
// refused, and closing twice is harmless.
func TestClose(t *testing.T) {
	path := newPath(t)
	s, err := Open(t.Context(), path, Options{})
	testscale.Must(t, err)
	release := blocked(t, s)
	const n = 5
	errs := make(chan error, n)
	for i := range n {
		go func() {
			b := turnBatch(fmt.Sprintf("ses_%d", i), fmt.Sprint(i))
			_, err := s.Apply(context.Background(), &b)
			errs <- err
		}()
	}
	queued(s, n)
	closed := make(chan error, 2)
	for range 2 {
		go func() { closed <- s.Close() }()
	}
	release()
	for range n {
		if err := <-errs; err != nil {
			t.Errorf("apply: %v", err)
		}
	}
	for range 2 {
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
	}
	b := turnBatch("ses_late", "late")
	if _, err := s.Apply(t.Context(), &b); !errors.Is(err, store.ErrClosed) {
		t.Errorf("apply after close: %v", err)
	}
	if _, err := s.Session(t.Context(), "ses_0"); err == nil {
		t.Error("read after close succeeds")
	}
	again := open(t, path, Options{})
	for i := range n {
		if _, err := again.Session(t.Context(), fmt.Sprintf("ses_%d", i)); err != nil {
			t.Error(err)
		}
	}
}

// TestMaxBytes: at the limit, which counts the log, a batch fails as a whole, the store stays sound, and goes on when
// there is room.
func TestMaxBytes(t *testing.T) {
	path := newPath(t)
	s, err := Open(t.Context(), path, Options{MaxBytes: 2 << 20})
	testscale.Must(t, err)
	failed := -1
	for i := range 100 {
		b := bigBatch(i)
		if _, err := s.Apply(t.Context(), &b); err != nil {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), path) {
				t.Errorf("batch %d: %v; want ErrUnavailable, naming the file", i, err)
			}
			failed = i
			break
		}
		if size := sizeOf(path) + sizeOf(path+"-wal"); size > 2<<20+1<<19 {
			t.Errorf("file and log have %d bytes after batch %d", size, i)
		}
	}
	if failed < 5 {
		t.Fatalf("batch %d failed", failed)
	}
	if _, err := s.Session(t.Context(), fmt.Sprintf("ses_%d", failed)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("something of the batch that failed is stored: %v", err)
	}
	if _, err := s.Transcript(t.Context(), fmt.Sprintf("ses_%d", failed-1)); err != nil {
		t.Errorf("the batch before it: %v", err)
	}
	testscale.Must(t, s.Close())
	if info, err := os.Stat(path); err != nil || info.Size() > 2<<20 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	again := open(t, path, Options{})
	apply(t, again, bigBatch(failed))
	sound(t, path)
}

// TestMaxBytesInGroup: when the file is full, calls that share a transaction each
// get the truth: what was answered with nil is stored, what was not is not.
func TestMaxBytesInGroup(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{MaxBytes: 2 << 20})
	release := blocked(t, s)
	const n = 40
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			b := bigBatch(i)
			_, errs[i] = s.Apply(context.Background(), &b)
		})
	}
	queued(s, n)
	release()
	wg.Wait()
	failed := 0
	for i, err := range errs {
		_, readErr := s.Session(t.Context(), fmt.Sprintf("ses_%d", i))
		if err != nil {
			failed++
		}
		if (err == nil) != (readErr == nil) || err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("call %d: answered %v, read %v", i, err, readErr)
		}
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	apply(t, s, store.Batch{Sessions: []store.SessionChange{{ID: "ses_small", Start: at, End: at}}})
	sound(t, path)
}

// TestMovedFile: a store whose file is gone or is another's says so, loses nothing, and goes on when the file is back.
func TestMovedFile(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "1"))
	refused := func(when string) {
		t.Helper()
		b := turnBatch("ses_2", "2")
		_, err := s.Apply(t.Context(), &b)
		_, readErr := s.Session(t.Context(), "ses_1")
		for _, err := range []error{err, readErr} {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), path+": ") {
				t.Errorf("%s: %v; want ErrUnavailable, naming the file", when, err)
			}
		}
	}
	move := func(from, to string) {
		t.Helper()
		testscale.Must(t, os.Rename(from, to))
	}
	move(path, path+".away")
	refused("moved away")
	testscale.WriteFile(t, path, "something else")
	refused("replaced")
	if b, err := os.ReadFile(path); string(b) != "something else" {
		t.Errorf("the other file changed: %q, %v", b, err)
	}
	move(path+".away", path)
	apply(t, s, turnBatch("ses_2", "2"))
	sound(t, path)
}

// TestBusy: another program that writes for a moment is waited for.
func TestBusy(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	other, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	testscale.Must(t, err)
	defer other.Close()
	testscale.Must(t, sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil))
	done := make(chan error, 1)
	go func() {
		b := turnBatch("ses_1", "1")
		_, err := s.Apply(context.Background(), &b)
		done <- err
	}()
	for range 1000 {
		wait()
	}
	testscale.Must(t, sqlitex.ExecuteTransient(other, "COMMIT", nil))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReaders: readers of other connections see one state of a session while it is written.
func TestReaders(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "first"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			r, err := OpenReader(context.Background(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for {
				transcript, err := r.Transcript(context.Background(), "ses_1")
				if err != nil {
					t.Error(err)
					return
				}
				if got, want := transcript.Session.TotalTokens, int64(len(transcript.Messages)/2); got != want {
					t.Errorf("%d tokens, %d turns", got, want)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range 100 {
		apply(t, s, turnBatch("ses_1", fmt.Sprint(i)))
	}
	close(stop)
	wg.Wait()
}

// TestOutbox: what changed is listed until it is exported, and again when it
// changed meanwhile, in the same millisecond too.
func TestOutbox(t *testing.T) {
	path := newPath(t)
	s, err := Open(t.Context(), path, Options{Outbox: true})
	testscale.Must(t, err)
	list := func() map[string]int64 {
		t.Helper()
		all, err := s.Outbox(t.Context())
		testscale.Must(t, err)
		return all
	}
	for i := range 50 {
		apply(t, s, turnBatch("ses_1", fmt.Sprint("a", i)))
		seen := list()["ses_1"]
		if seen == 0 {
			t.Fatal("a change is not listed")
		}
		apply(t, s, turnBatch("ses_1", fmt.Sprint("b", i)))
		testscale.Must(t, s.Exported(t.Context(), "ses_1", seen))
		if list()["ses_1"] == 0 {
			t.Fatal("a change made while the session was exported is forgotten")
		}
	}
	apply(t, s, turnBatch("ses_2", "c"))
	for id, at := range list() {
		if err := s.Exported(t.Context(), id, at); err != nil {
			t.Error(err)
		}
	}
	if left := list(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	apply(t, s, turnBatch("ses_2", "d"))
	testscale.Must(t, s.Close())
	s = open(t, path, Options{Outbox: true})
	if left := list(); len(left) != 1 || left["ses_2"] == 0 {
		t.Errorf("after a restart: %v", left)
	}
	without := open(t, newPath(t), Options{})
	apply(t, without, turnBatch("ses_1", "1"))
	if all, err := without.Outbox(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("a store without an outbox lists %v, %v", all, err)
	}
}

// TestCrash kills processes that write, at any moment. Every turn that was
// acknowledged is there, whole, and the file is sound.
func TestCrash(t *testing.T) {
	path := newPath(t)
	r := rand.New(rand.NewPCG(1, 2))
	type turn struct{ session, id string }
	var stored []turn
	for range *crashes {
		p := start(t, "write", path)
		for range 1 + r.IntN(120) {
			line := strings.Fields(p.line())
			if len(line) != 3 {
				t.Fatalf("the writer says %q", line)
			}
			stored = append(stored, turn{line[1], line[2]})
		}
		testscale.Must(t, p.Process.Kill())
		for _, s := range p.all() { // acknowledged before it died
			if line := strings.Fields(s); len(line) == 3 && strings.HasPrefix(line[1], "ses_") &&
				strings.Count(line[2], "-") == 2 {
				stored = append(stored, turn{line[1], line[2]})
			}
		}
		_ = p.Wait()
	}
	sound(t, path)
	reader := openReader(t, path)
	messages := make(map[string]session.MessageAndParts)
	links := make(map[turn]bool)
	for _, row := range storetest.Sessions(t, reader) {
		transcript := storetest.Transcript(t, reader, row.ID)
		for _, m := range transcript.Messages {
			messages[m.Message.ID] = m
		}
		if got, want := row.TotalTokens, int64(len(transcript.Messages)/2); got != want {
			t.Errorf("session %s has %d tokens in %d turns", row.ID, got, want)
		}
		all, err := reader.SpanRefs(t.Context(), row.ID)
		testscale.Must(t, err)
		for _, l := range all {
			links[turn{l.SessionID, l.SpanID}] = true
		}
	}
	for _, s := range stored {
		for _, role := range []string{session.RoleUser, session.RoleAssistant} {
			if m := messages[role+"-"+s.id]; len(m.Parts) != 1 {
				t.Fatalf("turn %s was acknowledged; its %s message has %d parts", s.id, role, len(m.Parts))
			}
		}
		if !links[s] {
			t.Fatalf("turn %s was acknowledged; its span is not there", s.id)
		}
	}
	t.Logf("%d processes killed, %d acknowledged turns found", *crashes, len(stored))
}
