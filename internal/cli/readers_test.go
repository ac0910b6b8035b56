package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session/document"
)

// TestListShowAndStatusAgreeOnWhatASessionIsDoing: of every session of every capture, and
// of every prefix of its requests, ls, show and status report the same status, at once and
// long after, and ls counts the notices that show and check list.
func TestListShowAndStatusAgreeOnWhatASessionIsDoing(t *testing.T) {
	const captures = "../../session/ingest/testdata/captures"
	dirs, err := filepath.Glob(captures + "/*/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	states := map[document.Activity]int{}
	for _, dir := range dirs {
		bodies, err := filepath.Glob(dir + "/*.json")
		if err != nil || len(bodies) == 0 {
			continue
		}
		path := filepath.Join(t.TempDir(), "s.db")
		for _, body := range bodies {
			command(t, 0, "--store", path, "import", body)
			for _, timeout := range []string{"10m", "1000000h"} {
				t.Setenv("AGENTTRACE_IDLE_TIMEOUT", timeout)
				compareStatus(t, path, dir, states)
			}
		}
	}
	if states[document.ActivityIdle] == 0 || states[document.ActivityError] == 0 {
		t.Errorf("the captures lack a status: %v", states)
	}
}

func compareStatus(t *testing.T, path, dir string, states map[document.Activity]int) {
	t.Helper()
	for _, item := range decode[[]document.Item](t, command(t, 0, "--store", path, "ls", "--all", "--json")) {
		states[item.Status]++
		shown := decode[document.Document](t, command(t, 0, "--store", path, "show", item.ID, "--json"))
		code := 0
		if item.Status.Trouble() {
			code = 1
		}
		status := decode[document.Status](t, command(t, code, "--store", path, "status", item.ID, "--json"))
		if item.Status == document.ActivityUnknown && len(shown.Turns) > 0 || shown.Status.State != item.Status ||
			status.State != item.Status {
			t.Errorf("%s, session %s: ls %q, show %q, status %q", dir, item.ID, item.Status, shown.Status.State,
				status.State)
		}
		if item.Notices != len(shown.Notices) {
			t.Errorf("%s, session %s: ls counts %d notices, show lists %d", dir, item.ID, item.Notices,
				len(shown.Notices))
		}
		if len(shown.Notices) > 0 {
			found := command(t, 0, "--store", path, "check", path)
			for _, n := range shown.Notices {
				if !strings.Contains(found, n.String()) {
					t.Errorf("%s, session %s: check does not list %q", dir, item.ID, n.String())
				}
			}
		}
	}
}
