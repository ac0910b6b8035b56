package render

import (
	"cmp"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
)

// column is one of a table; the first is to the left, the others to the right.
type column struct{ title, short string }

var usageColumns = []column{
	{"input", "in"}, {"output", "out"}, {"reasoning", "reas"}, {"cache read", "c.rd"}, {"cache write", "c.wr"},
	{"total", "total"}, {"cost", "cost"},
}

const absent = "–"

// usageTable prints the tokens of each turn and their sums. Where that is too wide, titles are short or each row is a
// list.
func (p *printer) usageTable(d *document.Document) {
	rows, sums := d.UsageRows()
	all := append(slices.Clone(rows), sums...)
	if !slices.ContainsFunc(all, func(r document.UsageRow) bool { return r.Usage != nil || p.cost(&r) != absent }) {
		p.line(span{"Tokens", p.title}, span{"  not reported by the source", p.dim})
		return
	}
	if p.Prices != "" && slices.ContainsFunc(all, func(r document.UsageRow) bool { return r.EstimatedCostUSD != nil }) {
		defer p.estimated()
	}
	columns := usageColumns
	if !slices.ContainsFunc(all, func(r document.UsageRow) bool { return p.cost(&r) != absent }) {
		columns = columns[:len(columns)-1]
	}
	for _, title := range []func(column) string{
		func(c column) string { return c.title }, func(c column) string { return c.short },
	} {
		g := grid{gap: 2, left: 1}
		titles := []string{"Tokens"}
		for _, c := range columns {
			titles = append(titles, title(c))
		}
		g.add(p.title, titles...)
		for i := range all {
			if i == len(rows) {
				g.rule()
			}
			in := p.plain
			switch r := &all[i]; {
			case i == len(rows):
				in = p.title
			case r.Aside:
				in = p.dim
			}
			g.add(in, append([]string{usageLabel(&all[i], len(rows) > i)},
				p.usageCells(&all[i])[:len(columns)]...)...)
		}
		if g.fit(p.Width, 18) {
			p.grid(&g)
			return
		}
	}
	p.line(span{"Tokens", p.title})
	for i := range all {
		p.line(span{usageLabel(&all[i], len(rows) > i), p.plain})
		cells := p.usageCells(&all[i])[:len(columns)]
		for k, c := range columns {
			cells[k] = c.title + " " + cells[k]
		}
		p.infoLines("  ", cells...)
	}
}

// estimated says of when the prices of estimates are.
func (p *printer) estimated() { p.infoLines("", "~ estimated with "+p.Prices) }

func (p *printer) cost(r *document.UsageRow) string {
	if r.Unpriced {
		return absent
	}
	return cmp.Or(document.Cost(r.CostUSD, r.EstimatedCostUSD), absent)
}

func usageLabel(r *document.UsageRow, ofTurn bool) string {
	switch {
	case !ofTurn:
		return r.Label
	case r.Number == 0:
		return "     " + r.Label
	}
	return strings.TrimRight(padLeft(document.Count(int64(r.Number)), 3)+"  "+r.Label, " ")
}

func (p *printer) usageCells(r *document.UsageRow) []string {
	cells := slices.Repeat([]string{absent}, len(usageColumns)-1)
	if u := r.Usage; u != nil {
		for i, n := range document.Buckets(u) {
			cells[i] = document.Count(n)
		}
	}
	return append(cells, p.cost(r))
}

// grid is a table without lines between its cells. The first columns are to the left, the others to the right.
type grid struct {
	gap, left int
	whole     bool         // cuts nothing
	drop      map[int]bool // columns that are left out
	rows      [][]span     // nil is a rule
	widths    []int
}

func (g *grid) add(in paint, cells ...string) {
	row := make([]span, len(cells))
	for i, cell := range cells {
		row[i] = span{cell, in}
	}
	g.addSpans(row...)
}

func (g *grid) addSpans(row ...span) {
	g.rows = append(g.rows, row)
	for i, cell := range row {
		if i == len(g.widths) {
			g.widths = append(g.widths, 0)
		}
		g.widths[i] = max(g.widths[i], width(cell.text))
	}
}

func (g *grid) rule() { g.rows = append(g.rows, nil) }

// width is that of all columns and of the gaps between them.
func (g *grid) width() int {
	total := -g.gap
	for i, w := range g.widths {
		if !g.drop[i] {
			total += w + g.gap
		}
	}
	return total
}

// fit narrows the columns to the left, the widest first, until the grid has no more than n cells. If that takes one
// that is narrower than the least width, it changes nothing and returns false.
func (g *grid) fit(n, least int) bool {
	widths := slices.Clone(g.widths)
	for over := g.width() - n; over > 0; over-- {
		widest := slices.Index(widths, slices.Max(widths[:g.left]))
		if widths[widest] <= least {
			return false
		}
		widths[widest]--
	}
	g.widths = widths
	return true
}

func (p *printer) grid(g *grid) {
	if g.whole {
		defer func(screen int) { p.Width = screen }(p.Width)
		p.Width = math.MaxInt32
	}
	for _, row := range g.rows {
		if row == nil {
			p.line(span{strings.Repeat("─", g.width()), p.rule})
			continue
		}
		var spans []span
		for i, c := range row {
			if g.drop[i] {
				continue
			}
			if spans != nil {
				spans = append(spans, span{strings.Repeat(" ", g.gap), p.plain})
			}
			if !g.whole {
				c.text = truncate(c.text, g.widths[i])
			}
			align := pad
			if i >= g.left {
				align = padLeft
			}
			spans = append(spans, span{align(c.text, g.widths[i]), c.paint})
		}
		p.line(spans...)
	}
}

// Table writes rows of cells, the first of them the heads of columns. The first left columns are aligned to the left,
// and the widest of them are cut where the width is not enough.
func Table(w io.Writer, left int, rows [][]string, o Options) error {
	p := newPrinter(o)
	g := &grid{gap: 2, left: left, whole: p.Whole}
	for i, row := range rows {
		paint := p.plain
		if i == 0 {
			paint = p.title
		}
		g.add(paint, row...)
	}
	_ = p.Whole || g.fit(p.Width, 8) || g.fit(p.Width, 1)
	p.grid(g)
	return p.writeTo(w)
}

// spent reports what a session used and cost, as far as it is known: "" where it is not.
func spent(u *session.Usage, stated, estimated *float64) string {
	return strings.Join(document.Present(document.Tokens(u), document.Cost(stated, estimated)), ", ")
}

// total is a part of a total, nil if something is missing in that.
func total(usd *float64, unpriced bool) *float64 {
	if unpriced {
		return nil
	}
	return usd
}
