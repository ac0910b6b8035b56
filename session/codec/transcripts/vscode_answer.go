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
	// step is the model call of which the last part is, round that of the metadata, -1 if it is not known, and called
	// whether it called a tool.
	step   *step
	round  int
	called bool
	// done reports that the answer is complete: the ids of its calls stay as they are.
	done bool
	// subs are sub-agents by the id of the call that started them; result is what one answered.
	subs   map[string]*vscodeAnswer
	order  []*vscodeAnswer
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
func (a *vscodeAnswer) read(o rows.Object, d *vscode) {
	items := slices.Collect(rows.Objects(o.Get("response")))
	of := a.match(items)
	var text strings.Builder
	say := func() {
		if text.Len() > 0 {
			a.begin(-1, false)
			a.b.text("text", text.String())
			text.Reset()
		}
	}
	for i, item := range items {
		switch kind := item.Text("kind"); kind {
		case "", "markdownContent", "markdownVuln":
			text.WriteString(cmp.Or(vscodeText(item.Get("value")), vscodeText(item.Get("content"))))
		case "inlineReference":
			text.WriteString(cmp.Or(item.Text("name"), path.Base(item.Object("inlineReference").Text("path"))))
		case "thinking":
			if thought := vscodeText(item.Get("value")); thought != "" {
				say()
				a.begin(-1, false)
				a.b.text("reasoning", thought)
			}
		case "toolInvocationSerialized", "toolInvocation":
			say()
			a.tool(item, of[i])
		case "textEditGroup", "notebookEditGroup":
			if len(a.calls) == 0 { // else a call has the edit
				say()
				a.begin(-1, false)
				a.b.part(rows.DataPart("data-edit", item.Only("uri", "edits")))
			}
		}
	}
	say()
	for _, call := range a.calls {
		if !call.shown {
			a.tool(nil, call)
		}
	}
	if a.b.turn != nil {
		a.b.turn.named(o.Text("responseId"), "", "")
	}
	for _, sub := range a.order {
		if sub.result != "" {
			sub.begin(-1, false)
			sub.b.text("text", sub.result)
			sub.b.ended("finish", "")
		}
		d.children = append(d.children, sub.b.finish())
	}
}

// match finds the calls that items show: by id, or else, where there are as many of both, by their order.
func (a *vscodeAnswer) match(items []rows.Object) map[int]*vscodeCall {
	of := make(map[int]*vscodeCall)
	var shown []int
	for i, item := range items {
		if item.Has("toolCallId") && !item.Has("subAgentInvocationId") && !item.True("fromSubAgent") {
			shown = append(shown, i)
		}
		for _, call := range a.calls {
			if id := call.Text("id"); id != "" && id == item.Text("toolCallId") && !call.shown {
				of[i], call.shown = call, true
				break
			}
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
	if a.step == nil || a.called && (!isCall || round >= 0 && round != a.round) {
		a.step, a.called = a.b.step(""), false
		a.b.setModel(a.model)
	}
	if isCall {
		a.round, a.called = round, true
	}
}

// tool adds a call: what is shown of it, nil for nothing, and what the metadata has, nil if it is not known.
func (a *vscodeAnswer) tool(item rows.Object, call *vscodeCall) {
	if sub := item.Text("subAgentInvocationId"); sub != "" && sub != item.Text("toolCallId") {
		item = item.Without("subAgentInvocationId")
		a.sub(sub).tool(item, nil)
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
	if input == nil {
		a.b.measure(id, "input_withheld", true)
	}
	output := a.output(id, data, details)
	if list := item.Get("resultDetails"); output == nil && len(rows.Elements(list)) > 0 {
		output = list
	}
	confirmed, kind := item.Get("isConfirmed"), string(item.Object("isConfirmed").Get("type"))
	switch reason, _ := rows.Text(output); {
	case string(confirmed) == "false" || kind == "0" || kind == "5":
		c.deny(reason, a.b.At)
		a.decide(id, store.Decision{Action: "ask", Source: "user", Outcome: "denied", Reply: "reject", Reason: reason})
	case output != nil || item.True("isComplete"):
		if a.b.settle(id, rows.OrNull(output), details.True("isError")); output == nil {
			a.b.measure(id, "withheld", true)
		}
	}
	switch kind {
	case "2", "3": // a setting, or what the user allowed before
		a.decide(id, store.Decision{Action: "allow", Outcome: "allowed"})
	case "4":
		a.decide(id, store.Decision{Action: "ask", Source: "user", Outcome: "allowed", Reply: "once"})
	}
	if prompt := data.Text("prompt"); data.Text("kind") == "subagent" && prompt != "" && item.Has("toolCallId") {
		sub := a.sub(item.Text("toolCallId"))
		sub.b.About.CallID, sub.result = id, data.Text("result")
		sub.b.s.Row.Agent = cmp.Or(data.Text("agentName"), sub.b.s.Row.Agent)
		sub.b.message(session.RoleUser, rows.TextPart("text", prompt))
		a.b.measure(id, "child_session_id", sub.b.s.Row.ID)
	}
}

func (a *vscodeAnswer) decide(id string, d store.Decision) {
	if a.done {
		a.b.decide(id, d)
	}
}

// sub is the turn of the sub-agent that a call started.
func (a *vscodeAnswer) sub(call string) *vscodeAnswer {
	s := a.subs[call]
	if s == nil {
		s = &vscodeAnswer{b: a.b.child(call, ""), round: -1, done: a.done}
		s.b.see(a.b.At)
		if a.subs == nil {
			a.subs = make(map[string]*vscodeAnswer)
		}
		a.subs[call], a.order = s, append(a.order, s)
	}
	return s
}

// vscodeInput is the input of a call as far as it is shown, nil if it is not.
func vscodeInput(data, details rows.Object) json.RawMessage {
	switch data.Text("kind") {
	case "terminal":
		line := data.Object("commandLine")
		return rows.NonEmpty("command", cmp.Or(line.Text("toolEdited"), line.Text("original"), data.Text("command"))).JSON()
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
		if text, ok := rows.Text(part.Get("value")); ok {
			texts = append(texts, text)
		} else if node := part.Object("value").Object("node"); node != nil {
			texts = append(texts, vscodeNode(node))
		} else {
			return content // an image
		}
	}
	switch shown := details.Get("output"); {
	case texts != nil:
		return rows.Raw(strings.Join(texts, "\n"))
	case shown != nil:
		return valueOf(shown, "value")
	case data.Has("terminalCommandOutput"):
		return data.Object("terminalCommandOutput").Get("text")
	case data.Text("kind") == "subagent":
		return data.Get("result")
	}
	return nil
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
