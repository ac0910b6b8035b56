package render

import (
	"cmp"
	"io"
	"strings"
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
