package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// VSCode reads chats of GitHub Copilot in VS Code: a JSON object with a request for each turn, or JSON lines that begin
// with one and change it: a line sets or deletes the value at a path, or adds to a list that it may cut off before.
// Requests that a restored checkpoint takes away are hidden, as far as the file still has them.
//
// A response is what the program shows. What the model called with which input, and what it got, is in the metadata
// that Copilot adds when the response is complete.
var VSCode = decodeVSCode.reading(codec.Reading{
	Keys:       []string{"responderUsername=* requests=[", "kind v={ !type"},
	Extensions: []string{".json", ".jsonl"}, Appends: true,
	Beside: func(path string) []string { return siblings(path, "../workspace.json") },
})

var decodeVSCode decoder = func(from *source, text []byte) []*codec.Session {
	d := &vscode{source: from}
	if bytes.HasPrefix(text, []byte(`{"kind":0,`)) {
		from.lines(text, d.change)
		text = rows.Raw(d.state)
	}
	about, requests := from.list(text, "requests")
	for o := range rows.Objects(rows.Raw(d.removed)) {
		o.Set("isHidden", true)
		requests = append(requests, listed{Object: o})
	}
	if about.Text("sessionId") == "" {
		return nil
	}
	d.b = newBuilder(from, about.Text("sessionId"), "copilot-chat")
	d.b.Title = about.Text("customTitle")
	d.b.see(moment(about, "creationDate"))
	if of := rows.Read(string(d.beside("../workspace.json"))); of != nil {
		d.b.workspace(uriPath(cmp.Or(of.Text("folder"), path.Dir(of.Text("workspace")))))
	}
	requests = session.SortedRows(requests, func(a, b *listed) int {
		return cmp.Compare(moment(a.Object, "timestamp"), moment(b.Object, "timestamp"))
	})
	for _, o := range requests {
		d.request(o.Object, o.Object.Object("result"))
	}
	return d.b.all() // of a window that was opened, none
}

type vscode struct {
	*source
	b       *builder
	state   any
	removed []any // requests that the user took away
	// items are what was shown of an answer, and below the id of a call what the sub-agent did that it started.
	items map[string][]rows.Object
}

// change applies a line of a log to the state: it sets a value, or adds to a list.
func (d *vscode) change(o rows.Object) {
	var line struct {
		K []any // the path
		V any
		I int
	}
	line.I = math.MaxInt
	_ = json.Unmarshal(o.JSON(), &line) // what is of another type is not there
	at, set := d.state, func(v any) { d.state = v }
	for _, key := range line.K {
		name, _ := key.(string)
		index, _ := key.(float64)
		if list, _ := at.([]any); 0 <= index && int(index) < len(list) {
			at, set = list[int(index)], func(v any) { list[int(index)] = v }
		} else if in, isObject := at.(map[string]any); isObject {
			at, set = in[name], func(v any) { in[name] = v }
		} else {
			d.Problem("changes what is not there: left out")
			return
		}
	}
	if string(o.Get("kind")) == "2" {
		list, _ := at.([]any)
		more, _ := line.V.([]any)
		kept := list[:max(0, min(line.I, len(list)))]
		if len(line.K) == 1 && line.K[0] == "requests" {
			d.removed = append(d.removed, list[len(kept):]...)
		}
		line.V = append(kept, more...)
	}
	set(line.V)
}

func (d *vscode) request(o, result rows.Object) {
	b, first, about := d.b, len(d.b.messages), result.Object("metadata")
	b.see(moment(o, "timestamp"))
	parts := partsOf(contents(o.Get("message"))...) // a text, or an object with it
	for v := range rows.Objects(o.Object("variableData").Get("variables")) {
		at := rows.Of("path", firstOf(v, "value.uri.path", "value.path")).Texts("path")
		parts = append(parts, rows.DataPart("data-mention", append(v.Texts("kind", "name"), at...)))
	}
	b.message(session.RoleUser, parts...).named(o.Text("requestId"), "", "")
	b.mode(o.Object("modeInfo").Text("modeId"))
	if d.answer(o.Get("response"), about, result != nil); b.turn != nil {
		b.setModel(modelOf(strings.Replace(o.Text("modelId"), "copilot/", copilotProvider+"/", 1)))
		b.turn.named(o.Text("responseId"), "", "")
		in := number(o, "result.metadata.promptTokens", "usage.promptTokens", "promptTokens")
		out := number(o, "result.metadata.outputTokens", "usage.completionTokens", "completionTokens")
		if last := b.turn.Steps[len(b.turn.Steps)-1]; in+out > 0 {
			last.count(modelUse{usage: session.Usage{Input: in, Output: out}}, semconv.BasisInclusive)
		}
	}
	b.see(moment(o, "modelState.completedAt"))
	b.took(number(result, "timings.totalElapsed"))
	failure, state := result.Object("errorDetails"), string(firstOf(o, "modelState.value"))
	switch {
	case o.True("isCanceled") || state == "2" || failure.Text("code") == "canceled":
		b.ended("abort", "")
	case failure != nil:
		b.fails(cmp.Or(failure.Text("message"), failure.Text("code"), "error"))
	case result != nil:
		b.ended("finish", "")
	}
	for _, summary := range contents(firstOf(about, "summaries", "summary")) {
		b.compaction(compacted{summary: summary.Text("text"), auto: true, before: number(summary, "contextLengthBefore"),
			durationMS: number(summary, "durationMs")})
	}
	if o.True("isHidden") || o.Has("shouldBeRemovedOnSend") && !o.Object("shouldBeRemovedOnSend").Has("afterUndoStop") {
		b.hide(first)
	}
	b.end()
}

// answer adds what was shown of an answer, where a call has what the metadata has of it. Both have the same id or, in
// older versions, the same place: calls of an answer that is not complete get others.
func (d *vscode) answer(response json.RawMessage, about rows.Object, complete bool) {
	var calls []rows.Object
	for round := range rows.Objects(about.Get("toolCallRounds")) {
		for i, call := range slices.Collect(rows.Objects(round.Get("toolCalls"))) {
			result := about.Object("toolCallResults").Object(call.Text("id"))
			call.Add(slices.Concat(rows.Of("begins", i == 0), round.Only("timestamp"), result.Only("content")))
			calls = append(calls, call)
		}
	}
	d.items = make(map[string][]rows.Object)
	for item := range rows.Objects(response) {
		sub := item.Text("subAgentInvocationId")
		if !complete {
			item.Set("isConfirmed", nil)
		}
		d.items[sub] = append(d.items[sub], item)
	}
	isOther := func(item rows.Object) bool { return !item.Has("toolCallId") }
	placed := len(slices.DeleteFunc(slices.Clone(d.items[""]), isOther)) == len(calls)
	said := "" // which may be in pieces
	say := func(kind, text string) {
		for _, p := range partsOf(rows.TextPart("text", said), rows.TextPart(kind, text)) {
			if d.b.turn == nil || d.b.hasCalled() {
				d.b.step("")
			}
			d.b.part(p)
		}
		said = ""
	}
	for _, item := range d.items[""] {
		id, text := item.Text("toolCallId"), textWithin(firstOf(item, "value", "content", "edits"))
		switch kind := item.Text("kind"); {
		case item.Has("toolCallId"):
			say("text", "")
			at := slices.IndexFunc(calls, func(call rows.Object) bool { return placed || call.Text("id") == id })
			if at >= 0 {
				item.Add(calls[at])
				calls = slices.Delete(calls, at, at+1)
			}
			d.call(d.b, item, item.Object("toolSpecificData"))
		case kind == "thinking":
			say("reasoning", text)
		case kind == "inlineReference":
			said += cmp.Or(item.Text("name"), path.Base(item.Object("inlineReference").Text("path")))
		case kind == "" || kind == "markdownContent" || kind == "markdownVuln" || kind == "textEditGroup" && calls == nil:
			said += text
		}
	}
	say("text", "")
	for _, call := range calls {
		d.call(d.b, call, nil)
	}
}

// call adds a call with what became of it, and what the sub-agent did that it started.
func (d *vscode) call(b *builder, item, data rows.Object) {
	if b.turn == nil || b.hasCalled() && item.True("begins") {
		b.step("")
	}
	if at := moment(item, "timestamp"); at > 0 {
		b.turn.Steps[len(b.turn.Steps)-1].StartedAt = at
	}
	shown, input := item.Text("toolCallId"), inputOf(firstOf(item, "arguments", "resultDetails.input",
		"toolSpecificData.rawInput", "toolSpecificData.commandLine", "toolSpecificData"))
	id := *b.call(cmp.Or(item.Text("name"), item.Text("toolId")), cmp.Or(item.Text("id"), shown), input).Row.ToolCallID
	b.measure(id, "input_withheld", input == nil)
	output := firstOf(item, "content", "resultDetails.output", "toolSpecificData.terminalCommandOutput.text",
		"toolSpecificData.result", "resultDetails")
	if text := textWithin(output); text != "" && !bytes.Contains(output, []byte(`"mimeType":`)) {
		output = rows.Raw(text)
	}
	if output != nil || item.True("isComplete") {
		b.settle(id, rows.OrNull(output), string(firstOf(item, "resultDetails.isError")) == "true")
		b.measure(id, "withheld", output == nil)
	}
	if data.Text("kind") == "subagent" {
		sub := b.child(shown, id)
		sub.s.Row.Agent = cmp.Or(data.Text("agentName"), sub.s.Row.Agent)
		sub.see(b.At)
		sub.message(session.RoleUser, partsOf(rows.TextPart("text", data.Text("prompt")))...)
		for _, inner := range d.items[shown] {
			d.call(sub, inner, nil)
		}
		sub.step("")
		sub.text("text", data.Text("result"))
		sub.ended("finish", "")
		b.measure(id, "child_session_id", sub.s.Row.ID)
	}
	switch reason, _ := rows.Text(output); string(firstOf(item, "isConfirmed.type", "isConfirmed")) {
	case "0", "5", "false":
		b.judged(id, "reject", reason)
	case "2", "3": // by a setting, or by what the user allowed before
		b.decide(id, store.Decision{Action: "allow", Outcome: "allowed"})
	case "4":
		b.judged(id, "once", "")
	}
}
