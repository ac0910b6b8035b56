package session_test

import (
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
)

// TestNotices checks that doubtful rows are reported and others are not, although all are
// valid.
func TestNotices(t *testing.T) {
	call := func(id, state string) session.Part {
		return session.Part{Type: "tool-ls", ToolCallID: &id, ToolState: &state,
			DataJSON: `{"type":"tool-ls","input":{"path":"."}}`}
	}
	text := func(s string) session.Part {
		return session.Part{Type: "text", DataJSON: `{"type":"text","text":"` + s + `"}`}
	}
	step := session.Part{Type: "step-start", DataJSON: `{"type":"step-start"}`}
	message := func(id, metadata string, parts ...session.Part) session.MessageAndParts {
		return session.MessageAndParts{Message: session.Message{ID: id, Role: session.RoleAssistant,
			MetadataJSON: metadata},
			Parts: parts}
	}
	const finished = `{"agenttrace":{"end_reason":"finish","stop_reason":"stop"}}`
	tests := []struct {
		name     string
		messages []session.MessageAndParts
		want     []string
	}{
		{"a valid turn", []session.MessageAndParts{message("m", finished, text("Hm."),
			call("c", session.StateOutputAvailable), step, text("Hm."))}, nil},
		{"a total that disagrees", []session.MessageAndParts{
			message("m", `{"agenttrace":{"problems":["the agent states 33 tokens"]}}`, text("a"))},
			[]string{"telemetry"}},
		{"a span that did not come", []session.MessageAndParts{
			message("m", `{"agenttrace":{"incomplete":true,"end_reason":"error"}}`, text("a"))}, []string{"whole"}},
		{"a message without parts", []session.MessageAndParts{message("m", finished)}, []string{"content"}},
		{"a message that goes on", []session.MessageAndParts{message("m", `{}`)}, nil},
		{"a call without a result",
			[]session.MessageAndParts{message("m", finished, call("c", session.StateInputAvailable))},
			[]string{"results"}},
		{"a text reported twice", []session.MessageAndParts{message("m", finished, text("a"), text("a"))},
			[]string{"once"}},
		{"a call reported again by a later turn", []session.MessageAndParts{
			message("m", finished, call("c", session.StateOutputAvailable)),
			message("n", finished, call("c", session.StateOutputAvailable)),
		}, []string{"once"}},
		{"metadata that is no object", []session.MessageAndParts{message("m", `7`, text("a"))}, nil},
	}
	for _, tt := range tests {
		var got []string
		for _, v := range session.Notices(&session.Transcript{Messages: tt.messages}) {
			got = append(got, v.Rule)
		}
		if strings.Join(got, " ") != strings.Join(tt.want, " ") {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if session.Notices(nil) != nil {
		t.Error("notices of nothing")
	}
}
