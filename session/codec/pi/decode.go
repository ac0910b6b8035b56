package pi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/semconv"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// Decode reads the session in r. A line that is not an entry is reported and left out, and what
// follows it stays where it is. A file without a header is an error.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return func(yield func(*codec.Session, error) bool) {
		if report == nil {
			report = func(codec.Problem) {}
		}
		text, err := io.ReadAll(r)
		if err != nil {
			yield(nil, fmt.Errorf("read session of Pi: %w", err))
			return
		}
		f, err := parse(text, report)
		if err != nil {
			yield(nil, fmt.Errorf("read session of Pi: %w", err))
			return
		}
		var b *builder
		s, err := rows.Embedded(func(use bool) (*codec.Session, rows.Object, error) {
			b = newBuilder(f, use)
			return b.build()
		})
		if err != nil {
			report(codec.Problem{Line: f.ownLine, Reason: err.Error()})
		}
		for _, p := range b.problems {
			report(p)
		}
		yield(s, nil)
	}
}

// file is the header and the entries of a file.
type file struct {
	header  rows.Object
	entries []entry
	// own is what our entry has, and ownLine its line.
	own     rows.Object
	ownLine int
}

// entry is an entry with the place of its parent, -1 for the first one. On reports that it is on the
// way from the last entry to the first, and left when it no longer was.
type entry struct {
	rows.Object
	line, parent int
	on           bool
	at, left     int64
}

// parse reads the lines.
func parse(text []byte, report func(codec.Problem)) (*file, error) {
	f := new(file)
	for l := range rows.Lines(text, report) {
		n, o, err := l.N, l.Object, l.Err
		switch {
		case f.header == nil && (err != nil || o.Text("type") != "session" || o.Text("id") == ""):
			return nil, fmt.Errorf(`line %d: is not a header: want {"type":"session","version":%d,"id":…} first`, n, version)
		case f.header == nil:
			f.header = o
		case err != nil || o.Text("type") == "":
			report(codec.Problem{Line: n,
				Reason: `is not an entry, and is left out: want {"type":"message","id":…,"message":{…}}`})
		default:
			f.entries = append(f.entries, entry{Object: o, line: n, parent: len(f.entries) - 1})
			if o.Text("type") == entryCustom && o.Text("customType") == own {
				f.own, f.ownLine = o.Object("data"), n
			}
		}
	}
	if f.header == nil {
		return nil, errors.New("it is empty: want a header and entries")
	}
	if v := f.header.Get("version"); v != nil && string(v) > "3" || len(v) > 1 {
		report(codec.Problem{Line: 1, Reason: fmt.Sprintf("version is %.20s, and is read as version %d", v, version)})
	}
	f.link()
	return f, nil
}

// link finds the parents, the times and the way from the last entry to the first. An entry whose
// parent is not there, or has no id, as in version 1, follows the one before.
func (f *file) link() {
	places := make(map[string]int)
	at, _ := rows.ParseTime(f.header.Text("timestamp"))
	at = max(0, at)
	for i := range f.entries {
		e := &f.entries[i]
		if !e.Has("parentId") && e.Get("parentId") != nil {
			e.parent = -1
		} else if p, ok := places[e.Text("parentId")]; ok {
			e.parent = p
		}
		if id := e.Text("id"); id != "" {
			places[id] = i
		}
		if t, ok := rows.ParseTime(e.Text("timestamp")); ok && t >= 0 && t <= lastTime {
			at = t
		}
		e.at = at
		if n, err := strconv.ParseInt(string(e.Object.Object("message").Get("timestamp")), 10, 64); err == nil && n >= 0 &&
			n <= lastTime {
			e.at = n
		}
	}
	for i := len(f.entries) - 1; i >= 0; i = f.entries[i].parent {
		f.entries[i].on = true
	}
	left := int64(0)
	for i := len(f.entries) - 1; i >= 0; i-- {
		e := &f.entries[i]
		if e.left = max(left, e.at); e.on {
			left = e.at
		}
	}
}

// lastTime is the end of the year 9999 in Unix milliseconds.
const lastTime = 253402300799999

// builder makes a session of a file.
type builder struct {
	f *file
	s *rows.Session
	// use reports that embedded rows are used. err is the first of them that is not valid.
	use      bool
	err      error
	problems []codec.Problem

	i        int // the entry that is read
	turn     *rows.Message
	restored bool // the row of the turn is embedded
	answer   answer
	calls    map[string]*rows.Call
	parts    map[string]*rows.Part
	messages map[string]string // by the ids of their first entries
	model    session.Model
	effort   string
	total    int64 // tokens, which must not overflow
}

// answer is what the entries of an assistant message report together.
type answer struct {
	steps []session.Step
	model session.Model
	usage *session.Usage
	cost  *float64
}

func newBuilder(f *file, use bool) *builder {
	b := &builder{
		f: f, use: use, s: rows.New(f.header.Text("id"), cmp.Or(f.header.Text("harness"), agentName)),
		calls: make(map[string]*rows.Call), parts: make(map[string]*rows.Part), messages: make(map[string]string),
	}
	if dir := f.header.Text("cwd"); dir != "" {
		b.s.Row.WorkspaceRoot = new(dir)
	}
	if parent := f.header.Text("parentSession"); parent != "" {
		b.s.SetMeta("pi", rows.Of("parentSession", parent))
	}
	if at, ok := rows.ParseTime(f.header.Text("timestamp")); ok && at >= 0 {
		b.s.See(at)
	}
	return b
}

func (b *builder) problem(reason string, args ...any) {
	b.problems = append(b.problems, codec.Problem{Line: b.f.entries[b.i].line, Reason: fmt.Sprintf(reason, args...)})
}

func (b *builder) build() (*codec.Session, rows.Object, error) {
	before := -1
	for i := range b.f.entries {
		e := &b.f.entries[i]
		b.i = i
		if e.parent != before || before >= 0 && e.on != b.f.entries[before].on {
			b.turn = nil // the conversation goes on elsewhere
		}
		before = i
		if e.at > 0 {
			b.s.See(e.at)
		}
		b.entry(e)
	}
	if b.model != (session.Model{}) {
		b.s.Row.ModelJSON = new(string(rows.Raw(b.model)))
	}
	if !b.use {
		return b.s.Finish(), nil, nil
	}
	return b.s.Finish(), b.f.own, b.err
}

// own is what is ours of an entry.
func (b *builder) own(e *entry) rows.Object {
	if !b.use {
		return nil
	}
	return b.f.own.Object("entries").Object(e.Text("id"))
}

// entry reads an entry.
func (b *builder) entry(e *entry) {
	embedded := b.own(e)
	switch kind := e.Text("type"); kind {
	case entryMessage:
		b.message(e, e.Object.Object("message"), embedded)
	case entryCustomMessage, entryBranch:
		content := e.Get("content")
		if kind == entryBranch {
			content = e.Get("summary")
		}
		b.aside(e, session.RoleSystem, blocks(content), embedded)
	case entryCompaction:
		b.compaction(e, embedded)
	case entryInfo:
		if name := e.Text("name"); name != "" {
			b.s.Row.Title = name
		}
	case entryModel:
		b.model = session.Model{ProviderID: e.Text("provider"), ModelID: e.Text("modelId"), Variant: b.effort}
	case entryThinking:
		if b.effort = e.Text("thinkingLevel"); b.effort == "off" {
			b.effort = ""
		}
		b.model.Variant = b.effort
	case entryCustom, "label":
	default:
		b.problem("is of type %.40q, which is not known, and is passed over", kind)
	}
}

// begin begins a message, with its row where that is embedded.
func (b *builder) begin(e *entry, role string, embedded rows.Object) *rows.Message {
	m := b.s.Message(role, e.at)
	row := embedded.Object("message")
	b.restored = row != nil
	if row != nil {
		if err := m.Restore(row); b.err == nil {
			b.err = err
		}
	} else if !e.on {
		m.Row.HiddenAt = new(max(e.left, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
	b.turn = nil
	if id := e.Text("id"); id != "" {
		b.messages[id] = m.Row.ID
	}
	return m
}

// aside adds a message that is not the agent's.
func (b *builder) aside(e *entry, role string, content []rows.Object, embedded rows.Object) *rows.Message {
	m := b.begin(e, role, embedded)
	for i, block := range content {
		if data := partOf(block); data != nil {
			m.Part(data, e.at)
		} else {
			b.problem("message.content[%d] is neither a text nor an image, and is left out", i)
		}
	}
	b.others(m, e, embedded, 0)
	return m
}

// others adds the parts of other types that are embedded, and restores the rows of those from the one
// at place from on.
func (b *builder) others(m *rows.Message, e *entry, embedded rows.Object, from int) {
	for _, raw := range rows.Elements(embedded.Get("parts")) {
		m.Part(rows.Read(string(raw)), e.at)
	}
	b.restore(m, embedded, from)
}

func (b *builder) restore(m *rows.Message, embedded rows.Object, from int) {
	if err := m.RestoreParts(from, embedded); b.err == nil {
		b.err = err
	}
}

func (b *builder) message(e *entry, message, embedded rows.Object) {
	content := blocks(message.Get("content"))
	switch role := message.Text("role"); role {
	case session.RoleUser:
		b.aside(e, role, content, embedded)
	case session.RoleAssistant:
		b.assistant(e, message, content, embedded)
	case roleResult:
		b.result(e, message, content)
	case roleCustom, "hookMessage":
		b.aside(e, session.RoleSystem, content, embedded)
	case roleBash:
		m := b.aside(e, session.RoleSystem, nil, embedded)
		m.Part(rows.TextPart("text", "$ "+message.Text("command")+"\n"+message.Text("output")), e.at)
		m.Part(rows.DataPart(typeBash, message.Without("role", "timestamp")), e.at)
	case "branchSummary", "compactionSummary":
		b.aside(e, session.RoleSystem, blocks(message.Get("summary")), embedded)
	default:
		b.problem("message.role is %.40s, which is not known: the message is left out", rows.OrNull(message.Get("role")))
	}
}

// assistant reads a model call.
func (b *builder) assistant(e *entry, message rows.Object, content []rows.Object, embedded rows.Object) {
	if b.turn == nil || embedded.Object("message") != nil {
		b.turn = b.begin(e, session.RoleAssistant, embedded)
		b.answer = answer{}
	}
	m, from := b.turn, len(b.turn.Parts())
	if string(embedded.Get("step_start")) != "false" {
		m.Part(rows.Of("type", "step-start"), e.at)
	}
	for i, block := range content {
		if data := partOf(block); data != nil {
			m.Part(data, e.at)
			continue
		}
		id, identified := rows.Text(block.Get("id"))
		_, named := rows.Text(block.Get("name"))
		if block.Text("type") != "toolCall" || !identified || !named {
			b.problem("message.content[%d] is neither a text, thinking, nor a call with id and name, and is left out", i)
			continue
		}
		c := &rows.Call{ID: id, Name: block.Get("name"), Input: block.Get("arguments"),
			Extra: embedded.Object("calls").Object(id)}
		b.calls[id], b.parts[id] = c, m.Part(c.Data(), e.at)
	}
	b.others(m, e, embedded, from)
	if !b.restored {
		b.measure(e, message)
	}
}

// result gives a call its result.
func (b *builder) result(e *entry, message rows.Object, content []rows.Object) {
	id := message.Text("toolCallId")
	c, p := b.calls[id], b.parts[id]
	if c == nil || c.Result != nil && !e.on {
		b.problem("message.toolCallId is %.60q, which no call before has: the result is kept without a call", id)
		if b.turn == nil {
			b.turn = b.begin(e, session.RoleAssistant, nil)
			b.answer = answer{}
		}
		b.turn.Part(rows.DataPart(typeResult, rows.Of("toolCallId", id, "content", rows.OrNull(message.Get("content")))),
			e.at)
		return
	}
	c.Failed = string(message.Get("isError")) == "true"
	var text strings.Builder
	for _, block := range content {
		said, ok := rows.Text(block.Get("text"))
		if !ok || block.Text("type") != "text" {
			c.Result = message.Get("content") // it has images
		}
		text.WriteString(said)
	}
	switch {
	case c.Result == nil && len(content) == 1:
		c.Result = content[0].Get("text")
	case c.Result == nil:
		c.Result = rows.Raw(text.String())
	}
	data := c.Data()
	if details := message.Get("details"); message.Has("details") {
		data.Set("callProviderMetadata", rows.Of("pi", rows.Of("details", details)))
	}
	p.Set(data)
	if !b.restored {
		p.Touch(e.at)
	}
}

// compaction reads an entry of a compaction.
func (b *builder) compaction(e *entry, embedded rows.Object) {
	m := b.begin(e, session.RoleAssistant, embedded)
	parts := rows.Elements(embedded.Get("parts"))
	inner := rows.Of("tail_start_id", nil, "auto", false, "summary_tokens", 0)
	if parts != nil {
		inner = rows.Read(string(parts[0])).Object("data")
	} else {
		if tail := b.messages[e.Text("firstKeptEntryId")]; tail != "" && tail != m.Row.ID {
			inner.Set("tail_start_id", tail)
		}
		m.SetMeta("compaction", true)
		if n := b.count(e.Get("tokensBefore")); n > 0 {
			m.SetTrace("context_tokens_before", n)
		}
		if u := b.usage(e.Object.Object("usage")); u != nil {
			m.SetTrace("usage", *u)
		}
	}
	data := rows.Of("type", session.TypeCompaction)
	if parts != nil {
		data = rows.Read(string(parts[0]))
	}
	data.Set("data", append(rows.Of("summary", e.Text("summary")), inner...))
	m.Part(data, e.at)
	for _, raw := range parts[min(1, len(parts)):] {
		m.Part(rows.Read(string(raw)), e.at)
	}
	b.restore(m, embedded, 0)
}

// count reads a count of tokens, 0 where it is none.
func (b *builder) count(raw json.RawMessage) int64 {
	const most = 1 << 60
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > most-b.total {
		return 0
	}
	b.total += n
	return n
}

// usage reads a usage, nil where it is not known: Pi has 0 everywhere then.
func (b *builder) usage(o rows.Object) *session.Usage {
	var u session.Usage
	for _, bucket := range buckets {
		*bucket.of(&u) = b.count(o.Get(bucket.key))
	}
	if u == (session.Usage{}) {
		return nil
	}
	return &u
}

// measure adds what an entry reports of its model call.
func (b *builder) measure(e *entry, message rows.Object) {
	a, m := &b.answer, b.turn
	reason := message.Text("stopReason")
	if reason == "toolUse" {
		reason = "tool_calls"
	}
	step := session.Step{StartedAt: e.at, StopReason: reason, Usage: b.usage(message.Object("usage"))}
	if id := message.Text("model"); id != "" {
		model := session.Model{ProviderID: message.Text("provider"), ModelID: id, Variant: b.effort}
		if b.model = model; a.model == (session.Model{}) {
			a.model = model
			m.SetMeta("model", model)
		}
		if model != a.model {
			step.Model = &model
		}
	}
	if step.Usage != nil {
		if a.usage == nil {
			a.usage = new(session.Usage)
		}
		*a.usage = a.usage.Add(*step.Usage)
		m.SetMeta("usage", *a.usage)
	}
	a.steps = append(a.steps, step)
	m.SetTrace("model_calls", len(a.steps))
	m.SetTrace("steps", a.steps)
	m.SetTrace("stop_reason", step.StopReason)
	switch step.StopReason {
	case "stop", "length":
		m.SetTrace("end_reason", semconv.EndFinish)
	case "aborted":
		m.SetTrace("end_reason", semconv.EndAbort)
	case "error":
		m.SetTrace("end_reason", semconv.EndError)
		m.SetTrace("error", cmp.Or(message.Text("errorMessage"), "unknown"))
	}
	var usd float64
	raw := message.Object("usage").Object("cost").Get("total")
	if err := json.Unmarshal(rows.OrNull(raw), &usd); err == nil && usd > 0 && !math.IsInf(usd, 0) {
		if a.cost == nil {
			a.cost = new(float64)
		}
		*a.cost = store.AddCost(*a.cost, usd)
		m.SetTrace("cost_usd", *a.cost)
		b.s.Row.CostUSD = store.AddCost(b.s.Row.CostUSD, usd)
	}
}
