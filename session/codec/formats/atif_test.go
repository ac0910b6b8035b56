package formats

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
)

const atifDocument = `{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"a","version":"1"},"steps":[
{"step_id":1,"source":"user","message":"go"},
{"step_id":2,"source":"agent","message":"ok","tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":{}}]}]}`

// TestATIFVersions: every version up to 1.8, and later ones of the same major version, are read.
func TestATIFVersions(t *testing.T) {
	for minor := range 12 {
		text := strings.Replace(atifDocument, "1.7", fmt.Sprintf("1.%d", minor), 1)
		if n := len(one(t, atifDecode, text).Messages); n != 2 {
			t.Errorf("version 1.%d: %d messages", minor, n)
		}
	}
}

// TestATIFRewoundMessagesAreNoSteps: a trainer must not learn from what the user took back.
func TestATIFRewoundMessagesAreNoSteps(t *testing.T) {
	s := one(t, atifDecode, atifDocument)
	s.Messages[1].Message.HiddenAt = new(int64(99))
	text := writtenText(t, streamOf("atif").Encode, s)
	if strings.Contains(text, `"ok"`) || !strings.Contains(text, `"total_steps": 1`) {
		t.Errorf("the answer that was taken back is among the steps:\n%s", text)
	}
	if errs := atifBroken([]byte(text)); errs != nil {
		t.Error(errs)
	}
	if n := len(one(t, atifDecode, text).Messages); n != 1 {
		t.Errorf("read again it has %d messages", n)
	}
}

// TestATIFSubAgentsAreInTheTrajectory: one file has the session, those of its sub-agents at every level, and
// which call started them. A fork is a trajectory of its own. That of each names its parent.
func TestATIFSubAgentsAreInTheTrajectory(t *testing.T) {
	made := func(id, parent, output string) *codec.Session {
		s := one(t, atifDecode, strings.NewReplacer(`"session_id":"s"`, `"trajectory_id":"`+id+`"`,
			`"step_id":1,`, `"step_id":1,"timestamp":"2026-11-22T10:00:00Z",`).Replace(atifDocument))
		if parent != "" {
			s.Session.ParentID = &parent
		}
		parts := s.Messages[1].Parts
		p := &parts[len(parts)-1]
		p.ToolState = new("output-available")
		p.DataJSON = `{"type":"tool-f","toolCallId":"c","state":"output-available","input":{},"output":` + output + `}`
		return s
	}
	parent := made("ses_1", "", `"done","toolMetadata":{"agenttrace":{"child_session_id":"ses_2"}}`)
	others := []*codec.Session{made("ses_2", "ses_1", `{"session_id":"ses_2-x"}`), made("ses_2-x", "ses_2", "null"),
		made("ses_3", "ses_1", "null")}
	others[2].Session.CreatedAt++ // a fork: its messages are older than it
	for _, s := range others {
		alone := one(t, atifDecode, string(atifEncode(s)))
		if copied := alone.Session.Copied(alone.Messages[1].Message.CreatedAt); copied != (s == others[2]) ||
			session.Deref(alone.Session.ParentID) != *s.Session.ParentID {
			t.Errorf("read alone, with copies: %v: %+v", copied, alone.Session)
		}
	}
	text := atifEncode(parent, others...)
	if errs := atifBroken(text); errs != nil {
		t.Error(errs)
	}
	got, problems := readText(t, atifDecode, string(text))
	if problems != nil {
		t.Fatal(problems)
	}
	var lines []string
	for _, s := range got {
		parts := s.Sorted().Messages[1].Parts
		lines = append(lines, fmt.Sprint(s.Session.ID, " of ", session.Deref(s.Session.ParentID), ": ",
			parts[len(parts)-1].DataJSON[len(`{"type":"tool-f","toolCallId":"c",`):]))
	}
	want := []string{
		`ses_1 of : "state":"output-available","input":{},"toolMetadata":{"agenttrace":{"child_session_id":"ses_2"}},` +
			`"output":"done"}`,
		`ses_2 of ses_1: "state":"output-available","input":{},"output":{"session_id":"ses_2-x"}}`,
		`ses_2-x of ses_2: "state":"output-available","input":{},"output":"null"}`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("read again:\n%s\nwant:\n%s\nof:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"), text)
	}
}
