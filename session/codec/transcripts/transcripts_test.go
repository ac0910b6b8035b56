package transcripts_test

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

const claudeFile = `{"type":"summary","summary":"Fix the parser","leafUuid":"u9"}
{"type":"file-history-snapshot","messageId":"m","snapshot":{}}
{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/w","sessionId":"s1","version":"2.0.1","gitBranch":"main","type":"user","message":{"role":"user","content":"fix it"},"uuid":"u1","timestamp":"2026-01-02T03:04:05.000Z"}
{"parentUuid":"u1","isSidechain":false,"sessionId":"s1","type":"assistant","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"}],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":100,"cache_creation_input_tokens":5}},"uuid":"u2","timestamp":"2026-01-02T03:04:06.000Z"}
{"parentUuid":"u2","isSidechain":false,"sessionId":"s1","type":"assistant","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}},{"type":"tool_use","id":"t2","name":"Read","input":{"file_path":"a"}}],"stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":20,"cache_read_input_tokens":100,"cache_creation_input_tokens":5}},"uuid":"u3","timestamp":"2026-01-02T03:04:07.000Z"}
{"parentUuid":"u3","isSidechain":false,"sessionId":"s1","type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a.go"}]},{"type":"tool_result","tool_use_id":"t2","content":"no such file","is_error":true}]},"uuid":"u4","timestamp":"2026-01-02T03:04:08.000Z"}
{"parentUuid":"u3","isSidechain":true,"agentId":"sub1","sessionId":"s1","type":"user","message":{"role":"user","content":"look around"},"uuid":"v1","timestamp":"2026-01-02T03:04:08.100Z"}
{"parentUuid":"v1","isSidechain":true,"agentId":"sub1","sessionId":"s1","type":"assistant","message":{"id":"n1","model":"claude-y","content":[{"type":"text","text":"looked"}],"usage":{"input_tokens":1,"output_tokens":2}},"uuid":"v2","timestamp":"2026-01-02T03:04:08.200Z"}
not json
{"parentUuid":"u4","isSidechain":false,"sessionId":"s1","type":"assistant","message":{"id":"m2","model":"claude-x","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}},"uuid":"u5","timestamp":"2026-01-02T03:04:09.000Z"}
{"type":"system","subtype":"compact_boundary","sessionId":"s1","uuid":"u6","parentUuid":null,"timestamp":"2026-01-02T03:04:10.000Z","compactMetadata":{"trigger":"manual","preTokens":99}}
{"sessionId":"s1","type":"user","isCompactSummary":true,"message":{"role":"user","content":"so far: fixed"},"uuid":"u7","timestamp":"2026-01-02T03:04:10.000Z"}
{"sessionId":"s1","type":"user","message":{"role":"user","content":[{"type":"text","text":"thanks"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},"uuid":"u8","timestamp":"2026-01-02T03:04:11.000Z"}
{"sessionId":"s1","type":"assistant","message":{"id":"m3","model":"claude-x","content":[{"type":"text","text":"welcome"}],"usage":{"input_tokens":7,"output_tokens":8}},"uuid":"u9","timestamp":"2026-01-02T03:04:12.000Z"}
`

const codexFile = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"c1","cwd":"/w","cli_version":"0.9","model_provider":"openai","source":{"subagent":{"thread_spawn":{"parent_thread_id":"c0"}}}}}
{"timestamp":"2026-01-02T03:04:05.100Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x</environment_context>"}]}}
{"timestamp":"2026-01-02T03:04:05.200Z","type":"turn_context","payload":{"model":"gpt-z"}}
{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list it\nplease"}]}}
{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"user_message","message":"list it\nplease"}}
{"timestamp":"2026-01-02T03:04:07.000Z","type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}}
{"timestamp":"2026-01-02T03:04:07.100Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"k1"}}
{"timestamp":"2026-01-02T03:04:07.200Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100},"last_token_usage":{"input_tokens":100,"cached_input_tokens":40,"output_tokens":20,"reasoning_output_tokens":5}}}}
{"timestamp":"2026-01-02T03:04:07.300Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100},"last_token_usage":{"input_tokens":100,"cached_input_tokens":40,"output_tokens":20,"reasoning_output_tokens":5}}}}
{"timestamp":"2026-01-02T03:04:08.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"k1","output":"{\"output\":\"a.go\",\"metadata\":{\"exit_code\":0}}"}}
{"timestamp":"2026-01-02T03:04:08.100Z","type":"response_item","payload":{"type":"custom_tool_call","name":"apply_patch","input":"*** Begin","call_id":"k2"}}
{"timestamp":"2026-01-02T03:04:08.200Z","type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"k2","output":"{\"output\":\"bad patch\",\"metadata\":{\"exit_code\":1}}"}}
{"timestamp":"2026-01-02T03:04:08.300Z","type":"response_item","payload":{"type":"function_call_output","call_id":"gone","output":"x"}}
{"timestamp":"2026-01-02T03:04:09.000Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a.go"}]}}
{"timestamp":"2026-01-02T03:04:09.100Z","type":"event_msg","payload":{"type":"turn_aborted"}}
{"timestamp":"2026-01-02T03:04:10.000Z","type":"compacted","payload":{"message":"so far"}}
`

type decoder func(io.Reader, func(codec.Problem)) iter.Seq2[*codec.Session, error]

// tell is the sessions as lines: what a reader would see of each row.
func describe(t *testing.T, decode decoder, text string) (described, problems []string) {
	t.Helper()
	for s, err := range decode(strings.NewReader(text), func(p codec.Problem) {
		problems = append(problems, p.String())
	}) {
		if err != nil {
			return append(described, "error: "+err.Error()), problems
		}
		for _, v := range session.Check(s.Transcript) {
			t.Error(v)
		}
		row := &s.Session
		described = append(described, fmt.Sprintf("%s %q %s %d tokens, %d ms", row.ID, row.Title, row.Agent,
			row.TotalTokens,
			row.UpdatedAt-row.CreatedAt))
		if row.ParentID != nil {
			described = append(described, "child of "+*row.ParentID)
		}
		for _, m := range s.Messages {
			described = append(described, fmt.Sprintf("  %s %s", m.Message.Role, m.Message.MetadataJSON))
			for _, p := range m.Parts {
				described = append(described, "    "+p.DataJSON)
			}
		}
	}
	return described, problems
}

func TestClaude(t *testing.T) {
	described, problems := describe(t, transcripts.Claude.Decode, claudeFile)
	if d := cmp.Diff([]string{
		`s1 "Fix the parser" claude-code 15 tokens, 7000 ms`,
		`  user {"agenttrace":{"source_id":"u1"}}`,
		`    {"type":"text","text":"fix it"}`,
		`  assistant {"agenttrace":{"usage_basis":"exclusive","stop_reason":"end_turn","model_calls":2,"steps":[` +
			`{"response_id":"m1","usage":{"input":10,"output":20,"reasoning":0,"cache_read":100,"cache_write":5},` +
			`"stop_reason":"tool_use","started_at":1767323046000},` +
			`{"response_id":"m2","usage":{"input":3,"output":4,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"stop_reason":"end_turn","started_at":1767323049000}],` +
			`"end_reason":"finish"},"model":{"provider_id":"anthropic","model_id":"claude-x"},"usage":{"input":13,` +
			`"output":24,"reasoning":0,"cache_read":100,"cache_write":5}}`,
		`    {"type":"step-start"}`,
		`    {"type":"reasoning","text":"hm"}`,
		`    {"type":"tool-Bash","toolCallId":"t1","input":{"command":"ls"},"state":"output-available",` +
			`"output":"a.go"}`,
		`    {"type":"tool-Read","toolCallId":"t2","input":{"file_path":"a"},"state":"output-error",` +
			`"errorText":"no such file"}`,
		`    {"type":"step-start"}`,
		`    {"type":"text","text":"done"}`,
		`  assistant {"compaction":true,"agenttrace":{"context_tokens_before":99,"trigger":"manual"}}`,
		`    {"type":"data-compaction","data":{"summary":"so far: fixed","tail_start_id":null,"auto":false,` +
			`"summary_tokens":0}}`,
		`  user {"agenttrace":{"source_id":"u8"}}`,
		`    {"type":"text","text":"thanks"}`,
		`    {"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA=="}`,
		`  assistant {"agenttrace":{"usage_basis":"exclusive","model_calls":1,"steps":[{"response_id":"m3",` +
			`"usage":{"input":7,"output":8,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"started_at":1767323052000}]},"model":{"provider_id":"anthropic","model_id":"claude-x"},` +
			`"usage":{"input":7,"output":8,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`    {"type":"step-start"}`,
		`    {"type":"text","text":"welcome"}`,
		`s1-sub1 "look around" claude-code 3 tokens, 100 ms`,
		`child of s1`,
		`  user {"agenttrace":{"source_id":"v1"}}`,
		`    {"type":"text","text":"look around"}`,
		`  assistant {"agenttrace":{"usage_basis":"exclusive","model_calls":1,"steps":[{"response_id":"n1",` +
			`"usage":{"input":1,"output":2,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"started_at":1767323048200}]},"model":{"provider_id":"anthropic","model_id":"claude-y"},` +
			`"usage":{"input":1,"output":2,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`    {"type":"step-start"}`,
		`    {"type":"text","text":"looked"}`,
	}, described); d != "" {
		t.Errorf("sessions (-want +got):\n%s", d)
	}
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "line 9: is not a record: left out") {
		t.Errorf("problems %q", problems)
	}
}

func TestClaudeTitles(t *testing.T) {
	ai, custom := `{"type":"ai-title","sessionId":"s1","aiTitle":"guessed"}`+"\n",
		`{"type":"custom-title","sessionId":"s1","customTitle":"given"}`+"\n"
	_, bare, _ := strings.Cut(claudeFile, "\n") // without the summary
	for text, want := range map[string]string{bare: "fix it", ai + bare: "guessed", ai + claudeFile: "Fix the parser",
		custom + claudeFile + ai: "given"} {
		described, _ := describe(t, transcripts.Claude.Decode, text)
		if !strings.HasPrefix(described[0], fmt.Sprintf("s1 %q ", want)) {
			t.Errorf("%s, want title %q", described[0], want)
		}
	}
}

func TestCodex(t *testing.T) {
	described, problems := describe(t, transcripts.Codex.Decode, codexFile)
	if d := cmp.Diff([]string{
		`c1 "list it" codex 0 tokens, 5000 ms`,
		`child of c0`,
		`  system {}`,
		`    {"type":"text","text":"<environment_context>x</environment_context>"}`,
		`  user {}`,
		`    {"type":"text","text":"list it\nplease"}`,
		`  assistant {"agenttrace":{"usage_basis":"inclusive","model_calls":3,"steps":[` +
			`{"usage":{"input":60,"output":15,"reasoning":5,"cache_read":40,"cache_write":0},` +
			`"started_at":1767323047000},` +
			`{"started_at":1767323048100},{"started_at":1767323049000}],"end_reason":"abort"},` +
			`"model":{"provider_id":"openai","model_id":"gpt-z"},"usage":{"input":60,"output":15,"reasoning":5,` +
			`"cache_read":40,"cache_write":0}}`,
		`    {"type":"step-start"}`,
		`    {"type":"reasoning","text":"hm"}`,
		`    {"type":"tool-shell","toolCallId":"k1","input":{"command":["ls"]},"state":"output-available",` +
			`"output":"a.go"}`,
		`    {"type":"step-start"}`,
		`    {"type":"tool-apply_patch","toolCallId":"k2","input":"*** Begin","state":"output-error",` +
			`"errorText":"bad patch"}`,
		`    {"type":"step-start"}`,
		`    {"type":"text","text":"a.go"}`,
		`  assistant {"compaction":true,"agenttrace":{"trigger":"auto"}}`,
		`    {"type":"data-compaction","data":{"summary":"so far","tail_start_id":null,"auto":true,` +
			`"summary_tokens":0}}`,
	}, described); d != "" {
		t.Errorf("session (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"line 13: result of call gone, which is not pending: left out"}, problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// TestGrowing has the rows of a file that has grown go on where those of the file
// before ended.
func TestGrowing(t *testing.T) {
	for name, tt := range map[string]struct {
		decode decoder
		text   string
	}{"claude": {transcripts.Claude.Decode, claudeFile}, "codex": {transcripts.Codex.Decode, codexFile}} {
		all := strings.SplitAfter(tt.text, "\n")
		var before []string // ids of the first session's parts
		for n := 4; n <= len(all); n++ {
			var now []string
			for s, err := range tt.decode(strings.NewReader(strings.Join(all[:n], "")), nil) {
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range session.Check(s.Transcript) {
					t.Errorf("%s, %d lines: %s", name, n, v)
				}
				for _, m := range s.Messages {
					for _, p := range m.Parts {
						now = append(now, p.ID)
					}
				}
				break
			}
			if len(now) < len(before) || !slices.Equal(before, now[:len(before)]) {
				t.Errorf("%s, %d lines: parts %q, before %q", name, n, now, before)
			}
			before = now
		}
	}
}

func TestNothing(t *testing.T) {
	for name, decode := range map[string]decoder{"claude": transcripts.Claude.Decode, "codex": transcripts.Codex.Decode} {
		for _, text := range []string{"", "{}\n", "[1]\n", "\xff\n"} {
			described, _ := describe(t, decode, text)
			if len(described) != 1 || !strings.HasPrefix(described[0], "error: read ") {
				t.Errorf("%s of %q: %q", name, text, described)
			}
		}
	}
}

// FuzzDecode has records in any order make valid sessions, and the same each time.
func FuzzDecode(f *testing.F) {
	f.Add(branch("u1 - user one", "a1 u1 say 1", "u2 a1 user two", "a2 u2 say 2", "u4 a1 user TWO"))
	f.Add(claudeFile)
	f.Add(codexFile)
	f.Fuzz(func(t *testing.T, in string) {
		for _, decode := range []decoder{transcripts.Claude.Decode, transcripts.Codex.Decode} {
			read := func(report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
				return decode(strings.NewReader(in), report)
			}
			first, _, _ := valid(t, read)
			again, _, _ := valid(t, read)
			if a, b := text(t, first), text(t, again); a != b {
				t.Errorf("%s\nthe second time\n%s", a, b)
			}
		}
	})
}

// TestCodexNamedByFile reads a rollout of which the first record is damaged as the
// session that the name of its file says.
func TestCodexNamedByFile(t *testing.T) {
	const id = "0196a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
	whole := strings.Replace(codexFile, `"id":"c1"`, `"id":"`+id+`"`, 1)
	_, rest, _ := strings.Cut(whole, "\n")
	read := func(name, text string) (ids, problems []string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for s, err := range transcripts.Codex.DecodeFile(t.Context(), path, nil,
			func(p codec.Problem) { problems = append(problems, p.String()) }) {
			if err != nil {
				return append(ids, err.Error()), problems
			}
			ids = append(ids, s.Session.ID)
			for i := range s.Messages {
				ids = append(ids, s.Messages[i].Message.ID)
			}
		}
		return ids, problems
	}
	const name = "rollout-2026-03-01T10-00-00-" + id + ".jsonl"
	want, _ := read(name, whole)
	got, problems := read(name, "{\n"+rest)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ids (-whole +damaged):\n%s", d)
	}
	if !slices.Contains(problems, "line 2: precedes the record that names the session: it is named by the file") {
		t.Errorf("problems %q", problems)
	}
	if got, _ := read("rollout-x.jsonl", rest); !slices.Equal(got,
		[]string{"read rollout: no record session_meta in it, which names the session"}) {
		t.Errorf("a file of another name: %q", got)
	}
}

// TestClaudeTitledLater has a transcript that grew by a title alone be later than before.
func TestClaudeTitledLater(t *testing.T) {
	read := func(text string) session.Session {
		t.Helper()
		for s, err := range transcripts.Claude.Decode(strings.NewReader(text), nil) {
			if err != nil {
				t.Fatal(err)
			}
			return s.Session
		}
		t.Fatal("no session")
		return session.Session{}
	}
	at := int64(0)
	text := `{"sessionId":"s1","type":"user","message":{"role":"user","content":"so"},"uuid":"u1",` +
		`"timestamp":"2026-01-02T03:04:05.000Z"}` + "\n"
	for _, grown := range []struct{ line, title string }{
		{"", "so"},
		{`{"type":"ai-title","sessionId":"s1","aiTitle":"Guessed"}`, "Guessed"},
		{`{"type":"custom-title","sessionId":"s1","customTitle":"Given"}`, "Given"},
		{`{"type":"custom-title","sessionId":"s1","customTitle":"Another"}`, "Another"},
	} {
		text += grown.line + "\n"
		row := read(text)
		if row.Title != grown.title || row.UpdatedAt <= at {
			t.Errorf("%q at %d, want %q after %d", row.Title, row.UpdatedAt, grown.title, at)
		}
		at = row.UpdatedAt
	}
	if row := read(text + `{"type":"custom-title","sessionId":"s1","customTitle":"Another"}`); row.UpdatedAt != at {
		t.Errorf("the same title again makes it later: %d, want %d", row.UpdatedAt, at)
	}
}
