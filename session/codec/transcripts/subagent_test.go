package transcripts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/transcripts"
)

// TestClaudeSubagentFileNamesItsParent reads the file of a sub-agent that another one
// started, and what the program keeps beside it.
func TestClaudeSubagentFileNamesItsParent(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := strings.ReplaceAll(claudeRecords(claudeUser("look"), claudeSays("m1", "seen")), `"isSidechain":false`,
		`"isSidechain":true,"agentId":"a2"`)
	for _, tt := range []struct {
		name, beside, parent, agent string
		want                        session.TranscriptTrace
	}{
		{"without a file beside it", "", "s1", "claude-code",
			session.TranscriptTrace{Transcript: "claude-code", SubagentOf: "s1", SubagentID: "a2"}},
		{"with one", `{"agentType":"Explore","toolUseId":"toolu_1","parentAgentId":"a1"}`, "s1-a1", "Explore",
			session.TranscriptTrace{Transcript: "claude-code", SubagentOf: "s1", SubagentID: "a2",
				ParentSubagentID: "a1",
				CallID:           "toolu_1"}},
	} {
		path := write("agent-a2.jsonl", file)
		if tt.beside != "" {
			write("agent-a2.meta.json", tt.beside)
		}
		for s, err := range transcripts.Claude.DecodeFile(t.Context(), path, nil, nil) {
			if err != nil {
				t.Fatal(err)
			}
			row := &s.Session
			if row.ID != "s1-a2" || row.ParentID == nil || *row.ParentID != tt.parent || row.Agent != tt.agent {
				t.Errorf("%s: session %s by %s below %v", tt.name, row.ID, row.Agent, row.ParentID)
			}
			if d := cmp.Diff(tt.want, session.TranscriptTraceOf(row.MetadataJSON)); d != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, d)
			}
		}
	}
}

// TestClaudeNotificationOfSubagentIsNoUsersMessage has the notification that wakes the
// model be a system message, and the answer one of a turn of its own.
func TestClaudeNotificationOfSubagentIsNoUsersMessage(t *testing.T) {
	described, problems := describe(t, transcripts.Claude.Decode, claudeRecords(
		claudeUser("go"), claudeSays("m1", "it runs"),
		`"type":"user","promptId":"p2","origin":{"kind":"task-notification"},"message":{"role":"user",`+
			`"content":"<task-notification>done</task-notification>"}`,
		claudeSays("m2", "it is done")))
	if len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
	roles := slices.DeleteFunc(described, func(line string) bool { return strings.HasPrefix(line, "    ") })
	for i, want := range []string{"s1 ", "  user ", "  assistant ", "  system ", "  assistant "} {
		if len(roles) != 5 || !strings.HasPrefix(roles[i], want) {
			t.Fatalf("%d messages:\n%s", len(roles)-1, strings.Join(roles, "\n"))
		}
	}
	if !strings.Contains(roles[2], `"turn_id":"p1"`) || !strings.Contains(roles[4], `"turn_id":"p2"`) {
		t.Errorf("turns:\n%s", strings.Join(roles, "\n"))
	}
}

// TestCodexSubagentIsNotGivenWhatItInherits leaves out of a sub-agent's session the copy of
// what the session above had said, and takes its task for what the user said.
func TestCodexSubagentIsNotGivenWhatItInherits(t *testing.T) {
	const parent, child = "01a20361-56e9-7d60-99bd-c4d1d3e28c5f", "01a20361-58ac-7dc2-90df-58821145e769"
	record := func(kind, payload string) string {
		return `{"timestamp":"2026-01-02T03:04:05.000Z","type":"` + kind + `","payload":` + payload + "}\n"
	}
	task := func(text string) string {
		return record("response_item",
			`{"type":"agent_message","author":"/root","recipient":"/root/look","content":[{"type":"input_text",`+
				`"text":"Message Type: NEW_TASK\nTask name: /root/look\nSender: /root\nPayload:\n`+text+`"}]}`)
	}
	begin := record("session_meta", `{"id":"`+child+`","parent_thread_id":"`+parent+`","forked_from_id":"`+parent+`"}`)
	inherited := record("session_meta", `{"id":"`+parent+`"}`) +
		record("event_msg", `{"type":"task_started","turn_id":"01a20361-582d-7a53-88c5-cd467675b3af"}`) +
		record("response_item",
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"the parent's prompt"}]}`) +
		record("response_item", `{"type":"function_call","name":"spawn_agent","arguments":"{}","call_id":"k1"}`) +
		record("event_msg", `{"type":"turn_aborted","turn_id":"01a20361-582d-7a53-88c5-cd467675b3af"}`)
	own := record("event_msg", `{"type":"task_started","turn_id":"01a20361-58c6-7bb3-b71b-2faab23e7d61"}`)
	answer := record("response_item",
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"seen"}]}`)
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"a task that can be read", begin + inherited + own + task("look there") + answer,
			[]string{"look there", "", "seen"}},
		{"an encrypted task", begin + inherited + own + task("") + answer,
			[]string{`Message Type: NEW_TASK\nTask name: /root/look\nSender: /root\nPayload:`, "", "seen"}},
		{"nothing of its own yet", begin + inherited, nil},
		{"nothing inherited", begin + own + task("look there"), []string{"look there"}},
	} {
		described, problems := describe(t, transcripts.Codex.Decode, tt.file)
		if len(problems) > 0 {
			t.Errorf("%s: problems %q", tt.name, problems)
		}
		var texts []string
		for _, line := range described {
			if rest, isPart := strings.CutPrefix(line, "    "); isPart {
				_, text, _ := strings.Cut(rest, `"text":"`)
				texts = append(texts, strings.TrimSuffix(text, `"}`))
			}
		}
		if d := cmp.Diff(tt.want, texts); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// TestCodexCallNamesTheSubagentThatItStarted reads the records of three versions.
func TestCodexCallNamesTheSubagentThatItStarted(t *testing.T) {
	const call = `response_item {"type":"function_call","name":"spawn_agent","arguments":"{}","call_id":"k1"}`
	for _, started := range []string{
		`event_msg {"type":"collab_agent_spawn_end","call_id":"k1","new_thread_id":"c2"}`,
		`event_msg {"type":"item_completed","item":{"type":"CollabAgentToolCall","id":"k1","tool":"spawn_agent",` +
			`"receiver_thread_ids":["c2"]}}`,
		`event_msg {"type":"item_completed","item":{"type":"SubAgentActivity","id":"k1","kind":"started",` +
			`"agent_thread_id":"c2"}}`,
	} {
		rows := rolloutRows(t, codexStarted, codexAsk, call, started)
		if last := rows[len(rows)-1]; !strings.Contains(last, `"child_session_id":"c2"`) {
			t.Errorf("%s: %s", started, last)
		}
	}
}
