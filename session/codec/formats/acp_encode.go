package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// acpEncode writes the session as a trace of its own, a message per line as over stdio, from initialize on.
func acpEncode(s *codec.Session) []byte {
	e := &acpEncoder{s: s, t: s.Sorted(), calls: make(map[string]int), sent: make(map[string]int)}
	own := rows.Read(s.Session.MetadataJSON).Object("acp").Without("continued")
	e.version2 = string(own.Get("protocolVersion")) == "2"
	e.foreign = len(own) != 1 || !e.version2 && string(own.Get("protocolVersion")) != "1"
	e.session()
	for i := range e.t.Messages {
		e.message(&e.t.Messages[i])
	}
	return e.out
}

type acpEncoder struct {
	s        *codec.Session
	t        *session.Transcript
	version2 bool
	foreign  bool // the session never was a trace
	out      []byte

	calls  map[string]int  // calls by their ids
	sent   map[string]int  // numbers of requests, by who sent them
	prompt json.RawMessage // the id of the prompt that has no response yet
	text   string          // the kind of the text chunk that was written last
}

// send writes a message of the fields, which are keys and values in turn. A nil value is left out.
func (e *acpEncoder) send(fields ...any) {
	o := rows.Of("jsonrpc", "2.0")
	for field := range slices.Chunk(fields, 2) {
		if raw, ok := field[1].(json.RawMessage); !ok || raw != nil {
			o.Set(field[0].(string), field[1])
		}
	}
	e.out = append(append(e.out, o.JSON()...), '\n')
	e.text = ""
}

func (e *acpEncoder) ofSession(params rows.Object) rows.Object {
	return append(rows.Of("sessionId", e.t.Session.ID), params.Without("sessionId")...)
}

// request writes a request and returns its id. The ids of the two sides differ, so that a response shows to whom it
// goes.
func (e *acpEncoder) request(from, method string, params json.RawMessage) (id json.RawMessage) {
	if id = rows.Raw(e.sent[from]); from == acpAgent {
		id = rows.Raw(fmt.Sprint("a", e.sent[from]))
	}
	e.sent[from]++
	e.send("id", id, "method", method, "params", params)
	return id
}

// respond writes the response to a request. A JSON-RPC response has a result or an error.
func (e *acpEncoder) respond(id json.RawMessage, key string, value any) { e.send("id", id, key, value) }

// session writes how a session begins.
func (e *acpEncoder) session() {
	row := &e.t.Session
	e.initialize()
	params := rows.Of("cwd", cmp.Or(session.Deref(row.WorkspaceRoot), "/"), "mcpServers", []string{})
	result := rows.Of("sessionId", row.ID)
	if row.Mode != nil && !e.version2 {
		mode := rows.Of("id", *row.Mode, "name", *row.Mode)
		result.Set("modes", rows.Of("currentModeId", *row.Mode, "availableModes", []rows.Object{mode}))
	}
	e.respond(e.request(acpClient, acpMethodNew, params.JSON()), "result", result)
	if e.foreign && row.Title != session.Untitled {
		e.update("session_info_update", rows.Of("title", row.Title))
	}
}

// What a client sends first, in the versions of the protocol.
const (
	acpInitialize = `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},` +
		`"terminal":true,"session":{"notices":{},"compaction":{}},"logging":{}}}`
	acpInitialize2 = `{"protocolVersion":2,"info":{"name":"agenttrace","version":"0"},"capabilities":{}}`
)

// initialize begins the trace. The client can do all that the trace may go on to send it.
func (e *acpEncoder) initialize() {
	info, none := rows.Of("name", e.t.Session.Agent, "version", "0"), rows.Object{}
	params, result := acpInitialize,
		rows.Of("protocolVersion", 1, "agentCapabilities", none, "authMethods", []string{}, "agentInfo", info)
	if e.version2 {
		params, result = acpInitialize2, rows.Of("protocolVersion", 2, "info", info, "capabilities", none)
	}
	e.respond(e.request(acpClient, acpMethodInitialize, json.RawMessage(params)), "result", result)
}

// update writes a session/update.
func (e *acpEncoder) update(kind string, fields rows.Object) {
	update := append(rows.Of("sessionUpdate", kind), fields.Without("sessionUpdate")...)
	e.send("method", acpMethodUpdate, "params", e.ofSession(rows.Of("update", update)))
}

func (e *acpEncoder) message(m *session.MessageAndParts) {
	parts := dataOf(m)
	switch m.Message.Role {
	case session.RoleUser:
		e.user(m, parts)
	case session.RoleAssistant:
		e.assistant(m, parts)
		e.promptEnd(rows.Read(m.Message.MetadataJSON).Object("agenttrace"))
	default: // notices from before the first prompt
		for j := range m.Parts {
			e.other(&m.Parts[j], parts[j])
		}
	}
}

// block returns the content block of a part, nil when the protocol has none for it. The content part of a session that
// was not a trace is not known to hold one.
func (e *acpEncoder) block(p *session.Part, data rows.Object) rows.Object {
	if e.foreign && p.Type == acpTypeContent {
		return nil
	}
	return acpContentBlock(data)
}

// user writes a prompt. Parts of the message without a content block follow it.
func (e *acpEncoder) user(m *session.MessageAndParts, parts []rows.Object) {
	blocks, others := []rows.Object{}, []int(nil)
	for j := range m.Parts {
		if block := e.block(&m.Parts[j], parts[j]); block != nil && m.Parts[j].Type != "reasoning" {
			blocks = append(blocks, block)
		} else {
			others = append(others, j)
		}
	}
	params := e.ofSession(rows.Of("prompt", blocks))
	if trace := rows.Read(m.Message.MetadataJSON).Object("agenttrace"); trace.Has("traceparent") && !e.foreign {
		params.Set("_meta", trace.Only("traceparent"))
	}
	e.prompt = e.request(acpClient, acpMethodPrompt, params.JSON())
	if e.version2 { // in which the response accepts the prompt
		e.respond(e.prompt, "result", rows.Of("messageId", m.Message.ID))
		e.prompt = nil
	}
	for _, j := range others {
		e.other(&m.Parts[j], parts[j])
	}
}

// promptEnd writes the response to the prompt, if the turn is known to have ended.
func (e *acpEncoder) promptEnd(trace rows.Object) {
	stop, end := trace.Text("stop_reason"), trace.Text("end_reason")
	if e.prompt == nil || end == "" || trace.True("pending_approval") {
		// The turn waits for a human, or was not seen to end: what its last call of a model stopped for did not end it. A
		// prompt that has no response expresses that.
		return
	}
	id := e.prompt
	e.prompt = nil
	switch end {
	case semconv.EndError:
		e.respond(id, "error", rows.Of("code", -32603, "message", trace.Text("error")))
		return
	case semconv.EndAbort:
		stop = "cancelled" // whatever the model had stopped for before
	}
	result := rows.Of("stopReason",
		cmp.Or(acpStopReasons[strings.ReplaceAll(strings.ToLower(stop), "-", "_")], "end_turn"))
	if usage := trace.Get("usage_raw"); usage != nil && !e.foreign {
		result.Set("usage", usage)
	}
	e.respond(id, "result", result)
}

// acpStopReasons translate the words of models and providers.
var acpStopReasons = map[string]string{
	"cancelled": "cancelled", "length": "max_tokens", "max_tokens": "max_tokens",
	"max_output_tokens": "max_tokens", "model_length": "max_tokens",
	"model_context_window_exceeded": "max_tokens", "content_filter": "refusal", "refusal": "refusal", "safety": "refusal",
	"prohibited_content": "refusal", "blocklist": "refusal", "recitation": "refusal", "guardrail_intervened": "refusal",
	"sensitive": "refusal", "max_steps": "max_turn_requests", "max_turns": "max_turn_requests",
	"max_turn_requests": "max_turn_requests", "limit": "max_turn_requests",
}

func (e *acpEncoder) assistant(m *session.MessageAndParts, parts []rows.Object) {
	ends := make(map[int][]rows.Object) // of calls, by the part after which they come
	for j := range m.Parts {
		p, data := &m.Parts[j], parts[j]
		switch block := e.block(p, data); {
		case block != nil:
			e.chunk(p, block)
		case p.ToolCallID != nil && session.IsToolType(p.Type) && *p.ToolCallID != "":
			last, asked := e.lastDuring(m, parts, j)
			if end := e.tool(p, data, asked); end != nil {
				ends[last] = append(ends[last], end)
			}
		default:
			e.other(p, data)
		}
		for _, end := range ends[j] {
			e.update("tool_call_update", end)
		}
	}
}

// lastDuring returns the last of the parts that came while the call at j was open: files and terminals that follow it
// are its work, and it is not over before the last question about it. asked reports that there is one.
func (e *acpEncoder) lastDuring(m *session.MessageAndParts, parts []rows.Object, j int) (last int, asked bool) {
	last = j
	for k := j + 1; k < len(parts); k++ {
		switch typ := m.Parts[k].Type; {
		case typ == acpTypePermission && !e.foreign && acpAskedAbout(parts[k].Object("data")) == *m.Parts[j].ToolCallID:
			last, asked = k, true
		case (typ == acpTypeFS || typ == acpTypeTerminal) && last == k-1:
			last = k
		}
	}
	return last, asked
}

// chunk writes a block of an answer. Texts that follow one another would be read as one, if they were not of different
// messages.
func (e *acpEncoder) chunk(p *session.Part, block rows.Object) {
	kind := acpAgentChunk
	if p.Type == "reasoning" {
		kind = acpThoughtChunk
	}
	chunk := rows.Of("content", block)
	if acpIsText(block) && e.text == kind || e.version2 {
		chunk.Set("messageId", p.ID)
	}
	e.update(kind, chunk)
	if acpIsText(block) {
		e.text = kind
	}
}

// acpLogLevels are those of RFC 5424.
var acpLogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// other writes a part that is not a text, a file or a call, if the protocol has a message for it. A part of a session
// that never was a trace may have the name of a message and mean something else by it.
func (e *acpEncoder) other(p *session.Part, data rows.Object) {
	inner := data.Object("data")
	kind, _ := strings.CutPrefix(p.Type, "data-")
	// acplog writes logs into other sessions, too.
	isLog := !e.foreign || acpIsString(inner, "message") && slices.Contains(acpLogLevels, inner.Text("level"))
	switch {
	case p.Type == session.TypeCompaction:
		if c, err := session.ParseCompaction(p.DataJSON); err == nil {
			update := rows.Of("compactionId", p.ID, "status", "completed")
			if c.Summary != "" {
				update.Set("summary", []rows.Object{rows.TextPart("text", c.Summary)})
			}
			e.update("compaction_update", update)
		}
	case inner == nil:
	case p.Type == acpTypeLog && isLog:
		if inner.Get("sessionId") != nil && !inner.Has("sessionId") { // it is of the connection
			e.send("method", acpMethodLog, "params", inner.Without("sessionId"))
		} else {
			e.send("method", acpMethodLog, "params", e.ofSession(inner))
		}
	case e.foreign:
	case p.Type == acpTypePermission && acpAskedAbout(inner) != "" && rows.Elements(inner.Get("options")) != nil:
		e.question(inner)
	case p.Type == acpTypeUpdate:
		e.send("method", acpMethodUpdate, "params", e.ofSession(rows.Of("update", inner)))
	case slices.Contains(acpDataUpdates, kind):
		e.update(kind, inner)
	case p.Type == acpTypeNotification:
		e.send("method", inner.Text("method"), "params", inner.Get("params"))
	case p.Type == acpTypeFS || p.Type == acpTypeTerminal || p.Type == acpTypeRequest:
		id := e.request(cmp.Or(acpSides[inner.Text("from")], acpAgent), inner.Text("method"), inner.Get("params"))
		if result, failure := inner.Get("result"), inner.Get("error"); result != nil {
			e.respond(id, "result", result)
		} else if failure != nil {
			e.respond(id, "error", failure)
		}
	}
}

// acpStatuses are the statuses of calls by the states of their parts. A call in another state is pending.
var acpStatuses = map[string]string{
	session.StateOutputAvailable: "completed", session.StateOutputError: "failed", session.StateOutputDenied: "failed",
	session.StateInputAvailable: "in_progress", session.StateApprovalResponded: "in_progress",
}

// acpFieldsOf returns the protocol's fields of a call.
func acpFieldsOf(p *session.Part, data rows.Object) rows.Object {
	call := data.Object("callProviderMetadata").Object("acp") // those that its part has no place for
	withheldInput, withheldOutput := codec.Withheld(p)
	if call == nil {
		name, state := rows.ToolName(data), data.Text("state")
		call = rows.Of("title", name, "name", name, "kind", acpKindOf(name), "status", cmp.Or(acpStatuses[state], "pending"))
		reason := data.Text("errorText")
		if reason == "" && state == session.StateOutputDenied {
			reason = data.Object("approval").Text("reason")
		}
		call.Add(rows.NonEmpty("rawOutput", reason))
		if withheldInput {
			call.Set("rawInput", codec.WithheldText)
		}
	}
	if data.Has("input") {
		call.Set("rawInput", data.Get("input"))
	}
	output := data.Get("output")
	switch {
	case withheldOutput:
		call.Set("rawOutput", codec.WithheldText)
	case data.Text("state") == session.StateOutputAvailable && string(output) != string(acpContentOutput(call)):
		call.Set("rawOutput", output)
	}
	return acpMerge(call, nil)
}

// acpKinds are the kinds of tools, each after words in their names. The first that is found counts.
var acpKinds = strings.Fields(`
	read read edit edit write edit patch edit delete delete move move grep search glob search search search
	bash execute shell execute exec execute run execute fetch fetch think think`)

// acpKindOf guesses what kind of tool a name means.
func acpKindOf(name string) string {
	for kind := range slices.Chunk(acpKinds, 2) {
		if strings.Contains(strings.ToLower(name), kind[0]) {
			return kind[1]
		}
	}
	return "other"
}

// tool writes a call and returns the update that ends it, nil when there is none. asked reports that a question about
// it follows, which may have changed every field.
func (e *acpEncoder) tool(p *session.Part, data rows.Object, asked bool) (end rows.Object) {
	call := acpFieldsOf(p, data)
	begin := call
	status := call.Text("status")
	final := status != "" && status != "pending" && status != "in_progress"
	if final {
		begin = call.Without("content", "rawOutput")
		begin.Set("status", "pending")
	}
	callID := *p.ToolCallID
	if e.calls[callID]++; e.calls[callID] > 1 { // an editor merges all updates of one id into one call
		callID = fmt.Sprintf("%s#%d", callID, e.calls[callID])
	}
	id := rows.Of("toolCallId", callID)
	kind := "tool_call"
	switch {
	case e.version2, !e.foreign && !call.Has("title"): // the trace had only updates of it
		kind = "tool_call_update"
	case !call.Has("title"):
		id.Set("title", acpToolName(call))
	}
	e.update(kind, append(id, begin...))
	if !asked {
		e.approval(p, data, callID)
	}
	end = rows.Of("toolCallId", callID)
	switch {
	case asked:
		return append(end, call...)
	case !final:
		return nil
	}
	return append(end, call.Only("status", "content", "rawOutput")...)
}

// approval writes the questions about a call that no part reports: those that its decisions were, and else the one that
// its approval was. What a rule allowed or denied asked nobody, and is no message of the protocol.
func (e *acpEncoder) approval(p *session.Part, data rows.Object, callID string) {
	var asked []store.Decision // of a human
	for _, d := range e.s.Decisions {
		about := d.PartID == p.ID
		if d.PartID == "" && d.ToolCallID == *p.ToolCallID {
			about = d.MessageID == "" || d.MessageID == p.MessageID
		}
		if about && d.Action == "ask" {
			asked = append(asked, d)
		}
	}
	for _, d := range jsonl.SortedDecisions(asked) {
		option := ""
		switch {
		case d.Outcome == "allowed" && d.Reply == "always":
			option = "allow_always"
		case d.Outcome == "allowed":
			option = "allow"
		case d.Outcome == "denied" && d.Reply == "" && strings.HasPrefix(d.Reason, "cancel"):
			option = "cancelled"
		case d.Outcome == "denied":
			option = "reject"
		}
		e.ask(callID, option)
	}
	if approval := data.Object("approval"); approval != nil && len(asked) == 0 {
		e.ask(callID, map[string]string{"true": "allow", "false": "reject"}[string(approval.Get("approved"))])
	}
}

// acpOptions are those of the questions that no part has.
const acpOptions = `[{"optionId":"allow","name":"Allow","kind":"allow_once"},` +
	`{"optionId":"allow_always","name":"Always allow","kind":"allow_always"},` +
	`{"optionId":"reject","name":"Reject","kind":"reject_once"}]`

// ask writes a question about the call and the option that was chosen, if any. It may be that none was: cancelled.
func (e *acpEncoder) ask(callID, option string) {
	inner := rows.Of("toolCall", rows.Of("toolCallId", callID), "options", json.RawMessage(acpOptions))
	if option == "cancelled" {
		inner.Set("outcome", rows.Of("outcome", option))
	} else if option != "" {
		inner.Set("outcome", rows.Of("outcome", "selected", "optionId", option))
	}
	e.question(inner)
}

// question writes a request for permission, and the response to it.
func (e *acpEncoder) question(inner rows.Object) {
	id := e.request(acpAgent, acpMethodPermission, e.ofSession(inner.Without("outcome", "response", "error")).JSON())
	if outcome := inner.Object("outcome"); outcome != nil {
		e.respond(id, "result", rows.Of("outcome", outcome))
	} else if failure := inner.Get("error"); failure != nil {
		e.respond(id, "error", failure)
	}
}
