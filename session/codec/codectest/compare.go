package codectest

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
func Diff(want, got *codec.Session) string {
	d := differ(Text(want), Text(got))
	if d != "" {
		d = "(-want +got):\n" + d
	}
	return d
}

// differ reports the lines in which two texts differ, or "".
func differ(a, b string) string {
	if a == b {
		return ""
	}
	return gocmp.Diff(strings.Split(a, "\n"), strings.Split(b, "\n"))
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

// sameOutput states where two outputs differ.
func sameOutput(a, b written) error {
	x, y := must(a.files()), must(b.files())
	for _, name := range slices.Sorted(maps.Keys(x)) {
		other, ok := y[name]
		if !ok {
			return fmt.Errorf("file %s is missing", name)
		}
		if d := differ(x[name], other); d != "" {
			return fmt.Errorf("%s (-first +second):\n%s", name, d)
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("%d files, and then %d", len(x), len(y))
	}
	return nil
}

// files are the stream, or those below the directory, by path, with what is in them. Databases are reported by
// their rows, for the engine keeps a journal.
func (w written) files() (map[string]string, error) {
	all := make(map[string]string)
	if w.dir == "" {
		all["stream"] = string(w.data)
		return all, nil
	}
	return all, filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-shm") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(text, []byte(rows.DatabaseHeader)) {
			text, err = dump(path)
		}
		all[strings.TrimPrefix(path, w.dir)] = string(text)
		return err
	})
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
		queryErr := sqlitex.ExecuteTransient(conn, statement, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			var line []byte
			for i := range row.ColumnCount() {
				line = fmt.Appendf(line, "%s:%q ", row.ColumnType(i), row.ColumnText(i))
			}
			lines = append(lines, string(line))
			return nil
		}})
		if queryErr != nil {
			err = fmt.Errorf("read %s: %w", filepath.Base(path), queryErr)
		}
		slices.Sort(lines)
		return lines
	}
	text = fmt.Appendln(nil, strings.Join(query("SELECT name, type, sql FROM sqlite_schema"), "\n"))
	_ = sqlitex.ExecuteTransient(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%fts%'",
		&sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			table := row.ColumnText(0)
			text = fmt.Appendf(text, "table %s\n%s\n", table, strings.Join(query(`SELECT * FROM "`+table+`"`), "\n"))
			return err
		}}) // the schema was read before
	return text, err
}
