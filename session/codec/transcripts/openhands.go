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
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
)

// OpenHands reads a conversation of OpenHands: a directory that has a file for the state, one for each event, and the
// conversations of sub-agents. The path may also be that of one of the files.
//
// The state has the usage and cost of each response. What the user left by going to another branch is hidden.
var OpenHands = codec.Reading{
	Keys: []string{"execution_status agent={ workspace={",
		"timestamp=* source=* kind=*Event|*Observation|Condensation"},
	Extensions: []string{".json"}, Transcript: true,
	Layout: []string{"base_state.json", "events/event-*.json"}, ReadPath: decodeOpenHands,
	Beside: func(path string) []string { return []string{openHandsDir(path)} }, // all of the conversation's directory
}

func decodeOpenHands(ctx context.Context, path string, _ codec.Wanted,
	report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return codec.Decoded(report, func(report func(codec.Problem), yield func(*codec.Session) bool) error {
		dir, err := filepath.Abs(openHandsDir(path))
		if err == nil {
			err = openHandsIn(ctx, &source{dir, rows.Reporter{Report: report}}, "", 0, yield)
		}
		return err
	})
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

// openHandsIn yields the conversation of a directory and those of its sub-agents.
func openHandsIn(ctx context.Context, from *source, parent string, depth int,
	yield func(*codec.Session) bool) error {
	const maxDepth = 8 // of agents that start others
	s, err := openHandsConversation(ctx, from, parent)
	if err != nil {
		return fmt.Errorf("read conversation of OpenHands in %s: %w", from.path, err)
	}
	yield(s)
	below, _ := os.ReadDir(filepath.Join(from.path, "subagents")) // mostly there is none
	for _, e := range below {
		if e.IsDir() && depth < maxDepth {
			sub := &source{filepath.Join(from.path, "subagents", e.Name()), rows.Reporter{Report: from.Report}}
			err = errors.Join(err, openHandsIn(ctx, sub, s.Session.ID, depth+1, yield))
		}
	}
	return err
}

var (
	openHandsEvent = lazy.Regexp(`^event-\d{5,}-.*\.json$`)
	hexUUID        = lazy.Regexp(`^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$`)
)

// openHandsConversation reads one conversation.
func openHandsConversation(ctx context.Context, from *source, parent string) (*codec.Session, error) {
	entries, err := os.ReadDir(filepath.Join(from.path, "events"))
	if err != nil {
		return nil, err
	}
	name := filepath.Base(from.path)
	state := from.object("base_state.json")
	id := cmp.Or(state.Text("id"), hexUUID().ReplaceAllString(valid(name), "$1-$2-$3-$4-$5"))
	d := openHands{b: newBuilder(from, id, "openhands"), used: make(map[string]*modelUse)}
	d.about(state, parent)
	var events []rows.Object
	for _, e := range entries { // in the order of their numbers
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if openHandsEvent().MatchString(e.Name()) {
			if o := from.object(filepath.Join("events", e.Name())); o != nil {
				events = append(events, o)
			}
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
	left, on := make(map[string]int64), make(map[string]bool)
	parents, before := make(map[string]string), ""
	for _, o := range events {
		id := o.Text("id")
		parents[id] = cmp.Or(o.Text("parent_id"), before) // events of older versions are in a row
		before = id
	}
	if _, known := parents[leaf]; !known {
		return left
	}
	for id := leaf; id != "" && !on[id]; id = parents[id] {
		on[id] = true
	}
	at := localTime(events[len(events)-1])
	for _, o := range slices.Backward(events) {
		if id := o.Text("id"); on[id] {
			at = localTime(o)
		} else {
			left[id] = max(1, at)
		}
	}
	return left
}

// localTime is the time of an event, which may have no zone: then it is that of the machine, which is
// taken to be this one.
func localTime(o rows.Object) int64 { return localMilli(o.Text("timestamp")) }

// openHands builds the rows of a conversation.
type openHands struct {
	b        *builder
	model    session.Model
	used     map[string]*modelUse // by response
	order    []string             // of responses
	total    session.Usage        // where responses are not counted
	response string               // of the last step
	hidden   int64
	first    *step
}

var openHandsCounts = counts{"prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read_tokens",
	"cache_write_tokens"}

func (d *openHands) about(state rows.Object, parent string) {
	d.b.workspace(state.Object("workspace").Text("working_dir"))
	d.b.parent(parent)
	agent := state.Object("agent")
	d.model = modelOf(cmp.Or(agent.Object("llm").Text("model"), agent.Text("acp_model")))
	d.b.setModel(d.model)
	d.b.Title = state.Object("tags").Text("title")
	metrics := state.Object("stats").Object("usage_to_metrics")
	for _, f := range metrics {
		m := metrics.Object(f.Key)
		usages, paid := rows.Elements(m.Get("token_usages")), rows.Elements(m.Get("costs"))
		if len(usages) != len(paid) {
			paid = make([]json.RawMessage, len(usages))
			rows.AddCost(&d.b.Cost, rows.USD(m.Get("accumulated_cost")))
		}
		for i := range usages {
			d.reply(rows.Read(string(usages[i])), rows.Read(string(paid[i])))
		}
		if len(usages) == 0 {
			d.total = d.total.Add(openHandsCounts.inclusive(m.Object("accumulated_token_usage")))
		}
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
func (d *openHands) reply(o, paid rows.Object) {
	id := o.Text("response_id")
	u := d.used[id]
	if u == nil {
		u = new(modelUse)
		d.used[id], d.order = u, append(d.order, id)
	}
	u.model, u.usage = modelOf(o.Text("model")), u.usage.Add(openHandsCounts.inclusive(o))
	rows.AddCost(&u.cost, rows.USD(paid.Get("cost")))
}

// event adds an event; leftAt is when the user left it, 0 for one of the branch that stays.
func (d *openHands) event(o rows.Object, leftAt int64) {
	b, call := d.b, o.Text("tool_call_id")
	if (leftAt > 0) != (d.hidden > 0) {
		b.end() // a message is hidden as a whole
	}
	d.hidden = leftAt
	b.see(localTime(o))
	b.touched = nil
	switch o.Text("kind") {
	case "SystemPromptEvent":
		b.systemPrompt(o.Object("system_prompt").Text("text") + o.Object("dynamic_context").Text("text"))
		b.toolCatalog(o.Get("tools"))
	case "MessageEvent":
		d.message(o)
	case "ActionEvent":
		d.action(o)
	case "ObservationEvent":
		observation := o.Object("observation")
		output := observation.Get("content")
		if output == nil {
			output = observation.Without("kind").JSON()
		}
		d.result(call, resultOf(output), observation.True("is_error"))
	case "AgentErrorEvent":
		d.result(call, o.Get("error"), true)
	case "UserRejectObservation":
		reason := cmp.Or(o.Text("rejection_reason"), "rejected")
		d.result(call, rows.Raw(reason), true)
		if o.Text("rejection_source") == "hook" {
			b.denied(call, reason)
		} else {
			b.judged(call, "reject", reason)
		}
	case "ACPToolCallEvent":
		d.external(call, o)
	case "Condensation":
		d.condensation(o)
	case "PauseEvent", "InterruptEvent":
		b.ended("abort", "")
	case "ConversationErrorEvent":
		b.fails(cmp.Or(o.Text("detail"), o.Text("code"), "error"))
	}
	if b.touched != nil && leftAt > 0 {
		b.touched.hide(leftAt)
	}
}

func (d *openHands) message(o rows.Object) {
	b, message := d.b, o.Object("llm_message")
	parts := openHandsParts(append(contents(message.Get("content")), contents(o.Get("extended_content"))...))
	switch role := o.Text("source"); {
	case role == "agent":
		d.step(o, message)
		b.add(parts...)
		b.ended("finish", "")
	case len(parts) > 0:
		if role != session.RoleUser {
			role = session.RoleSystem
		}
		d.response = ""
		b.message(role, parts...).named(o.Text("id"), "", "")
	}
}

// openHandsParts are the parts of blocks, each of which may have several images.
func openHandsParts(blocks []rows.Object) (parts []rows.Object) {
	for _, block := range blocks {
		if block.Text("type") != "image" {
			parts = append(parts, partsOf(block)...)
		}
		for _, image := range contents(block.Get("image_urls")) {
			if url := image.Text("text"); url != "" {
				parts = append(parts, fileOf("image/*", url))
			}
		}
	}
	return parts
}

// step begins a model call with what the model thought, which is in o or in the message of it, unless an event of the
// same response did.
func (d *openHands) step(o, thought rows.Object) {
	b, id := d.b, o.Text("llm_response_id")
	if id != "" && id == d.response && b.turn != nil {
		return
	}
	d.response = id
	step := b.response(id)
	d.first = cmp.Or(d.first, step)
	model := d.model
	if used := d.take(id); used != nil {
		step.count(*used, semconv.BasisInclusive)
		model = cmp.Or(used.model, model)
	}
	step.ran(model)
	b.setModel(model)
	text := thought.Text("reasoning_content")
	if text == "" {
		blocks := append(contents(thought.Get("thinking_blocks")),
			contents(thought.Object("responses_reasoning_item").Get("summary"))...)
		for _, block := range blocks {
			text += cmp.Or(block.Text("thinking"), block.Text("text"))
		}
	}
	b.text("reasoning", text)
}

// take returns what a response used, nil if it is not known or was taken.
func (d *openHands) take(id string) *modelUse {
	used := d.used[id]
	delete(d.used, id)
	return used
}

func (d *openHands) action(o rows.Object) {
	d.step(o, o)
	d.b.add(openHandsParts(contents(o.Get("thought")))...)
	call := o.Object("tool_call")
	input := call.Get("arguments")
	if input == nil {
		input = o.Object("action").Without("kind").JSON()
	}
	c := d.b.call(cmp.Or(o.Text("tool_name"), call.Text("name")), o.Text("tool_call_id"), inputOf(input))
	if summary := o.Text("summary"); summary != "" {
		c.SetKey("title", summary)
	}
}

func (d *openHands) result(id string, output json.RawMessage, failed bool) {
	b := d.b
	b.Place = codec.Problem{Record: "call " + id}
	if !b.result(id, output, failed) {
		return
	}
	c := b.calls[id]
	if c.Row.CreatedAt > 0 && b.At >= c.Row.CreatedAt {
		b.measure(id, "duration_ms", b.At-c.Row.CreatedAt)
	}
	if c.Row.Type == "tool-finish" {
		b.ended("finish", "")
	}
}

// external adds a call of an agent that OpenHands runs, or what became of one.
func (d *openHands) external(call string, o rows.Object) {
	if !d.b.called(call) {
		c := d.b.call(cmp.Or(o.Text("tool_kind"), "acp"), call, inputOf(o.Get("raw_input")))
		c.SetKey("title", o.Text("title"))
	}
	failed := o.True("is_error") || o.Text("status") == "failed"
	output := firstOf(o, "raw_output", "content")
	if failed || o.Text("status") == "completed" {
		d.b.settle(call, output, failed) // it may be reported again
	}
}

func (d *openHands) condensation(o rows.Object) {
	c := compacted{summary: o.Text("summary"), auto: true}
	if used := d.take(o.Text("llm_response_id")); used != nil {
		c.usage, c.after, c.model, c.cost = &used.usage, used.usage.Output, used.model, used.cost
	}
	d.b.compaction(c)
	d.response = ""
}

// finish counts what is of no event: it is of the first answer, which stays the first when the conversation goes on.
func (d *openHands) finish() {
	if d.first == nil {
		return
	}
	d.first.in.Touch(d.b.At) // what was of no event before may be of one now
	for _, id := range d.order {
		if used := d.used[id]; used != nil && used.usage.Total() > 0 {
			d.first.in.newStep("").count(*used, semconv.BasisInclusive)
		}
	}
	if d.total.Total() > 0 {
		d.first.count(modelUse{usage: d.total.Add(d.first.used())}, semconv.BasisInclusive)
	}
}
