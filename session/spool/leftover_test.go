package spool

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// died is the directory of an exporter whose process was killed: its lock is gone, its files are there.
func died(t *testing.T, root string, names ...string) (dir string) {
	t.Helper()
	e := open(t, root, Options{})
	if len(names) > 0 {
		export(t, e, names...)
	}
	die(t, e)
	return e.Dir()
}

// TestADrainedSpoolLeavesNoDirectoriesBehind: also those of processes that had sent
// everything when they were killed a moment ago.
func TestADrainedSpoolLeavesNoDirectoriesBehind(t *testing.T) {
	root := t.TempDir()
	died(t, root, "a", "b", "c")
	died(t, root)
	left := died(t, root, "d", "e")
	// What it had half written.
	if err := os.WriteFile(filepath.Join(left, newName), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	lives, err := Open(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := Drain(t.Context(), root, new(network).sink())
	if err != nil || report.Spans != 5 || report.Living != 1 {
		t.Errorf("report %+v, error %v", report, err)
	}
	dirs, err := dirsOf(root)
	if err != nil || len(dirs) != 1 || dirs[0] != lives.Dir() {
		t.Errorf("directories %q, error %v; want that of the process that lives", dirs, err)
	}
	if err := lives.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if dirs, _ := dirsOf(root); len(dirs) != 0 {
		t.Errorf("in the end there are %q", dirs)
	}
}

// TestWritersAndDrainsRaceForDirectories: no span is lost, and nothing is left.
func TestWritersAndDrainsRaceForDirectories(t *testing.T) {
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
	if dirs, _ := dirsOf(root); len(dirs) != 0 {
		t.Errorf("directories are left: %q", dirs)
	}
}
