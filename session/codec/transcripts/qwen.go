package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Qwen reads chats of Qwen Code: JSON lines with messages in the form of the Gemini API, each of which names the record
// that it follows from. A rewind, and a message of the user that follows from an earlier record than the last, leaves
// what was between.
//
// The program's own telemetry is among the records: ids of prompts and responses, how calls were decided, and errors of
// model calls, which no message has. A sub-agent has a file of its own, agent-<id>.jsonl, and one beside that names the
// call that started it. The first versions wrote chats of the form that [Gemini] reads.
var Qwen = decodeQwen.reading(codec.Reading{
	Keys: []string{"uuid sessionId provenance=*", "uuid sessionId systemPayload={",
		"uuid sessionId type=tool_result"},
	Extensions: []string{".jsonl"}, SniffText: sniffQwen, Appends: true, Beside: Claude.Beside,
})

// sniffQwen reports whether a file has messages of the Gemini API in records whose keys other programs have, too.
func sniffQwen(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte(`"parentUuid"`)) && bytes.Contains(line, []byte(`"parts"`)) &&
			rows.Read(string(line)).Object("message").Has("parts") {
			return true
		}
	}
	return false
}

var decodeQwen decoder = func(from *source, text []byte) []*codec.Session {
	d := &qwen{source: from, reached: make(map[string]int)}
	from.lines(text, d.read)
	return d.b.alone()
}

type qwen struct {
	*source
	b  *builder
	id string // of the session that the records name
	// reached is how many messages there were after each record.
	reached map[string]int
	// asked is what was answered last, and prompt the id that the program gives it.
	asked  *message
	prompt string
	// response is what telemetry reports of the answer to come, answering whether the record before was of an answer.
	response  rows.Object
	answering bool
}

func (d *qwen) read(o rows.Object) {
	id, kind := o.Text("sessionId"), o.Text("type")
	if id == "" || o.Text("uuid") == "" || d.b != nil && id != d.id {
		d.Problem("is not a record of the chat: left out")
		return
	} else if d.b == nil {
		d.begin(o, id)
	}
	if from := o.Object("forkedFrom").Text("sessionId"); from != "" {
		d.b.copies(from)
	} else {
		d.b.owns()
	}
	d.b.see(milli(o.Text("timestamp")))
	answering := d.answering
	d.answering = kind == session.RoleAssistant || kind == session.RoleSystem && answering
	switch kind {
	case session.RoleUser:
		d.leave(o.Text("parentUuid"), false)
		d.user(o)
	case session.RoleAssistant:
		d.assistant(o, answering)
	case "tool_result":
		d.result(o.Object("message").Get("parts"), o.Object("toolCallResult"))
	case session.RoleSystem:
		d.system(o, o.Object("systemPayload"))
	default:
		d.Problem("is of the unknown type %q: left out", kind)
	}
	d.reached[o.Text("uuid")] = len(d.b.messages)
}

// begin takes from the first record what all have.
func (d *qwen) begin(o rows.Object, id string) {
	d.id, d.b = id, newBuilder(d.source, id, "qwen-code")
	if sub := o.Text("agentId"); sub != "" {
		d.b = d.b.child(sub, "")
		d.b.sidecar(rows.Read(string(d.beside(nameOf(d.path) + ".meta.json"))))
		d.b.s.Row.Agent = cmp.Or(o.Text("agentName"), d.b.s.Row.Agent)
	}
	d.b.workspace(o.Text("cwd"))
	d.b.s.AddMeta(rows.NonEmpty("qwen_code", o.Texts("version", "gitBranch")))
}

// leave hides what followed from a record, as the user went back to it: rewinds may go to the beginning, which is "".
func (d *qwen) leave(to string, rewind bool) {
	from, known := d.reached[to]
	if (known || to == "" && rewind) && from < len(d.b.messages) {
		d.b.hide(from)
	}
}

// user adds what somebody but the model wrote. The parts have more than the user typed, which a record of newer
// versions has by itself.
func (d *qwen) user(o rows.Object) {
	b, role := d.b, session.RoleUser
	shown, by := o.Object("systemPayload").Text("displayText"), o.Text("provenance")
	if by != "" && by != "real_user" || o.Text("subtype") == "notification" ||
		o.Text("externalInputKind") == "notification" {
		role, shown = session.RoleSystem, ""
	}
	parts := partsOf(rows.TextPart("text", shown))
	for _, p := range contents(o.Object("message").Get("parts")) {
		if text := p.Text("text"); text == "" || shown == "" {
			parts = append(parts, partOf(p))
		} else if text != shown {
			parts = append(parts, contextPart(text))
		}
	}
	if m := b.message(role, parts...); m != nil {
		d.asked, d.prompt = m, o.Text("promptId")
		m.named(o.Text("uuid"), d.prompt, "")
	}
}

// assistant adds a record of an answer. Sub-agents record each of its calls by itself, without the usage.
func (d *qwen) assistant(o rows.Object, answering bool) {
	b, used, model := d.b, o.Object("usageMetadata"), o.Text("model")
	if !answering || used != nil || model != "" || b.turn == nil {
		step := b.response(d.response.Text("response_id"))
		if b.turn.named("", d.prompt, ""); used != nil {
			step.count(modelUse{usage: qwenUsage(used)}, semconv.BasisInclusive)
		}
	}
	b.model("", model)
	d.response = nil
	for _, p := range contents(o.Object("message").Get("parts")) {
		b.block(p)
	}
	b.answered()
}

// qwenUsage reads the counts of an answer. The output has the thoughts, unless the total shows that it does not.
func qwenUsage(o rows.Object) session.Usage {
	k := counts{"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount", ""}
	u, output, thoughts := k.capped(o), number(o, k.output), number(o, k.reasoning)
	if number(o, "totalTokenCount") == number(o, k.input)+output+thoughts {
		u.Output, u.Reasoning = output, thoughts
	}
	return u
}

// result settles the call that parts of a record have the response of. about is what the program shows of it.
func (d *qwen) result(parts json.RawMessage, about rows.Object) {
	id, status := about.Text("callId"), about.Text("status")
	for p := range rows.Objects(parts) {
		id = cmp.Or(id, p.Object("functionResponse").Text("id"))
	}
	output, failed := geminiResult(parts)
	if !d.b.result(id, output, failed || status == "error" || status == "cancelled") {
		return
	}
	d.b.lasted(id, number(about, "durationMs"))
	text, _ := rows.Text(output)
	reason, cancelled := strings.CutPrefix(text, operationCancelled)
	if about.Text("errorType") == "execution_denied" {
		d.b.denied(id, text)
	} else if cancelled && beginsWith(reason, refusedByUser) && !d.b.calls[id].failed { // telemetry reports it, too
		d.b.judged(id, "reject", reason)
	}
}

// system reads a record that is no message.
func (d *qwen) system(o, about rows.Object) {
	b := d.b
	switch o.Text("subtype") {
	case "ui_telemetry":
		d.event(about.Object("uiEvent"))
	case "rewind":
		d.leave(o.Text("parentUuid"), true)
	case "chat_compression":
		info, summary := about.Object("info"), ""
		if list := rows.Elements(about.Get("compressedHistory")); len(list) > 0 {
			summary = joined(contents(rows.Read(string(list[0])).Get("parts")), "\n\n")
		}
		b.compaction(compacted{summary: summary, auto: info.Text("triggerReason") != "manual",
			before: number(info, "originalTokenCount"), after: number(info, "newTokenCount")})
	case "custom_title":
		b.Title = about.Text("customTitle")
	case "parent_session":
		b.parent(about.Text("parentSessionId"))
	case "session_approval_mode":
		b.mode(about.Text("mode"))
	}
}

// qwenPrompt is the id of a prompt of the user, as telemetry has it, too. Those of sub-agents name them.
var qwenPrompt = lazy.Regexp(`########\d+$`)

// event reads what the program reported to telemetry. What sub-agents do, their files have.
func (d *qwen) event(e rows.Object) {
	b, prompt := d.b, e.Text("prompt_id")
	if e.Text("subagent_name") != "" || prompt != "" && !strings.Contains(prompt, "########") {
		return
	}
	if qwenPrompt().MatchString(prompt) && d.asked != nil {
		d.prompt = prompt
		d.asked.named("", prompt, "")
	}
	switch strings.TrimPrefix(e.Text("event.name"), "qwen-code.") {
	case "api_response":
		d.response = e
	case "api_error":
		b.fails(cmp.Or(e.Text("error_message"), e.Text("error"), "error"))
	case "tool_call":
		id := e.Text("call_id")
		if e.Text("execution_status") != "not_started" {
			b.lasted(id, number(e, "duration_ms"))
		}
		switch decision := e.Text("decision"); decision {
		case "reject":
			b.judged(id, "reject", "")
		case "accept":
			b.decide(id, store.Decision{Action: "allow", Outcome: "allowed"})
		case "auto_accept", "modify":
			reply := map[string]string{"auto_accept": "always", "modify": "once"}[decision]
			b.decide(id, store.Decision{Action: "ask", Outcome: "allowed", Reply: reply})
		}
	}
}
