package importer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/importer"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// deleteSession deletes a session from a store.
func deleteSession(t *testing.T, db, id string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), db, sqlite.Options{})
	testscale.Must(t, err)
	testscale.Must(t, errors.Join(s.Delete(t.Context(), id), s.Close()))
}

// has reports whether a store has a session.
func has(t *testing.T, db, id string) bool {
	t.Helper()
	r := testscale.Open(t, sqlite.OpenReader, db)
	_, err := r.Session(t.Context(), id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// TestDeletedSessionComesBackOnlyIfItIsWanted: a session that was deleted from the store is not imported again with the
// directory of its file, unless it went on. It comes back if its file is named, or with Again.
func TestDeletedSessionComesBackOnlyIfItIsWanted(t *testing.T) {
	dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
	path, text := filepath.Join(dir, "s1.jsonl"), claudeFile("s1", "why")
	write(t, path, text)
	write(t, filepath.Join(dir, "s2.jsonl"), claudeFile("s2", "why"))
	run(t, db, importer.Options{}, dir)
	deleteSession(t, db, "s1")
	for _, step := range []struct {
		what, text string
		options    importer.Options
		args       string
		want       bool
	}{
		{"import of the directory", text, importer.Options{}, dir, false},
		{"import of the directory after a line without news", text + "\n", importer.Options{}, dir, false},
		{"import of the directory with Again", text + "\n", importer.Options{Again: true}, dir, true},
		{"import of the file", text + "\n", importer.Options{}, path, true},
		{"import of the directory after another turn", text + strings.NewReplacer("2026-01-02",
			"2096-01-02", `"s11"`, `"s13"`, `"s12"`, `"s14"`).Replace(claudeFile("s1", "and now")),
			importer.Options{}, dir, true},
	} {
		write(t, path, step.text)
		summary, _ := run(t, db, step.options, step.args)
		if got := has(t, db, "s1"); got != step.want {
			t.Errorf("%s: the session is there: %v, %+v", step.what, got, summary.Total)
		}
		if got := summary.Total.Deleted == 1; got == step.want {
			t.Errorf("%s: %d reported as deleted", step.what, summary.Total.Deleted)
		}
		if step.want {
			deleteSession(t, db, "s1")
		}
	}
}

// databases are those of programs, with a statement that changes one of their sessions, and that one and another.
var databases = []struct{ name, scripts, change, changed, other string }{
	{"goose.db", "goose/sessions.sql", `INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)
		VALUES ('msg_c', '20260801_2', 'user', '[{"type":"text","text":"more"}]', 1785578500)`, "20260801_2", "20260801_1"},
	{"opencode.db", "opencode/schema.sql opencode/sessions.sql", `UPDATE part SET data = '{"type":"text","text":"more"}',
		time_updated = time_updated + 1000 WHERE id = (SELECT max(id) FROM part WHERE session_id = 'ses_46ffff000000000000000child')`,
		"ses_46ffff000000000000000child", ""},
	{"threads.db", "zed/threads.sql", `UPDATE threads SET updated_at = '2027-01-01T00:00:00Z', summary = 'more' ` +
		`WHERE id = 'thread-2'`,
		"thread-2", "thread-1"},
	{"crush.db", "crush/crush.sql", `UPDATE messages SET parts = replace(parts, 'looked', 'twice') WHERE id = 'c-2'`,
		"m-4$$toolu_4", "5c0f1e2d-0000-4000-8000-000000000001"},
	{"kiro.db", "kiro/data.sql", `UPDATE conversations_v2 SET updated_at = updated_at + 1000
		WHERE conversation_id = (SELECT min(conversation_id) FROM conversations_v2)`, "", ""},
}

// TestDatabaseIsReadWhereItChanged: of a database of many sessions, those are read that changed, and one that was
// deleted from the store does not come back with another that changed.
func TestDatabaseIsReadWhereItChanged(t *testing.T) {
	for _, tt := range databases {
		t.Run(tt.name, func(t *testing.T) {
			dir, db := t.TempDir(), filepath.Join(t.TempDir(), "sessions.db")
			path := filepath.Join(dir, tt.name)
			for name := range strings.FieldsSeq(tt.scripts) {
				script, err := os.ReadFile(filepath.Join("..", "codec", "transcripts", "testdata",
					filepath.FromSlash(name)))
				testscale.Must(t, err)
				testscale.Script(t, path, string(script))
			}
			read := func(o importer.Options) (importer.Summary, int) {
				t.Helper()
				var at importer.Progress
				o.Progress = func(p importer.Progress) { at = p }
				im, err := importer.New(db, o)
				testscale.Must(t, err)
				failed, err := im.Run(t.Context(), importer.Inputs([]string{dir}, nil, nil))
				testscale.Must(t, errors.Join(failed, err, im.Close()))
				return im.Summary, at.Sessions
			}
			first, n := read(importer.Options{})
			if n < 2 || n != len(first.Total.Sessions) {
				t.Fatalf("%d sessions stored, %+v", n, first.Total)
			}
			testscale.Script(t, path, tt.change)
			second, n := read(importer.Options{})
			if n != 1 || len(second.Total.Sessions) != len(first.Total.Sessions) {
				t.Errorf("%d sessions stored after one changed, %+v", n, second.Total)
			}
			changed := exported(t, db)
			if _, n := read(importer.Options{Again: true}); n != len(first.Total.Sessions) {
				t.Errorf("%d sessions stored with Again", n)
			}
			if diff := cmp.Diff(strings.Split(exported(t, db), "\n"), strings.Split(changed, "\n")); diff != "" {
				t.Errorf("-whole +changed:\n%s", diff)
			}
			if tt.other == "" {
				return
			}
			deleteSession(t, db, tt.other)
			testscale.Script(t, path, "CREATE TABLE more (id)")
			if summary, n := read(importer.Options{}); n != 0 || has(t, db, tt.other) || summary.Total.Deleted != 1 {
				t.Errorf("%d sessions stored, the deleted one is there: %v, %+v", n, has(t, db, tt.other),
					summary.Total)
			}
			if summary, _ := read(importer.Options{Again: true}); !has(t, db, tt.other) {
				t.Errorf("the deleted one is not there with Again: %+v", summary.Total)
			}
		})
	}
}
