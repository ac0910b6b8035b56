package formats

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// atifDecode reads a trajectory, and after it those of its sub-agents that it has in it. What is not a trajectory is an
// error that names the line or the field.
var atifDecode = rows.Whole("trajectory", func(text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	o, err := atifParse(text, report)
	if err == nil {
		err = atifCheck(o)
	}
	if err != nil {
		return nil, err
	}
	return atifSessions(o, atifSource{text: text}, report), nil
})

// atifSource is where a trajectory comes from: a text, or for one of a sub-agent the session that
// started it, with the message of its user and the time.
type atifSource struct {
	text            []byte
	place           string
	parent, message string
	at              int64 // when it was started
}

func atifSessions(o rows.Object, from atifSource, report func(codec.Problem)) []*codec.Session {
	b := atifNewBuilder(o, from, report)
	s := b.build(o)
	all := []*codec.Session{s}
	for i, raw := range rows.Elements(o.Get("subagent_trajectories")) {
		place := fmt.Sprintf("%ssubagent_trajectories[%d].", from.place, i)
		child, err := rows.Parse(raw)
		if err == nil {
			err = atifCheck(child)
		}
		if err != nil {
			report(codec.Problem{Record: strings.TrimSuffix(place, "."),
				Reason: "is not a trajectory, and is left out: " + err.Error()})
			continue
		}
		start, started := b.children[child.Text("trajectory_id")]
		if !started {
			start.at = s.Session.CreatedAt
		}
		start.text, start.place, start.parent = raw, place, s.Session.ID
		all = append(all, atifSessions(child, start, report)...)
	}
	return all
}

// atifParse reads the document.
func atifParse(text []byte, report func(codec.Problem)) (rows.Object, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		report(codec.Problem{Reason: "bytes that are not UTF-8 were replaced by U+FFFD"})
	}
	text, _ = rows.ReplaceNaN(text, func(string) string { return "null" })
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		line := 1 + bytes.Count(text, []byte("\n"))
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			line = 1 + bytes.Count(text[:min(int(e.Offset), len(text))], []byte("\n"))
		}
		return nil, fmt.Errorf("line %d: %w: copy or export the file again", line, err)
	}
	o, err := rows.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("line 1: %w: a trajectory is one JSON object", err)
	}
	return o, nil
}

// atifCheck reports what cannot be read as a trajectory at all.
func atifCheck(o rows.Object) error {
	major, minor, _ := strings.Cut(strings.TrimPrefix(o.Text("schema_version"), atifVersionPrefix), ".")
	n, err := strconv.Atoi(minor)
	switch {
	case !strings.HasPrefix(o.Text("schema_version"), atifVersionPrefix):
		return fmt.Errorf("schema_version is %.40s: want one such as %q", rows.OrNull(o.Get("schema_version")), atifVersion)
	case major != "1" || err != nil || n < 0:
		return fmt.Errorf("schema_version %.40q is not known: convert the file to %s",
			o.Text("schema_version"), atifVersion)
	}
	if raw := o.Get("steps"); len(raw) == 0 || raw[0] != '[' {
		return errors.New("steps is missing: want an array of steps")
	}
	return nil
}

// atifBuilder makes a session of a trajectory.
type atifBuilder struct {
	s      *rows.Session
	place  string
	report func(codec.Problem)

	at      int64 // of the step before
	turn    *rows.Message
	answers []rows.Answer // the last one is of the turn
	user    *rows.Message // the last one
	total   int64         // tokens, which must not overflow
	cost    bool
	// catalog is the digest of the tools, until a message has it.
	catalog string
	// children are where sub-agents were started, by their ids.
	children map[string]atifSource
	sessions map[string]string // of sub-agents that are in the trajectory, by their ids
}

// atifChildID is the id of the session of a sub-agent.
func atifChildID(parent string, o rows.Object) string {
	return cmp.Or(o.Object("extra").Text("session_id"), parent+"-"+o.Text("trajectory_id"))
}

func atifNewBuilder(o rows.Object, from atifSource, report func(codec.Problem)) *atifBuilder {
	id := cmp.Or(o.Text("trajectory_id"), o.Text("session_id"))
	switch {
	case id == "":
		id = "atif-" + atifSha(string(from.text))[:16]
	case from.parent != "":
		id = cmp.Or(o.Object("extra").Text("session_id"), from.parent+"-"+id)
	}
	b := &atifBuilder{
		s: rows.New(id, cmp.Or(o.Object("agent").Text("name"), "unknown")), place: from.place, report: report,
		children: make(map[string]atifSource), sessions: make(map[string]string),
	}
	if from.parent != "" {
		b.s.Row.ParentID = new(from.parent)
		rows.SetText(&b.s.Row.ParentMessageID, from.message)
		b.at = from.at
	}
	return b
}

func (b *atifBuilder) problem(place, reason string, args ...any) {
	b.report(codec.Problem{Record: b.place + place, Reason: fmt.Sprintf(reason, args...)})
}

func (b *atifBuilder) build(o rows.Object) *codec.Session {
	for _, raw := range rows.Elements(o.Get("subagent_trajectories")) {
		child := rows.Read(string(raw))
		b.sessions[child.Text("trajectory_id")] = atifChildID(b.s.Row.ID, child)
	}
	b.about(o)
	b.tools(o.Object("agent").Get("tool_definitions"))
	steps := rows.Elements(o.Get("steps"))
	for _, raw := range steps { // what comes before the first time, and has none, has that
		if at, ok := atifTimeOf(rows.Read(string(raw))); ok {
			b.at = at
			break
		}
	}
	for i, raw := range steps {
		place := fmt.Sprintf("steps[%d]", i)
		step, err := rows.Parse(raw)
		if err != nil {
			b.problem(place, "is not an object, and is left out")
			continue
		}
		if id := step.Get("step_id"); string(id) != strconv.Itoa(i+1) {
			b.problem(place+".step_id", "is %.40s, want %d: steps are read in the order of the file",
				rows.OrNull(id), i+1)
		}
		b.step(step, place)
	}
	b.totals(o.Object("final_metrics"))
	for i := range b.answers {
		b.answers[i].Finish()
	}
	return b.s.Finish()
}

// about keeps what describes the run, for the session.
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
}

// tools keeps the catalog of tools, for the first answer.
func (b *atifBuilder) tools(definitions json.RawMessage) {
	if len(rows.Elements(definitions)) > 0 {
		b.catalog = atifSha(string(definitions))
		b.s.Blobs = append(b.s.Blobs, store.Blob{Kind: store.BlobToolCatalog, Digest: b.catalog,
			Body: string(definitions), Exact: true})
	}
}

func atifSha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// totals takes the usage and the cost of the run where no step has one.
func (b *atifBuilder) totals(final rows.Object) {
	if used := b.counted(final, "total_", "final_metrics"); used != nil && len(b.answers) > 0 &&
		!slices.ContainsFunc(b.answers, func(a rows.Answer) bool { return a.Usage != nil }) {
		b.answers[len(b.answers)-1].Usage = used
	}
	if cost, ok := atifMoney(final.Get("total_cost_usd")); ok && !b.cost {
		b.s.Row.CostUSD = cost
	}
}

// atifMoney reads a cost in US dollars.
func atifMoney(raw json.RawMessage) (float64, bool) {
	var usd float64
	err := json.Unmarshal(raw, &usd)
	return usd, err == nil && string(raw) != "null" && usd >= 0 && !math.IsInf(usd, 0)
}

// time reads the time of a step; one without a time has that of the step before.
func (b *atifBuilder) time(step rows.Object, place string) int64 {
	if !step.Has("timestamp") {
		if b.at > 0 {
			b.s.See(b.at)
		}
		return b.at
	}
	at, ok := atifTimeOf(step)
	if !ok {
		b.problem(place+".timestamp", "is %.60s, which is not a time in ISO 8601: the step has that of the one before",
			rows.OrNull(step.Get("timestamp")))
		return b.at
	}
	b.at = at
	b.s.See(b.at)
	return b.at
}

// atifTimeOf reads the time of a step.
func atifTimeOf(step rows.Object) (milli int64, ok bool) {
	text := step.Text("timestamp")
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil { // Python writes times of its own zone without one
		t, err = time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1))
	}
	return t.UnixMilli(), err == nil && t.Year() >= 1970 && t.Year() <= 9999
}

// step reads a step.
func (b *atifBuilder) step(step rows.Object, place string) {
	at := b.time(step, place)
	from := step.Text("source")
	management := step.Object("extra").Object("context_management")
	switch {
	case from == atifSourceSystem && management.Text("type") == "compaction":
		b.compaction(step, place, at)
	case from == atifSourceSystem && string(step.Get("message")) == `""` && !step.Has("timestamp"):
		// a trajectory must have a step, and this one has nothing
	case from == atifSourceAgent:
		if b.turn == nil {
			b.turn = b.message(step, session.RoleAssistant, at)
			b.answers = append(b.answers, rows.Answer{Message: b.turn})
		}
		b.agent(b.turn, step, place, at)
	case from == atifSourceUser || from == atifSourceSystem:
		m := b.message(step, from, at)
		if from == atifSourceUser {
			b.user = m
		}
		b.content(m, step.Get("message"), place+".message", at)
		b.results(m, step, nil, place, at)
	default:
		b.problem(place+".source", "is %.40s, want system, user or agent: the step is left out",
			rows.OrNull(step.Get("source")))
	}
}

// message begins a message with a step.
func (b *atifBuilder) message(step rows.Object, role string, at int64) *rows.Message {
	m := b.s.Message(role, at)
	b.turn = nil
	if atifCopied(step) {
		m.SetMeta("atif", rows.Of("is_copied_context", true))
	}
	return m
}

// compaction reads a step of a compaction. Its summaries are the results, or else the message.
func (b *atifBuilder) compaction(step rows.Object, place string, at int64) {
	m := b.message(step, session.RoleAssistant, at)
	m.SetMeta("compaction", true)
	results := rows.Elements(step.Object("observation").Get("results"))
	if results == nil {
		results = []json.RawMessage{nil}
	}
	for _, raw := range results {
		summary := cmp.Or(rows.Read(string(raw)).Text("content"), step.Text("message"))
		m.Part(rows.DataPart(session.TypeCompaction,
			rows.Of("summary", summary, "tail_start_id", nil, "auto", false, "summary_tokens", 0)), at)
	}
	metrics := step.Object("extra").Object("metrics")
	m.AddTrace(rows.NonEmpty("usage", b.counted(metrics, "", place+".extra.metrics"), "cost_usd", b.costOf(metrics)))
}

// content reads a message or a result, and adds its texts and images.
func (b *atifBuilder) content(m *rows.Message, raw json.RawMessage, place string, at int64) {
	if text, ok := rows.Text(raw); ok {
		if text != "" {
			m.Part(rows.Of("type", "text", "text", raw), at)
		}
		return
	}
	if len(raw) == 0 || raw[0] != '[' {
		b.problem(place, "is %.40s, want a text or an array of parts: it is left out", rows.OrNull(raw))
		return
	}
	for i, item := range rows.Elements(raw) {
		part := rows.Read(string(item))
		source := part.Object("source")
		_, isText := rows.Text(part.Get("text"))
		_, isImage := rows.Text(source.Get("path"))
		switch {
		case part.Text("type") == "text" && isText:
			m.Part(rows.Of("type", "text", "text", part.Get("text")), at)
		case part.Text("type") != "text" && isImage: // version 1.8 has audio, too
			m.Part(rows.Of("type", "file", "mediaType", source.Text("media_type"), "url", source.Get("path")), at)
		default:
			b.problem(fmt.Sprintf("%s[%d]", place, i), "is neither a text nor an image, and is left out")
		}
	}
}

// agent reads a model call.
func (b *atifBuilder) agent(m *rows.Message, step rows.Object, place string, at int64) {
	m.Part(rows.Of("type", "step-start"), at)
	if text := step.Text("reasoning_content"); text != "" {
		m.Part(rows.TextPart("reasoning", text), at)
	}
	b.content(m, step.Get("message"), place+".message", at)
	outputs := make(map[string]rows.Object)
	for _, raw := range rows.Elements(step.Object("observation").Get("results")) {
		result := rows.Read(string(raw))
		if id := result.Text("source_call_id"); result.Has("source_call_id") && outputs[id] == nil {
			outputs[id] = result
		}
	}
	answered := make(map[string]bool)
	for i, raw := range rows.Elements(step.Get("tool_calls")) {
		call, err := rows.Parse(raw)
		name, named := rows.Text(call.Get("function_name"))
		id, identified := rows.Text(call.Get("tool_call_id"))
		if err != nil || !named || !identified {
			b.problem(fmt.Sprintf("%s.tool_calls[%d]", place, i),
				"has no tool_call_id and function_name, and is left out")
			continue
		}
		answered[id] = true
		p := m.Call(id, name, call.Get("arguments"), at)
		if result := outputs[id]; result != nil {
			b.result(p, result)
		}
		for _, child := range atifChildIDs(outputs[id]) {
			if b.children[child] = (atifSource{at: at}); b.user != nil {
				b.children[child] = atifSource{message: b.user.Row.ID, at: at}
			}
		}
	}
	b.results(m, step, answered, place, at)
	b.measure(&b.answers[len(b.answers)-1], step, place, at)
}

// result gives a call its result: the session of a sub-agent, where it is no more.
func (b *atifBuilder) result(p *rows.Part, result rows.Object) {
	var child string
	if ids := atifChildIDs(result); len(ids) > 0 {
		child = cmp.Or(b.sessions[ids[0]], b.s.Row.ID+"-"+ids[0])
	}
	content := atifJoined(result.Get("content"))
	if child != "" && content == nil {
		content = rows.Of("session_id", child).JSON()
	} else if child != "" {
		data := p.Data()
		data.SetToolTrace("child_session_id", child)
		p.Set(data)
	}
	p.Result(content, result.Object("extra").True("is_error"))
}

// atifJoined is a result's content as one text, where it consists of texts.
func atifJoined(content json.RawMessage) json.RawMessage {
	var all strings.Builder
	for _, raw := range rows.Elements(content) {
		text, ok := rows.Text(rows.Read(string(raw)).Get("text"))
		if !ok {
			return content
		}
		all.WriteString(text)
	}
	if len(content) > 0 && content[0] == '[' {
		return rows.Raw(all.String())
	}
	return content
}

// atifChildIDs are those of the trajectories of sub-agents that a result names.
func atifChildIDs(result rows.Object) (ids []string) {
	for _, raw := range rows.Elements(result.Get("subagent_trajectory_ref")) {
		if id := rows.Read(string(raw)).Text("trajectory_id"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// results adds the results of a step that are not those of its calls: late ones of a call before,
// and what the agent saw without having called a tool.
func (b *atifBuilder) results(m *rows.Message, step rows.Object, answered map[string]bool, place string, at int64) {
	for i, raw := range rows.Elements(step.Object("observation").Get("results")) {
		result := rows.Read(string(raw))
		id := result.Text("source_call_id")
		if result.Has("source_call_id") && answered[id] {
			continue
		}
		if result.Has("source_call_id") {
			b.problem(fmt.Sprintf("%s.observation.results[%d].source_call_id", place, i),
				"is %.60q, which no call of the step has: it is kept as a result without a call", id)
		}
		if result.Has("content") {
			m.Part(rows.DataPart(atifTypeObservation, rows.Of("content", atifJoined(result.Get("content")))), at)
		}
	}
}

// counted reads the tokens of metrics, nil if there are none.
func (b *atifBuilder) counted(metrics rows.Object, prefix, place string) *session.Usage {
	const maximum = 1 << 62
	extra := metrics.Object("extra")
	read := func(o rows.Object, keys ...string) int64 {
		for _, key := range keys {
			if !o.Has(key) {
				continue
			}
			if n, err := strconv.ParseInt(string(o.Get(key)), 10, 64); err == nil && n >= 0 && n < maximum-b.total {
				return n
			}
			b.problem(place+"."+key, "is %.40s, want a count of tokens: it is left out", o.Get(key))
		}
		return 0
	}
	if !metrics.Has(prefix+"prompt_tokens") && !metrics.Has(prefix+"completion_tokens") {
		return nil
	}
	prompt, completion := read(metrics, prefix+"prompt_tokens"), read(metrics, prefix+"completion_tokens")
	if completion > maximum-b.total-prompt {
		completion = 0
	}
	b.total += prompt + completion
	cached := min(prompt, read(metrics, prefix+"cached_tokens"))
	wrote := min(prompt-cached, read(extra, "cache_creation_input_tokens", "cache_write_tokens"))
	thought := min(completion, read(extra, "reasoning_tokens", "reasoning_output_tokens"))
	return &session.Usage{Input: prompt - cached - wrote, CacheRead: cached, CacheWrite: wrote,
		Output: completion - thought, Reasoning: thought}
}

func atifCopied(o rows.Object) bool { return o.True("is_copied_context") }

// measure adds what a step reports of its model call. A copied one was counted where it was made.
func (b *atifBuilder) measure(a *rows.Answer, step rows.Object, place string, at int64) {
	s := session.Step{StartedAt: at}
	var cost *float64
	if !atifCopied(step) {
		metrics := step.Object("metrics")
		s.Usage = b.counted(metrics, "", place+".metrics")
		cost = b.costOf(metrics)
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
	cost, ok := atifMoney(metrics.Get("cost_usd"))
	if !ok {
		return nil
	}
	b.cost, b.s.Row.CostUSD = true, store.AddCost(b.s.Row.CostUSD, cost)
	return &cost
}
