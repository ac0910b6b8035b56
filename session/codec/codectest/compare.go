package codectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Text is every row of a session as lines of JSON. Sessions of the same rows in any order have the same text.
func Text(s *codec.Session) string {
	var b strings.Builder
	if err := jsonl.NewEncoder(&b).Encode(s); err != nil {
		return fmt.Sprintf("error %v\n", err)
	}
	return b.String()
}

// Diff reports where two sessions have other rows, or "".
func Diff(want, got *codec.Session) string { return differ(Text(want), Text(got)) }

// differ reports the lines in which two texts differ, or "".
func differ(a, b string) string {
	if a == b {
		return ""
	}
	return "(-want +got):\n" + gocmp.Diff(strings.Split(a, "\n"), strings.Split(b, "\n"))
}

// Clone copies a session so that its columns can be set and its rows taken away.
func Clone(s *codec.Session) *codec.Session {
	c, t := *s, *s.Transcript
	t.Messages = slices.Clone(t.Messages)
	for i := range t.Messages {
		t.Messages[i].Parts = slices.Clone(t.Messages[i].Parts)
	}
	c.Transcript, c.Decisions, c.Blobs, c.Annotations = &t, slices.Clone(s.Decisions), slices.Clone(s.Blobs),
		slices.Clone(s.Annotations)
	c.SpanRefs, c.RequestedIndexes = slices.Clone(s.SpanRefs), slices.Clone(s.RequestedIndexes)
	return &c
}

// text is the stream, or the files below the directory with what is in them. Databases are reported by
// their rows, for the engine keeps a journal.
func (w written) text() string {
	if w.dir == "" {
		return string(w.data)
	}
	var b strings.Builder
	end("", filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-shm") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(text, []byte(rows.DatabaseHeader)) {
			text, err = dump(path)
		}
		fmt.Fprintf(&b, "file %s\n%s\n", strings.TrimPrefix(path, w.dir), text)
		return err
	}))
	return b.String()
}

// dump is the schema of a database and all of its rows, which have no order but that of
// their columns. The shadow tables of a search index are reported by the index.
func dump(path string) (text []byte, err error) {
	conn, err := rows.OpenDatabase(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	query := func(statement string) (lines []string) {
		end("read "+path+": ", sqlitex.ExecuteTransient(conn, statement, &sqlitex.ExecOptions{
			ResultFunc: func(row *sqlite.Stmt) error {
				var line []byte
				for i := range row.ColumnCount() {
					line = fmt.Appendf(line, "%s:%q ", row.ColumnType(i), row.ColumnText(i))
				}
				lines = append(lines, string(line))
				return nil
			},
		}))
		slices.Sort(lines)
		return lines
	}
	text = fmt.Appendln(nil, strings.Join(query("SELECT name, type, sql FROM sqlite_schema"), "\n"))
	err = sqlitex.ExecuteTransient(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%fts%'",
		&sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			table := row.ColumnText(0)
			text = fmt.Appendf(text, "table %s\n%s\n", table, strings.Join(query(`SELECT * FROM "`+table+`"`), "\n"))
			return nil
		}})
	return text, err
}

// Load reads the sessions of a file of JSON lines.
func Load(tb testing.TB, path string) (all []*codec.Session) {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	for t, err := range jsonl.Decode(bytes.NewReader(text), nil) {
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, &codec.Session{Transcript: t})
	}
	return all
}

// Golden is sessions as they are in a golden file: JSON lines, the decisions of each
// after it, and in the end the problems of reading them.
func Golden(tb testing.TB, problems []string, all ...*codec.Session) string {
	tb.Helper()
	var b strings.Builder
	for _, s := range all {
		if err := jsonl.Encode(&b, s.Transcript); err != nil {
			tb.Fatal(err)
		}
		for i := range s.Decisions {
			line, err := json.Marshal(&s.Decisions[i])
			if err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(&b, "decision %s\n", line)
		}
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "problem %s\n", p)
	}
	return b.String()
}

// CheckGolden compares got with the file at path, after writing it there if update is set.
func CheckGolden(t *testing.T, path, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := differ(string(want), got); d != "" {
		t.Errorf("%s; run with -update to accept %s", path, d)
	}
}
