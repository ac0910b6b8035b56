package transcripts_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// branch writes records of Claude Code, one a second: "uuid parent kind text".
func branch(lines ...string) string {
	var b strings.Builder
	for i, line := range lines {
		f := strings.SplitN(line, " ", 4)
		parent := `"` + f[1] + `"`
		if f[1] == "-" {
			parent = "null"
		}
		rest := map[string]string{
			"user": `"type":"user","message":{"role":"user","content":%q}`,
			"meta": `"type":"user","isMeta":true,"message":{"role":"user","content":%q}`,
			"say":  `"type":"assistant","message":{"id":"m` + f[0] + `","content":[{"type":"text","text":%q}]}`,
			"call": `"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":%q,` +
				`"name":"Read","input":{}}]}`,
			"result": `"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,` +
				`"content":"x"}]}`,
			"system":     `"type":"system","subtype":"turn_duration","content":%q`,
			"attachment": `"type":"attachment","attachment":{"type":%q}`,
			"boundary":   `"type":"system","subtype":"compact_boundary","logicalParentUuid":%q`,
		}[f[2]]
		fmt.Fprintf(&b,
			`{"parentUuid":%s,"isSidechain":false,"sessionId":"s1","uuid":%q,"timestamp":"2026-01-02T03:04:%02d.000Z",`+
				rest+
				"}\n", parent, f[0], i, f[3])
	}
	return b.String()
}

func TestClaudeBranches(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		// want are the first texts of the messages; with the second at which it was
		// hidden, where it was.
		want []string
	}{
		"gone back": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "a2 u2 say 2", "u3 a2 user three",
				"u4 a1 user TWO",
				"a4 u4 say 4"),
			[]string{"one", "1", "two 5", "2 5", "three 5", "TWO", "4"},
		},
		"twice": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "a2 u2 say 2", "u3 a1 user TWO", "u4 a1 user 2",
				"a4 u4 say 4"),
			[]string{"one", "1", "two 4", "2 4", "TWO 5", "2", "4"},
		},
		"within what was left": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "a2 u2 say 2", "u3 a2 user three",
				"u4 a2 user THREE",
				"u5 a1 user TWO"),
			[]string{"one", "1", "two 6", "2 6", "three 6", "THREE 6", "TWO"},
		},
		"other records between": {
			branch("u1 - user one", "a1 u1 say 1", "s1 a1 system took", "u2 s1 user two", "t2 u2 attachment file",
				"a2 t2 say 2",
				"n1 s1 meta caveat", "u3 n1 user TWO"),
			[]string{"one", "1", "two 7", "2 7", "caveat", "TWO"},
		},
		"calls beside each other": {
			branch("u1 - user one", "a1 u1 call t1", "a2 a1 call t2", "r1 a1 result t1", "r2 a2 result t2",
				"a3 r2 say 3",
				"u2 a3 user two"),
			[]string{"one", "3", "two"},
		},
		"the last result is of the first call": {
			branch("u1 - user one", "a1 u1 call t1", "a2 a1 call t2", "r2 a2 result t2", "r1 a1 result t1"),
			[]string{"one", ""},
		},
		"interrupted": {
			branch("u1 - user one", "a1 u1 call t1", "r1 a1 result t1", "i1 a1 user [Request interrupted by user for "+
				"tool use]",
				"u2 a1 user two"),
			[]string{"one", "", "[Request interrupted by user for tool use]", "two"},
		},
		"compacted": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "u3 a1 user TWO", "a3 u3 say 3",
				"b1 - boundary a3",
				"u4 b1 user four"),
			[]string{"one", "1", "two 3", "TWO", "3", "", "four"},
		},
		"what a compaction followed from is not there": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "u3 a1 user TWO", "b1 - boundary zz",
				"u4 b1 user four"),
			[]string{"one", "1", "two", "TWO", "", "four"},
		},
		"begun anew": {
			branch("u1 - user one", "a1 u1 say 1", "u2 - user two", "a2 u2 say 2"),
			[]string{"one", "1", "two", "2"},
		},
		"returned": {
			branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "u3 a1 user TWO", "a2 u2 say 2"),
			[]string{"one", "1", "two", "TWO", "2"},
		},
		"a circle": {
			branch("u1 a1 user one", "a1 u1 say 1", "s1 s2 system x", "s2 s1 system x", "u2 s1 user two",
				"u3 s1 user three"),
			[]string{"one", "1", "two", "three"},
		},
	} {
		var got []string
		all, problems, err := valid(t, func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
			return transcripts.Claude.Decode(strings.NewReader(tt.file), report)
		})
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %q", name, err, problems)
			continue
		}
		start := all[0].Session.CreatedAt
		for _, m := range all[0].Messages {
			text := ""
			for _, p := range m.Parts {
				if _, after, ok := strings.Cut(p.DataJSON, `"text":"`); ok && text == "" {
					text = strings.TrimSuffix(after, `"}`)
				}
			}
			if m.Message.HiddenAt != nil {
				text += fmt.Sprint(" ", (*m.Message.HiddenAt-start)/1000)
			}
			got = append(got, text)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestClaudeResumedConversation: what a file continues and does not have is noted, once.
func TestClaudeResumedConversation(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want int
	}{
		"whole":   {branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "a2 u2 say 2"), 0},
		"resumed": {branch("u3 a2 user three", "a3 u3 say 3", "u4 a3 user four", "a4 u4 say 4"), 1},
		"after a hook": {branch("h1 - attachment hook", "h2 h1 attachment hook", "u1 h2 user one", "a1 u1 say 1"),
			0},
		"resumed by a hook": {branch("h1 a9 attachment hook", "u1 h1 user one", "a1 u1 say 1"), 1},
		"in a circle":       {branch("u1 a1 user one", "a1 u1 say 1"), 0},
	} {
		n := 0
		for s, err := range transcripts.Claude.Decode(strings.NewReader(tt.file), nil) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, m := range s.Messages {
				n += strings.Count(m.Message.MetadataJSON, `"history":{"messages":0,"turns":0}`)
			}
		}
		if n != tt.want {
			t.Errorf("%s: %d messages continue what is not there, want %d", name, n, tt.want)
		}
	}
}
