package transcripts

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Cline reads sessions of Cline: a file of messages, or the conversation of a task as older versions wrote it, and Roo
// Code and Kilo Code do, which are made of those. Both have messages in the form of the Anthropic API. Older versions
// had the model write calls as tags in its text, which become calls, too. Beside a file the program keeps more: a
// manifest, or what it showed of a task with its times and usage.
var Cline = decodeCline.reading(codec.Reading{
	Keys:       []string{"messages=[ sessionId=* agent=lead|subagent|teammate"},
	Extensions: []string{".json"}, SniffText: func(head []byte) bool { return clineTask().Match(head) },
	Beside: func(path string) []string { return siblings(path, clineBeside(path)...) },
})

var decodeCline decoder = func(from *source, text []byte) []*codec.Session {
	of, all := from.list(text, "messages")
	id := of.Text("sessionId")
	if filepath.Base(from.path) == "api_conversation_history.json" {
		id = dirOf(from.path)
	} else if of == nil && len(all) > 0 {
		id = unnamed("cline", all[0].Object)
	}
	if id == "" {
		return nil
	}
	d := cline{}
	path, _ := filepath.Abs(from.path)
	for _, kin := range clineKin {
		if strings.Contains(strings.ToLower(path), kin[0]) {
			d.b = newBuilder(from, id, kin[1])
		}
	}
	d.about(of, clineBeside(from.path))
	for _, m := range all {
		from.Place.Line = m.line
		d.message(m.Object)
	}
	if d.failed != nil {
		d.b.see(moment(d.failed, "ts"))
		d.b.fails(cmp.Or(d.failed.Text("text"), "error"))
	} else if d.end != "" && (d.b.turn == nil || d.b.turn.Error == "") {
		d.b.ended(d.end, "")
	}
	return d.b.alone()
}

type cline struct {
	b     *builder
	model session.Model
	end   string // of the session
	// requests are those that were shown, which nothing else has the times and usage of: the first are of the messages
	// to come. condensed are the compactions, and failed is the model call that was shown last, if it failed.
	requests  []modelUse
	condensed []rows.Object
	failed    rows.Object
	// tagged is the call that the model wrote as tags and that has no result, yet, and feedback what the user answered
	// to the result of a task.
	tagged, feedback string
}

// about takes what a file of messages, and the files beside it, have of the session.
func (d *cline) about(of rows.Object, beside []string) {
	b, origin := d.b, of.Object("origin")
	var about rows.Object
	for _, name := range beside[:3] {
		about.Add(rows.Read(string(b.beside(name))))
	}
	above := rows.Read(string(b.beside(beside[4]))) // what a sub-agent is of
	b.workspace(cmp.Or(about.Text("workspace_root"), about.Text("cwd"), about.Text("workspace"),
		above.Text("workspace_root")))
	b.mode(about.Text("mode"))
	b.Cost = rows.USD(about.Get("totalCost"))
	b.Title = about.Object("metadata").Text("title")
	parent := cmp.Or(origin.Text("parentThreadId"), about.Text("parentTaskId"))
	if root, sub, ok := strings.Cut(b.s.Row.ID, "__"); ok && of.Text("agent") != "lead" && root != "" {
		parent = cmp.Or(parent, root)
		b.About.SubagentOf, b.About.SubagentID = root, cmp.Or(origin.Text("subagent"), sub)
	}
	b.parent(parent)
	b.systemPrompt(of.Text("system_prompt"))
	d.model = session.Model{ProviderID: about.Text("provider"), ModelID: about.Text("model")}
	for used := range rows.Objects(about.Get("model_usage")) {
		d.model = session.Model{ProviderID: used.Text("model_provider_id"), ModelID: used.Text("model_id")}
	}
	b.s.AddMeta(rows.NonEmpty("cline", about.Texts("source", "team_name")))
	b.until(milli(of.Text("updated_at")))
	b.until(milli(about.Text("ended_at")))
	b.see(milli(about.Text("started_at")))
	b.see(bounded(json.RawMessage(b.s.Row.ID), maxMoment)) // a task is named so
	d.end = map[string]string{"failed": "error", "cancelled": "abort"}[about.Text("status")]
	for o := range rows.Objects(json.RawMessage(b.beside(beside[3]))) {
		d.shown(o)
	}
}

func (d *cline) message(o rows.Object) {
	at, blocks := moment(o, "ts"), contents(o.Get("content"))
	if at == 0 && len(d.requests) > 0 {
		at = d.requests[0].at
	}
	d.b.see(at)
	switch role := o.Text("role"); {
	case o.True("isTruncationMarker"):
		d.b.compaction(compacted{auto: true})
	case o.True("isSummary"):
		c := compacted{summary: joined(blocks, "\n\n"), auto: true}
		if len(d.condensed) > 0 {
			c.before, c.after = number(d.condensed[0], "prevContextTokens"), number(d.condensed[0], "newContextTokens")
			d.condensed = d.condensed[1:]
		}
		d.b.compaction(c)
	case role == session.RoleUser:
		d.user(o, blocks)
	case o.Object("metadata").Text("displayRole") == "error":
		d.b.fails(joined(blocks, "\n"))
	case role != session.RoleAssistant:
		d.b.Problem("is neither the user's nor the assistant's: left out")
	case o.Text("type") != "reasoning" || len(blocks) > 0: // which is encrypted
		d.assistant(o, blocks)
	}
}

// user adds results of calls, and what the user or the program wrote.
func (d *cline) user(o rows.Object, blocks []rows.Object) {
	var parts []rows.Object
	var outputs []string // of the call that was written as tags
	for _, block := range blocks {
		text, path := block.Text("text"), block.Text("path")
		begins := clineResult().FindString(text)
		switch {
		case block.Text("type") == "tool_result":
			d.result(block.Text("tool_use_id"), block.Get("content"), block.True("is_error"))
		case beginsWith(strings.TrimSpace(text), clineNotes):
			d.note(text)
			parts = append(parts, contextPart(text))
		case d.tagged != "" && (begins != "" || outputs != nil && text != ""):
			outputs = append(outputs, text[len(begins):])
		case path != "":
			parts = append(parts, rows.FilePart("text/plain", filepath.Base(path), "file://"+filepath.ToSlash(path)),
				contextPart(block.Text("content")))
		default:
			parts = append(parts, partOf(block))
		}
	}
	if outputs != nil {
		d.result(d.tagged, rows.Raw(strings.TrimLeft(strings.Join(outputs, "\n"), "\n")), false)
		d.tagged = ""
	}
	parts = append(parts, partsOf(rows.TextPart("text", d.feedback))...)
	d.feedback = ""
	if parts, own := spoken(parts, "task", "feedback", "user_message"); own {
		d.b.message(session.RoleUser, parts...).named(o.Text("id"), "", "")
	} else if d.b.turn == nil {
		d.b.message(session.RoleSystem, parts...)
	} else { // what is beside results: the turn goes on
		d.b.add(parts...)
	}
}

// result adds a result: a text, which begins in its own way where the user refused the call, or what became of each
// that the call asked for.
func (d *cline) result(id string, content json.RawMessage, failed bool) {
	output, each := resultOf(content), contents(content)
	if len(each) == 1 && each[0].Has("success") {
		output = rows.Raw(cmp.Or(each[0].Text("result"), each[0].Text("error")))
	}
	failed = failed || len(each) > 0 && !slices.ContainsFunc(each, func(one rows.Object) bool {
		return string(one.Get("success")) != "false"
	})
	text, _ := rows.Text(output)
	var status rows.Object
	if d.b.About.Transcript != "cline" {
		status = rows.Read(text)
	}
	denied := strings.Contains(text, "The user denied this operation") || status.Text("status") == "denied"
	reason := cmp.Or(strings.TrimSpace(between(text, "<feedback>", "</feedback>")), status.Text("feedback"))
	if !d.b.result(id, output, failed || denied || status.Text("status") == "error") {
		return
	}
	if denied {
		d.b.judged(id, "reject", reason)
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
			d.text(block.Text("text"))
		default:
			b.block(block)
		}
	}
	d.count(step, o.Object("metrics"))
	if b.answered(); step.in.Last().Row.Type == "tool-attempt_completion" {
		b.ended("finish", "")
	}
}

// count notes the usage of a step, as the message reports it, or as it was shown until then: a request without a
// message of its own was one that the program repeated.
func (d *cline) count(s *step, metrics rows.Object) {
	var use modelUse
	basis := ""
	for len(d.requests) > 0 && d.requests[0].at <= d.b.At {
		use.usage, basis = use.usage.Add(d.requests[0].usage), semconv.BasisExclusive
		rows.AddCost(&use.cost, d.requests[0].cost)
		d.requests = d.requests[1:]
	}
	for _, k := range []counts{{"tokens.prompt", "tokens.completion", "", "tokens.cached", ""}, camelCounts} {
		if used := k.inclusive(metrics); used.Total() > 0 {
			use.usage, basis = used, semconv.BasisInclusive
		}
	}
	if metrics.Has("cost") {
		use.cost = rows.USD(metrics.Get("cost"))
	}
	if basis != "" {
		s.count(use, basis)
	}
}

// What the tasks of Roo Code, Kilo Code and older versions of Cline have that sessions of Cline lack: a list of what was
// shown, with times and usage; reports of the program to the model; and calls that the model wrote as tags in its text.

// clineBeside are the files beside one: what is known of the session, and at last what was shown of it.
func clineBeside(path string) []string {
	manifest := strings.TrimSuffix(filepath.Base(path), ".messages.json") + ".json"
	return []string{manifest, "task_metadata.json", "history_item.json", "ui_messages.json", dirOf(path) + ".json"}
}

// clineKin are the programs, by what the path of a task has in lower case: the first is that of any other.
var clineKin = [][2]string{{"", "cline"}, {"roo-cline", "roo-code"}, {"vscode-mock", "roo-code"},
	{"kilocode", "kilo-code"}}

// clineTask is in the conversation of a task, in which the program reports to the model where it is.
var clineTask = lazy.Regexp(`(?s)^\x{FEFF}?\s*\[.*"role".*` +
	`(environment_details|<task>|\\u003ctask\\u003e|<user_message>)`)

// clineNotes begin the texts that the program adds, clineResult that which has the result of a call that was written as
// tags, and clineWorkspace is where a task is, as the program reports it to the model.
var (
	clineNotes     = []string{"<environment_details>", "[ERROR]", "# TODO LIST", "# task_progress"}
	clineResult    = lazy.Regexp(`^\[\w+(?: (?s:.*?))?\] Result:\s*`)
	clineWorkspace = lazy.Regexp(`# Current Work(?:ing|space) Directory \((.+?)\) Files`)
)

// shown takes what the program showed: a model call, one that failed, or a compaction.
func (d *cline) shown(o rows.Object) {
	if about := o.Object("contextCondense"); about != nil {
		d.condensed = append(d.condensed, about)
	} else if o.Text("ask") == "api_req_failed" {
		d.failed = o
	} else if o.Text("say") == "api_req_started" {
		info, k := rows.Read(o.Text("text")), counts{"tokensIn", "tokensOut", "", "cacheReads", "cacheWrites"}
		r := modelUse{at: moment(o, "ts"), cost: rows.USD(info.Get("cost")), usage: k.of(info)}
		// Versions of Roo Code that name the protocol count the cache as a part of the input: of OpenAI's always, of
		// Anthropic's since they count alike.
		if u := r.usage; info.Has("apiProtocol") && u.Input >= u.CacheRead+u.CacheWrite {
			r.usage = k.inclusive(info)
		}
		if d.failed = nil; info.Text("cancelReason") == "" || r.usage.Total() > 0 {
			d.requests = append(d.requests, r)
		}
	}
}

// note takes what the program reports to the model of itself.
func (d *cline) note(text string) {
	if at := clineWorkspace().FindStringSubmatch(text); at != nil && d.b.s.Row.WorkspaceRoot == nil {
		d.b.workspace(at[1])
	}
	d.b.mode(between(text, "<slug>", "</slug>"))
	if model := between(text, "<model>", "</model>"); model != "" && model != d.model.ModelID {
		d.model = session.Model{ModelID: model}
	}
}

// clineCall begins a call that a model wrote as tags, with a parameter in it.
var clineCall = lazy.Regexp(`(?m)^\s*(<[a-z]+(?:_[a-z]+)+>)\s*<[a-z]`)

// text adds a text, of which the first call in tags becomes a call: the program executes one call of an answer.
func (d *cline) text(text string) {
	before, after := text, ""
	if at := clineCall().FindStringSubmatchIndex(text); at != nil {
		if name, inner, rest := clineElement(text[at[2]:]); name != "" {
			input := rows.Object{}
			for key, value, more := clineElement(inner); key != ""; key, value, more = clineElement(more) {
				input.Set(key, strings.Trim(value, "\n"))
			}
			d.b.text("text", strings.TrimSpace(text[:at[0]]))
			d.tagged = *d.b.call(name, "", input.JSON()).Row.ToolCallID
			before, after = "", strings.TrimSpace(rest)
		}
	}
	d.b.text("text", before+after)
}

// clineElement cuts the next element off a text. What may have its tag itself ends with the last one.
func clineElement(text string) (name, inner, after string) {
	_, text, _ = strings.Cut(text, "<")
	name, text, _ = strings.Cut(text, ">")
	end := "</" + name + ">"
	at := strings.Index(text, end)
	if strings.Contains(name, "_") || name == "content" || name == "diff" {
		at = strings.LastIndex(text, end)
	}
	if at < 0 {
		return "", "", ""
	}
	return name, text[:at], text[at+len(end):]
}
