package web

import (
	"net/http"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// statsPage are figures over all sessions.
type statsPage struct {
	By    []string
	Bys   []string
	Tools bool // reports that the figures are of calls alone
	Since string
	Total store.StatsGroup
	Rows  []statsRow
}

// statsRow is a group, with the width of its bar in the chart, of 1000.
type statsRow struct {
	store.StatsGroup
	Width int
	Link  string
}

func (v *pages) stats(w http.ResponseWriter, r *http.Request) error {
	p := statsPage{Bys: store.StatsKeys(), Since: r.URL.Query().Get("since")}
	by, err := store.ParseStatsBy(r.URL.Query()["by"]...)
	if err != nil {
		return invalid("by %v", err)
	}
	if by == nil {
		by = []store.StatsBy{store.StatsByDay}
	}
	for _, key := range by {
		p.By = append(p.By, string(key))
	}
	p.Tools = slices.Contains(by, store.StatsByTool)
	q := store.StatsQuery{By: by, Location: v.Zone, Price: v.Sessions.Price}
	if p.Since != "" {
		if q.Since, err = store.ParseTime(p.Since, time.Now(), v.Zone); err != nil {
			return invalid("since: %v", err)
		}
	}
	figures, err := v.Sessions.Stats(r.Context(), q)
	if err != nil {
		return err
	}
	p.Total = figures.Total
	weight := func(g *store.StatsGroup) int64 {
		if p.Tools {
			return g.ToolCalls
		}
		return g.TotalTokens
	}
	most := int64(1)
	for i := range figures.Groups {
		most = max(most, weight(&figures.Groups[i]))
	}
	if len(by) == 1 && (by[0] == store.StatsByDay || by[0] == store.StatsByWeek) {
		slices.Reverse(figures.Groups)
	}
	for i := range figures.Groups {
		g := figures.Groups[i]
		row := statsRow{StatsGroup: g, Width: int(weight(&g) * 1000 / most)}
		if len(by) == 1 && by[0] == store.StatsByAgent && g.Key != "" {
			row.Link = with(nil, "agent", g.Key)
		}
		p.Rows = append(p.Rows, row)
	}
	return v.show(w, r, page{Title: "Stats", Here: "stats"}, "stats", p)
}
