// Package acp reads and writes traces of the Agent Client Protocol: the
// JSON-RPC messages that an editor and an agent exchange, in the order in which
// they were sent.
//
// # Framings
//
// No standard says how such a trace is kept. [Decode] reads, and may find mixed:
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
//	tool_call, tool_call_update  dynamic-tool, or tool-<name> where the name is told
//	request_permission           part data-permission, a decision, the call's approval
//	compaction_update, completed assistant message with a data-compaction part
//	other updates                part data-<kind>, the update word for word
//	log                          part data-log, never text
//	fs/…, terminal/…             part data-acp-fs, data-acp-terminal with its result
//	anything else                part data-acp-request, data-acp-notification
//
// Fields that are not mapped stand in the providerMetadata or
// callProviderMetadata of their part, in the metadata of their message, under
// "acp".
//
// # To a trace
//
// [Encode] writes ndjson. What differs from the trace that a session came from:
// one chunk per part, one tool_call with at most one tool_call_update, JSON-RPC
// ids, the place of connection-wide messages, no echoes of prompts, no wrappers
// of proxies, no times. Of a session that never was a trace, what the protocol has no
// message for is left out. [Explain] lists what is lost.
package acp

import (
	"slices"
	"strings"

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

// dataUpdates are the kinds of session/update that become a part data-<kind> and
// the field that such an update must have.
var dataUpdates = map[string]string{
	"plan":                      "entries",
	"available_commands_update": "availableCommands",
	"current_mode_update":       "currentModeId",
	"config_option_update":      "configOptions",
	"session_info_update":       "",
	"usage_update":              "used",
	"notice":                    "severity",
	"compaction_update":         "compactionId",
	"compaction_summary_chunk":  "compactionId",
	"state_update":              "state",
	"plan_update":               "",
	"plan_removed":              "",
	"terminal_update":           "terminalId",
	"terminal_output_chunk":     "terminalId",
	"subagent_update":           "",
	"session_message":           "",
	"session_message_chunk":     "",
}

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
	case strings.HasPrefix(method, "fs/") && request:
		return typeFS
	case strings.HasPrefix(method, "terminal/") && request:
		return typeTerminal
	case request:
		return typeRequest
	}
	return typeNotification
}

// dataPart returns the data of a part data-….
func dataPart(typ string, data rows.Object) rows.Object {
	var o rows.Object
	o.Set("type", typ)
	o.Set("data", data)
	return o
}

// contentData returns the part for a content block. typ is text or reasoning;
// extra holds what the chunk has beside its content.
func contentData(typ, kind string, raw []byte, extra rows.Object) rows.Object {
	block, err := rows.Parse(raw)
	var o, meta rows.Object
	mime := block.Text("mimeType")
	switch text, isText := rows.Text(block.Get("text")); {
	case err != nil:
	case block.Text("type") == "text" && isText:
		o.Set("type", typ)
		o.Set("text", text)
		if rest := block.Without("type", "text"); len(rest) > 0 {
			meta.Set("block", rest)
		}
	case (block.Text("type") == "image" || block.Text("type") == "audio") && mime != "":
		if data, ok := rows.Text(block.Get("data")); ok {
			o = fileData(mime, "data:"+mime+";base64,"+data)
			meta.Set("block", block.Without("data"))
		}
	case block.Text("type") == "resource_link" && block.Text("uri") != "":
		if mime == "" {
			mime = "application/octet-stream"
		}
		o = fileData(mime, block.Text("uri"))
		if name := block.Text("name"); name != "" {
			o.Set("filename", name)
		}
		meta.Set("block", block)
	case block.Text("type") == "resource" && block.Object("resource").Text("uri") != "":
		resource := block.Object("resource")
		if mime = resource.Text("mimeType"); mime == "" {
			mime = "application/octet-stream"
			if resource.Has("text") {
				mime = "text/plain"
			}
		}
		o = fileData(mime, resource.Text("uri"))
		meta.Set("block", block)
	}
	if o == nil {
		// Not a block that the protocol has: kept word for word.
		value, err := rows.Value(raw)
		if err != nil {
			value = []byte("null")
		}
		var data rows.Object
		data.Set("block", value)
		o = dataPart(typeContent, data)
	}
	if typ == "reasoning" && o.Text("type") != "reasoning" {
		meta.Set("kind", kind)
	}
	if len(extra) > 0 {
		meta.Set("chunk", extra)
	}
	return withMeta(o, "providerMetadata", meta)
}

func fileData(mime, url string) rows.Object {
	var o rows.Object
	o.Set("type", "file")
	o.Set("mediaType", mime)
	o.Set("url", url)
	return o
}

// withMeta sets what of the protocol has no place in the part's own fields. Data
// parts have no field for it, so it stands beside their data.
func withMeta(o rows.Object, key string, meta rows.Object) rows.Object {
	if len(meta) == 0 {
		return o
	}
	if strings.HasPrefix(o.Text("type"), "data-") {
		o.Set("acp", meta)
	} else {
		o.Set(key, rows.Object{{Key: "acp", Value: meta.JSON()}})
	}
	return o
}

// metaOf is the inverse of withMeta.
func metaOf(o rows.Object) rows.Object {
	for _, key := range [...]string{"providerMetadata", "callProviderMetadata"} {
		if meta := o.Object(key).Object("acp"); meta != nil {
			return meta
		}
	}
	return o.Object("acp")
}

// contentBlock returns the block of a part, nil when the protocol has none for
// it. It is the inverse of contentData.
func contentBlock(o rows.Object) rows.Object {
	meta := metaOf(o)
	block := meta.Object("block")
	switch o.Text("type") {
	case "text", "reasoning":
		b := rows.Object{}
		b.Set("type", "text")
		b.Set("text", o.Text("text"))
		for _, f := range block.Without("type", "text") {
			b.Set(f.Key, f.Value)
		}
		return b
	case session.TypeWithheld:
		return rows.Object{{Key: "type", Value: quoted("text")}, {Key: "text", Value: quoted(codec.WithheldText)}}
	case typeContent:
		return o.Object("data").Object("block")
	case "file":
		url := o.Text("url")
		mime, data, inline := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
		inline = inline && strings.HasPrefix(url, "data:")
		media, _, _ := strings.Cut(mime, "/")
		switch typ := block.Text("type"); {
		case inline && (typ == "image" || typ == "audio"):
			// The data stands second, as the schema has it.
			b := rows.Object{}
			b.Set("type", typ)
			b.Set("data", data)
			for _, f := range block.Without("type") {
				b.Set(f.Key, f.Value)
			}
			return b
		case block != nil && typ != "image" && typ != "audio":
			return block
		case inline && (media == "image" || media == "audio"):
			b := rows.Object{}
			b.Set("type", media)
			b.Set("data", data)
			b.Set("mimeType", mime)
			return b
		}
		b := rows.Object{}
		b.Set("type", "resource_link")
		b.Set("uri", url)
		name := o.Text("filename")
		if name == "" {
			name = "file"
		}
		b.Set("name", name)
		b.Set("mimeType", o.Text("mediaType"))
		return b
	}
	return nil
}

// toolFields are the fields of a tool call in the order in which they are kept.
// Others follow in the order in which they came.
var toolFields = []string{"title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput"}

// merge takes over the fields of an update; null says nothing.
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

// approval is what came of the question whether a call may run.
type approval struct {
	id       string
	answered bool
	approved bool
	// canceled says that the question was withdrawn.
	canceled bool
}

// toolData returns the part of a tool call as its merged fields tell.
func toolData(id string, call rows.Object, asked *approval) rows.Object {
	var o rows.Object
	meta := call.Without("rawInput")
	if name := call.Text("name"); name != "" {
		o.Set("type", "tool-"+name)
	} else {
		o.Set("type", "dynamic-tool")
		o.Set("toolName", toolName(call))
	}
	o.Set("toolCallId", id)
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
	var approved any
	if asked != nil && !asked.canceled {
		final := session.StateRank(state) >= session.StateRank(session.StateOutputAvailable)
		switch {
		case !asked.answered && !final:
			state = session.StateApprovalRequested
			approved = struct {
				ID string `json:"id"`
			}{asked.id}
		case asked.answered && (!final || asked.approved || state == session.StateOutputError):
			approved = struct {
				ID       string `json:"id"`
				Approved bool   `json:"approved"`
			}{asked.id, asked.approved}
			switch {
			case !final:
				state = session.StateApprovalResponded
			case !asked.approved:
				state = session.StateOutputDenied
			}
		}
	}
	o.Set("state", state)
	if input == nil && state != session.StateInputStreaming {
		input = []byte("null")
	}
	if input != nil {
		o.Set("input", input)
	}
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
	if approved != nil {
		o.Set("approval", approved)
	}
	return withMeta(o, "callProviderMetadata", meta)
}

// toolName is the best that a call without a name has: its kind.
func toolName(call rows.Object) string {
	for _, key := range [...]string{"name", "kind"} {
		if s := call.Text(key); s != "" {
			return s
		}
	}
	return "other"
}

// contentOutput makes an output of a call's content: its text when there is
// nothing else in it.
func contentOutput(call rows.Object) []byte {
	content := call.Get("content")
	if text, ok := contentText(call); ok {
		raw, _ := rows.Marshal(text) // a string always has JSON
		return raw
	}
	if content == nil {
		return []byte("null")
	}
	return content
}

func contentText(call rows.Object) (string, bool) {
	items := rows.Elements(call.Get("content"))
	var b strings.Builder
	for i, raw := range items {
		item, err := rows.Parse(raw)
		text, isText := rows.Text(item.Object("content").Get("text"))
		if err != nil || item.Text("type") != "content" || !isText {
			return "", false
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String(), len(items) > 0
}

func errorText(call rows.Object) string {
	if s, ok := rows.Text(call.Get("rawOutput")); ok {
		return s
	}
	if s, ok := contentText(call); ok {
		return s
	}
	if raw := call.Get("rawOutput"); raw != nil {
		return string(raw)
	}
	return call.Text("status")
}
