package transcripts

import (
	"cmp"
	"encoding/json"
	"errors"
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
var Continue = codec.Reading{
	Keys:       []string{"sessionId=* title workspaceDirectory history=["},
	Extensions: []string{".json"}, Transcript: true,
	Decode: decodeContinue.stream, DecodeFile: decodeContinue.file,
	Beside: func(path string) []string { return []string{filepath.Join(filepath.Dir(path), continueList)} },
}

const continueList = "sessions.json"

var decodeContinue decoder = func(from *source, text []byte) ([]*codec.Session, error) {
	var items []rows.Object
	var lines []int
	of := from.objects(text, "history", func(o rows.Object) {
		items, lines = append(items, o), append(lines, from.record.Line)
	})
	id := cmp.Or(of.Text("sessionId"), nameOf(from.path))
	if id == "" || len(items) == 0 && !of.Has("workspaceDirectory") {
		return nil, errors.New("read session: nothing in it names a session of Continue, and there is no history")
	}
	d := &continued{b: newBuilder(from, id, "continue")}
	d.about(of)
	for i, o := range items {
		from.record.Line = lines[i]
		d.item(o, o.Object("message"))
	}
	from.record.Line = 0
	if len(d.b.messages) == 0 {
		return nil, nil
	}
	d.count(of.Object("usage"))
	return []*codec.Session{d.b.finish()}, nil
}

type continued struct {
	b     *builder
	model session.Model
	steps []*step
	// thought is what the model thought before the answer to come.
	thought []string
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
			d.b.problem("is not a message with a role: left out")
		}
	case session.RoleUser, session.RoleSystem:
		var parts []rows.Object
		for _, block := range contents(message.Get("content")) {
			if text := block.Text("text"); text != "" || !block.Has("text") {
				parts = append(parts, continuePart(block))
			}
		}
		for item := range rows.Objects(o.Get("contextItems")) {
			if text := item.Text("content"); text != "" {
				parts = append(parts, contextPart(text))
			}
		}
		if len(parts) > 0 {
			d.b.message(role, parts...)
		}
	case "thinking":
		d.thought = append(d.thought, joined(contents(message.Get("content")), ""))
	case session.RoleAssistant:
		d.answer(o, message)
	case "tool":
		d.b.settle(message.Text("toolCallId"), message.Get("content"), false) // mostly, the call has it already
	default:
		d.b.problem("is of an unknown role: left out")
	}
	if summary != "" {
		d.b.compaction(compacted{summary: summary, auto: true})
	}
}

// continuePart is a block of a message as a part of ours.
func continuePart(block rows.Object) rows.Object {
	if url := block.Object("imageUrl").Text("url"); url != "" {
		return urlFile("image/*", url)
	}
	return partOf(block)
}

// answer adds what the model answered: what it thought, said and called.
func (d *continued) answer(o, message rows.Object) {
	b := d.b
	reasoning := o.Object("reasoning")
	step := b.step("")
	d.steps = append(d.steps, step)
	if at := moment(reasoning, "startAt"); at > 0 {
		step.StartedAt = at
	}
	model := d.model
	for log := range rows.Objects(o.Get("promptLogs")) {
		model = session.Model{ProviderID: log.Text("modelProvider"), ModelID: log.Text("modelTitle")}
	}
	b.setModel(model)
	for _, thought := range append(d.thought, reasoning.Text("text")) {
		b.text("reasoning", thought)
	}
	d.thought = nil
	b.text("text", joined(contents(message.Get("content")), ""))
	calls := 0
	states := make(map[string]rows.Object)
	for _, state := range append(rows.Elements(o.Get("toolCallStates")), o.Get("toolCallState")) {
		if state := rows.Read(string(state)); state.Text("toolCallId") != "" {
			states[state.Text("toolCallId")] = state
		}
	}
	for call := range rows.Objects(message.Get("toolCalls")) {
		calls++
		state := states[call.Text("id")]
		d.call(call, state)
	}
	if u := message.Object("usage"); u != nil {
		step.count(modelUse{usage: continueUsage(u)}, semconv.BasisInclusive)
	}
	if calls == 0 {
		b.ended("finish", "")
	}
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
	output := rows.Raw(joined(continueOutput(state), "\n\n"))
	if string(output) == `""` && status != "done" {
		output = rows.Raw(status)
	}
	d.b.settle(id, output, status != "done")
	switch text, _ := rows.Text(output); { // as the CLI reports it; the extensions do not say who canceled a call
	case status == "canceled" && text == "Permission denied by user":
		d.b.refused(id, "")
	case status == "canceled" && text == "Command blocked by security policy":
		d.b.denied(id, text)
	}
}

// continueOutput are the texts that a call returned.
func continueOutput(state rows.Object) (all []rows.Object) {
	for item := range rows.Objects(state.Get("output")) {
		all = append(all, rows.Of("text", item.Text("content")))
	}
	return all
}

func continueUsage(o rows.Object) session.Usage {
	in, out := o.Object("promptTokensDetails"), o.Object("completionTokensDetails")
	all := rows.Of("input", number(o, "promptTokens"), "output", number(o, "completionTokens"),
		"reasoning", number(out, "reasoningTokens"), "read", number(in, "cachedTokens"),
		"write", number(in, "cacheWriteTokens"))
	return counts{"input", "output", "reasoning", "read", "write"}.capped(all)
}

// count gives the first answer what the session used and no answer has.
func (d *continued) count(usage rows.Object) {
	d.b.Cost = usdOf(usage.Get("totalCost"))
	left := continueUsage(usage)
	for _, s := range d.steps {
		left = without(left, s.used())
	}
	if len(d.steps) > 0 && left.Total() > 0 {
		d.steps[0].count(modelUse{usage: left.Add(d.steps[0].used())}, semconv.BasisInclusive)
	}
}
