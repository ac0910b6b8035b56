package atif

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Encode writes the session as a trajectory.
func Encode(w io.Writer, s *codec.Session) error {
	e := encoder{s: s, t: s.Sorted(), blobs: make(map[string]*store.Blob), catalogs: make(map[string]bool)}
	for i := range s.Blobs {
		e.blobs[string(s.Blobs[i].Kind)+s.Blobs[i].Digest] = &s.Blobs[i]
	}
	for i := range e.t.Messages { // trainers want the system prompt first
		if m := &e.t.Messages[i]; m.Message.HiddenAt == nil && e.prompt == "" {
			e.systemPrompt(m, e.t.Messages[0].Message.CreatedAt)
		}
	}
	for i := range e.t.Messages {
		e.message(&e.t.Messages[i])
	}
	text := rows.Python{Indent: true}.Append(nil, e.trajectory(s).JSON())
	if _, err := w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write trajectory %s: %w", s.Session.ID, err)
	}
	return nil
}

type encoder struct {
	s     *codec.Session
	t     *session.Transcript
	blobs map[string]*store.Blob
	steps []rows.Object
	// rewound are the steps of messages that a rewind hid, each with the number of steps before it.
	rewound []rows.Object
	used    *session.Usage // by the steps
	costUSD *float64
	prompt  string // the digest of the system prompt in force
	// tools is the first catalog, and toolsDigest its digest. catalogs are those that are written.
	tools       []rows.Object
	toolsDigest string
	catalogs    map[string]bool
}

func (e *encoder) trajectory(s *codec.Session) rows.Object {
	row := &e.t.Session
	known := rows.Read(row.MetadataJSON).Object("atif") // what another program wrote
	run := row.ID
	if row.ParentID != nil && *row.ParentID != "" {
		run = *row.ParentID
	}
	if len(e.steps) == 0 { // there must be one
		e.add(rows.Of("source", sourceSystem, "message", "", "extra", rows.Of(own, rows.Of("placeholder", true))), false)
	}
	agent := rows.Of("name", cmp.Or(row.Agent, "unknown"), "version",
		cmp.Or(known.Object("agent").Text("version"), "unknown"))
	var model session.Model
	if row.ModelJSON != nil {
		_ = json.Unmarshal([]byte(*row.ModelJSON), &model) // a model of another shape has no name
	}
	if model.ModelID != "" {
		agent.Set("model_name", model.ModelID)
	}
	if e.tools != nil {
		agent.Set("tool_definitions", e.tools)
	}
	agentExtra := known.Object("agent").Object("extra").Without(own)
	if e.toolsDigest != "" {
		agentExtra.Set(own, rows.Of("tool_catalog", e.toolsDigest))
	}
	if len(agentExtra) > 0 {
		agent.Set("extra", agentExtra)
	}

	o := rows.Of("schema_version", version, "session_id", run, "trajectory_id", row.ID, "agent", agent, "steps", e.steps)
	if notes := known.Text("notes"); notes != "" {
		o.Set("notes", notes)
	}
	final := rows.Object{}
	if e.used != nil {
		for _, c := range counts {
			if c.total != "" {
				final.Set(c.total, c.of(*e.used))
			}
		}
	}
	tokens := s.Tokens()
	if cost, whole := tokens.Cost(row); whole {
		e.costUSD = cost
	}
	if e.costUSD != nil {
		final.Set("total_cost_usd", *e.costUSD)
	}
	final.Set("total_steps", len(e.steps))
	o.Set("final_metrics", final)
	if next := known.Text("continued_trajectory_ref"); next != "" {
		o.Set("continued_trajectory_ref", next)
	}
	embedded := rows.EmbedSession(s)
	if e.rewound != nil {
		embedded.Set("rewound", e.rewound)
	}
	extra := known.Object("extra").Without(own)
	extra.Set(own, embedded)
	o.Set("extra", extra)
	return o
}

// add adds a step, and its number.
func (e *encoder) add(step rows.Object, hidden bool) {
	if hidden {
		e.rewound = append(e.rewound, rows.Of("after", len(e.steps), "step", step))
		return
	}
	e.steps = append(e.steps, append(rows.Of("step_id", len(e.steps)+1), step...))
}

func (e *encoder) message(m *session.MessageAndParts) {
	embedded := rows.Of("message", rows.EmbedMessage(&m.Message))
	hidden := m.Message.HiddenAt != nil
	if !hidden {
		e.systemPrompt(m, m.Message.CreatedAt)
		e.catalog(m, &embedded)
	}
	switch {
	case m.Message.Role != session.RoleAssistant:
		e.text(m, embedded)
	case m.IsMarker():
		e.compaction(m, embedded)
	default:
		steps := rows.Steps(e.s, m)
		for i := range steps {
			e.agent(m, &steps[i], i > 0, embedded)
			embedded = rows.Object{}
		}
	}
}

// systemPrompt writes the system prompt of a message where it is another than that of the one before.
func (e *encoder) systemPrompt(m *session.MessageAndParts, at int64) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	if b := e.blobs[string(store.BlobSystemPrompt)+meta.SystemPromptDigest]; b != nil && b.Digest != e.prompt {
		e.prompt = b.Digest
		e.add(rows.Of("timestamp", rows.FormatTime(at), "source", sourceSystem, "message", b.Body,
			"extra", rows.Of(own, rows.Of("system_prompt", b.Digest))), false)
	}
}

// catalog keeps the first catalog of tools that a message names, and gives those of later messages
// to their steps.
func (e *encoder) catalog(m *session.MessageAndParts, embedded *rows.Object) {
	meta := session.ParseMessageMetadata([]byte(m.Message.MetadataJSON))
	b := e.blobs[string(store.BlobToolCatalog)+meta.Trace.ToolCatalogDigest]
	if b == nil || e.catalogs[b.Digest] {
		return
	}
	tools := definitions(b.Body)
	switch {
	case tools == nil:
		return
	case e.tools == nil:
		e.tools, e.toolsDigest = tools, b.Digest
	default:
		embedded.Set("tool_catalog", b.Digest)
		embedded.Set("tool_definitions", tools)
	}
	e.catalogs[b.Digest] = true
}

// definitions returns a catalog of tools in the shape of OpenAI's, nil where it is no catalog.
func definitions(body string) (tools []rows.Object) {
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
func (e *encoder) step(m *session.MessageAndParts, source string, at int64) rows.Object {
	return rows.Of("timestamp", rows.FormatTime(at), "source", source)
}

// finish adds a step with what is ours in it.
func (e *encoder) finish(m *session.MessageAndParts, step, extra, embedded rows.Object, parts []rows.Object) {
	if e.t.Session.Copied(m.Message.CreatedAt) || copied(rows.Read(m.Message.MetadataJSON).Object("atif")) {
		step.Set("is_copied_context", true)
	}
	if parts != nil {
		embedded.Set("parts", parts)
	}
	if len(embedded) > 0 {
		extra.Set(own, embedded)
	}
	if len(extra) > 0 {
		step.Set("extra", extra)
	}
	e.add(step, m.Message.HiddenAt != nil)
}

// text writes a message that is not the agent's.
func (e *encoder) text(m *session.MessageAndParts, embedded rows.Object) {
	var blocks, others []rows.Object
	var order, rest []*session.Part
	for i := range m.Parts {
		data := rows.Read(m.Parts[i].DataJSON)
		if b := block(data); b != nil {
			blocks, order = append(blocks, b), append(order, &m.Parts[i])
		} else {
			others, rest = append(others, data), append(rest, &m.Parts[i])
		}
	}
	rows.EmbedParts(&embedded, append(order, rest...))
	emptyText(&embedded, blocks)
	source := sourceUser
	if m.Message.Role == session.RoleSystem {
		source = sourceSystem
	}
	step := e.step(m, source, m.Message.CreatedAt)
	step.Set("message", content(blocks))
	e.finish(m, step, nil, embedded, others)
}

// compaction writes a message that consists of compactions: its parts are without the summaries,
// which are the results.
func (e *encoder) compaction(m *session.MessageAndParts, embedded rows.Object) {
	var results, parts []rows.Object
	var order []*session.Part
	for i := range m.Parts {
		data := rows.Read(m.Parts[i].DataJSON)
		inner := data.Object("data")
		summary := inner.Get("summary")
		if _, ok := rows.Text(summary); !ok {
			summary = json.RawMessage(`""`)
		}
		results = append(results, rows.Of("content", summary))
		data.Set("data", inner.Without("summary"))
		parts, order = append(parts, data), append(order, &m.Parts[i])
	}
	rows.EmbedParts(&embedded, order)
	step := e.step(m, sourceSystem, m.Message.CreatedAt)
	step.Set("message", "")
	step.Set("observation", rows.Of("results", results))
	e.finish(m, step, rows.Of("context_management", rows.Of("type", "compaction", "boundary", "replace")), embedded, parts)
}

// agent writes a model call with the tool calls that it requested.
func (e *encoder) agent(m *session.MessageAndParts, st *rows.Step, later bool, embedded rows.Object) {
	var blocks, calls, results, others []rows.Object
	var reasoning string
	reasoned := false
	ids := make(map[string]bool)
	// The parts in the order in which they are read, which is that of the kinds.
	var order, thoughts, said, called, seen, rest []*session.Part
	if st.Start != nil {
		order = append(order, st.Start)
	}
	for _, p := range st.Parts {
		data := rows.Read(p.DataJSON)
		switch b := block(data); {
		case b != nil:
			blocks, said = append(blocks, b), append(said, p)
		case p.Type == "reasoning":
			if reasoned {
				reasoning += "\n\n"
			}
			reasoning, reasoned = reasoning+data.Text("text"), true
			thoughts = append(thoughts, p)
		case p.ToolCallID != nil && session.IsToolType(p.Type):
			c := rows.CallOf(p, data, func(id string) bool { return ids[id] })
			ids[c.ID] = true
			call := rows.Of("tool_call_id", c.ID, "function_name", c.Name, "arguments", c.Input)
			if len(c.Extra) > 0 {
				call.Set("extra", rows.Of(own, c.Extra))
			}
			calls, called = append(calls, call), append(called, p)
			if c.Result != nil {
				results = append(results, rows.Of("source_call_id", c.ID, "content", c.Result))
			}
		case isObservation(data):
			results, seen = append(results, rows.Of("content", data.Object("data").Get("content"))), append(seen, p)
		default:
			others, rest = append(others, data), append(rest, p)
		}
	}
	if len(thoughts) > 1 || reasoned && reasoning == "" { // which the field does not say
		var texts []json.RawMessage
		for _, p := range thoughts {
			texts = append(texts, rows.Read(p.DataJSON).Get("text"))
		}
		embedded.Set("reasoning", texts)
	}
	emptyText(&embedded, blocks)
	rows.EmbedParts(&embedded, slices.Concat(order, thoughts, said, called, seen, rest))
	at := m.Message.CreatedAt
	if later {
		at = max(at, st.At)
	}
	step := e.step(m, sourceAgent, at)
	if st.Model.ModelID != "" {
		step.Set("model_name", st.Model.ModelID)
	}
	step.Set("message", content(blocks))
	if reasoned {
		step.Set("reasoning_content", reasoning)
	}
	if calls != nil {
		step.Set("tool_calls", calls)
	}
	if results != nil {
		step.Set("observation", rows.Of("results", results))
	}
	if metrics := e.metrics(st, m.Message.HiddenAt != nil); metrics != nil {
		step.Set("metrics", metrics)
	}
	if st.Calls > 0 {
		step.Set("llm_call_count", st.Calls)
	}
	if !st.Started {
		embedded.Set("step_start", false)
	}
	e.finish(m, step, nil, embedded, others)
}

// emptyText notes that an empty message is one of an empty text, and not of none.
func emptyText(embedded *rows.Object, blocks []rows.Object) {
	if len(blocks) == 1 && string(content(blocks)) == `""` {
		embedded.Set("empty_text", true)
	}
}

// metrics returns what a step used, nil where that is not known.
func (e *encoder) metrics(st *rows.Step, hidden bool) (metrics rows.Object) {
	var extra rows.Object
	if st.Usage != nil {
		for _, c := range counts {
			n := c.of(*st.Usage)
			if !c.extra {
				metrics.Set(c.key, n)
			} else if n != 0 {
				extra.Set(c.key, n)
			}
		}
	}
	if st.CostUSD != nil {
		metrics.Set("cost_usd", *st.CostUSD)
	}
	if extra != nil {
		metrics.Set("extra", extra)
	}
	if hidden {
		return metrics
	}
	if st.Usage != nil {
		if e.used == nil {
			e.used = new(session.Usage)
		}
		*e.used = e.used.Add(*st.Usage)
	}
	if st.CostUSD != nil {
		if e.costUSD == nil {
			e.costUSD = new(float64)
		}
		*e.costUSD = store.AddCost(*e.costUSD, *st.CostUSD)
	}
	return metrics
}

// isObservation reports whether the data is that of a result without a call, as Decode makes it.
func isObservation(data rows.Object) bool {
	inner := data.Object("data")
	text := inner.Get("content")
	return data.Text("type") == typeObservation && len(data) == 2 && len(inner) == 1 && len(text) > 0 && text[0] == '"'
}
