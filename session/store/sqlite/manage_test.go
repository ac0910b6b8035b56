package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func moment(ms int64) time.Time { return time.UnixMilli(ms) }

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
	batch := turnBatch("s", "1")
	apply(t, s, batch)
	before := storetest.Transcript(t, s, "s")
	const columns = `INSERT INTO observations(trace_id, source, owner, dialect, start_nano, end_nano, ` +
		`default_session, calls_json, session_id, until_nano, reach, data) VALUES `
	testscale.Script(t, path, columns+`('t', 'placed', 's', 'd', 1, 2, 'o', '["c1"]', 's', 2, 0, ''), ('t', 'parked', 's', 'd', 1, 2, 'o', NULL, NULL, 2, 0, ''),
 ('t', 'child', 's', 'd', 1, 2, 'o', '["c2"]', 'k', 2, 0, '');
 INSERT INTO tool_call_requests VALUES ('c1', 1, 't', 'placed'), ('c2', 1, 't', 'child')`)
	testscale.Must(t, s.Delete(t.Context(), "s"))
	if diff := cmp.Diff([]string{"outbox", "observation child", "call c2"}, testscale.Query(t, path, everything)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	apply(t, s, batch)
	after := storetest.Transcript(t, s, "s")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("delivered again (-before +after):\n%s", diff)
	}
	g, err := s.Collect(t.Context(), moment(at+1), false)
	if err != nil || g.Observations != 1 {
		t.Errorf("collected %+v, %v", g, err)
	}
	if got := testscale.Query(t, path,
		`SELECT source FROM observations UNION ALL SELECT call_id FROM tool_call_requests`); got != nil {
		t.Errorf("left %v", got)
	}
	sound(t, path)
}

// TestBackup: a copy is whole while the store is written, and takes no other file's place.
func TestBackup(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	apply(t, s, bigBatch(1))
	r := openReader(t, path)
	name := filepath.Join(t.TempDir(), "copy.db")
	testscale.Must(t, r.Backup(t.Context(), name))
	apply(t, s, bigBatch(2))
	if err := r.Backup(t.Context(), name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	sound(t, name)
	if got := testscale.Query(t, name, `SELECT id FROM chat_sessions`); !cmp.Equal(got, []string{"ses_1"}) {
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

// TestDeletedTextIsGone: neither free pages nor the log have text of a session that was deleted, while the store is open.
func TestDeletedTextIsGone(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	batch := bigBatch(1)
	for _, word := range []string{"persimmon", "kumquat"} {
		for i := range batch.Parts {
			batch.Parts[i].Data = fmt.Appendf(nil, `{"type":"text","text":"%s%s"}`, word, strings.Repeat(" pulp", 9000))
			batch.Parts[i].UpdatedAt++
		}
		apply(t, s, batch)
		apply(t, s, bigBatch(2))
	}
	testscale.Must(t, s.Delete(t.Context(), batch.Sessions[0].ID))
	left := ""
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left = string(testscale.ReadFile(t, path)) + string(testscale.ReadFile(t, path+"-wal"))
		if !strings.Contains(left, "pulp") && !strings.Contains(left, "persimmon") {
			return
		}
	}
	t.Errorf("the text is there %d times", strings.Count(left, "pulp"))
}

// TestCompact: the file is as small as what is left.
func TestCompact(t *testing.T) {
	path := newPath(t)
	s := open(t, path, Options{})
	for i := range 24 {
		apply(t, s, bigBatch(i))
	}
	testscale.Must(t, s.Compact(t.Context()))
	size := func() int64 {
		info, err := os.Stat(path)
		testscale.Must(t, err)
		return info.Size()
	}
	before := size()
	for i := range 23 {
		testscale.Must(t, s.Delete(t.Context(), bigBatch(i).Sessions[0].ID))
	}
	testscale.Must(t, s.Compact(t.Context()))
	if after := size(); after > before/2 {
		t.Errorf("%d bytes, before %d", after, before)
	}
	apply(t, s, bigBatch(1))
	sound(t, path)
}

// TestForkWithMetadataThatIsNoJSON: nothing is forked. What forks and rewinds do is in the stories of storetest.
func TestForkWithMetadataThatIsNoJSON(t *testing.T) {
	s := open(t, newPath(t), Options{})
	apply(t, s, turnBatch("s", "1"))
	id, err := s.Fork(t.Context(), store.ForkOptions{From: "s", Metadata: map[string]any{"f": func() {}}})
	if err == nil || id != "" {
		t.Errorf("fork %q, %v", id, err)
	}
}
