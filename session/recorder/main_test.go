package recorder_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/agenttrace"
	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/recorder"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envRecord); path != "" {
		if err := record(path); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// agent runs a session with turns, calls, tools and decisions.
func agent(ctx context.Context, r *rand.Rand, tp trace.TracerProvider, lp log.LoggerProvider) {
	tracer := agenttrace.New(agenttrace.Options{TracerProvider: tp, LoggerProvider: lp, Rules: []agenttrace.Rule{
		{Permission: "bash", Pattern: "go test *", Action: agenttrace.ActionAllow},
		{Permission: "bash", Pattern: "rm *", Action: agenttrace.ActionDeny}}})
	sess := tracer.NewSession(ctx, agenttrace.SessionOptions{Agent: "coder", Title: "Fix the test"})
	ctx, run := sess.StartRun(ctx, agenttrace.RunOptions{Model: agenttrace.Model{Provider: "openai", ID: "gpt-5-mini"}})
	for n := range 1 + r.IntN(3) {
		turnCtx, turn := run.StartTurn(ctx, agenttrace.UserMessage{Text: fmt.Sprint("question ", n)},
			agenttrace.TurnOptions{SystemPrompt: "You test."})
		for i := range 1 + r.IntN(3) {
			_, call := turn.StartModelCall(turnCtx, agenttrace.ModelCallOptions{})
			call.Reasoning("I should look.")
			call.Text(strings.Repeat("Let me see. ", r.IntN(40)))
			var failed error
			if r.IntN(5) == 0 {
				failed = errors.New("overloaded")
			}
			call.End(agenttrace.ModelResult{StopReason: "tool_calls",
				Usage: agenttrace.InclusiveUsage{Input: 900, Output: 40, CacheRead: 800}}, failed)
			command := []string{"go test ./...", "rm -rf /",
				"curl -H 'Authorization: Bearer sk-ant-REDACTED' x"}[r.IntN(3)]
			toolCtx, tool := turn.StartTool(turnCtx, agenttrace.ToolOptions{ID: fmt.Sprintf("call_%d_%d", n, i),
				Name:  "bash",
				Input: fmt.Appendf(nil, `{"cmd":%q}`, command)})
			if d := tool.Authorize(toolCtx, command); d.Allowed() {
				tool.End("ok " + strings.Repeat("line\n", r.IntN(100)))
			}
		}
		turn.End(agenttrace.TurnResult{})
		if r.IntN(3) == 0 {
			_, compaction := run.StartCompaction(ctx, agenttrace.CompactionOptions{})
			compaction.Fail(errors.New("the summary is empty"))
		}
	}
	run.End(nil)
}

// open opens a recorder that is closed with the test.
func open(t testing.TB, o recorder.Options) *recorder.Recorder {
	t.Helper()
	rec, err := recorder.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), o)
	testscale.Must(t, err)
	t.Cleanup(func() { _ = rec.Close(context.Background()) })
	return rec
}

// check fails the test unless every session of a store is valid. It returns the number of sessions.
func check(t *testing.T, r store.Reader) int {
	t.Helper()
	storetest.CheckSessions(t, r)
	return len(storetest.Sessions(t, r))
}

// rows returns every row of every table, sorted, without ids that depend on the order of arrival.
func rows(t *testing.T, path string) []string {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	testscale.Must(t, err)
	defer conn.Close()
	var tables, all []string
	err = sqlitex.ExecuteTransient(conn,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error { tables = append(tables, stmt.ColumnText(0)); return nil }})
	testscale.Must(t, err)
	for _, table := range tables {
		err := sqlitex.ExecuteTransient(conn, "SELECT * FROM "+table,
			&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
				row := table
				for i := range stmt.ColumnCount() {
					if name := stmt.ColumnName(i); table == "observations" && (name == "id" || name == "received_nano") {
						continue // of the order and the time of arrival
					}
					row += fmt.Sprintf(" | %s=%q %v", stmt.ColumnName(i), stmt.ColumnText(i), stmt.ColumnType(i))
				}
				all = append(all, row)
				return nil
			}})
		testscale.Must(t, err)
	}
	slices.Sort(all)
	return all
}
