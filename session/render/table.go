package render

import (
	"cmp"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/printable"
)

// column is one of a table; the first is to the left, the others to the right.
type column struct{ title, short string }

var usageColumns = []column{
	{"input", "in"}, {"output", "out"}, {"reasoning", "reas"}, {"cache read", "c.rd"}, {"cache write", "c.wr"}, {"total", "total"}, {"cost", "cost"},
}

const absent = "–"

// usageRow is a row of the table of tokens.
type usageRow struct {
	label string
	usage *session.Usage
	cost  string // "" where nobody knows
	paint
}

func (r *usageRow) cells(number func(int64) string, withCost bool) []string {
	cells := make([]string, 0, len(usageColumns))
	if u := r.usage; u != nil {
		for _, n := range []int64{u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite, u.Total()} {
			cells = append(cells, number(n))
		}
	} else {
		cells = append(cells, absent, absent, absent, absent, absent, absent)
	}
	if !withCost {
		return cells
	}
	return append(cells, cmp.Or(r.cost, absent))
}

// usageTable prints the tokens of each turn and their sums. Where full numbers
// do not fit, short ones stand; where those do not either, each row is a list.
func (p *printer) usageTable(tl *document.Document) {
	rows, sums := p.usageRows(tl)
	withCost, known := false, false
	for _, r := range append(rows, sums...) {
		withCost, known = withCost || r.cost != "", known || r.usage != nil || r.cost != ""
	}
	if !known {
		p.line(span{"Tokens", p.title}, span{"  the source says nothing of them", p.dim})
		return
	}
	columns := usageColumns
	if !withCost {
		columns = columns[:len(columns)-1]
	}
	label := "Tokens"
	for _, brevity := range []struct {
		title  func(column) string
		number func(int64) string
		gap    int
		label  int // the least that labels are cut to
	}{
		{func(c column) string { return c.title }, printable.Count, 2, 18},
		{func(c column) string { return c.short }, printable.Count, 2, 18},
		{func(c column) string { return c.short }, printable.Brief, 1, 11},
	} {
		widths := make([]int, 1+len(columns))
		widths[0] = width(label)
		for i, c := range columns {
			widths[1+i] = width(brevity.title(c))
		}
		for _, r := range append(rows, sums...) {
			widths[0] = max(widths[0], width(r.label))
			for i, cell := range r.cells(brevity.number, withCost) {
				widths[1+i] = max(widths[1+i], width(cell))
			}
		}
		total := brevity.gap * len(columns)
		for _, w := range widths[1:] {
			total += w
		}
		if p.Width-total < min(widths[0], brevity.label) {
			continue
		}
		widths[0] = min(widths[0], p.Width-total)
		total += widths[0]
		row := func(label string, cells []string) string {
			var b strings.Builder
			b.WriteString(pad(truncate(label, widths[0]), widths[0]))
			for i, cell := range cells {
				b.WriteString(strings.Repeat(" ", brevity.gap))
				b.WriteString(padLeft(cell, widths[1+i]))
			}
			return b.String()
		}
		titles := make([]string, len(columns))
		for i, c := range columns {
			titles[i] = brevity.title(c)
		}
		p.line(span{row(label, titles), p.title})
		for _, r := range rows {
			p.line(span{row(r.label, r.cells(brevity.number, withCost)), r.paint})
		}
		p.line(span{strings.Repeat("─", total), p.rule})
		for _, r := range sums {
			p.line(span{row(r.label, r.cells(brevity.number, withCost)), r.paint})
		}
		return
	}
	p.line(span{label, p.title})
	for _, r := range append(rows, sums...) {
		p.line(span{r.label, r.paint})
		cells := r.cells(printable.Count, withCost)
		for i, c := range columns {
			cells[i] = c.title + " " + cells[i]
		}
		p.infoLines("  ", cells...)
	}
}

func (p *printer) usageRows(tl *document.Document) (rows, sums []usageRow) {
	for i := range tl.Turns {
		t := &tl.Turns[i]
		label := padLeft(printable.Count(int64(t.Number)), 3) + "  " + printable.ModelName(t.Model)
		paint := p.plain
		spoke := false
		for k := range t.Messages {
			m := &t.Messages[k]
			spoke = spoke || m.Role == session.RoleAssistant && m.Compaction == nil
		}
		switch {
		case t.Hidden && t.Copied():
			label, paint = padLeft(printable.Count(int64(t.Number)), 3)+"  (rewound, copied)", p.dim
		case t.Hidden:
			label, paint = padLeft(printable.Count(int64(t.Number)), 3)+"  (rewound)", p.dim
		case t.Copied():
			label, paint = padLeft(printable.Count(int64(t.Number)), 3)+"  (copied)", p.dim
		}
		if spoke || t.Usage != nil {
			rows = append(rows, usageRow{strings.TrimRight(label, " "), t.Usage, costText(t.CostUSD, t.EstimatedCostUSD), paint})
		}
		for k := range t.Messages {
			if m := &t.Messages[k]; m.Marker {
				rows = append(rows, usageRow{"     compaction", m.Usage, costText(m.CostUSD, m.EstimatedCostUSD), p.dim})
			}
		}
	}
	tot := &tl.Totals
	label := "total"
	if len(tl.Turns) < tot.Turns {
		label = "session" // the rows are one turn's
	}
	sums = []usageRow{{label, tot.Usage, costText(tot.CostUSD, tot.EstimatedCostUSD), p.title}}
	if tot.CopiedUsage != nil {
		sums = append(sums, usageRow{"copied", tot.CopiedUsage, "", p.dim})
	}
	if tot.Usage == nil && tot.Context != (session.Usage{}) || tot.Usage != nil && *tot.Usage != tot.Context {
		sums = append(sums, usageRow{"in context now", &tot.Context, "", p.dim})
	}
	return rows, sums
}
