// Pi: this file reads and writes the session files of the coding agent Pi, which the Hugging Face Hub shows, too: a
// header and a line for each entry, in a tree. The way from the last entry to the first is the conversation. Versions 1
// to 3 are read, and 3 is written. docs/formats.md lists what becomes what.

package formats

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	piVersion   = 3         // of the files that are written
	piAgentName = "pi"      // the agent where a header names no harness
	piUnknown   = "unknown" // replaces values that Pi requires
	piTypeBash  = "data-bash-execution"
)

// Types of entries.
const (
	piEntryMessage, piEntryModel, piEntryThinking    = "message", "model_change", "thinking_level_change"
	piEntryCompaction, piEntryBranch                 = "compaction", "branch_summary"
	piEntryCustom, piEntryCustomMessage, piEntryInfo = "custom", "custom_message", "session_info"
)

// piRoleResult is the role of a message with the result of a tool call.
const piRoleResult = "toolResult"

// piEnds are how a turn ended whose last model call stopped for a reason. After toolUse it went on.
var piEnds = map[string]string{
	"stop": semconv.EndFinish, "length": semconv.EndFinish, "aborted": semconv.EndAbort, "error": semconv.EndError,
}

// piBlock returns the block of a part's data, nil where the format has none for it.
func piBlock(data rows.Object) rows.Object {
	switch data.Text("type") {
	case "text":
		return rows.Of("type", "text", "text", data.Get("text"))
	case "reasoning":
		return rows.Of("type", "thinking", "thinking", data.Get("text"))
	case "file":
		media, image, inline := strings.Cut(strings.TrimPrefix(data.Text("url"), "data:"), ";base64,")
		if _, err := base64.StdEncoding.DecodeString(image); inline && err == nil &&
			strings.HasPrefix(media, "image/") &&
			strings.HasPrefix(data.Text("url"), "data:") && media == data.Text("mediaType") {
			return rows.Of("type", "image", "data", image, "mimeType", media)
		}
	}
	return nil
}

// piPartOf is the inverse of piBlock. Texts keep their spelling: JavaScript writes halves of characters.
func piPartOf(block rows.Object) rows.Object {
	kind := block.Text("type")
	raw := block.Get(kind)
	if _, ok := rows.Text(raw); ok && (kind == "text" || kind == "thinking") {
		return rows.Of("type", strings.Replace(kind, "thinking", "reasoning", 1), "text", raw)
	}
	image, ok := rows.Text(block.Get("data"))
	if media, typed := rows.Text(block.Get("mimeType")); kind == "image" && ok && typed {
		return rows.FilePart(media, "", "data:"+media+";base64,"+image)
	}
	return nil
}

// piBlocks returns the blocks of a content, which may be a text.
func piBlocks(content json.RawMessage) (all []rows.Object) {
	if _, ok := rows.Text(content); ok {
		return []rows.Object{rows.Of("type", "text", "text", content)}
	}
	for _, raw := range rows.Elements(content) {
		all = append(all, rows.Read(string(raw)))
	}
	return all
}

// piEncode writes the session as a file of Pi's.
func piEncode(s *codec.Session) []byte {
	e := piEncoder{s: s, t: s.Sorted(), entries: make(map[string]string)}
	row := &e.t.Session
	e.line(rows.Of("type", "session", "version", piVersion, "id", row.ID, "timestamp", rows.FormatTime(row.CreatedAt),
		"cwd", session.Deref(row.WorkspaceRoot), "harness", cmp.Or(row.Agent, piAgentName)))
	for i := range e.t.Messages {
		e.message(&e.t.Messages[i])
	}
	// The conversation is the way to the last entry, which must not be one that a rewind hid.
	title := row.Title
	if title == session.Untitled {
		title = ""
	}
	if title != "" || e.branch != "" {
		e.entry(piEntryInfo, row.UpdatedAt, false, "name", title)
	}
	return e.out
}

type piEncoder struct {
	s   *codec.Session
	t   *session.Transcript
	out []byte
	n   int
	// leaf is the last entry of the conversation, and branch the last one of a branch that was left,
	// empty after an entry of the conversation.
	leaf, branch string
	effort       string            // the thinking level in force
	entries      map[string]string // the first ones of messages
	of           string            // the message that is being written
}

func (e *piEncoder) line(o rows.Object) { e.out = append(append(e.out, o.JSON()...), '\n') }

// next is the id of the next entry.
func (e *piEncoder) next() string { return fmt.Sprintf("%08x", e.n+1) }

// entry writes an entry with fields of its type, and returns its id.
func (e *piEncoder) entry(kind string, at int64, hidden bool, fields ...any) string {
	id, parent := e.next(), e.leaf
	e.n++
	if e.entries[e.of] == "" && kind != piEntryThinking {
		e.entries[e.of] = id
	}
	if hidden {
		parent, e.branch = cmp.Or(e.branch, parent), id
	} else {
		e.leaf, e.branch = id, ""
	}
	o := rows.Of("type", kind, "id", id, "parentId", nil, "timestamp", rows.FormatTime(at))
	o.Add(rows.NonEmpty("parentId", parent))
	e.line(append(o, rows.Of(fields...)...))
	return id
}

// send writes an entry that is a message.
func (e *piEncoder) send(at int64, hidden bool, role string, content any, fields ...any) string {
	message := append(rows.Of("role", role, "content", content), rows.Of(fields...)...)
	message.Set("timestamp", at)
	return e.entry(piEntryMessage, at, hidden, "message", message)
}

func (e *piEncoder) message(m *session.MessageAndParts) {
	row := &m.Message
	hidden := row.HiddenAt != nil
	e.of = row.ID
	switch {
	case row.Role == session.RoleAssistant && m.IsMarker():
		e.compaction(m)
		return
	case row.Role == session.RoleAssistant:
		steps := rows.Steps(e.s, m)
		for i := range steps {
			e.step(m, &steps[i], i == len(steps)-1)
		}
		return
	}
	content := []rows.Object{}
	for i := range m.Parts {
		if b := piBlock(rows.Data(&m.Parts[i])); b != nil && b.Text("type") != "thinking" {
			content = append(content, b)
		}
	}
	if row.Role == session.RoleSystem {
		e.entry(piEntryCustomMessage, row.CreatedAt, hidden, "customType", session.RoleSystem, "content", content,
			"display", true)
	} else {
		e.send(row.CreatedAt, hidden, session.RoleUser, content)
	}
}

// compaction writes a message that consists of compactions. What the first one used is that of all.
func (e *piEncoder) compaction(m *session.MessageAndParts) {
	used := rows.Steps(e.s, m)[0]
	var before int64
	trace := rows.Read(m.Message.MetadataJSON).Object("agenttrace")
	_ = json.Unmarshal(rows.OrNull(trace.Get("context_tokens_before")), &before) // of another kind is unknown
	for i := range m.Parts {
		c, _ := session.ParseCompaction(m.Parts[i].DataJSON) // what is of another kind is unknown
		kept := e.next()                                     // itself: nothing before it is kept
		if c.TailStartID != nil {
			kept = cmp.Or(e.entries[*c.TailStartID], kept)
		}
		fields := []any{"summary", c.Summary, "firstKeptEntryId", kept, "tokensBefore", max(0, before)}
		if (used.Usage != nil || used.CostUSD != nil) && i == 0 {
			fields = append(fields, "usage", piUsage(&used))
		}
		e.entry(piEntryCompaction, m.Message.CreatedAt, m.Message.HiddenAt != nil, fields...)
	}
}

// step writes a model call and the results of the tool calls that it requested.
func (e *piEncoder) step(m *session.MessageAndParts, st *rows.Step, last bool) {
	content := []rows.Object{}
	ids := make(map[string]bool)
	var results []*rows.Call
	for _, p := range st.Parts {
		data := rows.Data(p)
		if b := piBlock(data); b != nil && b.Text("type") != "image" {
			content = append(content, b)
		} else if c := rows.CallOf(p, data, ids); c != nil {
			content = append(content, rows.Of("type", "toolCall", "id", c.ID, "name", c.Name, "arguments",
				c.Arguments()))
			if c.Result != nil {
				results = append(results, c)
			}
		}
	}
	at, hidden := max(m.Message.CreatedAt, st.At), m.Message.HiddenAt != nil
	if v := st.Model.Variant; v != e.effort && st.Model.ModelID != "" {
		e.effort = v
		e.entry(piEntryThinking, at, hidden, "thinkingLevel", cmp.Or(v, "off"))
	}
	reason, failure := piStop(m, st, last, len(ids) > 0)
	fields := []any{"api", piUnknown, "provider", cmp.Or(st.Model.ProviderID, piUnknown), "model",
		cmp.Or(st.Model.ModelID, piUnknown), "usage", piUsage(st), "stopReason", reason}
	if failure != "" {
		fields = append(fields, "errorMessage", failure)
	}
	e.send(at, hidden, session.RoleAssistant, content, fields...)
	for _, c := range results {
		content := []rows.Object{}
		blocks := c.Blocks()
		if blocks == nil {
			blocks = []rows.Block{{Text: *c.Result}}
		}
		for _, b := range blocks {
			if b.Image != nil {
				content = append(content, rows.Of("type", "image", "data", b.Image.Data, "mimeType", b.Image.Type))
			} else {
				content = append(content, rows.TextPart("text", b.Text))
			}
		}
		e.send(max(at, c.At), hidden, piRoleResult, content,
			"toolCallId", c.ID, "toolName", c.Name, "isError", c.Failed)
	}
}

// piUsage returns the usage of a step, which every message has: where it is not known, it is 0.
func piUsage(st *rows.Step) rows.Object {
	u, usd := *cmp.Or(st.Usage, new(session.Usage)), *cmp.Or(st.CostUSD, new(float64))
	u.Output += u.Reasoning
	return rows.Of("input", u.Input, "output", u.Output, "cacheRead", u.CacheRead, "cacheWrite", u.CacheWrite,
		"totalTokens", u.Total()-u.Reasoning,
		"cost", rows.Of("input", 0, "output", 0, "cacheRead", 0, "cacheWrite", 0, "total", usd))
}

// piStop returns why a model call stopped, and its error.
func piStop(m *session.MessageAndParts, st *rows.Step, last, called bool) (reason, failure string) {
	trace := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON)).Trace
	known := piEnds[st.StopReason] != ""
	switch {
	case last && trace.EndReason == semconv.EndError || !last && st.StopReason == "error":
		return "error", cmp.Or(trace.Error, piUnknown)
	case last && trace.EndReason == semconv.EndAbort:
		return "aborted", ""
	case !last && known:
		return st.StopReason, ""
	case called || !last || st.StopReason == "tool_calls",
		trace.EndReason == "" && (trace.Incomplete || trace.PendingApproval):
		return "toolUse", ""
	case trace.StopReason == "length":
		return "length", ""
	}
	return "stop", ""
}

// piText reads the session of a file. A line that is not an entry is reported and left out, and what follows it
// stays where it is. A file without a header is an error.
func piText(_ string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	b := &piBuilder{Reporter: rows.Reporter{Report: report}, calls: make(map[string]*rows.Part),
		messages: make(map[string]string)}
	var entries []piEntry
	for l := range rows.Lines(text, report) {
		b.Place.Line = l.N
		o := l.Object
		if l.Err != nil {
			o = nil
		}
		switch {
		case b.s == nil && (o.Text("type") != "session" || o.Text("id") == ""):
			return nil, fmt.Errorf(`line %d: is not a header: want {"type":"session","version":%d,"id":…} first`,
				l.N, piVersion)
		case b.s == nil:
			b.header(o)
		case o.Text("type") == "":
			b.Problem(`is not an entry, and is left out: want {"type":"message","id":…,"message":{…}}`)
		default:
			entries = append(entries, piEntry{Object: o, line: l.N, parent: len(entries) - 1})
		}
	}
	if b.s == nil {
		return nil, errors.New("it is empty: want a header and entries")
	}
	piLink(entries, b.started)
	return []*codec.Session{b.build(entries)}, nil
}

// piEntry is an entry with the place of its parent, -1 for the first one. On reports that it is on the
// way from the last entry to the first, and left when it no longer was.
type piEntry struct {
	rows.Object
	line, parent int
	on           bool
	at, left     int64
}

// piLink finds the parents, the times and the way from the last entry to the first. An entry whose
// parent is not there, or has no id, as in version 1, follows the one before. at is the time of the header.
func piLink(entries []piEntry, at int64) {
	places := make(map[string]int)
	for i := range entries {
		e := &entries[i]
		if p, ok := places[e.Text("parentId")]; ok {
			e.parent = p
		} else if string(e.Get("parentId")) == "null" {
			e.parent = -1
		}
		if id := e.Text("id"); id != "" {
			places[id] = i
		}
		if t, ok := rows.ParseTime(e.Text("timestamp")); ok {
			at = t
		}
		e.at = at
		if n, ok := rows.Milli(e.Object.Object("message").Get("timestamp")); ok {
			e.at = n
		}
	}
	for i := len(entries) - 1; i >= 0; i = entries[i].parent {
		entries[i].on = true
	}
	left := int64(0)
	for i := range slices.Backward(entries) {
		e := &entries[i]
		if e.left = max(left, e.at); e.on {
			left = e.at
		}
	}
}

// piBuilder makes a session of a file.
type piBuilder struct {
	rows.Reporter
	s       *rows.Session
	started int64 // the time of the header

	calls    map[string]*rows.Part
	messages map[string]string // by the ids of their first entries
	model    session.Model
	effort   string

	// What system messages state: texts and tools by their names, and digests of all of them. A text that is in no
	// section has the name "".
	sections, tools rows.Object
	prompt, catalog string
}

// header begins the session.
func (b *piBuilder) header(o rows.Object) {
	if v := o.Get("version"); v != nil && string(v) > "3" || len(v) > 1 {
		b.Problem("version is %.20s, and is read as version %d", v, piVersion)
	}
	b.s = rows.New(o.Text("id"), cmp.Or(o.Text("harness"), piAgentName))
	rows.SetText(&b.s.Row.WorkspaceRoot, o.Text("cwd"))
	b.s.AddMeta(rows.NonEmpty("pi", o.Texts("parentSession")))
	if at, ok := rows.ParseTime(o.Text("timestamp")); ok {
		b.started = at
		b.s.See(at)
	}
}

func (b *piBuilder) build(entries []piEntry) *codec.Session {
	kept := make(map[string]bool) // by the id of the entry with which a compaction's tail begins
	for _, e := range entries {
		kept[e.Text("firstKeptEntryId")] = e.Text("type") == piEntryCompaction
	}
	for i := range entries {
		e := &entries[i]
		b.Place.Line = e.line
		if e.parent != i-1 || kept[e.Text("id")] && e.Object.Object("message").Text("role") == session.RoleAssistant ||
			i > 0 && e.on != entries[i-1].on {
			b.s.Break() // the conversation goes on elsewhere
		}
		if e.at > 0 {
			b.s.See(e.at)
		}
		b.entry(e)
	}
	if b.model != (session.Model{}) {
		b.s.Row.ModelJSON = new(string(rows.Raw(b.model)))
	}
	return b.s.Finish()
}

// entry reads an entry.
func (b *piBuilder) entry(e *piEntry) {
	switch kind := e.Text("type"); kind {
	case piEntryMessage:
		b.message(e, e.Object.Object("message"))
	case piEntryCustomMessage:
		b.aside(e, session.RoleSystem, piBlocks(e.Get("content")))
	case piEntryBranch:
		b.aside(e, session.RoleSystem, piBlocks(e.Get("summary")))
	case piEntryCompaction:
		b.compaction(e)
	case piEntryInfo:
		b.s.Row.Title = cmp.Or(e.Text("name"), b.s.Row.Title)
	case piEntryModel:
		b.model = session.Model{ProviderID: e.Text("provider"), ModelID: e.Text("modelId"), Variant: b.effort}
	case piEntryThinking:
		if b.effort = e.Text("thinkingLevel"); b.effort == "off" {
			b.effort = ""
		}
		b.model.Variant = b.effort
	case "usage": // of something beside the conversation
		b.cost(e.Object.Object("usage"))
	case piEntryCustom, "label", "context_edit":
	default:
		b.Problem("is of type %.40q, which is not known, and is passed over", kind)
	}
}

// begun names a message by the entry that it begins with.
func (b *piBuilder) begun(e *piEntry, m *rows.Message) *rows.Message {
	if !e.on {
		m.Row.HiddenAt = new(max(e.left, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
	if id := e.Text("id"); id != "" {
		b.messages[id] = m.Row.ID
	}
	return m
}

// answer returns the message of the assistant that the entry is of.
func (b *piBuilder) answer(e *piEntry) *rows.Answer {
	a, begun := b.s.Answer(e.at)
	if begun {
		b.begun(e, a.Message)
	}
	return a
}

// aside adds a message that is not the agent's.
func (b *piBuilder) aside(e *piEntry, role string, content []rows.Object) *rows.Message {
	m := b.begun(e, b.s.Message(role, e.at))
	for i, block := range content {
		if data := piPartOf(block); data != nil {
			m.Part(data, e.at)
		} else {
			b.Problem("message.content[%d] is neither a text nor an image, and is left out", i)
		}
	}
	return m
}

func (b *piBuilder) message(e *piEntry, message rows.Object) {
	content := piBlocks(message.Get("content"))
	switch role := message.Text("role"); role {
	case session.RoleUser:
		b.aside(e, role, content)
	case session.RoleAssistant:
		b.assistant(e, message, content)
	case piRoleResult:
		b.result(e, message)
	case session.RoleSystem:
		b.instruct(message)
	case "custom", "hookMessage":
		b.aside(e, session.RoleSystem, content)
	case "bashExecution":
		text := rows.TextPart("text", "$ "+message.Text("command")+"\n"+message.Text("output"))
		b.aside(e, session.RoleSystem, []rows.Object{text}).Part(
			rows.DataPart(piTypeBash, message.Without("role", "timestamp")), e.at)
	case "branchSummary", "compactionSummary":
		b.aside(e, session.RoleSystem, piBlocks(message.Get("summary")))
	default:
		b.Problem("message.role is %.40s, which is not known: the message is left out",
			rows.OrNull(message.Get("role")))
	}
}

// instruct reads a change of the system prompt and of the tools.
func (b *piBuilder) instruct(message rows.Object) {
	for _, block := range piBlocks(message.Get("content")) {
		b.sections.Set("", strings.TrimPrefix(b.sections.Text("")+"\n\n"+block.Text("text"), "\n\n"))
	}
	b.sections.Add(message.Object("sections"))
	for tool := range rows.Objects(message.Get("toolsRemoved")) {
		b.tools = b.tools.Without(tool.Text("name"))
	}
	for tool := range rows.Objects(message.Get("toolsAdded")) {
		b.tools.Set(tool.Text("name"), tool)
	}
	texts, tools := []string{}, []json.RawMessage{}
	for _, section := range b.sections {
		if text, _ := rows.Text(section.Value); text != "" { // null takes a section away
			texts = append(texts, text)
		}
	}
	for _, tool := range b.tools {
		tools = append(tools, tool.Value)
	}
	b.prompt = b.s.Blob(store.BlobSystemPrompt, strings.Join(texts, "\n\n"), true)
	b.catalog = b.s.Blob(store.BlobToolCatalog, string(rows.Raw(tools)), true)
}

// assistant reads a model call.
func (b *piBuilder) assistant(e *piEntry, message rows.Object, content []rows.Object) {
	m := b.answer(e)
	m.Part(rows.Of("type", "step-start"), e.at)
	for i, block := range content {
		if data := piPartOf(block); data != nil {
			m.Part(data, e.at)
			continue
		}
		id, identified := rows.Text(block.Get("id"))
		name, named := rows.Text(block.Get("name"))
		if block.Text("type") != "toolCall" || !identified || !named {
			b.Problem("message.content[%d] is neither a text, thinking, nor a call with id and name, and is left out",
				i)
			continue
		}
		b.calls[id] = m.Call(id, name, block.Get("arguments"), e.at)
	}
	b.measure(m, e, message)
	m.AddMeta(rows.NonEmpty("system_prompt_digest", b.prompt))
	m.AddTrace(rows.NonEmpty("tool_catalog_digest", b.catalog))
}

// result gives a call its result.
func (b *piBuilder) result(e *piEntry, message rows.Object) {
	id := message.Text("toolCallId")
	p := b.calls[id]
	if p == nil || *p.Row.ToolState != session.StateInputAvailable && !e.on {
		b.Problem("message.toolCallId is %.60q, which no call before has: the result is kept without a call", id)
		kept := rows.Of("toolCallId", id, "content", rows.OrNull(message.Get("content")))
		b.answer(e).Part(rows.DataPart(typeToolResult, kept), e.at)
		return
	}
	p.Result(joinedTexts(message.Get("content")), message.True("isError"))
	if details := message.Get("details"); message.Has("details") {
		p.SetKey("callProviderMetadata", rows.Of("pi", rows.Of("details", details)))
	}
	if ms := piCount(message.Get("durationMs")); ms > 0 {
		p.SetToolTrace("duration_ms", ms)
	}
	p.Touch(e.at)
}

// compaction reads an entry of a compaction.
func (b *piBuilder) compaction(e *piEntry) {
	m := b.begun(e, b.s.Message(session.RoleAssistant, e.at))
	p := m.Part(rows.CompactionPart(e.Text("summary"), false), e.at)
	if tail := b.messages[e.Text("firstKeptEntryId")]; tail != "" && tail != m.Row.ID {
		p.SetInner("tail_start_id", tail)
	}
	m.SetMeta("compaction", true)
	usage := e.Object.Object("usage")
	m.AddTrace(rows.NonEmpty("context_tokens_before", piCount(e.Get("tokensBefore")), "usage", piUsageOf(usage),
		"cost_usd", b.cost(usage)))
}

// piCount reads a count of tokens, 0 if it is not one.
func piCount(raw json.RawMessage) int64 {
	n, _ := rows.Count(raw)
	return n
}

// piUsageOf reads a usage, nil where it is not known: Pi has 0 everywhere then.
func piUsageOf(o rows.Object) *session.Usage {
	u := session.Usage{Input: piCount(o.Get("input")), Output: piCount(o.Get("output")),
		CacheRead: piCount(o.Get("cacheRead")), CacheWrite: piCount(o.Get("cacheWrite"))}
	if u == (session.Usage{}) {
		return nil
	}
	u.Reasoning = min(piCount(o.Get("reasoning")), u.Output) // which has it, too
	u.Output -= u.Reasoning
	return &u
}

// cost adds what a usage cost to the session's cost, and returns it, nil where it is not known.
func (b *piBuilder) cost(usage rows.Object) *float64 {
	usd, err := strconv.ParseFloat(string(usage.Object("cost").Get("total")), 64)
	if err != nil || usd <= 0 {
		return nil
	}
	b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, usd)
	return &usd
}

// measure adds what an entry reports of its model call.
func (b *piBuilder) measure(a *rows.Answer, e *piEntry, message rows.Object) {
	step := session.Step{StartedAt: e.at, StopReason: message.Text("stopReason"), ResponseID: message.Text("responseId"),
		Usage: piUsageOf(message.Object("usage"))}
	var model session.Model
	if id := message.Text("model"); id != "" && id != piUnknown {
		model = session.Model{ProviderID: message.Text("provider"), ModelID: id, Variant: b.effort}
		if model.ProviderID == piUnknown {
			model.ProviderID = ""
		}
		b.model = model
	}
	if a.End == semconv.EndError { // the call before failed, and is tried again
		a.Failed(a.Error)
	}
	a.Error = ""
	a.End = piEnds[step.StopReason]
	switch step.StopReason {
	case "toolUse":
		step.StopReason = "tool_calls"
	case "error":
		a.Error = cmp.Or(message.Text("errorMessage"), piUnknown)
	}
	a.Stop = step.StopReason
	a.Step(step, model, b.cost(message.Object("usage")))
}
