package web

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// filterParams select sessions, by the names that filters have everywhere.
type filterParams struct {
	store.SessionFilter
	Status       string
	Tags         []string `param:"tag"`
	Scores       []score  `param:"score"`
	Since, Until instant
}

// filter is the filter of the parameters, where days begin in a zone.
func (p *filterParams) filter(zone *time.Location) store.SessionFilter {
	f := p.SessionFilter
	f.Tags, f.Since, f.Until = p.Tags, p.Since.in(zone), p.Until.in(zone)
	for _, s := range p.Scores {
		f.Scores = append(f.Scores, s.ScoreFilter)
	}
	return f
}

type listParams struct {
	filterParams
	Parent             string `session:""`
	Children, Archived bool
	Sort               string
	Limit              int
	Cursor             cursor
}

// sessionList is a part of the list of sessions.
type sessionList struct {
	Sessions []document.Item `json:"sessions"`
	// Next continues the list, if it goes on.
	Next string `json:"next,omitempty"`
	// UnpricedModels are those that costs could not be estimated of.
	UnpricedModels []string `json:"unpriced_models,omitempty"`
	// Filters explain an empty list.
	Filters []document.Exclusion `json:"filters,omitempty"`
	// Others reports, of an empty list, that archived sessions or those of sub-agents match.
	Others bool `json:"others_match,omitempty"`
}

// query is what the parameters select.
func (p *listParams) query(zone *time.Location) store.SessionQuery {
	sort, _ := store.ParseSessionSort(p.Sort)
	return store.SessionQuery{SessionFilter: p.filter(zone), Sort: sort, Limit: p.Limit + 1, Children: p.Children,
		Archived: p.Archived, Before: p.Cursor.Cursor, ParentID: p.Parent}
}

// rows returns a part of the list of sessions, and the cursor that continues it, "" at its end.
func (a *Backend) rows(ctx context.Context, p *listParams, zone *time.Location) (rows []session.Session, next string,
	err error) {
	rows, err = a.Sessions.Select(ctx, p.query(zone), p.Status)
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = cursorOf(&rows[p.Limit-1])
	}
	return rows, next, err
}

func (a *api) list(ctx context.Context, p listParams) (list sessionList, err error) {
	rows, next, err := a.rows(ctx, &p, time.UTC)
	if err != nil {
		return list, err
	}
	list.Next = next
	if list.Sessions, list.UnpricedModels, err = a.Sessions.Items(ctx, rows); err != nil {
		return list, err
	}
	if len(rows) == 0 && p.Cursor.Cursor == nil {
		list.Filters, list.Others, err = a.Sessions.Exclusions(ctx, p.query(time.UTC), p.Status)
	}
	return list, err
}

// maxSearch is how long a search looks for a text.
const maxSearch = 20 * time.Second

type searchParams struct {
	filterParams
	Query  string `param:"q"`
	Regexp bool
	Limit  int
}

// searchResult is where a text was found.
type searchResult struct {
	Hits []store.Hit `json:"hits"`
	// More reports that there may be more places than the limit, or that not everything was looked through in time.
	More bool `json:"more"`
	// Filters explain that no session was looked at.
	Filters []document.Exclusion `json:"filters,omitempty"`
}

func (a *api) search(ctx context.Context, p searchParams) (found searchResult, err error) {
	q := store.SearchQuery{Text: p.Query, Regexp: p.Regexp, Agent: p.Agent, Since: p.Since.in(time.UTC)}
	if p.Regexp {
		if _, err := q.Compile(); err != nil {
			return found, Invalidf("q", "use the syntax of RE2", "%v", err)
		}
	}
	f := p.filter(time.UTC)
	f.Agent, f.Since = "", time.Time{} // the search itself selects by these
	var within []string                // nil is all
	if len(f.Set()) > 0 || p.Status != "" {
		if within, err = a.Sessions.SelectIDs(ctx, f, p.Status); err != nil {
			return found, err
		}
		if len(within) == 0 {
			found.Hits = []store.Hit{}
			all := store.SessionQuery{SessionFilter: f, Children: true, Archived: true}
			found.Filters, _, err = a.Sessions.Exclusions(ctx, all, p.Status)
			return found, err
		}
	}
	found.Hits, found.More, err = a.Sessions.Find(ctx, q, within, p.Limit, maxSearch)
	return found, err
}

type statsParams struct {
	filterParams
	By   groups
	Zone zone
}

func (a *api) stats(ctx context.Context, p statsParams) (store.Stats, error) {
	q := store.StatsQuery{By: p.By, Since: p.Since.in(time.UTC), Until: p.Until.in(time.UTC),
		Location: p.Zone.Location, Sessions: p.filter(time.UTC), Price: a.Sessions.Price}
	if p.Status != "" {
		var err error
		if q.Sessions.IDs, err = a.Sessions.SelectIDs(ctx, q.Sessions, p.Status); err != nil {
			return store.Stats{}, err
		}
	}
	return a.Sessions.Stats(ctx, q)
}

// serverStatus is what is served.
type serverStatus struct {
	// Version is that of the program, Store the path or address of the store.
	Version string `json:"version,omitempty"`
	Store   string `json:"store"`
	// Changeable reports that sessions can be changed, Events that there are events.
	Changeable bool `json:"changeable"`
	Events     bool `json:"events"`
	// Pending counts the spans and log records that are not attributed to a session yet.
	Pending int64 `json:"pending"`
}

func (a *api) serverStatus(ctx context.Context, _ none) (serverStatus, error) {
	pending, err := a.Sessions.Pending(ctx)
	return serverStatus{a.version, a.Sessions.Name(), a.Change != nil, a.Changes != nil, pending}, err
}

func (a *api) openAPI(context.Context, none) (json.RawMessage, error) {
	return describe(a.version), nil
}
