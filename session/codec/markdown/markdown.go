// Package markdown writes a session as a transcript in Markdown, for an issue, a review
// or a notebook: every turn, message and tool call, decisions, compactions, errors and a
// table of tokens. It is an export only, and loses what a reader does not look at: ids
// of parts, traces, metadata of the host.
//
// Reasoning, and the input and output of tools, are folded with <details>, which
// GitHub, GitLab and most viewers know, and are cut where they are long.
//
// What people and models wrote is quoted with its Markdown, as far as package richtext
// goes: HTML in it is text, an image is a link to it, its headings stand below those of
// the transcript, and nothing in it reaches beyond its quotation. All else that comes from
// the session is text. No image is loaded, and GitHub notifies nobody.
package markdown

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/codec/internal/transcript"
	"github.com/agenttrace/agenttrace/session/document"
)

// Options say how much is written. The zero value is ready for use.
type Options struct {
	// Full cuts nothing, however long it is.
	Full bool
	// Zone is that of the times; nil is UTC.
	Zone *time.Location
	// Files are the side files that come with the transcript, by the path that the
	// session has for them: the path, relative to the transcript, to link to.
	Files map[string]string
}

// Encode writes the transcript. The same timeline gives the same bytes. Transcripts may
// follow one another.
func Encode(w io.Writer, tl *document.Document, o Options) error {
	p := printer{w: bufio.NewWriter(w)}
	p.document(transcript.New(tl, transcript.Options(o)))
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write session %s: %w", tl.Session.ID, err)
	}
	return nil
}

// printer writes; the first error stands in w.
type printer struct{ w *bufio.Writer }

func (p *printer) line(all ...string) {
	for _, s := range all {
		p.w.WriteString(s)
	}
	p.w.WriteByte('\n')
}

func (p *printer) document(d *transcript.Document) {
	p.line("# ", escape(d.Title), "\n")
	p.line("| | |\n|---|---|")
	for _, f := range d.Head {
		p.line("| ", f.Name, " | ", escape(f.Value), " |")
	}
	p.line()
	p.list("Rules", d.Rules)
	for i := range d.Turns {
		p.turn(&d.Turns[i])
	}
	if len(d.Queued) > 0 {
		p.line("## Queued\n")
		for i := range d.Queued {
			p.message(&d.Queued[i])
		}
	}
	if len(d.Usage) > 0 {
		p.line("## Tokens\n")
		for i, row := range d.Usage {
			p.line("| ", strings.Join(row, " | "), " |")
			if i == 0 {
				p.line("|---|", strings.Repeat("---:|", len(row)-1))
			}
		}
		p.line()
	}
	if len(d.Prompts)+len(d.Catalogs) > 0 {
		p.line("## Prompts and tools\n")
		for _, s := range append(d.Prompts[:len(d.Prompts):len(d.Prompts)], d.Catalogs...) {
			p.fold(s.Title, func() { p.code(s.Text) })
		}
	}
	if len(d.Decisions) > 0 {
		p.line("## Other decisions\n")
		p.list("", d.Decisions)
	}
	if len(d.Children) > 0 {
		p.line("## Sessions that left this one\n")
		for _, f := range d.Children {
			p.line("- ", escape(f.Name), ": ", escape(f.Value))
		}
		p.line()
	}
	if len(d.Files) > 0 {
		p.line("## Files\n")
		for _, f := range d.Files {
			p.line("- ", link(f.Path, f.Link))
		}
		p.line()
	}
}

func (p *printer) turn(t *transcript.Turn) {
	for _, text := range t.Missing {
		p.line("*", escape(text), "*\n")
	}
	p.line(fmt.Sprintf("## Turn %d\n", t.Number))
	if len(t.Summary) > 0 {
		p.line("*", escape(strings.Join(t.Summary, " · ")), "*\n")
	}
	for i := range t.Messages {
		p.message(&t.Messages[i])
	}
}

func (p *printer) message(m *transcript.Message) {
	title := capital(m.Role)
	if m.Compaction != nil {
		title = "Compaction"
	}
	if m.Time != "" {
		title += " · " + m.Time
	}
	if m.State != "" {
		title += " · " + m.State
	}
	p.line("### ", escape(title), "\n")
	p.facts(m.Facts)
	if c := m.Compaction; c != nil {
		p.facts(c.Facts)
		p.quote(c.Summary.Body)
	}
	for i := range m.Blocks {
		p.block(&m.Blocks[i])
	}
	for _, text := range m.Errors {
		p.line("**Error**\n")
		p.code(transcript.Text{Body: text})
	}
	for _, text := range m.Problems {
		p.line("*Problem in the telemetry: ", escape(oneLine(text)), "*\n")
	}
}

func (p *printer) block(b *transcript.Block) {
	switch b.Kind {
	case transcript.Prose:
		p.quote(b.Text)
		p.facts(b.Facts)
	case transcript.Reasoning:
		p.fold(b.Title, func() {
			p.quote(b.Text)
			p.facts(b.Facts)
		})
	case transcript.Step:
		p.line("---\n")
	case transcript.Reference:
		p.line("- ", strings.Join(append([]string{link(b.Title, b.Link)}, escaped(b.Facts)...), " · "), "\n")
	case transcript.Tool:
		title := "**" + escape(b.Title) + "**"
		if b.Subject != "" {
			title += " " + escape(b.Subject)
		}
		title += " · " + b.Outcome
		p.line(strings.Join(append([]string{title}, escaped(b.Facts)...), " · "), "\n")
		if b.Link != "" {
			p.line(link("The whole output", b.Link), "\n")
		}
		p.list("", b.Decisions)
		p.sections(b.Sections)
	default:
		for _, s := range b.Sections {
			p.fold(b.Title, func() { p.code(s.Text) })
		}
	}
}

func (p *printer) sections(all []transcript.Section) {
	for _, s := range all {
		if s.Title == "Error" {
			p.line("**Error**\n")
			p.code(s.Text)
			continue
		}
		p.fold(s.Title, func() { p.code(s.Text) })
	}
}

// fold writes what only opens when it is asked to.
func (p *printer) fold(title string, content func()) {
	p.line("<details><summary>", html.EscapeString(title), "</summary>\n")
	content()
	p.line("</details>\n")
}

func (p *printer) facts(all []string) {
	if len(all) > 0 {
		p.line("*", escape(strings.Join(all, " · ")), "*\n")
	}
}

func (p *printer) list(title string, all []string) {
	if len(all) == 0 {
		return
	}
	if title != "" {
		p.line("**", title, "**\n")
	}
	for _, s := range all {
		p.line("- ", start(s))
	}
	p.line()
}

// code writes a text between fences that no line of it can close.
func (p *printer) code(t transcript.Text) {
	if t.Body != "" {
		fence := fenceFor(t.Body)
		p.line(fence)
		p.line(strings.TrimSuffix(t.Body, "\n"))
		p.line(fence, "\n")
	}
	if t.Cut != "" {
		p.line("*… ", escape(t.Cut), "*\n")
	}
}

// fenceFor is a fence that no line of a text can close.
func fenceFor(s string) string { return strings.Repeat("`", max(3, longestRun(s, '`')+1)) }

func longestRun(s string, c byte) int {
	maximum, run := 0, 0
	for i := range len(s) {
		if s[i] != c {
			run = 0
			continue
		}
		run++
		maximum = max(maximum, run)
	}
	return maximum
}

func capital(role string) string {
	if role == "" {
		return "Message"
	}
	return strings.ToUpper(role[:1]) + role[1:]
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
