package formats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// atifDecode reads a trajectory, and after it those of its sub-agents that it has in it. What is not a trajectory is an
// error that names the line or the field.
var atifDecode = rows.Whole("trajectory", func(text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
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
})

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
		id = "atif-" + rows.Digest(string(from.text))[:16]
	case from.parent != "":
		id = cmp.Or(o.Object("extra").Text("session_id"), from.parent+"-"+id)
	}
	b := &atifBuilder{Reporter: rows.Reporter{Report: report}, at: from.at,
		s:       rows.New(id, cmp.Or(o.Object("agent").Text("name"), "unknown")),
		started: make(map[string]atifSource), sessions: make(map[string]string)}
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
		if at, ok := isoTime(rows.Read(string(raw)).Text("timestamp")); ok {
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
	return b.s.Finish()
}

// about keeps what describes the run, for the session, and the catalog of tools, for the first answer.
func (b *atifBuilder) about(o rows.Object) {
	agent := o.Object("agent")
	if model := agent.Text("model_name"); model != "" {
		b.s.Row.ModelJSON = new(string(rows.Raw(session.Model{ModelID: model})))
	}
	kept := rows.Of("schema_version", o.Text("schema_version"))
	if id := o.Text("session_id"); id != "" && id != b.s.Row.ID {
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
	if cost := atifMoney(final.Get("total_cost_usd")); cost != nil && *cost > least && !b.cost {
		b.s.Row.CostUSD = *cost
	}
}

// atifMoney reads a cost in US dollars, nil if there is none.
func atifMoney(raw json.RawMessage) *float64 {
	usd, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || usd < 0 || math.IsInf(usd, 0) {
		return nil
	}
	return &usd
}

// step reads a step. One without a time has that of the step before.
func (b *atifBuilder) step(step rows.Object) {
	at, ok := isoTime(step.Text("timestamp"))
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
	cost := atifMoney(metrics.Get("cost_usd"))
	if cost != nil {
		b.cost, b.s.Row.CostUSD = true, store.AddCost(b.s.Row.CostUSD, *cost)
	}
	return cost
}
