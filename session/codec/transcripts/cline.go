package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksCline reports whether an object with these keys, and the values of those that are
// strings, is a file of messages of Cline.
func looksCline(keys map[string]string) bool {
	return keys["messages"] == "[" && keys["sessionId"] != "" &&
		slices.Contains([]string{"lead", "subagent", "teammate"}, keys["agent"])
}

// sniffCline reports whether a file that begins with text is the conversation of a task of
// Cline before its version 4: a list of messages, in which the program tells the model
// where it is.
func sniffCline(text []byte) bool {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\uFEFF")))
	return bytes.HasPrefix(text, []byte("[")) && bytes.Contains(text, []byte(`"role"`)) &&
		(bytes.Contains(text, []byte("environment_details")) || bytes.Contains(text, []byte(`<task>`)) ||
			bytes.Contains(text, []byte(`\u003ctask\u003e`)))
}

// Cline reads sessions of Cline: a file of messages, or the conversation of a task
// as older versions wrote it. Both have messages in the form of the Anthropic API.
//
//	user                   user message, or a system message where the program wrote it
//	assistant              a step: reasoning, text, and tool calls, with its usage
//	tool_use, tool_result  part tool-<name>
//
// Older versions had the model write calls as tags in its text, which become calls, too.
//
// What cannot be read is reported and left out; report may be nil. An error is yielded when
// reading fails, or when nothing is of Cline.
//
// Beside a file the program keeps more: a manifest, or what it showed of a task with its
// times and usage.
var Cline = codec.Reading{
	Extensions: []string{".json"}, SniffKeys: looksCline, SniffText: sniffCline, Transcript: true,
	Decode: decoder(decodeCline).stream, DecodeFile: decoder(decodeCline).file, Beside: besideCline,
}

// placeOfCline reads what is beside the file at path, "" for none.
func placeOfCline(path string) (place clinePlace) {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err == nil && filepath.Base(path) == "api_conversation_history.json" {
		place.id = strings.ToValidUTF8(filepath.Base(dir), "\uFFFD")
		place.shown = rows.Elements(json.RawMessage(beside(path, "ui_messages.json")))
		place.about = rows.Read(beside(path, "task_metadata.json"))
	} else if stem, ok := strings.CutSuffix(filepath.Base(path), ".messages.json"); ok {
		place.id = strings.ToValidUTF8(stem, "\uFFFD")
		place.about = rows.Read(beside(path, stem+".json"))
	}
	return place
}

func besideCline(path string) []string {
	if stem, ok := strings.CutSuffix(path, ".messages.json"); ok {
		return []string{stem + ".json"}
	}
	dir := filepath.Dir(path)
	return []string{filepath.Join(dir, "ui_messages.json"), filepath.Join(dir, "task_metadata.json")}
}

// clinePlace is what is known of a file from its place.
type clinePlace struct {
	id    string
	about rows.Object       // the manifest, or the metadata of a task
	shown []json.RawMessage // what the program showed of a task
}

func decodeCline(path string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	place := placeOfCline(path)
	type message struct {
		o    rows.Object
		line int
	}
	var all []message
	key := "messages"
	if head := bytes.TrimLeft(text, "\uFEFF \t\r\n"); len(head) > 0 && head[0] == '[' {
		key = ""
	}
	of := objectsIn(text, key, report, func(o rows.Object, line int) { all = append(all, message{o, line}) })
	id := cmp.Or(of.Text("sessionId"), place.id)
	if id == "" && len(all) > 0 && key == "" {
		id = unnamed("cline", all[0].o)
	}
	if id == "" || len(all) == 0 && !of.Has("sessionId") {
		return nil, errors.New("read messages: nothing names a session of Cline, and there are no messages")
	}
	d := cline{b: newBuilder(id, "cline", report)}
	d.about(of, place)
	for _, m := range all {
		d.message(m.o, m.line)
	}
	return []*codec.Session{d.finish(of, place)}, nil
}

type cline struct {
	b     *builder
	model session.Model
	// requests are those that an older version showed, which nothing else has the times and
	// usage of; the first are of the messages to come.
	requests []modelUse
	// tagged is the call that the model wrote as tags and that has no result, yet.
	tagged string
	calls  int
}

func (d *cline) about(of rows.Object, place clinePlace) {
	row := &d.b.s.Row
	rows.SetText(&row.WorkspaceRoot, cmp.Or(place.about.Text("workspace_root"), place.about.Text("cwd")))
	origin := of.Object("origin")
	parent := origin.Text("parentThreadId")
	if root, sub, ok := strings.Cut(row.ID, "__"); ok && of.Text("agent") != "lead" && root != "" {
		parent = cmp.Or(parent, root)
		d.b.About.SubagentOf, d.b.About.SubagentID = root, cmp.Or(origin.Text("subagent"), sub)
	}
	d.b.parent(parent)
	if prompt := of.Text("system_prompt"); prompt != "" {
		d.b.Prompt = d.b.blob(store.BlobSystemPrompt, prompt)
	}
	if model := place.about.Text("model"); model != "" {
		d.model = session.Model{ProviderID: place.about.Text("provider"), ModelID: model}
	}
	for used := range rows.Objects(place.about.Get("model_usage")) {
		if used.Text("model_id") != "" {
			d.model = session.Model{ProviderID: used.Text("model_provider_id"), ModelID: used.Text("model_id")}
		}
	}
	d.b.Title = place.about.Object("metadata").Text("title")
	d.b.seeMilli(milli(place.about.Text("started_at")))
	if at, err := strconv.ParseInt(row.ID, 10, 64); err == nil && at > 0 && at < maxMoment { // a task is named so
		d.b.seeMilli(at)
	}
	for _, v := range place.shown {
		d.shown(v)
	}
}

// shown takes a model call of what the program showed.
func (d *cline) shown(v json.RawMessage) {
	o, err := rows.Parse(v)
	if err != nil || o.Text("say") != "api_req_started" {
		return
	}
	info := rows.Read(o.Text("text"))
	r := modelUse{at: moment(o, "ts"),
		usage: counts{"tokensIn", "tokensOut", "", "cacheReads", "cacheWrites"}.of(info)}
	if info.Has("cost") {
		r.cost = new(cost(info))
	}
	if info.Text("cancelReason") == "" || r.usage.Total() > 0 {
		d.requests = append(d.requests, r)
	}
}

func (d *cline) message(o rows.Object, line int) {
	at := moment(o, "ts")
	if at == 0 && len(d.requests) > 0 {
		at = d.requests[0].at
	}
	d.b.seeMilli(at)
	blocks := contents(o.Get("content"))
	switch o.Text("role") {
	case session.RoleUser:
		d.user(o, blocks, line)
	case session.RoleAssistant:
		d.assistant(o, blocks)
	default:
		d.b.report(codec.Problem{Line: line, Reason: "is neither the user's nor the assistant's: left out"})
	}
}

// clineResult begins the text that has the result of a call that was written as tags.
var clineResult = regexp.MustCompile(`^\[(\w+)(?: (?s:.*?))?\] Result:\s*`)

// user adds results of calls, and what the user or the program wrote.
func (d *cline) user(o rows.Object, blocks []rows.Object, line int) {
	var parts []rows.Object
	byUser := false
	for i := 0; i < len(blocks); i++ {
		block := blocks[i]
		text := block.Text("text")
		switch {
		case block.Text("type") == "tool_result":
			d.result(block.Text("tool_use_id"), resultOf(block.Get("content")), block.True("is_error"), line)
		case d.tagged != "" && clineResult.MatchString(text):
			output := clineResult.ReplaceAllString(text, "")
			if output == "" && i+1 < len(blocks) && blocks[i+1].Has("text") &&
				!strings.HasPrefix(blocks[i+1].Text("text"), "<environment_details>") {
				i++
				output = blocks[i].Text("text")
			}
			d.result(d.tagged, rows.Raw(output), false, line)
			d.tagged = ""
		default:
			part := clinePart(block)
			trimmed := strings.TrimSpace(text)
			fromProgram := trimmed != "" && (strings.HasPrefix(trimmed, "<environment_details>") ||
				strings.HasPrefix(trimmed, "[ERROR]") || strings.HasPrefix(trimmed, "# TODO LIST") ||
				strings.HasPrefix(trimmed, "# task_progress"))
			byUser = byUser || !fromProgram
			parts = append(parts, part)
		}
	}
	switch {
	case len(parts) == 0:
	case byUser:
		parts, _ = spoken(parts, "task", "feedback")
		named(d.b.message(session.RoleUser, parts), o.Text("id"), "", "")
	case d.b.turn == nil || d.b.turn.Last() == nil:
		d.b.message(session.RoleSystem, parts)
	default: // details of the environment beside results: the turn goes on
		for _, p := range parts {
			d.b.part(contextPart(p.Text("text")))
		}
	}
}

// clineDenied begins the result of a call that the user refused.
const clineDenied = "The user denied this operation"

func (d *cline) result(id string, output json.RawMessage, failed bool, line int) {
	text, _ := rows.Text(output)
	denied := strings.Contains(text, clineDenied)
	if d.b.outcome(codec.Problem{Line: line}, id, output, failed || denied) && denied {
		d.b.refused(id, strings.TrimSpace(between(text, "<feedback>", "</feedback>")))
	}
}

func (d *cline) assistant(o rows.Object, blocks []rows.Object) {
	b := d.b
	n := 0
	step := b.step(cmp.Or(o.Text("id"), strconv.Itoa(len(b.s.Messages()))))
	step.ResponseID = o.Text("id")
	info := o.Object("modelInfo")
	if model := cmp.Or(info.Text("id"), info.Text("modelId")); model != "" {
		d.model = session.Model{ProviderID: cmp.Or(info.Text("provider"), info.Text("providerId")), ModelID: model}
		step.Model = new(d.model)
	}
	rows.SetText(&b.s.Row.Mode, info.Text("mode"))
	if d.model.ModelID != "" {
		b.setModel(d.model)
	}
	ref := b.lastStep()
	for _, block := range blocks {
		switch block.Text("type") {
		case "tool_use":
			n++
			b.call(block.Text("name"), block.Text("id"), inputOf(block.Get("input")))
		case "text", "":
			n += d.tags(block.Text("text"))
		case "thinking":
			b.text("reasoning", block.Text("thinking"))
		case "redacted_thinking":
		default:
			b.part(clinePart(block))
		}
	}
	d.count(ref, o.Object("metrics"))
	if n == 0 || ref.m.Last().Row.Type == "tool-attempt_completion" {
		b.ended("finish", "")
	}
}

// count notes the usage of a step, as the message reports it, or as it was shown.
func (d *cline) count(step stepRef, metrics rows.Object) {
	var r *modelUse
	if len(d.requests) > 0 {
		r = &d.requests[0]
		d.requests = d.requests[1:]
	}
	tokens, basis := metrics.Object("tokens"), semconv.BasisInclusive
	switch {
	case tokens != nil:
		r = &modelUse{usage: counts{input: "prompt", output: "completion", read: "cached"}.inclusive(tokens)}
	case metrics.Has("inputTokens") || metrics.Has("outputTokens"):
		r = &modelUse{usage: camelCounts.inclusive(metrics)}
	default:
		basis = semconv.BasisExclusive
	}
	if r == nil {
		return
	}
	if metrics.Has("cost") {
		r.cost = new(cost(metrics))
	}
	d.b.count(step, *r, basis)
}

// clineTools are the calls that models wrote as tags.
var clineTools = []string{
	"execute_command", "read_file", "write_to_file", "replace_in_file", "search_files", "list_files",
	"list_code_definition_names", "browser_action", "use_mcp_tool", "access_mcp_resource", "ask_followup_question",
	"attempt_completion", "new_task", "plan_mode_respond", "act_mode_respond", "load_mcp_documentation", "condense",
	"web_fetch", "web_search", "use_skill", "report_bug", "new_rule", "summarize_task",
}

// tags adds a text, of which calls in tags become calls, and returns how many there are.
// The program executes one call of an answer.
func (d *cline) tags(text string) int {
	before, name, inner, after := clineTag(text)
	if name == "" {
		d.b.text("text", text)
		return 0
	}
	d.b.text("text", strings.TrimSpace(before))
	d.calls++
	d.tagged = fmt.Sprintf("tag_%d", d.calls)
	d.b.call(name, d.tagged, clineParameters(inner))
	d.b.text("text", strings.TrimSpace(after))
	return 1
}

// clineTag finds the first call in tags.
func clineTag(text string) (before, name, inner, after string) {
	first := len(text)
	for _, tool := range clineTools {
		start := strings.Index(text, "<"+tool+">")
		if start < 0 || start > first {
			continue
		}
		rest := text[start+len(tool)+2:]
		// The parameter of a call may have the tag itself: it ends with the last.
		if end := strings.LastIndex(rest, "</"+tool+">"); end >= 0 {
			first = start
			before, name, inner, after = text[:start], tool, rest[:end], rest[end+len(tool)+3:]
		}
	}
	return before, name, inner, after
}

var clineParameter = regexp.MustCompile(`<([a-z_]+)>`)

// clineParameters are the parameters of a call in tags.
func clineParameters(inner string) json.RawMessage {
	o := rows.Object{}
	for {
		at := clineParameter.FindStringSubmatchIndex(inner)
		if at == nil {
			return o.JSON()
		}
		name, rest := inner[at[2]:at[3]], inner[at[1]:]
		value, after, ok := strings.Cut(rest, "</"+name+">")
		if !ok {
			return o.JSON()
		}
		if name == "content" || name == "diff" { // which may have the tag itself
			end := strings.LastIndex(rest, "</"+name+">")
			value, after = rest[:end], rest[end+len(name)+3:]
		}
		o.Set(name, strings.Trim(value, "\n"))
		inner = after
	}
}

func (d *cline) finish(of rows.Object, place clinePlace) *codec.Session {
	switch place.about.Text("status") {
	case "failed":
		d.b.ended("error", "")
	case "cancelled":
		d.b.ended("abort", "")
	}
	for _, at := range []int64{milli(of.Text("updated_at")), milli(place.about.Text("ended_at"))} {
		if at > 0 {
			d.b.s.See(at)
		}
	}
	d.b.s.AddMeta(rows.NonEmpty("cline", place.about.Texts("source", "team_name")))
	return d.b.finish()
}

// clinePart is a block of a message as a part of ours.
func clinePart(block rows.Object) rows.Object {
	path := block.Text("path")
	if block.Text("type") != "file" || path == "" {
		return partOf(block)
	}
	part := rows.FilePart("text/plain", "", "file://"+filepath.ToSlash(path))
	part.Set("filename", filepath.Base(path))
	if content := block.Text("content"); content != "" {
		part.Set("providerMetadata", map[string]any{"cline": map[string]any{"content": content}})
	}
	return part
}
