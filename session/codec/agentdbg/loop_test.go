package agentdbg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// The warnings of AgentDbg's own runs are the ones that the detector gives, at
// the same places and byte for byte.
func TestLoopDetectorAgreesWithAgentDbg(t *testing.T) {
	files, err := filepath.Glob("testdata/data/runs/*/events.jsonl")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d runs, %v", len(files), err)
	}
	warnings := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := new(loopDetector)
		var expected rows.Object
		for line := range strings.Lines(string(text)) {
			e, err := rows.Parse([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			typ, payload := e.Text("event_type"), e.Object("payload")
			if typ == loopWarning {
				warnings++
				if diff := cmp.Diff(string(payload.JSON()), string(expected.JSON())); diff != "" {
					t.Errorf("%s: warning (-want +got):\n%s", file, diff)
				}
				if got := defaultName(typ, payload); got != e.Text("name") {
					t.Errorf("%s: name %q, want %q", file, got, e.Text("name"))
				}
				expected = nil
				continue
			}
			if expected != nil {
				t.Errorf("%s: a warning that AgentDbg did not give: %s", file, expected.JSON())
			}
			expected = d.see(typ, e.Text("event_id"), payload)
		}
	}
	if warnings != 3 {
		t.Errorf("%d warnings, want 3", warnings)
	}
}

func TestLoopDetector(t *testing.T) {
	// Each letter is a call of the tool of that name, a dot a state update, and a
	// bang an error, which the window does not hold.
	for _, tt := range []struct {
		events string
		want   []string // place and pattern
	}{
		{"aa", nil},
		{"aaa", []string{"2 a"}},
		{"aaaaaa", []string{"2 a"}},
		{"a!a!a", []string{"4 a"}},
		{"ababab", []string{"5 a b"}},
		{"abababab", []string{"5 a b", "6 b a"}},
		{"abcabcabc", []string{"8 a b c"}},
		{"abcdabcdabcd", []string{"11 a b c d"}},
		{"abcdeabcdeabcde", nil}, // longer than the window
		{"...", []string{"2 STATE_UPDATE"}},
		{"aabaabaab", []string{"8 a a b"}},
	} {
		d := new(loopDetector)
		var got []string
		for i, c := range tt.events {
			typ := toolCall
			switch c {
			case '.':
				typ = stateUpdate
			case '!':
				typ = errorEvent
			}
			if w := d.see(typ, "", rows.Object{{Key: "tool_name", Value: rows.Raw(string(c))}}); w != nil {
				pattern := strings.NewReplacer("TOOL_CALL:", "", " -> ", " ").Replace(w.Text("pattern"))
				got = append(got, strings.Join([]string{string(rows.Raw(i)), pattern}, " "))
				if !strings.Contains(string(w.Get("evidence_event_ids")), "__MISSING__") {
					t.Errorf("%s: evidence %s", tt.events, w.Get("evidence_event_ids"))
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.events, diff)
		}
	}
	if got := signature(llmCall, nil); got != "LLM_CALL:UNKNOWN" {
		t.Errorf("signature without a model is %s", got)
	}
}

func TestLoopName(t *testing.T) {
	for _, tt := range []struct{ pattern, want string }{
		{"TOOL_CALL:t", "TOOL_CALL:t"},
		{strings.Repeat("é", 80), strings.Repeat("é", 80)},
		{strings.Repeat("é", 81), strings.Repeat("é", 79) + "..."},
	} {
		if got := loopName(tt.pattern); got != tt.want {
			t.Errorf("loopName(%q) = %q, want %q", tt.pattern, got, tt.want)
		}
	}
}

func TestPythonFloat(t *testing.T) {
	for f, want := range map[float64]string{1: "1.0", 0.2: "0.2", -3: "-3.0", 1e-7: "1e-7", 1e22: "1e+22"} {
		if got := string(pythonFloat(f)); got != want {
			t.Errorf("pythonFloat(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestRunID(t *testing.T) {
	const own = "3cb3426d-1fa6-417a-b821-6be9c94cd9f4"
	if got := runID(own); got != own {
		t.Errorf("runID(%s) = %s", own, got)
	}
	for _, id := range []string{"", "ses_1", strings.ToUpper(own), "018f4d7c-0000-7000-8000-000000000000", own[:35],
		own[:35] + "g", "3cb3426d1fa6-417a-b821-6be9c94cd9f4-"} {
		got := runID(id)
		if !isUUID4(got) || got == id {
			t.Errorf("runID(%q) = %s", id, got)
		}
		if again := runID(id); again != got {
			t.Errorf("runID(%q) = %s and then %s", id, got, again)
		}
	}
}

// TestAChatIsNoLoop exports a session in which a model answers three times and calls nothing.
func TestAChatIsNoLoop(t *testing.T) {
	s := &codec.Session{Transcript: &session.Transcript{}}
	s.Session = session.Session{ID: "ses_1", Agent: "coder"}
	for i := range int64(6) {
		id := string('a' + rune(i))
		m := session.MessageAndParts{Message: session.Message{ID: id, SessionID: "ses_1", Role: session.RoleUser,
			CreatedAt: i, MetadataJSON: "{}"}, Parts: []session.Part{{ID: "p" + id, MessageID: id, Type: "text",
			DataJSON: `{"type":"text","text":"go on"}`, CreatedAt: i}}}
		if i%2 == 1 {
			m.Message.Role = session.RoleAssistant
		}
		s.Messages = append(s.Messages, m)
	}
	calls := 0
	for _, e := range draft(s, false).events {
		switch e.EventType {
		case llmCall:
			calls++
		case loopWarning:
			t.Errorf("warning: %s", e.Payload.JSON())
		}
	}
	if calls != 3 {
		t.Errorf("%d model calls, want 3", calls)
	}
}
