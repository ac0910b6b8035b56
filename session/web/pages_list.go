package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// pageSize is the number of sessions, or of places where a text was found, in a page.
const pageSize = 50

// maxPageSearch is how long a page looks for a text.
const maxPageSearch = 5 * time.Second

// listPage is what the list of sessions shows.
type listPage struct {
	Items []document.Item
	Hits  []store.Hit
	// Query are the filters as they are in the address.
	Query url.Values
	// Filters are those that are set, each with the address of the list without it.
	Filters []filter
	// Next is the address of the next page, "" on the last.
	Next string
	// Partial reports that a search ended before all was looked through.
	Partial bool
	// Store names the store, of which Empty reports that it has no session at all.
	Store string
	Empty bool
	// Sorts are the orders of the list, and Statuses what sessions can be doing.
	Sorts, Statuses []string
	// Zone names the zone of the times.
	Zone string
	// Live is the address of the page, "" of one that is not updated while it is open.
	Live string
}

// filter is one that is set.
type filter struct{ Text, Without string }

// filters are the parameters that select sessions, and q.
var filters = []string{"q", "session", "project", "agent", "model", "provider", "user", "tag", "score", "tool", "text",
	"status", "errors", "loops", "denials", "since", "until", "children", "archived"}

// list answers with the list of sessions, or with the places of a text.
func (v *pages) list(w http.ResponseWriter, r *http.Request) error {
	ctx, query := r.Context(), r.URL.Query()
	zone, _ := time.Now().In(v.Zone).Zone()
	p := &listPage{Query: query, Store: v.Sessions.Name(), Zone: zone,
		Sorts: store.SessionSorts(), Statuses: document.Statuses()}
	for _, name := range filters {
		for _, value := range p.Query[name] {
			if value == "" {
				continue
			}
			text := name + ": " + value
			if value == "1" {
				text = "with " + name
			}
			p.Filters = append(p.Filters, filter{text, with(p.Query, name, "")})
		}
	}
	var err error
	if text := query.Get("q"); text != "" {
		q := store.SearchQuery{Text: text, Agent: query.Get("agent"), Session: query.Get("session")}
		p.Hits, p.Partial, err = v.Sessions.Find(ctx, q, nil, pageSize, maxPageSearch)
	} else {
		err = v.listSessions(ctx, p)
		if v.Changes != nil && query.Get("cursor") == "" {
			p.Live = "/sessions?" + query.Encode()
		}
	}
	if err != nil {
		return err
	}
	if len(p.Items)+len(p.Hits) == 0 {
		p.Empty = true
		for range v.Sessions.Sessions(ctx, store.SessionQuery{Limit: 1, Children: true, Archived: true}) {
			p.Empty = false
		}
	}
	return v.show(w, r, page{Title: "Sessions", Here: "sessions", Search: query.Get("q")}, "sessions", p)
}

// with is the address of the list with a parameter changed, on its first page.
func with(query url.Values, name, value string) string {
	q := url.Values{}
	for k, all := range query {
		if k != name && k != "cursor" {
			q[k] = slices.DeleteFunc(slices.Clone(all), func(value string) bool { return value == "" })
		}
	}
	if value != "" {
		q.Set(name, value)
	}
	if text := q.Encode(); text != "" {
		return "/sessions?" + text
	}
	return "/sessions"
}

func (v *pages) listSessions(ctx context.Context, p *listPage) error {
	var q listParams
	if err := fromQuery(operationOf("listSessions"), p.Query, &q); err != nil {
		return err
	}
	q.Limit = pageSize
	rows, next, err := v.rows(ctx, &q, v.Zone)
	if err != nil {
		return err
	}
	if next != "" {
		p.Next = with(p.Query, "cursor", next)
	}
	p.Items, _, err = v.Sessions.Briefly(ctx, rows)
	return err
}

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
