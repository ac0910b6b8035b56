package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/store"
)

func moment(ms int64) time.Time { return time.UnixMilli(ms) }

// TestAmend: a title and the archive stand against telemetry that is delivered
// again, and give way to what is said later.
func TestAmend(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	told := turnBatch("s", "1")
	declared := func(text string, ms int64) *store.Value {
		return &store.Value{Text: text, At: ms * 1e6, Rank: store.RankFinal}
	}
	told.Sessions[0].Title, told.Sessions[0].Archived = declared("agent's", at), declared("0", at)
	apply(t, s, told)
	if err := s.SetTitle(t.Context(), "s", "mine", moment(at+5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Archive(t.Context(), "s", true, moment(at+6)); err != nil {
		t.Fatal(err)
	}
	apply(t, s, told)
	row, err := s.Session(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if row.Title != "mine" || row.ArchivedAt == nil || *row.ArchivedAt != at+6 || row.UpdatedAt != at {
		t.Errorf("after a redelivery: %q, archived %v, updated %d", row.Title, row.ArchivedAt, row.UpdatedAt)
	}
	if err := s.Archive(t.Context(), "s", false, moment(at+7)); err != nil {
		t.Fatal(err)
	}
	told.Sessions[0].Title = declared("later", at+10)
	apply(t, s, told)
	if row, err = s.Session(t.Context(), "s"); err != nil || row.ArchivedAt != nil || row.Title != "later" {
		t.Errorf("then: %q, archived %v, %v", row.Title, row.ArchivedAt, err)
	}
	for _, err := range []error{s.SetTitle(t.Context(), "none", "x", moment(at)),
		s.Archive(t.Context(), "none", true, moment(at)), s.Delete(t.Context(), "none")} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("of a session that is not there: %v", err)
		}
	}
	if got := query(t, path, `SELECT id FROM chat_sessions`); len(got) != 1 {
		t.Errorf("sessions %v", got)
	}
}

// everything names each row of each table by its table.
const everything = `SELECT 'session' FROM chat_sessions UNION ALL SELECT 'message' FROM chat_messages UNION ALL SELECT 'part' FROM chat_parts
 UNION ALL SELECT 'link' FROM span_refs UNION ALL SELECT 'trace' FROM session_traces UNION ALL SELECT 'state' FROM session_state
 UNION ALL SELECT 'outbox' FROM export_outbox UNION ALL SELECT 'observation ' || source FROM observations UNION ALL SELECT 'call ' || call_id FROM tool_call_requests
 UNION ALL SELECT 'decision' FROM permission_decisions UNION ALL SELECT 'claim' FROM requested_indexes`

// TestDelete: of a session nothing is left but what is another's, and telemetry
// that is delivered again makes it as it was.
func TestDelete(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{Outbox: true})
	told := turnBatch("s", "1")
	apply(t, s, told)
	before, err := s.Transcript(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	const columns = `INSERT INTO observations(trace_id, source, owner, dialect, start_nano, end_nano, default_session, calls_json, session_id, until_nano, reach, data) VALUES `
	script(t, path, columns+`('t', 'placed', 's', 'd', 1, 2, 'o', '["c1"]', 's', 2, 0, ''), ('t', 'parked', 's', 'd', 1, 2, 'o', NULL, NULL, 2, 0, ''),
 ('t', 'child', 's', 'd', 1, 2, 'o', '["c2"]', 'k', 2, 0, '');
 INSERT INTO tool_call_requests VALUES ('c1', 1, 't', 'placed'), ('c2', 1, 't', 'child')`)
	if err := s.Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"observation child", "call c2"}, query(t, path, everything)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	apply(t, s, told)
	after, err := s.Transcript(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("told again (-before +after):\n%s", diff)
	}
	g, err := s.Collect(t.Context(), moment(at+1), false)
	if err != nil || g.Observations != 1 {
		t.Errorf("collected %+v, %v", g, err)
	}
	if got := query(t, path,
		`SELECT source FROM observations UNION ALL SELECT call_id FROM tool_call_requests`); got != nil {
		t.Errorf("left %v", got)
	}
	sound(t, path)
}

// TestCollect: what a message or a span names stays, and all of it while something
// goes on.
func TestCollect(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	told := turnBatch("s", "1")
	told.SpanRefs[0].TurnStats.SystemPromptDigest = "named"
	told.SpanRefs[0].TurnStats.Trace.ToolCatalogDigest = "offered"
	for _, digest := range []string{"named", "unnamed"} {
		told.Blobs = append(told.Blobs, store.Blob{Kind: store.BlobSystemPrompt, Digest: digest, Body: "x"})
	}
	for _, digest := range []string{"offered", "unoffered"} {
		told.Blobs = append(told.Blobs, store.Blob{Kind: store.BlobToolCatalog, Digest: digest, Body: "[]"})
	}
	apply(t, s, told)
	blobs := func() []string {
		return query(t, path, `SELECT digest FROM system_prompts UNION ALL SELECT digest FROM tool_catalogs ORDER BY digest`)
	}
	for _, test := range []struct {
		recent int64
		dryRun bool
		want   store.Garbage
		left   []string
	}{
		{at, false, store.Garbage{Kept: true}, []string{"named", "offered", "unnamed", "unoffered"}},
		{at + 1, true, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, []string{"named", "offered", "unnamed", "unoffered"}},
		{at + 1, false, store.Garbage{SystemPrompts: 1, ToolCatalogs: 1}, []string{"named", "offered"}},
		{at + 1, false, store.Garbage{}, []string{"named", "offered"}},
	} {
		g, err := s.Collect(t.Context(), moment(test.recent), test.dryRun)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, g); diff != "" {
			t.Errorf("recent %d, dry run %v (-want +got):\n%s", test.recent, test.dryRun, diff)
		}
		if diff := cmp.Diff(test.left, blobs()); diff != "" {
			t.Errorf("recent %d, dry run %v: left (-want +got):\n%s", test.recent, test.dryRun, diff)
		}
	}
}

// TestBackup: a copy is whole while the store is written, and takes no other file's
// place.
func TestBackup(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	apply(t, s, bigBatch(1))
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	name := filepath.Join(t.TempDir(), "copy.db")
	if err := r.Backup(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	apply(t, s, bigBatch(2))
	if err := r.Backup(t.Context(), name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	sound(t, name)
	if got := query(t, name, `SELECT id FROM chat_sessions`); !cmp.Equal(got, []string{"ses_1"}) {
		t.Errorf("sessions of the copy: %v", got)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := r.Backup(canceled, filepath.Join(dir, "x.db")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestCompact: the file is as small as what is left.
func TestCompact(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	for i := range 20 {
		apply(t, s, bigBatch(i))
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for i := range 19 {
		if err := s.Delete(t.Context(), bigBatch(i).Sessions[0].ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := size(); after > before/2 {
		t.Errorf("%d bytes, before %d", after, before)
	}
	apply(t, s, bigBatch(1))
	sound(t, path)
}

// TestStale: a family goes as one, or not at all.
func TestStale(t *testing.T) {
	path := newPath(t)
	if err := open(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	script(t, path, `INSERT INTO chat_sessions(id, agent, parent_id, created_at, updated_at, archived_at) VALUES
 ('old', 'a', NULL, 1, 10, NULL), ('child', 'a', 'old', 1, 20, NULL), ('grandchild', 'a', 'child', 1, 30, NULL),
 ('kept', 'a', NULL, 1, 10, 5), ('young', 'a', 'kept', 1, 200, NULL),
 ('away', 'a', NULL, 1, 40, 50), ('orphan', 'a', 'gone', 1, 15, NULL),
 ('x', 'a', 'y', 1, 5, NULL), ('y', 'a', 'x', 1, 6, NULL)`)
	r, err := OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, test := range []struct {
		before   int64
		archived bool
		want     []string
	}{
		{100, false, []string{"x", "y", "old", "orphan", "child", "grandchild", "away"}},
		{30, false, []string{"x", "y", "orphan"}},
		{100, true, []string{"away"}},
		{1, false, nil},
	} {
		stale, err := r.Stale(t.Context(), moment(test.before), test.archived)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range stale {
			got = append(got, s.ID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("before %d, archived %v (-want +got):\n%s", test.before, test.archived, diff)
		}
	}
}
