package collector

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session/codec/otlpfile"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// What collect keeps with --keep-otlp holds spans and records without the secrets in them, over restarts, private to
// the user, and the sessions of a store can be built from it, also in one that has them.
func TestKeptTelemetryBuildsTheSessionsAnew(t *testing.T) {
	clean(t)
	dir, path := filepath.Join(t.TempDir(), "kept"), filepath.Join(t.TempDir(), "sessions.db")
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	for round, id := range []string{"ses_1", "ses_2"} {
		r := started(t, Options{Store: path, KeepOTLP: dir})
		td := oneRun(id)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().PutStr(string(semconv.SessionTitleKey),
			"deploy with "+secret)
		testscale.Must(t, send(t, r.Endpoint(), td))
		conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		testscale.Must(t, err)
		ld := plog.NewLogs()
		rec := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		rec.SetTimestamp(1_795_198_540_000_000_000)
		rec.Attributes().PutStr("session.id", "log-"+id)
		rec.Attributes().PutStr("role", "user")
		rec.Attributes().PutStr("content", "asked in round "+string(rune('1'+round)))
		if _, err := plogotlp.NewGRPCClient(conn).Export(t.Context(),
			plogotlp.NewExportRequestFromLogs(ld)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		testscale.Must(t, r.Shutdown(context.Background()))
	}

	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for _, target := range []string{filepath.Join(t.TempDir(), "rebuilt.db"), path} {
		s, err := sqlite.Open(t.Context(), target, sqlite.Options{})
		testscale.Must(t, err)
		in := ingest.New(s, ingest.Options{})
		for _, name := range files {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v: others can read it", name, info.Mode(), err)
			}
			f, err := os.Open(name)
			testscale.Must(t, err)
			for body, err := range otlpfile.Read(f, otlpfile.Options{}) {
				testscale.Must(t, err)
				if plain, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(body.Traces); strings.Contains(string(plain),
					secret) {
					t.Errorf("%s holds a secret", name)
				}
				if _, err := in.Traces(t.Context(), body.Traces); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Logs(t.Context(), body.Logs); err != nil {
					t.Fatal(err)
				}
			}
			f.Close()
		}
		if all := storetest.List(t, s, store.SessionQuery{Limit: -1}); len(all) != 4 {
			t.Errorf("%s has sessions %+v, want 4", target, all)
		}
		testscale.Must(t, s.Close())
	}
}
