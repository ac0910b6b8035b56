package transcripts

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// vscodeAnswer builds the turn of a request, or of a sub-agent in it.
type vscodeAnswer struct {
	b     *builder
	model session.Model
	// calls are those of the metadata, in their order, and results what they returned, by id.
	calls   []*vscodeCall
	results rows.Object
	// step is the model call of which the last part is, and round that of the metadata, -1 if it is not known.
	step  *step
	round int
	// done reports that the answer is complete: the ids of its calls stay as they are.
	done bool
	// said is the text that is being read, which may be in pieces.
	said string
	// subs are sub-agents by the id of the call that started them; result is what one answered.
	subs   map[string]*vscodeAnswer
	result string
}

// vscodeCall is a call that the metadata has.
type vscodeCall struct {
	rows.Object
	round int
	at    int64 // when the round began, 0 if it is not known
	shown bool
}

func vscodeCalls(about rows.Object) (all []*vscodeCall) {
	for i, v := range rows.Elements(about.Get("toolCallRounds")) {
		round := rows.Read(string(v))
		for call := range rows.Objects(round.Get("toolCalls")) {
			all = append(all, &vscodeCall{Object: call, round: i, at: moment(round, "timestamp")})
		}
	}
	return all
}

// read adds what was shown, and the calls that were not.
func (a *vscodeAnswer) read(o rows.Object) {
	items := slices.Collect(rows.Objects(o.Get("response")))
	of := a.match(items)
	for i, item := range items {
		switch item.Text("kind") {
		case "", "markdownContent", "markdownVuln":
			a.said += cmp.Or(vscodeText(item.Get("value")), vscodeText(item.Get("content")))
		case "inlineReference":
			a.said += cmp.Or(item.Text("name"), path.Base(item.Object("inlineReference").Text("path")))
		case "thinking":
			a.add(rows.TextPart("reasoning", vscodeText(item.Get("value"))))
		case "toolInvocationSerialized", "toolInvocation":
			a.tool(item, of[i])
		case "textEditGroup", "notebookEditGroup":
			if len(a.calls) == 0 { // else a call has the edit
				a.add(rows.DataPart("data-edit", item.Only("uri", "edits")))
			}
		}
	}
	a.flush()
	for _, call := range a.calls {
		if !call.shown {
			a.tool(nil, call)
		}
	}
	if a.b.turn != nil {
		a.b.turn.named(o.Text("responseId"), "", "")
	}
	for _, sub := range a.subs {
		if sub.result != "" {
			sub.add(rows.TextPart("text", sub.result))
			sub.b.ended("finish", "")
		}
	}
}

// add adds a part of the model's, after the text before it.
func (a *vscodeAnswer) add(part rows.Object) {
	if string(part.Get("text")) != `""` {
		a.flush()
		a.begin(-1, false)
		a.b.part(part)
	}
}

// flush adds the text that was read.
func (a *vscodeAnswer) flush() {
	if text := a.said; text != "" {
		a.said = ""
		a.add(rows.TextPart("text", text))
	}
}

// match finds the calls that items show: by id, or else, where there are as many of both, by their order.
func (a *vscodeAnswer) match(items []rows.Object) map[int]*vscodeCall {
	of := make(map[int]*vscodeCall)
	var shown []int
	for i, item := range items {
		id := item.Text("toolCallId")
		if item.Has("toolCallId") && !item.Has("subAgentInvocationId") && !item.True("fromSubAgent") {
			shown = append(shown, i)
		}
		if n := slices.IndexFunc(a.calls, func(c *vscodeCall) bool {
			return id != "" && id == c.Text("id") && !c.shown
		}); n >= 0 {
			of[i], a.calls[n].shown = a.calls[n], true
		}
	}
	if len(of) == 0 && len(shown) == len(a.calls) {
		for n, i := range shown {
			of[i], a.calls[n].shown = a.calls[n], true
		}
	}
	return of
}

// begin begins a model call where the last one has called a tool and more follows that is not of it.
func (a *vscodeAnswer) begin(round int, isCall bool) {
	if a.step == nil || a.step.called && (!isCall || round >= 0 && round != a.round) {
		a.step = a.b.step("")
		a.b.setModel(a.model)
	}
	if isCall {
		a.round = round
	}
}

// tool adds a call: what is shown of it, nil for nothing, and what the metadata has, nil if it is not known.
func (a *vscodeAnswer) tool(item rows.Object, call *vscodeCall) {
	a.flush()
	if sub := item.Text("subAgentInvocationId"); sub != "" && sub != item.Text("toolCallId") {
		a.sub(sub).tool(item.Without("subAgentInvocationId"), nil)
		return
	}
	data, details := item.Object("toolSpecificData"), item.Object("resultDetails")
	name, id, round, input := item.Text("toolId"), item.Text("toolCallId"), -1, vscodeInput(data, details)
	if call != nil {
		name, id, round = cmp.Or(call.Text("name"), name), cmp.Or(call.Text("id"), id), call.round
		input = inputOf(call.Get("arguments"))
	}
	a.begin(round, true)
	if call != nil && call.at > 0 {
		a.step.StartedAt = call.at
	}
	if a.b.called(id) {
		id = "" // another one
	}
	c := a.b.call(name, id, input)
	id = *c.Row.ToolCallID
	a.b.measure(id, "input_withheld", input == nil)
	output := a.output(id, data, details)
	if list := item.Get("resultDetails"); output == nil && len(rows.Elements(list)) > 0 {
		output = list
	}
	decision := vscodeDecisions[string(item.Object("isConfirmed").Get("type"))]
	if string(item.Get("isConfirmed")) == "false" {
		decision = vscodeDecisions["0"]
	}
	if decision.Outcome == "denied" {
		decision.Reason, _ = rows.Text(output)
		c.deny(decision.Reason, a.b.At)
	} else if output != nil || item.True("isComplete") {
		a.b.settle(id, rows.OrNull(output), details.True("isError"))
		a.b.measure(id, "withheld", output == nil)
	}
	if a.done && decision.Action != "" {
		a.b.decide(id, decision)
	}
	if prompt := data.Text("prompt"); data.Text("kind") == "subagent" && prompt != "" && item.Has("toolCallId") {
		sub := a.sub(item.Text("toolCallId"))
		sub.b.About.CallID, sub.result = id, data.Text("result")
		sub.b.s.Row.Agent = cmp.Or(data.Text("agentName"), sub.b.s.Row.Agent)
		sub.b.message(session.RoleUser, rows.TextPart("text", prompt))
		a.b.measure(id, "child_session_id", sub.b.s.Row.ID)
	}
}

// vscodeDecisions are the ways in which a call was confirmed, or not, by the type that the program gives them.
var vscodeDecisions = map[string]store.Decision{
	"0": {Action: "ask", Source: "user", Outcome: "denied", Reply: "reject"},
	"2": {Action: "allow", Outcome: "allowed"}, // by a setting
	"3": {Action: "allow", Outcome: "allowed"}, // by what the user allowed before
	"4": {Action: "ask", Source: "user", Outcome: "allowed", Reply: "once"},
	"5": {Action: "ask", Source: "user", Outcome: "denied", Reply: "reject"},
}

// sub is the turn of the sub-agent that a call started.
func (a *vscodeAnswer) sub(call string) *vscodeAnswer {
	s := a.subs[call]
	if s == nil {
		s = &vscodeAnswer{b: a.b.child(call, ""), round: -1, done: a.done, subs: make(map[string]*vscodeAnswer)}
		s.b.see(a.b.At)
		a.subs[call] = s
	}
	return s
}

// vscodeInput is the input of a call as far as it is shown, nil if it is not.
func vscodeInput(data, details rows.Object) json.RawMessage {
	switch data.Text("kind") {
	case "terminal":
		command := firstOf(data, "commandLine.toolEdited", "commandLine.original", "command")
		return rows.Of("command", command).Texts("command").JSON()
	case "input":
		return inputOf(data.Get("rawInput"))
	case "subagent":
		return data.Texts("description", "prompt", "agentName").JSON()
	}
	return inputOf(details.Get("input"))
}

// output is what a call returned to the model, or else what is shown of that, nil for nothing.
func (a *vscodeAnswer) output(id string, data, details rows.Object) json.RawMessage {
	var texts []string
	content := a.results.Object(id).Get("content")
	for part := range rows.Objects(content) {
		text, isText := rows.Text(part.Get("value"))
		node := part.Object("value").Object("node")
		if !isText && node == nil {
			return content // an image
		}
		texts = append(texts, text+vscodeNode(node))
	}
	if texts != nil {
		return rows.Raw(strings.Join(texts, "\n"))
	} else if shown := details.Get("output"); shown != nil {
		return valueOf(shown, "value")
	}
	return firstOf(data, "terminalCommandOutput.text", "result")
}

// vscodeNode is the text of a prompt's tree.
func vscodeNode(node rows.Object) string {
	text := node.Text("text")
	for child := range rows.Objects(node.Get("children")) {
		text += vscodeNode(child)
	}
	return text
}

// vscodeText is a text, which is one by itself, a list of them, or the value of an object.
func vscodeText(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '{' {
		return rows.Read(string(raw)).Text("value")
	}
	return joined(contents(raw), "")
}
