// ACP: these files read and write traces of the Agent Client Protocol: the JSON-RPC messages that an editor and an
// agent exchange, in the order in which they were sent. docs/formats.md lists the framings, and what becomes what.

package formats

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Methods that this package knows.
const (
	acpMethodInitialize, acpMethodNew            = "initialize", "session/new"
	acpMethodLoad, acpMethodResume               = "session/load", "session/resume"
	acpMethodPrompt, acpMethodUpdate             = "session/prompt", "session/update"
	acpMethodPermission, acpMethodLog            = "session/request_permission", "log"
	acpUserChunk, acpAgentChunk, acpThoughtChunk = "user_message_chunk", "agent_message_chunk", "agent_thought_chunk"
	// What agenttrace run notes in a trace: that messages are missing, and that the agent exited.
	acpMethodLost, acpMethodEnded = "$/agenttrace/lost", "$/agenttrace/ended"
)

// acpDataUpdates are the kinds of session/update that become a part data-<kind>.
var acpDataUpdates = strings.Fields(`
	plan plan_update plan_removed available_commands_update current_mode_update config_option_update
	session_info_update usage_update notice state_update terminal_update terminal_output_chunk
	compaction_update compaction_summary_chunk subagent_update session_message session_message_chunk`)

// Types of parts that stand for messages.
const (
	acpTypePermission, acpTypeLog       = "data-permission", "data-log"
	acpTypeUpdate, acpTypeContent       = "data-acp-update", "data-content"
	acpTypeFS, acpTypeTerminal          = "data-acp-fs", "data-acp-terminal"
	acpTypeRequest, acpTypeNotification = "data-acp-request", "data-acp-notification"
)

// acpContentData returns the part for a content block. typ is text or reasoning.
func acpContentData(typ string, raw []byte) rows.Object {
	block, err := rows.Parse(raw)
	if err != nil {
		return rows.DataPart(acpTypeContent, rows.Of("block", rows.OrNull(raw)))
	}
	resource, mime := block.Object("resource"), block.Text("mimeType")
	switch kind := block.Text("type"); {
	case acpIsText(block):
		return rows.TextPart(typ, block.Text("text"))
	case (kind == "image" || kind == "audio") && mime != "" && acpIsString(block, "data"):
		return rows.FilePart(mime, "", "data:"+mime+";base64,"+block.Text("data"))
	case kind == "resource_link" && block.Text("uri") != "":
		return rows.FilePart(cmp.Or(mime, "application/octet-stream"), block.Text("name"), block.Text("uri"))
	case kind == "resource" && resource.Text("uri") != "" &&
		(acpIsString(resource, "text") || acpIsString(resource, "blob")):
		data, otherwise := resource.Text("blob"), "application/octet-stream"
		if acpIsString(resource, "text") {
			data, otherwise = base64.StdEncoding.EncodeToString([]byte(resource.Text("text"))), "text/plain"
		}
		mime = cmp.Or(resource.Text("mimeType"), otherwise)
		return rows.FilePart(mime, resource.Text("uri"), "data:"+mime+";base64,"+data)
	}
	return rows.DataPart(acpTypeContent, rows.Of("block", block)) // the protocol has no such block
}

// acpContentBlock returns the block of a part, nil when the protocol has none for it. It is the inverse of
// acpContentData.
func acpContentBlock(o rows.Object) rows.Object {
	switch o.Text("type") {
	case "text", "reasoning":
		return rows.TextPart("text", o.Text("text"))
	case acpTypeContent:
		return o.Object("data").Object("block")
	case "file":
	default:
		return nil
	}
	url, name := o.Text("url"), cmp.Or(o.Text("filename"), "file")
	mime, data, inline := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !inline || !strings.HasPrefix(url, "data:") {
		return rows.Of("type", "resource_link", "uri", url, "name", name, "mimeType", o.Text("mediaType"))
	}
	if kind, _, _ := strings.Cut(mime, "/"); kind == "image" || kind == "audio" {
		return rows.Of("type", kind, "data", data, "mimeType", mime)
	}
	key := "blob"
	if text, err := base64.StdEncoding.DecodeString(data); err == nil && utf8.Valid(text) {
		key, data = "text", string(text)
	}
	return rows.Of("type", "resource", "resource", rows.Of("uri", name, "mimeType", mime, key, data))
}

// acpIsText reports whether a content block is a text.
func acpIsText(block rows.Object) bool {
	return block.Text("type") == "text" && acpIsString(block, "text")
}

// acpIsString reports whether a field is a string.
func acpIsString(o rows.Object, key string) bool {
	_, ok := rows.Text(o.Get(key))
	return ok
}

// acpAskedAbout returns the id of the call that a question is about. In version 2 of the protocol a question has a
// subject.
func acpAskedAbout(params rows.Object) string {
	subject := params.Object("subject")
	return cmp.Or(params.Object("toolCall").Text("toolCallId"),
		subject.Object("toolCall").Text("toolCallId"), subject.Text("toolCallId"))
}

// acpToolFields are the fields of a tool call in the order in which they are kept. Others follow in the order in which
// they came.
var acpToolFields = []string{"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"}

// acpMerge takes over the fields of an update; null reports nothing.
func acpMerge(call, update rows.Object) rows.Object {
	for _, f := range update.Without("sessionUpdate", "toolCallId") {
		if string(f.Value) != "null" {
			call.Set(f.Key, f.Value)
		}
	}
	return append(call.Only(acpToolFields...), call.Without(acpToolFields...)...)
}

// acpStates are the states of parts by the statuses of calls.
var acpStates = map[string]string{
	"completed": session.StateOutputAvailable, "failed": session.StateOutputError, "cancelled": session.StateOutputError,
	"in_progress": session.StateInputAvailable,
}

// acpToolData returns the part of a tool call with the merged fields. asked is the last question whether the call may
// run.
func acpToolData(id string, call rows.Object, asked *acpQuestion) rows.Object {
	meta, input := call.Without("rawInput"), call.Get("rawInput")
	o := rows.ToolPart(call.Text("name"), id, "")
	if o.Get("toolName") != nil {
		o.Set("toolName", acpToolName(call))
	}
	state := acpStates[call.Text("status")]
	if state == "" && input == nil {
		state = session.StateInputStreaming
	}
	state = cmp.Or(state, session.StateInputAvailable)
	var approval rows.Object
	if asked != nil && !asked.canceled {
		final := session.StateRank(state) >= session.StateRank(session.StateOutputAvailable)
		outcome := asked.decision.Outcome
		answered, approved := outcome != "pending", outcome == "allowed"
		switch {
		case !answered && !final:
			state = session.StateApprovalRequested
			approval = rows.Of("id", asked.decision.ID)
		case answered && (!final || approved || state == session.StateOutputError):
			approval = rows.Of("id", asked.decision.ID, "approved", approved)
			if !final {
				state = session.StateApprovalResponded
			} else if !approved {
				state = session.StateOutputDenied
			}
		}
	}
	o.Set("state", state)
	if state != session.StateInputStreaming {
		input = rows.OrNull(input)
	}
	o.Add(rows.NonEmpty("input", input))
	switch state {
	case session.StateOutputAvailable:
		o.Set("output", acpContentOutput(call))
		if meta.Has("rawOutput") {
			o.Set("output", meta.Get("rawOutput"))
		}
		meta = meta.Without("rawOutput")
	case session.StateOutputError:
		o.Set("errorText", acpErrorText(call))
	}
	o.Add(rows.NonEmpty("approval", approval, "callProviderMetadata", rows.NonEmpty("acp", meta)))
	return o
}

// acpToolName is the name of a call, which may be empty, or the best that one without a name has: its kind.
func acpToolName(call rows.Object) string {
	if name, ok := rows.Text(call.Get("name")); ok {
		return name
	}
	return cmp.Or(call.Object("_meta").Object("claudeCode").Text("toolName"), call.Text("kind"), "other")
}

// acpContentOutput makes an output of a call's content: its text when there is nothing else in it.
func acpContentOutput(call rows.Object) json.RawMessage {
	if text, ok := acpContentText(call); ok {
		return rows.Raw(text)
	}
	return rows.OrNull(call.Get("content"))
}

func acpContentText(call rows.Object) (string, bool) {
	var texts []string
	for _, raw := range rows.Elements(call.Get("content")) {
		item := rows.Read(string(raw))
		text, ok := rows.Text(item.Object("content").Get("text"))
		if !ok || item.Text("type") != "content" {
			return "", false
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), len(texts) > 0
}

func acpErrorText(call rows.Object) string {
	raw := call.Get("rawOutput")
	s, ok := rows.Text(raw)
	if !ok {
		s, ok = acpContentText(call)
	}
	if !ok {
		s = cmp.Or(string(raw), call.Text("status"))
	}
	return s
}

// Who sent a message.
const acpUnknown, acpClient, acpAgent = "unknown", "client", "agent"

// acpMessage is a JSON-RPC message, whatever its framing.
type acpMessage struct {
	n           int           // from 1
	place       codec.Problem // its line, or its element of an array
	at          int64         // Unix milliseconds
	timed       bool
	from        string // who sent it
	hop         bool   // proxies sent it to each other
	id          string // as JSON, empty for a notification
	method      string // of a request or notification, else empty
	params      rows.Object
	raw         json.RawMessage // the params, which need not be an object
	result, err json.RawMessage
}

// acpMessages returns the messages in text, which is one a line, or an array of them, as the log of Zed is copied. The
// hops between proxies and the agent, which repeat what the client sends and gets, are left out unless there is nothing
// else.
func acpMessages(text []byte, report func(codec.Problem)) (all []*acpMessage, err error) {
	at := int64(0)
	read := func(place codec.Problem, o rows.Object, err error) {
		r := rows.Reporter{Report: report, Place: place}
		m := &acpMessage{n: len(all), place: place, at: at}
		if err != nil {
			err = errors.New("not a JSON object")
		} else {
			err = m.unframe(o, &r)
		}
		if err != nil {
			r.Problem("%v: left out", err)
			return
		}
		all, at = append(all, m), m.at
	}
	body := bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\uFEFF")), " \t\r\n\v\f")
	switch {
	case len(body) == 0:
		return nil, nil
	case body[0] == '[':
		var elements []json.RawMessage
		if err := json.Unmarshal(bytes.ToValidUTF8(body, []byte("\uFFFD")), &elements); err != nil {
			return nil, fmt.Errorf("the array is damaged: %w", err)
		}
		for i, element := range elements {
			o, err := rows.Share(element)
			read(codec.Problem{Record: fmt.Sprintf("element %d", i+1)}, o, err)
		}
	default:
		for l := range rows.Lines(text, report) {
			read(codec.Problem{Line: l.N}, l.Object, l.Err)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no message of JSON-RPC in it")
	}
	seen := slices.DeleteFunc(slices.Clone(all), func(m *acpMessage) bool { return m.hop })
	if hops := len(all) - len(seen); hops > 0 && len(seen) > 0 {
		const reason = "%d messages between proxies and the agent are left out: the client's messages have the same content"
		report(codec.Problem{Reason: fmt.Sprintf(reason, hops)})
		return seen, nil
	}
	return all, nil
}

// acpSides are the words of the framings for who sent a message.
var acpSides = map[string]string{
	"fromClient": acpClient, "outgoing": acpClient, "client": acpClient, "Client": acpClient,
	"fromAgent": acpAgent, "incoming": acpAgent, "agent": acpAgent, "Agent": acpAgent,
}

// unframe takes a message out of whichever framing it is in. The error is why it cannot be read.
func (m *acpMessage) unframe(o rows.Object, r *rows.Reporter) (err error) {
	response := func(key string, failed bool) { // of which the result or the error is under another key
		as := "result"
		if failed {
			as = "error"
		}
		o = rows.Of("id", o.Get("id"), as, rows.OrNull(o.Get(key)))
	}
	switch {
	case o.Has("json") && o.Has("direction"): // an inspector, which has the message as text
		m.from = acpSides[o.Text("direction")]
		m.time(o.Get("ts"), 1, r)
		if o, err = rows.Parse([]byte(o.Text("json"))); err != nil {
			return errors.New("json is not a JSON object")
		}
	case o.Has("_direction"): // Zed, where an error has the place of the result; only its shape distinguishes it
		m.from = acpSides[o.Text("_direction")]
		if e := o.Object("params"); o.Text("_type") == "response" {
			response("params", e.Has("code") && e.Has("message"))
		}
	case o.Has("from") && o.Has("type"): // a conductor
		from, to := acpSides[o.Text("from")], acpSides[o.Text("to")]
		m.from, m.hop = from, from != acpClient && to != acpClient
		if from == "" {
			m.from = map[string]string{acpAgent: acpClient, acpClient: acpAgent}[to]
		}
		m.time(o.Get("ts"), 1000, r)
		if o.Text("type") == "response" {
			response("payload", o.True("is_error"))
		}
	}
	m.method, m.raw, m.result, m.err = o.Text("method"), o.Get("params"), o.Get("result"), o.Get("error")
	if o.Has("id") {
		m.id = string(o.Get("id"))
	}
	if m.method == "" && m.result == nil && m.err == nil {
		return errors.New("not a message of JSON-RPC")
	}
	m.params, _ = rows.Share(m.raw)
	// A message may be in what a proxy put around it.
	if m.method == "proxy/initialize" {
		m.method = acpMethodInitialize
	} else if inner := m.params; m.method == "proxy/successor" && inner.Text("method") != "" {
		m.method, m.raw = inner.Text("method"), inner.Get("params")
		m.params, _ = rows.Share(m.raw)
	}
	m.from = cmp.Or(m.from, acpSenderOf(m.method))
	return nil
}

// acpOfAgent are methods, and groups of methods, that an agent calls.
var acpOfAgent = []string{acpMethodUpdate, acpMethodPermission, acpMethodLog, "fs", "terminal", "elicitation"}

// acpSenderOf is the side that sends a method, if the method shows it.
func acpSenderOf(method string) string {
	switch group, _, _ := strings.Cut(method, "/"); {
	case group == "" || group == "$":
		return acpUnknown
	case slices.Contains(acpOfAgent, method) || slices.Contains(acpOfAgent, group) || method[0] == '_':
		return acpAgent
	}
	return acpClient
}

// time reads an ISO 8601 time, or a number of milliseconds after it is multiplied.
func (m *acpMessage) time(raw json.RawMessage, times float64, r *rows.Reporter) {
	var f float64
	s, isText := rows.Text(raw)
	at, ok := rows.ParseTime(s)
	if !isText && json.Unmarshal(raw, &f) == nil {
		at, ok = int64(min(max(f*times, -1), 2*rows.MaxTime)+0.5), f >= 0
	}
	if !ok || at < 0 || at > rows.MaxTime {
		r.Problem("time %s cannot be read: taken as that of the message before", raw)
		return
	}
	m.at, m.timed = at, true
}

// ACPMessage is a message of a trace of the Agent Client Protocol, in whichever framing. Its texts are as they were
// sent.
type ACPMessage struct {
	// At is when it was sent, in Unix milliseconds; 0 if the trace has no times.
	At int64
	// From is client, agent or unknown.
	From string
	// What is the method of a request or notification, the kind of a session/update, or the method that a response is to.
	What string
	// ID is that of a request or response, as JSON, and empty for a notification.
	ID       string
	Response bool
	// TookMS is how long after its request a response came, nil if that is unknown.
	TookMS *int64
	// Text is what it says: the content where the protocol has one, or else JSON.
	Text string
}

// ACPMessages returns the messages of a trace in their order. What is damaged is reported and left out.
func ACPMessages(text []byte, report func(codec.Problem)) (all []ACPMessage, err error) {
	messages, err := acpMessages(text, report)
	d := &acpDecoder{conn: acpNewConnection()}
	for _, m := range messages {
		a := ACPMessage{At: m.at, From: m.from, ID: m.id, What: m.method}
		if m.method != "" {
			if m.id != "" {
				d.conn.pending[[2]string{m.from, m.id}] = &acpExchange{acpMessage: m}
			}
			update := m.params.Object("update")
			a.What = cmp.Or(update.Text("sessionUpdate"), a.What)
			a.Text = acpSays(m.params, m.raw)
		} else {
			a.Response, a.What = true, "response"
			if x := d.answer(m); x != nil {
				a.What = x.method
				a.From = cmp.Or(map[string]string{acpClient: acpAgent, acpAgent: acpClient}[x.from], a.From)
				if x.timed && m.timed && m.at >= x.at {
					a.TookMS = new(m.at - x.at)
				}
			}
			if a.Text = acpSays(rows.Read(string(m.result)), m.result); m.err != nil {
				a.Text = "error " + cmp.Or(rows.Read(string(m.err)).Text("message"), string(m.err))
			}
		}
		all = append(all, a)
	}
	return all, err
}

// acpSays is what the params or the result of a message say, as far as the protocol names it.
func acpSays(o rows.Object, raw []byte) string {
	of := o
	for _, key := range []string{"update", "outcome", "toolCall", "subject"} {
		if inner := o.Object(key); inner != nil {
			of = inner
		}
	}
	if call := of.Object("toolCall"); call != nil {
		of = call
	}
	var said []string
	for _, key := range []string{"toolCallId", "status", "kind", "level", "severity", "stopReason", "outcome", "optionId",
		"state", "currentModeId", "sessionId", "title", "message", "path", "command"} {
		if text := of.Text(key); text != "" && (key != "sessionId" || !o.Has("prompt")) {
			said = append(said, text)
		}
	}
	blocks := rows.Elements(o.Get("prompt"))
	if content := of.Get("content"); content != nil {
		blocks = append(rows.Elements(content), content)
	}
	for _, raw := range blocks {
		block := rows.Read(string(raw))
		if inner := block.Object("content"); inner != nil {
			block = inner
		}
		if text := cmp.Or(block.Text("text"), block.Text("uri"), block.Text("path")); text != "" {
			said = append(said, text)
		}
	}
	for entry := range rows.Objects(of.Get("entries")) {
		said = append(said, "["+entry.Text("status")+"] "+entry.Text("content"))
	}
	if len(said) == 0 || o.Has("protocolVersion") {
		return string(raw)
	}
	return strings.Join(said, " ")
}
