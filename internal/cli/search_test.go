package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// manyParts is a store with two sessions of more parts than are searched without an index.
func manyParts(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, fixture())
	for _, session := range []string{"keep", "secret"} {
		testscale.Script(t, path, fmt.Sprintf(`INSERT INTO chat_sessions(id, title, agent, created_at, updated_at)
VALUES ('ses_%[1]s', '%[1]s', 'a', 1, 1);
INSERT INTO chat_messages(id, session_id, role, created_at, updated_at) VALUES ('msg_%[1]s', 'ses_%[1]s', 'user', 1, 1);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
INSERT INTO chat_parts(id, message_id, session_id, "index", type, data_json, created_at, updated_at)
SELECT '%[1]s' || i, 'msg_%[1]s', 'ses_%[1]s', i, 'text',
 '{"type":"text","text":"of %[1]s number ' || i || '."}', 1, 1 FROM n`, session))
	}
	command(t, 0, "--store", path, "store", "migrate") // what opens the store for writing counts the parts
	return path
}

func searchFiles(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path + "-search")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestTheSearchIndexIsMadeWhileACollectorWrites: and of what a search finds, nothing is missing afterwards.
func TestTheSearchIndexIsMadeWhileACollectorWrites(t *testing.T) {
	path := manyParts(t)
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	defer s.Close()
	if _, stderr, code := piped(nil, "--store", path, "store", "migrate", "--search-index"); code != 0 ||
		!strings.Contains(stderr, "up to date") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if files := searchFiles(t, path); len(files) != 4 {
		t.Errorf("the index has the files %v", files)
	}
	hits := decode[[]store.Hit](t, command(t, 0, "--store", path, "search", "keep number 4", "--limit", "9999",
		"--json"))
	if len(hits) != 1111 {
		t.Errorf("%d hits", len(hits))
	}
	if _, stderr, code := piped(nil, "--store", path, "store", "migrate", "--distribute"); code != 2 ||
		!strings.Contains(stderr, "--distribute is for a PostgreSQL database") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
