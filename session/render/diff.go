package render

import (
	"cmp"
	"io"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// SideBySide is the least width at which [Diff] puts two sessions beside each other.
const SideBySide = 100

const (
	// diffContext is how many equal lines are before and after what differs.
	diffContext = 2
	// diffLines is how many lines of one change are shown, unless all shall be.
	diffLines = 40
)

// Diff prints the diff for a person: side by side where there is room, unless
// unified is wanted. Turns that are equal are one line.
func Diff(w io.Writer, d *document.Diff, o Options, unified bool) error {
	p := newPrinter(o)
	dp := &diffPrinter{printer: p, unified: unified || p.Width < SideBySide}
	p.block(span{"A  ", p.bad}, document.Join(phrases.Facts("compared", &d.A)...), p.plain, 2)
	p.block(span{"B  ", p.good}, document.Join(phrases.Facts("compared", &d.B)...), p.plain, 2)
	p.blank()
	if d.First == nil {
		p.line(span{"= no differences", p.good})
	} else {
		p.block(span{"≠ ", p.warn}, d.First.String(), p.title, 0)
	}
	for _, run := range d.Runs() {
		p.blank()
		if len(run[0].Changes) == 0 {
			label := document.RunLabel(run)
			if d.A.SessionID == d.B.SessionID {
				label = strings.TrimSuffix(label, ", copied")
			}
			p.line(span{"= " + label, p.dim})
		} else {
			dp.turn(&run[0])
		}
	}
	return p.writeTo(w)
}

type diffPrinter struct {
	*printer
	unified bool
}

func (p *diffPrinter) turn(t *document.DiffTurn) {
	p.header("─", span{document.Capital(document.TurnPair(t.A, t.B)), p.title}, span{},
		document.Plural(len(t.Changes), "difference", "differences"))
	for i := range t.Changes {
		p.change(&t.Changes[i])
	}
}

// differUnprinted states how texts differ of which the difference cannot be shown.
const differUnprinted = "the same except for characters that are not printed"

func (p *diffPrinter) change(c *document.Change) {
	label := c.Label()
	a, b := document.Sanitize(session.Deref(c.A)), document.Sanitize(session.Deref(c.B))
	switch {
	case c.Aspect == document.AspectSystemPrompt:
		label += " " + cmp.Or(document.Sanitize(document.Short(c.DigestA)), absent) + " → " +
			cmp.Or(document.Sanitize(document.Short(c.DigestB)), absent)
		if c.A == nil && c.B == nil {
			p.hanging(span{"  ", p.plain}, span{"    ", p.plain}, label+" (their texts are not both stored)", p.accent, 0)
			return
		}
	case c.Aspect == document.AspectTurn || c.Aspect == document.AspectCall:
	case a == b:
		p.hanging(span{"  ", p.plain}, span{"    ", p.plain}, label+": "+differUnprinted, p.accent, 0)
		return
	case !strings.Contains(a+b, "\n") && width(label)+width(a)+width(b)+10 <= p.Width:
		p.line(span{"  " + label + ": ", p.accent}, span{cmp.Or(a, absent), p.bad}, span{" → ", p.dim},
			span{cmp.Or(b, absent), p.good})
		return
	}
	p.line(span{"  " + label, p.accent})
	p.lines(document.DiffTexts(a, b))
}

// lines prints the lines of two texts: those that differ up to a number of them, and of
// those that do not what is beside one that does.
func (p *diffPrinter) lines(rows []document.DiffRow) {
	shown, left := 0, 0
	for _, h := range document.Hunks(rows, diffContext, 2) {
		switch room := max(diffLines-shown, 0); {
		case h.Apart && !p.Full:
			p.line(span{"    ⋯ " + document.Plural(len(h.Rows), "line", "lines") + " alike", p.dim})
			continue
		case !h.Same && !p.Full && len(h.Rows) > room+1:
			left += len(h.Rows) - room
			h.Rows = h.Rows[:room]
		}
		if !h.Same {
			shown += len(h.Rows)
		}
		p.rows(h.Rows)
	}
	if left > 0 {
		p.line(span{"    … " + document.Plural(left, "more line differs", "more lines differ") + " (--full)", p.dim})
	}
}

// painted is a line of one of two texts; nil where only the other has it.
func painted(line []document.Piece, in paint) []span {
	if line == nil {
		return nil
	}
	spans := make([]span, len(line))
	for i, piece := range line {
		if spans[i].text = piece.Text; piece.Differs {
			spans[i].paint = in
		}
	}
	return spans
}

// rows prints a run of rows that are all equal or all not.
func (p *diffPrinter) rows(run []document.DiffRow) {
	if p.unified {
		for i := range run {
			if run[i].Same {
				p.prefixed(span{"      ", p.plain}, painted(run[i].A, p.bad))
			} else if run[i].A != nil {
				p.prefixed(span{"    - ", p.bad}, painted(run[i].A, p.bad))
			}
		}
		for i := range run {
			if !run[i].Same && run[i].B != nil {
				p.prefixed(span{"    + ", p.good}, painted(run[i].B, p.good))
			}
		}
		return
	}
	const indent = "    "
	half := (p.Width - len(indent) - 3) / 2
	for i := range run {
		r := &run[i]
		mark := span{" │ ", p.rule}
		switch {
		case r.Same:
		case r.B == nil:
			mark = span{" < ", p.bad}
		case r.A == nil:
			mark = span{" > ", p.good}
		default:
			mark = span{" ≠ ", p.warn}
		}
		left, right := fold(painted(r.A, p.bad), half), fold(painted(r.B, p.good), half)
		for k := range max(len(left), len(right)) {
			line := []span{{indent, p.plain}}
			used := 0
			if k < len(left) {
				for _, s := range left[k] {
					used += width(s.text)
				}
				line = append(line, left[k]...)
			}
			line = append(line, span{strings.Repeat(" ", max(half-used, 0)), p.plain}, mark)
			if k < len(right) {
				line = append(line, right[k]...)
			}
			p.line(line...)
		}
	}
}

func (p *diffPrinter) prefixed(lead span, line []span) {
	for i, l := range fold(line, p.Width-width(lead.text)) {
		if i > 0 {
			lead.text = strings.Repeat(" ", width(lead.text))
		}
		p.line(append([]span{lead}, l...)...)
	}
}
