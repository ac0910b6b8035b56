package sqlite

import (
	"regexp"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

func readFormat(t *testing.T) string {
	t.Helper()
	b := testscale.ReadFile(t, "FORMAT.md")
	return string(b)
}

// TestFormatNamesEverything: FORMAT.md has every table, column and index of the file.
func TestFormatNamesEverything(t *testing.T) {
	path := newPath(t)
	open(t, path, Options{})
	format := readFormat(t)
	ours := format[strings.Index(format, "## Our tables"):]
	section := func(table string) string {
		if _, after, ok := strings.Cut(format, "### "+table+"\n"); ok {
			section, _, _ := strings.Cut(after, "\n##")
			return section
		}
		return ours
	}
	for _, table := range query(t, path,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		text := section(table)
		if !strings.Contains(format, table) {
			t.Errorf("FORMAT.md does not name table %s", table)
		}
		for _, column := range query(t, path, "SELECT name FROM pragma_table_info('"+table+"')") {
			if !strings.Contains(text, "`"+column+"`") && !strings.Contains(text, "`\""+column+"\"`") {
				t.Errorf("FORMAT.md does not name column %s.%s", table, column)
			}
		}
	}
	for _, index := range query(t, path,
		"SELECT name FROM sqlite_schema WHERE type = 'index' AND name NOT LIKE 'sqlite_%'") {
		if !strings.Contains(format, "`"+index+"`") {
			t.Errorf("FORMAT.md does not name index %s", index)
		}
	}
	for _, name := range regexp.MustCompile("`(idx_[a-z_]+)`").FindAllStringSubmatch(format, -1) {
		if len(query(t, path, "SELECT 1 FROM sqlite_schema WHERE name = '"+name[1]+"'")) == 0 {
			t.Errorf("FORMAT.md names index %s, which is not there", name[1])
		}
	}
}

// TestFormatQueries: every query in FORMAT.md runs and finds something.
func TestFormatQueries(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	b := turnBatch("ses_1", "1")
	b.Sessions[0].Model = &store.Value{Text: `{"provider_id":"openai","model_id":"m"}`}
	b.SpanRefs[0].TurnStats.SystemPromptDigest = strings.Repeat("0", 64)
	b.Blobs = []store.Blob{{Kind: store.BlobSystemPrompt, Digest: strings.Repeat("0", 64), Body: "be careful"}}
	b.Parts = append(b.Parts, store.PartChange{ID: "prt_t", MessageID: "assistant-1", SessionID: "ses_1", Index: 1,
		Type: "tool-bash",
		Data: []byte(
			`{"type":"tool-bash","toolCallId":"c","state":"output-error","errorText":"no",` +
				`"toolMetadata":{"agenttrace":{"duration_ms":8}}}`),
		ToolCallID: "c", ToolState: session.StateOutputError, CreatedAt: at, UpdatedAt: at, Rank: store.RankFinal})
	b.Decisions = []store.Decision{{ID: "per_1", SessionID: "ses_1", ToolID: "bash", Action: "ask", Outcome: "denied",
		DecidedAt: at}}
	apply(t, s, b)
	apply(t, s,
		store.Batch{
			Sessions: []store.SessionChange{{ID: "ses_2", Start: at, End: at, ParentID: &store.Value{Text: "ses_1"},
				Fork: &store.Fork{From: "ses_1", Message: "user-1", At: at}}}})
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(readFormat(t), -1)
	if len(queries) < 10 {
		t.Errorf("%d queries", len(queries))
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range queries {
		rows := 0
		if err := sqlitex.ExecuteTransient(conn, strings.TrimSuffix(strings.TrimSpace(q[1]), ";"),
			&sqlitex.ExecOptions{ResultFunc: func(*sqlite.Stmt) error {
				rows++
				return nil
			}}); err != nil || rows == 0 {
			t.Errorf("%d rows, %v:\n%s", rows, err, q[1])
		}
	}
}
