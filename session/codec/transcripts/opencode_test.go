package transcripts_test

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/store"
)

// opencodeDatabase makes a database as opencode does it, and leaves it open, as a program that runs does.
func opencodeDatabase(t testing.TB, scripts ...string) (dir string, conn *sqlite.Conn) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "opencode")
	testscale.Must(t, os.Mkdir(dir, 0o700))
	conn, err := sqlite.OpenConn(filepath.Join(dir, "opencode.db"), sqlite.OpenReadWrite, sqlite.OpenCreate,
		sqlite.OpenWAL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, name := range []string{"sessions", "schema"} {
		script := testscale.ReadFile(t, "testdata/opencode/"+name+".sql")
		scripts = append([]string{string(script)}, scripts...)
	}
	for _, script := range scripts {
		testscale.Must(t, sqlitex.ExecuteScript(conn, script, nil))
	}
	return dir, conn
}

func opencodeAt(path string) func(func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return transcripts.Opencode.DecodeFile(context.Background(), path, nil, report)
	}
}

func TestOpencode(t *testing.T) {
	dir, _ := opencodeDatabase(t)
	for _, path := range []string{dir, filepath.Join(dir, "opencode.db")} {
		all, problems, err := valid(t, opencodeAt(path))
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %q", err, problems)
		}
		golden(t, "testdata/opencode/sessions.golden.jsonl", text(t, all))
		if d := cmp.Diff([]store.Decision{{
			ID: all[0].Decisions[0].ID, SessionID: "ses_4700000000000000000000main",
			MessageID:  "msg_b7c000000002mainassist1aaa",
			PartID:     "prt_b7c000000002a6",
			ToolCallID: "toolu_3", ToolID: "edit", Action: "ask", Outcome: "denied", Reply: "reject", Reason: "not yet",
			DecidedAt: 1767323055000,
		}}, all[0].Decisions); d != "" {
			t.Errorf("decisions (-want +got):\n%s", d)
		}
	}
}

// opencodeTree writes what is in the database as the files that older versions kept.
func opencodeTree(t *testing.T, conn *sqlite.Conn) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "storage")
	write := func(value any, elem ...string) {
		name := filepath.Join(append([]string{root}, elem...)...) + ".json"
		text, err := json.MarshalIndent(value, "", "  ")
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o700)
		}
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	query := func(sql string, row func(stmt *sqlite.Stmt)) {
		testscale.Must(t, sqlitex.ExecuteTransient(conn, sql,
			&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error { row(stmt); return nil }}))
	}
	query("SELECT * FROM session", func(stmt *sqlite.Stmt) {
		at := map[string]any{"created": stmt.GetInt64("time_created"), "updated": stmt.GetInt64("time_updated")}
		if n := stmt.GetInt64("time_archived"); n > 0 {
			at["archived"] = n
		}
		info := map[string]any{
			"id": stmt.GetText("id"), "projectID": stmt.GetText("project_id"), "directory": stmt.GetText("directory"),
			"title": stmt.GetText("title"), "version": stmt.GetText("version"), "time": at,
		}
		for column, key := range map[string]string{"parent_id": "parentID", "agent": "agent"} {
			if v := stmt.GetText(column); v != "" {
				info[key] = v
			}
		}
		for _, key := range []string{"revert", "permission", "model"} {
			if v := stmt.GetText(key); v != "" {
				info[key] = json.RawMessage(v)
			}
		}
		write(info, "session", stmt.GetText("project_id"), stmt.GetText("id"))
	})
	query("SELECT * FROM message", func(stmt *sqlite.Stmt) {
		write(json.RawMessage(stmt.GetText("data")), "message", stmt.GetText("session_id"), stmt.GetText("id"))
	})
	query("SELECT * FROM part", func(stmt *sqlite.Stmt) {
		write(json.RawMessage(stmt.GetText("data")), "part", stmt.GetText("message_id"), stmt.GetText("id"))
	})
	return root
}

// timeless takes the times from rows, of which files have fewer.
func timeless(all []*codec.Session) []session.Transcript {
	var out []session.Transcript
	for _, s := range all {
		c := *s.Transcript
		c.Session.UpdatedAt = 0
		c.Messages = append([]session.MessageAndParts(nil), c.Messages...)
		for i := range c.Messages {
			m := &c.Messages[i]
			m.Message.UpdatedAt = 0
			m.Parts = append([]session.Part(nil), m.Parts...)
			for j := range m.Parts {
				m.Parts[j].CreatedAt, m.Parts[j].UpdatedAt = 0, 0
			}
		}
		out = append(out, c)
	}
	return out
}

// TestOpencodeTree has the files give the sessions that the database gives.
func TestOpencodeTree(t *testing.T) {
	dir, conn := opencodeDatabase(t)
	root := opencodeTree(t, conn)
	want, _, _ := valid(t, opencodeAt(dir))
	got, problems, err := valid(t, opencodeAt(root))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %q", err, problems)
	}
	if d := cmp.Diff(timeless(want), timeless(got)); d != "" {
		t.Errorf("sessions (-database +files):\n%s", d)
	}
	one, _, err := valid(t,
		opencodeAt(filepath.Join(root, "session", "9c0ffee", "ses_46ffff000000000000000child.json")))
	if err != nil || len(one) != 1 || len(one[0].Messages) != 4 {
		t.Errorf("one session: %v, %+v", err, one)
	}

	// Of a session that is in both the database is read; damage is reported by its file.
	testscale.Must(t, os.Rename(root, filepath.Join(dir, "storage")))
	files := map[string]string{
		"session/9c0ffee/ses_old.json": `{"id":"ses_old","projectID":"9c0ffee","title":"Old","time":{"created":1,` +
			`"updated":2}}`,
		"session/9c0ffee/ses_bad.json": `{"id":"ses_bad",`,
		"message/ses_old/msg_1.json":   `{"id":"msg_1","role":"user","time":{"created":1}}`,
		"message/ses_old/msg_2.json":   `[]`,
		"message/ses_old/msg_3.json":   `{"id":"msg_3","role":"dreamer"}`,
		"part/msg_1/prt_1.json":        `{"id":"prt_1","type":"text","text":"hi"}`,
		"part/msg_1/prt_2.json": `{"id":"prt_2","type":"tool","tool":"x","state":{"status":"completed",` +
			`"output":"`,
	}
	for name, text := range files {
		path := filepath.Join(dir, "storage", filepath.FromSlash(name))
		testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testscale.WriteFile(t, path, text)
	}
	both, problems, err := valid(t, opencodeAt(dir))
	if err != nil || len(both) != 4 || both[3].Session.ID != "ses_old" || both[3].Session.Title != "Old" ||
		len(both[3].Messages) != 1 {
		t.Errorf("both: %v, %d sessions", err, len(both))
	}
	if d := cmp.Diff([]string{
		"session/9c0ffee/ses_bad.json: it is left out: unexpected EOF",
		"message/ses_old/msg_2.json: it is left out: not an object",
		"part/msg_1/prt_2.json: it is left out: unexpected EOF",
		"message msg_3: is neither the user's nor the assistant's: left out",
	}, problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

func TestOpencodeDamaged(t *testing.T) {
	dir, _ := opencodeDatabase(t, `
		UPDATE part SET data = '{"type":' WHERE id = 'prt_b7c000000002a3';
		UPDATE message SET data = '7' WHERE id = 'msg_b7c000000006mainuser3aaaaa';
		UPDATE session SET revert = '{"messageID":"msg_gone"}' WHERE id = 'ses_46fff00000000000000revert';`)
	all, problems, err := valid(t, opencodeAt(dir))
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %d sessions", err, len(all))
	}
	if d := cmp.Diff([]string{
		"message msg_b7c000000006mainuser3aaaaa: its data is not a JSON object: left out: not an object",
		"part prt_b7c000000002a3: its data is not a JSON object: left out: unexpected EOF",
		"session ses_46fff00000000000000revert: it is reverted to message msg_gone, which is not there: nothing is " +
			"hidden",
	}, problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}

	// Pages of the file are gone: what stands on others is read.
	dir, conn := opencodeDatabase(t)
	testscale.Must(t, sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil))
	testscale.Must(t, conn.Close())
	name := filepath.Join(dir, "opencode.db")
	file := testscale.ReadFile(t, name)
	at := strings.LastIndex(string(file), "Find the loop\",\"prompt\"")
	page := at / 4096 * 4096
	copy(file[page:page+4096], make([]byte, 4096))
	testscale.WriteFile(t, name, file)
	all, problems, err = valid(t, opencodeAt(dir))
	if len(problems) == 0 && err == nil {
		t.Errorf("%d sessions of a damaged file, and nothing is said", len(all))
	}
	t.Logf("%d sessions, %q, %v", len(all), problems, err)
}

func TestOpencodeNothing(t *testing.T) {
	empty := t.TempDir()
	odd := filepath.Join(empty, "x.json")
	testscale.WriteFile(t, odd, "{}")
	for path, want := range map[string]string{
		empty: "has neither a database opencode.db", odd: "is neither a database nor a file storage/session/",
		filepath.Join(empty, "gone"): "no such file",
	} {
		if all, _, err := valid(t, opencodeAt(path)); err == nil || len(all) > 0 ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzDecodeOpencode has any message and part make a valid session, and the same one each time.
func FuzzDecodeOpencode(f *testing.F) {
	f.Add(`{"role":"assistant","cost":1,"tokens":{"input":1,"output":5,"reasoning":2,"total":6},"finish":"stop",`+
		`"time":{"created":5,"completed":9}}`,
		`{"type":"tool","callID":"c","tool":"bash","state":{"status":"error",`+
			`"error":"The user rejected permission to use this specific tool call.","time":{"start":1,"end":2}}}`,
		`{"messageID":"msg_2","partID":"p"}`)
	f.Add(`{"role":"user"}`, `{"type":"compaction","auto":true,"tail_start_id":"msg_1"}`, `{"messageID":"msg_3"}`)
	f.Add(`{"role":"assistant","summary":true,"error":{"name":"x"}}`, `{"type":"retry","error":{}}`, `[]`)
	f.Fuzz(func(t *testing.T, message, part, revert string) {
		root := t.TempDir()
		for name, text := range map[string]string{
			"session/p/ses_1.json": `{"id":"ses_1","projectID":"p","time":{"created":3,"updated":4},"revert":` +
				revert +
				`}`,
			"session/p/ses_2.json": `{"id":"ses_2","projectID":"p","permission":` + part + `,"time":` + message +
				`}`,
			"message/ses_1/msg_1.json": `{"role":"user","time":{"created":3}}`,
			"message/ses_1/msg_2.json": message, "message/ses_1/msg_3.json": message,
			"message/ses_2/msg_4.json": `{"role":"assistant","time":{"created":1}}`,
			"message/ses_2/msg_5.json": message,
			"part/msg_1/prt_1.json":    part, "part/msg_2/prt_2.json": part, "part/msg_3/prt_2.json": part,
			"part/msg_4/prt_4.json": part,
			"part/msg_5/prt_5.json": `{"type":"text","text":"x"}`,
		} {
			path := filepath.Join(root, filepath.FromSlash(name))
			testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			testscale.WriteFile(t, path, text)
		}
		first, _, _ := valid(t, opencodeAt(root))
		again, _, _ := valid(t, opencodeAt(root))
		if a, b := text(t, first), text(t, again); a != b {
			t.Errorf("%s\nthe second time\n%s", a, b)
		}
	})
}
