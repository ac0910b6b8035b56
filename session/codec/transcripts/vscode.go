package transcripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

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
	Beside: func(path string) []string { return []string{filepath.Join(filepath.Dir(path), vscodeWorkspace)} },
}

// vscodeWorkspace states, from the directory of a chat, which workspace it is of.
const vscodeWorkspace = "../workspace.json"

func sniffVSCode(text []byte) bool {
	return bytes.HasPrefix(text, []byte(`{"kind":0,"v":{`)) && bytes.Contains(text, []byte(`"requests":[`))
}

var decodeVSCode decoder = func(from *source, text []byte) ([]*codec.Session, error) {
	d := &vscode{source: from}
	if sniffVSCode(text) {
		from.lines(text, d.change)
	} else {
		d.state = map[string]any{}
		rest := from.objects(text, "requests", func(o rows.Object) { d.requests = append(d.requests, o) })
		_ = json.Unmarshal(rest.JSON(), &d.state)
	}
	about := rows.Read(string(rows.Raw(d.state)))
	if requests := about.Get("requests"); requests != nil {
		d.requests = slices.Concat(d.requests, slices.Collect(rows.Objects(requests)))
	}
	id := cmp.Or(about.Text("sessionId"), nameOf(from.path))
	if id == "" || !about.Has("requests") && len(d.requests) == 0 && !about.Has("responderUsername") {
		return nil, errors.New("read chat: nothing in it names a session of VS Code, with its sessionId and requests")
	}
	d.b = newBuilder(from, id, "copilot-chat")
	d.b.Title = about.Text("customTitle")
	d.b.workspace(d.workspace())
	d.b.mode(about.Object("inputState").Object("mode").Text("id"))
	d.b.see(moment(about, "creationDate"))
	slices.SortStableFunc(d.requests, func(a, b rows.Object) int {
		return cmp.Compare(moment(a, "timestamp"), moment(b, "timestamp"))
	})
	for _, o := range d.requests {
		d.request(o)
	}
	if len(d.b.messages) == 0 {
		return nil, nil // a window that was opened
	}
	return append([]*codec.Session{d.b.finish()}, d.children...), nil
}

type vscode struct {
	*source
	state map[string]any
	// requests are those of the chat; in a log, until it is complete, those that were taken away.
	requests []rows.Object
	b        *builder
	children []*codec.Session
}

// change applies a line of a log to the state.
func (d *vscode) change(o rows.Object) {
	var value any
	var at []any
	_ = json.Unmarshal(rows.OrNull(o.Get("v")), &value)
	_ = json.Unmarshal(rows.OrNull(o.Get("k")), &at)
	initial, isObject := value.(map[string]any)
	kind, added := string(o.Get("kind")), value
	switch {
	case kind == "0" && isObject:
		d.state = initial
		return
	case !slices.Contains([]string{"1", "2", "3"}, kind) || len(at) == 0:
		d.problem("is no change of a chat: left out")
		return
	case kind == "3":
		added = nil
	}
	changed, ok := d.changed(d.state, at, func(old any) any {
		if kind != "2" {
			return added
		}
		list, _ := old.([]any)
		if from := bounded(o.Get("i"), int64(len(list))); o.Has("i") && int(from) < len(list) {
			if len(at) == 1 && at[0] == "requests" {
				d.takeAway(list[from:])
			}
			list = list[:from:from]
		}
		more, _ := added.([]any)
		return append(list, more...)
	})
	if state, isObject := changed.(map[string]any); ok && isObject {
		d.state = state
	} else {
		d.problem("changes what is not there: left out")
	}
}

// changed sets the value at a path in another, and reports whether there is one.
func (d *vscode) changed(in any, at []any, set func(old any) any) (any, bool) {
	if len(at) == 0 {
		return set(in), true
	}
	var ok bool
	switch key := at[0].(type) {
	case string:
		if o, isObject := in.(map[string]any); isObject {
			o[key], ok = d.changed(o[key], at[1:], set)
		}
	case float64:
		if list, _ := in.([]any); key >= 0 && int(key) < len(list) {
			list[int(key)], ok = d.changed(list[int(key)], at[1:], set)
		}
	}
	return in, ok
}

// takeAway keeps requests that the user took away, marked as hidden.
func (d *vscode) takeAway(list []any) {
	for _, v := range list {
		if o := rows.Read(string(rows.Raw(v))); o.Has("requestId") {
			o.Set("isHidden", true)
			d.requests = append(d.requests, o)
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
	text, isText := rows.Text(o.Get("message"))
	if !isText {
		text = o.Object("message").Text("text")
	}
	var parts []rows.Object
	if text != "" {
		parts = append(parts, rows.TextPart("text", text))
	}
	for v := range rows.Objects(o.Object("variableData").Get("variables")) {
		at := v.Object("value")
		if uri := at.Object("uri"); uri != nil {
			at = uri
		}
		parts = append(parts, rows.DataPart("data-mention", rows.NonEmpty("kind", v.Text("kind"), "name", v.Text("name"),
			"path", at.Text("path"))))
	}
	if len(parts) > 0 {
		b.message(session.RoleUser, parts...).named(o.Text("requestId"), "", "")
	}
	b.mode(o.Object("modeInfo").Text("modeId"))
	d.response(o, o.Object("result"))
	if o.True("isHidden") || o.Has("shouldBeRemovedOnSend") && !o.Object("shouldBeRemovedOnSend").Has("afterUndoStop") {
		for _, m := range b.messages[first:] {
			m.hide(b.At)
		}
	}
	b.end()
}

// response adds the answer to a request.
func (d *vscode) response(o, result rows.Object) {
	about := result.Object("metadata")
	a := &vscodeAnswer{b: d.b, calls: vscodeCalls(about), results: about.Object("toolCallResults"),
		round: -1, done: result != nil}
	a.model.ProviderID, a.model.ModelID, _ = strings.Cut(o.Text("modelId"), "/")
	if a.model.ModelID == "" {
		a.model.ModelID = o.Text("modelId")
	}
	if a.model.ProviderID == "copilot" || a.model.ModelID == o.Text("modelId") {
		a.model.ProviderID = copilotProvider
	}
	a.read(o, d)
	used := counts{input: "promptTokens", output: "outputTokens"}.of(about)
	if used.Total() == 0 {
		k := counts{input: "promptTokens", output: "completionTokens"}
		if used = k.of(o.Object("usage")); used.Total() == 0 {
			used = k.of(o)
		}
	}
	if a.step != nil && used.Total() > 0 {
		a.step.count(modelUse{usage: used}, semconv.BasisInclusive)
	}
	state := o.Object("modelState")
	if at := moment(state, "completedAt"); at > 0 {
		d.b.see(at)
	}
	d.b.took(number(result.Object("timings"), "totalElapsed"))
	failure, word := result.Object("errorDetails"), string(state.Get("value"))
	switch {
	case o.True("isCanceled") || word == "2" || failure.Text("code") == "canceled":
		d.b.ended("abort", "")
	case failure != nil:
		d.b.fails(cmp.Or(failure.Text("message"), failure.Text("code"), "error"))
	case word == "1" || state == nil && result != nil:
		d.b.ended("finish", "")
	}
	summaries := rows.Elements(about.Get("summaries"))
	if summaries == nil && about.Has("summary") {
		summaries = append(summaries, about.Get("summary"))
	}
	for _, v := range summaries {
		summary := rows.Read(string(v))
		d.b.compaction(compacted{summary: summary.Text("text"), auto: true, before: number(summary, "contextLengthBefore"),
			durationMS: number(summary, "durationMs")})
	}
}
