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
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// Options state how things are printed. The zero value prints without color at 80 columns, with what is long cut short.
type Options struct {
	// Width is the number of columns to fill; 0 means 80, and less than 40 means 40. No line is wider.
	Width int
	// Color adds escape sequences of the 16 colors that users set for themselves.
	Color bool
	// Whole cuts and leaves out nothing of a table to fit the width: a program reads it.
	Whole bool
	// Full shows what is otherwise cut short or folded away.
	Full bool
	// Lines is how many lines of a tool's output are shown; 0 means 8. Reasoning
	// has as many, texts have five times as many.
	Lines int
	// Location is the time zone of times shown; nil means UTC.
	Location *time.Location
	// Prices is of when the prices are that costs are estimated with, such as "prices of
	// 2026-11-22"; "" if that is not known.
	Prices string
	// Now is what ages are counted from.
	Now time.Time
}

// paint is how text is printed.
type paint = ansi.Style

// palette is what is printed in which way. The zero palette has no colors.
type palette struct {
	plain, title, dim, reasoning, user, call, good, bad, warn, accent, rule paint
}

func newPalette(color bool) palette {
	if !color {
		return palette{}
	}
	s := ansi.NewStyle()
	return palette{
		title: s.Bold(), dim: s.Faint(), reasoning: s.Italic(true).Faint(), rule: s.ForegroundColor(ansi.BrightBlack),
		user: s.Bold().ForegroundColor(ansi.Cyan), call: s.Bold().ForegroundColor(ansi.Blue),
		accent: s.ForegroundColor(ansi.Cyan), good: s.ForegroundColor(ansi.Green), bad: s.ForegroundColor(ansi.Red),
		warn: s.ForegroundColor(ansi.Yellow),
	}
}

// span is text printed in one way. Its text is sanitized.
type span struct {
	text string
	paint
}

// printer writes lines.
type printer struct {
	Options
	palette
	b strings.Builder
	// noHint reports that there is no --full to point to.
	noHint bool
}

func newPrinter(o Options) *printer {
	o.Width, o.Lines = max(cmp.Or(o.Width, 80), 40), cmp.Or(o.Lines, 8)
	o.Location = cmp.Or(o.Location, time.UTC)
	return &printer{Options: o, palette: newPalette(o.Color)}
}

func (p *printer) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// line prints spans as one line, cut at the printer's width, without spaces at its end. Everything that is printed
// passes here, and what was not sanitized before is now.
func (p *printer) line(spans ...span) {
	for i := range spans {
		spans[i].text = document.Flat(spans[i].text)
	}
	room := p.Width
	for i := range spans {
		s := &spans[i]
		if w := width(s.text); w > room {
			s.text = truncate(s.text, room)
			room = 0
		} else {
			room -= w
		}
		if room == 0 {
			spans = spans[:i+1]
			break
		}
	}
	for n := len(spans); n > 0; n-- {
		last := &spans[n-1]
		if last.text = strings.TrimRight(last.text, " "); last.text != "" {
			break
		}
	}
	for _, s := range spans {
		if s.text != "" {
			p.b.WriteString(s.Styled(s.text))
		}
	}
	p.b.WriteByte('\n')
}

func (p *printer) blank() { p.b.WriteByte('\n') }

// block prints text, which is not sanitized, wrapped beside the lead that its first line has. A limit of 0 is none.
func (p *printer) block(lead span, text string, in paint, limit int) {
	p.hanging(lead, span{strings.Repeat(" ", width(lead.text)), p.plain}, text, in, limit)
}

// hanging is block with what the other lines have in the place of the lead.
func (p *printer) hanging(lead, follow span, text string, in paint, limit int) {
	room := p.Width - max(width(lead.text), width(follow.text))
	lines := wrap(document.Sanitize(text), room)
	hidden := 0
	if limit > 0 && !p.Full && len(lines) > limit+1 { // a line is not replaced by a line that reports so
		hidden = len(lines) - limit
		lines = lines[:limit]
	}
	for _, l := range lines {
		p.line(lead, span{l, in})
		lead = follow
	}
	if hidden > 0 {
		more := "… " + document.Plural(hidden, "more line", "more lines")
		if !p.noHint {
			more += " (--full)"
		}
		p.line(follow, span{more, p.dim})
	}
}

// infoLines prints dim facts with dots between them, on as many lines as they need.
func (p *printer) infoLines(indent string, facts ...string) {
	const dot = " · "
	room := p.Width - width(indent)
	line := ""
	flush := func() {
		for _, l := range wrap(line, room) {
			p.line(span{indent + l, p.dim})
		}
	}
	for _, f := range facts {
		switch {
		case f == "":
		case line == "":
			line = f
		case width(line)+width(dot)+width(f) <= room:
			line += dot + f
		default:
			flush()
			line = f
		}
	}
	if line != "" {
		flush()
	}
}

// header prints a rule across the page with a label and, at its end, the state,
// or at least its mark, and as many of the facts as there is room for besides.
func (p *printer) header(stroke string, label span, state span, facts ...string) {
	left := 3 + width(label.text) + 1
	room := p.Width - left - 2
	if width(state.text)+3 > room {
		state.text, _, _ = strings.Cut(state.text, " ")
	}
	if state.text != "" {
		room -= width(state.text) + 3
	}
	right := ""
	for _, f := range document.Present(facts...) {
		next := document.Join(right, f)
		if width(next)+3 > room {
			break
		}
		right = next
	}
	if room < 0 {
		state.text = ""
	}
	if right != "" && state.text != "" {
		right += " · "
	}
	fill := strings.Repeat(stroke, max(p.Width-left-width(right)-width(state.text), 0))
	if right != "" || state.text != "" {
		fill = strings.TrimSuffix(fill, stroke) + " "
	}
	p.line(span{stroke + stroke + " ", p.rule}, label, span{" " + fill, p.rule}, span{right, p.dim}, state)
}

func (p *printer) moment(ms int64) string {
	return cmp.Or(document.Words{Zone: p.Location}.Time(ms), "not known")
}

func (p *printer) clock(ms int64) string {
	if !session.Credible(ms) {
		return ""
	}
	return time.UnixMilli(ms).In(p.Location).Format("15:04:05")
}

// width is the number of cells that s, which is sanitized, takes.
func width(s string) int { return ansi.StringWidth(s) }

// pad extends s with spaces to n cells, and padLeft puts them before it.
func pad(s string, n int) string     { return s + strings.Repeat(" ", max(n-width(s), 0)) }
func padLeft(s string, n int) string { return strings.Repeat(" ", max(n-width(s), 0)) + s }

// truncate shortens s to n cells, the last of which is "…" when anything was cut.
func truncate(s string, n int) string {
	if width(s) <= n {
		return s
	}
	if n <= 0 {
		return ""
	}
	head, _ := cut(s, n-1)
	return strings.TrimRight(head, " ") + "…"
}

// cut splits s after at most n cells, between characters as a reader counts them.
func cut(s string, n int) (head, tail string) {
	at := 0
	for at < len(s) {
		cluster, cells := ansi.FirstGraphemeCluster(s[at:], ansi.GraphemeWidth)
		if n -= cells; n < 0 {
			break
		}
		at += len(cluster)
	}
	return s[:at], s[at:]
}

// Options and paths are not broken at their hyphens, as the library does.
var (
	joinHyphens  = strings.NewReplacer("-", "\u2011")
	splitHyphens = strings.NewReplacer("\u2011", "-")
)

// wrap breaks sanitized text into lines of at most n cells: between words where
// there are any, with the indentation of the line kept on what follows it.
func wrap(s string, n int) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		text := strings.Trim(line, " ")
		indent := line[:min(len(line)-len(strings.TrimLeft(line, " ")), n/2)]
		if width(text) <= n-len(indent) {
			lines = append(lines, strings.TrimRight(indent+text, " "))
			continue
		}
		for part := range strings.SplitSeq(ansi.Wrap(joinHyphens.Replace(text), max(n-len(indent), 1), ""), "\n") {
			lines = append(lines, indent+strings.Trim(splitHyphens.Replace(part), " "))
		}
	}
	return lines
}

// fold breaks a line of spans into lines of at most n cells, between words where that leaves no line half empty. A
// space at which it breaks is at the end of a line, where none is seen.
func fold(line []span, n int) [][]span {
	n = max(n, 2) // the width of the widest characters
	var lines [][]span
	var out []span
	room := n
	for _, s := range line {
		at := -1 // the span of out that is of s
		for word := range strings.SplitAfterSeq(s.text, " ") {
			for head, rest := cut(word, room); strings.TrimSuffix(rest, " ") != ""; head, rest = cut(word, room) {
				if room > n/2 {
					word = rest
				} else {
					head = ""
				}
				lines = append(lines, append(out, span{head, s.paint}))
				out, room, at = nil, n, -1
			}
			if width(word) > room {
				word = strings.TrimSuffix(word, " ")
			}
			if at < 0 {
				at, out = len(out), append(out, span{"", s.paint})
			}
			out[at].text += word
			room -= width(word)
		}
	}
	return append(lines, out)
}

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
	if m.CanceledAt == nil {
		p.message(m, span{"⧗ ", p.warn})
		return
	}
	p.message(m, span{"⊘ ", p.warn})
	p.infoLines("  ", "taken back "+p.clock(*m.CanceledAt))
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
	for _, text := range t.FailedCompactions {
		p.block(span{"✗ ", p.bad}, "compaction failed: "+text, p.bad, p.Lines)
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
