package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// validJSON is lenient where readers are: a name may occur twice, and \ud83d without
// its other half, as JavaScript writes a text cut in an emoji, is U+FFFD.
func validJSON(raw []byte) bool {
	return utf8.Valid(raw) && jsonscan.IsValue(bytes.Trim(raw, " \t\r\n"), maxDepth)
}

// appendJSON appends the value of an attribute that should be JSON; what is not, such as JSON cut
// short by a limit, becomes a string. Nothing becomes null.
func (o *own) appendJSON(dst []byte, key, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	start := len(dst)
	dst = append(dst, s...)
	if validJSON(dst[start:]) {
		return dst
	}
	o.problem(key + ": invalid JSON, kept as text")
	return jsonscan.AppendString(dst[:start], s)
}

// toolPart writes the AI SDK part of a call whose span arrived.
func (o *own) toolPart(c *store.PartChange, t *spans.ToolCall) {
	state := t.State
	switch state {
	case "":
		state = session.StateInputAvailable
		if t.Output != "" {
			state = session.StateOutputAvailable
		}
		if t.Error != "" {
			state = session.StateOutputError
		}
	case session.StateApprovalRequested, session.StateApprovalResponded, session.StateOutputDenied:
		// The AI SDK has these states only with the approval that they are about.
		if t.ApprovalID == "" {
			state = session.StateInputAvailable
		}
	}
	if state == session.StateApprovalResponded && t.Denied {
		state = session.StateOutputDenied
	}
	if session.StateRank(state) == 0 {
		state = session.StateInputAvailable
	}
	data := []byte{'{'}
	if c.Type = "tool-" + t.ToolID; t.Dynamic || t.ToolID == "" {
		c.Type = "dynamic-tool"
		data = append(data, `"type":"dynamic-tool"`...)
		data = spans.AppendJSONMember(data, "toolName", t.ToolID)
	} else {
		data = spans.AppendJSONMember(data, "type", c.Type)
	}
	data = spans.AppendJSONMember(data, "toolCallId", c.ToolCallID)
	data = spans.AppendJSONMember(data, "state", state)
	if t.Input != "" || state != session.StateInputStreaming {
		data = o.appendJSON(append(data, `,"input":`...), "gen_ai.tool.call.arguments", t.Input)
	}
	switch state {
	case session.StateOutputAvailable:
		data = o.appendJSON(append(data, `,"output":`...), "gen_ai.tool.call.result", t.Output)
	case session.StateOutputError:
		data = spans.AppendJSONMember(data, "errorText", t.Error)
	case session.StateApprovalRequested:
		data = append(spans.AppendJSONMember(append(data, `,"approval":{`...), "id", t.ApprovalID), '}')
	case session.StateApprovalResponded, session.StateOutputDenied:
		data = spans.AppendJSONMember(append(data, `,"approval":{`...), "id", t.ApprovalID)
		data = append(data, `,"approved":`...)
		data = append(strconv.AppendBool(data, state == session.StateApprovalResponded), '}')
	}
	if t.ProviderExecuted {
		data = append(data, `,"providerExecuted":true`...)
	}
	data = append(appendToolMetadata(data, t, o.takeProblems()), '}')
	c.Data, c.ToolState = data, state
}

func appendToolMetadata(dst []byte, t *spans.ToolCall, problems []string) []byte {
	m := session.ToolTrace{
		DurationMS: t.DurationMS, StartedAt: t.StartedAt, Kind: t.ACPKind, Denied: t.Denied, Inferred: t.Inferred,
		Truncated: t.Truncated, OutputPath: t.OutputPath, OutputSize: t.OutputSize, OutputSHA256: t.OutputSHA256,
		ChildSessionID: t.ChildSessionID, ErrorType: t.ErrorType, Problems: problems,
	}
	if t.State == session.StateOutputError && t.Output != "" {
		m.PartialOutput = t.Output // a failed call that had printed something
	}
	b, err := json.Marshal(m)
	if err != nil || string(b) == "{}" {
		return dst
	}
	dst = append(dst, `,"toolMetadata":{"agenttrace":`...)
	return append(append(dst, b...), '}')
}

// stubPart writes a tool call of which only the turn's list is known. Its input and output are not there, so the AI
// SDK's only fitting state is the first; the last that was seen is kept beside it.
func stubPart(c *store.PartChange, toolName string) {
	c.Rank = store.RankStub
	isTool := strings.HasPrefix(c.Type, "tool-") && c.Type != "tool-"
	if !isTool && c.Type != "dynamic-tool" {
		c.Data = placeholder(c.Type, "no content arrived")
		c.Type = store.TypeDamaged
		return
	}
	data := spans.AppendJSONMember([]byte{'{'}, "type", c.Type)
	if !isTool {
		data = spans.AppendJSONMember(data, "toolName", toolName)
	}
	c.ToolCallID = cmp.Or(c.ToolCallID, c.ID)
	data = spans.AppendJSONMember(data, "toolCallId", c.ToolCallID)
	data = append(data, `,"state":"`+session.StateInputStreaming+`","toolMetadata":{"agenttrace":{"stub":true`...)
	data = spans.AppendJSONOptional(data, "state", c.ToolState)
	c.Data, c.ToolState = append(data, "}}}"...), session.StateInputStreaming
}

// placeholder is a data part that states what was lost.
func placeholder(partType, text string) json.RawMessage {
	data := spans.AppendJSONMember([]byte("{"), "type", partType)
	return dataPart(store.TypeDamaged, append(spans.AppendJSONMember(data, "text", text), '}'))
}

// dataPart is a part of a type that has data.
func dataPart(partType string, data []byte) json.RawMessage {
	return appendAll(nil, []member{{"type", jsonscan.AppendString(nil, partType)}, {"data", data}}, true)
}

// damagedPart saves what is left of a part that was cut short: the text that had arrived, or the raw characters.
func damagedPart(c *store.PartChange, raw string) {
	c.Rank = store.RankStub
	if c.Type == "text" || c.Type == "reasoning" {
		if _, after, ok := strings.Cut(raw, `"text":"`); ok {
			data := spans.AppendJSONMember([]byte(`{"type":"`+c.Type+`"`), "text", unquoteHead(after))
			c.Data = append(data, `,"providerMetadata":{"agenttrace":{"stub":true,"truncated":true}}}`...)
			return
		}
	}
	quarantine(c, raw)
}

// quarantine keeps a part that no reader could take as text.
func quarantine(c *store.PartChange, text string) {
	c.Data, c.Rank = placeholder(c.Type, text), store.RankStub
	c.Type, c.ToolCallID, c.ToolState = store.TypeDamaged, "", ""
}

// unquoteHead reads the longest readable head of a JSON string that lacks its end.
func unquoteHead(s string) string {
	for cut := 0; cut < 12 && cut <= len(s); cut++ {
		var text string
		head := strings.ToValidUTF8(s[:len(s)-cut], "")
		if json.Unmarshal([]byte(`"`+head+`"`), &text) == nil {
			return text
		}
	}
	return s
}

// hoist makes the columns of a part agree with its data, which is what readers go by.
func hoist(c *store.PartChange) {
	isTool := session.IsToolType(c.Type)
	if !isTool && c.ToolCallID == "" && c.ToolState == "" && bytes.HasPrefix(c.Data, []byte(`{"type":"`+c.Type+`"`)) {
		return
	}
	var data struct {
		Type       string `json:"type"`
		ToolCallID string `json:"toolCallId"`
		State      string `json:"state"`
	}
	if json.Unmarshal(c.Data, &data) != nil || data.Type == "" {
		quarantine(c, string(c.Data))
		return
	}
	c.Type = data.Type
	c.ToolCallID, c.ToolState = "", ""
	if session.IsToolType(c.Type) {
		c.ToolCallID, c.ToolState = data.ToolCallID, cmp.Or(data.State, session.StateInputStreaming)
	}
}

func (o *own) compactionData(r *spans.Compaction) json.RawMessage {
	c := session.CompactionData{Summary: r.Summary, Auto: r.Auto, SummaryTokens: o.count(r.SummaryTokens)}
	if r.TailStartID != "" {
		c.TailStartID = &r.TailStartID
	}
	b, err := json.Marshal(c)
	if err != nil {
		b = []byte(`{"summary":""}`)
	}
	return dataPart(session.TypeCompaction, b)
}
