package cli_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// sqlBlocks are the statements of a page.
var sqlBlocks = regexp.MustCompile("(?s)```sql\n(.*?)```")

// documentedQueries are the statements of all documentation, each once.
func documentedQueries(t *testing.T) (found []string) {
	t.Helper()
	shell := regexp.MustCompile(`(?m)^\s*sqlite3 \S+ (?:'([^']+)'|"([^"]+)")`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" ||
			strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range append(sqlBlocks.FindAllStringSubmatch(string(text), -1),
			shell.FindAllStringSubmatch(string(text), -1)...) {
			found = append(found, strings.TrimSuffix(strings.TrimSpace(strings.Join(m[1:], "")), ";"))
		}
		return nil
	})
	slices.Sort(found)
	if found = slices.Compact(found); err != nil || len(found) < 12 {
		t.Fatalf("%d queries, %v", len(found), err)
	}
	return found
}

// TestDocumentedQueries: every query that documentation has gives the answer in testdata, on a store of a session with
// all that is asked for, and of other agents' sessions. After -update, look at what the answers are.
func TestDocumentedQueries(t *testing.T) {
	conn := openQueried(t, filepath.Join(t.TempDir(), "s.db"))
	names := strings.NewReplacer("ses_1", main, "ses_…", main, "assistant-1", "msg_01",
		"'now', '-1 day'", "'2020-01-01'")
	var answers strings.Builder
	for _, query := range documentedQueries(t) {
		answers.WriteString(query + "\n")
		rows := 0
		err := sqlitex.ExecuteTransient(conn, names.Replace(query),
			&sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
				rows++
				for i := range stmt.ColumnCount() {
					fmt.Fprintf(&answers, " | %s", strings.ReplaceAll(stmt.ColumnText(i), "\n", "\\n"))
				}
				answers.WriteString("\n")
				return nil
			}})
		if answers.WriteString("\n"); err != nil || rows == 0 {
			t.Errorf("%d rows, %v of\n%s", rows, err, query)
		}
	}
	golden := filepath.Join("testdata", "queries.golden")
	if *update {
		testscale.WriteFile(t, golden, answers.String())
	}
	want := testscale.ReadFile(t, golden)
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(answers.String(), "\n")); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
}

// queried is the session with all that is asked for.
func queried() *store.Batch {
	b, waited := fixture(), int64(1500)
	b.Decisions = append(b.Decisions, store.Decision{ID: "per_2", SessionID: main, ToolCallID: "call_1", ToolID: "bash",
		Pattern: "rm *", Action: "ask", Outcome: "denied", Reply: "reject", WaitedMS: &waited, DecidedAt: epoch + 1})
	for _, id := range []string{main, "sess_42"} {
		b.Annotations = append(b.Annotations, store.Annotation{ID: "ann_1", SessionID: id, Kind: store.AnnotationScore,
			Name: "quality", Value: new(0.25), Author: "ann", CreatedAt: epoch, UpdatedAt: epoch})
	}
	return b
}

// importQueried imports the sessions of other agents.
func importQueried(t *testing.T, location string) {
	t.Helper()
	for _, capture := range []string{"claude-code-2.1.329/denied-bash", "gemini-cli-0.61.0/prompt-shell",
		"vercel-ai-sdk-v7/toolerror"} {
		command(t, 0, "--store", location, "import", captures+"/"+capture)
	}
}

// openQueried makes a store at path of all that is asked for, and opens it for queries.
func openQueried(t *testing.T, path string) *zombie.Conn {
	t.Helper()
	newStore(t, path, queried())
	importQueried(t, path)
	conn, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	testscale.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// analysis makes a store at path, and returns the queries of docs/analysis.md and the rows that each finds there.
func analysis(t *testing.T, path string) (queries []string, answers [][][]any) {
	t.Helper()
	conn := openQueried(t, path)
	page := testscale.ReadFile(t, "../../docs/analysis.md")
	for _, block := range sqlBlocks.FindAllStringSubmatch(string(page), -1) {
		var rows [][]any
		err := sqlitex.ExecuteTransient(conn, block[1], &sqlitex.ExecOptions{ResultFunc: func(stmt *zombie.Stmt) error {
			row := make([]any, stmt.ColumnCount())
			for i := range row {
				switch stmt.ColumnType(i) {
				case zombie.TypeInteger:
					row[i] = stmt.ColumnInt64(i)
				case zombie.TypeFloat:
					row[i] = stmt.ColumnFloat(i)
				case zombie.TypeText:
					row[i] = stmt.ColumnText(i)
				}
			}
			rows = append(rows, row)
			return nil
		}})
		if err != nil || len(rows) == 0 {
			t.Errorf("%d rows, %v of %s", len(rows), err, block[1])
		}
		queries, answers = append(queries, block[1]), append(answers, rows)
	}
	if len(queries) != 20 {
		t.Errorf("%d queries, want 20", len(queries))
	}
	return queries, answers
}
