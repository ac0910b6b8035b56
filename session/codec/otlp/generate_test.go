package otlp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

const begin = 1_795_198_540_000 // Unix milliseconds

func ptr[T any](v T) *T { return &v }

// generator makes sessions as stores have them: of the SDK and of other agents, with
// rewinds, compactions, denied calls, damaged parts and incomplete messages.
type generator struct {
	r   *rand.Rand
	s   *codec.Session
	now int64
	n   int
}

// generate makes the session of a seed. It is sound, and nothing of it is lost.
func generate(seed uint64) *codec.Session {
	g := &generator{r: rand.New(rand.NewPCG(seed, 17)), now: begin}
	id := fmt.Sprintf("ses_generated%d", seed)
	g.s = &codec.Session{Transcript: &session.Transcript{Session: session.Session{
		ID: id, Title: pick(g, "New Chat", "Fix <the> test & \"quote\"", "日本語\u202e"), Agent: pick(g, "unknown", "coder"),
		PermissionsJSON: pick(g, "[]", `[{"permission":"bash","pattern":"ls *","action":"allow","source":"session"}]`),
		MetadataJSON:    pick(g, "{}", `{"agenttrace":{"outcome":"error","error":"boom"},"status":{"state":"error","at":1795198540001}}`, `{"a":[1,{"b":null}],"status":"mine"}`),
		CreatedAt:       begin,
	}}}
	row := &g.s.Session
	if g.chance(2) {
		row.Mode, row.WorkspaceRoot = ptr(pick(g, "plan", "")), ptr("/w")
		row.ModelJSON = ptr(`{"provider_id":"openai","model_id":"gpt-5"}`)
	}
	if g.chance(3) {
		row.ParentID, row.ParentMessageID = ptr("ses_parent"), ptr("msg_parent")
	}
	for turn := range 1 + g.r.IntN(6) {
		if g.chance(8) {
			g.message(session.RoleSystem, "{}", g.text("system note"))
		}
		for range 1 + g.r.IntN(8)/7 {
			g.message(session.RoleUser, pick(g, "{}", `{"model":{"provider_id":"openai","model_id":"gpt-5"}}`, `{"trigger":{"source":"cron"}}`, `{"model":{"model_id":"m"},"agent":"coder"}`),
				g.text("question"))
		}
		if g.chance(10) {
			continue // nothing answered
		}
		g.answer(turn)
		if g.chance(5) {
			g.compact()
		}
		if g.chance(4) {
			g.rewind()
		}
	}
	row.UpdatedAt = g.now + 5
	if g.chance(4) {
		row.ArchivedAt = ptr(g.now + 3)
	}
	g.sum()
	return g.s
}

func pick[T any](g *generator, of ...T) T { return of[g.r.IntN(len(of))] }

func (g *generator) chance(in int) bool { return g.r.IntN(in) == 0 }

func (g *generator) id(prefix string) string {
	g.n++
	return spans.DeriveID(prefix, g.now, g.s.Session.ID, fmt.Sprint(g.n))
}

// message adds a message of the parts, which are types and data.
func (g *generator) message(role, metadata string, parts ...session.Part) *session.MessageAndParts {
	g.now += int64(1 + g.r.IntN(50))
	m := session.MessageAndParts{Message: session.Message{
		ID: g.id(spans.PrefixMessage), SessionID: g.s.Session.ID, Role: role, MetadataJSON: metadata, CreatedAt: g.now,
	}}
	for i := range parts {
		p := parts[i]
		p.ID, p.MessageID, p.SessionID, p.Index = g.id(spans.PrefixPart), m.Message.ID, g.s.Session.ID, int64(i)
		p.CreatedAt = g.now
		g.now += int64(g.r.IntN(20))
		p.UpdatedAt = g.now
		var data struct{ ToolCallID, State string }
		if isTool(&p) && json.Unmarshal([]byte(p.DataJSON), &data) == nil {
			p.ToolCallID, p.ToolState = &data.ToolCallID, &data.State
		}
		m.Parts = append(m.Parts, p)
	}
	m.Message.UpdatedAt = g.now
	g.s.Messages = append(g.s.Messages, m)
	return &g.s.Messages[len(g.s.Messages)-1]
}

func part(partType, data string) session.Part { return session.Part{Type: partType, DataJSON: data} }

func (g *generator) text(words string) session.Part {
	return part("text", pick(g, `{"type":"text","text":"`+words+`"}`, `{"type":"text","text":"a\u0000\n\"`+words+`","state":"done"}`,
		`{"type":"text","text":"<b>&","providerMetadata":{"x":{"y":1}}}`))
}

func (g *generator) tool() session.Part {
	id := g.id("call_")
	switch g.r.IntN(8) {
	case 0:
		return part("tool-bash", `{"type":"tool-bash","toolCallId":"`+id+`","state":"output-error","input":{"cmd":"rm -r /"},"errorText":"permission denied","toolMetadata":{"agenttrace":{"denied":true}}}`)
	case 1:
		return part("dynamic-tool", `{"type":"dynamic-tool","toolName":"mcp__x","toolCallId":"`+id+`","state":"output-available","output":[1,"input"],"input":"raw"}`)
	case 2:
		return part("tool-read", `{"type":"tool-read","toolCallId":"`+id+`","state":"input-streaming","toolMetadata":{"agenttrace":{"stub":true,"state":"output-available"}}}`)
	case 3:
		return part("tool-bash", `{"type":"tool-bash","toolCallId":"`+id+`","state":"output-denied","input":{},"approval":{"id":"per_1","approved":false}}`)
	case 4:
		return part("tool-bash", `{"type":"tool-bash","toolCallId":"`+id+`","state":"approval-requested","input":{"a":1},"approval":{"id":"per_1"}}`)
	case 5:
		return part("tool-bash", `{ "type":"tool-bash","toolCallId":"`+id+`", "input": {"input":"x","output":"y"} ,"output" : "out" ,"state":"output-available","callProviderMetadata":{"p":{"output":1}}}`)
	}
	return part("tool-bash", `{"type":"tool-bash","toolCallId":"`+id+`","state":"output-available","input":{"cmd":"ls"},"output":{"stdout":"a\nb"},"toolMetadata":{"agenttrace":{"duration_ms":3,"kind":"execute","truncated":true,"output_path":"out/1.txt"}}}`)
}

func (g *generator) answer(turn int) {
	var parts []session.Part
	for range g.r.IntN(5) {
		switch g.r.IntN(6) {
		case 0:
			parts = append(parts, part("reasoning", `{"type":"reasoning","text":"hm"}`))
		case 1:
			parts = append(parts, g.text("answer"))
		case 2:
			parts = append(parts, part("data-damaged", `{"type":"data-damaged","data":{"type":"file","text":"{\"id\":"}}`))
		case 3:
			parts = append(parts, part("text", `{"type":"text","text":"half a wo","providerMetadata":{"agenttrace":{"stub":true,"truncated":true}}}`))
		default:
			parts = append(parts, g.tool())
		}
	}
	m := session.MessageMetadata{Agent: pick(g, "", "coder")}
	if g.chance(2) {
		m.Model = &session.Model{ProviderID: "openai", ModelID: pick(g, "gpt-5", "")}
	}
	if !g.chance(4) {
		m.Usage = &session.Usage{Input: g.r.Int64N(1000), Output: g.r.Int64N(100), CacheRead: g.r.Int64N(10)}
		m.Trace.UsageBasis = pick(g, "inclusive", "mixed", "")
		m.Trace.UsageRaw = pick(g, nil, json.RawMessage(`{"in":1}`), json.RawMessage(`[{"in":1},{"in":2}]`))
	}
	if g.chance(2) {
		m.Trace.TurnIndex = ptr(int64(turn))
	}
	if g.chance(3) {
		m.Trace.CostUSD = ptr(float64(g.r.IntN(1000)) / 1e6)
	}
	m.Trace.EndReason = pick(g, "", "finish", "abort")
	m.Trace.StopReason, m.Trace.StopReasonRaw = pick(g, "", "stop"), pick(g, "", "end_turn")
	m.Trace.ResponseID, m.Trace.ModelCalls = pick(g, "", "resp_1"), g.r.Int64N(3)
	if g.chance(4) {
		m.Trace.ModelErrors = []string{"rate limit", "overloaded", "again"}[:1+g.r.IntN(3)]
	}
	if g.chance(4) {
		m.Trace.Incomplete = true
		if n := len(m.Trace.ModelErrors); n > 0 && g.chance(2) {
			m.Trace.Error = m.Trace.ModelErrors[n-1]
		}
	} else if g.chance(6) {
		m.Trace.EndReason, m.Trace.Error = "error", "gave up"
	}
	var prompt store.Blob
	if g.chance(3) {
		body := pick(g, "You are a coder.", "You are another.")
		sum := sha256.Sum256([]byte(body))
		m.SystemPromptDigest = hex.EncodeToString(sum[:])
		prompt = store.Blob{Kind: store.BlobSystemPrompt, Digest: m.SystemPromptDigest, Body: body, Exact: true}
	}
	metadata, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	switch g.r.IntN(6) {
	case 0:
		metadata = []byte(`{"agenttrace":{"incomplete":true}}`)
	case 1:
		metadata = []byte(`{"agenttrace":{"incomplete":true,"seen":"2026-11-20T22:15:40.000000000Z"},"custom":true}`)
	case 2:
		metadata = append(metadata[:len(metadata)-1], `,"zeta":{"k":[]}}`...)
		if string(metadata[:2]) == "{," {
			metadata = append([]byte("{"), metadata[2:]...)
		}
	}
	a := g.message(session.RoleAssistant, string(metadata), parts...)
	defer func() {
		if strings.Contains(a.Message.MetadataJSON, `"system_prompt_digest"`) && !slices.Contains(g.s.Blobs, prompt) {
			g.s.Blobs = append(g.s.Blobs, prompt)
		}
	}()
	for i := range a.Parts {
		if p := &a.Parts[i]; isTool(p) && g.chance(2) {
			d := store.Decision{
				ID: g.id(spans.PrefixPermission), SessionID: g.s.Session.ID, MessageID: a.Message.ID, PartID: p.ID, ToolCallID: *p.ToolCallID,
				ToolID: "bash", Action: "ask", Source: "session", Outcome: "denied", Reply: "reject", DecidedAt: p.CreatedAt,
			}
			if g.chance(2) {
				d.WaitedMS, d.TraceID, d.SpanID = ptr(int64(1500)), "0000000000000000000000000000000a", fmt.Sprintf("%016x", g.n)
			}
			g.s.Decisions = append(g.s.Decisions, d)
		}
	}
	if n := len(a.Parts); n > 1 && g.chance(3) {
		// One that stood before the last never came.
		a.Message.MetadataJSON = `{"agenttrace":{"gap":true,"incomplete":true}}`
		a.Parts[n-1].Index += 2
	}
}

func (g *generator) compact() {
	tail := "null"
	if g.chance(2) {
		tail = `"` + g.s.Messages[g.r.IntN(len(g.s.Messages))].Message.ID + `"`
	}
	g.message(session.RoleAssistant, `{"agenttrace":{"duration_ms":5,"input_tokens":10,"output_tokens":2,"summarized_message_count":3},"compaction":true,"usage":{"input":7,"output":0,"reasoning":0,"cache_read":0,"cache_write":0}}`,
		part(session.TypeCompaction, `{"type":"data-compaction","data":{"summary":"so far","tail_start_id":`+tail+`,"auto":true,"summary_tokens":7}}`))
}

func (g *generator) rewind() {
	g.now++
	to := g.r.IntN(len(g.s.Messages))
	for i := to + 1; i < len(g.s.Messages); i++ {
		if m := &g.s.Messages[i].Message; m.HiddenAt == nil {
			m.HiddenAt = ptr(g.now)
		}
	}
	g.now++
}

// sum makes the session's sums what the rules want.
func (g *generator) sum() {
	row := &g.s.Session
	start, tail := 0, ""
	for i := range g.s.Messages {
		m := &g.s.Messages[i]
		if m.Message.Role == session.RoleAssistant {
			_, cost := session.UsageOf(m.Message.MetadataJSON)
			row.CostUSD = store.AddCost(row.CostUSD, cost)
		}
		if p := compaction(m); p != nil && m.Message.HiddenAt == nil {
			start, tail = i, session.TailStartID(p.DataJSON)
		}
	}
	for i := range g.s.Messages {
		if g.s.Messages[i].Message.ID == tail {
			start = i
		}
	}
	var sum session.Usage
	for i := start; i < len(g.s.Messages); i++ {
		if m := &g.s.Messages[i].Message; m.Role == session.RoleAssistant && m.HiddenAt == nil {
			usage, _ := session.UsageOf(m.MetadataJSON)
			sum = sum.Add(usage)
		}
	}
	row.SetUsage(sum)
}

func TestGenerated(t *testing.T) {
	n := uint64(120)
	if testing.Short() {
		n = 30
	}
	for seed := range n {
		s := generate(seed)
		if v := session.Check(s.Transcript); len(v) > 0 {
			t.Fatalf("seed %d: the generator is at fault: %v", seed, v)
		}
		if losses := Explain(s); len(losses) > 0 {
			t.Errorf("seed %d: %+v", seed, losses)
		}
		comesBack(t, s)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzEncode writes any session whose rows can be read, and wants what comesBack does.
func FuzzEncode(f *testing.F) {
	for seed := range uint64(4) {
		var b bytes.Buffer
		if err := jsonl.Encode(&b, generate(seed).Transcript); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		for tr, err := range jsonl.Decode(bytes.NewReader(lines)) {
			if err != nil {
				return
			}
			s := &codec.Session{Transcript: tr}
			if s.CheckTree() != nil || s.Session.ID == "" || len(session.Check(tr)) > 0 || len(Explain(s)) > 0 {
				// What breaks a rule is only written, and must be read as something sound.
				if td, err := Encode(s, Options{}); err == nil {
					st := emptyStore(t)
					deliver(t, st, td)
				}
				continue
			}
			comesBack(t, s)
		}
	})
}
