package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

const begin = 1795198540000

// TestNoticesNameTheirPlace: a notice has the turn, the tool call, the span and what to do.
func TestNoticesNameTheirPlace(t *testing.T) {
	const finished = `{"agenttrace":{"end_reason":"finish","stop_reason":"stop",` +
		`"problems":["the input could not be read whole (span 00000000000000aa)"]}}`
	call, state := "call_1", session.StateInputAvailable
	message := func(id, role, metadata string, at int64, parts ...session.Part) session.MessageAndParts {
		return session.MessageAndParts{Message: session.Message{ID: id, SessionID: "s", Role: role,
			MetadataJSON: metadata,
			CreatedAt:    at, UpdatedAt: at}, Parts: parts}
	}
	in := document.Input{
		Transcript: &session.Transcript{
			Session: session.Session{ID: "s", MetadataJSON: "{}", PermissionsJSON: "[]"},
			Messages: []session.MessageAndParts{
				message("u1", session.RoleUser, "{}", begin),
				message("a1", session.RoleAssistant, `{"agenttrace":{"end_reason":"finish"}}`, begin+1),
				message("u2", session.RoleUser, "{}", begin+2),
				message("a2", session.RoleAssistant, finished, begin+3, session.Part{
					ID: "p", MessageID: "a2", Type: "tool-bash", ToolCallID: &call, ToolState: &state,
					DataJSON: `{"type":"tool-bash","toolCallId":"call_1","state":"input-available","input":{}}`,
				}),
			},
		},
		SpanRefs: []store.SpanRef{
			{TraceID: "t1", SpanID: "00000000000000aa", Kind: "chat", Dialect: "adk", MessageID: "a2"},
			{TraceID: "t1", SpanID: "00000000000000bb", Kind: "tool.call", Dialect: "adk", MessageID: "a2",
				PartID: "p"},
			{TraceID: "t1", SpanID: "00000000000000cc", Kind: "session.turn", Dialect: "adk", MessageID: "a1"},
			{TraceID: "t1", SpanID: "00000000000000dd", Kind: "chat", Dialect: "adk", MessageID: "a1"},
			{TraceID: "t2", SpanID: "00000000000000ee", Kind: "chat", Dialect: "adk"},
			{TraceID: "t2", SpanID: "00000000000000ff", Kind: "session.run", Dialect: store.DialectSDK},
		},
	}
	doc := document.Build(in)
	doc.FindNotices(in)
	want := []string{
		"turn 1, message a1, span 00000000000000cc of trace t1: the message ended by \"finish\" and has no part; ",
		"turn 2, message a2, model call 00000000000000aa of trace t1: the input could not be read whole",
		"turn 2, tool call call_1 (bash), message a2, span 00000000000000bb of trace t1: the tool call has no " +
			"result; export the span",
		"model call 00000000000000ee of trace t2: the model call of span 00000000000000ee belongs to no message; ",
	}
	if len(doc.Notices) != len(want) {
		t.Fatalf("%d notices, want %d: %v", len(doc.Notices), len(want), doc.Notices)
	}
	for i, n := range doc.Notices {
		if !strings.HasPrefix(n.String(), want[i]) || n.Remedy == "" {
			t.Errorf("notice %d\n%s\nwant\n%s", i, n.String(), want[i])
		}
	}
	if one := doc.Between(2, 2); len(one.Notices) != 2 {
		t.Errorf("turn 2 has %d notices, want 2", len(one.Notices))
	}
}

// TestNoticesOfASessionAtWork: that a turn has not ended is a notice when nothing works on it.
func TestNoticesOfASessionAtWork(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         int
	}{{"busy", `{"status":{"state":"busy","at":1795198540700}}`, 0},
		{"idle", `{"status":{"state":"idle","at":1795198540700}}`, 1}} {
		in := document.Input{Transcript: statusSession(c.status, incomplete)}
		doc := document.Build(in)
		doc.FindNotices(in)
		if len(doc.Notices) != c.want {
			t.Errorf("%s: %v, want %d", c.name, doc.Notices, c.want)
		}
	}
}

// A turn before which the clock of the agent went back comes before those that it follows, and none is missing.
func TestTurnsInAnotherOrderAreNotMissing(t *testing.T) {
	in := document.Input{Transcript: statusSession("{}", "")}
	for i, index := range []string{"1", "3", "0"} {
		in.Transcript.Messages = append(in.Transcript.Messages, session.MessageAndParts{Message: session.Message{
			ID: "a" + index, Role: session.RoleAssistant, MetadataJSON: `{"agenttrace":{"turn_index":` + index + "}}",
			CreatedAt: begin + int64(2*i) + 1}}, session.MessageAndParts{Message: session.Message{ID: "u" + index,
			Role: session.RoleUser, MetadataJSON: "{}", CreatedAt: begin + int64(2*i) + 2}})
	}
	missing := ""
	for _, turn := range document.Build(in).Turns {
		if turn.MissingBefore != nil {
			missing += turn.MissingBefore.Text() + "\n"
		}
	}
	if missing != "1 turn never arrived (turn_index 2)\n" {
		t.Errorf("missing are %q", missing)
	}
}

// A fork from before the last turn misses none, also if it began in the millisecond of the question that it copied.
func TestAForkMissesNoTurnsOfItsParent(t *testing.T) {
	in := document.Input{Transcript: &session.Transcript{Session: session.Session{ParentID: new("s"), CreatedAt: begin}}}
	for i, index := range []int{0, 1, 3} {
		question := session.Message{ID: fmt.Sprint("msg_", i, 0), Role: session.RoleUser, CreatedAt: begin - 1 + int64(i)}
		answer := session.Message{ID: fmt.Sprint("msg_", i, 1), Role: session.RoleAssistant, CreatedAt: question.CreatedAt,
			MetadataJSON: fmt.Sprintf(`{"agenttrace":{"turn_index":%d}}`, index)}
		in.Transcript.Messages = append(in.Transcript.Messages,
			session.MessageAndParts{Message: question}, session.MessageAndParts{Message: answer})
	}
	for _, turn := range document.Build(in).Turns {
		if turn.MissingBefore != nil {
			t.Error(turn.MissingBefore.Text())
		}
	}
}
