package transcripts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// looksOpenHands reports whether an object with these keys, and the values of those that are
// strings, is the state of a conversation of OpenHands, or an event of one.
func looksOpenHands(keys map[string]string) bool {
	_, status := keys["execution_status"]
	kind := keys["kind"]
	return status && keys["agent"] == "{" && keys["workspace"] == "{" ||
		keys["timestamp"] != "" && keys["source"] != "" && (strings.HasSuffix(kind, "Event") ||
			strings.HasSuffix(kind, "Observation") || kind == "Condensation")
}

// OpenHands reads a conversation of OpenHands: a directory that has a file for the
// state, one for each event, and the conversations of sub-agents. The path may also be
// that of one of the files.
//
//	SystemPromptEvent      system prompt and catalog of tools
//	MessageEvent           user message, or text of a step
//	ActionEvent            tool call with what the model thought; those of one response
//	                       are a step
//	ObservationEvent       result of a call
//	UserRejectObservation  decision
//	Condensation           assistant message with a data-compaction part
//	PauseEvent and others  how the turn ended
//
// The state has the usage and cost of each response. What the user left by going to
// another branch is hidden. What cannot be read is reported and left out; report may be
// nil. An error is yielded when there is no conversation.
var OpenHands = codec.Reading{
	Extensions: []string{".json"}, SniffKeys: looksOpenHands, Transcript: true,
	Layout: []string{"base_state.json", "events/event-*.json"}, DecodeFile: decodeOpenHands,
	Beside: func(path string) []string { return []string{openHandsDir(path)} }, // all of the conversation's directory
}

func decodeOpenHands(ctx context.Context, path string, _ codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	if report == nil {
		report = func(codec.Problem) {}
	}
	return func(yield func(*codec.Session, error) bool) {
		dir, err := filepath.Abs(openHandsDir(path))
		if err != nil {
			yield(nil, err)
			return
		}
		openHandsIn(ctx, dir, "", 0, report, yield)
	}
}

// openHandsDir is the directory of the conversation that a path is of.
func openHandsDir(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return path
	}
	dir := filepath.Dir(path)
	if filepath.Base(dir) == "events" {
		dir = filepath.Dir(dir)
	}
	return dir
}

// openHandsIn yields the conversation of a directory and those of its sub-agents, and
// reports whether to go on.
func openHandsIn(ctx context.Context, dir, parent string, depth int, report func(codec.Problem),
	yield func(*codec.Session, error) bool) bool {
	const maxDepth = 8 // of agents that start others
	s, err := openHandsConversation(ctx, dir, parent, report)
	if err != nil {
		return yield(nil, fmt.Errorf("read conversation of OpenHands in %s: %w", dir, err))
	}
	if !yield(s, nil) {
		return false
	}
	below, _ := os.ReadDir(filepath.Join(dir, "subagents")) // mostly there is none
	for _, e := range below {
		if e.IsDir() && depth < maxDepth &&
			!openHandsIn(ctx, filepath.Join(dir, "subagents", e.Name()), s.Session.ID, depth+1, report, yield) {
			return false
		}
	}
	return true
}

var (
	openHandsEvent = regexp.MustCompile(`^event-\d{5,}-.*\.json$`)
	hexUUID        = regexp.MustCompile(`^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$`)
)

// openHandsConversation reads one conversation.
func openHandsConversation(ctx context.Context, dir, parent string,
	report func(codec.Problem)) (*codec.Session, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "events"))
	if err != nil {
		return nil, err
	}
	name := filepath.Base(dir)
	read := func(elem ...string) rows.Object {
		text, err := codec.ReadFile(filepath.Join(append([]string{dir}, elem...)...))
		var o rows.Object
		if err == nil {
			o, err = parse(text)
		}
		if err != nil {
			report(codec.Problem{File: name + "/" + strings.Join(elem, "/"), Reason: "it is left out: " + err.Error()})
		}
		return o
	}
	state := read("base_state.json")
	id := cmp.Or(state.Text("id"), hexUUID.ReplaceAllString(strings.ToValidUTF8(name, "\uFFFD"), "$1-$2-$3-$4-$5"))
	d := openHands{b: newBuilder(id, "openhands", report), used: make(map[string]modelUse)}
	d.about(state, parent)
	var events []rows.Object
	for _, e := range entries { // in the order of their numbers
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !openHandsEvent.MatchString(e.Name()) {
			continue
		}
		if o := read("events", e.Name()); o != nil {
			events = append(events, o)
		}
	}
	if len(events) == 0 {
		return nil, errors.New("it has no events")
	}
	left := leftBranches(events, state.Text("leaf_event_id"))
	for _, o := range events {
		d.event(o, left[o.Text("id")])
	}
	d.finish()
	return d.b.finish(), nil
}

// leftBranches are the events that are not on the way to leaf, "" for the last one, with
// the time at which the user left them: that of the next event of the branch that stays.
func leftBranches(events []rows.Object, leaf string) map[string]int64 {
	left := make(map[string]int64)
	parents, before := make(map[string]string), ""
	for _, o := range events {
		id := o.Text("id")
		if parents[id] = o.Text("parent_id"); parents[id] == "" {
			parents[id] = before // events of older versions are in a row
		}
		before = id
	}
	if _, known := parents[leaf]; !known {
		return left
	}
	on := make(map[string]bool)
	for id := leaf; id != "" && !on[id]; id = parents[id] {
		on[id] = true
	}
	at := localTime(events[len(events)-1].Text("timestamp"))
	for _, o := range slices.Backward(events) {
		if id := o.Text("id"); on[id] {
			at = localTime(o.Text("timestamp"))
		} else {
			left[id] = max(1, at)
		}
	}
	return left
}

// localTime reads a time that may have no zone: then it is that of the machine, which is
// taken to be this one.
func localTime(text string) int64 {
	if at := milli(text); at > 0 {
		return at
	}
	t, err := time.ParseInLocation("2006-01-02T15:04:05.999999999", text, time.Local)
	if err != nil {
		return 0
	}
	return max(0, t.UnixMilli())
}

// openHands builds the rows of a conversation.
type openHands struct {
	b        *builder
	model    session.Model
	used     map[string]modelUse // by response
	order    []string            // of responses
	total    session.Usage       // where responses are not counted
	response string              // of the last step
	hidden   int64
	first    *rows.Message // of the agent
}

func (d *openHands) about(state rows.Object, parent string) {
	rows.SetText(&d.b.s.Row.WorkspaceRoot, state.Object("workspace").Text("working_dir"))
	d.b.parent(parent)
	agent := state.Object("agent")
	if model := cmp.Or(agent.Object("llm").Text("model"), agent.Text("acp_model")); model != "" {
		d.model = modelOf(model)
		d.b.setModel(d.model)
	}
	d.b.Title = state.Object("tags").Text("title")
	var costs float64
	metrics := state.Object("stats").Object("usage_to_metrics")
	for _, f := range metrics {
		m := metrics.Object(f.Key)
		usages, paid := rows.Elements(m.Get("token_usages")), rows.Elements(m.Get("costs"))
		if len(usages) != len(paid) {
			paid = nil
			costs += cost(rows.Of("cost", m.Get("accumulated_cost")))
		}
		for i, v := range usages {
			d.reply(v, paid, i)
		}
		if len(usages) == 0 {
			d.total = d.total.Add(openHandsCounts.inclusive(m.Object("accumulated_token_usage")))
		}
	}
	if costs > 0 {
		d.b.Cost = &costs
	}
}

// modelOf separates the provider from the name of a model, as LiteLLM writes both. A proxy
// is not who provides the model.
func modelOf(name string) session.Model {
	name = strings.TrimPrefix(name, "litellm_proxy/")
	if provider, model, ok := strings.Cut(name, "/"); ok {
		return session.Model{ProviderID: provider, ModelID: model}
	}
	return session.Model{ModelID: name}
}

// reply takes the usage of a response, and what it cost.
func (d *openHands) reply(v json.RawMessage, paid []json.RawMessage, i int) {
	o, err := rows.Parse(v)
	if err != nil {
		return
	}
	id := o.Text("response_id")
	u := modelUse{model: modelOf(o.Text("model")), usage: openHandsCounts.inclusive(o)}
	if i < len(paid) {
		if c, err := rows.Parse(paid[i]); err == nil {
			u.cost = new(cost(c))
		}
	}
	if before, known := d.used[id]; known {
		u.usage = u.usage.Add(before.usage)
		if before.cost != nil && u.cost != nil {
			*u.cost += *before.cost
		}
	} else {
		d.order = append(d.order, id)
	}
	d.used[id] = u
}

var openHandsCounts = counts{"prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read_tokens",
	"cache_write_tokens"}

// event adds an event; leftAt is when the user left it, 0 for one of the branch that stays.
func (d *openHands) event(o rows.Object, leftAt int64) {
	b := d.b
	if (leftAt > 0) != (d.hidden > 0) {
		b.turn = nil // a message is hidden as a whole
	}
	d.hidden = leftAt
	b.seeMilli(localTime(o.Text("timestamp")))
	b.touched = nil
	call := o.Text("tool_call_id")
	switch o.Text("kind") {
	case "SystemPromptEvent":
		b.Prompt = b.blob(store.BlobSystemPrompt, o.Object("system_prompt").Text("text")+
			o.Object("dynamic_context").Text("text"))
		if tools := o.Get("tools"); len(rows.Elements(tools)) > 0 {
			b.Catalog = b.blob(store.BlobToolCatalog, string(tools))
		}
	case "MessageEvent":
		d.message(o)
	case "ActionEvent":
		d.action(o)
	case "ObservationEvent":
		observation := o.Object("observation")
		output := observation.Get("content")
		if rows.Elements(output) == nil && output == nil {
			output = observation.Without("kind").JSON()
		}
		d.result(call, resultOf(output), observation.True("is_error"))
	case "AgentErrorEvent":
		d.result(call, o.Get("error"), true)
	case "UserRejectObservation":
		d.rejected(call, o)
	case "ACPToolCallEvent":
		d.external(call, o)
	case "Condensation":
		d.condensation(o)
	case "PauseEvent", "InterruptEvent":
		b.ended("abort", "")
	case "ConversationErrorEvent":
		text := cmp.Or(o.Text("detail"), o.Text("code"), "error")
		if b.turn == nil {
			b.part(errorPart(text))
		}
		b.ended("error", text)
	}
	if b.touched != nil && leftAt > 0 {
		hide(b.touched, leftAt)
	}
}

func (d *openHands) message(o rows.Object) {
	b, message := d.b, o.Object("llm_message")
	var parts []rows.Object
	for _, block := range append(contents(message.Get("content")), contents(o.Get("extended_content"))...) {
		parts = append(parts, openHandsParts(block)...)
	}
	if o.Text("source") == "agent" {
		d.step(o, message.Text("reasoning_content"), message.Get("thinking_blocks"),
			message.Object("responses_reasoning_item"))
		for _, p := range parts {
			b.part(p)
		}
		b.ended("finish", "")
		return
	}
	if len(parts) == 0 {
		return
	}
	role := session.RoleUser
	if o.Text("source") != "user" {
		role = session.RoleSystem
	}
	d.response = ""
	named(b.message(role, parts), o.Text("id"), "", "")
}

// openHandsParts are the parts of a block, which may have several images.
func openHandsParts(block rows.Object) (parts []rows.Object) {
	if block.Text("type") == "image" {
		for _, v := range rows.Elements(block.Get("image_urls")) {
			if url, ok := rows.Text(v); ok && url != "" {
				parts = append(parts, fileOf("image/*", url))
			}
		}
		return parts
	}
	if block.Has("text") {
		if block.Text("text") == "" {
			return nil
		}
		return []rows.Object{rows.TextPart("text", block.Text("text"))}
	}
	return []rows.Object{blockPart(block)}
}

// step begins a model call with what the model thought, unless an event of the same
// response did.
func (d *openHands) step(o rows.Object, thought string, thinking json.RawMessage, item rows.Object) {
	b, id := d.b, o.Text("llm_response_id")
	if id != "" && id == d.response && b.turn != nil {
		return
	}
	d.response = id
	step := b.step(id)
	step.ResponseID = id
	if d.first == nil {
		d.first = b.turn
	}
	used, known := d.used[id]
	if known {
		delete(d.used, id)
		b.count(b.lastStep(), used, semconv.BasisInclusive)
	}
	model := cmp.Or(used.model, d.model)
	if model.ModelID != "" {
		step.Model = &model
		b.setModel(model)
	}
	if thought == "" {
		for _, v := range append(rows.Elements(thinking), rows.Elements(item.Get("summary"))...) {
			block, err := rows.Parse(v)
			if text, ok := rows.Text(v); ok {
				thought += text
			} else if err == nil {
				thought += cmp.Or(block.Text("thinking"), block.Text("text"))
			}
		}
	}
	b.text("reasoning", thought)
}

func (d *openHands) action(o rows.Object) {
	b := d.b
	d.step(o, o.Text("reasoning_content"), o.Get("thinking_blocks"), o.Object("responses_reasoning_item"))
	for _, block := range contents(o.Get("thought")) {
		for _, p := range openHandsParts(block) {
			b.part(p)
		}
	}
	call := o.Object("tool_call")
	input := call.Get("arguments")
	if input == nil {
		input = o.Object("action").Without("kind").JSON()
	}
	p := b.call(cmp.Or(o.Text("tool_name"), call.Text("name")), o.Text("tool_call_id"), inputOf(input))
	if summary := o.Text("summary"); summary != "" {
		p.SetKey("title", summary)
	}
}

func (d *openHands) result(call string, output json.RawMessage, failed bool) {
	p := d.b.calls[call]
	if !d.b.outcome(codec.Problem{Record: "call " + call}, call, output, failed) {
		return
	}
	if p.Row.CreatedAt > 0 && d.b.At >= p.Row.CreatedAt {
		d.b.measure(call, "duration_ms", d.b.At-p.Row.CreatedAt)
	}
	if p.Row.Type == "tool-finish" {
		d.b.ended("finish", "")
	}
}

func (d *openHands) rejected(call string, o rows.Object) {
	reason := cmp.Or(o.Text("rejection_reason"), "rejected")
	d.result(call, rows.Raw(reason), true)
	if o.Text("rejection_source") == "hook" {
		d.b.denied(call, reason)
	} else {
		d.b.refused(call, reason)
	}
}

// external adds a call of an agent that OpenHands runs, or what became of one.
func (d *openHands) external(call string, o rows.Object) {
	b := d.b
	if b.calls[call] == nil {
		p := b.call(cmp.Or(o.Text("tool_kind"), "acp"), call, inputOf(o.Get("raw_input")))
		p.SetKey("title", o.Text("title"))
	}
	failed := o.True("is_error") || o.Text("status") == "failed"
	if !failed && o.Text("status") != "completed" {
		return
	}
	output := o.Get("raw_output")
	if !o.Has("raw_output") {
		output = o.Get("content")
	}
	b.result(call, output, failed) // it may be reported again
}

func (d *openHands) condensation(o rows.Object) {
	id := o.Text("llm_response_id")
	c := compacted{summary: o.Text("summary"), auto: true}
	used, known := d.used[id]
	if known {
		delete(d.used, id)
		c.usage, c.after = &used.usage, used.usage.Output
	}
	m := d.b.compaction(c)
	d.response = ""
	m.AddMeta(rows.NonEmpty("model", used.model))
	d.b.paid(m, used.cost)
}

// finish counts what is of no event: it is of the first answer, which stays the first when
// the conversation goes on.
func (d *openHands) finish() {
	if d.first == nil {
		return
	}
	a := d.b.answer(d.first)
	d.first.Touch(d.b.At) // what was of no event before may be of one now
	for _, id := range d.order {
		if used, left := d.used[id]; left && used.usage.Total() > 0 {
			a.Steps = append(a.Steps, session.Step{})
			d.b.count(stepRef{d.first, len(a.Steps) - 1}, used, semconv.BasisInclusive)
		}
	}
	if d.total.Total() > 0 {
		d.total = d.total.Add(usageOf(&a.Steps[0]))
		d.b.count(stepRef{d.first, 0}, modelUse{usage: d.total}, semconv.BasisInclusive)
	}
}
