package jsonfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonfile"
)

// small is a session of two messages with two parts each.
func small() *session.Transcript {
	t := &session.Transcript{Session: session.Session{ID: "s", Title: "T", Agent: "a", PermissionsJSON: "[]",
		MetadataJSON: "{}"}}
	for i, role := range []string{session.RoleUser, session.RoleAssistant} {
		m := session.MessageAndParts{Message: session.Message{ID: fmt.Sprint("m", i), SessionID: "s", Role: role,
			MetadataJSON: "{}", CreatedAt: int64(i), UpdatedAt: int64(i)}}
		for k := range 2 {
			m.Parts = append(m.Parts, session.Part{ID: fmt.Sprintf("p%d%d", i, k), MessageID: m.Message.ID,
				SessionID: "s",
				Index:     int64(k), Type: "text",
				DataJSON: fmt.Sprintf(`{"type":"text","text":"part %d of %d"}`, k, i)})
		}
		t.Messages = append(t.Messages, m)
	}
	return t
}

// recoverSession reads text and returns the ids of what it gave, and the problems.
func recoverSession(t *testing.T, text string) (ids string, problems []string, failed error) {
	t.Helper()
	for s, err := range jsonfile.Recover(strings.NewReader(text),
		func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if failed = err; err != nil {
			continue
		}
		if err := s.CheckTree(); err != nil {
			t.Error(err)
		}
		all := []string{s.Session.ID}
		for _, m := range s.Messages {
			all = append(all, m.Message.ID)
			for _, p := range m.Parts {
				all = append(all, p.ID)
			}
		}
		ids = strings.Join(all, " ")
	}
	return ids, problems, failed
}

func TestRecover(t *testing.T) {
	whole := encode(t, small())
	var indented, sorted bytes.Buffer
	if err := json.Indent(&indented, []byte(whole), "", "  "); err != nil {
		t.Fatal(err)
	}
	var any map[string]any
	if err := json.Unmarshal([]byte(whole), &any); err != nil {
		t.Fatal(err)
	}
	e := json.NewEncoder(&sorted) // "messages" before "session"
	e.SetIndent("", "  ")
	if err := e.Encode(any); err != nil {
		t.Fatal(err)
	}
	flip := func(text, at string) string {
		i := strings.Index(text, at)
		if i < 0 {
			t.Fatalf("no %q in it", at)
		}
		return text[:i] + string(text[i]^0x40) + text[i+1:]
	}
	const all = "s m0 p00 p01 m1 p10 p11"
	for _, tt := range []struct {
		name, text, ids, problem string
	}{
		{"whole", whole, all, ""},
		{"a flipped byte in a part", flip(whole, `"id":"p00"`), "s m0 p01 m1 p10 p11", "line 5: "},
		{"a flipped byte between a message and its parts", flip(whole, `,"parts":[`), all, "line 4: "},
		{"a flipped byte in a message", flip(whole, `"id":"m1"`), "s m0 p00 p01", "line 8: "},
		{"a flipped brace", flip(whole, "]},\n"), all, "line 7: "},
		{"cut off", whole[:strings.Index(whole, `{"id":"p11"`)+20], "s m0 p00 p01 m1 p10", "line 10: "},
		{"something after it", whole + "}", all, "line "},
		{"indented, a flipped byte in a part", flip(indented.String(), `"id": "p10"`), "s m0 p00 p01 m1",
			"what follows is left out"},
		{"indented, cut off", indented.String()[:strings.Index(indented.String(), `"id": "p10"`)], "s m0 p00 p01 m1",
			"what follows is left out"},
		{"indented, a row that is none", strings.Replace(indented.String(), `"index": 1`, `"index": "one"`, 1),
			"s m0 p00 m1 p10 p11", "left out"},
		{"sorted, a row that is none", strings.Replace(sorted.String(), `"index": 1`, `"index": "one"`, 1),
			"s m0 p00 m1 p10 p11", "left out"},
		{"a message that is none", strings.Replace(whole, "\"messages\":[\n", "\"messages\":[\n7,", 1), all,
			"line 4: a message is not an object"},
	} {
		ids, problems, err := recoverSession(t, tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if ids != tt.ids {
			t.Errorf("%s: have %q, want %q; problems %q", tt.name, ids, tt.ids, problems)
		}
		if (tt.problem == "") != (len(problems) == 0) || !strings.Contains(strings.Join(problems, "\n"), tt.problem) {
			t.Errorf("%s: problems %q, want one with %q", tt.name, problems, tt.problem)
		}
	}
	for _, text := range []string{"", "null", "{}", "[]", flip(whole, `"session":{"id"`), whole[:30]} {
		_, _, want := recoverSession(t, text)
		if want == nil {
			t.Errorf("%.40q: no error", text)
			continue
		}
		if _, err := jsonfile.Decode(strings.NewReader(text)); cmp.Diff(fmt.Sprint(err), fmt.Sprint(want)) != "" {
			t.Errorf("%.40q: error %v, want that of Decode: %v", text, want, err)
		}
	}
}

// TestRecoverEveryByte flips each byte: nothing panics, what is read is a tree, and
// whatever is lost is reported.
func TestRecoverEveryByte(t *testing.T) {
	whole := encode(t, small())
	id := strings.Index(whole, `"s"`) + 1 // of another session no row is
	for i := range len(whole) {
		if i == id {
			continue
		}
		for _, bit := range []byte{0x01, 0x08, 0x40, 0x80} {
			ids, problems, err := recoverSession(t, whole[:i]+string([]byte{whole[i] ^ bit})+whole[i+1:])
			if err == nil && len(problems) == 0 && strings.Count(ids, " ") < 6 {
				t.Errorf("byte %d ^ %#x: have %q, and nothing is said of it", i, bit, ids)
			}
			if err == nil && strings.Count(ids, " ") < 3 {
				t.Errorf("byte %d ^ %#x: no more than %q is left; problems %q", i, bit, ids, problems)
			}
		}
	}
}
