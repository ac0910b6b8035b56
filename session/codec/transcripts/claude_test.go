package transcripts_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// claudeRecords writes records of Claude Code, one a second, of what each has beside
// what all have.
func claudeRecords(records ...string) string {
	var b strings.Builder
	for i, r := range records {
		fmt.Fprintf(&b, `{"sessionId":"s1","isSidechain":false,"uuid":"u%d",`+
			`"timestamp":"2026-01-02T03:04:%02d.000Z",%s}`+
			"\n", i, i, r)
	}
	return b.String()
}

func claudeUser(text string) string {
	return fmt.Sprintf(`"type":"user","promptId":"p1","message":{"role":"user","content":%q}`, text)
}

func claudeSays(id, text string) string {
	return fmt.Sprintf(
		`"type":"assistant","requestId":"req_%s","message":{"id":%q,"model":"claude-x","content":[{"type":"text",`+
			`"text":%q}],"stop_reason":"end_turn"}`, id, id, text)
}

// claudeSession reads the one session of records.
func claudeSession(t *testing.T, records ...string) *codec.Session {
	t.Helper()
	for s, err := range transcripts.Claude.Decode(strings.NewReader(claudeRecords(records...)), nil) {
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range session.Check(s.Transcript) {
			t.Error(v)
		}
		return s
	}
	t.Fatal("no session")
	return nil
}

// claudeTexts are the roles of the messages with their first texts.
func claudeTexts(s *codec.Session) []string {
	var all []string
	for _, m := range s.Messages {
		text := ""
		for _, p := range m.Parts {
			if p.Type == session.TypeCompaction {
				c, _ := session.ParseCompaction(p.DataJSON)
				text = "compaction: " + c.Summary
			} else if _, rest, ok := strings.Cut(p.DataJSON, `"text":"`); ok && text == "" {
				text, _, _ = strings.Cut(rest, `"`)
			}
		}
		all = append(all, m.Message.Role+": "+text)
	}
	return all
}

// TestClaudeCommandsAreNoTurns has what the program records in the user's name be
// system messages, and a command that the model answers a turn.
func TestClaudeCommandsAreNoTurns(t *testing.T) {
	meta := func(text string) string {
		return strings.Replace(claudeUser(text), `"type"`, `"isMeta":true,"type"`, 1)
	}
	for name, tt := range map[string]struct{ records, want []string }{
		"compact": {
			[]string{
				claudeUser("one"), claudeSays("m1", "1"),
				`"type":"system","subtype":"compact_boundary","compactMetadata":{"trigger":"manual","preTokens":900,` +
					`"postTokens":70,"durationMs":4000}`,
				`"type":"user","isCompactSummary":true,"message":{"role":"user","content":"so far"}`,
				meta("<local-command-caveat>Caveat: …</local-command-caveat>"),
				claudeUser("<command-name>/compact</command-name>\n<command-args></command-args>"),
				claudeUser("<local-command-stdout>Compacted</local-command-stdout>"), claudeUser("two"),
				claudeSays("m2", "2"),
			},
			[]string{
				"user: one", "assistant: 1", "assistant: compaction: so far",
				"system: <local-command-caveat>Caveat: …</local-command-caveat>",
				`system: <command-name>/compact</command-name>\n<command-args></command-args>`,
				"system: <local-command-stdout>Compacted</local-command-stdout>",
				"user: two", "assistant: 2",
			},
		},
		"a command of the user's own": {
			[]string{claudeUser(
				"<command-message>review is running</command-message>\n<command-name>/review</command-name>\n" +
					"<command-args>the parser</command-args>"),
				meta("Review what is named."), claudeSays("m1", "fine")},
			[]string{"user: /review the parser", "system: Review what is named.", "assistant: fine"},
		},
		"a command at the end": {
			[]string{claudeUser("one"), claudeSays("m1", "1"), claudeUser("<command-name>/model</command-name>")},
			[]string{"user: one", "assistant: 1", "system: <command-name>/model</command-name>"},
		},
		"a shell command": {
			[]string{claudeUser("<bash-input>ls</bash-input>"),
				claudeUser("<bash-stdout>a.go</bash-stdout><bash-stderr></bash-stderr>"), claudeUser("one"),
				claudeSays("m1", "1")},
			[]string{"system: <bash-input>ls</bash-input>",
				"system: <bash-stdout>a.go</bash-stdout><bash-stderr></bash-stderr>",
				"user: one", "assistant: 1"},
		},
		"a command that is a system record": {
			[]string{`"type":"system","subtype":"local_command","content":"<command-name>/cost</command-name>"`,
				claudeUser("one"), claudeSays("m1", "1")},
			[]string{"system: <command-name>/cost</command-name>", "user: one", "assistant: 1"},
		},
		"a notification": {
			[]string{claudeUser("one"), claudeSays("m1", "1"),
				`"origin":{"kind":"task-notification"},` + claudeUser("the task is done"), claudeSays("m2", "2")},
			[]string{"user: one", "assistant: 1", "system: the task is done", "assistant: 2"},
		},
		"an interruption": {
			[]string{claudeUser("one"), claudeSays("m1", "1"), claudeUser("[Request interrupted by user]"),
				claudeUser("two")},
			[]string{"user: one", "assistant: 1", "system: [Request interrupted by user]", "user: two"},
		},
		"typed while the agent works": {
			[]string{claudeUser("one"), claudeSays("m1", "1"),
				`"type":"attachment","attachment":{"type":"queued_command","prompt":"and quickly"}`,
				claudeSays("m2", "2")},
			[]string{"user: one", "assistant: 1", "user: and quickly", "assistant: 2"},
		},
		"two compactions, one without a summary": {
			[]string{
				claudeUser("one"), claudeSays("m1", "1"),
				`"type":"system","subtype":"compact_boundary","compactMetadata":{"trigger":"auto","preTokens":900}`,
				claudeSays("m2", "2"),
				`"type":"system","subtype":"compact_boundary","compactMetadata":{"trigger":"auto","preTokens":900}`,
				`"type":"user","isCompactSummary":true,"message":{"role":"user","content":"so far"}`,
			},
			[]string{"user: one", "assistant: 1", "assistant: compaction: ", "assistant: 2",
				"assistant: compaction: so far"},
		},
		"text that looks like JSON": {
			[]string{claudeUser(`{"type":"summary"}`), claudeSays("m1", "1")},
			[]string{`user: {\`, "assistant: 1"},
		},
	} {
		if d := cmp.Diff(tt.want, claudeTexts(claudeSession(t, tt.records...))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestClaudeFacts reads what a transcript says beside the conversation.
func TestClaudeFacts(t *testing.T) {
	s := claudeSession(t,
		`"type":"attachment","attachment":{"type":"prompt_snapshot","systemPrompt":["be brief","be kind"]}`,
		`"type":"api-request-shape","tools":[{"name":"Bash"}]`,
		`"type":"permission-mode","permissionMode":"plan"`,
		claudeUser("run it"),
		`"type":"assistant","requestId":"req_1","effort":"high","costUSD":0.25,"message":{"id":"m1",`+
			`"model":"claude-x","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}},{"type":"tool_use",`+
			`"id":"t2","name":"Bash","input":{}}],"stop_reason":"tool_use"}`,
		`"type":"user","toolUseResult":{"durationMs":12},"message":{"role":"user","content":[{"type":"tool_result",`+
			`"tool_use_id":"t1","content":"ok"}]}`,
		`"type":"user","toolUseResult":"User rejected tool use","message":{"role":"user",`+
			`"content":[{"type":"tool_result","tool_use_id":"t2","is_error":true,`+
			`"content":"The user doesn't want to proceed with this tool use. STOP."}]}`,
		claudeSays("m2", "done"),
		`"type":"system","subtype":"turn_duration","durationMs":3500`,
		`"type":"cost-state","totalCostUSD":0.5`)
	if s.Session.Mode == nil || *s.Session.Mode != "plan" || s.Session.CostUSD != 0.5 {
		t.Errorf("mode %v, cost %v", s.Session.Mode, s.Session.CostUSD)
	}
	if len(s.Blobs) != 2 || s.Blobs[0].Body != "be brief\n\nbe kind" || s.Blobs[1].Body != `[{"name":"Bash"}]` {
		t.Errorf("blobs %v", s.Blobs)
	}
	answer := s.Messages[1]
	for _, want := range []string{
		`"turn_id":"p1"`, `"duration_ms":3500`, `"cost_usd":0.25`, `"request_id":"req_1"`, `"response_id":"m2"`,
		`"stop_reason":"end_turn"`, `"end_reason":"finish"`,
		`"system_prompt_digest":"` + sha256Hex("be brief\n\nbe kind") + `"`,
		`"tool_catalog_digest":"` + sha256Hex(`[{"name":"Bash"}]`) + `"`,
	} {
		if !strings.Contains(answer.Message.MetadataJSON, want) {
			t.Errorf("no %s in %s", want, answer.Message.MetadataJSON)
		}
	}
	if got := answer.Parts[1].DataJSON; !strings.Contains(got, `"toolMetadata":{"agenttrace":{"duration_ms":12}}`) {
		t.Errorf("call %s", got)
	}
	if got := answer.Parts[2].DataJSON; !strings.Contains(got, `"denied":true`) {
		t.Errorf("refused call %s", got)
	}
	if len(s.Decisions) != 1 || s.Decisions[0].Outcome != "denied" || s.Decisions[0].ToolID != "Bash" ||
		s.Decisions[0].PartID != answer.Parts[2].ID {
		t.Errorf("decisions %+v", s.Decisions)
	}
}

// TestClaudeErrorIsTheTurnsError has an answer that the program wrote for an error of
// the model be the error of the turn.
func TestClaudeErrorIsTheTurnsError(t *testing.T) {
	s := claudeSession(t, claudeUser("run it"),
		`"type":"assistant","isApiErrorMessage":true,"message":{"id":"x","model":"<synthetic>",`+
			`"content":[{"type":"text","text":"API Error: 529 overloaded"}],"usage":{"input_tokens":0,`+
			`"output_tokens":0}}`)
	if got := s.Messages[1].Message.MetadataJSON; !strings.Contains(got,
		`"end_reason":"error","error":"API Error: 529 overloaded"`) || strings.Contains(got, `"usage"`) {
		t.Errorf("metadata %s", got)
	}
}
