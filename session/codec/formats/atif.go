// ATIF: these files read and write the Agent Trajectory Interchange Format: a JSON document for each run of an agent,
// which benchmarks write and trainers read. Versions 1.0 to 1.8 are read, and 1.7 is written. docs/formats.md lists
// what becomes what.

package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

const (
	atifVersionPrefix = "ATIF-v"
	atifVersion       = atifVersionPrefix + "1.7" // that is written

	// atifAgent is the source of an agent's step. Those of others are the roles of messages.
	atifAgent = "agent"
	// atifTypeObservation is the type of a part for a result that is not a tool call's.
	atifTypeObservation = "data-observation"
)

// atifImageTypes are the media types that an image may have.
var atifImageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// atifCounts are the fields of metrics, with the tokens that they count. The first two are required of a step whose
// usage is known, and extra has those that are not in final_metrics.
var atifCounts = []struct {
	key, total string
	of         func(session.Usage) int64
}{
	{"prompt_tokens", "total_prompt_tokens", func(u session.Usage) int64 { return u.Input + u.CacheRead + u.CacheWrite }},
	{"completion_tokens", "total_completion_tokens", func(u session.Usage) int64 { return u.Output + u.Reasoning }},
	{"cached_tokens", "total_cached_tokens", func(u session.Usage) int64 { return u.CacheRead }},
	{"reasoning_tokens", "", func(u session.Usage) int64 { return u.Reasoning }},
	{"cache_creation_input_tokens", "", func(u session.Usage) int64 { return u.CacheWrite }},
}

// atifEncode writes the session as a trajectory. Of others those are in it that are of sub-agents which the session
// started, or one of these.
func atifEncode(s *codec.Session, others ...*codec.Session) []byte {
	return append(atifTrajectory(s, others).Indented(), '\n')
}

func atifTrajectory(s *codec.Session, others []*codec.Session) rows.Object {
	e := atifEncoder{s: s, t: s.Sorted(), children: make(map[string]string)}
	var children []rows.Object
	for _, c := range others {
		// A fork has copies of its parent's messages, and the session of a sub-agent has not.
		fork := slices.ContainsFunc(c.Messages, func(m session.MessageAndParts) bool {
			return c.Session.Copied(m.Message.CreatedAt)
		})
		if c == s || session.Deref(c.Session.ParentID) != s.Session.ID || fork {
			continue
		}
		child := atifTrajectory(c, slices.DeleteFunc(slices.Clone(others), func(o *codec.Session) bool { return o == s }))
		id := strings.TrimPrefix(c.Session.ID, s.Session.ID+"-")
		e.children[c.Session.ID] = id
		if child.Set("trajectory_id", id); id == c.Session.ID {
			extra := child.Object("extra")
			extra.Set("session_id", id) // which is one of its own, and not one among the parent's
			child.Set("extra", extra)
		}
		children = append(children, child)
	}
	for i := range e.t.Messages { // trainers want the system prompt first
		if m := &e.t.Messages[i]; m.Message.HiddenAt == nil && e.prompt == "" {
			e.systemPrompt(m, e.t.Messages[0].Message.CreatedAt)
		}
	}
	for i := range e.t.Messages {
		if m := &e.t.Messages[i]; m.Message.HiddenAt == nil {
			e.message(m)
		}
	}
	o := e.trajectory()
	o.Add(rows.NonEmpty("subagent_trajectories", children))
	return o
}

type atifEncoder struct {
	s       *codec.Session
	t       *session.Transcript
	steps   []rows.Object
	used    *session.Usage // by the steps
	costUSD *float64
	prompt  string        // the digest of the system prompt in force
	tools   []rows.Object // the first catalog
	// children are the ids that sub-agents have in the trajectory, by those of their sessions.
	children map[string]string
}

func (e *atifEncoder) trajectory() rows.Object {
	row := &e.t.Session
	known := rows.Read(row.MetadataJSON).Object("atif") // what another program wrote
	run := cmp.Or(session.Deref(row.ParentID), known.Text("session_id"), row.ID)
	if len(e.steps) == 0 { // there must be one
		e.add(rows.Of("source", session.RoleSystem, "message", ""))
	}
	agent := rows.Of("name", cmp.Or(row.Agent, "unknown"), "version",
		cmp.Or(known.Object("agent").Text("version"), "unknown"))
	var model session.Model
	_ = json.Unmarshal([]byte(session.Deref(row.ModelJSON)), &model) // a model of another shape has no name
	agent.Add(rows.NonEmpty("model_name", model.ModelID, "tool_definitions", e.tools,
		"extra", known.Object("agent").Object("extra")))

	o := rows.Of("schema_version", atifVersion, "session_id", run, "trajectory_id", row.ID, "agent", agent,
		"steps", e.steps)
	o.Add(rows.NonEmpty("notes", known.Text("notes")))
	final := rows.Object{}
	for _, c := range atifCounts {
		if c.total != "" && e.used != nil {
			final.Set(c.total, c.of(*e.used))
		}
	}
	tokens := e.s.Tokens()
	cost, _ := tokens.Cost(row)
	final.Add(rows.NonEmpty("total_cost_usd", cmp.Or(e.costUSD, cost)))
	final.Set("total_steps", len(e.steps))
	o.Set("final_metrics", final)
	extra := known.Object("extra")
	if row.Title != "" && row.Title != session.Untitled {
		extra.Set("title", row.Title)
	}
	o.Add(rows.NonEmpty("continued_trajectory_ref", known.Text("continued_trajectory_ref"), "extra", extra))
	return o
}

// add adds a step, and its number.
func (e *atifEncoder) add(step rows.Object) {
	e.steps = append(e.steps, append(rows.Of("step_id", len(e.steps)+1), step...))
}

func (e *atifEncoder) message(m *session.MessageAndParts) {
	e.systemPrompt(m, m.Message.CreatedAt)
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	if b := rows.Blob(e.s, store.BlobToolCatalog, meta.Trace.ToolCatalogDigest); b != nil && e.tools == nil {
		e.tools = atifDefinitions(b.Body)
	}
	var blocks []rows.Object
	switch {
	case m.Message.Role != session.RoleAssistant:
		for i := range m.Parts {
			if b := atifBlock(rows.Data(&m.Parts[i])); b != nil {
				blocks = append(blocks, b)
			}
		}
		e.add(e.step(m, m.Message.Role, m.Message.CreatedAt, atifContent(blocks)))
	case m.IsMarker():
		e.compaction(m)
	default:
		steps := rows.Steps(e.s, m)
		for i := range steps {
			e.agent(m, &steps[i], i > 0)
		}
	}
}

// systemPrompt writes the system prompt of a message where it is another than that of the one before.
func (e *atifEncoder) systemPrompt(m *session.MessageAndParts, at int64) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	if b := rows.Blob(e.s, store.BlobSystemPrompt, meta.SystemPromptDigest); b != nil && b.Digest != e.prompt {
		e.prompt = b.Digest
		e.add(rows.Of("timestamp", rows.FormatTime(at), "source", session.RoleSystem, "message", b.Body))
	}
}

// atifDefinitions returns a catalog of tools in the shape of OpenAI's, nil where it is no catalog.
func atifDefinitions(body string) (tools []rows.Object) {
	for _, raw := range rows.Elements(json.RawMessage(body)) {
		tool := rows.Read(string(raw))
		if tool.Text("type") != "function" || tool.Object("function") == nil {
			if tool.Text("name") == "" {
				return nil
			}
			function := tool.Only("name", "description", "parameters")
			for _, schema := range tool.Only("input_schema", "inputSchema") {
				function.Set("parameters", schema.Value)
			}
			tool = rows.Of("type", "function", "function", function)
		}
		tools = append(tools, tool)
	}
	return tools
}

// step begins a step of a message, at a time.
func (e *atifEncoder) step(m *session.MessageAndParts, source string, at int64, message json.RawMessage) rows.Object {
	step := rows.Of("timestamp", rows.FormatTime(at), "source", source, "message", message)
	if e.t.Session.Copied(m.Message.CreatedAt) ||
		rows.Read(m.Message.MetadataJSON).Object("atif").True("is_copied_context") {
		step.Set("is_copied_context", true)
	}
	return step
}

// compaction writes a message that consists of compactions, whose summaries are the results. The format has metrics for
// steps of the agent only, so those of the summary are below extra.
func (e *atifEncoder) compaction(m *session.MessageAndParts) {
	var results []rows.Object
	for i := range m.Parts {
		c, _ := session.ParseCompaction(m.Parts[i].DataJSON) // one of another shape has no summary
		results = append(results, rows.Of("content", c.Summary))
	}
	step := e.step(m, session.RoleSystem, m.Message.CreatedAt, atifContent(nil))
	step.Set("observation", rows.Of("results", results))
	extra := rows.Of("context_management", rows.Of("type", "compaction", "boundary", "replace"))
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	used := meta.Tokens(m.Message.Role, true)
	if metrics := atifMetrics(used.Used, used.CostUSD); metrics != nil && !e.t.Session.Copied(m.Message.CreatedAt) {
		extra.Set("metrics", metrics)
	}
	step.Set("extra", extra)
	e.add(step)
}

// agent writes a model call with the tool calls that it requested.
func (e *atifEncoder) agent(m *session.MessageAndParts, st *rows.Step, later bool) {
	var blocks, calls, results []rows.Object
	var reasoning []string
	ids := make(map[string]bool)
	for _, p := range st.Parts {
		data := rows.Data(p)
		inner := data.Object("data")
		_, isText := rows.Text(inner.Get("content"))
		if b := atifBlock(data); b != nil {
			blocks = append(blocks, b)
		} else if p.Type == "reasoning" {
			reasoning = append(reasoning, data.Text("text"))
		} else if c := rows.CallOf(p, data, ids); c != nil {
			calls = append(calls, rows.Of("tool_call_id", c.ID, "function_name", c.Name, "arguments", c.Arguments()))
			if c.Result != nil {
				results = append(results, e.result(c, data))
			}
		} else if p.Type == atifTypeObservation && len(data) == 2 && len(inner) == 1 && isText { // as Decode makes it
			results = append(results, rows.Of("content", inner.Get("content")))
		}
	}
	at := m.Message.CreatedAt
	if later {
		at = max(at, st.At)
	}
	step := e.step(m, atifAgent, at, atifContent(blocks))
	step.Add(rows.NonEmpty("model_name", st.Model.ModelID))
	if reasoning != nil {
		step.Set("reasoning_content", strings.Join(reasoning, "\n\n"))
	}
	if st.Usage != nil {
		e.used = new(session.Deref(e.used).Add(*st.Usage))
	}
	rows.AddCost(&e.costUSD, st.CostUSD)
	step.Add(rows.NonEmpty("tool_calls", calls, "observation", rows.NonEmpty("results", results),
		"metrics", atifMetrics(st.Usage, st.CostUSD), "llm_call_count", st.Calls))
	e.add(step)
}

// result is the result of a call: a text, or blocks with images among them, and the trajectory of the sub-agent that
// the call started.
func (e *atifEncoder) result(c *rows.Call, data rows.Object) rows.Object {
	content := rows.Raw(*c.Result)
	var blocks []rows.Object
	for _, b := range c.Blocks() {
		if b.Image == nil {
			blocks = append(blocks, rows.TextPart("text", b.Text))
		} else {
			blocks = append(blocks, atifImage(b.Image.Type, rows.Raw(b.Image.URL())))
		}
	}
	if blocks != nil {
		content = atifContent(blocks)
	}
	result := rows.Of("source_call_id", c.ID, "content", content)
	result.Add(rows.NonEmpty("extra", rows.NonEmpty("is_error", c.Failed)))
	output := data.Object("output")
	child := cmp.Or(data.Object("toolMetadata").Object("agenttrace").Text("child_session_id"), output.Text("session_id"))
	id := e.children[child]
	if id == "" {
		return result
	}
	if len(output) == 1 && output.Text("session_id") == child {
		result = result.Without("content")
	}
	result.Set("subagent_trajectory_ref", []rows.Object{rows.Of("trajectory_id", id)})
	return result
}

// atifMetrics are those of a model call, nil where nothing is known.
func atifMetrics(used *session.Usage, costUSD *float64) (metrics rows.Object) {
	var extra rows.Object
	for _, c := range atifCounts {
		switch {
		case used == nil:
		case c.total != "":
			metrics.Set(c.key, c.of(*used))
		default:
			extra.Add(rows.NonEmpty(c.key, c.of(*used)))
		}
	}
	metrics.Add(rows.NonEmpty("extra", extra, "cost_usd", costUSD))
	return metrics
}

// atifContent returns the blocks of a message or of a result as the format has them: one text alone is a string.
func atifContent(blocks []rows.Object) json.RawMessage {
	switch {
	case len(blocks) == 0:
		return json.RawMessage(`""`)
	case len(blocks) == 1 && blocks[0].Text("type") == "text":
		return blocks[0].Get("text")
	}
	return rows.Raw(blocks)
}

// atifBlock returns the block of a part's data, nil where the format has none for it.
func atifBlock(data rows.Object) rows.Object {
	media := data.Text("mediaType")
	switch typ := data.Text("type"); {
	case typ == "text":
		return rows.Of("type", "text", "text", data.Get("text"))
	case typ == "file" && slices.Contains(atifImageTypes, media):
		return atifImage(media, data.Get("url"))
	}
	return nil
}

// atifImage is the block of an image, whose path may be a data: URL.
func atifImage(media string, path json.RawMessage) rows.Object {
	return rows.Of("type", "image", "source", rows.Of("media_type", media, "path", path))
}

// atifText reads a trajectory, and after it those of its sub-agents that it has in it. What is not a trajectory is an
// error that names the line or the field.
func atifText(_ string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	r := rows.Reporter{Report: report}
	valid := r.Valid(bytes.TrimPrefix(text, []byte("\uFEFF")))
	o, _, err := rows.ParsePython(valid, func(string) string { return "null" })
	if err == nil {
		err = atifCheck(o)
	}
	if err != nil {
		return nil, codec.AtLine(valid, err)
	}
	return atifSessions(o, atifSource{text: text}, report), nil
}

// atifSource is where a trajectory comes from: a text, or for one of a sub-agent the session that started it, with the
// message of its user and the time.
type atifSource struct {
	text            []byte
	place           string
	parent, message string
	at              int64 // when it was started
}

func atifSessions(o rows.Object, from atifSource, report func(codec.Problem)) []*codec.Session {
	id := cmp.Or(o.Text("trajectory_id"), o.Text("session_id"))
	switch {
	case id == "":
		id = "atif-" + session.Digest(string(from.text))[:16]
	case from.parent != "":
		id = cmp.Or(o.Object("extra").Text("session_id"), from.parent+"-"+id)
	}
	b := &atifBuilder{Reporter: rows.Reporter{Report: report}, at: from.at,
		s:       rows.New(id, cmp.Or(o.Object("agent").Text("name"), "unknown")),
		started: make(map[string]atifSource), sessions: make(map[string]string)}
	if run := o.Text("session_id"); run != id { // of which it is a part
		from.parent = cmp.Or(from.parent, run)
	}
	rows.SetText(&b.s.Row.ParentID, from.parent)
	rows.SetText(&b.s.Row.ParentMessageID, from.message)
	all := []*codec.Session{b.build(o, from.place)}
	for i, raw := range rows.Elements(o.Get("subagent_trajectories")) {
		b.Place.Record = fmt.Sprintf("%ssubagent_trajectories[%d]", from.place, i)
		child := rows.Read(string(raw)) // what is not an object has no version
		if err := atifCheck(child); err != nil {
			b.Problem("is not a trajectory, and is left out: %v", err)
			continue
		}
		start, started := b.started[child.Text("trajectory_id")]
		if !started {
			start.at = all[0].Session.CreatedAt
		}
		start.text, start.place, start.parent = raw, b.Place.Record+".", id
		all = append(all, atifSessions(child, start, report)...)
	}
	return all
}

// atifCheck reports what cannot be read as a trajectory at all.
func atifCheck(o rows.Object) error {
	version, steps := o.Text("schema_version"), o.Get("steps")
	switch {
	case !strings.HasPrefix(version, atifVersionPrefix+"1."):
		return fmt.Errorf("schema_version is %.40q: convert the file to %s", version, atifVersion)
	case len(steps) == 0 || steps[0] != '[':
		return errors.New("steps is missing: want an array of steps")
	}
	return nil
}

// atifBuilder makes a session of a trajectory. Problems are those of the step that is being read.
type atifBuilder struct {
	rows.Reporter
	s       *rows.Session
	at      int64         // of the step before
	user    *rows.Message // the last one
	cost    bool
	catalog string // the digest of the tools, until a message has it
	// started are where sub-agents were started, by their ids, and sessions those of sub-agents in the trajectory.
	started  map[string]atifSource
	sessions map[string]string
}

func (b *atifBuilder) build(o rows.Object, place string) *codec.Session {
	for child := range rows.Objects(o.Get("subagent_trajectories")) {
		id := child.Text("trajectory_id")
		b.sessions[id] = cmp.Or(child.Object("extra").Text("session_id"), b.s.Row.ID+"-"+id)
	}
	b.about(o)
	steps := rows.Elements(o.Get("steps"))
	for _, raw := range steps { // what comes before the first time, and has none, has that
		if at, ok := rows.ParseTime(rows.Read(string(raw)).Text("timestamp")); ok {
			b.at = at
			break
		}
	}
	for i, raw := range steps {
		b.Place.Record = fmt.Sprintf("%ssteps[%d]", place, i)
		b.step(rows.Read(string(raw))) // what is not an object has no source
	}
	b.Place.Record = place + "final_metrics"
	b.totals(o.Object("final_metrics"))
	return b.fork(b.s.Finish())
}

// fork has a session whose trajectory begins with copies of its parent's steps begin after them, as forks do.
func (b *atifBuilder) fork(s *codec.Session) *codec.Session {
	all, n := b.s.Messages, 0
	for n < len(all) && all[n].MetaOf("atif").True("is_copied_context") {
		n++
	}
	if n > 0 && s.Session.ParentID != nil && (n == len(all) || all[n].Row.CreatedAt > all[n-1].Row.CreatedAt) {
		s.Session.CreatedAt = all[n-1].Row.CreatedAt + 1
		s.Session.UpdatedAt = max(s.Session.UpdatedAt, s.Session.CreatedAt)
	}
	return s
}

// about keeps what describes the run, for the session, and the catalog of tools, for the first answer.
func (b *atifBuilder) about(o rows.Object) {
	agent := o.Object("agent")
	if model := agent.Text("model_name"); model != "" {
		b.s.Row.ModelJSON = new(string(rows.Raw(session.Model{ModelID: model})))
	}
	kept := rows.Of("schema_version", o.Text("schema_version"))
	if id := o.Text("session_id"); id != b.s.Row.ID && id != session.Deref(b.s.Row.ParentID) {
		kept.Set("session_id", id)
	}
	kept.Add(rows.NonEmpty("agent", agent.Only("version", "extra")))
	b.s.SetMeta("atif", append(kept, o.Only("notes", "continued_trajectory_ref", "extra")...))
	b.s.Row.Title = cmp.Or(o.Object("extra").Text("title"), b.s.Row.Title)
	if tools := agent.Get("tool_definitions"); len(rows.Elements(tools)) > 0 {
		b.catalog = b.s.Blob(store.BlobToolCatalog, string(tools), true)
	}
}

// totals takes the usage and the cost of the run where no step has one.
func (b *atifBuilder) totals(final rows.Object) {
	answers := b.s.Answers
	if used := b.counted(final, "total_"); used != nil && len(answers) > 0 &&
		!slices.ContainsFunc(answers, func(a *rows.Answer) bool { return a.Usage != nil }) {
		answers[len(answers)-1].Usage = used
	}
	const least = 1e-9 // which sums of fractions may differ by
	if cost := rows.USD(final.Get("total_cost_usd")); cost != nil && *cost > least && !b.cost {
		b.s.Row.CostUSD = *cost
	}
}

// step reads a step. One without a time has that of the step before.
func (b *atifBuilder) step(step rows.Object) {
	at, ok := rows.ParseTime(step.Text("timestamp"))
	if ok {
		b.at = at
	} else if step.Has("timestamp") {
		b.Problem("timestamp is not a time in ISO 8601: the step has that of the one before")
	}
	if b.at > 0 {
		b.s.See(b.at)
	}
	from := step.Text("source")
	management := step.Object("extra").Object("context_management")
	switch {
	case from == session.RoleSystem && management.Text("type") == "compaction":
		b.compaction(step)
	case from == session.RoleSystem && string(step.Get("message")) == `""` && !step.Has("timestamp"):
		// a trajectory must have a step, and this one has nothing
	case from == atifAgent:
		a, begun := b.s.Answer(b.at)
		if begun {
			b.copied(a.Message, step)
		}
		b.agent(a, step)
	case from == session.RoleUser || from == session.RoleSystem:
		m := b.copied(b.s.Message(from, b.at), step)
		if from == session.RoleUser {
			b.user = m
		}
		b.content(m, step.Get("message"))
		b.results(m, slices.Collect(rows.Objects(step.Object("observation").Get("results"))))
	default:
		b.Problem("source is %.40q, want system, user or agent: the step is left out", from)
	}
}

// copied marks a message that begins with a copied step.
func (b *atifBuilder) copied(m *rows.Message, step rows.Object) *rows.Message {
	if step.True("is_copied_context") {
		m.SetMeta("atif", rows.Of("is_copied_context", true))
	}
	return m
}

// compaction reads a step of a compaction. Its summaries are the results, or else the message.
func (b *atifBuilder) compaction(step rows.Object) {
	m := b.copied(b.s.Message(session.RoleAssistant, b.at), step)
	m.SetMeta("compaction", true)
	results := rows.Elements(step.Object("observation").Get("results"))
	if results == nil {
		results = []json.RawMessage{nil}
	}
	for _, raw := range results {
		summary := cmp.Or(rows.Read(string(raw)).Text("content"), step.Text("message"))
		m.Part(rows.CompactionPart(summary, false), b.at)
	}
	metrics := step.Object("extra").Object("metrics")
	m.AddTrace(rows.NonEmpty("usage", b.counted(metrics, ""), "cost_usd", b.costOf(metrics)))
}

// content reads what a step says, and adds its texts and images.
func (b *atifBuilder) content(m *rows.Message, raw json.RawMessage) {
	pieces := rows.Elements(raw)
	if text, ok := rows.Text(raw); ok && text != "" {
		pieces = []json.RawMessage{rows.Of("type", "text", "text", raw).JSON()}
	} else if !ok && pieces == nil {
		b.Problem("message is neither a text nor an array of parts, and is left out")
	}
	for i, piece := range pieces {
		part := rows.Read(string(piece))
		source := part.Object("source")
		_, isText := rows.Text(part.Get("text"))
		_, isImage := rows.Text(source.Get("path"))
		switch {
		case part.Text("type") == "text" && isText:
			m.Part(rows.Of("type", "text", "text", part.Get("text")), b.at)
		case part.Text("type") != "text" && isImage: // version 1.8 has audio, too
			m.Part(rows.Of("type", "file", "mediaType", source.Text("media_type"), "url", source.Get("path")), b.at)
		default:
			b.Problem("message[%d] is neither a text nor an image, and is left out", i)
		}
	}
}

// agent reads a model call.
func (b *atifBuilder) agent(a *rows.Answer, step rows.Object) {
	a.Part(rows.Of("type", "step-start"), b.at)
	if text := step.Text("reasoning_content"); text != "" {
		a.Part(rows.TextPart("reasoning", text), b.at)
	}
	b.content(a.Message, step.Get("message"))
	results := slices.Collect(rows.Objects(step.Object("observation").Get("results")))
	for i, raw := range rows.Elements(step.Get("tool_calls")) {
		call := rows.Read(string(raw))
		name, named := rows.Text(call.Get("function_name"))
		id, identified := rows.Text(call.Get("tool_call_id"))
		if !named || !identified {
			b.Problem("tool_calls[%d] has no tool_call_id and function_name, and is left out", i)
			continue
		}
		p := a.Call(id, name, call.Get("arguments"), b.at)
		at := slices.IndexFunc(results, func(r rows.Object) bool {
			of, ok := rows.Text(r.Get("source_call_id"))
			return ok && of == id
		})
		if at >= 0 {
			b.result(p, results[at])
			results = slices.Delete(results, at, at+1)
		}
	}
	b.results(a.Message, results)
	b.measure(a, step)
}

// result gives a call its result: the session of a sub-agent, where it is no more.
func (b *atifBuilder) result(p *rows.Part, result rows.Object) {
	var child string
	for ref := range rows.Objects(result.Get("subagent_trajectory_ref")) {
		if id := ref.Text("trajectory_id"); id != "" {
			child = cmp.Or(child, b.sessions[id], b.s.Row.ID+"-"+id)
			if b.started[id] = (atifSource{at: b.at}); b.user != nil {
				b.started[id] = atifSource{message: b.user.Row.ID, at: b.at}
			}
		}
	}
	content := joinedTexts(result.Get("content"))
	if child != "" && content == nil {
		content = rows.Of("session_id", child).JSON()
	} else if child != "" {
		p.SetToolTrace("child_session_id", child)
	}
	p.Result(content, result.Object("extra").True("is_error"))
}

// results adds the results of a step that are not those of its calls: late ones of a call before, and what the agent
// saw without having called a tool.
func (b *atifBuilder) results(m *rows.Message, others []rows.Object) {
	for _, result := range others {
		if result.Has("source_call_id") {
			b.Problem("source_call_id is %.60q, which no call of the step has: the result is kept without a call",
				result.Text("source_call_id"))
		}
		if result.Has("content") {
			m.Part(rows.DataPart(atifTypeObservation, rows.Of("content", joinedTexts(result.Get("content")))), b.at)
		}
	}
}

// counted reads the tokens of metrics, nil if there are none.
func (b *atifBuilder) counted(metrics rows.Object, prefix string) *session.Usage {
	extra := metrics.Object("extra")
	read := func(o rows.Object, keys ...string) int64 {
		for _, f := range o.Only(keys...) {
			if n, ok := rows.Count(f.Value); ok {
				return n
			}
			b.Problem("%s is %.40s, want a count of tokens: it is left out", f.Key, f.Value)
		}
		return 0
	}
	if !metrics.Has(prefix+"prompt_tokens") && !metrics.Has(prefix+"completion_tokens") {
		return nil
	}
	prompt, completion := read(metrics, prefix+"prompt_tokens"), read(metrics, prefix+"completion_tokens")
	cached := min(prompt, read(metrics, prefix+"cached_tokens"))
	wrote := min(prompt-cached, read(extra, "cache_creation_input_tokens", "cache_write_tokens"))
	thought := min(completion, read(extra, "reasoning_tokens", "reasoning_output_tokens"))
	return &session.Usage{Input: prompt - cached - wrote, CacheRead: cached, CacheWrite: wrote,
		Output: completion - thought, Reasoning: thought}
}

// measure adds what a step reports of its model call. A copied one was counted where it was made.
func (b *atifBuilder) measure(a *rows.Answer, step rows.Object) {
	s := session.Step{StartedAt: b.at}
	var cost *float64
	if !step.True("is_copied_context") {
		metrics := step.Object("metrics")
		s.Usage, cost = b.counted(metrics, ""), b.costOf(metrics)
	}
	a.Step(s, session.Model{ModelID: step.Text("model_name")}, cost)
	if n, err := strconv.ParseInt(string(step.Get("llm_call_count")), 10, 32); err == nil && n >= 0 {
		a.Calls += n - 1
	}
	if b.catalog != "" {
		a.SetTrace("tool_catalog_digest", b.catalog)
		b.catalog = ""
	}
}

// costOf returns the cost of a step, nil where it has none, and adds it to the run's.
func (b *atifBuilder) costOf(metrics rows.Object) *float64 {
	cost := rows.USD(metrics.Get("cost_usd"))
	if cost != nil {
		b.cost, b.s.Row.CostUSD = true, store.AddCost(b.s.Row.CostUSD, *cost)
	}
	return cost
}
