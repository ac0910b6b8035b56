package ingest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/ingest/internal/spantext"
	"github.com/agenttrace/agenttrace/session/store"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
)

// lateSpan is a session in which a turn's span begins when its parent has ended, while
// the next turn goes on.
type lateSpan struct{ name, spans, want string }

// twoTurns are two turns that follow each other, each in a trace of its own.
const twoTurns = `
span "invoke_agent pilot" trace=1 id=1 at=0ms for=100ms
  gen_ai.operation.name = "invoke_agent"
  gen_ai.agent.name = "pilot"
  gen_ai.conversation.id = "s"
  gen_ai.input.messages := [{"role":"user","parts":[{"type":"text","content":"Scan."}]}]
span "chat m" trace=1 id=2 parent=1 at=10ms for=80ms
  gen_ai.operation.name = "chat"
  gen_ai.output.messages := [{"role":"assistant","parts":[{"type":"text","content":"Calm."}]}]
span "invoke_agent pilot" trace=2 id=3 at=100ms for=500ms
  gen_ai.operation.name = "invoke_agent"
  gen_ai.agent.name = "pilot"
  gen_ai.conversation.id = "s"
  gen_ai.input.messages := [{"role":"user","parts":[{"type":"text","content":"Thanks."}]}]
span "chat m" trace=2 id=4 parent=3 at=110ms for=480ms
  gen_ai.operation.name = "chat"
  gen_ai.output.messages := [{"role":"assistant","parts":[{"type":"text","content":"Any time."}]}]
`

// scout is a sub-agent that a tool call of the first turn started.
const scout = `
span "execute_tool scout" trace=1 id=6 parent=1 at=20ms for=50ms
  gen_ai.operation.name = "execute_tool"
  gen_ai.tool.name = "scout"
  gen_ai.tool.call.id = "c1"
span "invoke_agent scout" trace=1 id=7 parent=6 at=21ms for=49ms
  gen_ai.operation.name = "invoke_agent"
  gen_ai.agent.name = "scout"
  gen_ai.input.messages := [{"role":"user","parts":[{"type":"text","content":"Look."}]}]
span "chat m" trace=1 id=8 parent=7 at=30ms for=20ms
  gen_ai.operation.name = "chat"
  gen_ai.output.messages := [{"role":"assistant","parts":[{"type":"text","content":"Clear."}]}]
`

// saves is a span of a tool call.
func saves(trace, id, parent, from, length int, call string) string {
	return fmt.Sprintf(`
span "execute_tool save" trace=%d id=%d parent=%d at=%dms for=%dms
  gen_ai.operation.name = "execute_tool"
  gen_ai.tool.name = "save"
  gen_ai.tool.call.id = %q
  gen_ai.tool.call.arguments := {}
  gen_ai.tool.call.result := %[6]q
`, trace, id, parent, from, length, call)
}

func lateSpans() []lateSpan {
	many := ""
	for i := range 40 { // more than any lookahead
		many += saves(2, 50+i, 3, 120+5*i, 4, fmt.Sprint("b", i))
	}
	manySaved := ""
	for i := range 40 {
		manySaved += fmt.Sprintf(" save b%d,", i)
	}
	want := func(first, second string) string {
		return "user: Scan.\nassistant: Calm.," + first + "\nuser: Thanks.\nassistant: Any time.," + second + "\n"
	}
	return []lateSpan{
		{"when the next turn begins", twoTurns + saves(1, 5, 1, 100, 0, "a"), want(" save a,", "")},
		{"in the next turn", twoTurns + saves(1, 5, 1, 130, 10, "a"), want(" save a,", "")},
		{"after the next turn", twoTurns + saves(1, 5, 1, 700, 10, "a"), want(" save a,", "")},
		{"one after the other", twoTurns + saves(1, 5, 1, 95, 10, "a") + saves(1, 6, 5, 130, 0, "b") + saves(1, 7, 6,
			150, 5,
			"c"),
			want(" save a, save b, save c,", "")},
		{"of a sub-agent", twoTurns + scout + saves(1, 9, 7, 60, 2, "x") + saves(1, 10, 7, 130, 10, "y"),
			"user: Scan.\nassistant: Calm., scout c1,\nuser: Thanks.\nassistant: Any time.,\n" +
				"child\nuser: Look.\nassistant: Clear., save x, save y,\n"},
		{"of a sub-agent, long after", twoTurns + scout + many + saves(1, 9, 7, 60, 2, "x") + saves(1, 10, 7, 580, 5,
			"y"),
			"user: Scan.\nassistant: Calm., scout c1,\nuser: Thanks.\nassistant: Any time.," + manySaved + "\n" +
				"child\nuser: Look.\nassistant: Clear., save x, save y,\n"},
		{"long after", twoTurns + many + saves(1, 5, 1, 580, 5, "a"), want(" save a,", manySaved)},
	}
}

// TestASpanThatBeginsAfterItsTurnIsOfThatTurn: what a turn does after its own span has
// ended, such as to store its last message, is no part of the turn that has begun
// meanwhile, in whatever order the spans arrive.
func TestASpanThatBeginsAfterItsTurnIsOfThatTurn(t *testing.T) {
	for _, c := range lateSpans() {
		t.Run(c.name, func(t *testing.T) {
			parsed, err := spantext.Parse(c.spans, "genai")
			if err != nil {
				t.Fatal(err)
			}
			var all []request
			for _, td := range parsed {
				all = append(all, request{traces: td})
			}
			for _, deliver := range []deliverFunc{deliver, deliverSmall} {
				s := openStore(t)
				deliver(t, s, join(all))
				check(t, s)
				if d := cmp.Diff(c.want, spoken(t, s, "s")); d != "" {
					t.Errorf("session (-want +got):\n%s", d)
				}
				testOrder(t, all, 8, deliver)
			}
		})
	}
}

// spoken is a line for each message of a session and of those below it: its texts and
// calls.
func spoken(t testing.TB, s *sqlitestore.Store, id string) string {
	t.Helper()
	transcript, err := s.Transcript(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range transcript.Messages {
		m := &transcript.Messages[i]
		fmt.Fprintf(&b, "%s:", m.Message.Role)
		for _, p := range m.Parts {
			switch {
			case p.ToolCallID != nil:
				fmt.Fprintf(&b, " %s %s,", strings.TrimPrefix(p.Type, "tool-"), *p.ToolCallID)
			case p.Type == "text":
				fmt.Fprintf(&b, " %s", textOfPart(p))
				if m.Message.Role == "assistant" {
					b.WriteString(",")
				}
			case p.Type != "step-start":
				fmt.Fprintf(&b, " %s", p.Type)
			}
		}
		b.WriteString("\n")
	}
	for row, err := range s.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.ParentID != nil && *row.ParentID == id {
			b.WriteString("child\n" + spoken(t, s, row.ID))
		}
	}
	return b.String()
}
