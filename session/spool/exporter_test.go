package spool

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
)

// TestNetworkComesBack: what a network does not take is spooled, exports do not
// wait for it meanwhile, and when it is there again all is sent, once.
func TestNetworkComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		n := &network{}
		e := open(t, root, Options{Spans: n, Logs: logNetwork{n}})
		export(t, e, "a")
		n.fail = unreachable
		for _, name := range []string{"b", "c", "d"} {
			export(t, e, name)
		}
		testscale.Must(t, e.LogExporter().Export(t.Context(), recordsOf("log")))
		if n.calls != 2 {
			t.Errorf("%d calls; after the first failure nobody waits for another", n.calls)
		}
		<-time.After(firstWait)
		export(t, e, "e")
		if n.calls != 3 || e.wait != 2*firstWait {
			t.Errorf("%d calls, next after %v", n.calls, e.wait)
		}
		if err := e.ForceFlush(t.Context()); err != nil {
			t.Errorf("all is on the disk: %v", err)
		}
		if n.calls != 4 {
			t.Errorf("%d calls; ForceFlush tries once", n.calls)
		}
		n.fail = nil
		<-time.After(longestWait)
		export(t, e, "f")
		if got := strings.Join(n.names, " "); got != "a f b c d log e" {
			t.Errorf("arrived %s", got)
		}
		if s := e.Stats(); s.Sent.Spans != 2 || s.Spooled.Spans != 4 || s.Spooled.Records != 1 ||
			s.Drained.Spans != 4 ||
			s.Drained.Records != 1 || s.Lost.Spans != 0 {
			t.Errorf("stats %+v", s)
		}
		if left, _ := spooled(t, root); len(left) != 0 {
			t.Errorf("left %q", left)
		}
		if err := e.Close(t.Context()); err != nil || !n.down {
			t.Errorf("close: %v; the network's exporter was shut down: %v", err, n.down)
		}
		if left, err := Files(root); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

// TestAProgramEndsInTimeWithoutACollector: an exporter that never answers delays the end of a program by less than
// three seconds, and nothing is lost.
func TestAProgramEndsInTimeWithoutACollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		e := open(t, root, Options{Spans: &silent{}, Logs: silentLogs{logNetwork{&network{}}}})
		begin := time.Now()
		export(t, e, "a")
		testscale.Must(t, e.LogExporter().Export(t.Context(), recordsOf("log")))
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("all is on the disk: %v", err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if left, _ := spooled(t, root); len(left) != 2 {
			t.Errorf("on the disk %q", left)
		}
	})
}

// silent is an exporter whose collector takes requests and answers none.
type silent struct{ network }

func (*silent) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

type silentLogs struct{ logNetwork }

func (silentLogs) Export(ctx context.Context, _ []sdklog.Record) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRefused: a record that the collector never takes stays, and keeps nothing behind it from being sent.
func TestRefused(t *testing.T) {
	root := t.TempDir()
	poison := errors.New("invalid argument")
	n := &network{fail: func(names []string) error {
		if slices.Contains(names, "r003") {
			return poison
		}
		return nil
	}}
	dead := open(t, root, Options{})
	for _, name := range numbered("r", 8) {
		export(t, dead, name)
	}
	die(t, dead)
	e := open(t, root, Options{Spans: n})
	export(t, e, "new")
	want := "new r000 r001 r002 r004 r005 r006 r007"
	if got := strings.Join(n.names, " "); got != want {
		t.Errorf("arrived %s", got)
	}
	if left, damages := spooled(t, root); sorted(left) != "r003" || len(damages) != 0 {
		t.Errorf("left %q, %v", left, damages)
	}
	calls := n.calls
	if export(t, e, "newer"); n.calls != calls+1 {
		t.Errorf("what is refused is tried with every export")
	}
	want += " newer"
	report, err := Drain(t.Context(), root, n.sink())
	if !errors.Is(err, poison) || report.Kept.Spans != 1 || report.Spans != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if got := strings.Join(n.names, " "); got != want {
		t.Errorf("sent again: %s", got)
	}
}

// TestPieces: an export sends a piece of what is spooled; it goes on with the next and repeats nothing.
func TestPieces(t *testing.T) {
	root := t.TempDir()
	dead := open(t, root, Options{})
	long := strings.Repeat("x", 1<<20)
	names := numbered("r", 12)
	for _, name := range names {
		export(t, dead, name+long) // twice in a span
	}
	die(t, dead)
	n := &network{}
	e := open(t, root, Options{Spans: n})
	for i := range 12 {
		export(t, e, "new")
		if i == 0 && len(n.names) > 4 {
			t.Errorf("%d were sent at once", len(n.names))
		}
	}
	var got []string
	for _, name := range n.names {
		if name != "new" {
			got = append(got, name[:4])
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("arrived %q", got)
	}
	if left, err := Files(root); err != nil || len(left) != 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

// TestLargeBatch: a batch is spooled in records that an OTLP receiver takes; a
// span that is too large for any is lost and counted.
func TestLargeBatch(t *testing.T) {
	root := t.TempDir()
	e := open(t, root, Options{})
	text := strings.Repeat("x", 1<<19)
	var names []string
	for _, name := range numbered("r", 20) {
		names = append(names, name+text)
	}
	export(t, e, names...)
	records := 0
	files, _ := Files(root)
	for _, path := range files {
		b := testscale.ReadFile(t, path)
		for body, err := range otlpfile.Read(bytes.NewReader(b), otlpfile.Options{}) {
			testscale.Must(t, err)
			records++
			if n := (&ptrace.ProtoMarshaler{}).TracesSize(body.Traces); n > 4<<20 {
				t.Errorf("a record has %d bytes", n)
			}
		}
	}
	if got, _ := spooled(t, root); !slices.Equal(got, names) || records < 6 {
		t.Errorf("%d spans in %d records", len(got), records)
	}
	err := e.SpanExporter().ExportSpans(t.Context(), spansOf("a", strings.Repeat("x", MaxRecord), "c"))
	var l *LostError
	if !errors.As(err, &l) || l.Spans != 1 || !strings.Contains(err.Error(), "a record may have") {
		t.Errorf("a span of 128 MiB: %.200v", err)
	}
	if s := e.Stats(); s.Spooled.Spans != 22 || s.Lost.Spans != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestNeither: what is neither sent nor spooled is reported by the export, with both
// reasons, by ForceFlush once, and by Shutdown.
func TestNeither(t *testing.T) {
	n := &network{fail: unreachable}
	e := open(t, t.TempDir(), Options{Spans: n, Logs: logNetwork{n}})
	full := errors.New("no space left on device")
	e.writer.open = (&disk{open: full}).file
	var l *LostError
	if err := e.SpanExporter().ExportSpans(t.Context(), spansOf("a", "b")); !errors.As(err, &l) || l.Spans != 2 ||
		!errors.Is(err, errNetwork) || !errors.Is(err, full) {
		t.Errorf("export: %v", err)
	}
	if err := e.LogExporter().Export(t.Context(), recordsOf("x")); !errors.As(err, &l) || l.Records != 1 {
		t.Errorf("export of logs: %v", err)
	}
	if err := e.LogExporter().ForceFlush(t.Context()); !errors.As(err, &l) || l.Spans != 2 || l.Records != 1 ||
		!strings.Contains(err.Error(), "2 spans and 1 log records are neither delivered nor spooled") {
		t.Errorf("flush: %v", err)
	}
	_ = e.SpanExporter().ExportSpans(t.Context(), spansOf("c"))
	if err := e.SpanExporter().Shutdown(t.Context()); !errors.As(err, &l) || l.Spans != 1 || l.Records != 0 {
		t.Errorf("shutdown: %v", err)
	}
	_ = e.SpanExporter().ExportSpans(t.Context(), spansOf("d", "e"))
	if err := e.Close(t.Context()); !errors.As(err, &l) || l.Spans != 2 {
		t.Errorf("close: %v", err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := e.SpanExporter().ExportSpans(t.Context(), spansOf("f")); !errors.Is(err, ErrClosed) {
		t.Errorf("export after close: %v", err)
	}
}

// TestContextEnded: an export whose time is over is spooled.
func TestContextEnded(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := open(t, root, Options{Spans: &network{fail: func([]string) error { return ctx.Err() }}})
	if err := e.SpanExporter().ExportSpans(ctx, spansOf("a")); err != nil {
		t.Error(err)
	}
	if names, _ := spooled(t, root); sorted(names) != "a" {
		t.Errorf("spooled %q", names)
	}
}

// TestConcurrent exports spans and log records at once, flushing, over a network
// that fails now and then: everything arrives or is spooled.
func TestConcurrent(t *testing.T) {
	root := t.TempDir()
	n := &network{}
	n.fail = func([]string) error {
		if n.calls%3 == 0 {
			return errNetwork
		}
		return nil
	}
	e := open(t, root, Options{Spans: n, Logs: logNetwork{n}})
	var wg sync.WaitGroup
	for _, prefix := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for i, name := range numbered(prefix, 50) {
				var err error
				if e.answered(nil); prefix < "c" {
					err = e.SpanExporter().ExportSpans(t.Context(), spansOf(name))
				} else {
					err = e.LogExporter().Export(t.Context(), recordsOf(name))
				}
				if err != nil {
					t.Error(err)
				}
				if i%10 == 9 {
					if err := e.ForceFlush(t.Context()); err != nil {
						t.Error(err)
					}
				}
				_ = e.Stats()
			}
		})
	}
	wg.Wait()
	left, damages := spooled(t, root)
	all := append(left, n.names...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 200 || len(damages) != 0 {
		t.Errorf("%d of 200 arrived or are spooled; %v", len(all), damages)
	}
}

// TestDamaged: what is whole in a damaged file is sent, the rest is reported and kept for people to look at.
func TestDamaged(t *testing.T) {
	b := fileBytes(t, "a", "b", "c")
	starts := offsets(t, b)
	flipped := slices.Clone(b)
	flipped[starts[1]+20] ^= 4
	root, path := write(t, flipped)
	testscale.WriteFile(t, strings.Replace(path, "1.pb", "2.pb", 1), b[:len(b)-5])
	testscale.Must(t, os.WriteFile(filepath.Join(root, newPrefix+"1"), b[:5], 0o600))
	errorsSince()
	n := &network{}
	e := open(t, root, Options{Spans: n})
	export(t, e, "new")
	if got := strings.Join(n.names, " "); got != "new a c a b" {
		t.Errorf("arrived %s", got)
	}
	var d *otlpfile.DamagedError
	errs := errorsSince()
	if len(errs) != 2 || !errors.As(errs[0], &d) || d.Offset != int64(starts[1]) ||
		!strings.Contains(errs[0].Error(), path) {
		t.Errorf("reported %v", errs)
	}
	files, err := Files(root)
	if err != nil || len(files) != 2 || filepath.Base(filepath.Dir(files[0])) != damagedName {
		t.Fatalf("files %q, %v", files, err)
	}
	if kept, err := os.ReadFile(files[0]); err != nil || !slices.Equal(kept, flipped) {
		t.Errorf("the damaged file is not as it was: %v", err)
	}
}

// TestDrain: what a sink does not take stays, and only that; a root that is none is empty.
func TestDrain(t *testing.T) {
	if report, err := Drain(t.Context(), filepath.Join(t.TempDir(), "none"), Sink{}); err != nil || report.Spans != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	root := t.TempDir()
	dead := open(t, root, Options{})
	export(t, dead, "a", "b")
	testscale.Must(t, dead.LogExporter().Export(t.Context(), recordsOf("x", "y")))
	export(t, dead, "c")
	die(t, dead)

	ctx, cancel := context.WithCancel(t.Context())
	n := &network{}
	report, err := Drain(ctx, root, Sink{Traces: func(_ context.Context, td ptrace.Traces) error {
		cancel()
		return n.take(namesOf(td, plog.NewLogs()))
	}})
	if !errors.Is(err, context.Canceled) || report.Spans != 2 || report.Kept.Records == 0 || sorted(n.names) != "a b" {
		t.Errorf("%+v, %v, %q", report, err, n.names)
	}
	if left, _ := spooled(t, root); sorted(left) != "c x y" {
		t.Errorf("left %q", left)
	}
	report, err = Drain(t.Context(), root, Sink{Traces: n.sink().Traces})
	if err != nil || report.Spans != 1 || report.Kept.Records != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	if left, _ := spooled(t, root); sorted(left) != "x y" {
		t.Errorf("left %q", left)
	}
	n.fail, n.calls = unreachable, 0
	if report, err = Drain(t.Context(), root, n.sink()); !errors.Is(err, errNetwork) || report.Kept.Records != 2 ||
		!strings.Contains(err.Error(), "2 log records stay") {
		t.Errorf("%+v, %v", report, err)
	}
	n.fail = nil
	if report, err = Drain(t.Context(), root, n.sink()); err != nil || report.Records != 2 || report.Files != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if left, err := Files(root); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestGivesUp: a sink that is away is not asked for every record.
func TestGivesUp(t *testing.T) {
	root := t.TempDir()
	dead := open(t, root, Options{})
	for _, name := range numbered("r", 20) {
		export(t, dead, name)
	}
	die(t, dead)
	n := &network{fail: unreachable}
	if _, err := Drain(t.Context(), root, n.sink()); !errors.Is(err, errNetwork) || n.calls != patience {
		t.Errorf("%d calls, %v", n.calls, err)
	}
	if left, _ := spooled(t, root); len(left) != 20 {
		t.Errorf("left %q", left)
	}
}
