package formats

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
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
	parquetTable(&w, "chat_messages", session.MessageColumns(), messages,
		func(m *session.Message) int64 { return m.CreatedAt })
	parquetTable(&w, "chat_parts", session.PartColumns(), parts, func(p *session.Part) int64 { return p.CreatedAt })
	parquetTable(&w, "permission_decisions", session.ColumnsOf[store.Decision](), s.Decisions,
		func(d *store.Decision) int64 { return d.DecidedAt })
	parquetTable(&w, "annotations", store.AnnotationTable().Columns, s.Annotations,
		func(n *store.Annotation) int64 { return n.CreatedAt })
	parquetTable(&w, "session_spans", session.ColumnsOf[store.SpanRef](), s.SpanRefs,
		func(r *store.SpanRef) int64 { return r.StartNano / 1e6 })
	parquetTable(&w, "chat_sessions", session.SessionColumns(), []session.Session{t.Session},
		func(s *session.Session) int64 { return s.CreatedAt })
	for _, f := range w.files {
		if _, err := os.Lstat(f.Path); err == nil && !replace {
			return &fs.PathError{Op: "write", Path: f.Path, Err: fs.ErrExist}
		}
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
	}
	return session.ReplaceFiles(w.files...)
}

// parquetWriter has the files of a session.
type parquetWriter struct {
	dir, name string
	files     []session.NewFile
}

// parquetTable adds the rows of a table, in a file for each day in UTC.
func parquetTable[Row any](w *parquetWriter, table string, columns session.Columns, all []Row,
	created func(*Row) int64) {
	days := make(map[string][]any)
	for i := range all {
		day := time.UnixMilli(created(&all[i])).UTC().Format(time.DateOnly)
		days[day] = append(days[day], &all[i])
	}
	for day, of := range days {
		w.files = append(w.files, session.NewFile{Path: filepath.Join(w.dir, table, "day="+day, w.name),
			Text: parquetEncode(columns, of)})
	}
}

// This file encodes a file of Parquet: https://parquet.apache.org/docs/file-format. A library for all of the format
// would add 4 MB to the program. A file has one group of rows, and in it one page for each column: plain values,
// compressed with Zstandard. Texts are UTF-8; flags are numbers, as in a store.

// Numbers of the format.
const (
	parquetInt64, parquetDouble, parquetBytes = 2, 5, 6 // types
	parquetPlain, parquetRLE                  = 0, 3    // encodings
	parquetZstd                               = 6       // a codec
)

// parquetPacker is safe for concurrent use.
var parquetPacker = sync.OnceValue(func() *zstd.Encoder {
	packer, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) // no option is wrong
	return packer
})

// parquetChunk is a column of the file: its place, and the sizes of what is there.
type parquetChunk struct {
	name           string
	kind, optional int64
	offset         int64
	plain, packed  int64
}

// parquetEncode is a file with the rows, of which there is one at least.
func parquetEncode(columns session.Columns, rows []any) []byte {
	file, count := []byte("PAR1"), int64(len(rows))
	chunks := make([]parquetChunk, len(columns))
	var total int64
	for i := range columns {
		kind, page := parquetPage(&columns[i], rows)
		packed := parquetPacker().EncodeAll(page, nil)
		var header thrift
		header.open().int32(1, 0).int32(2, int64(len(page))).int32(3, int64(len(packed))).field(5, thriftStruct)
		header.open().int32(1, count).int32(2, parquetPlain).int32(3, parquetRLE).int32(4, parquetRLE).end().end()
		chunks[i] = parquetChunk{
			name: columns[i].Name, kind: kind, offset: int64(len(file)),
			plain: int64(len(header.out) + len(page)), packed: int64(len(header.out) + len(packed)),
		}
		if columns[i].Optional {
			chunks[i].optional = 1
		}
		total += chunks[i].plain
		file = append(append(file, header.out...), packed...)
	}

	var footer thrift
	footer.open().int32(1, 1).list(2, thriftStruct, len(chunks)+1)
	footer.open().text(4, "rows").int32(5, int64(len(chunks))).end()
	for _, c := range chunks {
		footer.open().int32(1, c.kind).int32(3, c.optional).text(4, c.name)
		if c.kind == parquetBytes {
			footer.int32(6, 0) // UTF-8
		}
		footer.end()
	}
	footer.int64(3, count).list(4, thriftStruct, 1)
	footer.open().list(1, thriftStruct, len(chunks))
	for _, c := range chunks {
		footer.open().int64(2, c.offset).field(3, thriftStruct)
		footer.open().int32(1, c.kind).list(2, thriftInt32, 2).number(parquetPlain).number(parquetRLE)
		footer.list(3, thriftText, 1).bytes(c.name).int32(4, parquetZstd).int64(5, count)
		footer.int64(6, c.plain).int64(7, c.packed).int64(9, c.offset).end().end()
	}
	footer.int64(2, total).int64(3, count).end()
	footer.text(6, "agenttrace").end()
	file = append(file, footer.out...)
	return append(binary.LittleEndian.AppendUint32(file, uint32(len(footer.out))), "PAR1"...)
}

// parquetPage is the type of a column and its page: which values are there, in runs, and the values.
func parquetPage(column *session.Column, rows []any) (kind int64, page []byte) {
	var runs, values []byte
	run, was := 0, byte(0)
	for _, row := range rows {
		var is byte
		if kind, is = parquetValue(column, row, &values); is != was && run > 0 {
			runs = append(binary.AppendUvarint(runs, uint64(run)<<1), was)
			run = 0
		}
		run, was = run+1, is
	}
	if !column.Optional {
		return kind, values
	}
	runs = append(binary.AppendUvarint(runs, uint64(run)<<1), was)
	page = binary.LittleEndian.AppendUint32(nil, uint32(len(runs)))
	return kind, append(append(page, runs...), values...)
}

// parquetValue appends the value of a column of a row, if there is one: then is is 1.
func parquetValue(column *session.Column, row any, values *[]byte) (kind int64, is byte) {
	switch v := column.Value(row).(type) {
	case string:
		*values = append(binary.LittleEndian.AppendUint32(*values, uint32(len(v))), v...)
		return parquetBytes, 1
	case []byte:
		*values = append(binary.LittleEndian.AppendUint32(*values, uint32(len(v))), v...)
		return parquetBytes, 1
	case int64:
		*values = binary.LittleEndian.AppendUint64(*values, uint64(v))
		return parquetInt64, 1
	case float64:
		*values = binary.LittleEndian.AppendUint64(*values, math.Float64bits(v))
		return parquetDouble, 1
	}
	switch column.Field(row).(type) {
	case **int64:
		return parquetInt64, 0
	case **float64:
		return parquetDouble, 0
	}
	return parquetBytes, 0
}

// thrift writes structs in the compact protocol of Thrift, in which Parquet describes its files.
type thrift struct {
	out  []byte
	last []int // the last field of each struct that is open
}

// Types of fields.
const thriftInt32, thriftInt64, thriftText, thriftList, thriftStruct = 5, 6, 8, 9, 12

func (t *thrift) open() *thrift {
	t.last = append(t.last, 0)
	return t
}

func (t *thrift) end() *thrift {
	t.out, t.last = append(t.out, 0), t.last[:len(t.last)-1]
	return t
}

func (t *thrift) field(id, kind int) *thrift {
	last := &t.last[len(t.last)-1]
	t.out = append(t.out, byte((id-*last)<<4|kind))
	*last = id
	return t
}

func (t *thrift) number(n int64) *thrift {
	t.out = binary.AppendVarint(t.out, n)
	return t
}

func (t *thrift) bytes(s string) *thrift {
	t.out = append(binary.AppendUvarint(t.out, uint64(len(s))), s...)
	return t
}

func (t *thrift) int32(id int, n int64) *thrift { return t.field(id, thriftInt32).number(n) }
func (t *thrift) int64(id int, n int64) *thrift { return t.field(id, thriftInt64).number(n) }
func (t *thrift) text(id int, s string) *thrift { return t.field(id, thriftText).bytes(s) }

// list begins a list, whose n elements follow.
func (t *thrift) list(id, kind, n int) *thrift {
	t.field(id, thriftList)
	if n < 15 {
		t.out = append(t.out, byte(n<<4|kind))
		return t
	}
	t.out = binary.AppendUvarint(append(t.out, byte(0xF0|kind)), uint64(n))
	return t
}
