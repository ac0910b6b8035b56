package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/internal/jsonscan"
	"github.com/agenttrace/agenttrace/internal/nesting"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/ingest/fact"
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

// The JSON values of a span are validated by the same rules as a stored session, because an invalid value would break
// readers. What is invalid is kept as text, so that a person can still read it.

// maxDepth is how deep JSON may be nested. SQLite's JSON functions end at 1000, and the value is nested in others.
const maxDepth = nesting.MaxDepth

// TooDeep reports that JSON is nested deeper than readers can follow.
func TooDeep(raw []byte) bool { return jsonscan.NestsDeeper(raw, maxDepth) }

// firstViolation reports what is wrong with a message's metadata and its part, or
// "" when nothing is. Either may be zero.
func firstViolation(role, metadata string, part *session.Part) string {
	m := session.MessageAndParts{Message: session.Message{ID: "m", SessionID: "s", Role: role, MetadataJSON: metadata}}
	if part != nil {
		p := *part
		p.MessageID, p.SessionID, p.Index, p.CreatedAt, p.UpdatedAt = "m", "s", 0, 0, 0
		m.Parts = []session.Part{p}
	}
	t := session.Transcript{
		Session:  session.Session{ID: "s", PermissionsJSON: "[]", MetadataJSON: "{}"},
		Messages: []session.MessageAndParts{m},
	}
	for _, v := range session.Check(&t) {
		// A message of the assistant that has usage is not in this session's rollup.
		if v.Rule != "rollup" {
			return v.Detail
		}
	}
	return ""
}

// validatePart keeps a part whose data is not what its type demands, or that cannot
// are in a message of the role, as text.
func (o *own) validatePart(c *store.PartChange, role string) {
	p := session.Part{ID: "p", Type: c.Type, DataJSON: string(c.Data)}
	if c.ToolCallID != "" {
		p.ToolCallID = &c.ToolCallID
	}
	if c.ToolState != "" {
		p.ToolState = &c.ToolState
	}
	if problem := firstViolation(role, "{}", &p); problem != "" {
		o.problem("part " + c.ID + ": " + problem)
		quarantine(c, string(c.Data))
	}
}

// validateMetadata quarantines metadata that breaks a rule, as text under "given".
func (o *own) validateMetadata(role string, metadata json.RawMessage) json.RawMessage {
	problem := "nested too deep"
	if !TooDeep(metadata) {
		problem = firstViolation(role, string(metadata), nil)
	}
	if problem == "" {
		return metadata
	}
	o.problem("message metadata: " + problem)
	b, _ := json.Marshal(map[string]string{"given": string(metadata)}) // strings can be encoded
	return b
}

// validateRules returns the permission rules that are valid, and the others.
func (o *own) validateRules(given json.RawMessage) (valid, others json.RawMessage) {
	violates := func(rules []byte) bool {
		t := session.Transcript{Session: session.Session{ID: "s", PermissionsJSON: string(rules), MetadataJSON: "{}"}}
		return TooDeep(rules) || len(session.Check(&t)) > 0
	}
	if len(given) == 0 || !violates(given) {
		return given, nil
	}
	o.problem("agenttrace.session.permissions: a rule is not one")
	var rules, good []json.RawMessage
	if json.Unmarshal(given, &rules) != nil {
		return nil, quoted(given)
	}
	for _, r := range rules {
		if !violates([]byte("[" + string(r) + "]")) {
			good = append(good, r)
		}
	}
	if len(good) > 0 {
		valid, _ = json.Marshal(good)
	}
	return valid, quoted(given)
}

// quoted is JSON as text.
func quoted(raw []byte) json.RawMessage {
	b, _ := json.Marshal(string(raw))
	return b
}

// digest returns a SHA-256 in lower-case hex, or "" if the text is not one.
func (o *own) digest(key, given string) string {
	d := strings.ToLower(given)
	if d != "" && (len(d) != 64 || strings.Trim(d, "0123456789abcdef") != "") {
		o.problem(key + ": not a SHA-256 in hex")
		return ""
	}
	return d
}

// MaxTokens and MaxDollars are the greatest count of tokens and the greatest cost that are taken from what a span
// measured: beyond them they are not credible, and their sums would not be exact.
const (
	MaxTokens  = 1 << 40
	MaxDollars = 100_000
)

// count returns a count of tokens, or 0 when it is not credible.
func (o *own) count(n int64) int64 {
	if n < 0 || n > MaxTokens {
		o.problem("a count of tokens is not credible")
		return 0
	}
	return n
}

// cost returns a stated cost, or nil when it is not credible.
func (o *own) cost(usd *float64) *float64 {
	if usd != nil && (*usd < 0 || *usd > MaxDollars) {
		o.problem("agenttrace.cost.usd: not credible")
		return nil
	}
	return usd
}

// boundFact keeps as text what should be JSON of a fact and is not, or is nested deeper than readers follow. Every
// value of a fact comes through here before it is encoded, so that what is written can be read: the decoder of JSON
// ends at 10,000 levels, and a value that is just below them is beyond them within the fact.
func boundFact(f *fact.Fact) {
	bound := func(what string, raw *json.RawMessage, levels int) {
		switch {
		case len(*raw) == 0 || jsonscan.IsValue(*raw, levels):
			return
		case jsonscan.NestsDeeper(*raw, levels):
			f.Problems = append(f.Problems, fmt.Sprintf("%s: JSON nested deeper than %d levels, kept as text", what, levels))
		case json.Valid(*raw):
			return // with space around it
		default:
			f.Problems = append(f.Problems, what+": invalid JSON, kept as text")
		}
		*raw = quoted(*raw)
	}
	for _, p := range fact.EachPart(append(f.Input[:len(f.Input):len(f.Input)], fact.Message{Parts: f.Output})) {
		bound("input of tool "+p.Name, &p.Input, maxDepth)
		bound("output of tool "+p.Name, &p.Output, maxDepth)
		bound("part of a message", &p.Data, maxDepth)
	}
	if t := f.Tool; t != nil {
		bound("input of tool "+t.Name, &t.Input, maxDepth)
		bound("output of tool "+t.Name, &t.Output, maxDepth)
	}
	if f.Usage != nil {
		bound("usage", &f.Usage.Raw, maxDepth)
	}
	if f.CostUSD != nil && *f.CostUSD < 0 {
		f.Problems = append(f.Problems, "cost: negative, and left out")
		f.CostUSD = nil
	}
	if a := f.SessionAttrs; a != nil && (TooDeep(a.Rules) || len(a.Rules) > 0 && !json.Valid(a.Rules)) {
		f.Problems = append(f.Problems, "permission rules: nested too deep or invalid, and left out")
		a.Rules = nil
	}
	// It must stay an object, which is a level around its values.
	f.Extra = eachMember(f.Extra, func(m *member) { bound(m.name, &m.value, maxDepth-1) })
	if !json.Valid(f.Extra) {
		f.Extra = nil
	}
	if catalog := json.RawMessage(f.ToolCatalog); TooDeep(catalog) {
		bound("tool catalog", &catalog, maxDepth)
		f.ToolCatalog = string(catalog)
	}
}
