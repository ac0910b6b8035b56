package codectest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/store"
)

// EveryPart is the data of a part of every type, and of a tool in every state. A call's
// id is its place in the list.
var EveryPart = []string{
	`{"type":"step-start"}`,
	`{"type":"text","text":"plain"}`,
	`{"type":"text","text":"","state":"streaming"}`,
	`{"type":"reasoning","text":"hm","state":"done","providerMetadata":{"p":{"n":1.50}}}`,
	`{"type":"file","mediaType":"image/png","filename":"a.png","url":"data:image/png;base64,AAAA"}`,
	`{"type":"file","mediaType":"text/html","url":"https://example.com/a?b=1&c=<d>"}`,
	`{"type":"file","mediaType":"text/plain","url":"file:///tmp/a%20b.txt"}`,
	`{"type":"source-url","sourceId":"s1","url":"https://example.com","title":"T"}`,
	`{"type":"source-document","sourceId":"s2","mediaType":"text/plain","title":"T","filename":"f"}`,
	`{"type":"tool-bash","toolCallId":"call_9","state":"input-streaming"}`,
	`{"type":"tool-bash","toolCallId":"call_10","state":"input-available","input":{"command":"ls"}}`,
	`{"type":"tool-bash","toolCallId":"call_11","state":"approval-requested","input":{},"approval":{"id":"a"}}`,
	`{"type":"tool-bash","toolCallId":"call_12","state":"approval-responded","input":{},"approval":{"id":"a",` +
		`"approved":true,"reason":"fine"}}`,
	`{"type":"tool-bash","toolCallId":"call_13","state":"output-available","input":{"command":"ls","n":1e-05},` +
		`"output":{"stdout":"a\nb"},"toolMetadata":{"agenttrace":{"duration_ms":3,"truncated":true,` +
		`"output_path":"out/1.txt"}}}`,
	`{"type":"tool-bash","toolCallId":"call_14","state":"output-available","input":null,"output":"text",` +
		`"preliminary":true}`,
	`{"type":"tool-bash","toolCallId":"call_15","state":"output-error","input":{"command":"x"},"errorText":"exit 1"}`,
	`{"type":"tool-bash","toolCallId":"call_16","state":"output-denied","input":{},"approval":{"id":"a",` +
		`"approved":false}}`,
	`{"type":"dynamic-tool","toolName":"mcp__x","toolCallId":"call_17","state":"output-available","input":[],` +
		`"output":[1,2]}`,
	`{"type":"dynamic-tool","toolName":"mcp__x","toolCallId":"call_18","state":"output-error","errorText":""}`,
	`{"type":"data-note","id":"n","data":[{"deep":[[null]]}]}`,
	`{"type":"data-damaged","data":{"type":"file","text":"{\"id\":"}}`,
	`{"type":"data-withheld","data":{"text":"the policy of the company"}}`,
	`{"type":"data-unfinished","data":{"text":"the end was not reported"}}`,
}

// builder makes a session row by row.
type builder struct {
	*codec.Session
	n int
}

func build(id string, at int64) *builder {
	return &builder{Session: &codec.Session{Transcript: &session.Transcript{Session: session.Session{
		ID: id, Title: "New Chat", Agent: "coder", PermissionsJSON: "[]", MetadataJSON: "{}",
		CreatedAt: at, UpdatedAt: at,
	}}}}
}

// add adds a message of the parts, at the time.
func (b *builder) add(at int64, role, metadata string, parts ...string) *session.MessageAndParts {
	b.n++
	m := session.MessageAndParts{Message: session.Message{
		ID: fmt.Sprintf("msg_%s_%03d", b.Session.Session.ID, b.n), SessionID: b.Session.Session.ID, Role: role,
		MetadataJSON: metadata, CreatedAt: at, UpdatedAt: at,
	}}
	for i, data := range parts {
		var d struct {
			Type, State string
			ToolCallID  string `json:"toolCallId"`
		}
		if err := json.Unmarshal([]byte(data), &d); err != nil {
			panic(fmt.Sprintf("part %s: %v", data, err))
		}
		p := session.Part{ID: fmt.Sprintf("prt_%s_%03d_%02d", b.Session.Session.ID, b.n, i), MessageID: m.Message.ID,
			SessionID: m.Message.SessionID, Index: int64(i), Type: d.Type, DataJSON: data, CreatedAt: at, UpdatedAt: at}
		if session.IsToolType(d.Type) {
			p.ToolCallID, p.ToolState = &d.ToolCallID, &d.State
		}
		m.Parts = append(m.Parts, p)
	}
	b.Messages = append(b.Messages, m)
	b.Session.Session.UpdatedAt = max(b.Session.Session.UpdatedAt, at)
	return &b.Messages[len(b.Messages)-1]
}

// done makes the sums what the messages say.
func (b *builder) done() *codec.Session {
	row := &b.Session.Session
	row.SetUsage(b.ContextUsage())
	for i := range b.Messages {
		if b.Messages[i].Message.Role == session.RoleAssistant {
			_, cost := session.UsageOf(b.Messages[i].Message.MetadataJSON)
			row.CostUSD = store.AddCost(row.CostUSD, cost)
		}
	}
	return b.Session
}

func said(text string) string { return `{"type":"text","text":` + quoted(text) + "}" }

// Corpus are the sessions of the suite that were made by hand, each an example of one
// thing. The caller owns them.
func Corpus() []Sample {
	const user, assistant, system = session.RoleUser, session.RoleAssistant, session.RoleSystem
	var all []Sample
	add := func(name string, b *builder) { all = append(all, Sample{name, b.done()}) }

	add("without messages", build("ses_empty", began))

	b := build("ses_turn", began)
	b.add(began, user, "{}", said("hello"))
	b.add(began+10, assistant,
		`{"model":{"provider_id":"openai","model_id":"gpt-5"},"usage":{"input":10,"output":2,"reasoning":1,`+
			`"cache_read":4,"cache_write":3},"agenttrace":{"end_reason":"finish","stop_reason":"stop",`+
			`"cost_usd":0.0125}}`, said("hi"))
	add("one turn", b)

	b = build("ses_nothing_said", began)
	b.add(began, system, "{}")
	b.add(began+1, user, "{}")
	b.add(began+2, assistant, "{}")
	add("messages without parts", b)

	b = build("ses_parts", began)
	b.add(began, user, "{}", EveryPart[1], EveryPart[4], EveryPart[6])
	b.add(began+1, assistant, "{}", EveryPart...)
	add("every part", b)

	b = build("ses_roles", began)
	for i, role := range []string{system, assistant, assistant, user, user, system, user, assistant} {
		b.add(began+int64(i), role, "{}", said(role))
	}
	add("roles in any order", b)

	b = build("ses_rewound", began)
	b.add(began, user, "{}", said("kept"))
	b.add(began+1, assistant, `{"usage":{"input":1,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		said("kept"))
	b.add(began+2, user, "{}", said("hidden")).Message.HiddenAt = new(int64(began + 9))
	b.add(began+3, assistant, `{"usage":{"input":5,"output":5,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		said("hidden")).Message.HiddenAt = new(int64(began + 9))
	b.add(began+10, user, "{}", said("after"))
	add("a rewind", b)

	b = build("ses_hidden", began)
	b.add(began, user, "{}", said("hidden alone")).Message.HiddenAt = new(int64(began))
	b.add(began+1, assistant, "{}", said("seen"))
	add("hidden by no rewind", b)

	b = build("ses_fork", began)
	b.Session.Session.ParentID, b.Session.Session.ParentMessageID = new("ses_turn"), new("msg_ses_turn_001")
	b.add(began-1000, user, "{}", said("from before the fork"))
	b.add(began, assistant, "{}", said("after it"))
	add("a fork", b)

	b = build("ses_archived", began)
	row := &b.Session.Session
	row.ArchivedAt, row.Mode, row.WorkspaceID, row.WorkspaceRoot = new(int64(began+1)), new("plan"), new("wks_1"),
		new("/w")
	row.ModelJSON, row.PermissionsJSON, row.MetadataJSON = new(`{"provider_id":"p","model_id":"m","variant":"high"}`),
		permissions, `{"agenttrace":{"outcome":"finish"},"mine":{"a":[1]}}`
	row.UpdatedAt = began + 2
	add("every column", b)

	b = build("ses_blank", began)
	row = &b.Session.Session
	row.Title, row.Agent, row.Mode, row.WorkspaceID, row.WorkspaceRoot = "", "", new(""), new(""), new("")
	b.add(began, user, "{}", said(""))
	b.add(began+1, assistant, `{"agent":"","model":{},"agenttrace":{}}`, said(""))
	add("empty texts", b)

	b = build("ses_compacted", began)
	b.add(began, user, "{}", said("long ago"))
	b.add(began+1, assistant, `{"usage":{"input":100,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		said("before"))
	tail := b.add(began+2, user, "{}", said("the tail")).Message.ID
	b.add(began+3, assistant, `{"usage":{"input":10,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		said("in the tail"))
	b.add(began+4, assistant,
		`{"compaction":true,"usage":{"input":7,"output":0,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		`{"type":"data-compaction","data":{"summary":"So far.","tail_start_id":"`+tail+`","auto":true,`+
			`"summary_tokens":7}}`)
	b.add(began+5, user, "{}", said("go on"))
	add("a compaction with a tail", b)

	b = build("ses_gap", began)
	m := b.add(began, assistant, `{"agenttrace":{"incomplete":true}}`, said("first"), said("third"), said("late"))
	m.Parts[1].Index, m.Parts[2].Index = 2, 900
	add("gaps among parts", b)

	b = build("ses_still", began)
	for i := range 6 {
		b.add(began, []string{user, assistant}[i%2], "{}", said(fmt.Sprint(i)), said("and"))
	}
	add("one time for all", b)

	b = build("ses_1970", 0)
	b.add(0, user, "{}", said("zero"))
	b.add(1, assistant, "{}", said("one"))
	add("the year 1970", b)

	b = build("ses_9999", lastTime-10)
	b.add(lastTime-10, user, "{}", said("late"))
	b.add(lastTime, assistant, "{}", said("the last"))
	add("the year 9999", b)

	b = build("ses_scripts é/\"\\ 日", began)
	b.Session.Session.Title = "👩‍👩‍👧‍👦 e\u0301 \u2028 \u202e"
	for i, text := range texts {
		b.add(began+int64(i), []string{user, assistant}[i%2], "{}", said(text))
	}
	b.add(began+1000, assistant, "{}", `{"type":"text","text":"\u0000 \ud83d \ud83d\ude00 \/ \u003c"}`,
		`{ "text" : "spaced" , "type" : "text" }`)
	add("texts of every script", b)

	b = build("ses_decided", began)
	m = b.add(began, assistant, "{}", EveryPart[15], EveryPart[16])
	b.Decisions = []store.Decision{
		{ID: "per_1", SessionID: "ses_decided", MessageID: m.Message.ID, PartID: m.Parts[0].ID, ToolCallID: "call_15",
			ToolID: "bash", Pattern: "rm *", Action: "ask", Source: "manifest", Outcome: "allowed",
			Reply: "always", Reason: "é",
			WaitedMS: new(int64(10)), DecidedAt: began, TraceID: "0000000000000000000000000000000a",
			SpanID: "000000000000000b"},
		{ID: "per_2", SessionID: "ses_decided", MessageID: m.Message.ID, PartID: m.Parts[1].ID, ToolCallID: "call_16",
			ToolID: "bash", Action: "deny", Outcome: "denied", DecidedAt: began},
		{ID: "per_3", SessionID: "ses_decided", ToolID: "web", Action: "allow", Outcome: "allowed",
			WaitedMS: new(int64(0)), DecidedAt: began},
	}
	add("decisions", b)

	b = build("ses_prompted", began)
	prompt, catalog := "You are a coder.\n<b> & é", `[{"name":"bash"}]`
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	metadata := `{"system_prompt_digest":"` + digest(prompt) + `","agenttrace":{"tool_catalog_digest":"` +
		digest(catalog) + `"}}`
	b.add(began, user, "{}", said("go"))
	b.add(began+1, assistant, metadata, said("one"))
	b.add(began+2, assistant, metadata, said("two"))
	b.Blobs = []store.Blob{{Kind: store.BlobSystemPrompt, Digest: digest(prompt), Body: prompt, Exact: true},
		{Kind: store.BlobToolCatalog, Digest: digest(catalog), Body: catalog, Exact: true}}
	add("system prompt and tools", b)

	b = build("ses_interrupted", began)
	b.add(began, user, "{}", said("go"))
	m = b.add(began+1, assistant, `{"usage":{"input":3,"output":2,"reasoning":1,"cache_read":4,"cache_write":0},`+
		`"agenttrace":{"end_reason":"abort","stop_reason":"tool_calls","steps":[`+
		`{"usage":{"input":1,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}},{"usage":{"input":2,`+
		`"output":1,"reasoning":1,"cache_read":4,"cache_write":0}}]}}`,
		EveryPart[0], said("first"), EveryPart[13], EveryPart[0], said("second"), EveryPart[15], EveryPart[10])
	for i, d := range []store.Decision{
		{Action: "ask", Outcome: "allowed", Reply: "once"}, {Action: "allow", Outcome: "allowed"},
		{Action: "ask", Outcome: "denied", Reply: "reject"}, {Action: "ask", Outcome: "pending"},
	} {
		p := &m.Parts[[]int{2, 2, 5, 6}[i]]
		d.ID, d.SessionID, d.MessageID, d.PartID, d.ToolCallID, d.ToolID, d.DecidedAt = fmt.Sprint("per_i", i),
			"ses_interrupted", m.Message.ID, p.ID, *p.ToolCallID, "bash", began
		b.Decisions = append(b.Decisions, d)
	}
	add("an interrupted turn with questions and two model calls", b)

	b = build("ses_ends", began)
	for i, end := range []string{`{"end_reason":"finish","stop_reason":"stop"}`,
		`{"incomplete":true,"stop_reason":"tool_calls"}`,
		`{"end_reason":"finish","pending_approval":true,"stop_reason":"tool_calls"}`,
		`{"end_reason":"error","error":"overloaded"}`, `{"incomplete":true}`} {
		b.add(began+int64(2*i), user, "{}", said("go"))
		b.add(began+int64(2*i+1), assistant, `{"agenttrace":`+end+`}`, said("so far"))
	}
	add("turns that end in every way", b)

	for n, ends := range [][2]string{
		{`"end_reason":"finish"`, `"end_reason":"error","error":"no"`}, {`"end_reason":"finish"`, `"incomplete":true`},
		{`"end_reason":"error","error":"no"`, `"end_reason":"abort"`},
		{`"end_reason":"abort","pending_approval":true`, `"end_reason":"finish"`},
	} {
		b = build(fmt.Sprint("ses_rewound", n), began)
		for i, end := range ends {
			b.add(began+int64(2*i), user, "{}", said(fmt.Sprint("go ", i)))
			b.add(began+int64(2*i+1), assistant, `{"agenttrace":{`+end+`}}`, said("so far"))
		}
		b.Messages[2].Message.HiddenAt, b.Messages[3].Message.HiddenAt = new(int64(began+4)), new(int64(began+4))
		add("a turn that ended with "+ends[0]+", and a later one with "+ends[1]+" that a rewind hid", b)
	}

	b = build("ses_withheld", began)
	b.add(began, user, "{}", said("go"))
	b.add(began+1, assistant, "{}",
		`{"type":"tool-bash","toolCallId":"call_1","state":"output-available","input":{"command":"ls"},"output":null,`+
			`"toolMetadata":{"agenttrace":{"withheld":true}}}`,
		`{"type":"tool-bash","toolCallId":"call_2","state":"output-available","input":null,"output":null,`+
			`"toolMetadata":{"agenttrace":{"withheld":true,"input_withheld":true}}}`,
		`{"type":"tool-bash","toolCallId":"call_3","state":"output-available","input":{},"output":null}`,
		`{"type":"tool-bash","toolCallId":"call_4","state":"output-error","input":null,"errorText":"denied",`+
			`"toolMetadata":{"agenttrace":{"input_withheld":true}}}`)
	add("withheld values", b)

	b = build("ses_summarized", began)
	b.add(began, user, "{}", said("long ago"))
	b.add(began+1, assistant,
		`{"compaction":true,"usage":{"input":7,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},`+
			`"agenttrace":{"end_reason":"finish","input_tokens":70,"output_tokens":9}}`,
		`{"type":"data-compaction","data":{"summary":"So far.","tail_start_id":null,"auto":true,"summary_tokens":7}}`)
	add("a compaction that used tokens", b)

	b = build("ses_metadata", began)
	b.add(began, user, `{"agent":null,"trigger":{"source":"cron"},"é \"key\"":[1.50,1e400]}`, said("x"))
	b.add(began+1, assistant, `{ "zeta":{}, "agenttrace":{"later":[],"model_errors":["a","b"],`+
		`"usage_raw":{"in":1}}, "model":{"model_id":"m"} }`, said("y"))
	b.add(began+2, assistant,
		`{"usage":{"input":9007199254740993,"output":0,"reasoning":0,"cache_read":0,"cache_write":0},`+
			`"agenttrace":{"temperature":0.5,"cost_usd":1e-9}}`, said("z"))
	add("metadata of every kind", b)
	return all
}

// marked is a session with two turns of every frequent part. Its texts are those of the place of the session.
func marked(place int) *codec.Session {
	b := build(fmt.Sprintf("ses_marked%d", place), began+int64(place)*math.MaxUint16)
	at := b.Session.Session.CreatedAt
	for turn := range 2 {
		text := func(n int) string { return fmt.Sprintf("mark%dx%dx%d", place, turn, n) }
		b.add(at, session.RoleUser, "{}", said(text(0)))
		b.add(at+1, session.RoleAssistant,
			fmt.Sprintf(`{"usage":{"input":%d,"output":1,"reasoning":0,"cache_read":0,"cache_write":0}}`, turn),
			`{"type":"step-start"}`, `{"type":"reasoning","text":"`+text(1)+`"}`,
			`{"type":"tool-bash","toolCallId":"`+text(2)+`","state":"output-available","input":{"command":"`+text(3)+`"},`+
				`"output":"`+text(4)+`"}`, said(text(5)))
		at += 1000
	}
	return b.done()
}
