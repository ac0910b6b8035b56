// Package transcripts reads what coding agents keep of their own sessions, in the places that docs/transcripts.md
// lists.
//
// None of these formats is specified; all are read as they are found, by what their records have in common over the
// versions. Records that report nothing of the conversation are passed over, such as snapshots of files and states of
// the user's interface.
//
// A reader is a switch over the records of its program that calls a [builder]: message, step, text, call, result,
// compaction. A user's message opens a turn, and what the agent did until the next is one assistant message. What is
// kept only grows, and the ids of rows are the program's own, or follow from the session's id and their order:
// importing again what has grown adds to the session. What the user left by going back is hidden where the
// records show it, and keeps its place among the messages.
//
// What cannot be read is reported and left out. An error is yielded where reading fails, or nothing is of the program.
package transcripts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/redact"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/spans"
)

// builder makes a session of records in the order in which they come. What is empty, such as a model without an id,
// changes nothing.
type builder struct {
	*source
	s *rows.Session
	// Prompt and Catalog are the digests of what the model is given from here on.
	Prompt, Catalog string
	// About is the program whose transcript it is, and which of its sub-agents.
	About session.TranscriptTrace
	At    int64 // of the record before
	// Model is that of the last call.
	Model session.Model
	// Cost is what the source reports for the whole session.
	Cost  *float64
	Title string // as it was given
	Asked string // what the user asked first
	Fork  forking
	// turn is the assistant message of the turn, nil before the agent answers, and touched the message of the record
	// that was read last.
	turn, touched *message
	messages      []*message
	calls         map[string]*call
	children      []*builder
}

// forking is where a fork ends that copies the records of its parent, and its own records begin.
type forking struct {
	// Copying reports that the records are copies, so far.
	Copying bool
	// CopiedTo is the time of the last message that is a copy, OwnAt that of the first record that is not, 0 before it.
	CopiedTo, OwnAt int64
}

// message is a message with what takes more than one record to know of it.
type message struct {
	rows.Answer
	Steps []*step
}

// step is a model call of a message. Its records share the id.
type step struct {
	session.Step
	in     *message
	id     string
	called bool // a tool
}

// call is a tool call. One that failed does, whatever its result reports.
type call struct {
	*rows.Part
	in     *message
	failed bool
}

func newBuilder(from *source, id, agent string) *builder {
	return &builder{source: from, s: rows.New(id, agent), About: session.TranscriptTrace{Transcript: agent},
		calls: make(map[string]*call)}
}

// child is the builder for a sub-agent of the session, whose id is unique in it. call is the tool call that started
// it, "" if it is not known.
func (b *builder) child(sub, call string) *builder {
	for _, c := range b.children {
		if c.About.SubagentID == sub {
			c.About.CallID = cmp.Or(call, c.About.CallID)
			return c
		}
	}
	c := newBuilder(b.source, b.s.Row.ID+"-"+sub, b.About.Transcript)
	c.s.Row.ParentID, c.s.Row.WorkspaceRoot = new(b.s.Row.ID), b.s.Row.WorkspaceRoot
	c.About.SubagentOf, c.About.SubagentID, c.About.CallID = b.s.Row.ID, sub, call
	b.children = append(b.children, c)
	return c
}

// see takes the time of a record; one without a time has that of the one before.
func (b *builder) see(at int64) int64 {
	if at > 0 {
		b.At = at
	}
	if b.About.Forked && !b.Fork.Copying {
		b.At = max(b.At, b.Fork.CopiedTo+1)
		b.Fork.OwnAt = cmp.Or(b.Fork.OwnAt, b.At)
	}
	if b.At > 0 {
		b.s.See(b.At)
	}
	return b.At
}

// until notes a time until which the session went on, 0 for none.
func (b *builder) until(at int64) {
	if at > 0 {
		b.s.See(at)
	}
}

// changed notes when a session changed last, of which the messages have no times of their
// own: any of them may have, and the later version of a row counts.
func (b *builder) changed(at int64) {
	b.until(at)
	for _, m := range b.messages {
		for _, p := range m.Parts() {
			p.Touch(at)
		}
		m.Touch(at)
	}
}

// workspace and mode set columns of the session.
func (b *builder) workspace(dir string) { rows.SetText(&b.s.Row.WorkspaceRoot, dir) }
func (b *builder) mode(mode string)     { rows.SetText(&b.s.Row.Mode, mode) }

// archived notes when the session was put away, 0 for never.
func (b *builder) archived(at int64) {
	if at > 0 {
		b.s.Row.ArchivedAt = new(at)
	}
}

// parent notes the session that this one is below, unless the id is its own.
func (b *builder) parent(id string) {
	if id != b.s.Row.ID {
		rows.SetText(&b.s.Row.ParentID, id)
	}
}

// copies notes that the next record is a copy of one of the session from which this one was forked.
func (b *builder) copies(parent string) {
	b.parent(parent)
	if b.s.Row.ParentID != nil {
		b.About.Forked, b.Fork = true, forking{Copying: true}
	}
}

// owns notes that the next record is not a copy.
func (b *builder) owns() {
	if b.Fork.Copying {
		b.Fork = forking{CopiedTo: b.s.LastAt()}
		b.end()
	}
}

// row adds a message to the session.
func (b *builder) row(role string, at int64) *message {
	m := &message{Answer: rows.Answer{Message: b.s.Message(role, at)}}
	b.messages = append(b.messages, m)
	return m
}

// message adds a message that is not part of a turn's answer, and ends the turn
// before it. One in the user's name that has nothing of the user's is a system message. Without parts there is none.
func (b *builder) message(role string, parts ...rows.Object) *message {
	if len(parts) == 0 {
		return nil
	}
	b.end()
	if role == session.RoleUser {
		if split, own := spoken(parts); own {
			parts = split
		} else {
			role = session.RoleSystem
		}
	}
	b.touched = b.row(role, b.At)
	for _, p := range parts {
		b.touched.Part(p, b.touched.Row.CreatedAt)
		if text := p.Text("text"); role == session.RoleUser && b.Asked == "" {
			b.Asked = text
		}
	}
	return b.touched
}

// notice adds a text that the program shows, as a system message.
func (b *builder) notice(text string) *message {
	return b.message(session.RoleSystem, rows.TextPart("text", text))
}

// end ends the turn.
func (b *builder) end() { b.turn = nil }

// isAsked reports whether the last message is the user's.
func (b *builder) isAsked() bool {
	n := len(b.messages)
	return n > 0 && b.messages[n-1].Row.Role == session.RoleUser
}

// ended notes how the turn ended, unless more of it follows.
func (b *builder) ended(reason, text string) {
	if b.turn != nil {
		b.turn.End, b.turn.Error = reason, text
	}
}

// answered notes that the turn is finished, unless its last model call called a tool.
func (b *builder) answered() {
	if !b.hasCalled() {
		b.ended("finish", "")
	}
}

// hasCalled reports whether the last model call of the turn called a tool.
func (b *builder) hasCalled() bool {
	return b.turn != nil && len(b.turn.Steps) > 0 && b.turn.Steps[len(b.turn.Steps)-1].called
}

// fails ends the turn with an error. One that failed before the model said anything has an answer that consists of
// the error: a message has at least one part.
func (b *builder) fails(text string) {
	if b.turn == nil {
		b.part(rows.DataPart(session.TypeError, rows.Of("text", text)))
	}
	b.ended("error", text)
}

// named notes the ids that the source gives a message, nil for none.
func (m *message) named(source, turn, trace string) {
	if m != nil {
		m.AddTrace(rows.NonEmpty("source_id", source, "turn_id", turn, "trace_id", trace))
	}
}

// took notes how long the turn took.
func (b *builder) took(ms int64) {
	if b.turn != nil && ms > 0 {
		b.turn.SetTrace("duration_ms", ms)
	}
}

// hide hides a message that the user left by going back, at a time.
func (m *message) hide(at int64) {
	if m.Row.HiddenAt == nil {
		m.Row.HiddenAt = new(max(at, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
}

// hide hides the messages from one on, as the user went back, and ends the turn.
func (b *builder) hide(from int) {
	for _, m := range b.messages[from:] {
		m.hide(b.At)
	}
	b.end()
}

// undo hides the last prompts of the user with what followed, and ends the turn.
func (b *builder) undo(prompts int64) {
	for _, m := range slices.Backward(b.messages) {
		if prompts > 0 && m.Row.HiddenAt == nil && m.Row.Role != session.RoleSystem {
			if m.hide(b.At); m.Row.Role == session.RoleUser {
				prompts--
			}
		}
	}
	b.end()
}

// part adds a part to the turn's assistant message.
func (b *builder) part(data rows.Object) *rows.Part {
	if b.turn == nil {
		b.turn = b.row(session.RoleAssistant, b.At)
	}
	b.turn.Touch(b.At)
	b.touched, b.turn.End, b.turn.Error = b.turn, "", ""
	return b.turn.Part(data, b.At)
}

// add adds parts to the turn's assistant message.
func (b *builder) add(parts ...rows.Object) {
	for _, p := range parts {
		b.part(p)
	}
}

// text adds a text or reasoning part.
func (b *builder) text(kind, text string) {
	if text != "" {
		b.part(rows.TextPart(kind, text))
	}
}

// step begins a model call of the turn.
func (b *builder) step(id string) *step {
	b.part(rows.Of("type", "step-start"))
	b.turn.AddMeta(rows.NonEmpty("system_prompt_digest", b.Prompt))
	b.turn.AddTrace(rows.NonEmpty("tool_catalog_digest", b.Catalog))
	s := b.turn.newStep(id)
	s.StartedAt = b.At
	return s
}

// response is a step of which the id is that of the response.
func (b *builder) response(id string) *step {
	s := b.step(id)
	s.ResponseID = id
	return s
}

// newStep adds a model call of which the message has no parts.
func (m *message) newStep(id string) *step {
	s := &step{in: m, id: id}
	m.Steps = append(m.Steps, s)
	return s
}

// stepOf returns the model call of an id, which begins where it is not known.
func (m *message) stepOf(id string) *step {
	if s := m.find(id); s != nil {
		return s
	}
	return m.newStep(id)
}

func (m *message) find(id string) *step {
	for _, s := range slices.Backward(m.Steps) {
		if s.id == id {
			return s
		}
	}
	return nil
}

// modelUse is what a source reports of a model call: the time, the model if it is another than that of the
// message, what it used, and the cost.
type modelUse struct {
	at    int64
	model session.Model
	usage session.Usage
	cost  *float64
}

// count notes what a model call used. basis states how the source counts, see [semconv.BasisInclusive].
func (s *step) count(u modelUse, basis string) {
	s.in.SetTrace("usage_basis", basis)
	s.Usage = &u.usage
	s.ran(u.model)
	s.in.paid(u.cost)
}

// ran notes the model of the call.
func (s *step) ran(m session.Model) {
	if m.ModelID != "" {
		s.Model = &m
	}
}

// used is what a step used, as far as it is known.
func (s *step) used() session.Usage {
	if s.Usage == nil {
		return session.Usage{}
	}
	return *s.Usage
}

// paid adds what the source reports that a part of the message cost, nil for nothing.
func (m *message) paid(usd *float64) { rows.AddCost(&m.CostUSD, usd) }

// model notes the model of the turn, which is the session's too.
func (b *builder) model(provider, id string) {
	b.setModel(session.Model{ProviderID: provider, ModelID: id})
}

func (b *builder) setModel(m session.Model) {
	if m.ModelID == "" {
		return
	}
	b.Model = m
	if b.turn == nil {
		return
	}
	b.turn.Model = m
	if n := len(b.turn.Steps); n > 0 && b.turn.Steps[n-1].Model == nil {
		b.turn.Steps[n-1].Model = &m
	}
}

// call adds a tool call. One without an input has an empty object.
func (b *builder) call(name, id string, input json.RawMessage) *call {
	if id == "" {
		id = fmt.Sprintf("call_%d", len(b.calls)+1)
	}
	o := rows.ToolPart(cmp.Or(name, "unknown"), id, session.StateInputAvailable)
	o.Set("input", orEmpty(input))
	c := &call{Part: b.part(o), in: b.turn}
	if n := len(b.turn.Steps); n > 0 {
		b.turn.Steps[n-1].called = true
	}
	b.calls[id] = c
	return c
}

// called reports whether there is a call with the id.
func (b *builder) called(id string) bool { return b.calls[id] != nil }

// settle gives a call its outcome, and reports whether there is one that waits for it.
func (b *builder) settle(id string, output json.RawMessage, failed bool) bool {
	c := b.calls[id]
	if c == nil || c.Data().Text("state") != session.StateInputAvailable {
		return false
	}
	c.replace(output, failed || c.failed, "state") // it comes after the input, beside the output
	c.Touch(b.At)
	b.touched = c.in
	return true
}

// replace sets the result in the place of what the part has.
func (c *call) replace(output json.RawMessage, failed bool, keys ...string) {
	c.Set(c.Data().Without(keys...))
	c.Result(output, failed)
}

// result is settle with a report of a result that no call waits for.
func (b *builder) result(id string, output json.RawMessage, failed bool) bool {
	done := b.settle(id, output, failed)
	if !done {
		b.Problem("result of call %s, which is not pending: left out", id)
	}
	return done
}

// fail notes that a call failed or was denied, of which there is the result or will be.
func (b *builder) fail(id string, denied bool) {
	c := b.calls[id]
	if c == nil {
		return
	}
	if denied {
		b.measure(id, "denied", true)
	}
	if c.failed = true; c.Data().Text("state") == session.StateOutputAvailable {
		c.replace(c.Data().Get("output"), true, "state", "output")
		c.Touch(b.At)
	}
}

// deny gives a call the state of one that a person refused for a reason, which is its result.
func (c *call) deny(reason string, at int64) {
	o := c.Data()
	o.Set("state", session.StateOutputDenied)
	o.Set("approval", map[string]any{"id": *c.Row.ToolCallID, "approved": false, "reason": reason})
	c.Set(o)
	c.Touch(at)
}

// measure notes a key of what the AI SDK's tool part has no field for; see [session.ToolTrace].
func (b *builder) measure(id, key string, v any) {
	if c := b.calls[id]; c != nil && v != "" && v != false {
		c.SetToolTrace(key, v)
	}
}

// lasted notes how long a call took, 0 if it is not known.
func (b *builder) lasted(id string, ms int64) {
	if ms > 0 {
		b.measure(id, "duration_ms", ms)
	}
}

// decide notes how the permission for a call was decided. What the decision has of the call is filled in.
func (b *builder) decide(id string, d store.Decision) {
	c := b.calls[id]
	if c == nil {
		return
	}
	d.SessionID, d.MessageID, d.PartID, d.ToolCallID = b.s.Row.ID, c.Row.MessageID, c.Row.ID, id
	d.ToolID, d.DecidedAt = strings.TrimPrefix(c.Row.Type, "tool-"), cmp.Or(d.DecidedAt, b.At)
	d.ID = cmp.Or(d.ID, spans.DeriveID(spans.PrefixPermission, d.DecidedAt, d.SessionID, d.PartID, id))
	b.s.Decisions = append(b.s.Decisions, d)
}

// judged notes how a person decided on a call: the reply is once or always, or reject for a reason, or "" for none.
func (b *builder) judged(id, reply, reason string) {
	d := store.Decision{Action: "ask", Source: "user", Outcome: "allowed", Reply: reply}
	if reply == "reject" {
		d.Outcome, d.Reason = "denied", reason
		b.fail(id, true)
	}
	if reply != "" {
		b.decide(id, d)
	}
}

// denied notes that a call was not allowed by a rule, for a reason.
func (b *builder) denied(id, reason string) {
	b.fail(id, true)
	b.decide(id, store.Decision{Action: "deny", Outcome: "denied", Reason: reason})
}

// compacted is what a source reports of a compaction.
type compacted struct {
	summary string
	auto    bool
	tail    *string // the id of the first message that the model still sees, nil for none
	// before and after are the sizes of the model's context in tokens.
	before, after int64
	durationMS    int64
	// usage, model and cost are those of the model call that wrote the summary, as far as the source reports them.
	usage *session.Usage
	model session.Model
	cost  *float64
}

// compaction adds the mark from which the context begins again.
func (b *builder) compaction(c compacted) *message {
	m := b.message(session.RoleAssistant, c.part())
	m.SetMeta("compaction", true)
	m.AddMeta(rows.NonEmpty("usage", session.Usage{Input: c.after}))
	trigger := "manual"
	if c.auto {
		trigger = "auto"
	}
	m.SetMeta("agenttrace", rows.NonEmpty("context_tokens_before", c.before, "context_tokens_after", c.after,
		"duration_ms", c.durationMS, "trigger", trigger, "usage", c.usage))
	if c.model.ModelID != "" {
		m.SetMeta("model", c.model)
	}
	m.paid(c.cost)
	return m
}

func (c *compacted) part() rows.Object {
	return rows.DataPart(session.TypeCompaction, rows.Of("summary", c.summary, "tail_start_id", c.tail, "auto", c.auto,
		"summary_tokens", c.after))
}

// withdraw removes the turn's last step, which was not part of the turn, and returns
// its usage, nil where it is not known. A message that is empty then goes too.
func (b *builder) withdraw() (usage *session.Usage) {
	parts := b.turn.Parts()
	from := len(parts) - 1
	for from > 0 && parts[from].Row.Type != "step-start" {
		from--
	}
	if n := len(b.turn.Steps); n > 0 {
		usage, b.turn.Steps = b.turn.Steps[n-1].Usage, b.turn.Steps[:n-1]
	}
	if b.turn.Cut(from); from == 0 {
		b.messages = slices.DeleteFunc(b.messages, func(m *message) bool { return m == b.turn })
		b.end()
	}
	return usage
}

// systemPrompt and toolCatalog note what the model is given from here on.
func (b *builder) systemPrompt(text string) {
	if text != "" {
		b.Prompt = b.s.Blob(store.BlobSystemPrompt, text, true)
	}
}

func (b *builder) toolCatalog(tools json.RawMessage) {
	if len(rows.Elements(tools)) > 0 {
		b.Catalog = b.s.Blob(store.BlobToolCatalog, string(tools), true)
	}
}

// rest counts in the first model call what the session used and no call reports: it stays the first when the session
// grows.
func (b *builder) rest(total session.Usage, basis string) {
	var first *step
	for _, m := range b.messages {
		for _, s := range m.Steps {
			first, total = cmp.Or(first, s), without(total, s.used())
		}
	}
	if first != nil && total.Total() > 0 {
		first.count(modelUse{usage: total.Add(first.used())}, basis)
		first.in.Touch(b.At)
	}
}

// alone finishes the session, nil for none.
func (b *builder) alone() []*codec.Session {
	if b == nil {
		return nil
	}
	return []*codec.Session{b.finish()}
}

// all finishes the session and those of its sub-agents, none if there is no message.
func (b *builder) all() []*codec.Session {
	all := []*codec.Session{}
	if len(b.messages) > 0 {
		all = append(all, b.finish())
		for _, c := range b.children {
			all = append(all, c.all()...)
		}
	}
	return all
}

// finish writes what takes more than one record to know.
func (b *builder) finish() *codec.Session {
	b.s.SetMeta("agenttrace", b.About)
	if b.Model != (session.Model{}) {
		b.s.Row.ModelJSON = new(string(rows.Raw(b.Model)))
	}
	for _, m := range b.messages {
		for _, s := range m.Steps {
			if s.Model != nil && *s.Model == m.Model {
				s.Model = nil
			}
			m.Step(s.Step, session.Model{}, nil)
		}
		m.Finish()
		b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, session.Deref(m.CostUSD))
	}
	if b.Cost != nil {
		b.s.Row.CostUSD = max(b.s.Row.CostUSD, *b.Cost)
	}
	b.s.Row.Title = cmp.Or(b.Title, redact.Headline(b.Asked), b.s.Row.Title)
	b.owns() // a fork without a record of its own begins after the copies
	s := b.s.Finish()
	if row := &s.Session; b.Fork != (forking{}) {
		row.CreatedAt = max(b.Fork.OwnAt, b.Fork.CopiedTo+1)
		row.UpdatedAt = max(row.UpdatedAt, row.CreatedAt)
	}
	return s
}
