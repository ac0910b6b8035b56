package spool

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

var crashes = flag.Int("crashes", testscale.Rounds(4, 60), "how many processes TestCrash kills")

// printer prints each span that its exporter took.
type printer struct{ sdktrace.SpanExporter }

func (p *printer) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := p.SpanExporter.ExportSpans(ctx, spans); err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range spans {
		sc := s.SpanContext()
		fmt.Fprintf(&b, "span %s %s\n", sc.TraceID(), sc.SpanID())
	}
	_, err := os.Stdout.WriteString(b.String())
	return err
}

// runAgent is an agent that works until it is killed, and prints the spans that
// were acknowledged. Its collector comes and goes, so that it drains as well; what
// it sends there goes to another spool, which represents it.
func runAgent(root string) error {
	seed := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	collector, err := Open(filepath.Join(root, "collector"), Options{Sync: SyncNever})
	if err != nil {
		return err
	}
	policy := SyncNever // kill -9 takes nothing, whatever it is; syncing makes this slow
	if n := seed.IntN(30); n < 2 {
		policy = []Sync{SyncInterval, SyncEvery}[n]
	}
	network := &flaky{SpanExporter: collector.SpanExporter(), r: seed}
	e, err := Open(filepath.Join(root, "agent"), Options{Spans: network, Sync: policy,
		MaxFileBytes: 8 << 10, MaxTotalBytes: 1 << 30})
	if err != nil {
		return err
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(&printer{&impatient{e, e.SpanExporter()}}))
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewSimpleProcessor(e.LogExporter())))
	for n := 0; ; n++ {
		tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp, LoggerProvider: lp})
		sess := tracer.NewSession(context.Background(), agenttrace.SessionOptions{Agent: "coder"})
		ctx, run := sess.StartRun(context.Background(), agenttrace.RunOptions{Model: agenttrace.Model{ID: "m"}})
		for range 3 {
			turnCtx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "question"}, agenttrace.TurnOptions{})
			_, call := turn.StartModelCall(turnCtx, agenttrace.ModelCallOptions{})
			call.Text(strings.Repeat("an answer ", seed.IntN(200)))
			call.End(agenttrace.ModelResult{}, nil)
			_, tool := turn.StartTool(turnCtx, agenttrace.ToolOptions{ID: fmt.Sprint("call_", n), Name: "read",
				Input: []byte(`{"path":"x"}`)})
			tool.End("content")
			turn.End(agenttrace.TurnResult{})
		}
		run.End(nil)
	}
}

// flaky is a network that fails for a while now and then.
type flaky struct {
	sdktrace.SpanExporter
	r    *rand.Rand
	fail int
}

func (f *flaky) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if f.fail == 0 && f.r.IntN(8) == 0 {
		f.fail = 1 + f.r.IntN(20)
	}
	if f.fail > 0 {
		f.fail--
		return errNetwork
	}
	return f.SpanExporter.ExportSpans(ctx, spans)
}

// impatient does not wait after a failure.
type impatient struct {
	e *Exporter
	sdktrace.SpanExporter
}

func (i *impatient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	i.e.answered()
	return i.SpanExporter.ExportSpans(ctx, spans)
}

// start runs the test binary in one of its roles.
func start(t *testing.T, role, root string) (*exec.Cmd, *bufio.Scanner, io.Closer) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, root)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out), in
}

// TestCrash kills agents that spool and drain, at any moment. Every span whose
// export returned nil is at the collector or in the spool; and in a store, after
// all was drained, once, and every session is valid.
func TestCrash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	acknowledged := make(map[string]bool)
	take := func(line string) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "span" && len(f[2]) == 16 {
			acknowledged[f[1]+" "+f[2]] = true
		} else if len(f) > 0 && f[0] == "error:" {
			t.Fatal(line)
		}
	}
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in := ingest.New(s, ingest.Options{})
	to := Sink{
		Traces: func(ctx context.Context, td ptrace.Traces) error { _, err := in.Traces(ctx, td); return err },
		Logs:   func(ctx context.Context, ld plog.Logs) error { _, err := in.Logs(ctx, ld); return err },
	}
	var delivered int64
	tails := 0
	root := t.TempDir()
	for n := range *crashes {
		cmd, lines, _ := start(t, "agent", root)
		for range r.IntN(80) {
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
		if n%20 != 19 && n != *crashes-1 {
			continue
		}
		for _, name := range []string{"collector", "agent"} {
			report, err := Drain(t.Context(), filepath.Join(root, name), to)
			if err != nil {
				t.Fatal(err)
			}
			delivered += report.Spans
			for _, err := range report.Damages {
				if !errors.Is(err, otlpfile.ErrCut) {
					t.Errorf("no tail: %v", err)
				}
				tails++
			}
			if report.Living != 0 {
				t.Errorf("%d processes are taken to be alive", report.Living)
			}
			if left, _ := spooled(t, filepath.Join(root, name)); len(left) > 0 {
				t.Errorf("%d items are left after all was sent", len(left))
			}
		}
		root = t.TempDir()
	}
	found := make(map[string]int)
	for row, err := range s.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		transcript, err := s.Transcript(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range session.Check(transcript) {
			t.Errorf("session %s: %s", row.ID, v)
		}
		links, err := s.SpanRefs(t.Context(), row.ID)
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
	t.Logf("%d agents killed, %d acknowledged spans found; %d were delivered, %d files ended in a tail", *crashes,
		len(acknowledged), delivered, tails)
}

// TestLiving: what a process that lives has spooled is left alone; when it is
// dead it is sent.
func TestLiving(t *testing.T) {
	root := t.TempDir()
	cmd, lines, _ := start(t, "hold", root)
	if lines.Scan(); lines.Text() != "spooled" {
		t.Fatalf("the other process prints %q", lines.Text())
	}
	n := &network{}
	report, err := Drain(t.Context(), root, n.sink())
	if err != nil || report.Living != 1 || len(n.names) != 0 {
		t.Fatalf("%+v, %v, %q", report, err, n.names)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	report, err = Drain(t.Context(), root, n.sink())
	if err != nil || report.Living != 0 || sorted(n.names) != "a b record" || report.Spans != 2 ||
		report.Records != 1 ||
		report.Files != 1 {
		t.Fatalf("%+v, %v, %q", report, err, n.names)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
}

func holdSpool(root string) error {
	ctx := context.Background()
	e, err := Open(root, Options{})
	if err != nil {
		return err
	}
	err = errors.Join(e.SpanExporter().ExportSpans(ctx, spansOf("a", "b")),
		e.LogExporter().Export(ctx, recordsOf("record")))
	if err != nil {
		return err
	}
	fmt.Println("spooled")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// TestFull: on a disk that is full for real, what is spooled stays, what is not is
// counted, and when there is room it goes on.
func TestFull(t *testing.T) {
	root := t.TempDir()
	cmd, lines, _ := start(t, "fill", root)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	if err := cmd.Wait(); err != nil || len(all) != 1 {
		t.Fatalf("%q, %v", all, err)
	}
	names, damages := spooled(t, root)
	if len(damages) != 0 || sorted(names) != all[0] {
		t.Errorf("spooled %q, %v; acknowledged %q", names, damages, all[0])
	}
}

// fillDisk spools until its file may not grow, and then more, and prints what was
// acknowledged.
func fillDisk(root string) error {
	ctx := context.Background()
	signal.Ignore(syscall.SIGXFSZ)
	e, err := Open(root, Options{})
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := old
	limit.Cur = 3000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	var acknowledged []string
	lost := 0
	for _, name := range numbered("r", 40) {
		err := e.SpanExporter().ExportSpans(ctx, spansOf(name))
		var l *LostError
		switch {
		case err == nil:
			acknowledged = append(acknowledged, name)
		case errors.As(err, &l) && l.Spans == 1 && errors.Is(err, syscall.EFBIG):
			lost++
		default:
			return err
		}
	}
	var l *LostError
	if err := e.ForceFlush(ctx); lost == 0 || len(acknowledged) == 0 || !errors.As(err, &l) || l.Spans != int64(lost) {
		return fmt.Errorf("flush after %d were lost: %w", lost, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := e.SpanExporter().ExportSpans(ctx, spansOf("z")); err != nil {
		return err
	}
	if err := e.Close(ctx); err != nil {
		return err
	}
	fmt.Println(sorted(append(acknowledged, "z")))
	return nil
}
