package transcripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// rollout writes records of Codex, one a second: "kind payload".
func rollout(lines ...string) string {
	var b strings.Builder
	at := 0
	for _, line := range append(
		[]string{`session_meta {"id":"c1","model_provider":"openai","base_instructions":{"text":"be brief"}}`},
		lines...) {
		kind, payload, _ := strings.Cut(line, " ")
		stamp := "2026-01-02T03:04:" + string(rune('0'+at/10)) + string(rune('0'+at%10)) + ".000Z"
		b.WriteString(`{"timestamp":"` + stamp + `","type":"` + kind + `","payload":` + payload + "}\n")
		at++
	}
	return b.String()
}

// Records of Codex that many tests have.
const (
	codexAsk    = `response_item {"type":"message","role":"user","content":[{"type":"input_text","text":"list it"}]}`
	codexAnswer = `response_item {"type":"message","role":"assistant","content":[{"type":"output_text",` +
		`"text":"a.go"}]}`
	codexSummary = `response_item {"type":"message","role":"assistant","content":[{"type":"output_text",` +
		`"text":"the user wants a list"}]}`
	codexStarted = `event_msg {"type":"task_started","turn_id":"t1","trace_id":"0af7651916cd43dd8448eb211c80319c"}`
	codexDone    = `event_msg {"type":"task_complete","turn_id":"t1","duration_ms":4200}`
	codexCall    = `response_item {"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"ls\"}",` +
		`"call_id":"k1"}`
	codexOutput = `response_item {"type":"function_call_output","call_id":"k1","output":"a.go"}`
)

// codexTokens is a record of what was spent, of which the total is unlike any other.
func codexTokens(total, input, output string) string {
	return `event_msg {"type":"token_count","info":{"total_token_usage":{"total_tokens":` + total +
		`},"last_token_usage":{"input_tokens":` + input +
		`,"cached_input_tokens":0,"output_tokens":` + output + `,"reasoning_output_tokens":0,"total_tokens":` + total +
		`}}}`
}

// rolloutRows are the messages of a rollout: a line per role with what the metadata
// says, and one per part.
func rolloutRows(t *testing.T, lines ...string) []string {
	t.Helper()
	described, problems := describe(t, transcripts.Codex.Decode, rollout(lines...))
	if len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
	return described[1:]
}

// TestCodexSummaryIsNoAnswer has the answer that a compaction is made of be the
// compaction's, with its usage, and no answer of the turn.
func TestCodexSummaryIsNoAnswer(t *testing.T) {
	digest := `"system_prompt_digest":"` + sha256Hex("be brief") + `"`
	const prefix = `Another model started to solve this problem. Here is its summary:\n`
	got := rolloutRows(t,
		codexStarted, codexAsk, codexCall, codexTokens("130", "100", "30"), codexOutput,
		codexSummary, codexTokens("240", "200", "40"),
		`compacted {"message":"`+prefix+`the user wants a list"}`,
		`event_msg {"type":"token_count","info":{"total_token_usage":{"total_tokens":370},`+
			`"last_token_usage":{"input_tokens":0,"output_tokens":0,"total_tokens":55}}}`,
		codexAnswer, codexTokens("380", "60", "7"), codexDone)
	want := []string{
		`  user {"agenttrace":{"turn_id":"t1","trace_id":"0af7651916cd43dd8448eb211c80319c"}}`,
		`    {"type":"text","text":"list it"}`,
		`  assistant {"agenttrace":{"turn_id":"t1","trace_id":"0af7651916cd43dd8448eb211c80319c",` +
			`"usage_basis":"inclusive","model_calls":1,"steps":[` +
			`{"usage":{"input":100,"output":30,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"started_at":1767323043000}]},` +
			digest +
			`,"usage":{"input":100,"output":30,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`    {"type":"step-start"}`,
		`    {"type":"tool-exec_command","toolCallId":"k1","input":{"cmd":"ls"},"state":"output-available",` +
			`"output":"a.go"}`,
		`  assistant {"compaction":true,"agenttrace":{"context_tokens_before":240,"trigger":"auto",` +
			`"usage":{"input":200,"output":40,"reasoning":0,"cache_read":0,"cache_write":0},"turn_id":"t1",` +
			`"trace_id":"0af7651916cd43dd8448eb211c80319c",` +
			`"context_tokens_after":55},` + digest +
			`,"usage":{"input":55,"output":0,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`    {"type":"data-compaction","data":{"summary":"` + prefix +
			`the user wants a list","tail_start_id":null,"auto":true,"summary_tokens":55}}`,
		`  assistant {"agenttrace":{"turn_id":"t1","trace_id":"0af7651916cd43dd8448eb211c80319c",` +
			`"usage_basis":"inclusive","duration_ms":4200,"model_calls":1,"steps":[` +
			`{"usage":{"input":60,"output":7,"reasoning":0,"cache_read":0,"cache_write":0},` +
			`"started_at":1767323050000}],"end_reason":"finish"},` + digest +
			`,"usage":{"input":60,"output":7,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`    {"type":"step-start"}`,
		`    {"type":"text","text":"a.go"}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

// TestCodexCompactTask has a compaction that the user asked for be no turn.
func TestCodexCompactTask(t *testing.T) {
	got := rolloutRows(t, codexStarted, codexAsk, codexAnswer, codexTokens("10", "8", "2"), codexDone,
		`event_msg {"type":"task_started","turn_id":"t2"}`, codexSummary, codexTokens("30", "15", "5"),
		`compacted {"message":"the user wants a list"}`,
		`event_msg {"type":"task_complete","turn_id":"t2"}`)
	answers, compactions := 0, 0
	for _, line := range got {
		switch {
		case strings.HasPrefix(line, `  assistant {"compaction":true,`) &&
			strings.Contains(line, `"usage":{"input":15,"output":5,`) && strings.Contains(line, `"trigger":"manual"`):
			compactions++
		case strings.HasPrefix(line, "  assistant"):
			answers++
		}
	}
	if answers != 1 || compactions != 1 {
		t.Errorf("%d answers and %d compactions, want one of each:\n%s", answers, compactions, strings.Join(got, "\n"))
	}
}

// TestCodexTurns has the records of a task say what a turn is, how it was set up and
// how it ended.
func TestCodexTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		want  string // in the rows
	}{
		"a tool's duration": {
			[]string{codexStarted, codexAsk, codexCall,
				`event_msg {"type":"exec_command_end","call_id":"k1","duration":{"secs":1,"nanos":250000000}}`,
				codexOutput},
			`"toolMetadata":{"agenttrace":{"duration_ms":1250}}`,
		},
		"a duration as text": {
			[]string{codexStarted, codexAsk, codexCall,
				`event_msg {"type":"mcp_tool_call_end","call_id":"k1","duration":"1.5s"}`, codexOutput},
			`"toolMetadata":{"agenttrace":{"duration_ms":1500}}`,
		},
		"a turn that failed": {
			[]string{codexStarted, codexAsk, `event_msg {"type":"error","message":"quota exceeded"}`, codexDone},
			`"duration_ms":4200,"end_reason":"error","error":"quota exceeded"`,
		},
		"a turn that failed has its error in its place": {
			[]string{codexStarted, codexAsk, `event_msg {"type":"error","message":"quota exceeded"}`, codexDone},
			`{"type":"data-error","data":{"text":"quota exceeded"}}`,
		},
		"a turn that was stopped": {
			[]string{codexStarted, codexAsk, codexAnswer,
				`event_msg {"type":"turn_aborted","reason":"interrupted","duration_ms":7}`},
			`"duration_ms":7,"model_calls":1,"steps":[{"started_at":1767323043000}],"end_reason":"abort"`,
		},
		"a plan that no other record has": {
			[]string{codexStarted, codexAsk,
				`event_msg {"type":"item_completed","turn_id":"t1","item":{"type":"Plan","id":"p","text":"1. look"}}`},
			`{"type":"text","text":"1. look"}`,
		},
		"effort": {
			[]string{codexStarted, `turn_context {"model":"gpt-z","effort":"high"}`, codexAsk, codexAnswer},
			`"model":{"provider_id":"openai","model_id":"gpt-z","variant":"high"}`,
		},
	} {
		if got := strings.Join(rolloutRows(t, tt.lines...), "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("%s: no %s in\n%s", name, tt.want, got)
		}
	}
}

// TestCodexSettings reads the policies as the mode, in both spellings, and the title
// that the user gave.
func TestCodexSettings(t *testing.T) {
	for sandbox, want := range map[string]string{
		`{"type":"danger-full-access"}`: "never, danger-full-access", `{"mode":"read-only"}`: "never, read-only",
		`"workspace-write"`: "never, workspace-write",
	} {
		text := rollout(`turn_context {"approval_policy":"never","sandbox_policy":`+sandbox+`}`, codexAsk,
			`event_msg {"type":"thread_name_updated","thread_name":"Lists"}`)
		for s, err := range transcripts.Codex.Decode(strings.NewReader(text), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if s.Session.Mode == nil || *s.Session.Mode != want || s.Session.Title != "Lists" {
				t.Errorf("mode %v, title %q, want %q", s.Session.Mode, s.Session.Title, want)
			}
			if len(s.Blobs) != 1 || s.Blobs[0].Body != "be brief" {
				t.Errorf("system prompts %v", s.Blobs)
			}
		}
	}
}

// TestCodexRolledBack hides the turns that the user took back.
func TestCodexRolledBack(t *testing.T) {
	again := strings.Replace(codexAsk, "list it", "no, count it", 1)
	text := rollout(codexStarted, codexAsk, codexAnswer, codexDone, codexStarted, codexAsk, codexAnswer, codexDone,
		`event_msg {"type":"thread_rolled_back","num_turns":1}`, codexStarted, again, codexAnswer, codexDone)
	for s, err := range transcripts.Codex.Decode(strings.NewReader(text), nil) {
		if err != nil {
			t.Fatal(err)
		}
		var hidden []bool
		for _, m := range s.Messages {
			hidden = append(hidden, m.Message.HiddenAt != nil)
		}
		if d := cmp.Diff([]bool{false, false, true, true, false, false}, hidden); d != "" {
			t.Errorf("hidden (-want +got):\n%s", d)
		}
	}
}

// TestCodexTotalsAreInputAndOutput has tokens that a server says were cached be part of
// the input, also where it says that they were more than that.
func TestCodexTotalsAreInputAndOutput(t *testing.T) {
	count := `event_msg {"type":"token_count","info":{"total_token_usage":{"total_tokens":%s},` +
		`"last_token_usage":{"input_tokens":375,"cached_input_tokens":%s,"output_tokens":40,` +
		`"reasoning_output_tokens":0}}}`
	text := rollout(codexAsk, codexCall, fmt.Sprintf(count, "1", "800"), codexOutput, codexAnswer,
		fmt.Sprintf(count, "2", "300"))
	for s, err := range transcripts.Codex.Decode(strings.NewReader(text), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if u, _ := session.UsageOf(s.Messages[1].Message.MetadataJSON); u != (session.Usage{Input: 75, Output: 80,
			CacheRead: 675}) {
			t.Errorf("usage %+v", u)
		}
	}
}
