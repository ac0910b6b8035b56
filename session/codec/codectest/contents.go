package codectest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// What generated messages and parts say.

// data is the data of any part that may be in a message of the role.
func (g *generator) data(role string) string {
	if role == session.RoleAssistant && g.chance(3) {
		return g.tool()
	}
	switch g.r.IntN(16) {
	case 0:
		return g.object(`"type":"file"`, `"mediaType":"image/png"`,
			`"url":`+pick(g, `"data:image/png;base64,AAAA"`, `"data:,"`, `"http://example.com/a.png?b=1&c=%20"`,
				`"file:///tmp/é.png"`, g.str(g.words())))
	case 1:
		return g.object(`"type":"file"`, `"mediaType":`+pick(g, `"audio/mp3"`, `"application/pdf"`, `""`),
			`"filename":`+g.str(g.words()), `"url":`+pick(g, `"data:audio/mp3;base64,BBBB"`,
				`"https://example.com/a.pdf"`))
	case 2:
		return g.object(`"type":"source-url"`, `"sourceId":"s1"`, `"url":"https://example.com"`,
			`"title":`+g.str(g.words()))
	case 3:
		return g.object(`"type":"source-document"`, `"sourceId":"s2"`, `"mediaType":"text/plain"`,
			`"title":`+g.str(g.words()), `"filename":"f.txt"`)
	case 4:
		return g.object(`"type":"step-start"`)
	case 5:
		return g.object(`"type":"data-damaged"`, `"data":{"type":"file","text":`+g.str(`{"id":`)+`}`)
	case 6:
		kind := pick(g, "note", "chart", "é", "plan", "log", "state", "error", "loop-warning",
			"session_start", "tool_call",
			"message_user", "handoff", "agent", "item", "content", "permission", "acp-update", "acp-request", "event-x",
			"current_mode_update")
		data := []string{`"type":` + quoted("data-"+kind), `"data":` + g.value()}
		if g.chance(3) {
			data = append(data, `"id":`+g.str(g.words()))
		}
		return g.object(data...)
	case 7, 8, 9:
		return g.object(append([]string{`"type":"reasoning"`, `"text":` + g.str(g.words())}, g.textExtras()...)...)
	}
	return g.object(append([]string{`"type":"text"`, `"text":` + g.str(g.words())}, g.textExtras()...)...)
}

func (g *generator) textExtras() (extra []string) {
	if g.chance(4) {
		extra = append(extra, `"state":`+pick(g, `"done"`, `"streaming"`))
	}
	if g.chance(6) {
		extra = append(extra, `"providerMetadata":`+pick(g, `{"p":{"n":1.50}}`,
			`{"agenttrace":{"stub":true,"truncated":true}}`, `{"acp":{"chunk":{"messageId":"m"}}}`,
			`{"jutul":{"a":1}}`))
	}
	if g.chance(10) {
		extra = append(extra, `"unknown":`+g.value())
	}
	return extra
}

// tool is the data of a tool part in any state.
func (g *generator) tool() string {
	members := []string{`"type":` + pick(g, `"tool-bash"`, `"tool-read_file"`, `"tool-é x"`)}
	if g.chance(3) {
		members = []string{`"type":"dynamic-tool"`, `"toolName":` +
			pick(g, `"mcp__x"`, `""`, `"bash"`, g.str(g.words()))}
	}
	id := g.id("call_")
	if g.chance(12) {
		id = pick(g, "", "call_1", "call_1")
	}
	state := pick(g, session.StateInputStreaming, session.StateInputAvailable, session.StateApprovalRequested,
		session.StateApprovalResponded,
		session.StateOutputAvailable, session.StateOutputAvailable, session.StateOutputAvailable,
		session.StateOutputError, session.StateOutputDenied)
	members = append(members, `"toolCallId":`+quoted(id), `"state":"`+state+`"`)
	input := `"input":` + pick(g, `{"command":"ls -l","n":1e-7}`, `{}`, `{"input":"x","output":"y"}`, g.value())
	approval := `"approval":{"id":"per_1","approved":%t,"reason":` + g.str(g.words()) + `}`
	switch state {
	case session.StateInputStreaming:
		if g.chance(2) {
			members = append(members, input)
		}
	case session.StateInputAvailable:
		members = append(members, input)
	case session.StateApprovalRequested:
		members = append(members, input, `"approval":{"id":"per_1"}`)
	case session.StateApprovalResponded:
		members = append(members, input, fmt.Sprintf(approval, g.chance(2)))
	case session.StateOutputDenied:
		members = append(members, input, fmt.Sprintf(approval, false))
	case session.StateOutputError:
		if g.chance(2) {
			members = append(members, input)
		}
		members = append(members, `"errorText":`+g.str(g.words()))
		if g.chance(4) {
			members = append(members, `"rawInput":"{"`)
		}
	case session.StateOutputAvailable:
		members = append(members, input, `"output":`+pick(g, `{"stdout":"a\nb","exit_code":0}`,
			`[{"type":"text","text":"x"}]`, g.value(), g.str(g.words())))
		if g.chance(6) {
			members = append(members, `"preliminary":true`)
		}
	}
	if (state == session.StateOutputAvailable || state == session.StateOutputError) && g.chance(6) {
		members = append(members, fmt.Sprintf(approval, true))
	}
	if g.chance(3) {
		members = append(members, `"toolMetadata":{"agenttrace":`+pick(g,
			`{"duration_ms":3,"kind":"execute","truncated":true,"output_path":"out/1.txt","output_size":99,`+
				`"output_sha256":"ab"}`,
			`{"denied":true}`, `{"child_session_id":"ses_child","error_type":"E","partial_output":"half"}`,
			`{"withheld":true,"problems":["p"]}`, `{"stub":true}`)+`}`)
	}
	if g.chance(8) {
		members = append(members, `"providerExecuted":true`, `"title":"T"`)
	}
	if g.chance(8) {
		members = append(members, `"callProviderMetadata":`+pick(g, `{"p":{"output":1}}`,
			`{"skillet":{"agentName":"a"}}`, `{"jutul":{"call":{"x":1}}}`))
	}
	return g.object(members...)
}

func (g *generator) compaction() string {
	tail := pick(g, "null", `"msg_elsewhere"`, `""`)
	if n := len(g.s.Messages); n > 0 && g.chance(2) {
		tail = quoted(g.s.Messages[g.r.IntN(n)].Message.ID)
	}
	return g.object(`"type":"data-compaction"`, `"data":`+g.object(`"summary":`+g.str(g.words()),
		`"tail_start_id":`+tail,
		`"auto":`+pick(g, "true", "false"), fmt.Sprintf(`"summary_tokens":%d`, g.r.IntN(1000))))
}

// metadata is the metadata_json of a message.
func (g *generator) metadata(role string, incomplete bool) string {
	var members []string
	add := func(in int, member string) {
		if g.chance(in) {
			members = append(members, member)
		}
	}
	add(3, `"model":`+pick(g, `{"provider_id":"openai","model_id":"gpt-5"}`, `{"model_id":"m"}`,
		`{"provider_id":"p","model_id":"a/b","variant":"high"}`, `{}`, `null`, `{"model_id":"m","later":1}`))
	add(4, `"agent":`+pick(g, `"coder"`, `""`, `null`, g.str(g.words())))
	if role == session.RoleAssistant || g.chance(10) {
		add(2, fmt.Sprintf(`"usage":{"input":%d,"output":%d,"reasoning":%d,"cache_read":%d,"cache_write":%d}`,
			g.r.Int64N(100_000), g.r.Int64N(1<<40), g.r.Int64N(10), g.r.Int64N(2), g.r.Int64N(5)))
		add(20, `"usage":null`)
	}
	if g.chance(8) {
		members = append(members, `"system_prompt_digest":"`+g.blob(store.BlobSystemPrompt)+`"`)
	}
	if trace := g.trace(role, incomplete); trace != "" {
		members = append(members, `"agenttrace":`+trace)
	}
	add(8, `"queued_at":4`)
	add(8, `"trigger":{"source":"cron"}`)
	add(10, `"zeta":`+g.value())
	add(10, `"é \"key\"":`+g.value())
	return g.object(g.tidy(once(members))...)
}

// tidy leaves out what this project would not write, where JSON is spelled as it does.
func (g *generator) tidy(members []string) []string {
	if !g.plain {
		return members
	}
	return slices.DeleteFunc(members, func(m string) bool {
		_, value, _ := strings.Cut(m, `":`)
		switch value {
		case `""`, "null", "{}", "0", "1.0", "0.0":
			return true
		}
		return strings.HasPrefix(m, `"later":`) || strings.Contains(m, `"later":1`)
	})
}

// once leaves out members that repeat the key of one before.
func once(members []string) []string {
	seen := make(map[string]bool)
	kept := members[:0]
	for _, m := range members {
		var key string
		for i := 1; i < len(m); i++ {
			if m[i] == '"' && m[i-1] != '\\' {
				key = m[:i]
				break
			}
		}
		if !seen[key] {
			seen[key] = true
			kept = append(kept, m)
		}
	}
	return kept
}

func (g *generator) trace(role string, incomplete bool) string {
	var members []string
	add := func(in int, member string) {
		if g.chance(in) {
			members = append(members, member)
		}
	}
	if incomplete || role == session.RoleAssistant && g.chance(8) {
		members = append(members, `"incomplete":true`)
	}
	if role == session.RoleAssistant || g.chance(10) {
		add(3, fmt.Sprintf(`"turn_index":%d`, g.r.IntN(9)))
		add(3, `"end_reason":`+pick(g, `"finish"`, `"abort"`, `"error"`))
		add(4, `"stop_reason":`+pick(g, `"stop"`, `"length"`, `""`))
		add(8, `"stop_reason_raw":"end_turn"`)
		add(10, `"pending_approval":true`)
		add(6, fmt.Sprintf(`"model_calls":%d`, g.r.IntN(4)))
		add(5, fmt.Sprintf(`"duration_ms":%d`, g.r.IntN(100_000)))
		add(8, `"temperature":`+pick(g, "1", "0.5", "0", "1.0"))
		if g.chance(10) {
			members = append(members, `"tool_catalog_digest":"`+g.blob(store.BlobToolCatalog)+`"`)
		}
		add(4, `"cost_usd":`+pick(g, "0.0125", "0", "1e-9", "0.1", "0.30000000000000004"))
		add(8, `"usage_basis":"mixed"`)
		add(8, `"usage_raw":`+pick(g, `{"in":1}`, `[{"in":1.50},null]`, `"text"`))
		add(8, `"error":`+g.str(g.words()))
		add(8, `"model_errors":["rate limit",`+g.str(g.words())+`]`)
		add(8, `"response_id":"resp_1","response_model":"gpt-5-2026"`)
		add(8, `"source_id":"src"`)
		add(8, `"problems":["JSON was cut short"]`)
		add(12, `"later":`+g.value())
	}
	if members = g.tidy(members); len(members) == 0 {
		return ""
	}
	return g.object(members...)
}

// blob returns the digest of a text that the session brings, or, now and then, of one
// that nobody has.
func (g *generator) blob(kind store.BlobKind) string {
	body := pick(g, "You are a coder.", "", `[{"name":"bash"}]`, g.words())
	brought := !g.chance(6)
	if !brought {
		body = g.id("lost ")
	}
	sum := sha256.Sum256([]byte(body))
	digest := hex.EncodeToString(sum[:])
	if key := string(kind) + digest; brought && !g.blobs[key] {
		g.blobs[key] = true
		g.s.Blobs = append(g.s.Blobs, store.Blob{Kind: kind, Digest: digest, Body: body, Exact: true})
	}
	return digest
}
