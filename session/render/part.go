package render

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strconv"
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
	empty := m.Trigger == nil
	for _, part := range m.Parts {
		said := part.Text != "" || part.Kind != document.KindText
		if empty = empty && !said; part.Kind == document.KindText {
			if said {
				p.block(lead, part.Text, p.plain, textFactor*p.Lines)
				lead = span{"  ", p.plain}
			}
			p.annotations("  ", part.Annotations)
			continue
		}
		p.part(nil, m, part)
	}
	if empty {
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
	for _, text := range otherErrors(m) {
		p.block(span{"⚠  ", p.warn}, "model call: "+text, p.warn, p.Lines)
	}
	p.ending(m)
	p.problems(m.Problems)
}

// otherErrors are the errors of model calls that neither the steps of a message show nor its end, such as those of
// calls that succeeded in another attempt.
func otherErrors(m *document.Message) []string {
	rest := slices.DeleteFunc(slices.Clone(m.ModelErrors), func(text string) bool { return text == m.Error })
	calls, known := m.StepCalls()
	for _, part := range m.Parts {
		for i := 0; known && part.Step > 0 && i < len(calls[part.Step-1]); i++ {
			if at := slices.Index(rest, calls[part.Step-1][i].Error); at >= 0 {
				rest = slices.Delete(rest, at, at+1)
			}
		}
	}
	return rest
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
		p.block(span{indent + "⚑ ", p.accent}, text, p.plain, p.Lines)
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

// Prompts prints every system prompt in full, with the turns that had it.
func Prompts(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	for i, s := range doc.SystemPrompts {
		if i > 0 {
			p.blank()
		}
		p.header("─", span{"Prompt " + document.Sanitize(document.Short(s.Digest)), p.title}, span{},
			document.Turns(s.Turns), document.Bytes(int64(len(s.Body))))
		p.line(span{"sha256 " + document.Sanitize(s.Digest), p.dim})
		p.blank()
		if p.arrived(s.Resolved, s.Damaged); s.Resolved {
			p.block(span{}, s.Body, p.plain, 0)
		}
	}
	if len(doc.SystemPrompts) == 0 {
		p.line(span{"no turn reports its system prompt", p.dim})
	}
	return p.writeTo(w)
}

// arrived prints what became of a prompt or a catalog on its way.
func (p *printer) arrived(resolved, damaged bool) {
	switch {
	case !resolved:
		p.block(span{"◌ ", p.warn}, "unresolved: no span that had it has arrived", p.warn, 0)
	case damaged:
		p.block(span{"! ", p.warn}, "damaged on the way: it has another digest", p.warn, 0)
	}
}

// Tools prints which tools were available and which were called, turn by turn.
func Tools(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	for _, c := range doc.ToolCatalogs {
		p.header("─", span{"Catalog " + document.Sanitize(document.Short(c.Digest)), p.title}, span{},
			document.Turns(c.Turns), document.Plural(len(c.Tools), "tool", "tools"))
		p.arrived(c.Resolved, c.Damaged)
		widest := 0
		for _, t := range c.Tools {
			widest = max(widest, width(document.OneLine(t.Name)))
		}
		widest = min(widest, p.Width/3)
		indent := span{strings.Repeat(" ", widest+4), p.plain}
		for _, t := range c.Tools {
			name := span{"  " + pad(truncate(document.OneLine(t.Name), widest), widest) + "  ", p.call}
			p.block(name, cmp.Or(t.Description, absent), p.plain, p.Lines)
			if takes := parameters(t.InputSchema); takes != "" {
				p.block(indent, takes, p.dim, p.Lines)
			}
		}
		p.blank()
	}
	p.header("─", span{"Calls", p.title}, span{})
	indent := 12
	for _, t := range doc.Turns {
		indent = max(indent, 2+width(turnLabel("turn ", t))+2)
	}
	for _, t := range doc.Turns {
		line := cmp.Or(phrases.Text("tools", &t.Tools), "none called")
		if t.Tools.CatalogDigest == "" {
			line += " (what was available is not known)"
		}
		for _, c := range t.Tools.Called {
			if c.Failed > 0 {
				line += ", " + toolName(c.Name) + " failed " + strconv.Itoa(c.Failed) + "×"
			}
		}
		p.fieldAt(indent, turnLabel("turn ", t), line)
	}
	return p.writeTo(w)
}

func turnLabel(name string, t *document.Turn) string {
	if name += strconv.Itoa(t.Number); t.Hidden {
		name += " (rewound)"
	}
	return name
}

// parameters lists what a JSON Schema of an object has, in its order: each name, with a question mark where it may be
// left out.
func parameters(schema json.RawMessage) string {
	var s struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // what is none has nothing
	names, _, _ := document.Object(s.Properties)
	for i, name := range names {
		if !slices.Contains(s.Required, name) {
			names[i] += "?"
		}
	}
	return strings.Join(names, ", ")
}

// Permissions prints for each tool call the decisions about it, the session's rules that were in force where they are
// not those of the call before, and the decisions about no call that is known.
func Permissions(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	p.header("─", span{"Rules of the session", p.title}, span{},
		document.Plural(len(doc.Session.Rules), "rule", "rules"))
	for _, r := range doc.Session.Rules {
		line := document.RuleWords(&r)
		if r.AddedAt > 0 {
			line += ", since " + p.moment(r.AddedAt)
		}
		p.line(span{"  " + line, p.plain})
	}
	previousRules, printed := "", 0
	for t, m := range doc.Messages() {
		for _, c := range m.ToolCalls() {
			if t.Number != printed {
				p.blank()
				p.header("─", span{turnLabel("Turn ", t), p.title}, span{})
				printed = t.Number
			}
			p.permission(c, &previousRules)
		}
	}
	rest := doc.OtherDecisions()
	if len(rest) > 0 {
		p.blank()
		p.header("─", span{"About no call of the session", p.title}, span{})
		for i := range rest {
			text, _ := document.DecisionText(&rest[i])
			p.hanging(span{"  ", p.plain}, span{"    ", p.plain}, rest[i].ToolID+": "+text, p.plain, 0)
		}
	}
	return p.writeTo(w)
}

func (p *printer) permission(c *document.ToolCall, previousRules *string) {
	text := strings.TrimSpace(toolName(c.Name) + "  " + document.OneLine(c.Subject()))
	p.block(span{"▸ ", p.call}, text, p.plain, 2)
	four := span{"    ", p.plain}
	for i := range c.Decisions {
		p.decision("  ◇ ", &c.Decisions[i], "", p.good, 0)
	}
	if len(c.Decisions) == 0 {
		text := cmp.Or(document.ApprovalText(c.Approval), "no decision is recorded")
		p.block(span{"  ◇ ", p.dim}, text, p.dim, 0)
	}
	if text := cmp.Or(activeRules(c), "none"); text != *previousRules {
		*previousRules = text
		p.block(four, "session rules from here: "+text, p.dim, 0)
	}
}

// Provenance prints the spans that the session was made from.
func Provenance(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	if len(doc.Spans) == 0 {
		p.block(span{},
			"no spans are recorded: the session was not made from telemetry, or another program wrote the store", p.dim, 0)
	}
	where := map[string]string{}
	for t, m := range doc.Messages() {
		where[m.ID] = "turn " + strconv.Itoa(t.Number)
		for part, c := range m.ToolCalls() {
			where[part.ID] = where[m.ID] + ", " + document.OneLine(c.Name)
		}
	}
	kinds := 0
	for _, s := range doc.Spans {
		kinds = max(kinds, len(document.OneLine(s.Kind)))
	}
	for _, trace := range doc.Traces {
		p.header("─", span{"Trace " + document.Sanitize(trace), p.title}, span{})
		for _, s := range doc.Spans {
			if s.TraceID != trace {
				continue
			}
			mark := span{"  ", p.plain}
			if s.Error {
				mark = span{"✗ ", p.bad}
			}
			p.line(mark, span{document.Sanitize(s.SpanID) + "  ", p.accent},
				span{padLeft("+"+document.Duration((s.StartNano-doc.Spans[0].StartNano)/1e6), 8) + "  ", p.dim},
				span{padLeft(document.Duration((s.EndNano-s.StartNano)/1e6), 7) + "  ", p.plain},
				span{pad(document.OneLine(s.Kind), kinds) + "  ", p.plain},
				span{document.Join(cmp.Or(where[s.PartID], where[s.MessageID]), document.OneLine(s.Dialect)), p.dim})
		}
	}
	return p.writeTo(w)
}

// Errors prints the tool calls that failed or were denied, and the errors of model calls and turns, each with where it
// is: see [session.Failures].
func Errors(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	printed := 0
	head := func(t *document.Turn) {
		if printed != 0 {
			p.blank()
		}
		if printed != t.Number {
			p.header("─", span{turnLabel("Turn ", t), p.title}, p.did(string(t.State)))
		}
		printed = t.Number
	}
	for t, m := range doc.Messages() {
		for part, c := range m.ToolCalls() {
			if c.Failed() || c.Denied {
				head(t)
				p.tool(doc, part)
				p.infoLines("    ", p.clock(part.CreatedAt), "part "+document.Sanitize(part.ID), spanOf(doc, part.ID))
			}
		}
		errors := m.ModelErrors
		if errors == nil && m.Failures() > 0 {
			errors = []string{cmp.Or(m.Error, "ended by an error")}
		}
		for _, text := range errors {
			head(t)
			p.block(span{"✗ ", p.bad}, text, p.bad, p.Lines)
			p.infoLines("    ", p.clock(m.CreatedAt), "message "+document.Sanitize(m.ID))
		}
		if m == t.Messages[len(t.Messages)-1] {
			for _, text := range t.FailedCompactions {
				head(t)
				p.block(span{"✗ ", p.bad}, "compaction failed: "+text, p.bad, p.Lines)
			}
		}
	}
	if printed == 0 {
		p.line(span{"nothing failed, and nothing was denied", p.dim})
	}
	return p.writeTo(w)
}

func spanOf(doc *document.Document, partID string) string {
	i := slices.IndexFunc(doc.Spans, func(s document.Span) bool { return s.PartID == partID })
	if i < 0 {
		return ""
	}
	return "span " + document.Sanitize(doc.Spans[i].SpanID) + " of trace " + document.Sanitize(doc.Spans[i].TraceID)
}

// Changes prints what the model of a turn, or with 0 of every turn, was given otherwise than in the turn before.
func Changes(w io.Writer, doc *document.Document, turn int, o Options) error {
	p := newPrinter(o)
	dp := &diffPrinter{printer: p, unified: p.Width < SideBySide}
	for t, changes := range doc.ContextChanges() {
		if len(changes) == 0 || turn != 0 && t.Number != turn {
			continue
		}
		if p.b.Len() > 0 {
			p.blank()
		}
		p.header("─", span{turnLabel("Turn ", t), p.title}, span{}, document.Plural(len(changes), "change", "changes"))
		for i := range changes {
			dp.change(&changes[i])
		}
	}
	if p.b.Len() == 0 {
		p.line(span{"no turn reports another system prompt or other tools than the turn before", p.dim})
	}
	return p.writeTo(w)
}

// Tokens prints the table of tokens alone.
func Tokens(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	p.usageTable(doc)
	return p.writeTo(w)
}

// Eligibility prints which turns can be rerun, and what is missing of the others.
func Eligibility(w io.Writer, r *document.Eligibility, o Options) error {
	p := newPrinter(o)
	shown, good := 0, 0
	widest := len("MODEL")
	for _, t := range r.Turns {
		if !t.Hidden || p.Full {
			shown++
			widest = max(widest, width(turnModel(t)))
			if t.Eligible {
				good++
			}
		}
	}
	widest = min(widest, p.Width/3)
	mark, is := span{"✓ ", p.good}, "replay-eligible"
	if good < shown || shown == 0 {
		mark, is = span{"✗ ", p.bad}, "not replay-eligible"
	}
	p.line(mark, span{is, p.title}, span{": all that the model was given is known for " +
		strconv.Itoa(good) + " of " + document.Plural(shown, "turn", "turns"), p.plain})
	if shown > 0 {
		p.blank()
		p.line(span{"TURN  " + pad("MODEL", widest) + "  GIVEN", p.title})
	}
	for _, t := range r.Turns {
		if !t.Hidden || p.Full {
			p.turnReplay(t, widest)
		}
	}
	if hidden := len(r.Turns) - shown; hidden > 0 {
		p.line(span{"      " + document.Plural(hidden, "rewound turn", "rewound turns") + " left out (--full)", p.dim})
	}
	return p.writeTo(w)
}

func turnModel(r *document.TurnEligibility) string {
	return cmp.Or(document.FullModelName(r.Model), absent)
}

func (p *printer) turnReplay(t *document.TurnEligibility, widest int) {
	given := document.Plural(t.Context, "message", "messages")
	if t.Compacted {
		given = "summary + " + document.Plural(t.Context-1, "message", "messages")
	}
	if t.Hidden {
		given += " (rewound)"
	}
	state := span{"✓", p.good}
	if !t.Eligible {
		state = span{"✗", p.bad}
	}
	p.line(span{padLeft(strconv.Itoa(t.Turn), 4) + "  " + pad(truncate(turnModel(t), widest), widest) + "  ", p.plain},
		state, span{" " + given, p.plain})
	for _, m := range t.Missing {
		why := document.Sanitize(m.Why)
		if m.ToolCallID != "" {
			why += " (" + document.Sanitize(m.ToolCallID) + ")"
		}
		lead := pad(strings.ReplaceAll(m.What, "_", " "), 13)
		p.block(span{"      " + lead + "  ", p.warn}, why, p.plain, 0)
	}
	for _, n := range t.Notes {
		p.block(span{"      note           ", p.dim}, n, p.dim, 0)
	}
}
