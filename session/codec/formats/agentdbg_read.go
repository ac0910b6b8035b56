package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// agentdbgText reads what is in one stream: an events.jsonl, a spans.jsonl, a run.json, or a file of "agentdbg
// export". Events belong to the runs of their run_id.
func agentdbgText(_ string, text []byte, report func(codec.Problem)) (all []*codec.Session, err error) {
	d := &agentdbgReader{Reporter: rows.Reporter{Report: report}}
	d.text(text)
	if len(d.runs) == 0 {
		err = errors.New("no event and no run in it: want events.jsonl, spans.jsonl, or what their programs export")
	}
	for _, r := range d.runs {
		all = append(all, agentdbgBuild(r, d.Reporter))
	}
	return all, err
}

// agentdbgDecodeFile reads the runs in path: a data directory (~/.agentdbg, ~/.maida), one that holds .agentdbg or
// .maida, a directory of runs, a run's directory, one of its two files, which stands for both, or a file that
// [agentdbgText] reads. A run without one of its files is read as far as it goes.
func agentdbgDecodeFile(path string, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("read runs: %w", err)
		}
		root, dirs, names := path, []string{""}, agentdbgFiles
		if !info.IsDir() {
			root = filepath.Dir(path)
		}
		if name := filepath.Base(path); info.IsDir() || slices.Contains(names, name) {
			dirs = agentdbgRunDirs(root)
		} else {
			names = []string{name}
		}
		found := false
		for _, dir := range dirs {
			d := &agentdbgReader{Reporter: rows.Reporter{Report: report}}
			for _, name := range names {
				text, err := codec.ReadFile(filepath.Join(root, dir, name))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if d.Place = (codec.Problem{}); len(names) > 1 {
					d.Place.File = filepath.ToSlash(filepath.Join(dir, name))
				}
				if err != nil {
					d.Problem("cannot be read: %v", err)
				}
				d.text(text)
			}
			if len(d.runs) == 0 && len(names) > 1 {
				d.Place = codec.Problem{File: filepath.ToSlash(dir)}
				d.Problem("neither the events of the run nor its description can be read: it was left out")
			}
			for _, r := range d.runs {
				if found = true; !yield(agentdbgBuild(r, d.Reporter)) {
					return nil
				}
			}
		}
		if !found {
			return fmt.Errorf("read runs: %s: no run in it: want a directory with %s and %s, or %s and %s, "+
				"or one of such directories", path, agentdbgFiles[0], agentdbgFiles[1], agentdbgFiles[2], agentdbgFiles[3])
		}
		return nil
	})
}

// agentdbgRunDirs returns the directories of runs in root, as paths from there: root itself or those below it.
func agentdbgRunDirs(root string) (dirs []string) {
	for _, place := range []string{".", "runs/*", ".agentdbg/runs/*", ".maida/runs/*", "*"} {
		for _, name := range agentdbgFiles {
			found, _ := fs.Glob(os.DirFS(root), path.Join(place, name)) // the pattern is one
			for _, file := range found {
				dirs = append(dirs, path.Dir(file))
			}
		}
		if place == "." && dirs != nil {
			break
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// agentdbgRun is a run as it was read: run.json, nil if there is none, and its events.
type agentdbgRun struct {
	id     string
	meta   rows.Object
	events []agentdbgEvent
}

// agentdbgReader reads files into runs.
type agentdbgReader struct {
	rows.Reporter
	before int64 // the time of the event before
	runs   []*agentdbgRun
}

// text reads what is in one file: an object in all lines, or in each of them.
func (d *agentdbgReader) text(text []byte) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if o, err := d.parse(text); err == nil {
		d.Place.Line = 1
		d.record(o)
		return
	}
	for line := range bytes.Lines(text) {
		d.Place.Line++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if o, err := d.parse(line); err != nil {
			d.Problem("is not an event: left out: %v", err)
		} else {
			d.record(o)
		}
	}
}

// parse reads an object that Python wrote, and reports what had to be replaced.
func (d *agentdbgReader) parse(text []byte) (rows.Object, error) {
	valid := bytes.ToValidUTF8(text, []byte("\uFFFD"))
	o, found, err := rows.ParsePython(valid, func(string) string { return "null" })
	if found {
		d.Problem("NaN and Infinity are not JSON and were read as null")
	}
	if err == nil {
		d.Valid(text)
	}
	return o, err
}

// run returns the run of an id. What has none is of the last one.
func (d *agentdbgReader) run(id string) *agentdbgRun {
	for _, r := range slices.Backward(d.runs) {
		if id == "" || r.id == id {
			return r
		}
	}
	r := &agentdbgRun{id: cmp.Or(id, agentdbgUUID("run"))}
	d.runs = append(d.runs, r)
	return r
}

// record reads an event, a span of Maida's, which may be several events, a run.json, or an export, which has all.
func (d *agentdbgReader) record(o rows.Object) {
	meta, events := o.Object("run"), o.Get("events")
	if o.Has("counts") {
		meta = o
	}
	switch {
	case o.Has("span_id"):
		d.span(o)
	case meta != nil || events != nil:
		if meta != nil {
			d.run(cmp.Or(meta.Text("run_id"), meta.Text("trace_id"))).meta = meta
		}
		for i, v := range rows.Elements(events) {
			if e, err := rows.Parse(v); err != nil {
				d.Problem("events[%d] is not an event: left out: %v", i, err)
			} else {
				d.record(e)
			}
		}
	default:
		d.event(o)
	}
}

func (d *agentdbgReader) add(e agentdbgEvent) {
	r := d.run(e.RunID)
	r.events = append(r.events, e)
}

func (d *agentdbgReader) event(o rows.Object) {
	e := agentdbgEvent{line: d.Place.Line, EventType: o.Text("event_type"), EventID: o.Text("event_id"),
		RunID: o.Text("run_id"), Name: o.Text("name"), Payload: o.Object("payload"), DurationMS: agentdbgTook(o)}
	if e.EventType == "" {
		d.Problem("has no event_type: left out")
		return
	}
	e.at = d.time(o, "ts", "event")
	if e.Payload == nil && o.Has("payload") {
		e.Payload.Set("value", o.Get("payload")) // as AgentDbg itself writes what is not a dictionary
	}
	if strings.HasPrefix(o.Text("spec_version"), "0.2") {
		e.projected()
	}
	d.add(e)
}

// time reads the time of an event or a span.
func (d *agentdbgReader) time(o rows.Object, key, what string) int64 {
	at, ok := rows.ParseTime(o.Text(key))
	if !ok {
		d.Problem("%s is not a time: took that of the %s before it", key, what)
		at = d.before
	}
	d.before = at
	return at
}

// agentdbgTook returns how long the event's call took in milliseconds: its duration_ms or, as AgentDbg's integrations
// write it, that of its meta.<framework>.
func agentdbgTook(o rows.Object) *int64 {
	stated := o.Get("duration_ms")
	for _, f := range o.Object("meta") {
		if own := rows.Read(string(f.Value)); own.Has("duration_ms") {
			stated = own.Get("duration_ms")
		}
	}
	const maximum = 1e12 // thirty years: anything above is not a duration
	if ms, err := strconv.ParseFloat(string(stated), 64); err == nil && ms >= 0 && ms < maximum {
		return new(int64(ms))
	}
	return nil
}

// agentdbgSaid is a message of a prompt.
type agentdbgSaid struct {
	role  string
	parts []rows.Object
}

// agentdbgReadPrompt returns the messages of a prompt: a text, a list of messages in the manner of OpenAI or LangChain,
// bare or as the "messages" of an object, or a list of texts. Anything else is one message with the prompt as data.
func agentdbgReadPrompt(prompt json.RawMessage) (all []agentdbgSaid) {
	list := prompt
	if _, ok := rows.Text(prompt); ok {
		list = rows.Raw([]json.RawMessage{prompt})
	} else if o, err := rows.Parse(prompt); err == nil {
		list = o.Get("messages")
	}
	asked := func(part rows.Object) { all = append(all, agentdbgSaid{session.RoleUser, []rows.Object{part}}) }
	for _, v := range rows.Elements(list) {
		if s, ok := rows.Text(v); ok {
			asked(rows.TextPart("text", s))
			continue
		}
		o := rows.Read(string(v)) // what is not an object has no role
		role := agentdbgRoles[cmp.Or(o.Text("role"), o.Text("type"))]
		parts := agentdbgContentParts(o.Get("content"))
		switch {
		case role != "" && parts != nil:
			all = append(all, agentdbgSaid{role, parts})
		case role == session.RoleUser:
			asked(rows.DataPart(agentdbgDataPrompt, rows.OrNull(o.Get("content"))))
		}
	}
	if all == nil && prompt != nil && string(prompt) != "null" {
		asked(rows.DataPart(agentdbgDataPrompt, prompt))
	}
	return all
}

// agentdbgRoles are those of OpenAI and the types of LangChain. The message of a tool is left out, because its result
// is an event of its own.
var agentdbgRoles = map[string]string{
	"user": session.RoleUser, "human": session.RoleUser,
	"system": session.RoleSystem, "developer": session.RoleSystem,
	"assistant": session.RoleAssistant, "ai": session.RoleAssistant, "model": session.RoleAssistant,
}

// agentdbgContentParts returns the text, reasoning and file parts of a content: a text, or blocks.
func agentdbgContentParts(content json.RawMessage) (parts []rows.Object) {
	if s, ok := rows.Text(content); ok {
		return []rows.Object{rows.TextPart("text", s)}
	}
	for _, v := range rows.Elements(content) {
		block := rows.Read(string(v)) // what is not an object has no type
		switch typ := block.Text("type"); typ {
		case agentdbgDataPrompt, agentdbgDataResponse:
			parts = append(parts, rows.DataPart(typ, rows.OrNull(block.Get("data"))))
		case "text", "output_text", "input_text":
			parts = append(parts, rows.TextPart("text", block.Text("text")))
		case "reasoning", "thinking":
			parts = append(parts, rows.TextPart("reasoning", cmp.Or(block.Text("text"), block.Text("thinking"))))
		case "file":
			if url := block.Text("url"); url != "" {
				parts = append(parts, rows.FilePart(block.Text("mediaType"), "", url))
			}
		default:
			if s, ok := rows.Text(v); ok {
				parts = append(parts, rows.TextPart("text", s))
			}
		}
	}
	return parts
}

// agentdbgResponseParts returns the parts of a response, in which choices, message and content nest. Of a response in
// no known form there are none.
func agentdbgResponseParts(response json.RawMessage, depth int) []rows.Object {
	const maximum = 4
	parts := agentdbgContentParts(response)
	if parts != nil || response == nil || depth == maximum {
		return parts
	}
	for _, message := range rows.Elements(response) {
		parts = append(parts, agentdbgResponseParts(message, depth+1)...)
	}
	o := rows.Read(string(response))
	if s := cmp.Or(o.Text("reasoning_content"), o.Text("reasoning"), o.Text("thinking")); s != "" {
		parts = append(parts, rows.TextPart("reasoning", s))
	}
	inner := []json.RawMessage{o.Get("content"), o.Get("text"), o.Get("message")}
	if choices := rows.Elements(o.Get("choices")); len(choices) > 0 {
		inner[2] = choices[0]
	}
	for _, v := range inner {
		if said := agentdbgResponseParts(v, depth+1); said != nil {
			return append(parts, said...)
		}
	}
	return parts
}

// agentdbgBuilder makes a session of the events of a run.
type agentdbgBuilder struct {
	rows.Reporter
	s        *rows.Session
	turns    []*agentdbgTurn
	known    []string // what users said, as JSON
	prompted bool     // a user said something since the last turn
	before   int64    // the time of the event before
}

// agentdbgTurn is an assistant message being built. Its error is that of the last event of one.
type agentdbgTurn struct {
	*rows.Answer
	trace    session.MessageTrace // what an answer has no field for
	system   string               // its system prompt
	prompted bool                 // it answers a user
	failed   string               // the type of the error that the events end with, if they do
}

func agentdbgBuild(r *agentdbgRun, report rows.Reporter) *codec.Session {
	r.events = session.SortedRows(r.events, func(a, b *agentdbgEvent) int { return cmp.Compare(a.order, b.order) })
	status, agent, n := cmp.Or(r.meta.Text("status"), agentdbgStatusRunning), "agentdbg", len(r.events)
	if r.meta.Has("trace_id") || n > 0 && r.events[0].span {
		agent = "maida"
	}
	ended := n > 0 && r.events[n-1].EventType == agentdbgRunEnd
	if ended && r.meta.Text("status") == "" {
		status = cmp.Or(r.events[n-1].Payload.Text("status"), agentdbgStatusOK)
	}
	b := &agentdbgBuilder{Reporter: report, s: rows.New(r.id, agent)}
	if n == 0 && status != agentdbgStatusRunning {
		b.Place.Line = 0
		b.Problem("the run has no events")
	}
	b.s.Row.Title = cmp.Or(r.meta.Text("run_name"), session.Untitled)
	if at, ok := rows.ParseTime(r.meta.Text("started_at")); ok {
		b.s.See(at)
		b.before = at
	} else if n > 0 {
		b.before = r.events[0].from()
	}
	endedAt, ok := rows.ParseTime(r.meta.Text("ended_at"))
	if !ok {
		endedAt = 0
	}
	for i := range r.events {
		e := &r.events[i]
		if ended && i == n-1 {
			endedAt = max(endedAt, e.at)
			break
		}
		b.Place.Line = e.line
		b.event(e, i == 0)
		if e.EventType != agentdbgErrorEvent || e.Payload.Text("error_type") != agentdbgUnfinished {
			// One that did not end has no time of its own.
			b.s.See(e.at)
			b.before = e.at
		}
	}
	b.finish(status, endedAt)
	return b.s.Finish()
}

func (b *agentdbgBuilder) event(e *agentdbgEvent, first bool) {
	switch {
	case e.EventType == agentdbgRunStart && first:
		if b.s.Row.Title == session.Untitled {
			b.s.Row.Title = cmp.Or(e.Payload.Text("run_name"), session.Untitled)
		}
		rows.SetText(&b.s.Row.WorkspaceRoot, e.Payload.Text("cwd"))
	case e.EventType == agentdbgLlmCall:
		b.llmCall(e)
	case e.EventType == agentdbgToolCall:
		b.toolCall(e)
	default:
		b.data(e)
	}
}

// turn returns the assistant's message to which the event belongs.
func (b *agentdbgBuilder) turn(e *agentdbgEvent) *agentdbgTurn {
	a, begun := b.s.Answer(e.at)
	if begun {
		b.turns = append(b.turns, &agentdbgTurn{Answer: a, prompted: b.prompted})
		a.SetTrace("turn_index", max(len(b.known)-1, 0))
		b.prompted = false
	}
	t := b.turns[len(b.turns)-1]
	t.failed = "" // it goes on
	return t
}

func (b *agentdbgBuilder) llmCall(e *agentdbgEvent) {
	system := b.prompt(agentdbgReadPrompt(e.Payload.Get("prompt")))
	t := b.turn(e)
	t.system = cmp.Or(system, t.system)
	response := e.Payload.Get("response")
	parts := agentdbgResponseParts(response, 0)
	if parts == nil && e.Payload.Has("response") {
		parts = []rows.Object{rows.DataPart(agentdbgDataResponse, response)}
	}
	for _, data := range append([]rows.Object{rows.Of("type", "step-start")}, parts...) {
		t.Part(data, e.at).Row.CreatedAt = e.from()
	}
	b.account(t, e)
}

// prompt adds the messages that no prompt had before, and returns the system prompt. The longest beginning of the
// prompt's user messages that is an end of the known ones is known: so neither a prompt that repeats the whole history
// nor one that lost its start repeats a message.
func (b *agentdbgBuilder) prompt(all []agentdbgSaid) (system string) {
	var asked, systems []string
	last := -1 // the last user message; what follows is no history
	for i, said := range all {
		switch said.role {
		case session.RoleUser:
			asked, last = append(asked, string(rows.Raw(said.parts))), i
		case session.RoleSystem:
			var texts []string
			for _, p := range said.parts {
				if p.Text("type") == "text" {
					texts = append(texts, p.Text("text"))
				}
			}
			if text := strings.Join(texts, "\n"); text != "" {
				systems = append(systems, text)
			}
		}
	}
	old := min(len(b.known), len(asked))
	for !slices.Equal(b.known[len(b.known)-old:], asked[:old]) {
		old--
	}
	n := 0
	for _, said := range all[:last+1] {
		if said.role == session.RoleUser {
			n++
		}
		if n <= old || said.role == session.RoleSystem {
			continue
		}
		m := b.s.Message(said.role, b.before)
		for _, data := range said.parts {
			m.Part(data, m.Row.CreatedAt)
		}
		if said.role == session.RoleUser {
			b.prompted, b.known = true, append(b.known, asked[n-1])
		}
	}
	return strings.Join(systems, "\n\n")
}

// account takes a call's model, its usage, and how it ended.
func (b *agentdbgBuilder) account(t *agentdbgTurn, e *agentdbgEvent) {
	step := session.Step{StopReason: e.Payload.Text("stop_reason")}
	t.Stop = cmp.Or(step.StopReason, t.Stop)
	model := session.Model{ProviderID: e.Payload.Text("provider"), ModelID: e.Payload.Text("model")}
	if model.ProviderID == agentdbgUnknown {
		model.ProviderID = ""
	}
	if model == (session.Model{ModelID: agentdbgUnknown}) {
		model = session.Model{}
	}
	if temperature, err := strconv.ParseFloat(string(e.Payload.Get("temperature")), 64); err == nil {
		t.trace.Temperature = &temperature
	}
	if e.Payload.Text("status") == agentdbgStatusError {
		text := cmp.Or(agentdbgErrorText(e.Payload.Get("error")), "the model call failed")
		t.trace.ModelErrors = append(t.trace.ModelErrors, text)
	}
	if step.Usage = b.usage(t, e, e.Payload.Object("usage")); step.Usage != nil {
		t.Basis = semconv.BasisInclusive
	}
	t.Step(step, model, nil)
}

// usage reads the counts of a call; nil if it has none.
func (b *agentdbgBuilder) usage(t *agentdbgTurn, e *agentdbgEvent, stated rows.Object) (usage *session.Usage) {
	var counts session.Usage
	buckets := map[string]*int64{"prompt_tokens": &counts.Input, "completion_tokens": &counts.Output}
	for _, f := range stated.Only("prompt_tokens", "completion_tokens") {
		if n, ok := rows.Count(f.Value); ok {
			*buckets[f.Key], usage = n, &counts
			continue
		}
		problem := fmt.Sprintf("usage.%s of event %s is %.40s: the count is unknown", f.Key, e.EventID, f.Value)
		t.trace.Problems = append(t.trace.Problems, problem)
		// By default AgentDbg itself writes this, because it takes "prompt_tokens" for a secret: so it is no damage.
		if string(f.Value) != `"__REDACTED__"` {
			b.Problem("%s", problem)
		}
	}
	return usage
}

func (b *agentdbgBuilder) toolCall(e *agentdbgEvent) {
	t := b.turn(e)
	id := cmp.Or(e.EventID, agentdbgUUID(b.s.Row.ID, "call", fmt.Sprint(len(b.turns)), fmt.Sprint(len(t.Parts()))))
	p := t.Call(id, cmp.Or(e.Payload.Text("tool_name"), e.Name), e.Payload.Get("args"), e.at)
	p.Row.CreatedAt = e.from()
	kind := e.Payload.Object("error").Text("error_type")
	switch failed := e.Payload.Text("status") == agentdbgStatusError; {
	case !failed:
		p.Result(e.Payload.Get("result"), false)
	case kind != agentdbgUnfinished:
		p.Result(rows.Raw(cmp.Or(agentdbgErrorText(e.Payload.Get("error")), "the call failed")), true)
		if kind == agentdbgPermissionDenied {
			p.SetToolTrace("denied", true)
		}
	}
}

// data takes an event that is a data part, or the end of a turn.
func (b *agentdbgBuilder) data(e *agentdbgEvent) {
	t := b.turn(e)
	if e.EventType == agentdbgErrorEvent {
		t.Error = agentdbgErrorText(e.Payload.JSON())
		t.failed = cmp.Or(e.Payload.Text("error_type"), agentdbgPlainError)
		if t.failed == agentdbgInterrupted || t.failed == agentdbgUnfinished {
			if b.s.Break(); t.failed == agentdbgInterrupted {
				t.Touch(e.at)
			}
			return
		}
	}
	typ, known := agentdbgDataTypes[e.EventType]
	if !known { // a name of its own, so that it is never taken for a part with another meaning
		typ = "data-event-" + agentdbgNotWord().ReplaceAllString(strings.ToLower(e.EventType), "-")
	}
	data := rows.DataPart(typ, e.Payload.JSON())
	if part := agentdbgStatePart(e.Payload); part != nil && e.EventType == agentdbgStateUpdate {
		data = part
	}
	t.Part(data, e.at)
}

var agentdbgNotWord = lazy.Regexp("[^a-z0-9]")

// agentdbgStatePart returns the data part that a STATE_UPDATE has as its state, or nil. A part with a meaning of its
// own, such as a compaction, is not read from a state.
func agentdbgStatePart(payload rows.Object) rows.Object {
	part := payload.Object("state")
	typ := part.Text("type")
	_, named := rows.Text(part.Get("id"))
	own := []string{session.TypeCompaction, session.TypeWithheld, session.TypeUnfinished, "data-"}
	if !strings.HasPrefix(typ, "data-") || slices.Contains(own, typ) || part.Get("data") == nil ||
		part.Get("id") != nil && !named || len(part.Without("type", "id", "data")) > 0 || payload.Has("diff") {
		return nil
	}
	return part
}

// finish sets the ends of the turns and of the run, which has a status.
func (b *agentdbgBuilder) finish(status string, endedAt int64) {
	outcome, unfinished := semconv.EndFinish, false // of the run, and the last turn
	switch status {
	case agentdbgStatusError:
		outcome = semconv.EndError
	case agentdbgStatusRunning:
		outcome = ""
	}
	for i, t := range b.turns {
		failure, last := t.Error, i == len(b.turns)-1
		unfinished = t.failed == agentdbgUnfinished
		t.Error = ""
		switch {
		case unfinished, last && status == agentdbgStatusRunning:
			t.SetTrace("incomplete", true)
		case last && status != agentdbgStatusError, !last && t.failed == "" && t.prompted:
			t.End = semconv.EndFinish
		case t.failed == agentdbgInterrupted:
			t.End, t.Error = semconv.EndAbort, failure
		case last || t.failed != "":
			t.End, t.Error = semconv.EndError, failure
		}
		if last && (unfinished || status == agentdbgStatusError) {
			outcome = t.End
		}
		b.finishTurn(t)
	}
	if !unfinished && endedAt != 0 {
		b.s.See(endedAt)
	}
	if outcome != "" {
		b.s.SetMeta("agenttrace", rows.Of("outcome", outcome))
	}
}

func (b *agentdbgBuilder) finishTurn(t *agentdbgTurn) {
	if t.Model != (session.Model{}) {
		b.s.Row.ModelJSON = new(string(rows.Raw(t.Model)))
	}
	if t.system != "" {
		cut := strings.Contains(t.system, agentdbgCutMark)
		t.SetMeta("system_prompt_digest", b.s.Blob(store.BlobSystemPrompt, t.system, !cut))
	}
	t.AddTrace(rows.Read(string(rows.Raw(t.trace))))
}
