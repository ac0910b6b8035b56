package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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
		if g.Unpriced {
			return absent
		}
		return cmp.Or(document.Spent(g.CostUSD, g.EstimatedCostUSD), absent)
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
