// Package codectest is the conformance suite for the formats of sessions.
//
// A format passes when [Run] passes with it, of which [Fuzz] is the open end:
//
//	var format = codectest.Codec{Encode: x.Encode, Decode: x.Decode, Losses: x.Losses}
//
//	func TestConformance(t *testing.T) { codectest.Run(t, format) }
//	func FuzzDecode(f *testing.F)      { codectest.Fuzz(f, format) }
//
// What a format promises differs, and [Codec] says it; what it does not promise is
// not asked of it, and what it promises is asked in full. The sessions are those of
// [Corpus], made by hand, and those that [Generate] makes, small ones first.
package codectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// Codec is a format, and what it promises.
type Codec struct {
	// Name is for subtests.
	Name string

	// Encode writes a session to a stream and Decode reads them from one. Either may
	// be nil: a format may be an export only, an import only, or no stream.
	Encode func(w io.Writer, s *codec.Session) error
	Decode func(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// EncodeFile writes sessions into dir, an empty directory, and more than one only if
	// Many; DecodeFile reads dir. They are used where Encode and Decode are nil.
	EncodeFile func(dir string, all []*codec.Session) error
	DecodeFile func(dir string, report func(codec.Problem)) iter.Seq2[*codec.Session, error]

	// Losses are set for a format of another program, in which rows get other ids: what comes back is
	// compared by [codec.Lost], and each loss that is listed must occur. From any other format the
	// very rows come back, in the same bytes, of a session of which Explain lists nothing.
	Losses  codec.Losses
	Explain func(s *codec.Session) []codec.Loss
	// Ignore takes away from a session what the format is not asked for.
	Ignore func(s *codec.Session)
	// Rows reports that rows are read as they are: they need not make a valid session.
	Rows bool
	// Many reports that what is written after another session is read as a second one.
	Many bool
	// Whole reports that a stream is one value: damage to it may cost all of it. From any other
	// stream, the sessions whose lines are not damaged are read whole.
	Whole bool

	// Native are files, or for DecodeFile directories, of the programs that the format
	// is of, as patterns for [filepath.Glob].
	Native []string
	// Slow reports that decoding takes milliseconds: fewer sessions are tried.
	Slow bool
	// Fits reports of a session that it can be asked of the format at all. Nil reports that every session can.
	Fits func(s *codec.Session) bool
	// Check, if there is one, judges what is written of the sessions of the suite by
	// rules of the format's own, such as a schema.
	Check func(data []byte) error
}

// Run examines a format.
func Run(t *testing.T, c Codec) {
	x := newExamination(t, c)
	for _, k := range checks {
		if k.applies(&c) {
			t.Run(k.name, func(t *testing.T) {
				testscale.Must(t, try(func() { k.run(x) }))
			})
		}
	}
}

// Fuzz feeds a format's decoder with anything. What is read must be the same twice, sound unless the format takes rows
// as they are, and must keep every promise of a sound session when it is written. The seeds are what the format makes
// of the sessions of the suite, its native files, and more.
func Fuzz(f *testing.F, c Codec, more ...string) {
	x := newExamination(f, c)
	for i, s := range x.sessions {
		if c.Encode != nil && i%3 == 0 { // Run has tried them all
			if err := try(func() { f.Add(x.write(s.Session).data) }); err != nil {
				f.Fatalf("session %s: %v", s.Name, err)
			}
		}
	}
	for _, path := range x.natives {
		f.Add(x.load(path).data)
	}
	for _, text := range more {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		testscale.Must(t, try(func() { x.fed(data) }))
	})
}

// Sample is a session and what it is an example of.
type Sample struct {
	Name    string
	Session *codec.Session
}

// examination is one run of the suite.
type examination struct {
	Codec
	root     string // a directory of the suite's
	dirs     int    // in it, written for the session that is examined
	sessions []Sample
	natives  []string
	// troubled reports that the input has problems of its own, which are reported again.
	troubled bool
}

func newExamination(tb testing.TB, c Codec) *examination {
	tb.Helper()
	x := &examination{Codec: c, root: tb.TempDir()}
	rounds := 40
	if x.Slow {
		rounds = 10
	}
	rounds = testscale.Rounds((rounds+3)/4, rounds)
	if x.Fits == nil {
		x.Fits = func(*codec.Session) bool { return true }
	}
	if x.Ignore == nil {
		x.Ignore = func(*codec.Session) {}
	}
	if c.Losses != nil {
		x.Explain = c.Losses.Of
	} else if x.Explain == nil {
		x.Explain = func(*codec.Session) []codec.Loss { return nil }
	}
	x.sessions = slices.DeleteFunc(slices.Concat(Corpus(), Generated(rounds)),
		func(s Sample) bool { return !x.Fits(s.Session) })
	for _, pattern := range c.Native {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			tb.Fatalf("no native file %s: %v", pattern, err)
		}
		x.natives = append(x.natives, files...)
	}
	return x
}

func (c *Codec) writes() bool { return c.Encode != nil || c.EncodeFile != nil }
func (c *Codec) reads() bool  { return c.Decode != nil || c.DecodeFile != nil }
func (c *Codec) both() bool   { return c.writes() && c.reads() }
func (c *Codec) stream() bool { return c.Encode != nil && c.Decode != nil }

// written is what a format made of sessions: a stream, or a directory.
type written struct {
	data []byte
	dir  string
}

// drop removes the directories that were written, which tests of many sessions need.
func (x *examination) drop() {
	for ; x.dirs > 0; x.dirs-- {
		_ = os.RemoveAll(filepath.Join(x.root, fmt.Sprint(x.dirs))) // all are removed in the end anyway
	}
}

// write encodes sessions one after the other.
func (x *examination) write(all ...*codec.Session) (w written) {
	if x.Encode == nil {
		x.dirs++
		w.dir = filepath.Join(x.root, fmt.Sprint(x.dirs))
		end("", os.Mkdir(w.dir, 0o700))
		end("encode: ", x.EncodeFile(w.dir, all))
		return w
	}
	var b bytes.Buffer
	for _, s := range all {
		end("encode: ", x.Encode(&b, s))
	}
	w.data = b.Bytes()
	return w
}

// load is the native file at path as the decoder takes it.
func (x *examination) load(path string) written {
	if x.Decode == nil {
		return written{dir: path}
	}
	return written{data: must(os.ReadFile(path))}
}

// reading is what came of decoding.
type reading struct {
	sessions []*codec.Session
	problems []codec.Problem
	err      error
}

func (r *reading) text() string {
	var b strings.Builder
	for _, s := range r.sessions {
		b.WriteString(Text(s))
	}
	for _, p := range r.problems {
		fmt.Fprintf(&b, "problem %v\n", p)
	}
	return b.String() + fmt.Sprintln(r.err)
}

// decode is the sequence of what is in w.
func (x *examination) decode(w written, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if x.Decode == nil {
		return x.DecodeFile(w.dir, report)
	}
	return x.Decode(bytes.NewReader(w.data), report)
}

// read decodes w. A decoder that breaks its contract ends the check.
func (x *examination) read(w written) reading {
	return collect(func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] { return x.decode(w, report) })
}

func collect(decode func(report func(codec.Problem)) iter.Seq2[*codec.Session, error]) (r reading) {
	for s, err := range decode(func(p codec.Problem) { r.problems = append(r.problems, p) }) {
		if r.err != nil || (err == nil) != (s != nil && s.Transcript != nil) {
			fail("a session or an error is yielded, and nothing after an error: %v, %v after %v", s, err, r.err)
		}
		if r.err = err; err == nil {
			r.sessions = append(r.sessions, s)
		}
	}
	for _, p := range r.problems {
		if p.Reason == "" || p.Line < 0 {
			fail("problem %+v does not state what is wrong, or where", p)
		}
	}
	return r
}

// one reads w, in which there must be one session and no problem.
func (x *examination) one(w written) *codec.Session {
	r := x.read(w)
	end("decode what was encoded: ", r.err)
	if len(r.problems) > 0 && !x.troubled || len(r.sessions) != 1 {
		fail("%d sessions of one that was encoded, and problems %v", len(r.sessions), r.problems)
	}
	return r.sessions[0]
}

// reread writes a session and reads it.
func (x *examination) reread(s *codec.Session) *codec.Session { return x.one(x.write(s)) }

// broken is the panic that ends a check with an error.
type broken struct{ error }

// end ends a check if there is an error.
func end(what string, err error) {
	if err != nil {
		panic(broken{fmt.Errorf("%s%w", what, err)})
	}
}

func fail(format string, args ...any) { end("", fmt.Errorf(format, args...)) }

// within runs a check and adds to its error what was checked.
func within(what string, run func()) { end(what+": ", try(run)) }

func must[T any](v T, err error) T {
	end("", err)
	return v
}

// try runs a check, and makes an error of a panic.
func try(run func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case broken:
			err = v.error
		default:
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	run()
	return nil
}

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

// same ends a check with what two texts differ in.
func same(what, want, got string) {
	if d := differ(want, got); d != "" {
		fail("%s: %s", what, d)
	}
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
	for t, err := range jsonl.Decode(bytes.NewReader(testscale.ReadFile(tb, path)), nil) {
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
		testscale.Must(tb, jsonl.Encode(&b, s.Transcript))
		for i := range s.Decisions {
			fmt.Fprintf(&b, "decision %s\n", must(json.Marshal(&s.Decisions[i])))
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
		testscale.WriteFile(t, path, got)
	}
	if d := differ(string(testscale.ReadFile(t, path)), got); d != "" {
		t.Errorf("%s; run with -update to accept %s", path, d)
	}
}
