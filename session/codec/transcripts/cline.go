package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// sniffCline reports whether a file that begins with text is the conversation of a task of Cline before its version 4:
// a list of messages, in which the program reports to the model where it is.
func sniffCline(text []byte) bool {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\uFEFF")))
	return bytes.HasPrefix(text, []byte("[")) && bytes.Contains(text, []byte(`"role"`)) &&
		(bytes.Contains(text, []byte("environment_details")) || bytes.Contains(text, []byte(`<task>`)) ||
			bytes.Contains(text, []byte(`\u003ctask\u003e`)) || bytes.Contains(text, []byte(`<user_message>`)))
}

// Cline reads sessions of Cline: a file of messages, or the conversation of a task
// as older versions wrote it. Both have messages in the form of the Anthropic API.
//
// Older versions had the model write calls as tags in its text, which become calls, too.
//
// Beside a file the program keeps more: a manifest, or what it showed of a task with its times and usage.
//
// Roo Code and Kilo Code are made of those older versions and write the conversations of tasks, too. Their messages
// have times, and the summaries that took the place of others; what was refused or failed is a JSON object.
var Cline = codec.Reading{
	Keys:       []string{"messages=[ sessionId=* agent=lead|subagent|teammate"},
	Extensions: []string{".json"}, SniffText: sniffCline, Transcript: true,
	Decode: decodeCline.stream, DecodeFile: decodeCline.file, Beside: func(path string) []string {
		if stem, ok := strings.CutSuffix(path, clineMessages); ok {
			return []string{stem + ".json"}
		}
		return siblings(path, "ui_messages.json", "task_metadata.json", "history_item.json")
	},
}

// clineKin are the programs, by what the path of a task has in lower case: the first is that of any other.
var clineKin = [][2]string{{"", "cline"}, {"roo-cline", "roo-code"}, {"vscode-mock", "roo-code"},
	{"kilocode", "kilo-code"}}

const clineMessages = ".messages.json"

var decodeCline decoder = func(from *source, text []byte) ([]*codec.Session, error) {
	id, about := "", rows.Object(nil) // the manifest, or the metadata of a task
	if filepath.Base(from.path) == "api_conversation_history.json" {
		id, about = dirOf(from.path), rows.Read(string(from.beside("task_metadata.json")))
	} else if stem, ok := strings.CutSuffix(filepath.Base(from.path), clineMessages); ok {
		id, about = valid(stem), rows.Read(string(from.beside(stem+".json")))
	}
	key := "messages"
	if head := bytes.TrimLeft(text, "\uFEFF \t\r\n"); len(head) > 0 && head[0] == '[' {
		key = ""
	}
	of, all := from.list(text, key)
	if id = cmp.Or(of.Text("sessionId"), id); id == "" && len(all) > 0 && key == "" {
		id = unnamed("cline", all[0].Object)
	}
	if id == "" || len(all) == 0 && !of.Has("sessionId") {
		return nil, errors.New("read messages: nothing names a session of Cline, and there are no messages")
	}
	d := cline{}
	path, _ := filepath.Abs(from.path)
	for _, kin := range clineKin {
		if strings.Contains(strings.ToLower(path), kin[0]) {
			d.b = newBuilder(from, id, kin[1])
		}
	}
	d.about(of, about)
	if key == "" {
		d.history(rows.Read(string(from.beside("history_item.json"))))
		for shown := range rows.Objects(json.RawMessage(from.beside("ui_messages.json"))) {
			d.shown(shown)
		}
	}
	for _, m := range all {
		from.record.Line = m.line
		d.message(m.Object)
	}
	if d.failed.at > 0 {
		d.b.see(d.failed.at)
		d.b.fails(d.failed.text)
	}
	switch about.Text("status") {
	case "failed":
		d.b.ended("error", "")
	case "cancelled":
		d.b.ended("abort", "")
	}
	d.b.until(milli(of.Text("updated_at")))
	d.b.until(milli(about.Text("ended_at")))
	d.b.s.AddMeta(rows.NonEmpty("cline", about.Texts("source", "team_name")))
	return []*codec.Session{d.b.finish()}, nil
}

type cline struct {
	b     *builder
	model session.Model
	// requests are those that an older version showed, which nothing else has the times and
	// usage of; the first are of the messages to come.
	requests []modelUse
	// condensed are the compactions that were shown, in their order.
	condensed []rows.Object
	// failed is the model call that was shown last, if it failed.
	failed struct {
		at   int64
		text string
	}
	// tagged is the call that the model wrote as tags and that has no result, yet.
	tagged string
	calls  int
	// feedback is what the user answered to the result of a task.
	feedback string
}

func (d *cline) about(of, about rows.Object) {
	b, origin := d.b, of.Object("origin")
	b.workspace(cmp.Or(about.Text("workspace_root"), about.Text("cwd")))
	parent := origin.Text("parentThreadId")
	if root, sub, ok := strings.Cut(b.s.Row.ID, "__"); ok && of.Text("agent") != "lead" && root != "" {
		parent = cmp.Or(parent, root)
		b.About.SubagentOf, b.About.SubagentID = root, cmp.Or(origin.Text("subagent"), sub)
	}
	b.parent(parent)
	b.systemPrompt(of.Text("system_prompt"))
	d.model = session.Model{ProviderID: about.Text("provider"), ModelID: about.Text("model")}
	for used := range rows.Objects(about.Get("model_usage")) {
		if used.Text("model_id") != "" {
			d.model = session.Model{ProviderID: used.Text("model_provider_id"), ModelID: used.Text("model_id")}
		}
	}
	b.Title = about.Object("metadata").Text("title")
	b.see(milli(about.Text("started_at")))
	b.see(bounded(json.RawMessage(b.s.Row.ID), maxMoment)) // a task is named so
}

// history takes what a list of tasks has of this one.
func (d *cline) history(o rows.Object) {
	d.b.workspace(o.Text("workspace"))
	d.b.mode(o.Text("mode"))
	d.b.parent(o.Text("parentTaskId"))
	d.b.Cost = usdOf(o.Get("totalCost"))
}

// shown takes a model call of what the program showed, and compactions.
func (d *cline) shown(o rows.Object) {
	if o.Text("ask") == "api_req_failed" {
		d.failed.at, d.failed.text = moment(o, "ts"), cmp.Or(o.Text("text"), "error")
	}
	if about := o.Object("contextCondense"); about != nil {
		d.condensed = append(d.condensed, about)
	}
	if o.Text("say") != "api_req_started" {
		return
	}
	d.failed.at = 0
	info := rows.Read(o.Text("text"))
	k := counts{"tokensIn", "tokensOut", "", "cacheReads", "cacheWrites"}
	r := modelUse{at: moment(o, "ts"), cost: usdOf(info.Get("cost")), usage: k.of(info)}
	// Versions of Roo Code that name the protocol count the cache as a part of the input: of OpenAI's always, of
	// Anthropic's since they count alike.
	if u := r.usage; info.Has("apiProtocol") && u.Input >= u.CacheRead+u.CacheWrite {
		r.usage = k.inclusive(info)
	}
	if info.Text("cancelReason") == "" || r.usage.Total() > 0 {
		d.requests = append(d.requests, r)
	}
}

func (d *cline) message(o rows.Object) {
	at := moment(o, "ts")
	if at == 0 && len(d.requests) > 0 {
		at = d.requests[0].at
	}
	d.b.see(at)
	blocks := contents(o.Get("content"))
	switch role := o.Text("role"); {
	case o.True("isSummary") || o.True("isTruncationMarker"):
		d.compaction(o, blocks)
		return
	case role == session.RoleUser:
		d.user(o, blocks)
	case role == session.RoleAssistant:
		if o.Text("type") != "reasoning" || len(blocks) > 0 { // which is encrypted
			d.assistant(o, blocks)
		}
	default:
		d.b.problem("is neither the user's nor the assistant's: left out")
	}
}

// compaction adds a summary in the place of the messages before, or the mark from which on the model sees them.
func (d *cline) compaction(o rows.Object, blocks []rows.Object) {
	c := compacted{auto: true}
	if o.True("isSummary") {
		c.summary = joined(blocks, "\n\n")
		if len(d.condensed) > 0 {
			c.before, c.after = number(d.condensed[0], "prevContextTokens"), number(d.condensed[0], "newContextTokens")
			d.condensed = d.condensed[1:]
		}
	}
	d.b.compaction(c)
}

// clineWorkspace is where a task is, as the program reports it to the model.
var clineWorkspace = regexp.MustCompile(`# Current Work(?:ing|space) Directory \((.+?)\) Files`)

// environment takes what the program reports to the model of itself.
func (d *cline) environment(text string) {
	if at := clineWorkspace.FindStringSubmatch(text); at != nil && d.b.s.Row.WorkspaceRoot == nil {
		d.b.workspace(at[1])
	}
	d.b.mode(between(text, "<slug>", "</slug>"))
	if model := between(text, "<model>", "</model>"); model != "" && model != d.model.ModelID {
		d.model = session.Model{ModelID: model}
	}
}

// clineResult begins the text that has the result of a call that was written as tags.
var clineResult = regexp.MustCompile(`^\[(\w+)(?: (?s:.*?))?\] Result:\s*`)

// clineNotes begin the texts that the program adds.
var clineNotes = []string{"<environment_details>", "[ERROR]", "# TODO LIST", "# task_progress"}

// user adds results of calls, and what the user or the program wrote.
func (d *cline) user(o rows.Object, blocks []rows.Object) {
	var parts []rows.Object
	byUser := false
	for i := 0; i < len(blocks); i++ {
		block := blocks[i]
		text := block.Text("text")
		switch {
		case block.Text("type") == "tool_result":
			d.result(block.Text("tool_use_id"), resultOf(block.Get("content")), block.True("is_error"))
		case d.tagged != "" && clineResult.MatchString(text):
			output := clineResult.ReplaceAllString(text, "")
			if output == "" && i+1 < len(blocks) && blocks[i+1].Has("text") &&
				!strings.HasPrefix(blocks[i+1].Text("text"), "<environment_details>") {
				i++
				output = blocks[i].Text("text")
			}
			d.result(d.tagged, rows.Raw(output), false)
			d.tagged = ""
		default:
			if strings.HasPrefix(text, "<environment_details>") {
				d.environment(text)
			}
			byUser = byUser || !beginsWith(strings.TrimSpace(text), clineNotes)
			parts = append(parts, clinePart(block))
		}
	}
	if d.feedback != "" {
		parts, byUser, d.feedback = append(parts, rows.TextPart("text", d.feedback)), true, ""
	}
	switch {
	case len(parts) == 0:
	case byUser:
		parts, _ = spoken(parts, "task", "feedback", "user_message")
		d.b.message(session.RoleUser, parts...).named(o.Text("id"), "", "")
	case d.b.turn == nil || d.b.turn.Last() == nil:
		d.b.message(session.RoleSystem, parts...)
	default: // details of the environment beside results: the turn goes on
		for _, p := range parts {
			d.b.part(contextPart(p.Text("text")))
		}
	}
}

// result adds a result, which begins in its own way where the user refused the call.
func (d *cline) result(id string, output json.RawMessage, failed bool) {
	text, _ := rows.Text(output)
	denied := strings.Contains(text, "The user denied this operation")
	reason := strings.TrimSpace(between(text, "<feedback>", "</feedback>"))
	if strings.HasPrefix(text, `{"status":"`) && d.b.About.Transcript != "cline" {
		status := rows.Read(text)
		denied, failed = denied || status.Text("status") == "denied", failed || status.Text("status") == "error"
		reason = cmp.Or(reason, status.Text("feedback"))
	}
	if !d.b.result(id, output, failed || denied) {
		return
	}
	if denied {
		d.b.refused(id, reason)
	} else if d.b.calls[id].Row.Type == "tool-attempt_completion" {
		d.feedback = cmp.Or(reason, strings.TrimSpace(between(text, "<user_message>", "</user_message>")))
	}
}

func (d *cline) assistant(o rows.Object, blocks []rows.Object) {
	b, info := d.b, o.Object("modelInfo")
	step := b.response(o.Text("id"))
	if model := cmp.Or(info.Text("id"), info.Text("modelId")); model != "" {
		d.model = session.Model{ProviderID: cmp.Or(info.Text("provider"), info.Text("providerId")), ModelID: model}
		step.ran(d.model)
	}
	b.mode(info.Text("mode"))
	b.setModel(d.model)
	b.text("reasoning", o.Text("reasoning_content"))
	for detail := range rows.Objects(o.Get("reasoning_details")) {
		b.text("reasoning", cmp.Or(detail.Text("text"), detail.Text("summary")))
	}
	for _, block := range blocks {
		switch block.Text("type") {
		case "thoughtSignature":
		case "text", "":
			d.tags(block.Text("text"))
		case "file":
			b.part(clinePart(block))
		default:
			b.block(block)
		}
	}
	d.count(step, o.Object("metrics"), moment(o, "ts"))
	if b.answered(); step.in.Last().Row.Type == "tool-attempt_completion" {
		b.ended("finish", "")
	}
}

// count notes the usage of a step, as the message reports it, or as it was shown until the time of the message, 0 where
// it has none. A request without a message of its own was one that the program repeated.
func (d *cline) count(s *step, metrics rows.Object, at int64) {
	var r *modelUse
	for len(d.requests) > 0 && (at == 0 && r == nil || at > 0 && d.requests[0].at <= at) {
		next := &d.requests[0]
		if r != nil {
			next.usage = next.usage.Add(r.usage)
			rows.AddCost(&next.cost, r.cost)
		}
		r, d.requests = next, d.requests[1:]
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
		r.cost = usdOf(metrics.Get("cost"))
	}
	s.count(*r, basis)
}

// clineTools are the calls that models wrote as tags.
var clineTools = []string{
	"execute_command", "read_file", "write_to_file", "replace_in_file", "search_files", "list_files",
	"list_code_definition_names", "browser_action", "use_mcp_tool", "access_mcp_resource", "ask_followup_question",
	"attempt_completion", "new_task", "plan_mode_respond", "act_mode_respond", "load_mcp_documentation", "condense",
	"web_fetch", "web_search", "use_skill", "report_bug", "new_rule", "summarize_task",
	// of Roo Code and Kilo Code
	"apply_diff", "insert_content", "search_and_replace", "codebase_search", "switch_mode", "fetch_instructions",
	"update_todo_list", "run_slash_command", "generate_image", "edit_file", "delete_file",
}

// tags adds a text, of which the first call in tags becomes a call: the program executes one call of an answer.
func (d *cline) tags(text string) {
	before, name, inner, after := text, "", "", ""
	for _, tool := range clineTools {
		start := strings.Index(text, "<"+tool+">")
		if start < 0 || name != "" && start > len(before) {
			continue
		}
		rest := text[start+len(tool)+2:]
		// The parameter of a call may have the tag itself: it ends with the last.
		if end := strings.LastIndex(rest, "</"+tool+">"); end >= 0 {
			before, name, inner, after = text[:start], tool, rest[:end], rest[end+len(tool)+3:]
		}
	}
	if name == "" {
		d.b.text("text", text)
		return
	}
	d.b.text("text", strings.TrimSpace(before))
	d.calls++
	d.tagged = fmt.Sprintf("tag_%d", d.calls)
	d.b.call(name, d.tagged, clineParameters(inner))
	d.b.text("text", strings.TrimSpace(after))
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
		close := "</" + name + ">"
		end := strings.Index(rest, close)
		if name == "content" || name == "diff" { // which may have the tag itself
			end = strings.LastIndex(rest, close)
		}
		if end < 0 {
			return o.JSON()
		}
		o.Set(name, strings.Trim(rest[:end], "\n"))
		inner = rest[end+len(close):]
	}
}

// clinePart is a block of a message as a part of ours.
func clinePart(block rows.Object) rows.Object {
	path := block.Text("path")
	if block.Text("type") != "file" || path == "" {
		return partOf(block)
	}
	part := fileOf("text/plain", "file://"+filepath.ToSlash(path))
	part.Set("filename", filepath.Base(path))
	if content := block.Text("content"); content != "" {
		part.Set("providerMetadata", map[string]any{"cline": map[string]any{"content": content}})
	}
	return part
}
