package render

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/internal/lazy"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
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

// statsColumn is a column of the table of figures.
type statsColumn struct {
	title string
	// calls reports that the figure is one of calls too: by tool, there are no others.
	calls bool
	// shed orders what goes where there is no room: the greatest first, 0 never.
	shed int
	cell func(g *store.StatsGroup, number func(int64) string) string
}

var statsColumns = []statsColumn{
	{"SESSIONS", true, 0, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Sessions) }},
	{"TURNS", false, 0, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Turns) }},
	{"ERRORS", false, 1, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Errors) }},
	{"TOKENS", false, 0, func(g *store.StatsGroup, n func(int64) string) string { return n(g.TotalTokens) }},
	{"INPUT", false, 7, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Usage.Input) }},
	{"OUTPUT", false, 6, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Usage.Output) }},
	{"REASON", false, 10, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Usage.Reasoning) }},
	{"C.READ", false, 8, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Usage.CacheRead) }},
	{"C.WRITE", false, 9, func(g *store.StatsGroup, n func(int64) string) string { return n(g.Usage.CacheWrite) }},
	{"CACHED", false, 5, func(g *store.StatsGroup, _ func(int64) string) string { return percent(g.CacheHitRate) }},
	{"COST", false, 2, func(g *store.StatsGroup, _ func(int64) string) string {
		return costOf(g.Unpriced, g.CostUSD, g.EstimatedCostUSD)
	}},
	{"CALLS", true, 0, func(g *store.StatsGroup, n func(int64) string) string { return n(g.ToolCalls) }},
	{"FAILED", true, 3, func(g *store.StatsGroup, n func(int64) string) string { return n(g.FailedCalls) }},
	{"DENIED", true, 11, func(g *store.StatsGroup, n func(int64) string) string { return n(g.DeniedCalls) }},
	{"MEDIAN", true, 4, func(g *store.StatsGroup, _ func(int64) string) string { return durationOf(g.MedianMS) }},
	{"P95", true, 4, func(g *store.StatsGroup, _ func(int64) string) string { return durationOf(g.P95MS) }},
}

func percent(rate *float64) string {
	if rate == nil {
		return absent
	}
	return strconv.FormatFloat(*rate*100, 'f', 0, 64) + "%"
}

func durationOf(ms *int64) string { return cmp.Or(document.OptionalDuration(ms), absent) }

// Stats prints figures for a person: a table of the groups and their total, or, when nothing is grouped, a list.
func Stats(w io.Writer, s *store.Stats, by []store.StatsBy, o Options) error {
	p := newPrinter(o)
	if len(by) > 0 {
		p.statsTable(s, by)
		return p.writeTo(w)
	}
	for _, f := range phrases.Fields("stats", struct {
		*store.StatsGroup
		Prices string
	}{&s.Total, p.Prices}) {
		p.fieldAt(16, f.Name, f.Value)
	}
	return p.writeTo(w)
}

func (p *printer) statsTable(s *store.Stats, by []store.StatsBy) {
	number := document.Count
	if p.Width < 140 && !p.Whole {
		number = document.Brief
	}
	columns := slices.DeleteFunc(slices.Clone(statsColumns),
		func(c statsColumn) bool { return !c.calls && slices.Contains(by, store.StatsByTool) })
	g := grid{gap: 2, left: len(by), whole: p.Whole, drop: map[int]bool{}}
	add := func(keys []string, in paint, cell func(statsColumn) string) {
		for _, c := range columns {
			keys = append(keys, cell(c))
		}
		g.add(in, keys...)
	}
	keysOf := func(value func(store.StatsBy) string) (keys []string) {
		for _, key := range by {
			keys = append(keys, value(key))
		}
		return keys
	}
	add(keysOf(func(key store.StatsBy) string { return strings.ToUpper(string(key)) }), p.title,
		func(c statsColumn) string { return c.title })
	for i := range s.Groups {
		group := &s.Groups[i]
		add(keysOf(func(key store.StatsBy) string {
			return cmp.Or(document.OneLine(group.Keys[key]), "(unknown)")
		}), p.plain, func(c statsColumn) string { return c.cell(group, number) })
	}
	total := make([]string, len(by))
	total[0] = "total"
	add(total, p.title, func(c statsColumn) string { return c.cell(&s.Total, number) })
	if !p.Whole {
		// Columns are left out, those with the greatest shed first, until the rest fits, with the widest keys cut.
		for shed := 11; shed > 0 && !g.fit(p.Width, max(24/len(by), 8)); shed-- {
			for i, c := range columns {
				g.drop[len(by)+i] = c.shed >= shed
			}
		}
		g.fit(p.Width, 8)
	}
	p.grid(&g)
	if s.Total.EstimatedCostUSD != nil && p.Prices != "" {
		p.estimated()
	}
}

// Columns of a list of sessions.
const (
	columnID = iota
	columnMark
	columnProject
	columnTitle
	columnAgent
	columnModel
	columnTurns
	columnErrors
	columnTokens
	columnContext
	columnCost
	columnDuration
	columnAge
)

const (
	wideTitle   = 28 // what a title should have
	narrowTitle = 20 // what it has at least before columns go that are missed
)

// Sessions prints a list of sessions for a person, in the order in which they are given. Their ids are short, see
// [document.Abbreviate], unless there is room for whole ones besides all columns. A column that is empty is left out.
func Sessions(w io.Writer, items []document.Item, o Options) error {
	p := newPrinter(o)
	g := p.sessions(items, true)
	room := func() int { return p.Width - g.width() + g.widths[columnTitle] }
	if whole := p.Whole && p.Width >= 100 || p.Width >= 120 && room() >= wideTitle; !whole {
		g = p.sessions(items, false)
	}
	// Leave out columns, the least missed first, until there is room for the title.
	for _, next := range []int{columnContext, columnTurns, columnProject, columnDuration, columnModel, columnAgent,
		columnCost, columnErrors, columnMark, columnTokens} {
		if p.Whole || room() >= wideTitle || g.drop[columnModel] && room() >= narrowTitle {
			break
		}
		g.drop[next] = true
	}
	if !p.Whole {
		g.widths[columnTitle] = min(g.widths[columnTitle], max(room(), 8))
	}
	p.grid(g)
	p.infoLines("", summary(items, p.Prices)...)
	return p.writeTo(w)
}

func (p *printer) sessions(items []document.Item, whole bool) *grid {
	g := &grid{gap: 2, left: columnTurns, drop: map[int]bool{}, whole: p.Whole}
	g.add(p.title, "ID", "", "PROJECT", "TITLE", "AGENT", "MODEL", "TURNS", "ERRORS", "TOKENS", "CONTEXT", "COST", "DURATION",
		"AGE")
	fit, number := truncate, document.Count
	if p.Whole {
		fit = func(text string, _ int) string { return text }
	}
	if p.Width < 100 && !p.Whole {
		number = document.Brief
	}
	for i := range items {
		s := &items[i]
		id := fit(document.Sanitize(cmp.Or(s.Short, s.ID)), 40)
		if whole {
			id = document.Sanitize(s.ID)
		}
		errors := span{number(s.Errors), p.dim}
		if s.Errors > 0 {
			errors.paint = p.bad
		}
		g.addSpans(span{id, p.accent}, p.sign(s), span{fit(document.Tail(s.WorkspaceRoot), 14), p.dim},
			span{itemName(s), p.plain}, span{fit(document.OneLine(s.Agent), 14), p.dim},
			span{fit(document.ModelName(s.Model), 20), p.dim}, span{number(s.Turns), p.dim}, errors,
			span{number(s.Total), p.plain}, span{number(s.ContextTotal), p.dim}, span{costOf(s.Unpriced, s.CostUSD, s.EstimatedCostUSD), p.plain},
			span{cmp.Or(document.OptionalDuration(s.DurationMS), absent), p.dim}, span{p.age(s.UpdatedAt), p.dim})
	}
	for column, empty := range map[int]string{columnMark: "", columnProject: "", columnModel: "", columnErrors: "0",
		columnCost: absent, columnDuration: absent} {
		g.drop[column] = !(p.Whole && column == columnErrors) &&
			!slices.ContainsFunc(g.rows[1:], func(row []span) bool { return row[column].text != empty })
	}
	return g
}

// sign is the mark of the session's status and of its notices, or of what no source reports.
func (p *printer) sign(s *document.Item) (sign span) {
	switch {
	case s.Status != document.ActivityIdle && s.Status != document.ActivityUnknown:
		sign = p.did(string(s.Status))
	case s.State.Bad():
		sign = p.did(string(s.State))
	}
	sign.text, _, _ = strings.Cut(sign.text, " ")
	if isNoticed(s) {
		if sign.text == "" {
			sign.paint = p.warn
		}
		sign.text += "!"
	} else if sign.text == "" && s.Quality.String() != "" {
		sign = span{"~", p.dim}
	}
	return sign
}

// isNoticed reports whether the list marks the session's notices. Of an interrupted session the
// end is missing in any case: that is its notice.
func isNoticed(s *document.Item) bool {
	return s.Notices > 1 || s.Notices > 0 && s.Status != document.ActivityInterrupted
}

// itemName is the title with what the list has of the session beside it.
func itemName(s *document.Item) string {
	name := phrases.Text("item", s)
	var marks []string
	for i := range s.Annotations {
		if n := &s.Annotations[i]; n.MessageID == "" && n.Kind != store.AnnotationNote {
			marks = append(marks, document.OneLine(n.Short()))
		}
	}
	if len(marks) > 0 {
		name += " ⚑ " + strings.Join(marks, ", ")
	}
	return name
}

// costOf is what sessions cost, absent if that is not known of all of it.
func costOf(unpriced bool, stated float64, estimated *float64) string {
	if unpriced {
		return absent
	}
	return cmp.Or(document.Spent(stated, estimated), absent)
}

func summary(items []document.Item, prices string) []string {
	all, marked := document.Sum(items), 0
	for i := range items {
		if isNoticed(&items[i]) {
			marked++
		}
	}
	return phrases.Facts("sum", struct {
		document.Item
		Sessions, Noticed int
		Prices            string
	}{all, len(items), marked, prices})
}

// age is how long ago something was, in one unit.
func (p *printer) age(ms int64) string {
	if !session.Credible(ms) {
		return absent
	}
	s := p.Now.UnixMilli()/1000 - ms/1000
	switch {
	case s < 1:
		return "now"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%dh", s/3600)
	case s < 365*86400:
		return fmt.Sprintf("%dd", s/86400)
	}
	return fmt.Sprintf("%dy", s/(365*86400))
}

// Hits prints where a text was found: a heading for each session, and for each hit the turn, the place in it and what
// is around the matches, which are marked by color, or else by »guillemets«.
func Hits(w io.Writer, hits []store.Hit, o Options) error {
	p := newPrinter(o)
	previous := ""
	for i := range hits {
		h := &hits[i]
		if h.SessionID != previous {
			if previous != "" {
				p.blank()
			}
			previous = h.SessionID
			p.line(span{document.Sanitize(h.SessionID), p.accent},
				span{"  " + document.Join(document.OneLine(document.Name(h.Title, h.Opening)), document.OneLine(h.Agent)), p.title})
		}
		p.line(span{"  " + document.Join(phrases.Facts("hit", h)...), p.dim})
		for _, l := range fold(p.marked(h), p.Width-4) {
			p.line(append([]span{{"    ", p.plain}}, l...)...)
		}
	}
	return p.writeTo(w)
}

var spaces = lazy.Regexp(`\s+`)

func (p *printer) marked(h *store.Hit) []span {
	var spans []span
	add := func(text string, in paint) {
		if text != "" {
			spans = append(spans, span{text, in})
		}
	}
	if h.CutBefore {
		add("…", p.dim)
	}
	for _, piece := range document.Pieces(h) {
		switch text := spaces().ReplaceAllString(document.Sanitize(piece.Text), " "); {
		case !piece.Differs:
			add(text, p.plain)
		case p.Color:
			add(text, p.warn)
		default:
			add("»"+text+"«", p.warn)
		}
	}
	if h.CutAfter {
		add("…", p.dim)
	}
	return spans
}
