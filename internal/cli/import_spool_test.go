package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/spool"
)

// TestImportSpool imports what agents that died have spooled: the directory of the
// spool, and a file of it that is damaged.
func TestImportSpool(t *testing.T) {
	root := filepath.Join(t.TempDir(), "spool")
	for _, title := range []string{"First", "Second"} {
		e, err := spool.Open(root, spool.Options{})
		testscale.Must(t, err)
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e.SpanExporter()))
		sess := agenttrace.New(agenttrace.Options{TracerProvider: tp}).NewSession(t.Context(),
			agenttrace.SessionOptions{Agent: "coder", Title: title})
		ctx, run := sess.StartRun(t.Context(), agenttrace.RunOptions{})
		_, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: "question"}, agenttrace.TurnOptions{})
		turn.End(agenttrace.TurnResult{})
		run.End(nil)
		testscale.Must(t, e.Close(t.Context()))
	}
	files, err := spool.Files(root)
	if err != nil || len(files) != 4 {
		t.Fatalf("files %q, %v", files, err)
	}
	content := testscale.ReadFile(t, files[3])
	store := filepath.Join(t.TempDir(), "s.db")
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := piped(nil, append(args, "--store", store)...)
		if code != want {
			t.Fatalf("%q ends with %d: %s", args, code, stderr)
		}
		return stdout, stderr
	}

	testscale.WriteFile(t, files[3], content[:len(content)-3])
	out, errs := run(1, "import", root)
	if !strings.Contains(out, "total: 3 spans") || !strings.Contains(errs, "is cut off") {
		t.Errorf("a spool with a file that is cut off:\n%s%s", out, errs)
	}
	changed := bytes.Clone(content)
	changed[len(changed)/2] ^= 1
	testscale.WriteFile(t, files[3], changed)
	if out, errs = run(1, "import", files[3]); !strings.Contains(out, "0 spans, 0 log records") || !strings.Contains(out,
		"1 damaged") || !strings.Contains(errs, "are damaged") {
		t.Errorf("a damaged file:\n%s%s", out, errs)
	}
	testscale.WriteFile(t, files[3], content)
	run(0, "import", filepath.Dir(files[3]))
	if out, _ = run(0, "ls"); !strings.Contains(out, "First") || !strings.Contains(out, "Second") {
		t.Errorf("sessions:\n%s", out)
	}
}
