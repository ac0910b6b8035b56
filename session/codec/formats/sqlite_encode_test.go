package formats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// sqliteCarried are the tables of which an export has the rows of its sessions.
var sqliteCarried = []string{"chat_sessions", "chat_messages", "chat_parts", "permission_decisions", "system_prompts",
	"tool_catalogs", "span_refs", "session_traces",
	"session_state", "requested_indexes"}

// sqliteDump is every row of these tables as SQL literals.
func sqliteDump(t *testing.T, path string, tables ...string) string {
	t.Helper()
	var b strings.Builder
	for _, table := range tables {
		columns := testscale.Query(t, path, "SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('"+table+"')")
		rows := testscale.Query(t, path, "SELECT "+strings.Join(columns, ", ")+" FROM "+table)
		slices.Sort(rows)
		for _, row := range rows {
			fmt.Fprintf(&b, "%s: %s\n", table, row)
		}
	}
	return b.String()
}

func sqliteOpenStore(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	testscale.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func sqliteApply(t testing.TB, s *sqlite.Store, batches ...store.Batch) {
	t.Helper()
	for i := range batches {
		if _, err := s.Apply(context.Background(), &batches[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// sqliteExport writes the sessions of a store, all or those named, to a new one.
func sqliteExport(t *testing.T, from, to string, ids ...string) {
	t.Helper()
	err := sqliteEncodeFile(t.Context(), to, func(yield func(*codec.Session, error) bool) {
		for s, err := range sqliteDecodeFile(t.Context(), from, nil, func(p codec.Problem) { t.Error(p) }) {
			if err == nil && len(ids) > 0 && !slices.Contains(ids, s.Session.ID) {
				continue
			}
			if !yield(s, err) {
				return
			}
		}
	}, nil)
	testscale.Must(t, err)
}

// TestStoreGivenTokens: the tokens that another program wrote stand in an export, and are
// summed anew when the session changes, as where it came from.
func TestStoreGivenTokens(t *testing.T) {
	path, _ := sqliteWrite(t)
	copied := filepath.Join(t.TempDir(), "copy.db")
	testscale.Script(t, path, `UPDATE chat_sessions SET prompt_tokens = 7, total_tokens = 7 WHERE id = 'ses_1'`)
	sqliteExport(t, path, copied)
	if diff := cmp.Diff(sqliteDump(t, path, sqliteCarried...), sqliteDump(t, copied, sqliteCarried...)); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
	s := sqliteOpenStore(t, copied)
	sqliteApply(t, s, store.Batch{Sessions: []store.SessionChange{{ID: "ses_1", Start: 1, End: 99}}})
	if row, err := s.Session(t.Context(), "ses_1"); err != nil || row.TotalTokens != 0 {
		t.Errorf("%d tokens, %v", row.TotalTokens, err)
	}
}

// TestStoreFile: one private file that is a store, or none.
func TestStoreFile(t *testing.T) {
	path, all := sqliteWrite(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "copy.db")
	sqliteExport(t, path, name)
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		testscale.Must(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if diff := cmp.Diff([]string{"copy.db"}, left()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	names, err := sqliteTables(name)
	theirs, theirErr := sqliteTables(path)
	if diff := cmp.Diff(theirs, names); diff != "" || err != nil || theirErr != nil {
		t.Errorf("tables (-want +got):\n%s%v%v", diff, err, theirErr)
	}
	_ = os.Remove(name + "-wal")
	_ = os.Remove(name + "-shm")

	one := func(s *codec.Session, err error) iter.Seq2[*codec.Session, error] {
		return func(yield func(*codec.Session, error) bool) { yield(s, err) }
	}
	good := &codec.Session{Transcript: all[0].Transcript}
	if err := sqliteEncodeFile(t.Context(), name, one(good, nil), nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	broken := *all[0].Transcript
	broken.Messages = slices.Clone(broken.Messages)
	broken.Messages[0].Message.SessionID = "another"
	failed := errors.New("no more")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	twice := func(yield func(*codec.Session, error) bool) {
		other := *sqliteSessionOf("ses_9", 1, "d").Transcript
		other.Messages[0].Message.ID, other.Messages[0].Parts[0].MessageID = "msg_ses_1", "msg_ses_1"
		_ = yield(good, nil) && yield(&codec.Session{Transcript: &other}, nil)
	}
	for name, err := range map[string]error{
		"rows that make no tree": sqliteEncodeFile(t.Context(), filepath.Join(dir, "x.db"),
			one(&codec.Session{Transcript: &broken}, nil), nil),
		"a sequence that fails": sqliteEncodeFile(t.Context(), filepath.Join(dir, "x.db"), one(nil, failed),
			nil),
		"an id of two sessions": sqliteEncodeFile(t.Context(), filepath.Join(dir, "x.db"), twice, nil),
		"being canceled":        sqliteEncodeFile(canceled, filepath.Join(dir, "x.db"), one(good, nil), nil),
		"a directory that is not": sqliteEncodeFile(t.Context(), filepath.Join(dir, "y", "x.db"), one(good, nil),
			nil),
	} {
		if err == nil {
			t.Errorf("no error of %s", name)
		}
	}
	if diff := cmp.Diff([]string{"copy.db"}, left()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	// No session is a store too.
	empty := filepath.Join(dir, "empty.db")
	testscale.Must(t, sqliteEncodeFile(t.Context(), empty, func(func(*codec.Session, error) bool) {}, nil))
	if sessions, problems, err := sqliteDecode(t, empty); err != nil || len(sessions)+len(problems) > 0 {
		t.Errorf("%d sessions, %v, %v", len(sessions), problems, err)
	}
}

// TestStoreTraces: a session is found by its trace in a copy of a copy, also one of an
// agent without the SDK, and so is each span.
func TestStoreTraces(t *testing.T) {
	path, _ := sqliteWrite(t)
	const ours, foreign = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	s := sqliteOpenStore(t, path)
	sqliteApply(t, s, store.Batch{SpanRefs: []store.SpanRef{{TraceID: ours, SpanID: "0123456789abcdef", SessionID: "ses_1",
		Kind: "session.run", Dialect: "agenttrace", StartNano: 1, EndNano: 2}}})
	testscale.Must(t, s.Close())
	testscale.Script(t, path, `INSERT INTO session_traces VALUES ('`+foreign+`', 'ses_3');
 INSERT INTO observations(trace_id, source, owner, dialect, span_id, start_nano, end_nano, until_nano, default_session,
  session_id, kind, reach, data)
 VALUES ('`+foreign+`', 's', 'ses_3', 'x', '0123456789abcdef', 1, 2, 2, 'o', 'ses_3', 'chat', 2, 'j{}')`)
	dir := t.TempDir()
	for i, name := range []string{"one.db", "two.db"} {
		from := path
		if i > 0 {
			from = filepath.Join(dir, "one.db")
		}
		sqliteExport(t, from, filepath.Join(dir, name))
	}
	r := testscale.Open(t, sqlite.OpenReader, filepath.Join(dir, "two.db"))
	for trace, want := range map[string]string{ours: "ses_1", foreign[:10]: "ses_3"} {
		if got, err := r.Resolve(t.Context(), trace); got != want || err != nil {
			t.Errorf("trace %s is of session %q, %v", trace, got, err)
		}
	}
	for id, want := range map[string]int{"ses_1": 1, "ses_3": 1} {
		if links, err := r.Spans(t.Context(), id); len(links) != want || err != nil {
			t.Errorf("session %s has %d spans, %v", id, len(links), err)
		}
	}
}

// TestStoreTheOtherSessionsAreExported: a session that the store cannot hold whole is left out
// whole and named, and those before and after it are there, byte for byte.
func TestStoreTheOtherSessionsAreExported(t *testing.T) {
	dir := t.TempDir()
	rows := func(id string) *session.Transcript { return sqliteSessionOf(id, 2, "d").Transcript }
	first := rows("ses_a")
	shared := map[string]*session.Transcript{"message": rows("ses_b"), "part": rows("ses_c"), "tree": rows("ses_d"),
		"index": rows("ses_e")}
	m := &shared["message"].Messages[0]
	m.Message.ID = first.Messages[0].Message.ID
	for i := range m.Parts {
		m.Parts[i].MessageID = m.Message.ID
	}
	last := func(t *session.Transcript) *session.Part {
		parts := t.Messages[len(t.Messages)-1].Parts
		return &parts[len(parts)-1]
	}
	last(shared["part"]).ID = first.Messages[0].Parts[0].ID
	shared["tree"].Messages[0].Message.SessionID = "ses_other"
	last(shared["index"]).Index = -1
	all := []*session.Transcript{first, shared["message"], shared["part"], shared["tree"], shared["index"],
		rows("ses_z")}
	given := func(yield func(*codec.Session, error) bool) {
		for _, t := range all {
			if !yield(&codec.Session{Transcript: t}, nil) {
				return
			}
		}
	}
	problems := map[string]string{}
	path := filepath.Join(dir, "x.db")
	err := sqliteEncodeFile(t.Context(), path, given, func(id string, err error) { problems[id] = err.Error() })
	testscale.Must(t, err)
	for id, want := range map[string]string{
		"ses_b": "message " + first.Messages[0].Message.ID + ": its id belongs to session ses_a",
		"ses_c": "part " + first.Messages[0].Parts[0].ID + ": its id belongs to message " +
			first.Messages[0].Message.ID,
		"ses_d": "ses_other",
		"ses_e": "-1",
	} {
		if got := problems[id]; !strings.Contains(got, want) || !strings.Contains(got, "; export it ") ||
			strings.Contains(got, dir) {
			t.Errorf("the problem of %s is %q, want %q", id, got, want)
		}
	}
	if len(problems) != 4 {
		t.Errorf("problems %v", problems)
	}
	got, damaged, err := sqliteDecode(t, path)
	if err != nil || len(damaged) > 0 || len(got) != 2 {
		t.Fatalf("%d sessions, %v, %v", len(got), damaged, err)
	}
	for i, want := range []*session.Transcript{first, all[5]} {
		if diff := cmp.Diff(want, got[i].Transcript); diff != "" {
			t.Errorf("session %d (-want +got):\n%s", i, diff)
		}
	}
}
