package sqlite

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestPragmas: the file is what FORMAT.md says.
func TestPragmas(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	for _, c := range []struct{ pragma, want string }{
		{"user_version", "3"}, {"page_size", "16384"}, {"journal_mode", "wal"},
	} {
		if got := testscale.Query(t, path, "PRAGMA "+c.pragma); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s is %v, want %s", c.pragma, got, c.want)
		}
	}
	if want := fmt.Sprintf("the version of our tables, %d.", SchemaVersion); !strings.Contains(readFormat(t), want) {
		t.Errorf("FORMAT.md does not say %s", want)
	}
	if got, want := testscale.Query(t, path, "SELECT version FROM agenttrace_schema"),
		[]string{fmt.Sprint(SchemaVersion)}; !slices.Equal(got, want) {
		t.Errorf("agenttrace_schema is %v, want %v", got, want)
	}
	for _, c := range []struct{ pragma, want string }{{"foreign_keys", "1"}, {"synchronous", "1"},
		{"busy_timeout", "5000"}} {
		if err := run(t.Context(), s, func(x *tx) error {
			got, err := names(x.conn, "PRAGMA "+c.pragma)
			if !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s is %v, want %s", c.pragma, got, c.want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if err := run(t.Context(), s, func(x *tx) error {
		n, err := pragmaInt(x.conn, "wal_autocheckpoint")
		if want := fmt.Sprintf("`wal_autocheckpoint` %d pages", n); !strings.Contains(readFormat(t), want) {
			t.Errorf("FORMAT.md does not say %s", want)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	full := open(t, newPath(t), Options{Synchronous: SynchronousFull})
	if err := run(t.Context(), full, func(x *tx) error {
		if n, err := pragmaInt(x.conn, "synchronous"); n != 2 {
			t.Errorf("synchronous is %d, %v; want 2", n, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestLocked: a second writer is built who the first is, and gets the store when that dies, however it dies.
func TestLocked(t *testing.T) {
	path := newPath(t)
	first := start(t, "hold", path)
	if got := first.line(); got != "open" {
		t.Fatal(got)
	}
	_, err := Open(t.Context(), path, Options{})
	if !errors.Is(err, store.ErrLocked) ||
		!strings.Contains(err.Error(), "process "+strconv.Itoa(first.Process.Pid)+" ") {
		t.Fatalf("%v; want ErrLocked naming process %d", err, first.Process.Pid)
	}
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Errorf("readers need no lock: %v", err)
	} else {
		r.Close()
	}
	testscale.Must(t, first.Process.Kill())
	_ = first.Wait()
	s := open(t, path, Options{})
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second Open in one process: %v", err)
	}
	apply(t, s, turnBatch("ses_1", "1"))
}

// TestLockReleased: a store that is closed properly can be opened again.
func TestLockReleased(t *testing.T) {
	path := newPath(t)
	first := start(t, "hold", path)
	if got := first.line(); got != "open" {
		t.Fatal(got)
	}
	first.stdin.Close()
	testscale.Must(t, first.Wait())
	open(t, path, Options{})
}

// TestNotStore: files that are something else are refused, and left as they are.
func TestNotStore(t *testing.T) {
	whole := newPath(t)
	s, err := Open(t.Context(), whole, Options{})
	testscale.Must(t, err)
	testscale.Must(t, s.Close())
	damaged := testscale.ReadFile(t, whole)
	copy(damaged, "SQLite format 4!")
	write := func(content []byte) func(path string) {
		return func(path string) {
			testscale.WriteFile(t, path, content)
		}
	}
	for _, c := range []struct {
		name string
		make func(path string)
		want error
	}{
		{"text", write(bytes.Repeat([]byte("not a database\n"), 1000)), store.ErrNotStore},
		{"short text", write([]byte("x")), store.ErrNotStore},
		{"corrupt header", write(damaged), store.ErrNotStore},
		{"other tables", func(p string) {
			testscale.Script(t, p, "CREATE TABLE accounts(id INTEGER PRIMARY KEY); INSERT INTO accounts VALUES (1);")
		}, store.ErrNotStore},
		{"no tables, a version", func(p string) {
			testscale.Script(t, p, "PRAGMA user_version = 7;")
		}, store.ErrNotStore},
		{"like ours", func(p string) {
			testscale.Script(t, p, "CREATE TABLE chat_sessions(id TEXT PRIMARY KEY);")
		}, store.ErrNotStore},
		{"newer reference", func(p string) {
			testscale.Script(t, p, referenceDDL+"PRAGMA user_version = 4;")
		}, store.ErrNewer},
		{"newer agenttrace", func(p string) {
			testscale.Script(t, p, referenceDDL+
				"PRAGMA user_version = 3; CREATE TABLE agenttrace_schema(version INTEGER NOT NULL); INSERT INTO "+
				"agenttrace_schema VALUES (99);")
		}, store.ErrNewer},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newPath(t)
			c.make(path)
			before := testscale.ReadFile(t, path)
			if s, err := Open(t.Context(), path, Options{}); !errors.Is(err, c.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("Open: %v; want %v, naming the file", err, c.want)
				if err == nil {
					s.Close()
				}
			}
			if r, err := OpenReader(t.Context(), path); !errors.Is(err, c.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("OpenReader: %v; want %v, naming the file", err, c.want)
				if err == nil {
					r.Close()
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file changed (%v)", err)
			}
			if names, _ := filepath.Glob(path + "-*"); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
			// Who was refused does not hold the lock.
			if l, err := lock(path); errors.Is(err, store.ErrLocked) {
				t.Error(err)
			} else if err == nil {
				_ = l.unlock()
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("Open: %v", err)
		}
		if _, err := OpenReader(t.Context(), dir); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("OpenReader: %v", err)
		}
	})
}

// TestNoFile: a reader makes no file; a writer adopts an empty one.
func TestNoFile(t *testing.T) {
	path := newPath(t)
	if _, err := OpenReader(t.Context(), path); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("OpenReader: %v, want ErrNotFound", err)
	}
	if names, _ := filepath.Glob(path + "*"); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	testscale.WriteFile(t, path, "")
	if _, err := OpenReader(t.Context(), path); !errors.Is(err, store.ErrNotStore) {
		t.Errorf("OpenReader of an empty file: %v, want ErrNotStore", err)
	}
	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_1", "1"))
	if got, want := testscale.Query(t, path, "PRAGMA page_size"), []string{"16384"}; !slices.Equal(got, want) {
		t.Errorf("page_size is %v", got)
	}
}

// referenceDDL is the schema of the reference program, and referenceRows a session as it leaves it.
var (
	//go:embed testdata/reference.sql
	referenceDDL string
	//go:embed testdata/reference_rows.sql
	referenceRows string
	// earlier makes a file one of version 2.
	//go:embed testdata/version2.sql
	earlier string
)

// TestReferenceFile: a file that the reference program wrote is read as it is,
// and written to without a change to what is there.
func TestReferenceFile(t *testing.T) {
	path := newPath(t)
	testscale.Script(t, path, referenceDDL+referenceRows+"PRAGMA user_version = 3;")
	before := testscale.ReadFile(t, path)
	r, err := OpenReader(t.Context(), path)
	testscale.Must(t, err)
	want := storetest.Transcript(t, r, "ses_ref")
	if len(want.Messages) != 3 || *want.Messages[1].Parts[0].ToolState != "output-available" {
		t.Errorf("transcript: %+v", want)
	}
	for _, name := range []string{"ses_ref", "ref", "last"} {
		if id, err := r.Resolve(t.Context(), name); id != "ses_ref" {
			t.Errorf("resolve %q: %q, %v", name, id, err)
		}
	}
	if links, err := r.SpanRefs(t.Context(), "ses_ref"); len(links) != 0 || err != nil {
		t.Errorf("links: %v, %v", links, err)
	}
	if d, err := r.Decisions(t.Context(), "ses_ref"); len(d) != 0 || err != nil {
		t.Errorf("decisions: %v, %v", d, err)
	}
	if _, err := r.Blob(t.Context(), store.BlobSystemPrompt, "x"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("blob: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading changed the file (%v)", err)
	}
	const indexes = `SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name LIKE 'chat_%' AND sql IS NOT ` +
		`NULL ORDER BY name`
	had := testscale.Query(t, path, indexes)

	s := open(t, path, Options{})
	apply(t, s, turnBatch("ses_new", "1"))
	got := storetest.Transcript(t, s, "ses_ref")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("writing changed the session that was there (-want +got):\n%s", d)
	}
	has := testscale.Query(t, path, indexes)
	for _, sql := range had {
		if !slices.Contains(has, sql) {
			t.Errorf("an index is gone: %s", sql)
		}
	}
	// A session that the other program began may be continued.
	apply(t, s, turnBatch("ses_ref", "more"))
	got = storetest.Transcript(t, s, "ses_ref")
	if got.Session.TotalTokens != 16 || got.Session.Title != "Fix it" || len(got.Messages) != 5 {
		t.Errorf("continued session: %+v", got.Session)
	}
	if h := got.Messages[2].Message; h.ID != "msg_h" || h.HiddenAt == nil || *h.HiddenAt != 1900 {
		t.Errorf("the other program's rewind is lost: %+v", h)
	}
	sound(t, path)
}

// TestOldReferenceFile: versions 1 and 2 lack two columns. A reader, which cannot add them, reads them all the same; a
// writer adds them.
func TestOldReferenceFile(t *testing.T) {
	for _, version := range []int{0, 1, 2} {
		path := newPath(t)
		ddl := strings.Replace(referenceDDL, " continuation_run_id TEXT,", "", 1)
		if version < 2 {
			ddl = strings.Replace(ddl, " mode TEXT,", "", 1)
		}
		testscale.Script(t, path, ddl+`INSERT INTO chat_sessions(id, agent, created_at, updated_at) VALUES ('ses_old', 'grida', 1, 2);
INSERT INTO chat_messages VALUES ('msg_u', 'ses_old', 'user', '{}', NULL, 1, 1);
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at) VALUES ('prt_u', 'msg_u', 'ses_old', 0, 'text', '{"type":"text","text":"hi"}', 1, 1);
`+fmt.Sprintf("PRAGMA user_version = %d;", version))
		r, err := OpenReader(t.Context(), path)
		testscale.Must(t, err)
		read := storetest.Transcript(t, r, "ses_old")
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		s, err := Open(t.Context(), path, Options{})
		testscale.Must(t, err)
		for _, got := range []*session.Transcript{read, storetest.Transcript(t, s, "ses_old")} {
			if len(got.Messages) != 1 || len(got.Messages[0].Parts) != 1 || got.Messages[0].Parts[0].ID != "prt_u" {
				t.Errorf("version %d: %+v", version, got)
			}
		}
		apply(t, s, turnBatch("ses_old", "1"))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got, want := testscale.Query(t, path, "PRAGMA user_version"), []string{"3"}; !slices.Equal(got, want) {
			t.Errorf("version %d became %v", version, got)
		}
		sound(t, path)
	}
}

// TestOpenCanceled: opening stops when the context ends.
func TestOpenCanceled(t *testing.T) {
	path := newPath(t)
	other, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	testscale.Must(t, err)
	defer other.Close()
	testscale.Must(t, sqlitex.ExecuteTransient(other, "BEGIN EXCLUSIVE", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Open(ctx, path, Options{}); err == nil {
		s.Close()
		t.Error("opened with a context that has ended, while another writes")
	}
}

// TestViewKnowsTheSDKsSpans: schema.sql has the name of the SDK's dialect as a literal, for
// a view takes no parameter. It is the contract's.
func TestViewKnowsTheSDKsSpans(t *testing.T) {
	named := regexp.MustCompile(`dialect = '([^']*)'`).FindAllStringSubmatch(schema, -1)
	if len(named) == 0 {
		t.Error("the schema names no dialect")
	}
	for _, m := range named {
		if m[1] != store.DialectSDK {
			t.Errorf("the schema has %s, the contract names the dialect %q", m[0], store.DialectSDK)
		}
	}
}

// TestAStoreIsNamedByItsPath: a URI is refused, and nothing is created.
func TestAStoreIsNamedByItsPath(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, uri := range []string{"file:sessions.db", "file:///tmp/sessions.db?mode=ro", "postgres://host/db",
		"sqlite:///sessions.db"} {
		if s, err := Open(t.Context(), uri, Options{}); !errors.Is(err, store.ErrNotStore) ||
			!strings.Contains(err.Error(),
				uri) {
			t.Errorf("Open(%q) is %v, %v", uri, s, err)
		}
		if r, err := OpenReader(t.Context(), uri); !errors.Is(err, store.ErrNotStore) {
			t.Errorf("OpenReader(%q) is %v, %v", uri, r, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestColumnsThatAreAddedLater: a file of the same versions that lacks a column is read, and has it when it was opened
// for writing.
func TestColumnsThatAreAddedLater(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	newLongTurn(t).deliver(t, ingest.New(s, ingest.Options{}), 0, 3)
	testscale.Must(t, s.Close())
	testscale.Script(t, path, "ALTER TABLE chat_sessions DROP COLUMN mode; "+
		"ALTER TABLE chat_parts DROP COLUMN continuation_run_id;")
	r, err := OpenReader(t.Context(), path)
	testscale.Must(t, err)
	all := storetest.Sessions(t, r)
	for _, row := range all {
		if storetest.Transcript(t, r, row.ID); row.Mode != nil {
			t.Errorf("session %+v", row)
		}
	}
	if err := r.Close(); err != nil || len(all) == 0 {
		t.Errorf("%d sessions, %v", len(all), err)
	}
	open(t, path, Options{})
	const mode = "SELECT name FROM pragma_table_info('chat_sessions') WHERE name = 'mode'"
	if got := testscale.Query(t, path, mode); len(got) == 0 {
		t.Error("a writer does not add the column")
	}
}

// TestAStoreOfAnEarlierVersionIsUpgraded: a file whose tables have the names and columns of
// version 2 has all of its rows when it is opened for writing. Readers say what upgrades it.
func TestAStoreOfAnEarlierVersionIsUpgraded(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	in := ingest.New(s, ingest.Options{})
	l := newLongTurn(t)
	l.deliver(t, in, 0, 30)
	ids := testscale.Query(t, path, "SELECT id FROM chat_sessions")
	testscale.Must(t, s.Close())
	const rows = "SELECT source || owner || coalesce(declared_session, '') || default_session FROM observations " +
		"ORDER BY source"
	want := testscale.Query(t, path, rows)
	testscale.Script(t, path, earlier)

	if _, err := OpenReader(t.Context(), path); !errors.Is(err, store.ErrOlder) ||
		!strings.Contains(err.Error(), "agenttrace store migrate --store "+path) {
		t.Errorf("a reader: %v", err)
	}
	s = open(t, path, Options{})
	if got := testscale.Query(t, path, rows); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("observations are %v, want %v", got, want)
	}
	l.deliver(t, ingest.New(s, ingest.Options{}), 30, 40)
	whole := newPath(t)
	other := open(t, whole, Options{})
	l.deliver(t, ingest.New(other, ingest.Options{}), 0, 40)
	for _, id := range ids {
		got := storetest.Transcript(t, s, id)
		want := storetest.Transcript(t, other, id)
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Error(err)
	}
}

// A file of the versions before annotations, or before their labels, is read as it is, and upgraded when it is opened
// for writing.
func TestAFileWithoutAnnotationsIsReadAndUpgraded(t *testing.T) {
	n := store.Annotation{SessionID: "ses_1", Kind: store.AnnotationScore, Name: "good", Value: new(0.5), CreatedAt: 3,
		UpdatedAt: 3}
	n.Identify()
	for older, want := range map[string][]store.Annotation{
		"DROP TABLE annotations; UPDATE agenttrace_schema SET version = 5;": nil,
		"ALTER TABLE annotations DROP COLUMN label;":                        {n},
	} {
		path := newPath(t)
		s := open(t, path, Options{})
		if _, err := s.Apply(t.Context(), &store.Batch{Sessions: []store.SessionChange{{ID: "ses_1", Start: 1, End: 2}},
			Annotations: []store.Annotation{n}}); err != nil {
			t.Fatal(err)
		}
		testscale.Must(t, s.Close())
		testscale.Script(t, path, older)
		r := openReader(t, path)
		if all, err := r.Annotations(t.Context(), "ses_1"); err != nil || cmp.Diff(want, all) != "" {
			t.Errorf("annotations %v, %v", all, err)
		}
		s = open(t, path, Options{})
		testscale.Must(t, s.Annotate(t.Context(), []store.Annotation{n}))
		if all, err := s.Annotations(t.Context(), "ses_1"); err != nil ||
			cmp.Diff([]store.Annotation{n}, all) != "" {
			t.Errorf("annotations %v, %v", all, err)
		}
	}
}
