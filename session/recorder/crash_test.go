package recorder_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/log/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

var crashes = flag.Int("crashes", testscale.Rounds(4, 40), "how many processes TestCrash kills")

// TestCrash kills agents with a recorder at random moments. Every span whose export
// returned nil is in the store once, and every session is valid.
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	r := rand.New(rand.NewPCG(1, 2))
	acknowledged := make(map[string]bool)
	take := func(line string) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "span" && len(f[2]) == 16 {
			acknowledged[f[1]+" "+f[2]] = true
		} else if f = strings.Fields(line); len(f) > 0 && f[0] == "error:" {
			t.Fatal(line)
		}
	}
	for range *crashes {
		cmd, lines := start(t, "agent", path)
		for range r.IntN(60) {
			lines.Scan()
			take(lines.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // acknowledged before it died
			take(lines.Text())
		}
		_ = cmd.Wait()
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	n := check(t, reader)
	found := make(map[string]int)
	for row, err := range reader.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		links, err := reader.SpanRefs(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			found[l.TraceID+" "+l.SpanID]++
		}
	}
	for span := range acknowledged {
		if found[span] != 1 {
			t.Fatalf("span %s was acknowledged; it is in the store %d times", span, found[span])
		}
	}
	t.Logf("%d agents killed, %d acknowledged spans found in %d sessions", *crashes, len(acknowledged), n)
}

// fillDisk records until its files must not grow any more, then raises the limit and
// flushes.
func fillDisk(path string) error {
	ctx := context.Background()
	signal.Ignore(syscall.SIGXFSZ)
	rec, err := recorder.Open(ctx, path, recorder.Options{})
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := old
	limit.Cur = 512 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	c := &capture{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c))
	r := rand.New(rand.NewPCG(1, 1))
	exp := rec.SpanExporter()
	var exported, failures int
	for range 400 {
		c.spans = nil
		agent(ctx, r, tp, noop.NewLoggerProvider())
		exported += len(c.spans)
		if err := exp.ExportSpans(ctx, c.spans); err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				return fmt.Errorf("not ErrUnavailable: %w", err)
			}
			if failures++; failures == 5 {
				break
			}
		}
	}
	var e *recorder.NotStoredError
	if err := rec.ForceFlush(ctx); failures < 5 || !errors.As(err, &e) || e.PendingSpans == 0 || e.LostSpans != 0 {
		return fmt.Errorf("flush on a full disk after %d failures: %w", failures, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := rec.ForceFlush(ctx); err != nil {
		return fmt.Errorf("flush when there is room: %w", err)
	}
	if s := rec.Stats(); s.Spans != int64(exported) || s.LostSpans != 0 {
		return fmt.Errorf("%d spans were exported: %+v", exported, s)
	}
	fmt.Println("flushed", exported)
	return rec.Close(ctx)
}
