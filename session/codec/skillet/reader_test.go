package skillet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/skillet"
)

// chat is a session of messages, each its role and the data of its parts.
func chat(messages ...[]string) *codec.Session {
	t := &session.Transcript{Session: session.Session{ID: "ses_1", Title: "T", Agent: "a", PermissionsJSON: "[]",
		MetadataJSON: "{}", CreatedAt: 5, UpdatedAt: 99}}
	for i, m := range messages {
		at := int64(10 * (i + 1))
		row := session.MessageAndParts{Message: session.Message{ID: fmt.Sprintf("msg_%d", i), SessionID: "ses_1",
			Role:         m[0],
			MetadataJSON: "{}", CreatedAt: at, UpdatedAt: at + 5}}
		for k, data := range m[1:] {
			p := session.Part{ID: fmt.Sprintf("prt_%d_%d", i, k), MessageID: row.Message.ID, SessionID: "ses_1",
				Index:    int64(k),
				DataJSON: data, CreatedAt: at, UpdatedAt: at + 1}
			p.Type = strings.Split(data, `"`)[3]
			if _, id, ok := strings.Cut(data, `"toolCallId":"`); ok {
				id, _, _ = strings.Cut(id, `"`)
				_, state, _ := strings.Cut(data, `"state":"`)
				state, _, _ = strings.Cut(state, `"`)
				p.ToolCallID, p.ToolState = &id, &state
			}
			row.Parts = append(row.Parts, p)
		}
		t.Messages = append(t.Messages, row)
	}
	return &codec.Session{Transcript: t}
}

// back writes the session to a state directory and reads that.
func back(t *testing.T, s *codec.Session) (all []*codec.Session) {
	t.Helper()
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, s, false); err != nil {
		t.Fatal(err)
	}
	for again, err := range skillet.DecodeFile(dir, func(p codec.Problem) { t.Error(p) }) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, again)
	}
	return all
}

// What is kept in session_items comes back from there, also where messages that
// came at once are one entry of the log, and where a turn ends in thought.
func TestStoreTellsWhatTheLogLeavesOut(t *testing.T) {
	all := back(t, chat(
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
func TestNoTurnNoLog(t *testing.T) {
	dir := t.TempDir()
	if err := skillet.EncodeFile(dir, chat(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".agent_session_logs")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log was written: %v", err)
	}
	for s, err := range skillet.DecodeFile(dir, func(p codec.Problem) { t.Error(p) }) {
		t.Errorf("read %v, %v, want nothing", s, err)
	}
}

// Some ids are names as they stand, of the
// others one is made.
func TestLossOfTheID(t *testing.T) {
	for id, kept := range map[string]bool{
		"ses_000000000000SNU9EEyOhNrFYg": true, "13f357b3-8f64-4fde-aa60-c29d12969d7b": false, "ses_1": false,
		"a/b": false,
	} {
		s := chat([]string{"user", `{"type":"text","text":"q"}`}, []string{"assistant", `{"type":"text","text":"a"}`})
		s.Session.ID = id
		for i := range s.Messages {
			s.Messages[i].Message.SessionID = id
			for j := range s.Messages[i].Parts {
				s.Messages[i].Parts[j].SessionID = id
			}
		}
		for _, place := range []string{"", "s.sqlite"} {
			path := filepath.Join(t.TempDir(), place)
			if err := skillet.EncodeFile(path, s, false); err != nil {
				t.Fatal(err)
			}
			if got := only(t, skillet.DecodeFile(path, nil)).Session.ID; (got == id) != kept {
				t.Errorf("session %s comes back as %s from %q, want it kept: %v", id, got, place, kept)
			}
		}
	}
}

// EncodeFile with replace puts a session in the place of what is there of it, and of nothing
// else.
func TestReplace(t *testing.T) {
	before := chat([]string{"user", `{"type":"text","text":"q"}`},
		[]string{"assistant", `{"type":"text","text":"before"}`})
	after := chat([]string{"user", `{"type":"text","text":"q"}`},
		[]string{"assistant", `{"type":"text","text":"after"}`})
	named := func(s *codec.Session, name string) *codec.Session {
		t := *s.Transcript
		t.Session.MetadataJSON = `{"skillet":{"user":"u","session_name":"` + name + `"}}`
		return &codec.Session{Transcript: &t}
	}
	for _, place := range []string{"", "s.sqlite", "logs/u/s.jsonl"} {
		path := filepath.Join(t.TempDir(), place)
		if place != "logs/u/s.jsonl" {
			if err := skillet.EncodeFile(path, named(before, "other"), false); err != nil {
				t.Fatal(err)
			}
		}
		if err := skillet.EncodeFile(path, named(before, "s"), true); err != nil { // of nothing
			t.Fatal(err)
		}
		if err := skillet.EncodeFile(path, named(after, "s"), false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%q: EncodeFile over what is there: %v", place, err)
		}
		if err := skillet.EncodeFile(path, named(after, "s"), true); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"s": "after"}
		if place != "logs/u/s.jsonl" {
			want["other"] = "before"
		}
		got := make(map[string]string)
		for _, s := range collect(t, skillet.DecodeFile(path, func(p codec.Problem) { t.Error(p) })) {
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
		if err := skillet.EncodeFile(dir, s, true); err != nil {
			t.Fatal(err)
		}
	}
	for s, err := range skillet.DecodeFile(dir, nil) {
		t.Errorf("read %v, %v of a session without turns", s, err)
	}
}
