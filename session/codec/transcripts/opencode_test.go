package transcripts_test

import (
	"context"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
	"github.com/agenttrace/agenttrace/session/store"
)

// opencodeDatabase makes a database as opencode does it, and leaves it open, as a program that runs does.
func opencodeDatabase(t testing.TB, scripts ...string) (path string, conn *sqlite.Conn) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "opencode", "opencode.db")
	for _, name := range []string{"sessions", "schema"} {
		script := testscale.ReadFile(t, "testdata/opencode/"+name+".sql")
		scripts = append([]string{string(script)}, scripts...)
	}
	return path, newDatabase(t, path, scripts...)
}

func opencodeAt(path string) func(func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
		return transcripts.Opencode.DecodeFile(context.Background(), path, nil, report)
	}
}

func TestOpencode(t *testing.T) {
	name, _ := opencodeDatabase(t)
	all, problems, err := valid(t, opencodeAt(name))
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

func TestOpencodeDamaged(t *testing.T) {
	name, _ := opencodeDatabase(t, `
		UPDATE part SET data = '{"type":' WHERE id = 'prt_b7c000000002a3';
		UPDATE message SET data = '7' WHERE id = 'msg_b7c000000006mainuser3aaaaa';
		UPDATE session SET revert = '{"messageID":"msg_gone"}' WHERE id = 'ses_46fff00000000000000revert';`)
	all, problems, err := valid(t, opencodeAt(name))
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
	name, conn := opencodeDatabase(t)
	testscale.Must(t, sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(TRUNCATE)", nil))
	testscale.Must(t, conn.Close())
	file := testscale.ReadFile(t, name)
	at := strings.LastIndex(string(file), "Find the loop\",\"prompt\"")
	page := at / 4096 * 4096
	copy(file[page:page+4096], make([]byte, 4096))
	testscale.WriteFile(t, name, file)
	all, problems, err = valid(t, opencodeAt(name))
	if len(problems) == 0 && err == nil {
		t.Errorf("%d sessions of a damaged file, and nothing is said", len(all))
	}
	t.Logf("%d sessions, %q, %v", len(all), problems, err)
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
		path := filepath.Join(t.TempDir(), "opencode.db")
		conn := newDatabase(t, path, string(testscale.ReadFile(t, "testdata/opencode/schema.sql")))
		put := func(query string, args ...any) {
			testscale.Must(t, sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args}))
		}
		for _, id := range []string{"1", "2"} {
			put("INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated, revert, "+
				"permission) VALUES (?, 'p', 's', '/', 't', '1', 3, 4, ?, ?)", "ses_"+id, revert, part)
			for _, m := range []struct{ id, data string }{{"1", `{"role":"user","time":{"created":3}}`}, {"2", message},
				{"3", message}} {
				put("INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, 1, 1, ?)",
					"msg_"+id+m.id, "ses_"+id, m.data)
				for _, p := range []string{part, `{"type":"text","text":"x"}`} {
					put("INSERT INTO part (id, message_id, session_id, time_created, time_updated, data) VALUES "+
						"(?, ?, ?, 1, 1, ?)", "prt_"+id+m.id+p, "msg_"+id+m.id, "ses_"+id, p)
				}
			}
		}
		first, _, _ := valid(t, opencodeAt(path))
		again, _, _ := valid(t, opencodeAt(path))
		if a, b := text(t, first), text(t, again); a != b {
			t.Errorf("%s\nthe second time\n%s", a, b)
		}
	})
}
