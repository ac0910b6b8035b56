package session_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
)

// reference returns sessions that the guide's reference program wrote: one with every
// part type that it stores and a rewind, its fork, and an archived one.
func reference(tb testing.TB) []*session.Transcript {
	tb.Helper()
	data := testscale.ReadFile(tb, "testdata/reference.jsonl")
	var all []*session.Transcript
	for t, err := range jsonl.Decode(bytes.NewReader(data), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, t)
	}
	if len(all) != 3 {
		tb.Fatalf("testdata/reference.jsonl has %d sessions, want 3", len(all))
	}
	return all
}

func TestCheckAcceptsReference(t *testing.T) {
	for _, tr := range reference(t) {
		for _, v := range session.Check(tr) {
			t.Errorf("%v", v)
		}
	}
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// valid is a valid session to which every rule applies.
//
//	0 user       text, file
//	1 assistant  one part of every kind and tool state; usage, outside the tail
//	2 assistant  incomplete, with a gap; usage; the tail starts here
//	3 assistant  hidden; usage
//	4 assistant  compaction; usage
func validTranscript() *session.Transcript {
	t := &session.Transcript{Session: session.Session{
		ID: "ses_1", Title: "Sound", Agent: "build",
		ModelJSON: new(`{"provider_id":"p","model_id":"m"}`), ParentID: new("ses_0"), ParentMessageID: new("msg_0"),
		PermissionsJSON: `[{"permission":"bash","pattern":"git *","action":"allow","source":"session","added_at":1},` +
			`{"permission":"*","pattern":"","action":"ask"}]`,
		MetadataJSON: `{}`,
		CostUSD:      0.5, CreatedAt: 100, UpdatedAt: 900,
	}}
	t.Session.SetUsage(session.Usage{Input: 11, Output: 2, Reasoning: 3, CacheRead: 4, CacheWrite: 5})
	message := func(id, role, meta string, parts ...string) *session.MessageAndParts {
		at := int64(100 * (len(t.Messages) + 1))
		m := session.MessageAndParts{Message: session.Message{
			ID: id, SessionID: "ses_1", Role: role, MetadataJSON: meta, CreatedAt: at, UpdatedAt: at + 5}}
		for i, data := range parts {
			var d struct {
				Type, State string
				ToolCallID  *string
			}
			if err := json.Unmarshal([]byte(data), &d); err != nil {
				panic(err)
			}
			p := session.Part{ID: id + "_" + d.Type + "_" + d.State, MessageID: id, SessionID: "ses_1", Index: int64(i),
				Type: d.Type, DataJSON: data, CreatedAt: at, UpdatedAt: at}
			if d.ToolCallID != nil {
				p.ToolCallID, p.ToolState = d.ToolCallID, &d.State
			}
			m.Parts = append(m.Parts, p)
		}
		t.Messages = append(t.Messages, m)
		return &t.Messages[len(t.Messages)-1]
	}
	message("msg_1", "user", `{"trigger":{"source":"api"}}`,
		`{"type":"text","text":"go","state":"done"}`,
		`{"type":"file","mediaType":"text/plain","url":"data:,a","filename":"a.txt"}`)
	message("msg_2", "assistant", `{"model":{"provider_id":"p","model_id":"m"},"agent":"build","usage":{"input":1000,"output":1},
		"system_prompt_digest":"`+digest+`","agenttrace":{"turn_index":0,"stop_reason":"stop","duration_ms":12,"tool_catalog_digest":"`+digest+`"}}`,
		`{"type":"step-start"}`,
		`{"type":"reasoning","text":"","state":"streaming"}`,
		`{"type":"source-url","sourceId":"s","url":"https://e.x","title":"E"}`,
		`{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"D"}`,
		`{"type":"data-mark","id":"d1","data":null}`,
		`{"type":"tool-bash","toolCallId":"c1","state":"input-streaming","input":"{\"cm"}`,
		`{"type":"tool-bash","toolCallId":"c2","state":"input-available","input":{}}`,
		`{"type":"tool-bash","toolCallId":"c3","state":"approval-requested","input":{},"approval":{"id":"a"}}`,
		`{"type":"tool-bash","toolCallId":"c4","state":"approval-responded","input":{},"approval":{"id":"a",`+
			`"approved":false,"reason":"no"}}`,
		`{"type":"tool-bash","toolCallId":"c5","state":"output-available","input":{},"output":null,`+
			`"preliminary":true,"approval":{"id":"a","approved":true}}`,
		`{"type":"dynamic-tool","toolName":"mcp_x","toolCallId":"c6","state":"output-error","errorText":"boom",`+
			`"rawInput":"{","providerExecuted":false}`,
		`{"type":"tool-bash","toolCallId":"c7","state":"output-denied","input":{},"approval":{"id":"a",`+
			`"approved":false}}`)
	message("msg_3", "assistant",
		`{"usage":{"input":10,"output":2,"reasoning":3,"cache_read":4,"cache_write":5},`+
			`"agenttrace":{"incomplete":true}}`,
		`{"type":"text","text":"a"}`, `{"type":"text","text":"b","state":"done"}`)
	t.Messages[2].Parts[0].ID = "prt_first"
	t.Messages[2].Parts[1].ID, t.Messages[2].Parts[1].Index = "prt_second", 4
	message("msg_4", "assistant", `{"usage":{"input":7}}`).Message.HiddenAt = new(int64(500))
	message("msg_5", "assistant", `{"compaction":true,"usage":{"input":1}}`,
		`{"type":"data-compaction","data":{"summary":"S","tail_start_id":"msg_3","auto":true,"summary_tokens":1}}`)
	return t
}

func TestCheckAcceptsSound(t *testing.T) {
	for _, v := range session.Check(validTranscript()) {
		t.Errorf("%v", v)
	}
}

// part returns the first part of the type and, for a tool, of the state.
func part(t *session.Transcript, partType, state string) *session.Part {
	for i := range t.Messages {
		for j := range t.Messages[i].Parts {
			p := &t.Messages[i].Parts[j]
			if p.Type == partType && (state == "" || p.ToolState != nil && *p.ToolState == state) {
				return p
			}
		}
	}
	panic("no part " + partType + " " + state)
}

// data replaces text in the part's data_json, which must contain it.
func data(partType, state, from, to string) func(*session.Transcript) {
	return func(t *session.Transcript) {
		p := part(t, partType, state)
		if !strings.Contains(p.DataJSON, from) {
			panic(p.DataJSON + " has no " + from)
		}
		p.DataJSON = strings.Replace(p.DataJSON, from, to, 1)
	}
}

func metadata(message int, from, to string) func(*session.Transcript) {
	return func(t *session.Transcript) {
		m := &t.Messages[message].Message
		if !strings.Contains(m.MetadataJSON, from) {
			panic(m.MetadataJSON + " has no " + from)
		}
		m.MetadataJSON = strings.Replace(m.MetadataJSON, from, to, 1)
	}
}

// violations are changes that each break exactly one rule, once.
var violations = []struct {
	rule, where, detail string
	change              func(*session.Transcript)
}{
	{"ids", "messages[2].parts[1]", "id is empty", func(t *session.Transcript) { t.Messages[2].Parts[1].ID = "" }},
	{"unique-ids", "message msg_1", "messages[3] has the id of an earlier message",
		func(t *session.Transcript) { t.Messages[3].Message.ID = "msg_1" }},
	{"unique-ids", "part prt_first", "messages[2].parts[1] has the id of an earlier part",
		func(t *session.Transcript) { t.Messages[2].Parts[1].ID = "prt_first" }},
	{"owner", "message msg_4", `session_id is "ses_2", want "ses_1"`,
		func(t *session.Transcript) { t.Messages[3].Message.SessionID = "ses_2" }},
	{"owner", "part prt_first", `session_id is "ses_2", want "ses_1"`,
		func(t *session.Transcript) { t.Messages[2].Parts[0].SessionID = "ses_2" }},
	{"owner", "part prt_first", `message_id is "msg_1", want "msg_3"`,
		func(t *session.Transcript) { t.Messages[2].Parts[0].MessageID = "msg_1" }},
	{"parent", "session ses_1", `parent_message_id is "msg_0", but parent_id is null`,
		func(t *session.Transcript) { t.Session.ParentID = nil }},
	{"parent", "session ses_1", "parent_id is the session's own id",
		func(t *session.Transcript) { t.Session.ParentID = new("ses_1") }},
	{"utf8", "session ses_1", "title is not valid UTF-8", func(t *session.Transcript) { t.Session.Title = "\xff" }},
	{"utf8", "part prt_first", "data_json is not valid UTF-8", func(t *session.Transcript) {
		t.Messages[2].Parts[0].DataJSON = "{\"type\":\"text\",\"text\":\"\xff\"}"
	}},
	{"times", "session ses_1", "updated_at 99 is before created_at 100",
		func(t *session.Transcript) { t.Session.UpdatedAt = 99 }},
	{"times", "message msg_1", "updated_at 0 is before created_at 100",
		func(t *session.Transcript) { t.Messages[0].Message.UpdatedAt = 0 }},
	{"times", "part prt_first", "updated_at 1 is before created_at 300",
		func(t *session.Transcript) { t.Messages[2].Parts[0].UpdatedAt = 1 }},
	{"json", "session ses_1", "permissions_json is not a JSON array",
		func(t *session.Transcript) { t.Session.PermissionsJSON = "{}" }},
	{"json", "session ses_1", "metadata_json is not a JSON object",
		func(t *session.Transcript) { t.Session.MetadataJSON = "null" }},
	{"json", "session ses_1", "model_json is neither null nor a JSON object",
		func(t *session.Transcript) { t.Session.ModelJSON = new("") }},
	{"json", "message msg_4", "metadata_json is not a JSON object",
		func(t *session.Transcript) { t.Messages[3].Message.MetadataJSON = "{" }},
	{"json", "part prt_first", "data_json is not a JSON object",
		func(t *session.Transcript) { t.Messages[2].Parts[0].DataJSON = "[]" }},
	{"permissions", "session ses_1", "permissions_json[0] is not an object",
		func(t *session.Transcript) { t.Session.PermissionsJSON = `["bash"]` }},
	{"permissions", "session ses_1", "permissions_json[0] has no permission", func(t *session.Transcript) {
		t.Session.PermissionsJSON = `[{"pattern":"*","action":"deny"}]`
	}},
	{"permissions", "session ses_1", "permissions_json[0] has no pattern", func(t *session.Transcript) {
		t.Session.PermissionsJSON = `[{"permission":"*","action":"deny"}]`
	}},
	{"permissions", "session ses_1", "permissions_json[0] has action (none), want allow, deny or ask",
		func(t *session.Transcript) {
			t.Session.PermissionsJSON = `[{"permission":"*","pattern":"*"}]`
		}},
	{"permissions", "session ses_1", `permissions_json[0] has action "yes", want allow, deny or ask`,
		func(t *session.Transcript) {
			t.Session.PermissionsJSON = `[{"permission":"*","pattern":"*","action":"yes"}]`
		}},
	{"permissions", "session ses_1", `permissions_json[0] has source "me", want manifest, session or project`,
		func(t *session.Transcript) {
			t.Session.PermissionsJSON = `[{"permission":"*","pattern":"*","action":"deny","source":"me"}]`
		}},
	{"permissions", "session ses_1", `permissions_json[0] has added_at "now", want milliseconds`,
		func(t *session.Transcript) {
			t.Session.PermissionsJSON = `[{"permission":"*","pattern":"*","action":"deny","added_at":"now"}]`
		}},
	{"usage", "message msg_4", "usage.input is -7", metadata(3, "7", "-7")},
	{"usage", "message msg_4", "usage.input is 7.5", metadata(3, "7", "7.5")},
	{"usage", "message msg_4", "usage is [7], want an object", metadata(3, `{"input":7}`, `[7]`)},
	{"total", "session ses_1", "total_tokens is 24, the buckets sum to 25",
		func(t *session.Transcript) { t.Session.TotalTokens-- }},
	{"rollup", "session ses_1",
		"buckets are {Input:12 Output:2 Reasoning:3 CacheRead:4 CacheWrite:5}, the messages that count sum to " +
			"{Input:11 Output:2 Reasoning:3 CacheRead:4 CacheWrite:5}",
		func(t *session.Transcript) { t.Session.PromptTokens++; t.Session.TotalTokens++ }},
	{"cost", "session ses_1", "cost_usd is NaN", func(t *session.Transcript) { t.Session.CostUSD = math.NaN() }},
	{"cost", "session ses_1", "cost_usd is -0.5", func(t *session.Transcript) { t.Session.CostUSD = -0.5 }},
	{"cost", "session ses_1", "cost_usd is +Inf", func(t *session.Transcript) { t.Session.CostUSD = math.Inf(1) }},
	{"role", "message msg_1", `role is "tool"`, func(t *session.Transcript) { t.Messages[0].Message.Role = "tool" }},
	{"message-order", "message msg_1", "comes after message msg_2, which is later", func(t *session.Transcript) {
		t.Messages[0], t.Messages[1] = t.Messages[1], t.Messages[0]
	}},
	{"metadata", "message msg_2", "model: row is a string, want an object",
		metadata(1, `{"provider_id":"p","model_id":"m"}`, `"m"`)},
	{"metadata", "message msg_2", "agent is 1, want a string", metadata(1, `"build"`, `1`)},
	{"metadata", "message msg_2", `system_prompt_digest is "E3", want a SHA-256 in lower-case hex`,
		metadata(1, digest, "E3")},
	{"metadata", "message msg_2", `agenttrace: turn_index is a string, want an integer`,
		metadata(1, `"turn_index":0`, `"turn_index":"0"`)},
	{"metadata", "message msg_2", `agenttrace.tool_catalog_digest is "x", want a SHA-256 in lower-case hex`,
		metadata(1, `"tool_catalog_digest":"`+digest, `"tool_catalog_digest":"x`)},
	{"part-index", "part prt_first", "index is -1", func(t *session.Transcript) { t.Messages[2].Parts[0].Index = -1 }},
	{"part-index", "part prt_second", "index 0 is taken by an earlier part",
		func(t *session.Transcript) { t.Messages[2].Parts[1].Index = 0 }},
	{"part-order", "part prt_second", "index 4 comes after index 5",
		func(t *session.Transcript) { t.Messages[2].Parts[0].Index = 5 }},
	{"part-gap", "message msg_1", "has 2 parts up to index 2; 1 is missing",
		func(t *session.Transcript) { t.Messages[0].Parts[1].Index = 2 }},
	{"type", "part prt_first", `type is "image"`, func(t *session.Transcript) {
		t.Messages[2].Parts[0].Type, t.Messages[2].Parts[0].DataJSON = "image", `{"type":"image"}`
	}},
	{"type", "part prt_first", `type is "data-"`, func(t *session.Transcript) {
		t.Messages[2].Parts[0].Type, t.Messages[2].Parts[0].DataJSON = "data-", `{"type":"data-"}`
	}},
	{"type-column", "part prt_first", `type is "text", in data_json it is "reasoning"`, func(t *session.Transcript) {
		t.Messages[2].Parts[0].DataJSON = `{"type":"reasoning","text":""}`
	}},
	{"type-column", "part prt_first", `type is "text", in data_json it is (none)`, func(t *session.Transcript) {
		t.Messages[2].Parts[0].DataJSON = `{"text":""}`
	}},
	{"text", "part msg_2_reasoning_streaming", "text is null, want a string", data("reasoning", "", `""`, `null`)},
	{"text", "part msg_1_text_done", `state is "open", want streaming or done`, data("text", "", `done`, `open`)},
	{"file", "part msg_1_file_", "mediaType is (none), want a string",
		data("file", "", `"mediaType":"text/plain",`, ``)},
	{"file", "part msg_1_file_", "filename is 1, want a string", data("file", "", `"a.txt"`, `1`)},
	{"source", "part msg_2_source-url_", "url is (none), want a string", data("source-url", "", `"url"`, `"href"`)},
	{"source", "part msg_2_source-document_", "title is (none), want a string",
		data("source-document", "", `,"title":"D"`, ``)},
	{"data", "part msg_2_data-mark_", "data is missing", data("data-mark", "", `,"data":null`, ``)},
	{"compaction", "part msg_5_data-compaction_", "is flat: wrap its fields in data", func(t *session.Transcript) {
		part(t, "data-compaction",
			"").DataJSON = `{"type":"data-compaction","summary":"S","tail_start_id":"msg_3","auto":true,` +
			`"summary_tokens":1}`
	}},
	{"compaction", "part msg_5_data-compaction_", "data.summary is (none), want a string",
		data("data-compaction", "", `"summary":"S",`, ``)},
	{"compaction", "part msg_5_data-compaction_", "data.auto is 1, want true or false",
		data("data-compaction", "", `true`, `1`)},
	{"compaction", "part msg_5_data-compaction_", "data.summary_tokens is -1, want a count",
		data("data-compaction", "", `"summary_tokens":1`, `"summary_tokens":-1`)},
	{"compaction", "part msg_5_data-compaction_", `is in a message of role "user"`, func(t *session.Transcript) {
		t.Messages[4].Message.Role = "user"
		t.Session.PromptTokens--
		t.Session.TotalTokens--
	}},
	{"tool", "part msg_2_dynamic-tool_output-error", "toolName is (none), want a string",
		data("dynamic-tool", "", `"toolName":"mcp_x",`, ``)},
	{"tool", "part msg_2_dynamic-tool_output-error", "providerExecuted is 0, want true or false",
		data("dynamic-tool", "", `false`, `0`)},
	{"tool", "part msg_2_tool-bash_input-available", "toolCallId is (none), want a string",
		func(t *session.Transcript) {
			data("tool-bash", session.StateInputAvailable, `"toolCallId":"c2",`, ``)(t)
			part(t, "tool-bash", session.StateInputAvailable).ToolCallID = nil
		}},
	{"tool-columns", "part prt_first", `tool_state is "output-error" on a part of type "text"`,
		func(t *session.Transcript) {
			t.Messages[2].Parts[0].ToolState = new("output-error")
		}},
	{"tool-columns", "part msg_2_tool-bash_input-streaming", `tool_state is "input-available", state is ` +
		`"input-streaming"`,
		func(t *session.Transcript) {
			part(t, "tool-bash", session.StateInputStreaming).ToolState = new("input-available")
		}},
	{"tool-columns", "part msg_2_tool-bash_input-streaming", `tool_call_id is null, toolCallId is "c1"`,
		func(t *session.Transcript) {
			part(t, "tool-bash", session.StateInputStreaming).ToolCallID = nil
		}},
	{"tool-state", "part msg_2_tool-bash_input-available", `state is "running"`, func(t *session.Transcript) {
		data("tool-bash", session.StateInputAvailable, session.StateInputAvailable, "running")(t)
		part(t, "tool-bash", session.StateInputAvailable).ToolState = new("running")
	}},
	{"tool-state", "part msg_2_tool-bash_input-streaming", "state is input-streaming, but there is output",
		data("tool-bash", session.StateInputStreaming, `"input"`, `"output"`)},
	{"tool-state", "part msg_2_tool-bash_input-streaming", "state is input-streaming, but there is approval",
		data("tool-bash", session.StateInputStreaming, `"input"`, `"approval"`)},
	{"tool-state", "part msg_2_tool-bash_input-available", "state is input-available, but input is missing",
		data("tool-bash", session.StateInputAvailable, `,"input":{}`, ``)},
	{"tool-state", "part msg_2_tool-bash_approval-requested", "state is approval-requested, but approval is missing",
		data("tool-bash", session.StateApprovalRequested, `"approval"`, `"ask"`)},
	{"tool-state", "part msg_2_tool-bash_approval-requested", "state is approval-requested, but approval has an answer",
		data("tool-bash", session.StateApprovalRequested, `{"id":"a"}`, `{"id":"a","approved":true}`)},
	{"tool-state", "part msg_2_tool-bash_approval-requested", "approval is true, want an object",
		data("tool-bash", session.StateApprovalRequested, `{"id":"a"}`, `true`)},
	{"tool-state", "part msg_2_tool-bash_approval-responded",
		"state is approval-responded, but approval.approved is (none)",
		data("tool-bash", session.StateApprovalResponded, `"approved":false,`, ``)},
	{"tool-state", "part msg_2_tool-bash_approval-responded", "approval.reason is 3, want a string",
		data("tool-bash", session.StateApprovalResponded, `"no"`, `3`)},
	{"tool-state", "part msg_2_tool-bash_approval-responded", "approval.id is 1, want a string",
		data("tool-bash", session.StateApprovalResponded, `"a"`, `1`)},
	{"tool-state", "part msg_2_tool-bash_output-available", "state is output-available, but output is missing",
		data("tool-bash", session.StateOutputAvailable, `,"output":null`, ``)},
	{"tool-state", "part msg_2_tool-bash_output-available", "state is output-available, but there is errorText",
		data("tool-bash", session.StateOutputAvailable, `"preliminary":true`, `"errorText":""`)},
	{"tool-state", "part msg_2_tool-bash_output-available", "state is output-available, but approval.approved is false",
		data("tool-bash", session.StateOutputAvailable, `"approved":true`, `"approved":false`)},
	{"tool-state", "part msg_2_tool-bash_output-available", "preliminary is 1, want true or false",
		data("tool-bash", session.StateOutputAvailable, `"preliminary":true`, `"preliminary":1`)},
	{"tool-state", "part msg_2_dynamic-tool_output-error", "errorText is null, want a string",
		data("dynamic-tool", "", `"boom"`, `null`)},
	{"tool-state", "part msg_2_dynamic-tool_output-error", "state is output-error, but errorText is missing",
		data("dynamic-tool", "", `"errorText"`, `"error"`)},
	{"tool-state", "part msg_2_dynamic-tool_output-error", "state is output-error, but there is output",
		data("dynamic-tool", "", `"rawInput"`, `"output"`)},
	{"tool-state", "part msg_2_tool-bash_output-denied", "state is output-denied, but approval.approved is true",
		data("tool-bash", session.StateOutputDenied, `"approved":false`, `"approved":true`)},
}

func TestCheckReportsExactlyTheBrokenRule(t *testing.T) {
	for _, tt := range violations {
		tr := validTranscript()
		tt.change(tr)
		want := []session.Violation{{Rule: tt.rule, Where: tt.where, Detail: tt.detail}}
		if diff := cmp.Diff(want, session.Check(tr)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", tt.rule, tt.detail, diff)
		}
	}
}

// A negative bucket of the session is never a valid sum over messages.
func TestCheckNegativeBucket(t *testing.T) {
	tr := validTranscript()
	tr.Session.SetUsage(session.Usage{Input: 11, Output: 2, Reasoning: 3, CacheRead: 4, CacheWrite: -5})
	got := session.Check(tr)
	want := session.Violation{Rule: "usage", Where: "session ses_1", Detail: "cache_write is -5"}
	if len(got) != 2 || got[0] != want || got[1].Rule != "rollup" {
		t.Errorf("Check = %v, want %v and a rollup", got, want)
	}
}

func TestEveryRuleHasACase(t *testing.T) {
	var have, want []string
	for _, v := range violations {
		have = append(have, v.rule)
	}
	slices.Sort(have)
	for _, r := range session.Rules() {
		want = append(want, r.Rule)
		if !strings.HasSuffix(r.Doc, ".") || r.Rule == "" {
			t.Errorf("rule %q is documented as %q, want a sentence", r.Rule, r.Doc)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(have)); diff != "" {
		t.Errorf("rules with a case (-want +got):\n%s", diff)
	}
}

func TestCheckRollup(t *testing.T) {
	hidden := new(int64(1000))
	for _, tt := range []struct {
		name   string
		change func(*session.Transcript)
		input  int64
	}{
		{"tail named", func(*session.Transcript) {}, 11},
		{"flat form", func(t *session.Transcript) {
			part(t, "data-compaction", "").DataJSON = `{"type":"data-compaction","summary":"S","tail_start_id":"msg_3"}`
		}, 11},
		{"tail null", data("data-compaction", "", `"msg_3"`, `null`), 1},
		{"tail unknown", data("data-compaction", "", `"msg_3"`, `"msg_9"`), 1},
		{"tail hidden", func(t *session.Transcript) { t.Messages[2].Message.HiddenAt = hidden }, 1},
		{"compaction hidden", func(t *session.Transcript) { t.Messages[4].Message.HiddenAt = hidden }, 1010},
		{"no compaction", func(t *session.Transcript) { t.Messages = t.Messages[:4] }, 1010},
		{"earlier compaction", func(t *session.Transcript) {
			m := t.Messages[4]
			m.Message.ID, m.Message.CreatedAt = "msg_0", 250
			m.Message.MetadataJSON = `{}`
			m.Parts = []session.Part{{ID: "prt_c", MessageID: "msg_0", SessionID: "ses_1", Type: "data-compaction",
				DataJSON: `{"type":"data-compaction","data":{"summary":"","tail_start_id":"msg_1"}}`, CreatedAt: 250,
				UpdatedAt: 250}}
			t.Messages = slices.Insert(t.Messages, 2, m)
		}, 11},
		{"system and user messages", func(t *session.Transcript) {
			t.Messages[2].Message.Role = session.RoleSystem
			t.Messages[4].Message.CreatedAt++
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := validTranscript()
			tt.change(tr)
			u := session.Usage{Input: tt.input}
			switch tt.input {
			case 11:
				u = u.Add(session.Usage{Output: 2, Reasoning: 3, CacheRead: 4, CacheWrite: 5})
			case 1010:
				u = u.Add(session.Usage{Output: 3, Reasoning: 3, CacheRead: 4, CacheWrite: 5})
			}
			tr.Session.SetUsage(u)
			for _, v := range session.Check(tr) {
				if v.Rule == "rollup" || v.Rule == "total" {
					t.Error(v)
				}
			}
		})
	}
}

func TestCheckEmpty(t *testing.T) {
	want := []session.Violation{
		{Rule: "ids", Where: "session", Detail: "id is empty"},
		{Rule: "json", Where: "session", Detail: "permissions_json is not a JSON array"},
		{Rule: "json", Where: "session", Detail: "metadata_json is not a JSON object"},
	}
	if diff := cmp.Diff(want, session.Check(nil)); diff != "" {
		t.Errorf("Check(nil) (-want +got):\n%s", diff)
	}
	if got, want := want[0].String(), "session: id is empty [ids]"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

// FuzzCheck checks transcripts that no codec would accept.
func FuzzCheck(f *testing.F) {
	for _, t := range append(reference(f), validTranscript(), new(session.Transcript)) {
		data, err := json.Marshal(t)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	rules := make(map[string]bool)
	for _, r := range session.Rules() {
		rules[r.Rule] = true
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tr session.Transcript
		if json.Unmarshal(data, &tr) != nil {
			return
		}
		before, _ := json.Marshal(&tr)
		for _, v := range session.Check(&tr) {
			if !rules[v.Rule] || v.Where == "" || v.Detail == "" {
				t.Errorf("violation %+v", v)
			}
		}
		if after, _ := json.Marshal(&tr); !bytes.Equal(before, after) {
			t.Error("Check changed the transcript")
		}
	})
}
