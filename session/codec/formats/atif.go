// ATIF: these files read and write the Agent Trajectory Interchange Format: a JSON document for each run of an agent,
// which benchmarks write and trainers read. Versions 1.0 to 1.8 are read, and 1.7 is written. docs/formats.md lists
// what becomes what.

package formats

import (
	"cmp"
	"encoding/json"
	"slices"
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
