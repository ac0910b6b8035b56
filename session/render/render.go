// Package render shows sessions to people: at a terminal, as pages of HTML and as Markdown. What things are called is
// decided in package document; here they are laid out.
//
// For a terminal it prints a session, a list, a diff, figures, and news as they arrive. Each function takes the width
// to fill and prints no wider line, and nothing that comes from a session reaches the terminal unsanitized.
//
// [Markdown] and [HTML] write transcripts, for an issue or a review and in one file that can be sent to anybody: every
// turn, message and tool call, decisions, compactions, errors and a table of tokens. They are exports only, and lose
// what a reader does not look at: ids of parts, traces, metadata of the host. [HTMLDiff] has two sessions side by side.
//
// Reasoning, and the input and output of tools, are folded with <details>, which GitHub, GitLab and most viewers of
// Markdown know, and are cut where they are long.
//
// The HTML file loads nothing and runs nothing: its style is in it, there is no script, and a content security policy
// forbids both. It is light or dark as its reader's system is, fits a phone, and prints. Images that were sent or
// that a tool returned are in it. Markdown loads no image, and GitHub notifies nobody.
//
// What people and models wrote is shown with its Markdown; parseText decides what of it may be more than words:
//
//   - HTML is text. So are definitions of links, which would hold for other texts too.
//   - A link leads to http, https or mailto, and opens without a referrer. Of another one its words and its address
//     are left.
//   - An image is a link to it, and is not loaded.
//   - Characters that an entity stands for are fit to be shown, as all others are.
//   - Headings are below those of the transcript, and in Markdown nothing reaches beyond its quotation.
//
// All else that comes from the session is text: tools' input and output, prompts, errors.
package render

import (
	"cmp"
	_ "embed"
	"io"
	"strconv"
	"strings"
	"text/template"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// Document prints the document for a person. All that comes from the session is sanitized: see [document.Sanitize].
func Document(w io.Writer, doc *document.Document, o Options) error {
	p := newPrinter(o)
	p.head(doc)
	for i := 0; i < len(doc.Turns); i++ {
		t := doc.Turns[i]
		p.blank()
		for _, text := range t.Gaps() {
			p.block(span{"… ", p.warn}, text, p.warn, 0)
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
		p.turn(doc, t)
	}
	if len(doc.Queued) > 0 {
		p.blank()
		p.header("─", span{"Queued", p.title}, span{})
		for _, m := range doc.Queued {
			p.queued(m)
		}
	}
	p.blank()
	p.usageTable(doc)
	return p.writeTo(w)
}

func (p *printer) head(doc *document.Document) {
	s := &doc.Session
	for _, l := range wrap(document.OneLine(document.Name(s.Title, s.Opening)), p.Width) {
		p.line(span{l, p.title})
	}
	p.headline(doc)
	if s.Error != "" {
		p.block(span{"✗ ", p.bad}, s.Error, p.bad, p.Lines)
	}
	p.blank()
	p.fields(doc)
	p.notices(doc.Notices)
}

func (p *printer) headline(doc *document.Document) {
	s := &doc.Session
	state := p.did(string(s.State))
	if a := doc.Status.State; a != document.ActivityIdle &&
		(a != document.ActivityError || s.State == document.StateUnknown) && a != document.ActivityUnknown {
		state = p.did(string(a))
	}
	t := &doc.Totals
	summary := []string{
		document.OneLine(s.Agent), document.Plural(t.Turns, "turn", "turns"),
		counted(t.ToolCalls, "tool call") + t.Failures(), counted(t.Errors, "error"), document.OptionalDuration(t.DurationMS),
		spent(t.Usage, total(t.CostUSD, t.Unpriced), total(t.EstimatedCostUSD, t.Unpriced)),
	}
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

func (p *printer) fields(doc *document.Document) {
	for i, f := range (document.Words{Zone: p.Location}).About(&doc.Session) {
		p.field(strings.ToLower(f.Name), f.Value)
		if a := doc.Status.State; i == 0 && a != document.ActivityIdle && a != document.ActivityError &&
			a != document.ActivityUnknown {
			p.field("status", p.statusLine(&doc.Status))
		}
	}
	about := struct {
		*document.Document
		Full bool
	}{doc, p.Full}
	for _, f := range phrases.Fields("fields", about) {
		p.field(f.Name, f.Value)
	}
}

// field prints a fact with its name. The value is sanitized; several of one name are below each other.
func (p *printer) field(name, value string) {
	if value != "" {
		p.fieldAt(12, name, value)
	}
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

// folded is one line for turns that a rewind hid.
func (p *printer) folded(turns []*document.Turn) {
	messages, calls := 0, 0
	var at int64
	var numbers []int
	for _, t := range turns {
		messages += len(t.Messages)
		for _, m := range t.Messages {
			at = max(at, session.Deref(m.HiddenAt))
		}
		calls += len(t.ToolCalls())
		numbers = append(numbers, t.Number)
	}
	p.header("┄", span{"⟲ " + document.Capital(document.Turns(numbers)) + " rewound", p.warn}, span{},
		document.Plural(messages, "message", "messages"), counted(calls, "tool call"), p.clock(at), "--full")
}

func counted(n int, one string) string {
	if n == 0 {
		return ""
	}
	return document.Plural(n, one, one+"s")
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

func (p *printer) turn(doc *document.Document, t *document.Turn) {
	p.header("─", span{turnLabel("Turn ", t), p.title}, p.did(string(t.State)), document.OptionalDuration(t.DurationMS),
		document.Tokens(t.Usage),
		document.Cost(total(t.CostUSD, t.Unpriced), total(t.EstimatedCostUSD, t.Unpriced)),
		document.OneLine(t.StopReason))
	p.turnFacts(doc, t)
	p.annotations("   ", t.Annotations)
	if t.QuestionMissing {
		p.blank()
		p.line(span{"◌ its question never arrived", p.warn})
	}

	isFolded := func(m *document.Message) bool {
		return m.HiddenAt != nil && !p.Full && !t.Hidden && m.Role != session.RoleUser
	}
	answered := false
	var at int64 // when the first of several messages was hidden that are one line, and how many calls they have
	calls := 0
	for i, m := range t.Messages {
		answered = answered || m.Role != session.RoleUser && m.Compaction == nil
		if isFolded(m) {
			at = cmp.Or(at, *m.HiddenAt)
			for range m.ToolCalls() {
				calls++
			}
			if i+1 == len(t.Messages) || !isFolded(t.Messages[i+1]) {
				p.blank()
				p.line(span{document.Join("⟲ answer rewound "+p.clock(at), counted(calls, "tool call")) + " (--full)", p.warn})
				at, calls = 0, 0
			}
			continue
		}
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
			p.assistant(doc, m)
		default:
			p.line(span{document.OneLine(m.Role), p.dim})
			p.message(m, span{"# ", p.dim})
		}
	}
	if !answered {
		p.blank()
		p.line(span{"◌ no answer", p.warn})
	}
}

//go:embed words.tmpl
var wordsFile string

var phrases = document.NewPhrases(wordsFile, template.FuncMap{
	"rule": document.RuleWords, "value": document.Value, "percent": percent, "dollars": document.Dollars,
})

func toolName(name string) string { return cmp.Or(document.OneLine(name), document.Unnamed) }

func (p *printer) turnFacts(doc *document.Document, t *document.Turn) {
	about := struct {
		*document.Turn
		FailedCalls int
		Prompt      *document.SystemPrompt
	}{Turn: t, Prompt: doc.Prompt(t.SystemPromptDigest)}
	for _, m := range t.Messages {
		for _, c := range m.Calls {
			if c.Failed {
				about.FailedCalls++
			}
		}
	}
	p.infoLines("   ", phrases.Facts("turn", about)...)
}

func (p *printer) notices(notices []session.Notice) {
	if len(notices) == 0 {
		return
	}
	const maximum = 5
	p.blank()
	p.line(span{"! " + document.Plural(len(notices), "notice", "notices"), p.warn},
		span{": valid, and may not be what happened", p.dim})
	shown := len(notices)
	if !p.Full {
		shown = min(shown, maximum)
	}
	indent := span{"    ", p.plain}
	for i := range notices[:shown] {
		n := notices[i]
		if n.Turn > 0 {
			n.MessageID = "" // the turn is below
		}
		p.hanging(span{"  ", p.plain}, indent,
			document.OneLine(cmp.Or(n.Where(), "session"))+": "+document.OneLine(n.Detail), p.plain, 0)
		p.block(indent, document.OneLine(n.Remedy), p.dim, 0)
	}
	if more := len(notices) - shown; more > 0 {
		p.line(span{"  … " + strconv.Itoa(more) + " more (--full)", p.dim})
	}
}
