// Package transcripttest has a session with one of everything that a transcript tells,
// for the tests of its formats.
package render

import (
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

const storyBegin = 1_795_198_540_000

// story is the timeline of a session in which every text that telemetry may choose
// contains said.
func story(said string) *document.Document {
	digest := strings.Repeat("ab", 32)
	s := session.Session{
		ID: "ses_1", Title: "Fix " + said, Agent: "coder" + said,
		PermissionsJSON: `[{"permission":"bash","pattern":"ls *","action":"allow"}]`,
		MetadataJSON:    `{"agenttrace":{"outcome":"finish"}}`, CreatedAt: storyBegin, UpdatedAt: storyBegin + 90_000,
	}
	t := &session.Transcript{Session: s}
	now := int64(storyBegin)
	add := func(id, role string, metadata map[string]any, hidden bool, parts ...map[string]any) {
		now += 1000
		m := session.MessageAndParts{Message: session.Message{ID: id, SessionID: s.ID, Role: role,
			MetadataJSON: encode(metadata), CreatedAt: now, UpdatedAt: now + 900}}
		if hidden {
			at := int64(storyBegin + 80_000)
			m.Message.HiddenAt = &at
		}
		for i, data := range parts {
			p := session.Part{ID: id + "_" + string(rune('a'+i)), MessageID: id, SessionID: s.ID, Index: int64(i),
				Type: data["type"].(string), DataJSON: encode(data), CreatedAt: now, UpdatedAt: now}
			if call, ok := data["toolCallId"].(string); ok {
				state := data["state"].(string)
				p.ToolCallID, p.ToolState = &call, &state
			}
			m.Parts = append(m.Parts, p)
		}
		t.Messages = append(t.Messages, m)
	}
	text := func(kind, words string) map[string]any { return map[string]any{"type": kind, "text": words} }
	add("msg_1", "user", nil, false, text("text", "Please fix it.\n\n"+said),
		map[string]any{"type": "file", "mediaType": "image/png", "filename": "shot" + said,
			"url": "data:image/png;base64,AAAA"})
	add("msg_2", "assistant", map[string]any{
		"model": map[string]any{"provider_id": "openai", "model_id": "gpt-5"}, "system_prompt_digest": digest,
		"usage": map[string]any{"input": 12345, "output": 200, "reasoning": 10, "cache_read": 1000, "cache_write": 0},
		"agenttrace": map[string]any{"turn_index": 0, "end_reason": "finish", "duration_ms": 61500, "cost_usd": 0.0123,
			"model_errors": []string{"rate limited " + said}},
	}, false,
		text("reasoning", "Look first. "+said),
		text("text", "I look.\n\n```go\nfunc main() {\n\tprintln(\"```\")\n}\n```\n\n1. one\n- two\n    four "+said),
		map[string]any{"type": "tool-bash", "toolCallId": "call_1", "state": "output-available",
			"input":  map[string]any{"command": "go test " + said},
			"output": strings.Repeat("FAIL "+said+"\n", 120),
			"toolMetadata": map[string]any{"agenttrace": map[string]any{"duration_ms": 1234, "kind": "execute",
				"truncated": true, "output_path": "out/" + said, "output_size": 99999}}},
		map[string]any{"type": "tool-bash", "toolCallId": "call_2", "state": "output-error",
			"input": map[string]any{"command": "rm -r /"}, "errorText": "permission denied " + said,
			"toolMetadata": map[string]any{"agenttrace": map[string]any{"denied": true}}},
		map[string]any{"type": "step-start"},
		map[string]any{"type": "source-url", "sourceId": "1", "url": "javascript:alert(1)", "title": "A page " + said},
		map[string]any{"type": "source-url", "sourceId": "2", "url": "https://example.com/a?b=1", "title": "Another"},
		map[string]any{"type": "data-chart", "data": map[string]any{"x": said}},
	)
	add("msg_3", "assistant", map[string]any{"compaction": true,
		"agenttrace": map[string]any{"summarized_message_count": 2, "duration_ms": 40}}, false,
		map[string]any{"type": "data-compaction", "data": map[string]any{
			"summary": "So far " + said, "tail_start_id": nil, "auto": true, "summary_tokens": 42}})
	add("msg_4", "user", nil, true, text("text", "Never mind."))
	add("msg_5", "assistant", map[string]any{"agenttrace": map[string]any{"turn_index": 1, "end_reason": "error",
		"error": "gave up " + said}}, true, text("text", "Well."))
	add("msg_6", "user", nil, false, text("text", "Go on."))
	add("msg_7", "assistant", map[string]any{"agenttrace": map[string]any{"incomplete": true}}, false,
		map[string]any{"type": "dynamic-tool", "toolName": "mcp" + said, "toolCallId": "call_3",
			"state": "input-streaming", "toolMetadata": map[string]any{"agenttrace": map[string]any{"stub": true}}})
	waited := int64(4000)
	return document.Build(document.Input{
		Transcript: t,
		Decisions: []store.Decision{
			{ID: "per_1", SessionID: s.ID, MessageID: "msg_2", PartID: "msg_2_d", ToolCallID: "call_2", ToolID: "bash",
				Pattern: "rm *", Action: "ask", Source: "manifest", Outcome: "denied", Reply: "reject", Reason: said,
				WaitedMS: &waited},
			{ID: "per_2", SessionID: s.ID, ToolID: "web" + said, Action: "allow", Outcome: "allowed"},
		},
		Blobs: []store.Blob{
			{Kind: store.BlobSystemPrompt, Digest: digest, Body: "You are a coder. " + said, Exact: true},
		},
	})
}

func encode(v map[string]any) string {
	if v == nil {
		return "{}"
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps of strings and numbers
	}
	return string(b)
}
