package skillet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
)

// newStore makes a store of the items.
func newStore(tb testing.TB, path string, rows ...[4]any) {
	tb.Helper()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn,
		`CREATE TABLE session_items (id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, session_name TEXT `+
			`NOT NULL, created_at INTEGER NOT NULL, item_json TEXT NOT NULL)`, nil); err != nil {
		tb.Fatal(err)
	}
	for _, r := range rows {
		if err := sqlitex.Execute(conn,
			`INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES (?, ?, ?, ?)`,
			&sqlitex.ExecOptions{Args: r[:]}); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestDecodeItems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sqlite")
	texts := []string{
		`{"role":"system","content":"be brief"}`,
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image",` +
			`"image":"https://x/a.png","detail":"low"}]}`,
		`{"type":"reasoning","id":"r1","content":[],"rawContent":[{"type":"reasoning_text","text":"raw thought"}]}`,
		`{"type":"function_call","callId":"c1","name":"t","arguments":"{\"a\": 1}"}`,
		`{"type":"function_call","callId":"c2","name":"u","arguments":"not JSON"}`,
		`{"type":"function_call_result","callId":"c2","name":"u","status":"completed","output":"plain"}`,
		`{"type":"function_call_result","callId":"c1","name":"t","status":"incomplete",` +
			`"output":[{"type":"input_text","text":"x"}]}`,
		`{"type":"function_call_result","callId":"c9","name":"t","output":"of nothing"}`,
		`{"type":"function_call","callId":"c1","name":"again","arguments":"{}"}`,
		`{"type":"hosted_tool_call","name":"web_search","status":"completed"}`,
		`{"type":"compaction","encrypted_content":"zzz"}`,
		`{"role":"assistant","status":"completed","content":[{"type":"output_text","text":"a"},{"type":"refusal",` +
			`"refusal":"no"}]}`,
		`{"broken`,
	}
	var all [][4]any
	for i, text := range texts {
		all = append(all, [4]any{"u@x", "s", int64(1000 + i), text})
	}
	newStore(t, path, all...)
	var p problems
	s := only(t, skillet.DecodeFile(path, p.report))
	want := []string{
		"system", "  text be brief",
		"user", "  text hi", "  file image/* https://x/a.png",
		"assistant", "  reasoning raw thought", `  tool-t output-available {"a":1} [{"type":"input_text","text":"x"}]`,
		`  tool-u output-available "not JSON" "plain"`,
		`  data-item {"type":"function_call_result","callId":"c9","name":"t","output":"of nothing"}`,
		"  tool-again input-available {}",
		`  data-item {"type":"hosted_tool_call","name":"web_search","status":"completed"}`,
		`  data-compaction {"summary":"","tail_start_id":null,"auto":true,"summary_tokens":0}`, "  text a",
		`  data-content {"type":"refusal","refusal":"no"}`,
	}
	if diff := gocmp.Diff(want, story(s.Transcript)); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
	for i := range p {
		p[i], _, _ = strings.Cut(p[i], ": unexpected")
	}
	wantProblems := problems{
		`s.sqlite: session_items row 8: result of call "c9", which is not above it: kept as data-item`,
		`s.sqlite: session_items row 9: call with the callId "c1", which names no call or another one: its result ` +
			`cannot be matched`,
		`s.sqlite: session_items row 13: is not an item: left out`,
	}
	if diff := gocmp.Diff(wantProblems, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	out := filepath.Join(t.TempDir(), "out.sqlite")
	if err := skillet.EncodeFile(out, s, false); err != nil {
		t.Fatal(err)
	}
	// No item says that there was a compaction but the one of the provider, which is encrypted.
	want = slices.DeleteFunc(want, func(line string) bool { return strings.HasPrefix(line, "  data-compaction") })
	if diff := gocmp.Diff(want, story(only(t, skillet.DecodeFile(out, nil)).Transcript)); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
}

func TestDecodeFileOfADirectory(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, ".skilled-agent", "state", ".agent_session_logs")
	for _, name := range []string{"ann_x/one", "ann_x/two", "bob/one"} {
		path := filepath.Join(logs, filepath.FromSlash(name)+".jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(user(0, `"`+name+`"`)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(logs, "bob", "empty.jsonl"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	hi := `{"role":"user","content":"hi"}`
	newStore(t, filepath.Join(dir, ".skilled-agent", "state", ".agent_sessions.sqlite"),
		[4]any{"ann@x", "one", 1, hi}, [4]any{"ann@x", "three", 1, hi}, [4]any{"a.b", "s", 1, hi},
		[4]any{"a_b", "s", 1, hi})
	var p problems
	var got []string
	for _, s := range collect(t, skillet.DecodeFile(dir, p.report)) {
		var meta struct {
			Skillet struct {
				User string `json:"user"`
			} `json:"skillet"`
		}
		if err := json.Unmarshal([]byte(s.Session.MetadataJSON), &meta); err != nil {
			t.Fatal(err)
		}
		got = append(got, meta.Skillet.User+"/"+s.Session.Title)
	}
	want := []string{"ann@x/one", "ann_x/two", "bob/one", "a.b/s", "a_b/s", "ann@x/three"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	damaged := problems{"bob/empty.jsonl: no entry in it: want lines of kind user_message, step and " +
		"final_result: the log was left out"}
	if diff := gocmp.Diff(damaged, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// The session keeps its id through skillet, as its name.
func TestEncodeFileKeepsTheID(t *testing.T) {
	s := codectest.Corpus()[1].Session
	s.Session.ID = "ses_1fa2bdc08000YO9dOSXjsMd9kP"
	for i := range s.Messages {
		s.Messages[i].Message.SessionID = s.Session.ID
		for j := range s.Messages[i].Parts {
			s.Messages[i].Parts[j].SessionID = s.Session.ID
		}
	}
	s.Session.MetadataJSON = `{"user_id":"ann@x"}`
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, s, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".agent_session_logs", "ann_x", s.Session.ID+".jsonl")); err != nil {
		t.Error(err)
	}
	if again := only(t, skillet.DecodeFile(dir, nil)); again.Session.ID != s.Session.ID {
		t.Errorf("id %s, want %s", again.Session.ID, s.Session.ID)
	}
}
