package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"path"
	"slices"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// VSCode reads chats of GitHub Copilot in VS Code: a JSON object with a request for each turn, or JSON lines that begin
// with one and change it: a line sets or deletes the value at a path, or adds to a list that it may cut off before.
//
// A response is what the program shows. What the model called with which input, and what it got, is in the metadata
// that Copilot adds when the response is complete. Requests that a restored checkpoint takes away are hidden, as far as
// the file still has them.
var VSCode = codec.Reading{
	Keys:       []string{"responderUsername=* requests=["},
	Extensions: []string{".json", ".jsonl"}, SniffText: sniffVSCode, Transcript: true,
	Decode: decodeVSCode.stream, DecodeFile: decodeVSCode.file, DecodeText: decodeVSCode.text,
	Beside: func(path string) []string { return siblings(path, vscodeWorkspace) },
}

// vscodeWorkspace states, from the directory of a chat, which workspace it is of.
const vscodeWorkspace = "../workspace.json"

func sniffVSCode(text []byte) bool {
	return bytes.HasPrefix(text, []byte(`{"kind":0,"v":{`)) && bytes.Contains(text, []byte(`"requests":[`))
}

var decodeVSCode decoder = func(from *source, text []byte) ([]*codec.Session, error) {
	d := &vscode{source: from, state: map[string]any{}}
	if sniffVSCode(text) {
		from.lines(text, d.change)
		text = rows.Raw(d.state)
	}
	about, requests := from.list(text, "requests")
	requests = append(d.removed, requests...)
	id := cmp.Or(about.Text("sessionId"), nameOf(from.path))
	if id == "" || len(requests) == 0 && !about.Has("sessionId") && !about.Has("responderUsername") {
		return nil, errors.New("read chat: nothing in it names a session of VS Code, with its sessionId and requests")
	}
	d.b = newBuilder(from, id, "copilot-chat")
	d.b.Title = about.Text("customTitle")
	d.b.workspace(d.workspace())
	d.b.mode(about.Object("inputState").Object("mode").Text("id"))
	d.b.see(moment(about, "creationDate"))
	slices.SortStableFunc(requests, func(a, b listed) int {
		return cmp.Compare(moment(a.Object, "timestamp"), moment(b.Object, "timestamp"))
	})
	for _, o := range requests {
		d.request(o.Object)
	}
	if len(d.b.messages) == 0 {
		return nil, nil // a window that was opened
	}
	return d.b.all(), nil
}

type vscode struct {
	*source
	state   map[string]any
	removed []listed // requests that the user took away
	b       *builder
}

// change applies a line of a log to the state.
func (d *vscode) change(o rows.Object) {
	var line struct {
		K []any // the path
		V any
		I *int
	}
	_ = json.Unmarshal(o.JSON(), &line)
	initial, isObject := line.V.(map[string]any)
	kind := string(o.Get("kind"))
	if kind == "0" && isObject {
		d.state = initial
		return
	} else if !slices.Contains([]string{"1", "2", "3"}, kind) || len(line.K) == 0 {
		d.problem("is no change of a chat: left out")
		return
	}
	if _, ok := changed(d.state, line.K, func(old any) any {
		if kind != "2" { // 1 sets a value, and 3 has none
			return line.V
		}
		list, _ := old.([]any)
		if line.I != nil && *line.I >= 0 && *line.I < len(list) {
			if len(line.K) == 1 && line.K[0] == "requests" {
				d.remove(list[*line.I:])
			}
			list = list[:*line.I]
		}
		more, _ := line.V.([]any)
		return append(list, more...)
	}); !ok {
		d.problem("changes what is not there: left out")
	}
}

// changed sets the value at a path in another, and reports whether there is one.
func changed(in any, path []any, set func(old any) any) (_ any, ok bool) {
	if len(path) == 0 {
		return set(in), true
	}
	switch key := path[0].(type) {
	case string:
		if o, isObject := in.(map[string]any); isObject {
			o[key], ok = changed(o[key], path[1:], set)
		}
	case float64:
		if list, _ := in.([]any); key >= 0 && int(key) < len(list) {
			list[int(key)], ok = changed(list[int(key)], path[1:], set)
		}
	}
	return in, ok
}

// remove keeps requests that the user took away, marked as hidden.
func (d *vscode) remove(list []any) {
	for _, v := range list {
		if o := rows.Read(string(rows.Raw(v))); o.Has("requestId") {
			o.Set("isHidden", true)
			d.removed = append(d.removed, listed{Object: o})
		}
	}
}

// workspace is the directory that the chat is of.
func (d *vscode) workspace() string {
	o := rows.Read(string(d.beside(vscodeWorkspace)))
	dir := uriPath(o.Text("folder"))
	if file := uriPath(o.Text("workspace")); dir == "" && file != "" {
		dir = path.Dir(file)
	}
	return dir
}

func (d *vscode) request(o rows.Object) {
	b, first := d.b, len(d.b.messages)
	b.see(moment(o, "timestamp"))
	parts := partsOf(contents(o.Get("message"))...) // a text, or an object with it
	for v := range rows.Objects(o.Object("variableData").Get("variables")) {
		at := rows.Of("path", firstOf(v, "value.uri.path", "value.path")).Texts("path")
		parts = append(parts, rows.DataPart("data-mention", append(v.Texts("kind", "name"), at...)))
	}
	b.message(session.RoleUser, parts...).named(o.Text("requestId"), "", "")
	b.mode(o.Object("modeInfo").Text("modeId"))
	d.response(o, o.Object("result"))
	if o.True("isHidden") || o.Has("shouldBeRemovedOnSend") && !o.Object("shouldBeRemovedOnSend").Has("afterUndoStop") {
		for _, m := range b.messages[first:] {
			m.hide(b.At)
		}
	}
	b.end()
}

// vscodeCounts are where versions have the tokens of the last model call.
var vscodeCounts = []counts{
	{input: "result.metadata.promptTokens", output: "result.metadata.outputTokens"},
	{input: "usage.promptTokens", output: "usage.completionTokens"},
	{input: "promptTokens", output: "completionTokens"},
}

// response adds the answer to a request.
func (d *vscode) response(o, result rows.Object) {
	about := result.Object("metadata")
	a := &vscodeAnswer{b: d.b, calls: vscodeCalls(about), results: about.Object("toolCallResults"),
		round: -1, done: result != nil, subs: make(map[string]*vscodeAnswer)}
	a.model = modelOf(o.Text("modelId"))
	if a.model.ProviderID == "" || a.model.ProviderID == "copilot" {
		a.model.ProviderID = copilotProvider
	}
	a.read(o)
	for _, k := range vscodeCounts {
		if used := k.of(o); a.step != nil && used.Total() > 0 {
			a.step.count(modelUse{usage: used}, semconv.BasisInclusive)
			break
		}
	}
	state := o.Object("modelState")
	d.b.see(moment(state, "completedAt"))
	d.b.took(number(result, "timings.totalElapsed"))
	failure, word := result.Object("errorDetails"), string(state.Get("value"))
	switch {
	case o.True("isCanceled") || word == "2" || failure.Text("code") == "canceled":
		d.b.ended("abort", "")
	case failure != nil:
		d.b.fails(cmp.Or(failure.Text("message"), failure.Text("code"), "error"))
	case word == "1" || state == nil && result != nil:
		d.b.ended("finish", "")
	}
	for _, summary := range contents(firstOf(about, "summaries", "summary")) {
		d.b.compaction(compacted{summary: summary.Text("text"), auto: true, before: number(summary, "contextLengthBefore"),
			durationMS: number(summary, "durationMs")})
	}
}
