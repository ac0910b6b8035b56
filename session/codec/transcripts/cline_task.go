package transcripts

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// What the tasks of Roo Code, Kilo Code and older versions of Cline have that sessions of Cline lack: a list of what was
// shown, with times and usage; reports of the program to the model; and calls that the model wrote as tags in its text.

// clineBeside are the files beside one: what is known of the session, and at last what was shown of it.
func clineBeside(path string) []string {
	manifest := strings.TrimSuffix(filepath.Base(path), ".messages.json") + ".json"
	return []string{manifest, "task_metadata.json", "history_item.json", "ui_messages.json"}
}

// clineKin are the programs, by what the path of a task has in lower case: the first is that of any other.
var clineKin = [][2]string{{"", "cline"}, {"roo-cline", "roo-code"}, {"vscode-mock", "roo-code"},
	{"kilocode", "kilo-code"}}

// clineTask is in the conversation of a task, in which the program reports to the model where it is.
var clineTask = regexp.MustCompile(`(?s)^\x{FEFF}?\s*\[.*"role".*` +
	`(environment_details|<task>|\\u003ctask\\u003e|<user_message>)`)

// clineNotes begin the texts that the program adds, clineResult that which has the result of a call that was written as
// tags, and clineWorkspace is where a task is, as the program reports it to the model.
var (
	clineNotes     = []string{"<environment_details>", "[ERROR]", "# TODO LIST", "# task_progress"}
	clineResult    = regexp.MustCompile(`^\[\w+(?: (?s:.*?))?\] Result:\s*`)
	clineWorkspace = regexp.MustCompile(`# Current Work(?:ing|space) Directory \((.+?)\) Files`)
)

// shown takes what the program showed: a model call, one that failed, or a compaction.
func (d *cline) shown(o rows.Object) {
	if about := o.Object("contextCondense"); about != nil {
		d.condensed = append(d.condensed, about)
	} else if o.Text("ask") == "api_req_failed" {
		d.failed = o
	} else if o.Text("say") == "api_req_started" {
		info, k := rows.Read(o.Text("text")), counts{"tokensIn", "tokensOut", "", "cacheReads", "cacheWrites"}
		r := modelUse{at: moment(o, "ts"), cost: usdOf(info.Get("cost")), usage: k.of(info)}
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
	if at := clineWorkspace.FindStringSubmatch(text); at != nil && d.b.s.Row.WorkspaceRoot == nil {
		d.b.workspace(at[1])
	}
	d.b.mode(between(text, "<slug>", "</slug>"))
	if model := between(text, "<model>", "</model>"); model != "" && model != d.model.ModelID {
		d.model = session.Model{ModelID: model}
	}
}

// clineCall begins a call that a model wrote as tags, with a parameter in it.
var clineCall = regexp.MustCompile(`(?m)^\s*(<[a-z]+(?:_[a-z]+)+>)\s*<[a-z]`)

// text adds a text, of which the first call in tags becomes a call: the program executes one call of an answer.
func (d *cline) text(text string) {
	before, after := text, ""
	if at := clineCall.FindStringSubmatchIndex(text); at != nil {
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
