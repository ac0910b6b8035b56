package formats

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// This file writes the rows of sessions as Parquet, for DuckDB, Spark and data frames: a directory for each table and
// day, and in it a file for each session, so that no more than the rows of one session are in memory. The columns are
// those of a store. It is an export only.

// parquetWriteDir writes a session into a directory. The table of sessions is the last one: a session that is in it is
// there as a whole.
func parquetWriteDir(dir string, s *Source, replace bool) error {
	t := s.Sorted()
	messages := make([]session.Message, len(t.Messages))
	var parts []session.Part
	for i := range t.Messages {
		messages[i] = t.Messages[i].Message
		parts = append(parts, t.Messages[i].Parts...)
	}
	w := parquetWriter{dir: dir, file: codec.FileName(t.Session.ID) + ".parquet", replace: replace}
	parquetTable(&w, "chat_messages", session.MessageColumns, messages,
		func(m *session.Message) int64 { return m.CreatedAt })
	parquetTable(&w, "chat_parts", session.PartColumns, parts, func(p *session.Part) int64 { return p.CreatedAt })
	parquetTable(&w, "permission_decisions", session.ColumnsOf[store.Decision](), s.Decisions,
		func(d *store.Decision) int64 { return d.DecidedAt })
	parquetTable(&w, "annotations", store.AnnotationColumns, s.Annotations,
		func(n *store.Annotation) int64 { return n.CreatedAt })
	parquetTable(&w, "session_spans", session.ColumnsOf[store.SpanRef](), s.SpanRefs,
		func(r *store.SpanRef) int64 { return r.StartNano / 1e6 })
	parquetTable(&w, "chat_sessions", session.SessionColumns, []session.Session{t.Session},
		func(s *session.Session) int64 { return s.CreatedAt })
	return w.err
}

// parquetWriter is where the rows of a session go, and the first error.
type parquetWriter struct {
	dir, file string
	replace   bool
	err       error
}

// parquetTable writes the rows of a table, a file for each day in UTC.
func parquetTable[Row any](w *parquetWriter, table string, columns session.Columns[Row], rows []Row,
	created func(*Row) int64) {
	days := make(map[string][]*Row)
	for i := range rows {
		day := time.UnixMilli(created(&rows[i])).UTC().Format(time.DateOnly)
		days[day] = append(days[day], &rows[i])
	}
	for day, rows := range days {
		if w.err == nil {
			w.err = w.write(filepath.Join(w.dir, table, "day="+day), parquetEncode(columns, rows))
		}
	}
}

// write writes a file that readers see as a whole or not at all.
func (w *parquetWriter) write(dir string, content []byte) error {
	path := filepath.Join(dir, w.file)
	if _, err := os.Lstat(path); err == nil && !w.replace {
		return &fs.PathError{Op: "write", Path: path, Err: fs.ErrExist}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary := path + ".part"
	err := os.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // the error is that of writing
	}
	return err
}
