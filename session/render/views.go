package render

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
)

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
