// Package acp reads and writes traces of the Agent Client Protocol: the
// JSON-RPC messages that an editor and an agent exchange, in the order in which
// they were sent.
//
// # Framings
//
// No standard states how such a trace is kept. [Decode] reads, and may find mixed:
//
//	ndjson       a message per line, as it went over stdio: no time, no direction
//	Zed          the array that "dev: open acp logs" copies: direction, no time
//	inspector    {ts, direction, json} per line
//	conductor    {ts, type, from, to, id, method, params or payload} per line; of
//	             a chain of proxies, the messages that the client saw
//
// Times that a framing does not have stay 0; the ids of rows then keep the order.
//
// # From a trace
//
//	session/new, load, resume    the session's row; metadata_json.acp
//	session/prompt               user message, a part per content block
//	its response                 stop_reason and end_reason of the assistant message
//	agent_message_chunk          text part: chunks of one message are joined
//	agent_thought_chunk          reasoning part
//	user_message_chunk           user message, unless it echoes the prompt
//	image, audio, resource(_link) file part
//	tool_call, tool_call_update  dynamic-tool, or tool-<name> where the name is known
//	request_permission           part data-permission, a decision, the call's approval
//	compaction_update, completed assistant message with a data-compaction part
//	other updates                part data-<kind>, the update word for word
//	log                          part data-log, never text
//	fs/…, terminal/…             part data-acp-fs, data-acp-terminal with its result
//	other messages of a session  part data-acp-request, data-acp-notification
//
// Fields of a tool call that are not mapped are in the callProviderMetadata of its
// part, under "acp". metadata_json.acp has the version of the protocol. What no row
// expresses leaves none: the capabilities of the two sides, messages of the
// connection itself, _meta, annotations, and how a stream was cut into chunks.
//
// # To a trace
//
// [Encode] writes ndjson from the rows alone, so it has one chunk per part, one
// tool_call with at most one tool_call_update, ids of its own, no echoes of prompts,
// no wrappers of proxies and no times. What the protocol has no message for is left
// out. [Losses] lists what is lost.
package acp

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// agentName is what a session is said to be the work of when the agent does not
// say.
const agentName = "acp"

// Methods that this package knows.
const (
	methodInitialize = "initialize"
	methodNew        = "session/new"
	methodLoad       = "session/load"
	methodResume     = "session/resume"
	methodPrompt     = "session/prompt"
	methodUpdate     = "session/update"
	methodPermission = "session/request_permission"
	methodLog        = "log"
)

// Kinds of session/update that make text, files or tool calls.
const (
	userChunk    = "user_message_chunk"
	agentChunk   = "agent_message_chunk"
	thoughtChunk = "agent_thought_chunk"
)

// dataUpdates are the kinds of session/update that become a part data-<kind>.
var dataUpdates = strings.Fields(`
	plan plan_update plan_removed available_commands_update current_mode_update config_option_update
	session_info_update usage_update notice state_update terminal_update terminal_output_chunk
	compaction_update compaction_summary_chunk subagent_update session_message session_message_chunk`)

// Types of parts that stand for messages.
const (
	typePermission   = "data-permission"
	typeLog          = "data-log"
	typeUpdate       = "data-acp-update"
	typeContent      = "data-content"
	typeFS           = "data-acp-fs"
	typeTerminal     = "data-acp-terminal"
	typeRequest      = "data-acp-request"
	typeNotification = "data-acp-notification"
)

// methodType returns the type of part for a message of another method.
func methodType(method string, request bool) string {
	switch {
	case !request:
		return typeNotification
	case strings.HasPrefix(method, "fs/"):
		return typeFS
	case strings.HasPrefix(method, "terminal/"):
		return typeTerminal
	}
	return typeRequest
}

// contentData returns the part for a content block. typ is text or reasoning.
func contentData(typ string, raw []byte) rows.Object {
	block, err := rows.Parse(raw)
	if err != nil {
		return rows.DataPart(typeContent, rows.Of("block", rows.OrNull(raw)))
	}
	resource := block.Object("resource")
	mime := block.Text("mimeType")
	switch kind := block.Text("type"); {
	case isText(block):
		return rows.TextPart(typ, block.Text("text"))
	case (kind == "image" || kind == "audio") && mime != "" && isString(block, "data"):
		return rows.FilePart(mime, "", "data:"+mime+";base64,"+block.Text("data"))
	case kind == "resource_link" && block.Text("uri") != "":
		return rows.FilePart(cmp.Or(mime, "application/octet-stream"), block.Text("name"), block.Text("uri"))
	case kind == "resource" && resource.Text("uri") != "" && isString(resource, "text"):
		data := base64.StdEncoding.EncodeToString([]byte(resource.Text("text")))
		mime = cmp.Or(resource.Text("mimeType"), "text/plain")
		return rows.FilePart(mime, resource.Text("uri"), "data:"+mime+";base64,"+data)
	case kind == "resource" && resource.Text("uri") != "" && isString(resource, "blob"):
		mime = cmp.Or(resource.Text("mimeType"), "application/octet-stream")
		return rows.FilePart(mime, resource.Text("uri"), "data:"+mime+";base64,"+resource.Text("blob"))
	}
	return rows.DataPart(typeContent, rows.Of("block", block)) // the protocol has no such block
}

// contentBlock returns the block of a part, nil when the protocol has none for
// it. It is the inverse of contentData.
func contentBlock(o rows.Object) rows.Object {
	switch o.Text("type") {
	case "text", "reasoning":
		return rows.TextPart("text", o.Text("text"))
	case session.TypeWithheld:
		return rows.TextPart("text", codec.WithheldText)
	case typeContent:
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

// isText reports whether a content block is a text.
func isText(block rows.Object) bool { return block.Text("type") == "text" && isString(block, "text") }

// isString reports whether the fields are strings.
func isString(o rows.Object, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		_, ok := rows.Text(o.Get(key))
		return !ok
	})
}

// metaOf are the fields of a tool call that its part has no place for.
func metaOf(o rows.Object) rows.Object { return o.Object("callProviderMetadata").Object("acp") }

// toolFields are the fields of a tool call in the order in which they are kept.
// Others follow in the order in which they came.
var toolFields = []string{"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"}

// merge takes over the fields of an update; null reports nothing.
func merge(call, update rows.Object) rows.Object {
	for _, f := range update.Without("sessionUpdate", "toolCallId") {
		if string(f.Value) != "null" {
			call.Set(f.Key, f.Value)
		}
	}
	slices.SortStableFunc(call, func(a, b rows.Field) int {
		return place(a.Key) - place(b.Key)
	})
	return call
}

func place(field string) int {
	if i := slices.Index(toolFields, field); i >= 0 {
		return i
	}
	return len(toolFields)
}

// toolData returns the part of a tool call with the merged fields. asked is the last question
// whether the call may run.
func toolData(id string, call rows.Object, asked *question) rows.Object {
	meta := call.Without("rawInput")
	o := rows.Of("type", "dynamic-tool", "toolName", toolName(call), "toolCallId", id)
	if name := call.Text("name"); name != "" {
		o = rows.Of("type", "tool-"+name, "toolCallId", id)
	}
	input := call.Get("rawInput")
	state := session.StateInputAvailable
	switch call.Text("status") {
	case "completed":
		state = session.StateOutputAvailable
	case "failed", "cancelled":
		state = session.StateOutputError
	case "in_progress":
	default:
		if input == nil {
			state = session.StateInputStreaming
		}
	}
	var approved rows.Object
	if asked != nil && !asked.canceled {
		final := session.StateRank(state) >= session.StateRank(session.StateOutputAvailable)
		switch {
		case !asked.answered && !final:
			state = session.StateApprovalRequested
			approved = rows.Of("id", asked.decision.ID)
		case asked.answered && (!final || asked.approved || state == session.StateOutputError):
			approved = rows.Of("id", asked.decision.ID, "approved", asked.approved)
			switch {
			case !final:
				state = session.StateApprovalResponded
			case !asked.approved:
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
		output := call.Get("rawOutput")
		if output == nil {
			output = contentOutput(call)
		}
		o.Set("output", output)
		meta = meta.Without("rawOutput")
	case session.StateOutputError:
		o.Set("errorText", errorText(call))
	}
	o.Add(rows.NonEmpty("approval", approved, "callProviderMetadata", rows.NonEmpty("acp", meta)))
	return o
}

// toolName is the best that a call without a name has: its kind.
func toolName(call rows.Object) string {
	return cmp.Or(call.Text("name"), call.Text("kind"), "other")
}

// contentOutput makes an output of a call's content: its text when there is
// nothing else in it.
func contentOutput(call rows.Object) json.RawMessage {
	if text, ok := contentText(call); ok {
		return rows.Raw(text)
	}
	return rows.OrNull(call.Get("content"))
}

func contentText(call rows.Object) (string, bool) {
	var texts []string
	for _, raw := range rows.Elements(call.Get("content")) {
		item := rows.Read(string(raw))
		if item.Text("type") != "content" || !isString(item.Object("content"), "text") {
			return "", false
		}
		texts = append(texts, item.Object("content").Text("text"))
	}
	return strings.Join(texts, "\n"), len(texts) > 0
}

func errorText(call rows.Object) string {
	raw := call.Get("rawOutput")
	if s, ok := rows.Text(raw); ok {
		return s
	}
	if s, ok := contentText(call); ok {
		return s
	}
	return cmp.Or(string(raw), call.Text("status"))
}
