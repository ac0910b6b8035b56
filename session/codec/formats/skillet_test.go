package formats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

const (
	skilletStateDir  = "testdata/skillet/state"
	skilletSampleLog = "testdata/skillet/state/.agent_session_logs/john_example_com/session_2026-05-27T20_11_02_482Z_ab12.jsonl"
	skilletSampleDB  = "testdata/skillet/state/.agent_sessions.sqlite"
)

func skilletOnly(tb testing.TB, sessions iter.Seq2[*codec.Session, error]) *codec.Session {
	tb.Helper()
	all := collected(tb, sessions)
	if len(all) != 1 {
		tb.Fatalf("%d sessions, want 1", len(all))
	}
	return all[0]
}

// skilletItems returns the rows of a store.
func skilletItems(tb testing.TB, path string) (all []string) {
	tb.Helper()
	return testscale.Query(tb, path, "SELECT id || ' ' || user_id || ' ' || session_name || ' ' || created_at || ' ' || "+
		"item_json FROM session_items ORDER BY id")
}

func TestSkilletDecodeSamples(t *testing.T) {
	for name, path := range map[string]string{"log": skilletSampleLog, "store": skilletSampleDB, "both": skilletStateDir} {
		var p reports
		s := skilletOnly(t, skilletDecodeFile(path, p.add))
		codectest.CheckGolden(t, "testdata/skillet/"+name+".golden.jsonl", codectest.Golden(t, p, s), *update)
	}
}

// skilletExpressed is a log or an item without what no row of a session expresses: ids of jobs, and
// the ids that a provider gives its items.
func skilletExpressed(text string) string {
	return regexp.MustCompile(`,"jobIds":\["\w+"\]|"id":"(rs|fc)_\d",`).ReplaceAllString(text, "")
}

func TestSkilletSamplesComeOutAsTheyWere(t *testing.T) {
	log, wantItems := readFile(t, skilletSampleLog), skilletItems(t, skilletSampleDB)
	wantLog := skilletExpressed(log)
	for i := range wantItems {
		wantItems[i] = skilletExpressed(wantItems[i])
	}
	for name, s := range map[string]*codec.Session{
		"log":    skilletOnly(t, skilletDecodeFile(skilletSampleLog, nil)),
		"both":   skilletOnly(t, skilletDecodeFile(skilletStateDir, nil)),
		"stream": skilletOnly(t, skilletDecode(strings.NewReader(log), nil)),
	} {
		if diff := cmp.Diff(wantLog, string(skilletEncode(s))); diff != "" {
			t.Errorf("%s: log (-want +got):\n%s", name, diff)
		}
	}

	dir := t.TempDir()
	testscale.Must(t, skilletEncodeFile(dir, skilletOnly(t, skilletDecodeFile(skilletSampleDB, nil)), false))
	if diff := cmp.Diff(wantItems, skilletItems(t, filepath.Join(dir, ".agent_sessions.sqlite"))); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// A conversation that was read from both goes back to both. The log says the same.
// The store is what the model would be sent of the whole history, which is more
// than the sample's store has: it holds the first turn only.
func TestSkilletBothGoBackToBoth(t *testing.T) {
	s := skilletOnly(t, skilletDecodeFile(skilletStateDir, nil))
	dir := t.TempDir()
	testscale.Must(t, skilletEncodeFile(dir, s, false))
	log := filepath.Join(dir, strings.TrimPrefix(skilletSampleLog, skilletStateDir))
	if diff := cmp.Diff(skilletExpressed(readFile(t, skilletSampleLog)), readFile(t, log)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	items := skilletItems(t, filepath.Join(dir, ".agent_sessions.sqlite"))
	codectest.CheckGolden(t, "testdata/skillet/back.golden.txt", strings.Join(items, "\n")+"\n", *update)
	again := skilletOnly(t, skilletDecodeFile(dir, nil))
	if diff := cmp.Diff(codectest.Golden(t, nil, s), codectest.Golden(t, nil, again)); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	if err := skilletEncodeFile(dir, s, false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a log that is there: %v", err)
	}
	testscale.Must(t, os.Remove(log))
	if err := skilletEncodeFile(dir, s, false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a conversation that is there: %v", err)
	}
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("the log of the conversation that was refused: %v", err)
	}
}

// FuzzSkilletDecode: whatever decodes is a valid session, and what is written of it reads as
// something that is written the same.
func FuzzSkilletDecode(f *testing.F) {
	fuzz(f, "skillet log")
}

// skilletNewStore makes a store of items: user, session, time and text.
func skilletNewStore(tb testing.TB, path string, rows ...[4]string) {
	tb.Helper()
	script := "CREATE TABLE session_items (id INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT NOT NULL, " +
		"session_name TEXT NOT NULL, created_at INTEGER NOT NULL, item_json TEXT NOT NULL);"
	for _, r := range rows {
		script += fmt.Sprintf("INSERT INTO session_items (user_id, session_name, created_at, item_json) VALUES "+
			"('%s', '%s', %s, '%s');", r[0], r[1], r[2], strings.ReplaceAll(r[3], "'", "''"))
	}
	testscale.Script(tb, path, script)
}

func TestSkilletDecodeItems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sqlite")
	var all [][4]string
	for text := range strings.Lines(readFile(t, "testdata/skillet/items.txt")) {
		all = append(all, [4]string{"u@x", "s", fmt.Sprint(1000 + len(all)), strings.TrimSuffix(text, "\n")})
	}
	skilletNewStore(t, path, all...)
	var p reports
	s := skilletOnly(t, skilletDecodeFile(path, p.add))
	codectest.CheckGolden(t, "testdata/skillet/items.golden.jsonl", codectest.Golden(t, p, s), *update)
	out := filepath.Join(t.TempDir(), "out.sqlite")
	testscale.Must(t, skilletEncodeFile(out, s, false))
	listed := skilletItemStore.Losses.Of(s)
	for _, l := range codec.Lost(s, skilletOnly(t, skilletDecodeFile(out, nil))) {
		if !slices.ContainsFunc(listed, func(of codec.Loss) bool { return of.What == l.What }) {
			t.Errorf("%d %s are lost", l.Count, l.What)
		}
	}
}

func TestSkilletDecodeFileOfADirectory(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, ".skilled-agent", "state", ".agent_session_logs")
	for _, name := range []string{"ann_x/one", "ann_x/two", "bob/one"} {
		path := filepath.Join(logs, filepath.FromSlash(name)+".jsonl")
		testscale.Must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		testscale.Must(t, os.WriteFile(path, fmt.Appendf(nil,
			`{"kind":"user_message","userInput":%q,"timestamp":"2026-01-01T00:00:00.000Z"}`, name), 0o666))
	}
	testscale.Must(t, os.WriteFile(filepath.Join(logs, "bob", "empty.jsonl"), nil, 0o666))
	hi := `{"role":"user","content":"hi"}`
	skilletNewStore(t, filepath.Join(dir, ".skilled-agent", "state", ".agent_sessions.sqlite"),
		[4]string{"ann@x", "one", "1", hi}, [4]string{"ann@x", "three", "1", hi}, [4]string{"a.b", "s", "1", hi},
		[4]string{"a_b", "s", "1", hi})
	var p reports
	var got []string
	for _, s := range collected(t, skilletDecodeFile(dir, p.add)) {
		var meta struct {
			Skillet struct {
				User string `json:"user"`
			} `json:"skillet"`
		}
		testscale.Must(t, json.Unmarshal([]byte(s.Session.MetadataJSON), &meta))
		got = append(got, meta.Skillet.User+"/"+s.Session.Title)
	}
	want := []string{"ann@x/one", "ann_x/two", "bob/one", "a.b/s", "a_b/s", "ann@x/three"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	damaged := reports{"bob/empty.jsonl: no entry in it: want lines of kind user_message, step and " +
		"final_result: the log was left out"}
	if diff := cmp.Diff(damaged, p); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// A log is below the name of its user, as skillet spells it.
func TestSkilletLogIsBelowItsUser(t *testing.T) {
	s := chat([]string{"user", `{"type":"text","text":"q"}`})
	s.Session.MetadataJSON = `{"user_id":"ann@x"}`
	dir := t.TempDir()
	testscale.Must(t, skilletEncodeFile(dir, s, false))
	if logs, err := filepath.Glob(filepath.Join(dir, ".agent_session_logs", "ann_x", "*.jsonl")); len(logs) != 1 {
		t.Errorf("logs %q, %v", logs, err)
	}
}

// skilletBack writes the session to a state directory and reads that.
func skilletBack(t *testing.T, s *codec.Session) (all []*codec.Session) {
	t.Helper()
	dir := t.TempDir()
	testscale.Must(t, skilletEncodeFile(dir, s, false))
	for again, err := range skilletDecodeFile(dir, func(p codec.Problem) { t.Error(p) }) {
		testscale.Must(t, err)
		all = append(all, again)
	}
	return all
}

// What is kept in session_items comes back from there, also where messages that
// came at once are one entry of the log, and where a turn ends in thought.
func TestSkilletStoreTellsWhatTheLogLeavesOut(t *testing.T) {
	all := skilletBack(t, chat(
		[]string{"user", `{"type":"text","text":"one"}`},
		[]string{"user", `{"type":"text","text":"two"}`},
		[]string{"assistant", `{"type":"reasoning","text":"first"}`,
			`{"type":"tool-x","toolCallId":"call_1","state":"output-available","input":{},"output":"o"}`,
			`{"type":"text","text":"said"}`, `{"type":"reasoning","text":"afterthought"}`},
		[]string{"user", `{"type":"text","text":"three"}`},
		[]string{"assistant", `{"type":"reasoning","text":"only"}`},
	))
	if len(all) != 1 {
		t.Fatalf("%d sessions, want 1", len(all))
	}
	var got []string
	for _, m := range all[0].Messages {
		for _, p := range m.Parts {
			switch {
			case p.ToolCallID != nil:
				got = append(got, p.Type+" "+*p.ToolCallID)
			case p.Type == "text" || p.Type == "reasoning":
				got = append(got, p.Type+" "+strings.Split(p.DataJSON, `"`)[7])
			}
		}
	}
	want := []string{"text one", "text two", "reasoning first", "tool-x call_1", "text said", "reasoning afterthought",
		"text three", "reasoning only"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// A session without a turn has no log in a state directory: skillet makes one with
// the first entry, and an empty one would be damage.
func TestSkilletNoTurnNoLog(t *testing.T) {
	dir := t.TempDir()
	testscale.Must(t, skilletEncodeFile(dir, chat(), false))
	if _, err := os.Stat(filepath.Join(dir, ".agent_session_logs")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log was written: %v", err)
	}
	for s, err := range skilletDecodeFile(dir, func(p codec.Problem) { t.Error(p) }) {
		t.Errorf("read %v, %v, want nothing", s, err)
	}
}

// EncodeFile with replace puts a session in the place of what is there of it, and of nothing
// else.
func TestSkilletReplace(t *testing.T) {
	before := chat([]string{"user", `{"type":"text","text":"q"}`},
		[]string{"assistant", `{"type":"text","text":"before"}`})
	after := chat([]string{"user", `{"type":"text","text":"q"}`},
		[]string{"assistant", `{"type":"text","text":"after"}`})
	named := func(s *codec.Session, name string) *codec.Session {
		t := *s.Transcript
		t.Session.MetadataJSON = `{"skillet":{"user":"u","session_name":"` + name + `"}}`
		return &codec.Session{Transcript: &t}
	}
	for _, place := range []string{"", "s.sqlite"} {
		path := filepath.Join(t.TempDir(), place)
		testscale.Must(t, skilletEncodeFile(path, named(before, "other"), false))
		if err := skilletEncodeFile(path, named(before, "s"), true); err != nil { // of nothing
			t.Fatal(err)
		}
		if err := skilletEncodeFile(path, named(after, "s"), false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%q: EncodeFile over what is there: %v", place, err)
		}
		testscale.Must(t, skilletEncodeFile(path, named(after, "s"), true))
		want := map[string]string{"s": "after", "other": "before"}
		got := make(map[string]string)
		for _, s := range collected(t, skilletDecodeFile(path, func(p codec.Problem) { t.Error(p) })) {
			var part struct{ Text string }
			m := s.Messages[len(s.Messages)-1]
			for i := range m.Parts {
				if m.Parts[i].Type == "text" {
					_ = json.Unmarshal([]byte(m.Parts[i].DataJSON), &part)
				}
			}
			got[s.Session.Title] = part.Text
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", place, diff)
		}
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".new") {
				t.Errorf("%s is left over", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	// A session that has no turn any more has no log either.
	dir := t.TempDir()
	for _, s := range []*codec.Session{before, chat()} {
		testscale.Must(t, skilletEncodeFile(dir, s, true))
	}
	for s, err := range skilletDecodeFile(dir, nil) {
		t.Errorf("read %v, %v of a session without turns", s, err)
	}
}

// FuzzSkilletItems: whatever the rows of a store hold decodes to a valid session, and
// what is written of it reads as something that is written the same.
func FuzzSkilletItems(f *testing.F) {
	const result = `{"type":"function_call_result","callId":"c","name":"t","status":"completed",` +
		`"output":{"type":"text","text":"x"}}`
	for _, text := range []string{
		`{"role":"user","content":"what's on my list?"}`,
		`{"type":"message","role":"user","content":[{"type":"audio","audio":"A","format":"b"},{"type":"input_file",` +
			`"file":{"url":"u"}}]}`,
		`{"type":"reasoning","id":"rs_1","content":[{"type":"input_text","text":"think"}]}`,
		`{"type":"function_call","id":"f","callId":"c","name":"t","arguments":"{\"a\": 1}","status":"completed"}`,
		`{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"1"}]}`,
		`{"type":"compaction","id":1}`,
		`{"type":"hosted_tool_call","name":"n"}`,
	} {
		f.Add(text, result, int64(1))
		f.Add(result, text, int64(-1))
	}
	f.Fuzz(func(t *testing.T, a, b string, at int64) {
		if at < -1<<40 || at > 1<<43 {
			return // no time that a program of today writes
		}
		items := []skilletItem{{1, at, a}, {2, at, b}, {3, at + 1, a}, {4, at + 1, b}}
		s := skilletDecodeItems(skilletNames{"u", "s"}, items, "", func(codec.Problem) {})
		for _, v := range session.Check(s.Transcript) {
			t.Error(v)
		}
		lossesOf("skillet").Of(s)
		written := skilletItemsOf(s.Transcript)
		drafted := skilletDecodeItems(skilletNames{"u", "s"}, written, "", func(codec.Problem) {})
		for _, v := range session.Check(drafted.Transcript) {
			t.Errorf("written and read: %v", v)
		}
		if diff := cmp.Diff(skilletTexts(written), skilletTexts(skilletItemsOf(drafted.Transcript))); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	})
}

func skilletTexts(items []skilletItem) (all []string) {
	for _, i := range items {
		all = append(all, i.text)
	}
	return all
}
