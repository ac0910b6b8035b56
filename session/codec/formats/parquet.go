package formats

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// This file writes the rows of sessions as Parquet, for DuckDB, Spark and data frames: a directory for each table and
// day, and in it a file for each session, so that no more than the rows of one session are in memory. The columns are
// those of a store. It is an export only.

// parquetWriteDir writes a session into a directory: all files are written before the first of them takes its place.
// The table of sessions is the last one: a session that is in it is there as a whole.
func parquetWriteDir(dir string, s *Source, replace bool) error {
	t := s.Sorted()
	messages := make([]session.Message, len(t.Messages))
	var parts []session.Part
	for i := range t.Messages {
		messages[i] = t.Messages[i].Message
		parts = append(parts, t.Messages[i].Parts...)
	}
	w := parquetWriter{dir: dir, name: codec.FileName(t.Session.ID) + ".parquet"}
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
	for _, f := range w.files {
		if _, err := os.Lstat(f.Path); err == nil && !replace {
			return &fs.PathError{Op: "write", Path: f.Path, Err: fs.ErrExist}
		}
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
	}
	return rows.ReplaceFiles(w.files...)
}

// parquetWriter has the files of a session.
type parquetWriter struct {
	dir, name string
	files     []rows.File
}

// parquetTable adds the rows of a table, in a file for each day in UTC.
func parquetTable[Row any](w *parquetWriter, table string, columns session.Columns[Row], all []Row,
	created func(*Row) int64) {
	days := make(map[string][]*Row)
	for i := range all {
		day := time.UnixMilli(created(&all[i])).UTC().Format(time.DateOnly)
		days[day] = append(days[day], &all[i])
	}
	for day, of := range days {
		w.files = append(w.files, rows.File{Path: filepath.Join(w.dir, table, "day="+day, w.name),
			Text: parquetEncode(columns, of)})
	}
}
