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

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec"
	"github.com/agenttrace/agenttrace/session/codec/internal/rows"
	"github.com/agenttrace/agenttrace/session/store"
)

// DecodeText reads the session of a file, of which text is the content; see [codec.Reading].
func DecodeText(_ string, text []byte, report func(codec.Problem)) ([]*codec.Session, error) {
	b, err := parse(text, report)
	if err != nil {
		return nil, fmt.Errorf("read session of Pi: %w", err)
	}
	return []*codec.Session{b.build()}, nil
}

// Decode reads the session in r. A line that is not an entry is reported and left out, and what
// follows it stays where it is. A file without a header is an error.
func Decode(r io.Reader, report func(codec.Problem)) iter.Seq2[*codec.Session, error] {
	return rows.Whole("session of Pi", r, report,
		func(text []byte, report func(codec.Problem), yield func(*codec.Session) bool) error {
			b, err := parse(text, report)
			if err == nil {
				yield(b.build())
			}
			return err
		})
}

// file is the header and the entries of a file, or those from a checkpoint on.
type file struct {
	header  rows.Object
	entries []entry
	// failed is the error of the header.
	failed error
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
func parse(text []byte, report func(codec.Problem)) (*builder, error) {
	b := newBuilder(report)
	for l := range rows.Lines(text, report) {
		if l.Err != nil {
			l.Object = nil
		}
		if b.record(l.Object, l.N); b.f.failed != nil {
			break
		}
	}
	return b, b.begin()
}

// record takes a line, nil for one that is not an object.
func (b *builder) record(o rows.Object, line int) {
	f := &b.f
	switch {
	case f.failed != nil:
	case f.header == nil && (o.Text("type") != "session" || o.Text("id") == ""):
		f.failed = fmt.Errorf(`line %d: is not a header: want {"type":"session","version":%d,"id":…} first`,
			line, version)
	case f.header == nil:
		f.header = o
		if v := o.Get("version"); v != nil && string(v) > "3" || len(v) > 1 {
			b.report(codec.Problem{Line: line, Reason: fmt.Sprintf("version is %.20s, and is read as version %d",
				v, version)})
		}
	case o.Text("type") == "":
		b.report(codec.Problem{Line: line,
			Reason: `is not an entry, and is left out: want {"type":"message","id":…,"message":{…}}`})
	default:
		f.entries = append(f.entries, entry{Object: o, line: line, parent: len(f.entries) - 1})
	}
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
		if t, ok := rows.ParseTime(e.Text("timestamp")); ok && t >= 0 && t <= rows.MaxTime {
			at = t
		}
		e.at = at
		if n, ok := rows.Milli(e.Object.Object("message").Get("timestamp")); ok {
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

// builder makes a session of a file.
type builder struct {
	f      file
	s      *rows.Session
	report func(codec.Problem)

	i        int // the entry that is read
	turn     *rows.Message
	answers  []*rows.Answer // the last one is of the turn
	calls    map[string]*rows.Part
	messages map[string]string // by the ids of their first entries
	model    session.Model
	effort   string
	total    int64 // tokens, which must not overflow
}

func newBuilder(report func(codec.Problem)) *builder {
	return &builder{report: report, calls: make(map[string]*rows.Part), messages: make(map[string]string)}
}

// begin begins the session of the file, whose lines are read.
func (b *builder) begin() error {
	f := &b.f
	switch {
	case f.failed != nil:
		return f.failed
	case f.header == nil:
		return errors.New("it is empty: want a header and entries")
	}
	f.link()
	b.s = rows.New(f.header.Text("id"), cmp.Or(f.header.Text("harness"), agentName))
	rows.SetText(&b.s.Row.WorkspaceRoot, f.header.Text("cwd"))
	b.s.AddMeta(rows.NonEmpty("pi", f.header.Texts("parentSession")))
	if at, ok := rows.ParseTime(f.header.Text("timestamp")); ok && at >= 0 {
		b.s.See(at)
	}
	return nil
}

func (b *builder) problem(reason string, args ...any) {
	b.report(codec.Problem{Line: b.f.entries[b.i].line, Reason: fmt.Sprintf(reason, args...)})
}

func (b *builder) build() *codec.Session {
	before := -1
	kept := make(map[string]bool) // by the id of the entry with which a compaction's tail begins
	for _, e := range b.f.entries {
		kept[e.Text("firstKeptEntryId")] = e.Text("type") == entryCompaction
	}
	for i := range b.f.entries {
		e := &b.f.entries[i]
		b.i = i
		if e.parent != before || kept[e.Text("id")] && e.Object.Object("message").Text("role") == session.RoleAssistant || before >= 0 && e.on != b.f.entries[before].on {
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
	for _, a := range b.answers {
		a.Finish()
	}
	return b.s.Finish()
}

// entry reads an entry.
func (b *builder) entry(e *entry) {
	switch kind := e.Text("type"); kind {
	case entryMessage:
		b.message(e, e.Object.Object("message"))
	case entryCustomMessage, entryBranch:
		content := e.Get("content")
		if kind == entryBranch {
			content = e.Get("summary")
		}
		b.aside(e, session.RoleSystem, blocks(content))
	case entryCompaction:
		b.compaction(e)
	case entryInfo:
		b.s.Row.Title = cmp.Or(e.Text("name"), b.s.Row.Title)
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

// add begins a message.
func (b *builder) add(e *entry, role string) *rows.Message {
	m := b.s.Message(role, e.at)
	if !e.on {
		m.Row.HiddenAt = new(max(e.left, m.Row.CreatedAt))
		m.Touch(*m.Row.HiddenAt)
	}
	b.turn = nil
	if id := e.Text("id"); id != "" {
		b.messages[id] = m.Row.ID
	}
	return m
}

// answer begins a message of the assistant.
func (b *builder) answer(e *entry) {
	b.turn = b.add(e, session.RoleAssistant)
	b.answers = append(b.answers, &rows.Answer{Message: b.turn})
}

// aside adds a message that is not the agent's.
func (b *builder) aside(e *entry, role string, content []rows.Object) *rows.Message {
	m := b.add(e, role)
	for i, block := range content {
		if data := partOf(block); data != nil {
			m.Part(data, e.at)
		} else {
			b.problem("message.content[%d] is neither a text nor an image, and is left out", i)
		}
	}
	return m
}

func (b *builder) message(e *entry, message rows.Object) {
	content := blocks(message.Get("content"))
	switch role := message.Text("role"); role {
	case session.RoleUser:
		b.aside(e, role, content)
	case session.RoleAssistant:
		b.assistant(e, message, content)
	case roleResult:
		b.result(e, message, content)
	case roleCustom, "hookMessage":
		b.aside(e, session.RoleSystem, content)
	case roleBash:
		m := b.aside(e, session.RoleSystem, nil)
		m.Part(rows.TextPart("text", "$ "+message.Text("command")+"\n"+message.Text("output")), e.at)
		m.Part(rows.DataPart(typeBash, message.Without("role", "timestamp")), e.at)
	case "branchSummary", "compactionSummary":
		b.aside(e, session.RoleSystem, blocks(message.Get("summary")))
	default:
		b.problem("message.role is %.40s, which is not known: the message is left out",
			rows.OrNull(message.Get("role")))
	}
}

// assistant reads a model call.
func (b *builder) assistant(e *entry, message rows.Object, content []rows.Object) {
	if b.turn == nil {
		b.answer(e)
	}
	m := b.turn
	m.Part(rows.Of("type", "step-start"), e.at)
	for i, block := range content {
		if data := partOf(block); data != nil {
			m.Part(data, e.at)
			continue
		}
		id, identified := rows.Text(block.Get("id"))
		name, named := rows.Text(block.Get("name"))
		if block.Text("type") != "toolCall" || !identified || !named {
			b.problem("message.content[%d] is neither a text, thinking, nor a call with id and name, and is left out",
				i)
			continue
		}
		b.calls[id] = m.Call(id, name, block.Get("arguments"), e.at)
	}
	b.measure(b.answers[len(b.answers)-1], e, message)
}

// result gives a call its result.
func (b *builder) result(e *entry, message rows.Object, content []rows.Object) {
	id := message.Text("toolCallId")
	p := b.calls[id]
	if p == nil || *p.Row.ToolState != session.StateInputAvailable && !e.on {
		b.problem("message.toolCallId is %.60q, which no call before has: the result is kept without a call", id)
		if b.turn == nil {
			b.answer(e)
		}
		kept := rows.Of("toolCallId", id, "content", rows.OrNull(message.Get("content")))
		b.turn.Part(rows.DataPart(typeResult, kept), e.at)
		return
	}
	var text strings.Builder
	var result json.RawMessage
	for _, block := range content {
		piece, ok := rows.Text(block.Get("text"))
		if !ok || block.Text("type") != "text" {
			result = message.Get("content") // it has images
		}
		text.WriteString(piece)
	}
	switch {
	case result == nil && len(content) == 1:
		result = content[0].Get("text")
	case result == nil:
		result = rows.Raw(text.String())
	}
	p.Result(result, message.True("isError"))
	if details := message.Get("details"); message.Has("details") {
		p.SetKey("callProviderMetadata", rows.Of("pi", rows.Of("details", details)))
	}
	p.Touch(e.at)
}

// compaction reads an entry of a compaction.
func (b *builder) compaction(e *entry) {
	m := b.add(e, session.RoleAssistant)
	inner := rows.Of("summary", e.Text("summary"), "tail_start_id", nil, "auto", false, "summary_tokens", 0)
	tail := b.messages[e.Text("firstKeptEntryId")]
	if tail != "" && tail != m.Row.ID {
		inner.Set("tail_start_id", tail)
	}
	m.SetMeta("compaction", true)
	m.AddTrace(rows.NonEmpty("context_tokens_before", b.count(e.Get("tokensBefore")),
		"usage", b.usage(e.Object.Object("usage"))))
	m.Part(rows.DataPart(session.TypeCompaction, inner), e.at)
}

// count reads a count of tokens, 0 if it is not one.
func (b *builder) count(raw json.RawMessage) int64 {
	const maximum = 1 << 60
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > maximum-b.total {
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
func (b *builder) measure(a *rows.Answer, e *entry, message rows.Object) {
	step := session.Step{StartedAt: e.at, StopReason: message.Text("stopReason"),
		Usage: b.usage(message.Object("usage"))}
	var model session.Model
	if id := message.Text("model"); id != "" && id != unknown {
		model = session.Model{ProviderID: message.Text("provider"), ModelID: id, Variant: b.effort}
		if model.ProviderID == unknown {
			model.ProviderID = ""
		}
		b.model = model
	}
	var cost *float64
	var usd float64
	raw := message.Object("usage").Object("cost").Get("total")
	if err := json.Unmarshal(rows.OrNull(raw), &usd); err == nil && usd > 0 && !math.IsInf(usd, 0) {
		cost, b.s.Row.CostUSD = &usd, store.AddCost(b.s.Row.CostUSD, usd)
	}
	a.End = ends[step.StopReason]
	switch step.StopReason {
	case "toolUse":
		step.StopReason = "tool_calls"
	case "error":
		a.Error = cmp.Or(message.Text("errorMessage"), unknown)
	}
	a.Stop = step.StopReason
	a.Step(step, model, cost)
}
