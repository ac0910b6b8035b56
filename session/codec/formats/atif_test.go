package formats

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"

	"github.com/agenttrace/agenttrace/session/codec/codectest"
)

// atifRead decodes a document, and fails the test if a session of it is invalid.
func atifRead(tb testing.TB, text string) (all []*codec.Session, problems []string, failed error) {
	tb.Helper()
	for s, err := range atifDecode(strings.NewReader(text),
		func(p codec.Problem) { problems = append(problems, p.String()) }) {
		if err != nil {
			return all, problems, err
		}
		for _, v := range session.Check(s.Transcript) {
			tb.Errorf("invalid: %v", v)
		}
		all = append(all, s)
	}
	return all, problems, nil
}

func atifText(tb testing.TB, s *codec.Session) string {
	tb.Helper()
	var b bytes.Buffer
	if err := atifEncode(&b, s); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// TestATIFTrajectoriesOfOthers reads what Harbor's agents write.
func TestATIFTrajectoriesOfOthers(t *testing.T) {
	// The version of the format, and the parents and the ids of sub-agents, which are read alone.
	lost := []string{"ids and times", "columns of the session", "other metadata", "tool inputs and outputs"}
	for _, name := range []string{"harbor", "subagents"} {
		data, err := os.ReadFile(filepath.Join("testdata", "atif", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		all, problems, err := atifRead(t, string(data))
		if err != nil {
			t.Fatal(err)
		}
		codectest.CheckGolden(t, filepath.Join("testdata", "atif", name+".golden.jsonl"), codectest.Golden(t, problems, all...),
			*update)
		for _, s := range all {
			again, problems, err := atifRead(t, atifText(t, s))
			if err != nil || problems != nil {
				t.Fatalf("what was written is read with %v, %v", problems, err)
			}
			for _, l := range codec.Lost(s, again[0]) {
				if !slices.Contains(lost, l.What) {
					t.Errorf("%s: %d %s are lost", name, l.Count, l.What)
				}
			}
		}
	}
}

const atifDocument = `{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"a","version":"1"},"steps":[
{"step_id":1,"source":"user","message":"go"},
{"step_id":2,"source":"agent","message":"ok","tool_calls":[{"tool_call_id":"c","function_name":"f","arguments":{}}]}]}`

// TestATIFVersions: every version up to 1.8, and later ones of the same major version, are read.
func TestATIFVersions(t *testing.T) {
	for minor := range 12 {
		text := strings.Replace(atifDocument, "1.7", fmt.Sprintf("1.%d", minor), 1)
		if all, problems, err := atifRead(t, text); err != nil || problems != nil || len(all) != 1 ||
			len(all[0].Messages) != 2 {
			t.Errorf("version 1.%d: %d sessions, problems %v, error %v", minor, len(all), problems, err)
		}
	}
}

// TestATIFWhatIsWrongIsNamed: what cannot be read is named by its line or its field, with what to do.
func TestATIFWhatIsWrongIsNamed(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{`{"step_id":1,`, `{"step_id":1,,`, "line 2"},
		{`"ATIF-v1.7"`, `"ATIF-v2.0"`, `schema_version "ATIF-v2.0" is not known: convert the file to ATIF-v1.7`},
		{`"ATIF-v1.7"`, `7`, `schema_version is 7: want one such as "ATIF-v1.7"`},
		{`"steps":[`, `"stops":[`, "steps is missing"},
		{`"step_id":2`, `"step_id":7`, "steps[1].step_id: is 7, want 2"},
		{`"source":"user"`, `"source":"tool"`, `steps[0].source: is "tool", want system, user or agent`},
		{`"message":"go"`, `"message":5`, "steps[0].message: is 5, want a text"},
		{`"message":"go"`, `"message":[{"type":"video"}]`, "steps[0].message[0]: is neither a text nor an image"},
		{`"message":"go"`, `"message":"go","timestamp":"noon"`, `steps[0].timestamp: is "noon", which is not a time`},
		{`"tool_call_id":"c"`, `"tool_call_id":7`, "steps[1].tool_calls[0]: has no tool_call_id"},
		{`"message":"ok"`, `"message":"ok","metrics":{"prompt_tokens":-1}`,
			"steps[1].metrics.prompt_tokens: is -1, want a count"},
		{`"message":"ok"`, `"message":"ok","observation":{"results":[{"source_call_id":"x","content":"y"}]}`,
			`steps[1].observation.results[0].source_call_id: is "x", which no call of the step has`},
		{`"steps":[`, `"subagent_trajectories":[{"schema_version":"ATIF-v1.7"}],"steps":[`,
			"subagent_trajectories[0]: is not a trajectory"},
	} {
		text := strings.Replace(atifDocument, tt.from, tt.to, 1)
		if text == atifDocument {
			t.Fatalf("%s is not in the document", tt.from)
		}
		_, problems, err := atifRead(t, text)
		if got := fmt.Sprint(problems, err); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.to, got, tt.want)
		}
	}
}

// TestATIFRewoundMessagesAreNoSteps: a trainer must not learn from what the user took back.
func TestATIFRewoundMessagesAreNoSteps(t *testing.T) {
	all, _, err := atifRead(t, atifDocument)
	if err != nil {
		t.Fatal(err)
	}
	all[0].Messages[1].Message.HiddenAt = new(int64(99))
	text := atifText(t, all[0])
	if strings.Contains(text, `"ok"`) || !strings.Contains(text, `"total_steps": 1`) {
		t.Errorf("the answer that was taken back is among the steps:\n%s", text)
	}
	if errs := atifBroken([]byte(text)); errs != nil {
		t.Error(errs)
	}
	got, problems, err := atifRead(t, text)
	if err != nil || problems != nil || len(got) != 1 || len(got[0].Messages) != 1 {
		t.Errorf("read again it has %d sessions, problems %v, %v", len(got), problems, err)
	}
}

// TestATIFSubAgentsAreInTheTrajectory: one file has the session, those of its sub-agents at every level, and
// which call started them. A fork is a trajectory of its own.
func TestATIFSubAgentsAreInTheTrajectory(t *testing.T) {
	made := func(id, parent, output string) *codec.Session {
		all, _, err := atifRead(t, strings.NewReplacer(`"session_id":"s"`, `"trajectory_id":"`+id+`"`,
			`"step_id":1,`, `"step_id":1,"timestamp":"2026-11-22T10:00:00Z",`).Replace(atifDocument))
		if err != nil {
			t.Fatal(err)
		}
		s := all[0]
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
	var b bytes.Buffer
	if err := atifEncode(&b, parent, others...); err != nil {
		t.Fatal(err)
	}
	if errs := atifBroken(b.Bytes()); errs != nil {
		t.Error(errs)
	}
	got, problems, err := atifRead(t, b.String())
	if err != nil || problems != nil {
		t.Fatal(problems, err)
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
		t.Errorf("read again:\n%s\nwant:\n%s\nof:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"), b.String())
	}
}
