package render

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// textFactor is how much longer than an output a text may be.
const textFactor = 5

func (p *printer) message(m *document.Message, lead span) {
	if t := m.Trigger; t != nil {
		p.infoLines("  ", "triggered by "+document.OneLine(t.Source), document.OneLine(t.ScheduleID),
			document.OneLine(t.DeliveryID))
	}
	for _, part := range m.Parts {
		if part.Kind == document.KindText {
			p.block(lead, part.Text, p.plain, textFactor*p.Lines)
			lead = span{"  ", p.plain}
			p.annotations("  ", part.Annotations)
			continue
		}
		p.part(nil, m, part)
	}
	if len(m.Parts) == 0 {
		p.line(lead, span{"(empty)", p.dim})
	}
	p.problems(m.Problems)
}

func (p *printer) assistant(doc *document.Document, m *document.Message) {
	if m.Agent != "" && m.Agent != doc.Session.Agent {
		p.infoLines("  ", "agent "+document.OneLine(m.Agent))
	}
	for i, part := range m.Parts {
		if i > 0 && apart(m.Parts[i-1], part) {
			p.blank()
		}
		p.part(doc, m, part)
	}
	if len(m.Parts) == 0 && m.State != document.StateIncomplete {
		p.line(span{"  (empty)", p.dim})
	}
	if len(m.Calls) > 0 && !slices.ContainsFunc(m.Calls, func(c document.ModelCall) bool { return c.Failed }) {
		for _, text := range m.ModelErrors { // of calls that succeeded in another attempt
			p.block(span{"⚠  ", p.warn}, "model call: "+text, p.warn, p.Lines)
		}
	}
	p.ending(m)
	p.problems(m.Problems)
}

// apart reports whether a blank line helps between two parts.
func apart(before, after *document.Part) bool {
	if before.Step == 1 || after.Step == 1 { // mostly, nothing is printed of the first step
		return false
	}
	return before.Kind != after.Kind || before.Kind != document.KindFile && before.Kind != document.KindSource
}

// ending reports how a message ended, where that is not simply well.
func (p *printer) ending(m *document.Message) {
	end := map[document.State]span{
		document.StateAborted: {"■ aborted: this is where it stopped", p.warn},
		document.StateError:   {"✗ " + cmp.Or(m.Error, "ended by an error"), p.bad},
		document.StateWaiting: {"? waiting for a human", p.warn},
		document.StateIncomplete: {"◌ incomplete: the span of the whole turn has not arrived; " +
			"it is still running, or its end was lost", p.warn},
	}[m.State]
	if mark, text, ends := strings.Cut(end.text, " "); ends {
		p.blank()
		p.block(span{mark + " ", end.paint}, text, end.paint, p.Lines)
	}
}

func (p *printer) problems(problems []string) {
	for _, problem := range problems {
		p.block(span{"! ", p.warn}, problem, p.warn, p.Lines)
	}
}

// annotations prints tags together, and a line for each score and note.
func (p *printer) annotations(indent string, all []document.Annotation) {
	for _, text := range document.Annotated(all) {
		p.block(span{indent + "⚑ ", p.accent}, document.OneLine(text), p.plain, 0)
	}
}

// part prints one part. doc is nil where no calls are expected.
func (p *printer) part(doc *document.Document, m *document.Message, part *document.Part) {
	defer p.annotations("  ", part.Annotations)
	switch part.Kind {
	case document.KindText:
		p.block(span{"● ", p.plain}, cmp.Or(part.Text, "(empty)"), p.plain, textFactor*p.Lines)
	case document.KindReasoning:
		p.block(span{"∴ ", p.reasoning}, cmp.Or(part.Text, "(reasoning is not shown by the provider)"),
			p.reasoning, p.Lines)
	case document.KindTool:
		p.tool(doc, part)
	case document.KindStep:
		p.step(m, part.Step)
	case document.KindFile, document.KindSource:
		mark := "▤ "
		if part.Kind == document.KindSource {
			mark = "↗ "
		}
		b := document.Words{}.Block(part)
		if b.Link == b.Title {
			b.Link = ""
		}
		p.line(span{mark, p.accent}, span{document.Join(append([]string{b.Title, b.Link}, b.Facts...)...), p.plain})
	default:
		name := cmp.Or(strings.TrimPrefix(part.Type, "data-"), "unreadable part")
		text := document.Value(part.Data)
		if b := (document.Words{}).Block(part); b.Kind == document.BlockProse { // why there is no answer
			text = b.Facts[0]
		}
		between := " "
		if strings.Contains(text, "\n") {
			between = "\n"
		}
		p.block(span{"◦ ", p.accent}, name+":"+between+text, p.plain, p.Lines)
	}
	switch {
	case part.Truncated:
		p.line(span{"  … the rest was lost on the way", p.warn})
	case part.Streaming && m.State == document.StateIncomplete:
		p.line(span{"  … more was to come", p.dim})
	}
}

// step prints the boundary of a step, and what its model calls took.
func (p *printer) step(m *document.Message, n int) {
	var calls []document.ModelCall
	if of, known := m.StepCalls(); known {
		calls = of[n-1]
	}
	failed := slices.ContainsFunc(calls, func(c document.ModelCall) bool { return c.Failed })
	if n == 1 && !p.Full && !failed {
		return
	}
	facts, paint := []string{"step " + document.Count(int64(n))}, p.dim
	for i := range calls {
		c := &calls[i]
		if c.Failed {
			facts, paint = append(facts, "model call failed after "+document.Duration(c.DurationMS)), p.warn
		} else {
			facts = append(facts, document.Duration(c.DurationMS))
		}
		if c.Usage != nil {
			facts = append(facts, document.Brief(c.Usage.Total())+" tokens")
		}
	}
	p.block(span{"╌╌ ", paint}, document.Join(facts...), paint, 0)
	for i := range calls {
		if calls[i].Error != "" {
			p.block(span{"✗  ", p.bad}, calls[i].Error, p.bad, p.Lines)
		}
	}
}

func (p *printer) compaction(m *document.Message) {
	c := m.Compaction
	label := "Compacted"
	if m.HiddenAt != nil {
		label += " (rewound)"
	}
	p.header("┄", span{label, p.accent}, span{}, c.Words()...)
	if c.Summary != "" {
		p.block(span{"  ", p.plain}, c.Summary, p.dim, p.Lines)
	}
	for _, part := range m.Parts {
		p.part(nil, m, part)
	}
	p.problems(m.Problems)
}

// outcome is the mark and the word for the state of a call.
func (p *printer) outcome(c *document.ToolCall) span {
	s := map[string]span{document.OutcomeOK: {"✓", p.good}, document.OutcomeFailed: {"✗", p.bad},
		document.OutcomeDenied: {"⊘", p.warn}}[c.Outcome()]
	if s.text == "" {
		s = span{"◌", p.warn}
		if c.Outcome() == document.OutcomeOpen && c.State == session.StateApprovalRequested {
			s.text = "?"
		}
	}
	s.text = strings.TrimSpace(s.text + " " + c.OutcomeWords())
	if c.DurationMS != nil {
		s.text += " " + document.Duration(*c.DurationMS)
	}
	return s
}

// callLine prints a call with what it is about, and its state at the end of the line. It
// reports whether there was room for all of that.
func (p *printer) callLine(name, subject string, state span) (whole bool) {
	name, subject = document.OneLine(cmp.Or(name, document.Unnamed)), document.OneLine(subject)
	room := max(p.Width-2-width(name)-2-width(state.text)-2, 0)
	whole = width(subject) <= room
	if subject = truncate(subject, room); subject != "" {
		subject = "  " + subject
	}
	gap := max(p.Width-2-width(name)-width(subject)-width(state.text), 2)
	p.line(span{"▸ ", p.call}, span{name, p.call}, span{subject + strings.Repeat(" ", gap), p.plain}, state)
	return whole
}

func (p *printer) tool(doc *document.Document, part *document.Part) {
	c := part.Tool
	subject, rest := document.Subject(c.Input)
	if !p.callLine(c.Name, subject, p.outcome(c)) {
		rest = c.Input
	}
	four := span{"    ", p.plain}
	if text := document.Value(rest); text != "" && text != "{}" {
		p.block(four, text, p.dim, p.Lines)
	}
	if c.InputWithheld {
		p.line(four, span{"the input is not reported", p.dim})
	}
	bar := span{"  │ ", p.rule}
	p.decisions(c)
	if c.Stub {
		p.line(bar, span{"input and output never arrived", p.warn})
		if c.State != "" {
			p.line(bar, span{"the turn saw it as " + document.OneLine(c.State), p.dim})
		}
	}
	if c.PartialOutput != nil {
		p.hanging(bar, bar, document.Value(c.PartialOutput), p.plain, p.Lines)
	}
	if c.Withheld {
		p.line(bar, span{"its output is not reported", p.dim})
	}
	if c.Output != nil {
		p.hanging(bar, bar, cmp.Or(strings.TrimRight(outputText(c.Output), "\n "), "(empty)"), p.plain, p.Lines)
	}
	if c.Error != "" {
		p.hanging(bar, bar, c.Error, p.bad, p.Lines)
	} else if c.State == session.StateOutputError {
		p.line(bar, span{cmp.Or(document.OneLine(c.ErrorType), "(no message)"), p.bad})
	}
	if text := c.CutWords(); text != "" {
		p.block(span{"  ✂ ", p.warn}, text, p.warn, 0)
	}
	if c.ChildSessionID != "" {
		text := document.Sanitize(c.ChildSessionID)
		if doc != nil {
			if i := slices.IndexFunc(doc.Children, func(x document.Child) bool {
				return x.SessionID == c.ChildSessionID
			}); i >= 0 {
				text = document.Join(text, doc.Children[i].Words())
			}
		}
		p.block(span{"  ↳ ", p.accent}, text, p.plain, 0)
	}
	p.problems(c.Problems)
}

// decisions prints who let the call pass, or did not.
func (p *printer) decisions(c *document.ToolCall) {
	for i := range c.Decisions {
		p.decision("  ◇ ", &c.Decisions[i], "", p.dim, p.Lines)
	}
	if c.Approval != nil && len(c.Decisions) == 0 {
		text := cmp.Or(document.ApprovalText(c.Approval), "approval asked for")
		p.block(span{"  ◇ ", p.dim}, text, p.dim, p.Lines)
	}
}

// decision prints a decision, in the paint if it lets the call pass.
func (p *printer) decision(mark string, d *document.Decision, tool string, good paint, limit int) {
	text, allowed := document.DecisionText(d)
	if !allowed {
		good = p.warn
	}
	p.block(span{mark, good}, document.Join(tool, text), good, limit)
}

func activeRules(c *document.ToolCall) string {
	rules := make([]string, len(c.ActiveRules))
	for i := range c.ActiveRules {
		rules[i] = document.RuleWords(&c.ActiveRules[i])
	}
	return strings.Join(rules, ", ")
}

// outputText is [document.Value] of what a tool returned. Of an object that has its text
// under the key "output" that comes first: what else it reports is about the text.
func outputText(raw json.RawMessage) string {
	keys, values, ok := document.Object(raw)
	at := slices.Index(keys, "output")
	if !ok || at < 0 {
		return document.Value(raw)
	}
	text := ""
	if json.Unmarshal(values[at], &text) != nil || strings.TrimSpace(text) == "" {
		return document.Value(raw)
	}
	lines := []string{strings.TrimRight(text, "\n")}
	for i, key := range keys {
		if i == at {
			continue
		}
		if rest, err := json.Marshal(map[string]json.RawMessage{key: values[i]}); err == nil {
			lines = append(lines, document.Value(rest))
		}
	}
	return strings.Join(lines, "\n")
}
