package session_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
)

func TestWordsOfTheUser(t *testing.T) {
	for _, tt := range []struct {
		text, own string
		around    []string
	}{
		{"fix it", "fix it", nil},
		{"  <div>fix it</div>\n", "  <div>fix it</div>\n", nil},
		{"For context: I use Go.", "For context: I use Go.", nil},
		{"what is <system-reminder>?", "what is <system-reminder>?", nil},
		{"<task>do it</task>", "<task>do it</task>", nil},
		{"<current_datetime>t</current_datetime>\n\nfix it\nnow", "fix it\nnow",
			[]string{"<current_datetime>t</current_datetime>"}},
		{"fix it\n<system-reminder>\na\n</system-reminder>\n<environment_details>b</environment_details>", "fix it",
			[]string{"<system-reminder>\na\n</system-reminder>", "<environment_details>b</environment_details>"}},
		{`<user_input mode="act">fix <b>it</b></user_input>`, "fix <b>it</b>", []string{`<user_input mode="act">`}},
		{"<timestamp>t</timestamp>\n<user_query>\nfix it\n</user_query>", "fix it", []string{"<timestamp>t</timestamp>"}},
		{"<user_query>fix it</user_query>", "fix it", nil},
		{"see <user_query>fix it</user_query>", "see <user_query>fix it</user_query>", nil},
		{"# Context from my IDE setup:\n\n## Active file: a.go\n\n## My request for Codex:\nfix it\n", "fix it",
			[]string{"# Context from my IDE setup:\n\n## Active file: a.go\n"}},
		{"<permissions instructions>a</permissions instructions>", "",
			[]string{"<permissions instructions>a</permissions instructions>"}},
		{"see @a\n--- Content from referenced files ---\nContent from @a:\nx\n--- End of content ---", "see @a",
			[]string{"--- Content from referenced files ---\nContent from @a:\nx\n--- End of content ---"}},
		{"For context:", "", []string{"For context:"}},
		{"For context:\n[cook] said: hot", "", []string{"For context:\n[cook] said: hot"}},
		{"", "", nil}, {"<>", "<>", nil}, {"<a", "<a", nil}, {"</user_query><user_query>", "</user_query><user_query>", nil},
	} {
		own, around := session.Words(tt.text)
		if d := cmp.Diff([]any{tt.own, tt.around}, []any{own, around}); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, d)
		}
	}
}
