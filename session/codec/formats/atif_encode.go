package formats

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// atifEncode writes the session as a trajectory. Of others those are in it that are of sub-agents which
// the session started, or one of these.
func atifEncode(w io.Writer, s *codec.Session, others ...*codec.Session) error {
	text := rows.Python{Indent: true}.Append(nil, atifTrajectory(s, others).JSON())
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write trajectory %s: %w", s.Session.ID, err)
	}
	return nil
}

func atifTrajectory(s *codec.Session, others []*codec.Session) rows.Object {
	e := atifEncoder{s: s, t: s.Sorted(), blobs: make(map[string]*store.Blob), children: make(map[string]string)}
	var children []rows.Object
	for _, c := range others {
		if c == s || session.Deref(c.Session.ParentID) != s.Session.ID || atifIsFork(c) {
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
	for i := range s.Blobs {
		e.blobs[string(s.Blobs[i].Kind)+s.Blobs[i].Digest] = &s.Blobs[i]
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
	o := e.trajectory(s)
	o.Add(rows.NonEmpty("subagent_trajectories", children))
	return o
}

// atifIsFork reports whether a session has copies of its parent's messages, as that of a sub-agent has not.
func atifIsFork(s *codec.Session) bool {
	return slices.ContainsFunc(s.Messages, func(m session.MessageAndParts) bool {
		return s.Session.Copied(m.Message.CreatedAt)
	})
}

type atifEncoder struct {
	s       *codec.Session
	t       *session.Transcript
	blobs   map[string]*store.Blob
	steps   []rows.Object
	used    *session.Usage // by the steps
	costUSD *float64
	prompt  string        // the digest of the system prompt in force
	tools   []rows.Object // the first catalog
	// children are the ids that sub-agents have in the trajectory, by those of their sessions.
	children map[string]string
}

func (e *atifEncoder) trajectory(s *codec.Session) rows.Object {
	row := &e.t.Session
	known := rows.Read(row.MetadataJSON).Object("atif") // what another program wrote
	run := cmp.Or(known.Text("session_id"), row.ID)
	if row.ParentID != nil && *row.ParentID != "" {
		run = *row.ParentID
	}
	if len(e.steps) == 0 { // there must be one
		e.add(rows.Of("source", atifSourceSystem, "message", ""))
	}
	agent := rows.Of("name", cmp.Or(row.Agent, "unknown"), "version",
		cmp.Or(known.Object("agent").Text("version"), "unknown"))
	var model session.Model
	if row.ModelJSON != nil {
		_ = json.Unmarshal([]byte(*row.ModelJSON), &model) // a model of another shape has no name
	}
	agent.Add(rows.NonEmpty("model_name", model.ModelID, "tool_definitions", e.tools,
		"extra", known.Object("agent").Object("extra")))

	o := rows.Of("schema_version", atifVersion, "session_id", run, "trajectory_id", row.ID, "agent", agent,
		"steps", e.steps)
	o.Add(rows.NonEmpty("notes", known.Text("notes")))
	final := rows.Object{}
	if e.used != nil {
		for _, c := range atifCounts {
			if c.total != "" {
				final.Set(c.total, c.of(*e.used))
			}
		}
	}
	tokens := s.Tokens()
	cost, _ := tokens.Cost(row)
	final.Add(rows.NonEmpty("total_cost_usd", cmp.Or(e.costUSD, cost)))
	final.Set("total_steps", len(e.steps))
	final.Add(rows.NonEmpty("extra", rows.NonEmpty("outside_of_steps", e.outside(tokens.Used, cost))))
	o.Set("final_metrics", final)
	extra := known.Object("extra")
	if row.Title != "" && row.Title != session.Untitled {
		extra.Set("title", row.Title)
	}
	o.Add(rows.NonEmpty("continued_trajectory_ref", known.Text("continued_trajectory_ref"), "extra", extra))
	return o
}

// outside is what the session used beside its steps: for the summaries of compactions, and in messages that a rewind
// hid. The totals are those of the steps, which readers sum.
func (e *atifEncoder) outside(used *session.Usage, costUSD *float64) (metrics rows.Object) {
	var rest session.Usage
	if used != nil {
		rest = used.Sub(session.Deref(e.used))
	}
	for _, c := range atifCounts {
		if n := c.of(rest); n > 0 && c.total != "" {
			metrics.Set(c.key, n)
		}
	}
	if costUSD != nil && e.costUSD != nil {
		if cost := store.AddCost(*costUSD, -*e.costUSD); cost > 0 {
			metrics.Set("cost_usd", cost)
		}
	}
	return metrics
}

// add adds a step, and its number.
func (e *atifEncoder) add(step rows.Object) {
	e.steps = append(e.steps, append(rows.Of("step_id", len(e.steps)+1), step...))
}

func (e *atifEncoder) message(m *session.MessageAndParts) {
	e.systemPrompt(m, m.Message.CreatedAt)
	e.catalog(m)
	switch {
	case m.Message.Role != session.RoleAssistant:
		e.text(m)
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
	if b := e.blobs[string(store.BlobSystemPrompt)+meta.SystemPromptDigest]; b != nil && b.Digest != e.prompt {
		e.prompt = b.Digest
		e.add(rows.Of("timestamp", rows.FormatTime(at), "source", atifSourceSystem, "message", b.Body))
	}
}

// catalog takes the tools of the first catalog that a message names.
func (e *atifEncoder) catalog(m *session.MessageAndParts) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	if b := e.blobs[string(store.BlobToolCatalog)+meta.Trace.ToolCatalogDigest]; b != nil && e.tools == nil {
		e.tools = atifDefinitions(b.Body)
	}
}

// atifDefinitions returns a catalog of tools in the shape of OpenAI's, nil where it is no catalog.
func atifDefinitions(body string) (tools []rows.Object) {
	for _, raw := range rows.Elements(json.RawMessage(body)) {
		tool, err := rows.Parse(raw)
		if err != nil {
			return nil
		}
		if tool.Text("type") != "function" || tool.Object("function") == nil {
			if tool.Text("name") == "" {
				return nil
			}
			function := rows.Of("name", tool.Text("name"))
			for _, key := range [][]string{{"description"}, {"parameters", "input_schema", "inputSchema"}} {
				for _, name := range key {
					if tool.Has(name) {
						function.Set(key[0], tool.Get(name))
					}
				}
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
	if e.t.Session.Copied(m.Message.CreatedAt) || atifCopied(rows.Read(m.Message.MetadataJSON).Object("atif")) {
		step.Set("is_copied_context", true)
	}
	return step
}

// text writes a message that is not the agent's.
func (e *atifEncoder) text(m *session.MessageAndParts) {
	var blocks []rows.Object
	for i := range m.Parts {
		if b := atifBlock(rows.Read(m.Parts[i].DataJSON)); b != nil {
			blocks = append(blocks, b)
		}
	}
	source := atifSourceUser
	if m.Message.Role == session.RoleSystem {
		source = atifSourceSystem
	}
	e.add(e.step(m, source, m.Message.CreatedAt, atifContent(blocks)))
}

// compaction writes a message that consists of compactions, whose summaries are the results. The
// format has metrics for steps of the agent only, so those of the summary are below extra.
func (e *atifEncoder) compaction(m *session.MessageAndParts) {
	var results []rows.Object
	for i := range m.Parts {
		c, _ := session.ParseCompaction(m.Parts[i].DataJSON) // one of another shape has no summary
		results = append(results, rows.Of("content", c.Summary))
	}
	step := e.step(m, atifSourceSystem, m.Message.CreatedAt, atifContent(nil))
	step.Set("observation", rows.Of("results", results))
	extra := rows.Of("context_management", rows.Of("type", "compaction", "boundary", "replace"))
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	used := meta.Tokens(m.Message.Role, true)
	if metrics := atifMetricsOf(used.Used, used.CostUSD); metrics != nil && !e.t.Session.Copied(m.Message.CreatedAt) {
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
		data := rows.Read(p.DataJSON)
		if b := atifBlock(data); b != nil {
			blocks = append(blocks, b)
		} else if p.Type == "reasoning" {
			reasoning = append(reasoning, data.Text("text"))
		} else if c := rows.CallOf(p, data, func(id string) bool { return ids[id] }); c != nil {
			ids[c.ID] = true
			calls = append(calls, rows.Of("tool_call_id", c.ID, "function_name", c.Name, "arguments", c.Arguments()))
			if c.Result != nil {
				result := rows.Of("source_call_id", c.ID, "content", atifResultOf(c))
				result.Add(rows.NonEmpty("extra", rows.NonEmpty("is_error", c.Failed)))
				e.started(&result, data)
				results = append(results, result)
			}
		} else if atifIsObservation(data) {
			results = append(results, rows.Of("content", data.Object("data").Get("content")))
		}
	}
	at := m.Message.CreatedAt
	if later {
		at = max(at, st.At)
	}
	step := e.step(m, atifSourceAgent, at, atifContent(blocks))
	step.Add(rows.NonEmpty("model_name", st.Model.ModelID))
	if reasoning != nil {
		step.Set("reasoning_content", strings.Join(reasoning, "\n\n"))
	}
	step.Add(rows.NonEmpty("tool_calls", calls, "observation", rows.NonEmpty("results", results),
		"metrics", e.metrics(st.Usage, st.CostUSD), "llm_call_count", st.Calls))
	e.add(step)
}

// atifResultOf is the content of a result: a text, or blocks with images among them.
func atifResultOf(c *rows.Call) json.RawMessage {
	var blocks []rows.Object
	for _, b := range c.Blocks() {
		if b.Image == nil {
			blocks = append(blocks, rows.TextPart("text", b.Text))
		} else {
			blocks = append(blocks, atifImage(b.Image.Type, rows.Raw(b.Image.URL())))
		}
	}
	if blocks == nil {
		return rows.Raw(*c.Result)
	}
	return atifContent(blocks)
}

// started names the trajectory of the sub-agent that a call started.
func (e *atifEncoder) started(result *rows.Object, data rows.Object) {
	output := data.Object("output")
	child := cmp.Or(data.Object("toolMetadata").Object("agenttrace").Text("child_session_id"),
		output.Text("session_id"))
	id := e.children[child]
	if id == "" {
		return
	}
	if len(output) == 1 && output.Text("session_id") == child {
		*result = result.Without("content")
	}
	result.Set("subagent_trajectory_ref", []rows.Object{rows.Of("trajectory_id", id)})
}

// metrics returns what a step used, nil where that is not known, and adds it to the run's.
func (e *atifEncoder) metrics(used *session.Usage, costUSD *float64) rows.Object {
	if used != nil {
		if e.used == nil {
			e.used = new(session.Usage)
		}
		*e.used = e.used.Add(*used)
	}
	rows.AddCost(&e.costUSD, costUSD)
	return atifMetricsOf(used, costUSD)
}

func atifMetricsOf(used *session.Usage, costUSD *float64) (metrics rows.Object) {
	var extra rows.Object
	if used != nil {
		for _, c := range atifCounts {
			n := c.of(*used)
			if !c.extra {
				metrics.Set(c.key, n)
			} else if n != 0 {
				extra.Set(c.key, n)
			}
		}
	}
	metrics.Add(rows.NonEmpty("extra", extra, "cost_usd", costUSD))
	return metrics
}

// atifIsObservation reports whether the data is that of a result without a call, as Decode makes it.
func atifIsObservation(data rows.Object) bool {
	inner := data.Object("data")
	text := inner.Get("content")
	return data.Text("type") == atifTypeObservation && len(data) == 2 && len(inner) == 1 && len(text) > 0 && text[0] == '"'
}
