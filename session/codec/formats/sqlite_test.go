package formats

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

func sqliteSessionOf(id string, at int64, prompt string) *store.Imported {
	return &store.Imported{
		Transcript: &session.Transcript{
			Session: session.Session{ID: id, Title: id, Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
				CreatedAt: at,
				UpdatedAt: at},
			Messages: []session.MessageAndParts{{
				Message: session.Message{ID: "msg_" + id, SessionID: id, Role: session.RoleAssistant,
					MetadataJSON: `{"system_prompt_digest":"` + prompt + `"}`, CreatedAt: at, UpdatedAt: at},
				Parts: []session.Part{{
					ID: "prt_" + id, MessageID: "msg_" + id, SessionID: id, Type: "text",
					DataJSON:  `{"type":"text","text":"hi"}`,
					CreatedAt: at, UpdatedAt: at,
				}},
			}},
		},
		Decisions: []store.Decision{{ID: "dec_" + id, SessionID: id, ToolID: "bash", Action: "deny", Outcome: "denied",
			DecidedAt: at}},
		Blobs: []store.Blob{{Kind: store.BlobSystemPrompt, Digest: prompt, Body: "be brief", Exact: true}},
	}
}

// sqliteWrite makes a store with sessions of which one is archived and one a child.
func sqliteWrite(t *testing.T) (path string, all []*store.Imported) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "sessions.db")
	all = []*store.Imported{sqliteSessionOf("ses_1", 1, "d1"), sqliteSessionOf("ses_2", 2, "d2"), sqliteSessionOf("ses_3", 3, "d1")}
	all[0].Session.ArchivedAt = new(int64(9))
	all[1].Session.ParentID = new("ses_3")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	testscale.Must(t, err)
	for _, in := range all {
		if _, err := s.Import(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	testscale.Must(t, s.Close())
	return path, all
}

func sqliteDecode(t *testing.T, path string) (sessions []*codec.Session, problems []codec.Problem, failed error) {
	t.Helper()
	for s, err := range sqliteDecodeFile(t.Context(), path, nil,
		func(p codec.Problem) { problems = append(problems, p) }) {
		if err != nil {
			failed = err
			continue
		}
		sessions = append(sessions, s)
	}
	return sessions, problems, failed
}

func TestStoreDecodeFile(t *testing.T) {
	path, all := sqliteWrite(t)
	sessions, problems, err := sqliteDecode(t, path)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	if d := cmp.Diff(all, sessions); d != "" {
		t.Errorf("sessions (-want +got):\n%s", d)
	}
}

// TestStoreReference reads a file as the reference program writes it, without a table
// of ours, and from a directory that cannot be written.
func TestStoreReference(t *testing.T) {
	path, all := sqliteWrite(t)
	names, err := sqliteTables(path)
	if err != nil || !slices.Contains(names, "chat_sessions") || !slices.Contains(names, "span_refs") {
		t.Fatalf("tables %q: %v", names, err)
	}
	drop := ""
	for _, name := range names {
		switch name {
		case "chat_sessions", "chat_messages", "chat_parts":
		default:
			drop += "DROP TABLE " + name + ";"
		}
	}
	testscale.Script(t, path, drop)
	testscale.Must(t, os.Chmod(filepath.Dir(path), 0o500))
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(path), 0o700) })
	names, err = sqliteTables(path)
	if err != nil || !slices.Equal(names, []string{"chat_messages", "chat_parts", "chat_sessions"}) {
		t.Errorf("tables %q: %v", names, err)
	}
	sessions, problems, err := sqliteDecode(t, path)
	if err != nil || len(problems) > 0 || len(sessions) != len(all) {
		t.Fatalf("%d sessions, %v, %v", len(sessions), problems, err)
	}
	for i, s := range sessions {
		if d := cmp.Diff(all[i].Transcript, s.Transcript); d != "" {
			t.Errorf("session %d (-want +got):\n%s", i, d)
		}
		if len(s.Decisions)+len(s.Blobs) > 0 {
			t.Errorf("session %d has decisions or blobs", i)
		}
	}
}

func TestNoStore(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	testscale.WriteFile(t, text, "no database at all")
	for path, want := range map[string]error{text: store.ErrNotStore, filepath.Join(dir, "gone"): store.ErrNotFound} {
		if sessions, _, err := sqliteDecode(t, path); !errors.Is(err, want) || len(sessions) > 0 {
			t.Errorf("%s: %d sessions, error %v, want %v", path, len(sessions), err, want)
		}
		if _, err := sqliteTables(path); err == nil {
			t.Errorf("%s has tables", path)
		}
	}
}
