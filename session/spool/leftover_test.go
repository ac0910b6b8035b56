package spool

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agenttrace/agenttrace/internal/testscale"
)

// TestLeftovers: what a process had half written when it was killed is not read, and removed later.
func TestLeftovers(t *testing.T) {
	root := t.TempDir()
	e := open(t, root, Options{})
	export(t, e, "a", "b", "c")
	die(t, e)
	half, old := filepath.Join(root, newPrefix+"1"), filepath.Join(root, newPrefix+"2")
	for _, path := range []string{half, old} {
		testscale.WriteFile(t, path, "half")
	}
	testscale.Must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour)))
	report, err := Drain(t.Context(), root, new(network).sink())
	if err != nil || report.Spans != 3 {
		t.Errorf("report %+v, error %v", report, err)
	}
	if left, err := filepath.Glob(filepath.Join(root, newPrefix+"*")); err != nil || !slices.Equal(left, []string{half}) {
		t.Errorf("left %q, %v", left, err)
	}
}

// TestWritersAndDrainsRace: no span is lost, and nothing is left.
func TestWritersAndDrainsRace(t *testing.T) {
	root := t.TempDir()
	var mu sync.Mutex
	drained := 0
	take := Sink{Traces: func(_ context.Context, td ptrace.Traces) error {
		mu.Lock()
		defer mu.Unlock()
		drained += td.SpanCount()
		return nil
	}}
	stop, drains, writers := make(chan struct{}), new(sync.WaitGroup), new(sync.WaitGroup)
	for range 3 {
		drains.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := Drain(t.Context(), root, take); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const each, spans = 40, 2
	for range 4 {
		writers.Go(func() {
			for range each {
				e, err := Open(root, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := e.SpanExporter().ExportSpans(t.Context(), spansOf("a", "b")); err != nil {
					t.Error(err)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	drains.Wait()
	if _, err := Drain(t.Context(), root, take); err != nil {
		t.Error(err)
	}
	if drained != 4*each*spans {
		t.Errorf("%d spans arrived, want %d", drained, 4*each*spans)
	}
	if left, _ := Files(root); len(left) != 0 {
		t.Errorf("files are left: %q", left)
	}
}
