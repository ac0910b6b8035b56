package transcripts

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// Continue reads sessions of Continue, of its extensions and its CLI: a JSON object with the messages, each of which
// has what the program keeps beside it, such as the states of its calls.
//
// Messages have no times: all have that at which the session began, which is in the list beside the file. What the CLI
// counts for the whole session is counted in the first answer, except for what answers have themselves.
var Continue = decodeContinue.reading(codec.Reading{
	Keys:       []string{"sessionId=* title workspaceDirectory history=["},
	Extensions: []string{".json"},
	Beside:     func(path string) []string { return []string{filepath.Join(filepath.Dir(path), continueList)} },
})

const continueList = "sessions.json"

var decodeContinue decoder = func(from *source, text []byte) []*codec.Session {
	of, items := from.list(text, "history")
	id := cmp.Or(of.Text("sessionId"), nameOf(from.path))
	if id == "" || len(items) == 0 && !of.Has("workspaceDirectory") {
		return nil
	}
	d := &continued{b: newBuilder(from, id, "continue")}
	d.about(of)
	for _, o := range items {
		from.Place.Line = o.line
		d.item(o.Object, o.Object.Object("message"))
	}
	from.Place.Line = 0
	d.b.Cost = rows.USD(firstOf(of, "usage.totalCost"))
	if d.uncounted {
		d.b.rest(continueCounts[0].capped(of.Object("usage")), semconv.BasisInclusive)
	}
	return d.b.all()
}

type continued struct {
	b     *builder
	model session.Model
	// thought is what the model thought before the answer to come, uncounted whether there was one without its usage.
	thought   []string
	uncounted bool
}

func (d *continued) about(of rows.Object) {
	dir := of.Text("workspaceDirectory")
	if strings.HasPrefix(dir, "file:") {
		dir = uriPath(dir)
	}
	d.b.workspace(dir)
	d.b.mode(of.Text("mode"))
	d.model.ModelID = of.Text("chatModelTitle")
	if title := of.Text("title"); title != "New Session" && title != "Untitled Session" {
		d.b.Title = title
	}
	for o := range rows.Objects(json.RawMessage(d.b.beside(continueList))) {
		if o.Text("sessionId") == d.b.s.Row.ID {
			d.b.see(bounded(json.RawMessage(o.Text("dateCreated")), maxMoment))
		}
	}
}

func (d *continued) item(o, message rows.Object) {
	summary, role := o.Text("conversationSummary"), message.Text("role")
	if summary != "" && joined(contents(message.Get("content")), "") == summary {
		role = "" // the message is nothing else
	}
	switch role {
	case "":
		if summary == "" {
			d.b.Problem("is not a message with a role: left out")
		}
	case session.RoleUser, session.RoleSystem:
		parts := partsOf(contents(message.Get("content"))...)
		for item := range rows.Objects(o.Get("contextItems")) {
			if text := item.Text("content"); text != "" {
				parts = append(parts, contextPart(text))
			}
		}
		d.b.message(role, parts...)
	case "thinking":
		d.thought = append(d.thought, joined(contents(message.Get("content")), ""))
	case session.RoleAssistant:
		d.answer(o, message)
	case "tool":
		d.b.settle(message.Text("toolCallId"), message.Get("content"), false) // mostly, the call has it already
	default:
		d.b.Problem("is of an unknown role: left out")
	}
	if summary != "" {
		d.b.compaction(compacted{summary: summary, auto: true})
	}
}

// answer adds what the model answered: what it thought, said and called.
func (d *continued) answer(o, message rows.Object) {
	b := d.b
	reasoning := o.Object("reasoning")
	step := b.step("")
	if at := moment(reasoning, "startAt"); at > 0 {
		step.StartedAt = at
	}
	usage, model := message.Object("usage"), d.model
	model.ModelID = cmp.Or(usage.Text("model"), model.ModelID)
	for log := range rows.Objects(o.Get("promptLogs")) {
		model = session.Model{ProviderID: log.Text("modelProvider"), ModelID: log.Text("modelTitle")}
	}
	b.setModel(model)
	for _, thought := range append(d.thought, reasoning.Text("text")) {
		b.text("reasoning", thought)
	}
	d.thought = nil
	b.text("text", joined(contents(message.Get("content")), ""))
	states := make(map[string]rows.Object)
	for _, state := range append(rows.Elements(o.Get("toolCallStates")), o.Get("toolCallState")) {
		if state := rows.Read(string(state)); state.Text("toolCallId") != "" {
			states[state.Text("toolCallId")] = state
		}
	}
	for call := range rows.Objects(message.Get("toolCalls")) {
		d.call(call, states[call.Text("id")])
	}
	for _, k := range continueCounts {
		if used := k.capped(usage); used.Total() > 0 {
			step.count(modelUse{usage: used}, semconv.BasisInclusive)
		}
	}
	d.uncounted = d.uncounted || step.Usage == nil
	b.answered()
}

// call adds a call with what became of it, which is nil if that is not known.
func (d *continued) call(call, state rows.Object) {
	function, id := call.Object("function"), call.Text("id")
	input := inputOf(function.Get("arguments"))
	if args := state.Get("parsedArgs"); len(args) > 0 && args[0] == '{' {
		input = args
	}
	d.b.call(function.Text("name"), id, input)
	status := state.Text("status")
	if status != "done" && status != "errored" && status != "canceled" {
		return
	}
	var shown []rows.Object
	for item := range rows.Objects(state.Get("output")) {
		shown = append(shown, item.Only("content"))
	}
	text := joined(shown, "\n\n")
	if text == "" && status != "done" {
		text = status
	}
	d.b.settle(id, rows.Raw(text), status != "done")
	switch { // as the CLI reports it; the extensions do not say who canceled a call
	case status == "canceled" && text == "Permission denied by user":
		d.b.judged(id, "reject", "")
	case status == "canceled" && text == "Command blocked by security policy":
		d.b.denied(id, text)
	}
}

// continueCounts are the counts of an answer, and of a session, and those of an answer as the CLI has them.
var continueCounts = []counts{
	{"promptTokens", "completionTokens", "completionTokensDetails.reasoningTokens",
		"promptTokensDetails.cachedTokens", "promptTokensDetails.cacheWriteTokens"},
	{"prompt_tokens", "completion_tokens", "completion_tokens_details.reasoning_tokens",
		"prompt_tokens_details.cached_tokens", "prompt_tokens_details.cache_write_tokens"},
}
