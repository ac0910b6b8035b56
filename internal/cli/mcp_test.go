package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
)

// TestMCP: an agent looks up past sessions with a client of the protocol, and what it asks for wrongly is explained. When
// the store is deleted, nothing is read of the old file or written to a new one.
func TestMCP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	newStore(t, path, fixture())
	cmd := exec.Command("agenttrace", "mcp", "--scores")
	cmd.Env = append(os.Environ(), "AGENTTRACE_STORE="+path, "TZ=UTC")
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	connected, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	testscale.Must(t, err)
	defer connected.Close()
	tools, err := connected.ListTools(t.Context(), nil)
	testscale.Must(t, err)
	called := map[string]bool{}
	const gone = "the file was moved or replaced; put it back or restart"
	for _, test := range []struct {
		tool  string
		args  map[string]any
		want  []string
		fails bool
	}{
		{"list_sessions", nil, []string{`"id":"` + main + `"`, `"status":`, `"total_tokens":`}, false},
		{"list_sessions", map[string]any{"limit": 1, "children": true, "archived": true},
			[]string{`"next":"`}, false},
		{"list_sessions", map[string]any{"status": "busy", "tag": []string{"good"}}, []string{`"filter":"tag"`}, false},
		{"list_sessions", map[string]any{"agent": "nobody"}, []string{`"sessions":[]`, `"filter":"agent"`}, false},
		{"list_sessions", map[string]any{"limit": 1000}, []string{"limit"}, true},
		{"list_sessions", map[string]any{"color": "red"}, []string{"color"}, true},
		{"search_sessions", map[string]any{"q": "test"}, []string{`"session_id":"` + main, `"turn":`}, false},
		{"search_sessions", map[string]any{"q": "t.st", "regexp": true, "limit": 1}, []string{`"session_id":"`},
			false},
		{"search_sessions", map[string]any{"q": "(", "regexp": true}, []string{"missing closing )"}, true},
		{"search_sessions", map[string]any{"q": "test", "since": "yesterday"}, []string{"use a time such as"},
			true},
		{"search_sessions", map[string]any{"q": ""}, []string{`q is ""; give a text to look for`}, true},
		{"search_sessions", map[string]any{"q": "a", "agent": ""}, []string{"or give a value: only sessions of"}, true},
		{"search_sessions", map[string]any{"q": "nowhere at all"}, []string{`"hits":[]`}, false},
		{"read_session", map[string]any{"session": main}, []string{"Turn 1"}, false},
		{"read_session", map[string]any{"session": main, "from": 1, "to": 1, "full": true},
			[]string{"these are turns 1 to 1 of"}, false},
		{"read_session", map[string]any{"session": main, "from": 99},
			[]string{"has no turns 99 to 99; its turns are 1 to"}, true},
		{"read_session", map[string]any{"session": "ses_none"}, []string{"list_sessions has the ids"}, true},
		{"read_session", map[string]any{}, []string{"session"}, true},
		{"read_part", map[string]any{"session": main, "part": "none"}, []string{`has no part "none"`}, true},
		{"session_status", map[string]any{"session": main}, []string{main}, false},
		{"session_stats", map[string]any{"by": "model"}, []string{`"groups":`}, false},
		{"session_stats", map[string]any{"by": "moon"}, []string{"use day, week, weekday"}, true},
		{"diff_sessions", map[string]any{"a": main, "b": main}, nil, false},
		{"score_session", map[string]any{"session": main, "turn": 1, "name": "quality", "value": 0.5, "label": "fair",
			"explanation": "it helps"}, []string{"quality=0.5 fair: it helps"}, false},
		{"score_session", map[string]any{"session": main, "turn": 0, "name": "quality", "value": 1},
			[]string{"has no turn 0; its turns are 1 to"}, true},
		{"score_session", map[string]any{"session": main, "name": "quality"}, []string{"needs a value or a label"}, true},
		{"read_session", map[string]any{"session": main, "from": 1, "to": 1}, []string{"quality=0.5 fair"}, false},
		{"list_sessions", map[string]any{"limit": 2}, []string{gone}, true},
		{"score_session", map[string]any{"session": main, "name": "quality", "value": 1}, []string{gone}, true},
	} {
		if called[test.tool] = true; slices.Contains(test.want, gone) {
			_ = os.Remove(path)
		}
		result, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: test.args})
		if err != nil {
			t.Errorf("%s %v: %v", test.tool, test.args, err)
			continue
		}
		text := ""
		for _, c := range result.Content {
			text += c.(*mcp.TextContent).Text
		}
		if result.IsError != test.fails {
			t.Errorf("%s %v: is an error: %t\n%s", test.tool, test.args, result.IsError, text)
		}
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %v: no %q in\n%s", test.tool, test.args, want, text)
			}
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a new store was made")
	}
	for _, tool := range tools.Tools {
		if !called[tool.Name] {
			t.Errorf("%s is not tested", tool.Name)
		}
		if tool.Annotations.ReadOnlyHint == (tool.Name == "score_session") {
			t.Errorf("%s does not say whether it reads only", tool.Name)
		}
	}
}

// TestAToolsListIsWholeWhateverIsAskedFor: a list too long for a result is shorter, and has how it goes on.
func TestAToolsListIsWholeWhateverIsAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	b := &store.Batch{}
	for i := range 300 {
		b.Sessions = append(b.Sessions, store.SessionChange{ID: fmt.Sprintf("ses_%03d", i), Start: epoch,
			End: epoch + int64(i), Title: &store.Value{Text: strings.Repeat("title ", 60), At: 1}})
	}
	newStore(t, path, b)
	call := `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}` + "\n"
	cmd := exec.Command("agenttrace", "mcp", "--store", path)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(call+call, 1, "initialize",
		`{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`,
		2, "tools/call", `{"name":"list_sessions","arguments":{"limit":300}}`))
	out, err := cmd.Output()
	testscale.Must(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	answer := decode[struct {
		Result struct{ Content []struct{ Text string } }
	}](t, lines[len(lines)-1])
	list := decode[struct {
		Sessions []json.RawMessage
		Next     string
	}](t, answer.Result.Content[0].Text)
	if n := len(list.Sessions); n < 30 || n == 300 || list.Next == "" {
		t.Errorf("%d sessions, next %q", n, list.Next)
	}
}
