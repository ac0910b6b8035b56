package formats

import (
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// The rules of the protocol's published schema, version 1: what a message must
// have, and the values that it may have.

var acpRequired = map[string]string{
	"initialize":                 "protocolVersion",
	"authenticate":               "methodId",
	"session/new":                "cwd mcpServers",
	"session/load":               "sessionId cwd mcpServers",
	"session/resume":             "sessionId cwd",
	"session/prompt":             "sessionId prompt",
	"session/cancel":             "sessionId",
	"session/update":             "sessionId update",
	"session/request_permission": "sessionId toolCall options",
	"session/set_mode":           "sessionId modeId",
	"fs/read_text_file":          "sessionId path",
	"fs/write_text_file":         "sessionId path content",
	"terminal/create":            "sessionId command",
	"terminal/output":            "sessionId terminalId",
	"terminal/wait_for_exit":     "sessionId terminalId",
	"terminal/release":           "sessionId terminalId",
	"terminal/kill":              "sessionId terminalId",
	// Not merged into the protocol; the fields are those of its proposal.
	"log": "level message",
}

var acpRequiredResult = map[string]string{
	"initialize":                 "protocolVersion",
	"session/new":                "sessionId",
	"session/prompt":             "stopReason",
	"session/request_permission": "outcome",
	"fs/read_text_file":          "content",
	"terminal/create":            "terminalId",
	"terminal/output":            "output truncated",
}

var acpRequiredUpdate = map[string]string{
	"user_message_chunk":        "content",
	"agent_message_chunk":       "content",
	"agent_thought_chunk":       "content",
	"tool_call":                 "toolCallId title",
	"tool_call_update":          "toolCallId",
	"plan":                      "entries",
	"available_commands_update": "availableCommands",
	"current_mode_update":       "currentModeId",
	"config_option_update":      "configOptions",
	"session_info_update":       "",
	"usage_update":              "used size",
	"notice":                    "severity title",
	"compaction_update":         "compactionId status",
	"compaction_summary_chunk":  "compactionId content",
}

var acpRequiredBlock = map[string]string{
	"text":          "text",
	"image":         "data mimeType",
	"audio":         "data mimeType",
	"resource_link": "name uri",
	"resource":      "resource",
}

var acpEnums = map[string]string{
	"stopReason": "end_turn max_tokens max_turn_requests refusal cancelled",
	"kind":       "read edit delete move search execute think fetch switch_mode other",
	"status":     "pending in_progress completed failed",
	"level":      "debug info notice warning error critical alert emergency",
	"optionKind": "allow_once allow_always reject_once reject_always",
}

// acpComplainer gets what is wrong with a trace.
type acpComplainer interface {
	Helper()
	Errorf(format string, args ...any)
}

type acpSchema struct {
	t    acpComplainer
	line string
}

func (s acpSchema) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf(format+": %.300s", append(args, s.line)...)
}

func (s acpSchema) has(what string, o rows.Object, fields string) {
	s.t.Helper()
	for _, field := range strings.Fields(fields) {
		if !o.Has(field) {
			s.errorf("%s lacks %s", what, field)
		}
	}
}

func (s acpSchema) enum(name, value string) {
	s.t.Helper()
	if value != "" && !slices.Contains(strings.Fields(acpEnums[name]), value) {
		s.errorf("%s is %q", name, value)
	}
}

// acpValid checks a trace of version 1 against the schema: every message by itself,
// and that responses answer requests.
func acpValid(t acpComplainer, trace string) {
	t.Helper()
	requests := make(map[string]string)
	for line := range strings.Lines(trace) {
		s := acpSchema{t, line}
		o, err := rows.Parse([]byte(line))
		if err != nil || o.Text("jsonrpc") != "2.0" {
			s.errorf("not a message (%v)", err)
			continue
		}
		method, id, params := o.Text("method"), string(o.Get("id")), o.Object("params")
		if method == "" {
			method, asked := requests[id]
			if delete(requests, id); !asked {
				s.errorf("answers no request")
			}
			result := o.Object("result")
			if o.Has("error") {
				s.has("error", o.Object("error"), "code message")
				continue
			}
			s.has("result of "+method, result, acpRequiredResult[method])
			s.enum("stopReason", result.Text("stopReason"))
			continue
		}
		if id != "" {
			if _, twice := requests[id]; twice {
				s.errorf("id %s is open", id)
			}
			requests[id] = method
		}
		fields, known := acpRequired[method]
		if !known && !strings.HasPrefix(method, "_") {
			s.errorf("method %q", method)
		}
		s.has(method, params, fields)
		switch method {
		case "session/prompt":
			for _, raw := range rows.Elements(params.Get("prompt")) {
				s.block(raw)
			}
		case "session/request_permission":
			s.has("toolCall", params.Object("toolCall"), "toolCallId")
			for _, raw := range rows.Elements(params.Get("options")) {
				option, _ := rows.Parse(raw)
				s.has("option", option, "optionId name kind")
				s.enum("optionKind", option.Text("kind"))
			}
		case "log":
			s.enum("level", params.Text("level"))
		case "session/update":
			s.update(params.Object("update"))
		}
	}
}

func (s acpSchema) update(update rows.Object) {
	s.t.Helper()
	kind := update.Text("sessionUpdate")
	fields, known := acpRequiredUpdate[kind]
	if !known {
		s.errorf("update of kind %q", kind)
	}
	s.has(kind, update, fields)
	switch kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		s.block(update.Get("content"))
	case "tool_call", "tool_call_update":
		s.enum("kind", update.Text("kind"))
		s.enum("status", update.Text("status"))
		for _, raw := range rows.Elements(update.Get("content")) {
			item, _ := rows.Parse(raw)
			switch item.Text("type") {
			case "content":
				s.block(item.Get("content"))
			case "diff":
				s.has("diff", item, "path newText")
			case "terminal":
				s.has("terminal", item, "terminalId")
			default:
				s.errorf("content of type %q", item.Text("type"))
			}
		}
	case "plan":
		for _, raw := range rows.Elements(update.Get("entries")) {
			entry, _ := rows.Parse(raw)
			s.has("entry", entry, "content priority status")
		}
	}
}

func (s acpSchema) block(raw []byte) {
	s.t.Helper()
	block, _ := rows.Parse(raw)
	fields, known := acpRequiredBlock[block.Text("type")]
	if !known {
		s.errorf("block of type %q", block.Text("type"))
	}
	s.has("block", block, fields)
}
