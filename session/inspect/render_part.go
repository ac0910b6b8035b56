package inspect

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// textFactor is how much longer than an output a text may be.
const textFactor = 5

// message prints what a user or the host said.
func (p *printer) message(m *Message, lead span) {
	if t := m.Trigger; t != nil {
		p.infoLines("  ", "triggered by "+oneLine(t.Source), oneLine(t.ScheduleID), oneLine(t.DeliveryID))
	}
	for i := range m.Parts {
		part := &m.Parts[i]
		if part.Kind == KindText {
			p.block(lead, span{"  ", p.plain}, part.Text, p.plain, textFactor*p.Lines)
			lead = span{"  ", p.plain}
			continue
		}
		p.part(nil, m, part, nil)
	}
	if len(m.Parts) == 0 {
		p.line(lead, span{"(empty)", p.dim})
	}
	p.problems(m.Problems)
}

// assistant prints an answer and how it ended.
func (p *printer) assistant(tl *Timeline, m *Message, previousRules *string) {
	if m.Agent != "" && m.Agent != tl.Session.Agent {
		p.infoLines("  ", "agent "+oneLine(m.Agent))
	}
	for i := range m.Parts {
		if i > 0 && !(m.Parts[i-1].Kind == KindStep && m.Parts[i-1].Step == 1) && p.apart(&m.Parts[i-1], &m.Parts[i]) {
			p.blank()
		}
		p.part(tl, m, &m.Parts[i], previousRules)
	}
	if len(m.Parts) == 0 && m.State != StateIncomplete {
		p.line(span{"  (empty)", p.dim})
	}
	p.ending(m)
	p.problems(m.Problems)
}

// apart says whether a blank line helps between two parts. Tool calls without
// anything below them stand together.
func (p *printer) apart(before, after *Part) bool {
	if after.Kind == KindStep && after.Step == 1 {
		return false
	}
	return !(slices.Contains([]Kind{KindFile, KindSource}, before.Kind) && before.Kind == after.Kind)
}

// ending says how a message ended, where that is not simply well.
func (p *printer) ending(m *Message) {
	var mark, text string
	paint := p.warn
	switch m.State {
	case StateAborted:
		mark, text = "■ ", "aborted: this is where it stopped"
	case StateError:
		mark, text, paint = "✗ ", cmp.Or(m.Error, "ended by an error"), p.bad
	case StateWaiting:
		mark, text = "? ", "waiting for a human"
	case StateIncomplete:
		mark, text = "◌ ", "incomplete: the span of the whole turn has not arrived; it is still running, or its end was lost"
	default:
		return
	}
	p.blank()
	p.block(span{mark, paint}, span{"  ", p.plain}, text, paint, p.Lines)
}

func (p *printer) problems(problems []string) {
	for _, problem := range problems {
		p.block(span{"! ", p.warn}, span{"  ", p.plain}, problem, p.warn, p.Lines)
	}
}

// part prints one part. tl and previousRules are nil where no calls are
// expected.
func (p *printer) part(tl *Timeline, m *Message, part *Part, previousRules *string) {
	indent := span{"  ", p.plain}
	switch part.Kind {
	case KindText:
		p.block(span{"● ", p.plain}, indent, cmp.Or(part.Text, "(empty)"), p.plain, textFactor*p.Lines)
	case KindReasoning:
		p.block(span{"∴ ", p.reasoning}, indent, cmp.Or(part.Text, "(reasoning is not shown by the provider)"), p.reasoning, p.Lines)
	case KindTool:
		p.tool(tl, part, previousRules)
	case KindStep:
		p.step(m, part.Step)
	case KindFile:
		f := part.File
		facts := []string{oneLine(cmp.Or(f.Name, f.URL, "unnamed")), oneLine(f.MediaType)}
		if f.Size != nil {
			facts = append(facts, byteSize(int64(*f.Size)))
		}
		p.line(span{"▤ ", p.accent}, span{joined(facts), p.plain})
	case KindSource:
		s := part.Source
		p.line(span{"↗ ", p.accent}, span{joined([]string{oneLine(s.Title), oneLine(cmp.Or(s.URL, s.Name)), oneLine(s.ID)}), p.plain})
	default:
		name := cmp.Or(strings.TrimPrefix(part.Type, "data-"), "unreadable part")
		text := valueText(part.Data)
		between := " "
		if strings.Contains(text, "\n") {
			between = "\n"
		}
		p.block(span{"◦ ", p.accent}, indent, name+":"+between+text, p.plain, p.Lines)
	}
	switch {
	case part.Truncated:
		p.line(span{"  … the rest was lost on the way", p.warn})
	case part.Streaming && m.State == StateIncomplete:
		p.line(span{"  … more was to come", p.dim})
	}
}

func joined(facts []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(facts), func(s string) bool { return s == "" }), " · ")
}

// stepCalls are the model calls of a step, in order, or none if those that are
// known cannot be told apart: either every call began a step, or those that
// failed were tried again within theirs.
func stepCalls(m *Message, n int) []ModelCall {
	steps := 0
	for i := range m.Parts {
		steps = max(steps, m.Parts[i].Step)
	}
	if steps == len(m.Calls) {
		return m.Calls[n-1 : n]
	}
	var ends []int // after each call that did not fail
	for i := range m.Calls {
		if !m.Calls[i].Failed {
			ends = append(ends, i+1)
		}
	}
	switch {
	case steps != len(ends):
		return nil
	case n == 1:
		return m.Calls[:ends[0]]
	}
	return m.Calls[ends[n-2]:ends[n-1]]
}

// step prints the boundary of a step, and what its model calls took.
func (p *printer) step(m *Message, n int) {
	calls := stepCalls(m, n)
	failed := slices.ContainsFunc(calls, func(c ModelCall) bool { return c.Failed })
	if n == 1 && !p.Full && !failed {
		return
	}
	facts, paint := []string{"step " + count(int64(n))}, p.dim
	for i := range calls {
		c := &calls[i]
		if c.Failed {
			facts, paint = append(facts, "model call failed after "+duration(c.DurationMS)), p.warn
		} else {
			facts = append(facts, duration(c.DurationMS))
		}
		if c.Usage != nil {
			facts = append(facts, brief(c.Usage.Total())+" tokens")
		}
	}
	p.block(span{"╌╌ ", paint}, span{"   ", p.plain}, joined(facts), paint, 0)
	for i := range calls {
		if text := m.modelError(&calls[i]); text != "" {
			p.block(span{"✗  ", p.bad}, span{"   ", p.plain}, text, p.bad, p.Lines)
		}
	}
}

// modelError is the error of one of the message's calls, if it is known which of
// the errors that is.
func (m *Message) modelError(c *ModelCall) string {
	at, failed := -1, 0
	for i := range m.Calls {
		if !m.Calls[i].Failed {
			continue
		}
		if m.Calls[i].SpanID == c.SpanID && m.Calls[i].TraceID == c.TraceID {
			at = failed
		}
		failed++
	}
	if at < 0 || failed != len(m.ModelErrors) {
		return ""
	}
	return m.ModelErrors[at]
}

func (p *printer) compaction(m *Message) {
	c := m.Compaction
	kind := "on request"
	if c.Auto {
		kind = "automatic"
	}
	facts := []string{kind}
	if c.SummarizedMessages > 0 {
		facts = append(facts, plural(int(c.SummarizedMessages), "message", "messages")+" → "+count(c.SummaryTokens)+" tokens in context")
	} else if c.SummaryTokens > 0 && c.ContextBefore > 0 {
		facts = append(facts, "context "+count(c.ContextBefore)+" → "+count(c.SummaryTokens)+" tokens")
	} else if c.SummaryTokens > 0 {
		facts = append(facts, count(c.SummaryTokens)+" tokens in context")
	}
	if c.DurationMS != nil {
		facts = append(facts, duration(*c.DurationMS))
	}
	label := "Compacted"
	if m.HiddenAt != nil {
		label += " (rewound)"
	}
	p.header("┄", span{label, p.accent}, span{}, facts...)
	if c.Summary != "" {
		p.block(span{"  ", p.plain}, span{"  ", p.plain}, c.Summary, p.dim, p.Lines)
	}
	for i := range m.Parts {
		p.part(nil, m, &m.Parts[i], nil)
	}
	p.problems(m.Problems)
}

// outcome is the mark and the word for how a call stands.
func (p *printer) outcome(c *ToolCall) span {
	text, paint := "", p.warn
	switch {
	case c.Stub:
		text = "◌ lost"
	case c.Denied:
		text = "⊘ denied"
	case c.State == session.StateOutputAvailable:
		text, paint = "✓", p.good
	case c.State == session.StateOutputError:
		text, paint = "✗ failed", p.bad
	case c.State == session.StateApprovalRequested:
		text = "? waits for approval"
	case c.State == session.StateApprovalResponded:
		text = "◌ approved, no result"
	case c.State == session.StateInputStreaming:
		text = "◌ input unfinished"
	default:
		text = "◌ no result"
	}
	if c.DurationMS != nil {
		text += " " + duration(*c.DurationMS)
	}
	return span{text, paint}
}

func (p *printer) tool(tl *Timeline, part *Part, previousRules *string) {
	c := part.Tool
	name := oneLine(cmp.Or(c.Name, unnamed))
	status := p.outcome(c)
	subject, rest := subject(c.Input)
	subject = oneLine(subject)
	room := p.Width - 2 - width(name) - 2 - width(status.text) - 2
	if width(subject) > room {
		_, rest = "", c.Input
		subject = truncate(subject, max(room, 0))
	}
	left := 2 + width(name)
	if subject != "" {
		left += 2 + width(subject)
	}
	gap := max(p.Width-left-width(status.text), 2)
	spans := []span{{"▸ ", p.call}, {name, p.call}}
	if subject != "" {
		spans = append(spans, span{"  ", p.plain}, span{subject, p.plain})
	}
	p.line(append(spans, span{strings.Repeat(" ", gap), p.plain}, status)...)

	four := span{"    ", p.plain}
	if text := valueText(rest); text != "" && text != "{}" {
		p.block(four, four, text, p.dim, p.Lines)
	}
	if c.InputWithheld {
		p.line(four, span{"the input is not reported", p.dim})
	}
	bar := span{"  │ ", p.rule}
	p.decisions(c, previousRules)
	if c.Stub {
		p.line(bar, span{"input and output never arrived", p.warn})
		if c.State != "" {
			p.line(bar, span{"the turn saw it as " + oneLine(c.State), p.dim})
		}
	}
	if c.PartialOutput != nil {
		p.block(bar, bar, valueText(c.PartialOutput), p.plain, p.Lines)
	}
	if c.Withheld {
		p.line(bar, span{"what it answered is not told", p.dim})
	}
	if c.Output != nil {
		p.block(bar, bar, cmp.Or(strings.TrimRight(outputText(c.Output), "\n "), "(empty)"), p.plain, p.Lines)
	}
	if c.Error != "" {
		p.block(bar, bar, c.Error, p.bad, p.Lines)
	} else if c.State == session.StateOutputError {
		p.line(bar, span{cmp.Or(oneLine(c.ErrorType), "(no message)"), p.bad})
	}
	if c.Truncated {
		text := "cut for the model"
		if c.OutputSize > 0 {
			text += ", " + byteSize(c.OutputSize) + " in all"
		}
		if c.OutputPath != "" {
			text += ": " + oneLine(c.OutputPath)
		}
		p.block(span{"  ✂ ", p.warn}, four, text, p.warn, 0)
	}
	if c.ChildSessionID != "" {
		text := Sanitize(c.ChildSessionID)
		if tl != nil {
			if i := slices.IndexFunc(tl.Children, func(x Child) bool { return x.SessionID == c.ChildSessionID }); i >= 0 {
				text = childLine(&tl.Children[i])
			}
		}
		p.block(span{"  ↳ ", p.accent}, four, text, p.plain, 0)
	}
	p.problems(c.Problems)
}

// decisions prints who let the call pass, or did not, and the session's rules
// where they are not those of the call before.
func (p *printer) decisions(c *ToolCall, previousRules *string) {
	four := span{"    ", p.plain}
	if previousRules != nil {
		lines := make([]string, len(c.ActiveRules))
		for i := range c.ActiveRules {
			lines[i] = ruleLine(&c.ActiveRules[i])
		}
		rules := strings.Join(lines, ", ")
		if rules != *previousRules {
			*previousRules = rules
			p.block(span{"  ◇ ", p.dim}, four, "session rules: "+cmp.Or(rules, "none"), p.dim, p.Lines)
		}
	}
	for i := range c.Decisions {
		text, good := decisionLine(&c.Decisions[i])
		paint := p.dim
		if !good {
			paint = p.warn
		}
		p.block(span{"  ◇ ", paint}, four, text, paint, p.Lines)
	}
	if a := c.Approval; a != nil && len(c.Decisions) == 0 {
		text := "approval asked for"
		if a.Approved != nil {
			text = "approved"
			if !*a.Approved {
				text = "rejected"
			}
		}
		if a.Reason != "" {
			text += ": " + a.Reason
		}
		p.block(span{"  ◇ ", p.dim}, four, text, p.dim, p.Lines)
	}
}

// decisionLine tells a decision: what the rule said, what a human said to it,
// and what came of it.
func decisionLine(d *Decision) (text string, allowed bool) {
	rule := d.Action
	if d.Pattern != "" {
		rule += " " + d.Pattern
	}
	if d.Source != "" {
		rule += " (" + d.Source + ")"
	}
	if d.Reply != "" {
		rule += " → human said " + d.Reply
		if d.WaitedMS != nil {
			rule += " after " + duration(*d.WaitedMS)
		}
	}
	// What follows from the rule or the reply need not be said.
	follows := map[string]string{"allow": "allowed", "deny": "denied", "once": "allowed", "always": "allowed", "reject": "denied"}
	if d.Outcome != "" && follows[cmp.Or(d.Reply, d.Action)] != d.Outcome {
		rule += " → " + d.Outcome
	}
	if d.Reason != "" {
		rule += ": " + d.Reason
	}
	return rule, d.Outcome == "allowed" || d.Outcome == "" && d.Action == "allow"
}

// outputText is [valueText] of what a tool returned. Of an object that has its text
// under the key "output" that comes first: what else it says is about the text.
func outputText(raw json.RawMessage) string {
	keys, values, ok := object(raw)
	at := slices.Index(keys, "output")
	if !ok || at < 0 {
		return valueText(raw)
	}
	text := ""
	if json.Unmarshal(values[at], &text) != nil || strings.TrimSpace(text) == "" {
		return valueText(raw)
	}
	lines := []string{strings.TrimRight(text, "\n")}
	for i, key := range keys {
		if i == at {
			continue
		}
		if rest, err := json.Marshal(map[string]json.RawMessage{key: values[i]}); err == nil {
			lines = append(lines, valueText(rest))
		}
	}
	return strings.Join(lines, "\n")
}

// subjects are the keys of an input that say what a call is about, in the order
// in which they are preferred.
var subjects = []string{
	"command", "cmd", "path", "file_path", "filePath", "filename", "pattern", "query", "url", "description", "prompt", "name", "title", "q",
}

// subject finds what a call is about and what is left of the input besides.
func subject(input json.RawMessage) (string, json.RawMessage) {
	if len(input) == 0 || string(input) == "null" {
		return "", nil
	}
	keys, values, ok := object(input)
	if !ok {
		text := valueText(input)
		if strings.Contains(strings.TrimSpace(text), "\n") {
			return text, input
		}
		return text, nil
	}
	for _, want := range subjects {
		at := slices.Index(keys, want)
		if at < 0 {
			continue
		}
		var text string
		if json.Unmarshal(values[at], &text) != nil || strings.TrimSpace(text) == "" {
			continue
		}
		if strings.Contains(strings.TrimSpace(text), "\n") {
			return text, input
		}
		return text, without(keys, values, at)
	}
	if len(keys) == 1 {
		if text := valueText(values[0]); !strings.Contains(text, "\n") {
			return keys[0] + ": " + text, nil
		}
	}
	return "", input
}

// without rebuilds an object less one key.
func without(keys []string, values []json.RawMessage, at int) json.RawMessage {
	if len(keys) == 1 {
		return nil
	}
	b := []byte{'{'}
	for i := range keys {
		if i == at {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(keys[i])...), ':'), values[i]...)
	}
	return append(b, '}')
}
