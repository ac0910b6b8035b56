package agentdbg_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/agentdbg"
)

// TestTurnsOfARunKeepTheirEnds: a turn that failed, was interrupted or was not seen to end is
// that also when another turn follows it, and a run whose last prompt nothing answered has no
// outcome.
func TestTurnsOfARunKeepTheirEnds(t *testing.T) {
	const unfinished = `{"incomplete":true}`
	ends := func(answers ...string) (got []string, outcome string) {
		t.Helper()
		s := &codec.Session{Transcript: &session.Transcript{Session: session.Session{
			ID: "s", Title: "t", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}", CreatedAt: 1, UpdatedAt: 99,
		}}}
		at := int64(1)
		add := func(role, metadata, text string) {
			at++
			id := fmt.Sprint("m", at)
			data, _ := json.Marshal(map[string]string{"type": "text", "text": text})
			s.Messages = append(s.Messages, session.MessageAndParts{
				Message: session.Message{ID: id, SessionID: "s", Role: role, MetadataJSON: metadata, CreatedAt: at,
					UpdatedAt: at},
				Parts: []session.Part{{ID: "p" + id, MessageID: id, SessionID: "s", Type: "text",
					DataJSON:  string(data),
					CreatedAt: at, UpdatedAt: at}},
			})
		}
		for i, answer := range answers {
			add(session.RoleUser, "{}", fmt.Sprint("question ", i))
			if answer != "" {
				add(session.RoleAssistant, `{"agenttrace":`+answer+`}`, fmt.Sprint("answer ", i))
			}
		}
		var file bytes.Buffer
		if err := agentdbg.Encode(&file, s); err != nil {
			t.Fatal(err)
		}
		for read, err := range agentdbg.Decode(&file, func(p codec.Problem) { t.Error(p) }) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range read.Messages {
				var meta session.MessageMetadata
				if m := &read.Messages[i].Message; m.Role == session.RoleAssistant &&
					json.Unmarshal([]byte(m.MetadataJSON), &meta) == nil {
					got = append(got, fmt.Sprint(meta.Trace.EndReason, meta.Trace.Incomplete))
				}
			}
			var meta struct {
				Trace struct{ Outcome string } `json:"agenttrace"`
			}
			if err := json.Unmarshal([]byte(read.Session.MetadataJSON), &meta); err != nil {
				t.Fatal(err)
			}
			outcome = meta.Trace.Outcome
		}
		return got, outcome
	}
	finished := `{"end_reason":"finish"}`
	for _, c := range []struct {
		answers []string
		want    []string
		outcome string
	}{
		{[]string{unfinished, finished}, []string{"true", "finishfalse"}, "finish"},
		{[]string{`{"end_reason":"error","error":"no"}`, finished}, []string{"errorfalse", "finishfalse"}, "finish"},
		{[]string{`{"end_reason":"abort"}`, finished}, []string{"abortfalse", "finishfalse"}, "finish"},
		// no event of a call has the last prompt
		{[]string{`{"end_reason":"error","error":"no"}`, ""}, []string{"true"}, ""},
	} {
		if got, outcome := ends(c.answers...); !slices.Equal(got, c.want) || outcome != c.outcome {
			t.Errorf("%v: the turns end %v and the run %q, want %v and %q", c.answers, got, outcome, c.want, c.outcome)
		}
	}
}
