package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/gate"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
)

// statsPage are figures over all sessions, or those that are selected.
type statsPage struct {
	// Query are the parameters as they are in the address, By the keys of groups and Bys all there are.
	Query url.Values
	By    []string
	Bys   []string
	// Ranges are the times that can be chosen by a link, "" all.
	Ranges []string
	// Tools reports that the figures are of calls alone.
	Tools bool
	// The figures, of which the groups are in the order of the table.
	store.Stats
	most  int64 // of the weights of the groups
	Lines []statsLine
	// Heat are the hours of the days of the week, from Monday on; nil without figures.
	Heat [][24]heatHour
	// Zone names the zone of the times.
	Zone string
	// Self is the address of the page.
	Self string
}

// statsLine is a figure over time.
type statsLine struct {
	Name, Class string
	Most, Step  string // the greatest value, and of what time values are
	Points      []statsPoint
	Path        string // of the points, 1000 wide and 100 high
}

// statsPoint is a value of a line, in words, with its place and width in the chart and the list of its sessions.
type statsPoint struct {
	At, Text, Link string
	X, Width       float64
	value          float64
}

// heatHour is an hour of a day of the week: what it took, and how dark it is, from 0 to 4.
type heatHour struct {
	Turns, Tokens int64
	Level         int
}

func (v *pages) stats(w http.ResponseWriter, r *http.Request) error {
	ctx, query := r.Context(), r.URL.Query()
	zone, _ := time.Now().In(v.Zone).Zone()
	p := &statsPage{Query: query, Self: r.URL.RequestURI(), Bys: store.StatsKeys(), Zone: zone,
		most: 1, Ranges: []string{"24h", "7d", "30d", ""}}
	by, err := store.ParseStatsBy(query["by"]...)
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
	query = maps.Clone(query)
	delete(query, "by")
	var q statsParams
	if err := fromQuery(operationOf("stats"), query, &q); err != nil {
		return err
	}
	q.By, q.Zone.Location = groups(by), v.Zone
	priced := v.Backend
	if priced.Sessions.Price == nil { // then all models have none
		priced.Sessions.Price = func(session.Model) *price.Rate { return nil }
	}
	if p.Stats, err = priced.figures(ctx, q, v.Zone); err != nil {
		return err
	}
	if len(by) == 1 && (by[0] == store.StatsByDay || by[0] == store.StatsByWeek) {
		slices.Reverse(p.Groups) // the last ones first
	}
	for _, g := range p.Groups {
		p.most = max(p.most, p.weight(g))
	}
	if err := v.overTime(ctx, p, q); err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Stats", Here: "stats"}, "stats", p)
}

// maxUpdate is how long a reader waits for prices.
const maxUpdate = 20 * time.Second

// updatePrices fetches prices, and leads back to the figures.
func (v *pages) updatePrices(w http.ResponseWriter, r *http.Request) error {
	if v.Change == nil || v.UpdatePrices == nil {
		return NewProblem("read-only", http.StatusForbidden, "", "",
			"prices cannot be fetched here: run agenttrace prices update where the pages are served")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	ctx, cancel := context.WithTimeout(r.Context(), maxUpdate)
	defer cancel()
	if err := v.UpdatePrices(ctx); err != nil {
		return NewProblem("prices", http.StatusBadGateway, "",
			"check the network and HTTPS_PROXY, or read a file: agenttrace prices update --from FILE",
			strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	http.Redirect(w, r, back(r, "/stats", "/stats"), http.StatusSeeOther)
	return nil
}

// Range is the address of the page of a time.
func (p *statsPage) Range(since string) string { return changed("/stats", p.Query, "since", since) }

// weight is what the bar of a group in the chart is of, and Width that of the bar, of 1000.
func (p *statsPage) weight(g store.StatsGroup) int64 {
	if p.Tools {
		return g.ToolCalls
	}
	return g.TotalTokens
}

func (p *statsPage) Width(g store.StatsGroup) int64 { return p.weight(g) * 1000 / p.most }

// List is the list of the sessions of a group, "" where its keys do not select sessions.
func (p *statsPage) List(keys map[store.StatsBy]string) string {
	list := url.Values{"children": {"1"}, "archived": {"1"}}
	for name, values := range p.Query {
		if slices.Contains(filters, name) {
			list[name] = values
		}
	}
	for by, value := range keys {
		var from, to time.Time
		var err error
		switch by {
		case store.StatsByDay:
			from, err = time.Parse(time.DateOnly, value)
			to = from.AddDate(0, 0, 1)
		case store.StatsByWeek:
			var year, week int
			_, err = fmt.Sscanf(value, "%d-W%d", &year, &week)
			from = time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC) // is in the first week
			from = from.AddDate(0, 0, 7*(week-1)-(int(from.Weekday())+6)%7)
			to = from.AddDate(0, 0, 7)
		case store.StatsByWeekday, store.StatsByHour:
			return ""
		default:
			if value == "" {
				return ""
			}
			list.Set(string(by), value)
			continue
		}
		if err != nil {
			return ""
		}
		list.Set("since", from.Format(time.DateOnly))
		list.Set("until", to.Format(time.DateOnly))
	}
	return with(list, "", "")
}

// overTime adds the lines and the map of the week, both of the figures of each hour.
func (v *pages) overTime(ctx context.Context, p *statsPage, q statsParams) error {
	q.By = groups{store.StatsByDay, store.StatsByHour}
	figures, err := v.figures(ctx, q, v.Zone)
	if err != nil {
		return err
	}
	hours := map[time.Time]*store.StatsGroup{}
	var first, last time.Time
	for i := range figures.Groups {
		g := &figures.Groups[i]
		at, err := time.ParseInLocation("2006-01-02, 15:04", g.Key, v.Zone)
		if err != nil {
			continue // a source without times
		}
		if first.IsZero() {
			first = at
		}
		hours[at], last = g, at
	}
	p.week(hours)
	// Hours of a few days, days of a longer time.
	step, next := "an hour", func(t time.Time) time.Time { return t.Add(time.Hour) }
	format, start := "Mon 2 Jan 15:04", func(t time.Time) time.Time { return t }
	if last.Sub(first) > 3*24*time.Hour {
		step, next = "a day", func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }
		format, start = "Mon 2 Jan 2006", func(t time.Time) time.Time {
			return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, v.Zone)
		}
	}
	sums := map[time.Time]*store.StatsGroup{}
	for at, g := range hours {
		at = start(at)
		if sums[at] == nil {
			sums[at] = &store.StatsGroup{}
		}
		sums[at].TotalTokens += g.TotalTokens
		sums[at].Errors += g.Errors
		sums[at].CostUSD += g.CostUSD + session.Deref(g.EstimatedCostUSD)
	}
	for _, line := range []struct {
		name, class string
		of          func(g *store.StatsGroup) float64
		words       func(float64) string
	}{
		{"Tokens", "tokens", func(g *store.StatsGroup) float64 { return float64(g.TotalTokens) },
			func(n float64) string { return document.Brief(int64(n)) }},
		{"Cost", "cost", func(g *store.StatsGroup) float64 { return g.CostUSD }, document.Dollars},
		{"Errors", "errors", func(g *store.StatsGroup) float64 { return float64(g.Errors) },
			func(n float64) string { return document.Count(int64(n)) }},
	} {
		l := statsLine{Name: line.name, Class: line.class, Step: step}
		most := 0.0
		for at := start(first); len(hours) > 0 && !at.After(last); at = next(at) {
			point := statsPoint{At: at.Format(format), Link: p.List(map[store.StatsBy]string{
				store.StatsByDay: at.Format(time.DateOnly)})}
			if g := sums[at]; g != nil {
				point.value = line.of(g)
			}
			point.Text = line.words(point.value)
			most = max(most, point.value)
			l.Points = append(l.Points, point)
		}
		if most > 0 {
			l.Most = line.words(most)
			l.draw(most)
			p.Lines = append(p.Lines, l)
		}
	}
	return nil
}

// draw places the points, in the middle of what each is of. A single one is a level line.
func (l *statsLine) draw(most float64) {
	var path strings.Builder
	width := 1000 / float64(len(l.Points))
	for i := range l.Points {
		point := &l.Points[i]
		point.X, point.Width = float64(i)*width, width
		y := 98 - 96*point.value/most
		if i == 0 {
			fmt.Fprintf(&path, "0,%.1f ", y)
		}
		fmt.Fprintf(&path, "%.1f,%.1f ", point.X+width/2, y)
		if i == len(l.Points)-1 {
			fmt.Fprintf(&path, "1000,%.1f ", y)
		}
	}
	l.Path = path.String()
}

// week adds up the hours of the week.
func (p *statsPage) week(hours map[time.Time]*store.StatsGroup) {
	if len(hours) == 0 {
		return
	}
	p.Heat = make([][24]heatHour, 7)
	most := int64(1)
	for at, g := range hours {
		h := &p.Heat[(at.Weekday()+6)%7][at.Hour()]
		h.Turns, h.Tokens = h.Turns+g.Turns, h.Tokens+g.TotalTokens
		most = max(most, h.Turns)
	}
	for i := range p.Heat {
		for k := range p.Heat[i] {
			h := &p.Heat[i][k]
			h.Level = int((h.Turns*4 + most - 1) / most)
		}
	}
}

// maxExperiments is how many experiments a page shows, those that began last.
const maxExperiments = 20

// experiments answers with a table of the experiments that began last.
func (v *pages) experiments(w http.ResponseWriter, r *http.Request) error {
	names, err := gate.Experiments(r.Context(), v.Sessions)
	if err != nil {
		return err
	}
	names = names[max(len(names)-maxExperiments, 0):]
	all, err := (&gate.Gate{}).Compare(r.Context(), v.Sessions, names, nil)
	if err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Experiments", Here: "experiments"}, "experiments", struct {
		Experiments []gate.Experiment
		Rows        [][]string
		Remarks     []string
	}{all, gate.Rows(all), gate.Remarks(all)})
}
