package skillet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	stateDir  = "testdata/state"
	sampleLog = "testdata/state/.agent_session_logs/john_example_com/session_2026-05-27T20_11_02_482Z_ab12.jsonl"
	sampleDB  = "testdata/state/.agent_sessions.sqlite"
)

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

type problems []string

func (p *problems) report(problem codec.Problem) { *p = append(*p, problem.String()) }

func collect(tb testing.TB, sessions iter.Seq2[*codec.Session, error]) (all []*codec.Session) {
	tb.Helper()
	for s, err := range sessions {
		if err != nil {
			tb.Fatal(err)
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Error(v)
		}
		all = append(all, s)
	}
	return all
}

func only(tb testing.TB, sessions iter.Seq2[*codec.Session, error]) *codec.Session {
	tb.Helper()
	all := collect(tb, sessions)
	if len(all) != 1 {
		tb.Fatalf("%d sessions, want 1", len(all))
	}
	return all[0]
}

func lines(tb testing.TB, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	if err := jsonl.Encode(&b, s.Transcript); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func encode(tb testing.TB, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	if err := skillet.Encode(&b, s); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// items returns the rows of a store.
func items(tb testing.TB, path string) (all []string) {
	tb.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	err = sqlitex.ExecuteTransient(conn,
		"SELECT id, user_id, session_name, created_at, item_json FROM session_items ORDER BY id", &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				all = append(all, fmt.Sprint(stmt.ColumnInt64(0), " ", stmt.ColumnText(1), " ", stmt.ColumnText(2), " ",
					stmt.ColumnInt64(3), " ", stmt.ColumnText(4)))
				return nil
			}})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestDecodeSamples(t *testing.T) {
	for golden, sessions := range map[string]func(func(codec.Problem)) iter.Seq2[*codec.Session, error]{
		"log": func(r func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return skillet.DecodeFile(sampleLog, r)
		},
		"store": func(r func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return skillet.DecodeFile(sampleDB, r)
		},
		"both": func(r func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return skillet.DecodeFile(stateDir, r)
		},
	} {
		var p problems
		got := lines(t, only(t, sessions(p.report)))
		if p != nil {
			t.Errorf("%s: problems %q", golden, p)
		}
		golden = filepath.Join("testdata", golden+".golden.jsonl")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(readFile(t, golden), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	}
}

// expressed is a log or an item without what no row of a session expresses: ids of jobs, and
// the ids that a provider gives its items.
func expressed(text string) string {
	return regexp.MustCompile(`,"jobIds":\["\w+"\]|"id":"(rs|fc)_\d",`).ReplaceAllString(text, "")
}

func TestSamplesComeOutAsTheyWere(t *testing.T) {
	log, wantItems := readFile(t, sampleLog), items(t, sampleDB)
	wantLog := expressed(log)
	for i := range wantItems {
		wantItems[i] = expressed(wantItems[i])
	}
	for name, s := range map[string]*codec.Session{
		"log":    only(t, skillet.DecodeFile(sampleLog, nil)),
		"both":   only(t, skillet.DecodeFile(stateDir, nil)),
		"stream": only(t, skillet.Decode(strings.NewReader(log), nil)),
	} {
		if diff := cmp.Diff(wantLog, encode(t, s)); diff != "" {
			t.Errorf("%s: log (-want +got):\n%s", name, diff)
		}
	}

	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, only(t, skillet.DecodeFile(sampleDB, nil)), false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantItems, items(t, filepath.Join(dir, ".agent_sessions.sqlite"))); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// A conversation that was read from both goes back to both. The log says the same.
// The store is what the model would be sent of the whole history, which is more
// than the sample's store has: it holds the first turn only.
func TestBothGoBackToBoth(t *testing.T) {
	s := only(t, skillet.DecodeFile(stateDir, nil))
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, s, false); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, strings.TrimPrefix(sampleLog, stateDir))
	if diff := cmp.Diff(expressed(readFile(t, sampleLog)), readFile(t, log)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	const at = "john@example.com session_2026-05-27T20:11:02.482Z_ab12 "
	want := []string{
		"1 " + at + `1795199010459 {"role":"user","content":"what's on my list?"}`,
		"2 " + at + `1795199010460 {"type":"reasoning","content":[{"type":"input_text","text":"think"}]}`,
		"3 " + at +
			`1795199010460 {"type":"function_call","callId":"call_1","name":"run_command_line",` +
			`"arguments":"{\"reason\":\"r\",\"commandLine\":\"todo list\"}","status":"completed"}`,
		"4 " + at +
			`1795199010460 {"type":"function_call_result","callId":"call_1","name":"run_command_line",` +
			`"status":"completed","output":{"type":"text","text":"1. [ ] buy milk"}}`,
		"5 " + at +
			`1795199010460 {"type":"message","role":"assistant","status":"completed",` +
			`"content":[{"type":"output_text","text":"1. [ ] buy milk"}]}`,
		"6 " + at +
			`1795199010462 {"role":"user","content":[{"type":"input_text","text":"see picture"},` +
			`{"type":"input_image","image":"data:image/png;base64,AAAA"}]}`,
		"7 " + at +
			`1795199010462 {"type":"message","role":"assistant","status":"completed",` +
			`"content":[{"type":"output_text","text":"ok"}]}`,
	}
	if diff := cmp.Diff(want, items(t, filepath.Join(dir, ".agent_sessions.sqlite"))); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	again := only(t, skillet.DecodeFile(dir, nil))
	if diff := cmp.Diff(lines(t, s), lines(t, again)); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	if err := skillet.EncodeFile(dir, s, false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a log that is there: %v", err)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if err := skillet.EncodeFile(dir, s, false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a conversation that is there: %v", err)
	}
	if _, err := os.Stat(log); !os.IsNotExist(err) {
		t.Errorf("the log of the conversation that was refused: %v", err)
	}
}

func entry(kind, rest string, second int) string {
	return fmt.Sprintf(`{"kind":%q,%s,"timestamp":"2026-01-01T00:00:%02d.000Z"}`+"\n", kind, rest, second)
}

func step(second int, fields string) string {
	return entry("step", `"stepResult":{`+fields+`}`, second)
}
func user(second int, text string) string { return entry("user_message", `"userInput":`+text, second) }
func final(second int, text string) string {
	return entry("final_result", `"finalResult":{"text":`+text+`}`, second)
}

// story tells a session in lines: role, then its parts.
func story(t *session.Transcript) (all []string) {
	for i := range t.Messages {
		m := &t.Messages[i]
		var meta session.MessageMetadata
		if err := json.Unmarshal([]byte(m.Message.MetadataJSON), &meta); err != nil {
			panic(err)
		}
		head := m.Message.Role
		if meta.Trace.Incomplete {
			head += " incomplete"
		}
		if meta.Model != nil {
			head += " " + meta.Model.ProviderID + "/" + meta.Model.ModelID
		}
		all = append(all, head)
		for _, p := range m.Parts {
			var d struct {
				Text, URL, MediaType, State string
				Input, Output, Data         json.RawMessage
			}
			if err := json.Unmarshal([]byte(p.DataJSON), &d); err != nil {
				panic(err)
			}
			words := []string{" ", p.Type, d.MediaType, d.URL, d.Text, d.State, string(d.Input), string(d.Output),
				string(d.Data)}
			all = append(all, "  "+strings.Join(strings.Fields(strings.Join(words, " ")), " "))
		}
	}
	return all
}

func TestDecodeStories(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		problems problems
	}{
		{"streamed text", user(0, `"go"`) + step(1, `"type":"text","text":"Hel"`) + step(2,
			`"type":"text","text":"lo "`) +
			step(2, `"type":"text","text":"é"`) + final(3, `"Hello é"`),
			[]string{"user", "  text go", "assistant", "  text Hello é"}, nil},
		{"a result that no step said", user(0, `"/help"`) + step(1, `"type":"text","text":"thinking"`) + final(3,
			`"the answer"`),
			[]string{"user", "  text /help", "assistant", "  text thinking", "  text the answer"}, nil},
		{"no response", user(0, `"x"`) + final(3, `"[no response]"`), []string{"user", "  text x", "assistant"}, nil},
		{"texts around a call", user(0, `"x"`) + step(1, `"type":"text","text":"look"`) +
			step(2, `"type":"agent_tool_start","agentName":"a","toolName":"t","toolArgumentsStr":"{\"a\": 1}"`) +
			step(3, `"type":"agent_tool_end","agentName":"a","toolName":"t","result":"r"`) +
			step(4, `"type":"text","text":"done "`) + final(5, `"done"`),
			[]string{"user", "  text x", "assistant", "  text look", `  tool-t output-available {"a":1} "r"`,
				"  text done"},
			nil},
		{"two calls at once", user(0, `"x"`) +
			step(1, `"type":"agent_tool_start","agentName":"a","toolName":"t","toolArgumentsStr":"[no clue]"`) +
			step(2, `"type":"agent_tool_start","agentName":"a","toolName":"t","toolArgumentsStr":"2"`) +
			step(2, `"type":"agent_tool_start","agentName":"b","toolName":"t","toolArgumentsStr":""`) +
			step(3, `"type":"agent_tool_end","agentName":"a","toolName":"t","result":"first"`) +
			step(4, `"type":"agent_tool_end","agentName":"b","toolName":"t","result":"third"`),
			[]string{"user", "  text x", "assistant incomplete", `  tool-t output-available "[no clue]" "first"`,
				"  tool-t input-available 2", `  tool-t output-available "" "third"`}, nil},
		{"the next turn ends one that has no result", user(0, `"x"`) + step(1, `"type":"text","text":"part"`) + user(2,
			`"y"`),
			[]string{"user", "  text x", "assistant incomplete", "  text part", "user", "  text y"}, nil},
		{"files",
			user(0,
				`[{"type":"message","role":"user","content":[{"type":"input_file","file":"https://x/a.pdf",`+
					`"filename":"a.pdf"},{"type":"audio","audio":"AAAA","format":"mp3"},{"type":"input_image",`+
					`"image":{"id":"f"}},{"type":"input_image","image":"https://x/a.png"}]},{"role":"user",`+
					`"content":"and"}]`),
			[]string{"user", "  file application/octet-stream https://x/a.pdf",
				"  file audio/mp3 data:audio/mp3;base64,AAAA",
				`  data-content {"type":"input_image","image":{"id":"f"}}`, "  file image/* https://x/a.png",
				"  text and"}, nil},
		{"a model", user(0, `"x"`) +
			`{"kind":"final_result","finalResult":{"text":"ok"},"timestamp":"2026-01-01T00:00:01.000Z",` +
			`"model":"openrouter/openai/gpt-5"}` + "\n",
			[]string{"user", "  text x", "assistant openrouter/openai/gpt-5", "  text ok"}, nil},
		{"damage", step(0, `"type":"text","text":"early"`) + user(1, `"x"`) + "{\n" + "\n" + entry("note", `"x":1`, 1) +
			step(1, `"type":"agent_tool_end","agentName":"a","toolName":"t","result":"r"`) + step(1,
			`"type":"dance","n":1`) +
			strings.Replace(final(2, `"ok"`), "2026-01", "soon", 1) + step(3, `"type":"text","text":"late"`) +
			`{"kind":"user_message","userIn`,
			[]string{"user", "  text x", "assistant", `  tool-t output-available null "r"`,
				`  data-step {"type":"dance","n":1}`,
				"  text ok"},
			problems{
				"line 1: step is not in a turn: left out, as skillet does",
				"line 3: is not an entry: left out",
				"line 5: has a kind that a log does not know: left out",
				`line 6: tool "t" ended and was not started: its input is unknown`,
				`line 7: step of type "dance", which skillet does not know and cannot replay: kept as data-step`,
				"line 8: timestamp is not a time: took that of the entry before it",
				"line 9: step comes after the final result of its turn: left out, as skillet does",
				"line 10: is not an entry: left out",
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p problems
			s := only(t, skillet.Decode(strings.NewReader(tt.in), p.report))
			if diff := cmp.Diff(tt.want, story(s.Transcript)); diff != "" {
				t.Errorf("story (-want +got):\n%s", diff)
			}
			for i := range p {
				if head, _, ok := strings.Cut(p[i], "is not an entry: left out: "); ok {
					p[i] = head + "is not an entry: left out"
				}
			}
			if diff := cmp.Diff(tt.problems, p); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if tt.problems == nil {
				again := only(t, skillet.Decode(strings.NewReader(encode(t, s)), p.report))
				if diff := cmp.Diff(tt.want, story(again.Transcript)); diff != "" || p != nil {
					t.Errorf("written and read (-want +got):\n%s%s", diff, p)
				}
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	for name, in := range map[string]string{"empty": "", "text": "hello\n", "another format": `{"type":"session"}`} {
		for s, err := range skillet.Decode(strings.NewReader(in), nil) {
			if s != nil || err == nil || !strings.Contains(err.Error(), "no entry in it") {
				t.Errorf("%s: %v, %v", name, s, err)
			}
		}
	}
	for _, err := range skillet.Decode(iotest.ErrReader(errors.New("broken")), nil) {
		if err == nil || err.Error() != "read log: broken" {
			t.Errorf("Decode: %v", err)
		}
	}
	for path, want := range map[string]string{t.TempDir(): "no conversation in it",
		filepath.Join(t.TempDir(), "x"): "no such file"} {
		for _, err := range skillet.DecodeFile(path, nil) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("DecodeFile: %v, want %s", err, want)
			}
		}
	}
}

// FuzzDecode: whatever decodes is a valid session, and what is written of it reads as
// something that is written the same.
func FuzzDecode(f *testing.F) {
	codectest.Fuzz(f, replayLog, user(0, `"x"`)+step(1,
		`"type":"agent_tool_start","agentName":"a","toolName":"t","toolArgumentsStr":"{\"a\": 1}"`)+
		step(2, `"type":"agent_tool_end","agentName":"a","toolName":"t","result":"r"`)+step(2,
		`"type":"text","text":"a"`)+
		step(2, `"type":"text","text":"\ud83d"`)+final(3, `"b"`))
}
