package atif

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
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

// Decode reads the trajectory in r, and after it those of its sub-agents that it has in it. It holds
// all of r in memory. What is not a trajectory is an error that names the line or the field.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		if report == nil {
			report = func(codec.Problem) {}
		}
		text, err := io.ReadAll(r)
		if err != nil {
			yield(nil, fmt.Errorf("read trajectory: %w", err))
			return
		}
		o, err := parse(text, report)
		if err == nil {
			err = check(o)
		}
		if err != nil {
			yield(nil, fmt.Errorf("read trajectory: %w", err))
			return
		}
		decode(o, source{text: text}, report, yield)
	}
}

// source is where a trajectory comes from: a text, or for one of a sub-agent the session that
// started it, with the message of its user and the time.
type source struct {
	text            []byte
	place           string
	parent, message string
	at              int64 // when it was started
}

func decode(o rows.Object, from source, report func(codec.Problem), yield func(*codec.Session, error) bool) bool {
	var b *builder
	s, err := rows.Embedded(func(use bool) (*codec.Session, rows.Object, error) {
		b = newBuilder(o, from, use)
		return b.build(o)
	})
	if err != nil {
		report(codec.Problem{Record: from.place + "extra." + own, Reason: err.Error()})
	}
	for _, p := range b.problems {
		report(p)
	}
	if !yield(s, nil) {
		return false
	}
	for i, raw := range rows.Elements(o.Get("subagent_trajectories")) {
		place := fmt.Sprintf("%ssubagent_trajectories[%d].", from.place, i)
		child, err := rows.Parse(raw)
		if err == nil {
			err = check(child)
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
		if !decode(child, start, report, yield) {
			return false
		}
	}
	return true
}

// parse reads the document.
func parse(text []byte, report func(codec.Problem)) (rows.Object, error) {
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

// check reports what cannot be read as a trajectory at all.
func check(o rows.Object) error {
	major, minor, _ := strings.Cut(strings.TrimPrefix(o.Text("schema_version"), versionPrefix), ".")
	n, err := strconv.Atoi(minor)
	switch {
	case !strings.HasPrefix(o.Text("schema_version"), versionPrefix):
		return fmt.Errorf("schema_version is %.40s: want one such as %q", rows.OrNull(o.Get("schema_version")), version)
	case major != "1" || err != nil || n < 0:
		return fmt.Errorf("schema_version %.40q is not known: convert the file to %s", o.Text("schema_version"), version)
	}
	if raw := o.Get("steps"); len(raw) == 0 || raw[0] != '[' {
		return errors.New("steps is missing: want an array of steps")
	}
	return nil
}

// builder makes a session of a trajectory.
type builder struct {
	s     *rows.Session
	place string
	// use reports that embedded rows are used. err is the first of them that is not valid.
	use      bool
	err      error
	problems []codec.Problem
	prompts  map[string]bool

	at     int64 // of the step before
	turn   *rows.Message
	answer *answer       // of the turn, nil where its row is embedded
	user   *rows.Message // the last one
	total  int64         // tokens, which must not overflow
	usage  bool          // of a step is known
	cost   bool
	last   *answer
	// catalog is the digest of the tools, until a message has it.
	catalog string
	// children are where sub-agents were started, by their ids.
	children map[string]source
}

// answer is what the steps of an assistant message report together.
type answer struct {
	m     *rows.Message
	steps []session.Step
	model string
	calls int64
	cost  *float64
	usage *session.Usage
}

func newBuilder(o rows.Object, from source, use bool) *builder {
	id := cmp.Or(o.Text("trajectory_id"), o.Text("session_id"))
	switch {
	case id == "":
		id = "atif-" + sha(string(from.text))[:16]
	case from.parent != "":
		id = from.parent + "-" + id
	}
	b := &builder{
		s: rows.New(id, cmp.Or(o.Object("agent").Text("name"), "unknown")), place: from.place, use: use,
		prompts: make(map[string]bool), children: make(map[string]source),
	}
	if from.parent != "" {
		b.s.Row.ParentID = new(from.parent)
		if from.message != "" {
			b.s.Row.ParentMessageID = new(from.message)
		}
		b.at = from.at
	}
	return b
}

func (b *builder) problem(place, reason string, args ...any) {
	b.problems = append(b.problems, codec.Problem{Record: b.place + place, Reason: fmt.Sprintf(reason, args...)})
}

// own is what an extra has below our key.
func (b *builder) own(o rows.Object) rows.Object {
	if !b.use {
		return nil
	}
	return o.Object("extra").Object(own)
}

func (b *builder) build(o rows.Object) (*codec.Session, rows.Object, error) {
	embedded := b.own(o)
	b.about(o)
	agent := o.Object("agent")
	b.catalog = b.tools(agent.Get("tool_definitions"), b.own(agent).Text("tool_catalog"))
	steps := rows.Elements(o.Get("steps"))
	for _, raw := range steps { // what comes before the first time, and has none, has that
		if at, ok := timeOf(rows.Read(string(raw))); ok {
			b.at = at
			break
		}
	}
	rewound := rows.Elements(embedded.Get("rewound"))
	hidden := func(after int) {
		for len(rewound) > 0 {
			r := rows.Read(string(rewound[0]))
			if n, _ := strconv.Atoi(string(r.Get("after"))); n > after && after >= 0 {
				return
			}
			b.step(r.Object("step"), "extra."+own+".rewound")
			rewound = rewound[1:]
		}
	}
	for i, raw := range steps {
		hidden(i)
		place := fmt.Sprintf("steps[%d]", i)
		step, err := rows.Parse(raw)
		if err != nil {
			b.problem(place, "is not an object, and is left out")
			continue
		}
		if id := step.Get("step_id"); string(id) != strconv.Itoa(i+1) {
			b.problem(place+".step_id", "is %.40s, want %d: steps are read in the order of the file", rows.OrNull(id), i+1)
		}
		b.step(step, place)
	}
	hidden(-1)
	b.totals(o.Object("final_metrics"))
	return b.s.Finish(), embedded, b.err
}

// about keeps what describes the run, for the session.
func (b *builder) about(o rows.Object) {
	agent := o.Object("agent")
	if model := agent.Text("model_name"); model != "" {
		b.s.Row.ModelJSON = new(string(rows.Raw(session.Model{ModelID: model})))
	}
	kept := rows.Of("schema_version", o.Text("schema_version"))
	if id := o.Text("session_id"); id != "" && id != b.s.Row.ID {
		kept.Set("session_id", id)
	}
	var of rows.Object
	for _, key := range []string{"version", "extra"} {
		if agent.Has(key) {
			of.Set(key, agent.Get(key))
		}
	}
	if of != nil {
		kept.Set("agent", of)
	}
	for _, key := range []string{"notes", "continued_trajectory_ref", "extra"} {
		if o.Has(key) {
			kept.Set(key, o.Get(key))
		}
	}
	b.s.SetMeta("atif", kept)
}

// tools keeps a catalog and returns its digest, which is the one that it has in the messages, if it
// is given. A catalog of such a digest may have been in a shape of its own: that of the functions.
func (b *builder) tools(definitions json.RawMessage, digest string) string {
	all := rows.Elements(definitions)
	if len(all) == 0 {
		return ""
	}
	body := string(definitions)
	for i, raw := range all {
		all[i] = rows.OrNull(rows.Read(string(raw)).Get("function"))
	}
	if bare := string(rows.Raw(all)); digest != "" && sha(bare) == digest {
		body = bare
	}
	return b.blob(store.BlobToolCatalog, body, digest)
}

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// blob keeps a text under a digest, which it returns: its own, unless it has another.
func (b *builder) blob(kind store.BlobKind, body, digest string) string {
	exact := sha(body)
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size || digest != strings.ToLower(digest) {
		digest = exact
	}
	if key := string(kind) + digest; !b.prompts[key] {
		b.prompts[key] = true
		b.s.Blobs = append(b.s.Blobs, store.Blob{Kind: kind, Digest: digest, Body: body, Exact: digest == exact})
	}
	return digest
}

// totals takes the usage and the cost of the run where no step has one.
func (b *builder) totals(final rows.Object) {
	if used := b.counted(final, "total_", "final_metrics"); used != nil && !b.usage && b.last != nil {
		b.last.usage = used
		b.last.finish()
	}
	if cost, ok := money(final.Get("total_cost_usd")); ok && !b.cost {
		b.s.Row.CostUSD = cost
	}
}

// money reads a cost in US dollars.
func money(raw json.RawMessage) (float64, bool) {
	var usd float64
	err := json.Unmarshal(raw, &usd)
	return usd, err == nil && string(raw) != "null" && usd >= 0 && !math.IsInf(usd, 0)
}

// time reads the time of a step; one without a time has that of the step before.
func (b *builder) time(step rows.Object, place string) int64 {
	if !step.Has("timestamp") {
		if b.at > 0 {
			b.s.See(b.at)
		}
		return b.at
	}
	at, ok := timeOf(step)
	if !ok {
		b.problem(place+".timestamp", "is %.60s, which is not a time in ISO 8601: the step has that of the one before",
			rows.OrNull(step.Get("timestamp")))
		return b.at
	}
	b.at = at
	b.s.See(b.at)
	return b.at
}

// timeOf reads the time of a step.
func timeOf(step rows.Object) (milli int64, ok bool) {
	text := step.Text("timestamp")
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil { // Python writes times of its own zone without one
		t, err = time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1))
	}
	return t.UnixMilli(), err == nil && t.Year() >= 1970 && t.Year() <= 9999
}

// step reads a step.
func (b *builder) step(step rows.Object, place string) {
	embedded := b.own(step)
	if embedded.Has("placeholder") {
		return
	}
	at := b.time(step, place)
	if digest := embedded.Text("system_prompt"); digest != "" {
		b.blob(store.BlobSystemPrompt, step.Text("message"), digest)
		return
	}
	from := step.Text("source")
	if !slices.Contains([]string{sourceSystem, sourceUser, sourceAgent}, from) {
		b.problem(place+".source", "is %.40s, want system, user or agent: the step is left out",
			rows.OrNull(step.Get("source")))
		return
	}
	b.tools(embedded.Get("tool_definitions"), embedded.Text("tool_catalog"))
	compacted := from == sourceSystem && step.Object("extra").Object("context_management").Text("type") == "compaction"
	m := b.message(step, embedded.Object("message"), from, compacted, at)
	parts := len(m.Parts())
	defer func() {
		if err := m.RestoreParts(parts, embedded); b.err == nil {
			b.err = err
		}
	}()
	switch {
	case compacted:
		b.compaction(m, step, embedded, at)
		return
	case from == sourceAgent:
		b.agent(m, step, embedded, place, at)
	default:
		b.emptyText(m, embedded, at)
		b.content(m, step.Get("message"), place+".message", at)
		b.results(m, step, nil, place, at)
	}
	for _, raw := range rows.Elements(embedded.Get("parts")) {
		m.Part(rows.Read(string(raw)), at)
	}
}

// message returns the message that the step is of, with its row where that is embedded.
func (b *builder) message(step, row rows.Object, from string, compacted bool, at int64) *rows.Message {
	if from == sourceAgent && row == nil && b.turn != nil {
		return b.turn
	}
	role := map[string]string{sourceUser: session.RoleUser, sourceSystem: session.RoleSystem,
		sourceAgent: session.RoleAssistant}[from]
	if compacted {
		role = session.RoleAssistant
	}
	m := b.s.Message(role, at)
	b.turn, b.answer = nil, nil
	if row != nil {
		if err := m.Restore(row); b.err == nil {
			b.err = err
		}
	} else if compacted {
		m.SetMeta("compaction", true)
	} else if copied(step) {
		m.SetMeta("atif", rows.Of("is_copied_context", true))
	}
	switch from {
	case sourceAgent:
		b.turn = m
		if row == nil {
			b.answer = &answer{m: m}
			b.last = b.answer
		}
	case sourceUser:
		b.user = m
	}
	return m
}

// compaction reads a step that stands for a compaction.
func (b *builder) compaction(m *rows.Message, step, embedded rows.Object, at int64) {
	parts := rows.Elements(embedded.Get("parts"))
	results := rows.Elements(step.Object("observation").Get("results"))
	if parts == nil {
		parts = []json.RawMessage{rows.DataPart(session.TypeCompaction,
			rows.Of("summary", "", "tail_start_id", nil, "auto", false, "summary_tokens", 0)).JSON()}
	}
	for i, raw := range parts {
		data := rows.Read(string(raw))
		summary := step.Text("message")
		if i < len(results) {
			summary = cmp.Or(rows.Read(string(results[i])).Text("content"), summary)
		}
		inner := rows.Of("summary", summary)
		inner = append(inner, data.Object("data").Without("summary")...)
		data.Set("data", inner)
		m.Part(data, at)
	}
}

// content reads a message or a result, and adds its texts and images.
func (b *builder) content(m *rows.Message, raw json.RawMessage, place string, at int64) {
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

// emptyText adds a text that is empty, where one is noted.
func (b *builder) emptyText(m *rows.Message, embedded rows.Object, at int64) {
	if embedded.Has("empty_text") {
		m.Part(rows.TextPart("text", ""), at)
	}
}

// agent reads a model call.
func (b *builder) agent(m *rows.Message, step, embedded rows.Object, place string, at int64) {
	if string(embedded.Get("step_start")) != "false" {
		m.Part(rows.Of("type", "step-start"), at)
	}
	thoughts := rows.Elements(embedded.Get("reasoning"))
	if text, ok := rows.Text(step.Get("reasoning_content")); ok && text != "" && thoughts == nil {
		thoughts = []json.RawMessage{step.Get("reasoning_content")}
	}
	for _, text := range thoughts {
		m.Part(rows.Of("type", "reasoning", "text", text), at)
	}
	b.emptyText(m, embedded, at)
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
		_, named := rows.Text(call.Get("function_name"))
		id, identified := rows.Text(call.Get("tool_call_id"))
		if err != nil || !named || !identified {
			b.problem(fmt.Sprintf("%s.tool_calls[%d]", place, i), "has no tool_call_id and function_name, and is left out")
			continue
		}
		m.Part(b.call(call, outputs[id]), at)
		answered[id] = true
		for _, child := range childIDs(outputs[id]) {
			if b.children[child] = (source{at: at}); b.user != nil {
				b.children[child] = source{message: b.user.Row.ID, at: at}
			}
		}
	}
	b.results(m, step, answered, place, at)
	if a := b.answer; a != nil && step.Text("source") == sourceAgent {
		b.measure(a, step, place, at)
	}
}

// call returns the data of a tool call with its result, which is nil where there is none.
func (b *builder) call(call, result rows.Object) rows.Object {
	c := rows.Call{
		ID: call.Text("tool_call_id"), Name: call.Get("function_name"), Input: call.Get("arguments"), Extra: b.own(call),
	}
	if result != nil {
		c.Result = rows.OrNull(joined(result.Get("content")))
		if ids := childIDs(result); len(ids) > 0 && !result.Has("content") {
			c.Result = rows.Of("session_id", b.s.Row.ID+"-"+ids[0]).JSON()
		}
	}
	return c.Data()
}

// joined is a result's content as one text, where it consists of texts.
func joined(content json.RawMessage) json.RawMessage {
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

// childIDs are those of the trajectories of sub-agents that a result names.
func childIDs(result rows.Object) (ids []string) {
	for _, raw := range rows.Elements(result.Get("subagent_trajectory_ref")) {
		if id := rows.Read(string(raw)).Text("trajectory_id"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// results adds the results of a step that are not those of its calls: late ones of a call before,
// and what the agent saw without having called a tool.
func (b *builder) results(m *rows.Message, step rows.Object, answered map[string]bool, place string, at int64) {
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
			m.Part(rows.DataPart(typeObservation, rows.Of("content", joined(result.Get("content")))), at)
		}
	}
}

// counted reads the tokens of metrics, nil where there are none.
func (b *builder) counted(metrics rows.Object, prefix, place string) *session.Usage {
	const most = 1 << 62
	extra := metrics.Object("extra")
	read := func(o rows.Object, keys ...string) int64 {
		for _, key := range keys {
			if !o.Has(key) {
				continue
			}
			if n, err := strconv.ParseInt(string(o.Get(key)), 10, 64); err == nil && n >= 0 && n < most-b.total {
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
	if completion > most-b.total-prompt {
		completion = 0
	}
	b.total += prompt + completion
	cached := min(prompt, read(metrics, prefix+"cached_tokens"))
	wrote := min(prompt-cached, read(extra, "cache_creation_input_tokens", "cache_write_tokens"))
	thought := min(completion, read(extra, "reasoning_tokens", "reasoning_output_tokens"))
	return &session.Usage{Input: prompt - cached - wrote, CacheRead: cached, CacheWrite: wrote,
		Output: completion - thought, Reasoning: thought}
}

func copied(o rows.Object) bool { return string(o.Get("is_copied_context")) == "true" }

// measure adds what a step reports of its model call. A copied one was counted where it was made.
func (b *builder) measure(a *answer, step rows.Object, place string, at int64) {
	calls := int64(1)
	if n, err := strconv.ParseInt(string(step.Get("llm_call_count")), 10, 32); err == nil && n >= 0 {
		calls = n
	}
	s := session.Step{StartedAt: at}
	model := step.Text("model_name")
	if a.model = cmp.Or(a.model, model); model != "" && model != a.model {
		s.Model = &session.Model{ModelID: model}
	}
	if !copied(step) {
		metrics := step.Object("metrics")
		if s.Usage = b.counted(metrics, "", place+".metrics"); s.Usage != nil {
			b.usage = true
			if a.usage == nil {
				a.usage = new(session.Usage)
			}
			*a.usage = a.usage.Add(*s.Usage)
		}
		if cost, ok := money(metrics.Get("cost_usd")); ok {
			b.cost = true
			if a.cost == nil {
				a.cost = new(float64)
			}
			*a.cost = store.AddCost(*a.cost, cost)
			b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, cost)
		}
	}
	a.steps, a.calls = append(a.steps, s), a.calls+calls
	if b.catalog != "" {
		a.m.SetTrace("tool_catalog_digest", b.catalog)
		b.catalog = ""
	}
	a.finish()
}

// finish writes the metadata of the message.
func (a *answer) finish() {
	if a.model != "" {
		a.m.SetMeta("model", session.Model{ModelID: a.model})
	}
	if a.usage != nil {
		a.m.SetMeta("usage", *a.usage)
	}
	if a.calls > 0 {
		a.m.SetTrace("model_calls", a.calls)
	}
	a.m.SetTrace("steps", a.steps)
	if a.cost != nil {
		a.m.SetTrace("cost_usd", *a.cost)
	}
}
