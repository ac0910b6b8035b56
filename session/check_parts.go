package session

import (
	"encoding/json"
	"strings"
)

// The rules on parts: what the AI SDK v6 requires of a UIMessagePart, and which values
// the columns beside data_json repeat.

const typeCompaction = "data-compaction"

// named reports whether the type is the prefix followed by a name.
func named(partType, prefix string) bool {
	return strings.HasPrefix(partType, prefix) && len(partType) > len(prefix)
}

// IsToolType reports whether parts of a type are tool calls: of a tool that the type names after
// "tool-", or of one that the part names. [Check] reports a type that names none.
func IsToolType(partType string) bool {
	return strings.HasPrefix(partType, "tool-") || partType == "dynamic-tool"
}

// isTool reports whether the part is a tool call of a type that is valid.
func (p *checkedPart) isTool() bool {
	return named(p.Type, "tool-") || p.Type == "dynamic-tool"
}

func partID(c *checker, p *checkedPart) {
	if p.ID == "" {
		c.report(p.where(), "id is empty")
	}
}

func partIDUnique(c *checker, p *checkedPart) {
	if _, twice := c.partIDs[p.ID]; twice && p.ID != "" {
		c.report(p.where(), "messages[%d].parts[%d] has the id of an earlier part", p.message.place, p.place)
	}
	c.partIDs[p.ID] = struct{}{}
}

func partOwner(c *checker, p *checkedPart) {
	if got, want := p.MessageID, p.message.row.Message.ID; got != want {
		c.report(p.where(), "message_id is %q, want %q", got, want)
	}
	if got, want := p.SessionID, c.t.Session.ID; got != want {
		c.report(p.where(), "session_id is %q, want %q", got, want)
	}
}

func partUTF8(c *checker, p *checkedPart) { c.utf8(p.where(), PartColumns.InvalidUTF8(p.Part)) }

func partTimes(c *checker, p *checkedPart) { c.times(p.where(), p.CreatedAt, p.UpdatedAt) }

func partJSON(c *checker, p *checkedPart) {
	if p.data == nil {
		c.report(p.where(), "data_json is not a JSON object")
	}
}

func partOrder(c *checker, p *checkedPart) {
	if p.place == 0 {
		return
	}
	if before := p.message.row.Parts[p.place-1].Index; p.Index < before {
		c.report(p.where(), "index %d comes after index %d", p.Index, before)
	}
}

func partType(c *checker, p *checkedPart) {
	switch p.Type {
	case "text", "reasoning", "dynamic-tool", "file", "source-url", "source-document", "step-start":
	default:
		if !named(p.Type, "tool-") && !named(p.Type, "data-") {
			c.report(p.where(), "type is %q", p.Type)
		}
	}
}

func partTypeColumn(c *checker, p *checkedPart) {
	if p.data == nil {
		return
	}
	if t, ok := str(p.data["type"]); !ok || t != p.Type {
		c.report(p.where(), "type is %q, in data_json it is %s", p.Type, show(p.data["type"]))
	}
}

// strings reports the keys whose value is not a string. An optional key may be absent.
func (c *checker) strings(p *checkedPart, optional bool, keys ...string) {
	for _, key := range keys {
		raw, has := p.data[key]
		if !has && optional {
			continue
		}
		if len(raw) == 0 || raw[0] != '"' {
			c.report(p.where(), "%s is %s, want a string", key, show(raw))
		}
	}
}

func partText(c *checker, p *checkedPart) {
	if p.data == nil || p.Type != "text" && p.Type != "reasoning" {
		return
	}
	c.strings(p, false, "text")
	if raw, has := p.data["state"]; has {
		if s, _ := str(raw); s != "streaming" && s != "done" {
			c.report(p.where(), "state is %s, want streaming or done", show(raw))
		}
	}
}

func partFile(c *checker, p *checkedPart) {
	if p.data == nil || p.Type != "file" {
		return
	}
	c.strings(p, false, "mediaType", "url")
	c.strings(p, true, "filename")
}

func partSource(c *checker, p *checkedPart) {
	if p.data == nil {
		return
	}
	switch p.Type {
	case "source-url":
		c.strings(p, false, "sourceId", "url")
		c.strings(p, true, "title")
	case "source-document":
		c.strings(p, false, "sourceId", "mediaType", "title")
		c.strings(p, true, "filename")
	}
}

func partData(c *checker, p *checkedPart) {
	// A compaction without data violates a separate rule.
	if p.data == nil || p.Type == typeCompaction || !named(p.Type, "data-") {
		return
	}
	if _, has := p.data["data"]; !has {
		c.report(p.where(), "data is missing")
	}
	c.strings(p, true, "id")
}

// partCompaction requires the form that the AI SDK accepts. The flat form of the guide is
// a violation here, although readers of compactions accept it.
func partCompaction(c *checker, p *checkedPart) {
	if p.data == nil || p.Type != typeCompaction {
		return
	}
	if role := p.message.row.Message.Role; role != RoleAssistant {
		c.report(p.where(), "is in a message of role %q", role)
	}
	data, ok := object(string(p.data["data"]))
	if !ok {
		if _, flat := p.data["summary"]; flat {
			c.report(p.where(), "is flat: wrap its fields in data")
		} else {
			c.report(p.where(), "data is %s, want an object", show(p.data["data"]))
		}
		return
	}
	if _, ok := str(data["summary"]); !ok {
		c.report(p.where(), "data.summary is %s, want a string", show(data["summary"]))
	}
	if raw, has := data["tail_start_id"]; has && !isNull(raw) {
		if _, ok := str(raw); !ok {
			c.report(p.where(), "data.tail_start_id is %s, want a message id or null", show(raw))
		}
	}
	if raw, has := data["auto"]; has && !isBool(raw) {
		c.report(p.where(), "data.auto is %s, want true or false", show(raw))
	}
	if raw, has := data["summary_tokens"]; has {
		if _, ok := count(raw); !ok {
			c.report(p.where(), "data.summary_tokens is %s, want a count", show(raw))
		}
	}
}

func partTool(c *checker, p *checkedPart) {
	if p.data == nil || !p.isTool() {
		return
	}
	c.strings(p, false, "toolCallId")
	c.strings(p, p.Type != "dynamic-tool", "toolName")
	if raw, has := p.data["providerExecuted"]; has && !isBool(raw) {
		c.report(p.where(), "providerExecuted is %s, want true or false", show(raw))
	}
}

func partToolColumns(c *checker, p *checkedPart) {
	if !p.isTool() {
		if p.ToolState != nil {
			c.report(p.where(), "tool_state is %q on a part of type %q", *p.ToolState, p.Type)
		}
		return
	}
	if p.data == nil {
		return
	}
	c.repeats(p, "tool_call_id", p.ToolCallID, "toolCallId")
	c.repeats(p, "tool_state", p.ToolState, "state")
}

func (c *checker) repeats(p *checkedPart, column string, got *string, key string) {
	want, has := str(p.data[key])
	switch {
	case got == nil && has:
		c.report(p.where(), "%s is null, %s is %q", column, key, want)
	case got != nil && (!has || *got != want):
		c.report(p.where(), "%s is %q, %s is %s", column, *got, key, show(p.data[key]))
	}
}

// approvalRule is the requirement of a tool state on the approval of its call.
type approvalRule int

const (
	approvalNone    approvalRule = iota // no approval
	approvalAsked                       // an id and no answer yet
	approvalAnswer                      // an id and an answer
	approvalDenied                      // an id and the answer no
	approvalGranted                     // none, or one with the answer yes
)

// toolStates has the values that each state of a tool part requires and excludes.
var toolStates = map[string]struct {
	needs, excludes []string
	approval        approvalRule
}{
	StateInputStreaming:    {nil, []string{"output", "errorText"}, approvalNone},
	StateInputAvailable:    {[]string{"input"}, []string{"output", "errorText"}, approvalNone},
	StateApprovalRequested: {[]string{"input"}, []string{"output", "errorText"}, approvalAsked},
	StateApprovalResponded: {[]string{"input"}, []string{"output", "errorText"}, approvalAnswer},
	StateOutputAvailable:   {[]string{"input", "output"}, []string{"errorText"}, approvalGranted},
	StateOutputError:       {[]string{"errorText"}, []string{"output"}, approvalGranted},
	StateOutputDenied:      {[]string{"input"}, []string{"output", "errorText"}, approvalDenied},
}

func partToolState(c *checker, p *checkedPart) {
	if p.data == nil || !p.isTool() {
		return
	}
	name, _ := str(p.data["state"])
	state, known := toolStates[name]
	if !known {
		c.report(p.where(), "state is %s", show(p.data["state"]))
		return
	}
	for _, key := range state.needs {
		if _, has := p.data[key]; !has {
			c.report(p.where(), "state is %s, but %s is missing", name, key)
		}
	}
	for _, key := range state.excludes {
		if _, has := p.data[key]; has {
			c.report(p.where(), "state is %s, but there is %s", name, key)
		}
	}
	if raw, has := p.data["errorText"]; has && name == StateOutputError {
		if _, ok := str(raw); !ok {
			c.report(p.where(), "errorText is %s, want a string", show(raw))
		}
	}
	if raw, has := p.data["preliminary"]; has && name == StateOutputAvailable && !isBool(raw) {
		c.report(p.where(), "preliminary is %s, want true or false", show(raw))
	}
	c.approval(p, name, state.approval)
}

func (c *checker) approval(p *checkedPart, state string, want approvalRule) {
	raw, has := p.data["approval"]
	if !has {
		if want != approvalNone && want != approvalGranted {
			c.report(p.where(), "state is %s, but approval is missing", state)
		}
		return
	}
	if want == approvalNone {
		c.report(p.where(), "state is %s, but there is approval", state)
		return
	}
	approval, ok := object(string(raw))
	if !ok {
		c.report(p.where(), "approval is %s, want an object", show(raw))
		return
	}
	if _, ok := str(approval["id"]); !ok {
		c.report(p.where(), "approval.id is %s, want a string", show(approval["id"]))
	}
	answer, answered := approval["approved"]
	reason, reasoned := approval["reason"]
	if want == approvalAsked {
		if answered || reasoned {
			c.report(p.where(), "state is %s, but approval has an answer", state)
		}
		return
	}
	if !answeredAs(answer, want) {
		c.report(p.where(), "state is %s, but approval.approved is %s", state, show(answer))
	}
	if _, ok := str(reason); reasoned && !ok {
		c.report(p.where(), "approval.reason is %s, want a string", show(reason))
	}
}

// answeredAs reports whether the rule allows the answer.
func answeredAs(answer json.RawMessage, want approvalRule) bool {
	switch want {
	case approvalDenied:
		return string(answer) == "false"
	case approvalGranted:
		return string(answer) == "true"
	}
	return isBool(answer)
}
