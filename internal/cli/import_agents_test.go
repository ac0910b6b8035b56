package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// TestDiscoverFindsAgents: what agents keep in their usual places is found and imported, and
// importing it again adds nothing.
func TestDiscoverFindsAgents(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME", "COPILOT_HOME", "CURSOR_DATA_DIR",
		"GOOSE_PATH_ROOT", "MAIDA_DATA_DIR", "OPENCODE_DB",
		"CLINE_DATA_DIR", "CLINE_DIR", "OPENHANDS_CONVERSATIONS_DIR", "OPENHANDS_PERSISTENCE_DIR", "KIRO_HOME",
		"CONTINUE_GLOBAL_DIR", "QWEN_HOME", "QWEN_RUNTIME_DIR", "CRUSH_GLOBAL_DATA", "KIMI_SHARE_DIR", "KIMI_CODE_HOME",
		"AIDER_CHAT_HISTORY_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	testdata := samples + "transcripts/testdata/"
	if err := os.CopyFS(filepath.Join(home, ".maida"), os.DirFS(samples+"formats/testdata/agentdbg/maida")); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"copilot/session-state":   ".copilot/session-state",
		"cline/sessions":          ".cline/data/sessions",
		"cline/tasks":             ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
		"amp/threads":             ".local/share/amp/threads",
		"windsurf/transcripts":    ".windsurf/transcripts",
		"kimi":                    ".kimi",
		"kimi-code/sessions":      ".kimi-code/sessions",
		"openhands/conversations": ".openhands/conversations",
		"continue/sessions":       ".continue/sessions",
		"qwen/projects":           ".qwen/projects",
		"roo/User":                ".config/Cursor/User",
		"vscode/User":             ".config/Code - Insiders/User",
	} {
		if err := os.CopyFS(filepath.Join(home, to), os.DirFS(testdata+from)); err != nil {
			t.Fatal(err)
		}
	}
	kiro := filepath.Join(home, ".kiro", "sessions", "cli")
	if err := os.MkdirAll(kiro, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".json", ".jsonl"} {
		const session = "4b1d2c3e-0000-4000-8000-00000000000a"
		text, err := os.ReadFile(testdata + "kiro/" + session + ext)
		if err == nil {
			err = os.WriteFile(filepath.Join(kiro, session+ext), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open := make(map[string]*sqlite.Conn)
	for from, to := range map[string]string{
		"crush/crush.sql":     "app/.crush/crush.db",
		"goose/sessions.sql":  ".local/share/goose/sessions/sessions.db",
		"kiro/data.sql":       ".local/share/kiro-cli/data.sqlite3",
		"opencode/schema.sql": ".local/share/kilo/kilo.db",
		"zed/threads.sql":     ".local/share/zed/threads/threads.db",
	} {
		path := filepath.Join(home, to)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		script, err := os.ReadFile(testdata + from)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() // the program runs
		open[from] = conn
		if err := sqlitex.ExecuteScript(conn, string(script), nil); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(home, ".local/share/crush/projects.json")
	if err := os.MkdirAll(filepath.Dir(list), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, []byte(`{"projects":[{"path":"`+home+`/app","data_dir":"`+home+`/app/.crush"}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "s.db")
	got := importJSON(t, store, nil, "--discover", "--yes")
	var formats []string
	for _, f := range got.Files {
		if !slices.Contains(formats, f.Format) {
			formats = append(formats, f.Format)
		}
	}
	slices.Sort(formats)
	if want := []string{"amp", "cline", "continue", "copilot-chat", "copilot-cli", "crush", "goose", "kimi-cli",
		"kimi-code", "kiro-cli", "maida", "opencode", "openhands", "qwen-code", "windsurf",
		"zed"}; !slices.Equal(formats, want) {
		t.Errorf("formats %q, want %q", formats, want)
	}
	if got.Total.Added != 39 || got.Total.Damaged > 0 {
		t.Errorf("imported %+v", got.Total)
	}
	if again := importJSON(t, store, nil, "--discover", "--yes"); again.Total.Messages+again.Total.Parts > 0 {
		t.Errorf("again: %+v", again.Total)
	}

	// What a program adds is in the log beside its database, or in a file of its own.
	for from, script := range map[string]string{
		"goose/sessions.sql": `INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)
 VALUES ('msg_z', '20260801_2', 'user', '[{"type":"text","text":"more"}]', 1785578500)`,
		"opencode/schema.sql": `INSERT INTO session (id, project_id, slug, directory, title, version, time_created,
 time_updated) VALUES ('ses_k1', 'p', 's', '/work/app', 'Mend', '7.0.0', 1785578500000, 1785578500000);
 INSERT INTO message VALUES ('msg_k1', 'ses_k1', 1785578500000, 1785578500000, '{"role":"user"}');
 INSERT INTO part VALUES ('prt_k1', 'msg_k1', 'ses_k1', 1785578500000, 1785578500000, '{"type":"text","text":"mend"}')`,
		"zed/threads.sql": `UPDATE threads SET updated_at = '2026-08-01T11:00:00+00:00', data = replace(CAST(data AS TEXT),
 '{"Text":"looked"}', '{"Text":"looked"},{"Text":"twice"}') WHERE id = 'thread-2'`,
	} {
		if err := sqlitex.ExecuteScript(open[from], script, nil); err != nil {
			t.Fatal(err)
		}
		if grown := importJSON(t, store, nil, "--discover", "--yes"); grown.Total.Parts == 0 {
			t.Errorf("%s grew by a part: %+v", from, grown.Total)
		}
	}
	event := filepath.Join(home, ".openhands/conversations/7f3c0a5e11114222833344445555aaaa/subagents",
		"9999000011114222833344445555bbbb/events/event-00002-00000003-0000-4000-8000-000000000000.json")
	if err := os.WriteFile(event, []byte(`{"id":"00000003-0000-4000-8000-000000000000",`+
		`"timestamp":"2026-08-01T10:00:15",`+
		`"source":"user","llm_message":{"role":"user","content":[{"type":"text","text":"more"}]},`+
		`"kind":"MessageEvent"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if grown := importJSON(t, store, nil, "--discover", "--yes"); grown.Total.Parts != 1 || grown.Total.Messages == 0 {
		t.Errorf("a conversation of OpenHands grew by a message: %+v", grown.Total)
	}
}
