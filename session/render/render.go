// Package render prints sessions for a person at a terminal: one of them, a list, a diff,
// figures, and news as they arrive. Each function takes the width to fill and prints no
// wider line, and nothing that comes from a session reaches the terminal unsanitized.
package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
)

// Document prints the document for a person. All that comes from the session is
// sanitized: see [printable.Sanitize].
func Document(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	p.head(doc)
	previousRules := ""
	for i := 0; i < len(doc.Turns); i++ {
		t := &doc.Turns[i]
		p.blank()
		if t.MissingBefore != nil {
			p.block(span{"… ", p.warn}, span{"  ", p.plain}, t.MissingBefore.Text(), p.warn, 0)
			p.blank()
		}
		if t.Unrecorded != nil {
			p.block(span{"… ", p.warn}, span{"  ", p.plain}, t.Unrecorded.Text(t.Number), p.warn, 0)
			p.blank()
		}
		if t.Hidden && !p.Full {
			end := i
			for end+1 < len(doc.Turns) && doc.Turns[end+1].Hidden && doc.Turns[end+1].MissingBefore == nil {
				end++
			}
			p.folded(doc.Turns[i : end+1])
			i = end
			continue
		}
		p.turn(doc, t, &previousRules)
	}
	if len(doc.Queued) > 0 {
		p.blank()
		p.header("─", span{"Queued", p.title}, span{})
		for i := range doc.Queued {
			p.queued(&doc.Queued[i])
		}
	}
	p.blank()
	p.usageTable(doc)
	return p.writeTo(w)
}

// head prints what is true of the session as a whole.
func (p *printer) head(doc *document.Document) {
	s := &doc.Session
	title := printable.OneLine(s.Title)
	if title == "" {
		title = "(no title)"
	}
	for _, l := range wrap(title, p.Width) {
		p.line(span{l, p.title})
	}
	p.headline(doc)
	if s.Error != "" {
		p.block(span{"✗ ", p.bad}, span{"  ", p.plain}, s.Error, p.bad, p.Lines)
	}
	p.blank()
	p.fields(doc)
	p.notices(doc.Notices)
}

// headline prints how the session stands, and its sums.
func (p *printer) headline(doc *document.Document) {
	s := &doc.Session
	state := p.state(s.State)
	if a := doc.Status.State; a != document.ActivityIdle && (a != document.ActivityError || s.State == document.StateUnknown) && a != document.ActivityUnknown {
		state = p.activity(a)
	}
	summary := []string{printable.OneLine(s.Agent), printable.Plural(doc.Totals.Turns, "turn", "turns")}
	if n := doc.Totals.ToolCalls; n > 0 {
		summary = append(summary, printable.Plural(n, "tool call", "tool calls")+doc.Totals.Failures())
	}
	if ms := doc.Totals.DurationMS; ms != nil {
		summary = append(summary, printable.Duration(*ms))
	}
	summary = append(summary, spent(doc.Totals.Usage, doc.Totals.CostUSD, doc.Totals.EstimatedCostUSD))
	if state.text != "" {
		text, room := "", p.Width-width(state.text)
		for len(summary) > 0 && width(text)+width(" · "+summary[0]) <= room {
			if summary[0] != "" {
				text += " · " + summary[0]
			}
			summary = summary[1:]
		}
		p.line(state, span{text, p.dim})
	}
	p.infoLines("", summary...)
}

// fields prints what is known of the session, a line each.
func (p *printer) fields(doc *document.Document) {
	s := &doc.Session
	p.field("session", printable.Sanitize(s.ID))
	if a := doc.Status.State; a != document.ActivityIdle && a != document.ActivityError && a != document.ActivityUnknown {
		p.field("status", p.statusLine(&doc.Status))
	}
	if m := s.Model; m != nil {
		p.field("model", printable.FullModelName(m))
	}
	p.field("workspace", printable.OneLine(cmp.Or(s.WorkspaceRoot, s.WorkspaceID)))
	p.field("mode", printable.OneLine(s.Mode))
	if s.Reading == document.ReadingGeneric {
		p.field("reading", "generic reading: no dialect knows this client; what is here was found by the names of its attributes")
	}
	p.field("started", p.moment(s.CreatedAt))
	if s.ArchivedAt != nil {
		p.field("archived", p.moment(*s.ArchivedAt))
	}
	if o := s.Origin; o != nil {
		what := "started by "
		if o.Fork {
			what = "fork of "
		}
		p.field("origin", what+printable.Sanitize(o.SessionID)+quotedTitle(o.Title))
	}
	for _, c := range doc.Children {
		p.field("child", childLine(&c))
	}
	for _, prompt := range doc.SystemPrompts {
		p.field("prompt", promptLine(&prompt))
	}
	for _, c := range doc.ToolCatalogs {
		p.field("tools", catalogLine(&c))
	}
	for _, r := range s.Rules {
		p.field("rule", ruleLine(&r))
	}
	for i, trace := range doc.Traces {
		if i == 3 && !p.Full {
			p.field("trace", printable.Plural(len(doc.Traces)-i, "more", "more")+" (--full)")
			break
		}
		p.field("trace", printable.Sanitize(trace))
	}
	keys := make([]string, 0, len(s.Metadata))
	for k := range s.Metadata {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		p.field("metadata", printable.OneLine(k)+": "+printable.OneLine(printable.Value(s.Metadata[k])))
	}
}

// field prints a fact with its name. The value is sanitized; several of one name
// are below each other.
func (p *printer) field(name, value string) {
	if value == "" {
		return
	}
	p.fieldAt(12, name, value)
}

// fieldAt is field with the value after that many cells.
func (p *printer) fieldAt(indent int, name, value string) {
	follow := span{strings.Repeat(" ", indent), p.plain}
	lead := span{"  " + pad(name, indent-2), p.dim}
	for _, l := range wrap(value, p.Width-indent) {
		p.line(lead, span{l, p.plain})
		lead = follow
	}
}

func quotedTitle(title string) string {
	if title == "" {
		return ""
	}
	return ", “" + printable.OneLine(title) + "”"
}

func childLine(c *document.Child) string {
	facts := []string{printable.Sanitize(c.SessionID), printable.OneLine(c.Agent)}
	if c.State.Bad() { // a run that finished may be one that waits for a human
		facts = append(facts, string(c.State))
	}
	if c.Title != "" {
		facts = append(facts, "“"+printable.OneLine(c.Title)+"”")
	}
	if c.TotalTokens > 0 {
		facts = append(facts, printable.Count(c.TotalTokens)+" tokens")
	}
	return printable.Join(facts...)
}

func promptLine(s *document.SystemPrompt) string {
	line := printable.Sanitize(printable.Short(s.Digest))
	switch {
	case !s.Resolved:
		line += " · unresolved, its text never arrived"
	case s.Damaged:
		line += " · " + printable.Bytes(int64(len(s.Body))) + ", damaged on the way"
	default:
		line += " · " + printable.Bytes(int64(len(s.Body)))
	}
	return line + " · " + printable.Turns(s.Turns)
}

func catalogLine(c *document.ToolCatalog) string {
	line := printable.Sanitize(printable.Short(c.Digest))
	switch {
	case !c.Resolved:
		line += " · unresolved, it never arrived"
	default:
		names := make([]string, len(c.Tools))
		for i := range c.Tools {
			names[i] = printable.OneLine(c.Tools[i].Name)
		}
		line += " · " + strings.Join(names, ", ")
		if c.Damaged {
			line += ", damaged on the way"
		}
	}
	return line + " · " + printable.Turns(c.Turns)
}

func ruleLine(r *session.Rule) string {
	line := printable.OneLine(r.Action) + " " + printable.OneLine(r.Permission)
	if r.Pattern != "" && r.Pattern != "*" {
		line += " " + printable.OneLine(r.Pattern)
	}
	if r.Source != "" && r.Source != "session" {
		line += " (" + printable.OneLine(r.Source) + ")"
	}
	return line
}

// state is how something stands, in its color.
func (p *printer) state(s document.State) span {
	switch s {
	case document.StateFinished:
		return span{"✓ finished", p.good}
	case document.StateAborted:
		return span{"■ aborted", p.warn}
	case document.StateError:
		return span{"✗ error", p.bad}
	case document.StateWaiting:
		return span{"? waiting for a human", p.warn}
	case document.StateIncomplete:
		return span{"◌ incomplete", p.warn}
	}
	return span{}
}

// folded stands for turns that a rewind hid.
func (p *printer) folded(turns []document.Turn) {
	messages, calls := 0, 0
	var at int64
	var numbers []int
	for i := range turns {
		messages += len(turns[i].Messages)
		for k := range turns[i].Messages {
			at = max(at, session.Deref(turns[i].Messages[k].HiddenAt))
		}
		calls += len(turns[i].ToolCalls())
		numbers = append(numbers, turns[i].Number)
	}
	name := printable.Turns(numbers)
	facts := []string{printable.Plural(messages, "message", "messages")}
	if calls > 0 {
		facts = append(facts, printable.Plural(calls, "tool call", "tool calls"))
	}
	facts = append(facts, p.clock(at), "--full")
	p.header("┄", span{"⟲ " + printable.Capital(name) + " rewound", p.warn}, span{}, facts...)
}

func (p *printer) queued(m *document.Message) {
	mark := "⧗ "
	if m.CanceledAt != nil {
		mark = "⊘ "
	}
	p.message(m, span{mark, p.warn})
	if m.CanceledAt != nil {
		p.infoLines("  ", "taken back "+p.clock(*m.CanceledAt))
	}
}

func (p *printer) turn(doc *document.Document, t *document.Turn, previousRules *string) {
	var facts []string
	if t.DurationMS != nil {
		facts = append(facts, printable.Duration(*t.DurationMS))
	}
	if t.Usage != nil {
		facts = append(facts, printable.Count(t.Usage.Total())+" tokens")
	}
	if cost := printable.Cost(t.CostUSD, t.EstimatedCostUSD); cost != "" {
		facts = append(facts, cost)
	}
	if t.StopReason != "" {
		facts = append(facts, printable.OneLine(t.StopReason))
	}
	p.header("─", span{turnLabel("Turn ", t), p.title}, p.state(t.State), facts...)
	p.turnFacts(doc, t)
	if t.QuestionMissing {
		p.blank()
		p.line(span{"◌ its question never arrived", p.warn})
	}

	answered, hiddenRun := false, []*document.Message(nil)
	flush := func() {
		if len(hiddenRun) > 0 {
			p.blank()
			calls := 0
			for _, m := range hiddenRun {
				for range m.ToolCalls() {
					calls++
				}
			}
			text := "⟲ answer rewound " + p.clock(session.Deref(hiddenRun[0].HiddenAt))
			if calls > 0 {
				text += " · " + printable.Plural(calls, "tool call", "tool calls")
			}
			p.line(span{text + " (--full)", p.warn})
			hiddenRun = nil
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		answered = answered || m.Role != session.RoleUser && m.Compaction == nil
		if m.HiddenAt != nil && !p.Full && !t.Hidden && m.Role != session.RoleUser {
			hiddenRun = append(hiddenRun, m)
			continue
		}
		flush()
		p.blank()
		switch {
		case m.Compaction != nil:
			p.compaction(m)
		case m.Role == session.RoleUser:
			p.message(m, span{"❯ ", p.user})
		case m.Role == session.RoleAssistant:
			if m.HiddenAt != nil && !t.Hidden {
				p.line(span{"⟲ rewound " + p.clock(*m.HiddenAt), p.warn})
			}
			p.assistant(doc, m, previousRules)
		default:
			p.line(span{printable.OneLine(m.Role), p.dim})
			p.message(m, span{"# ", p.dim})
		}
	}
	flush()
	if !answered {
		p.blank()
		p.line(span{"◌ no answer", p.warn})
	}
}

// turnFacts prints what the turn was made with.
func (p *printer) turnFacts(doc *document.Document, t *document.Turn) {
	var facts []string
	facts = append(facts, printable.FullModelName(t.Model))
	if t.Temperature != nil {
		facts = append(facts, "temperature "+strconv.FormatFloat(*t.Temperature, 'g', -1, 64))
	}
	if t.ModelCalls > 0 {
		calls := printable.Plural(int(t.ModelCalls), "model call", "model calls")
		failed := 0
		for i := range t.Messages {
			for _, c := range t.Messages[i].Calls {
				if c.Failed {
					failed++
				}
			}
		}
		if failed > 0 {
			calls += ", " + strconv.Itoa(failed) + " failed"
		}
		facts = append(facts, calls)
	}
	if t.Usage != nil {
		u := t.Usage
		in := "in " + printable.Brief(u.Input)
		if u.CacheRead > 0 {
			in += " + " + printable.Brief(u.CacheRead) + " cached"
		}
		if u.CacheWrite > 0 {
			in += " + " + printable.Brief(u.CacheWrite) + " to cache"
		}
		out := "out " + printable.Brief(u.Output)
		if u.Reasoning > 0 {
			out += " + " + printable.Brief(u.Reasoning) + " reasoning"
		}
		facts = append(facts, in, out)
	}
	if d := t.SystemPromptDigest; d != "" {
		text := "prompt " + printable.Sanitize(printable.Head(d, 8))
		if t.PromptChanged {
			text += " (changed)"
		}
		if prompt := doc.Prompt(d); prompt != nil && !prompt.Resolved {
			text += " (unresolved)"
		}
		facts = append(facts, text)
	}
	if text := toolsCalled(&t.Tools); text != "" {
		facts = append(facts, text)
	}
	p.infoLines("   ", facts...)
}

// toolsCalled reports which tools were called, of how many.
func toolsCalled(t *document.Tools) string {
	names := make([]string, len(t.Called))
	for i := range t.Called {
		c := &t.Called[i]
		names[i] = cmp.Or(printable.OneLine(c.Name), printable.Unnamed)
		if c.Calls > 1 {
			names[i] += fmt.Sprintf(" ×%d", c.Calls)
		}
		if c.Unlisted {
			names[i] += " (not offered)"
		}
	}
	switch {
	case len(names) == 0 && t.Available == nil:
		return ""
	case len(names) == 0:
		return printable.Plural(len(t.Available), "tool", "tools") + " offered, none called"
	case t.Available == nil:
		return "called " + strings.Join(names, ", ")
	}
	return "called " + strings.Join(names, ", ") + " of " + printable.Plural(len(t.Available), "tool", "tools")
}
