package web

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

// pageSize is the number of sessions, or of places where a text was found, in a page.
const pageSize = 50

// maxPageSearch is how long a page looks for a text, and maxPlaces after how many places a page begins.
const (
	maxPageSearch = 5 * time.Second
	maxPlaces     = 10_000
)

// suggested is of how many of the newest sessions the form suggests what to filter by.
const suggested = 200

// listPage is what the list of sessions shows.
type listPage struct {
	// Days are the sessions by the day of the time that they are ordered by, otherwise all in one without a name. Sum is
	// the sum of them, and Shown their number.
	Days  []dayGroup
	Sum   document.Item
	Shown int
	// Found are the sessions in which a text was found in Places places, the first of which is the one after From.
	Found        []foundSession
	From, Places int
	// Query are the filters as they are in the address, and Kept those that the form has no field for.
	Query, Kept url.Values
	// Filters are those that are set, each with the address of the list without it, and Offers some that are not, with
	// the address of the list with it.
	Filters, Offers []filter
	// Columns are those of the list.
	Columns []listColumn
	sort    store.SessionSort
	// Next is the address of the next page, "" on the last.
	Next string
	// Partial reports that a search ended before all was looked through.
	Partial bool
	// Store names the store, of which Empty reports that it has no session at all.
	Store string
	Empty bool
	// Sorts are the orders of the list, and Statuses what sessions can be doing. Known are the agents, projects, models
	// and tags of sessions, by the name of the filter.
	Sorts, Statuses []string
	Known           map[string][]string
	// Zone names the zone of the times.
	Zone string
	// Live is the address of the page, "" of one that is not updated while it is open.
	Live string
}

// dayGroup are the sessions of a day.
type dayGroup struct {
	Name  string
	Items []document.Item
}

// foundSession is a session with the places in which a text was found.
type foundSession struct {
	store.Hit // the first of them
	Hits      []store.Hit
}

// listColumn is the head of a column. Link is the address of the list in the order of the column, "" if there is none,
// and Order how the list is ordered by it: ascending, descending or "".
type listColumn struct{ Name, Class, Link, Order string }

// filter is one that is set, or that can be.
type filter struct{ Text, Link string }

// filters are the parameters that select sessions, and q.
var filters = []string{"q", "session", "project", "agent", "model", "provider", "user", "tag", "score", "tool", "text",
	"status", "errors", "loops", "denials", "since", "until", "children", "archived"}

// offers are filters that one click sets, in words.
var offers = []struct{ name, value, text string }{
	{"status", string(document.ActivityWaitingApproval), "waiting for approval"},
	{"status", string(document.ActivityBusy), "busy"}, {"errors", "1", "with errors"}, {"loops", "1", "with loops"},
	{"denials", "1", "with denials"}, {"children", "1", "sub-agents too"}, {"archived", "1", "archived too"},
}

// list answers with the list of sessions, or with the places of a text.
func (v *pages) list(w http.ResponseWriter, r *http.Request) error {
	ctx, query := r.Context(), r.URL.Query()
	zone, _ := time.Now().In(v.Zone).Zone()
	p := &listPage{Query: query, Kept: url.Values{}, Store: v.Sessions.Name(), Zone: zone,
		Sorts: store.SessionSorts(), Statuses: document.Statuses()}
	for _, name := range filters {
		for _, value := range query[name] {
			if value == "" {
				continue
			}
			text := name + ": " + value
			for _, o := range offers {
				if o.name == name && o.value == value {
					text = o.text
				}
			}
			p.Filters = append(p.Filters, filter{text, with(query, name, "")})
			if !slices.Contains([]string{"agent", "project", "model", "tag", "status", "since"}, name) {
				p.Kept.Add(name, value)
			}
		}
	}
	for _, o := range offers {
		if query.Get(o.name) != o.value {
			p.Offers = append(p.Offers, filter{o.text, with(query, o.name, o.value)})
		}
	}
	var err error
	if query.Get("q") != "" {
		err = v.search(ctx, p)
	} else {
		err = v.listSessions(ctx, p)
		if v.Changes != nil && query.Get("cursor") == "" {
			p.Live = "/sessions?" + query.Encode()
		}
	}
	if err != nil {
		return err
	}
	p.Empty = len(p.Days)+len(p.Found) == 0
	if p.Known, err = v.known(ctx, &p.Empty); err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Sessions", Here: "sessions", Search: query.Get("q")}, "sessions", p)
}

// known are the agents, projects, models and tags of the newest sessions. If there is any session, empty is set false.
func (v *pages) known(ctx context.Context, empty *bool) (map[string][]string, error) {
	known, ids := map[string][]string{}, []string(nil)
	add := func(name, value string) {
		if value != "" && !slices.Contains(known[name], value) {
			known[name] = append(known[name], value)
		}
	}
	for s, err := range v.Sessions.Sessions(ctx, store.SessionQuery{Limit: suggested, Children: true, Archived: true}) {
		if err != nil {
			return nil, err
		}
		*empty, ids = false, append(ids, s.ID)
		add("agent", s.Agent)
		add("project", session.Deref(s.WorkspaceRoot))
		if m := document.NewItem(&s, nil, &store.Spent{}, time.Time{}, 0).Model; m != nil {
			add("model", m.ModelID)
		}
	}
	annotations, err := v.Sessions.Annotations(ctx, ids...)
	for i := range annotations {
		if n := &annotations[i]; n.Kind == store.AnnotationTag && n.DeletedAt == nil {
			add("tag", n.Name)
		}
	}
	for _, values := range known {
		slices.Sort(values)
	}
	return known, err
}

// with is the address of the list with a parameter changed, on its first page.
func with(query url.Values, name, value string) string {
	return changed("/sessions", query, name, value)
}

// changed is the address of the first page of a path with a parameter changed.
func changed(path string, query url.Values, name, value string) string {
	q := url.Values{}
	for k, all := range query {
		if k != name && k != "cursor" && k != "from" {
			q[k] = slices.DeleteFunc(slices.Clone(all), func(value string) bool { return value == "" })
		}
	}
	if value != "" {
		q.Set(name, value)
	}
	if text := q.Encode(); text != "" {
		return path + "?" + text
	}
	return path
}

// search finds the text of the query in the sessions that the filters select.
func (v *pages) search(ctx context.Context, p *listPage) (err error) {
	q := store.SearchQuery{Text: p.Query.Get("q"), Session: p.Query.Get("session")}
	of := maps.Clone(p.Query)
	for _, own := range []string{"q", "session", "from"} {
		delete(of, own)
	}
	var params listParams
	if err := fromQuery(operationOf("listSessions"), of, &params); err != nil {
		return err
	}
	if from := p.Query.Get("from"); from != "" {
		if p.From, err = strconv.Atoi(from); err != nil || p.From < 0 || p.From > maxPlaces {
			return invalid("from is %q; use a number from 0 to %d", from, maxPlaces)
		}
	}
	f, within := params.filter(v.Zone), []string(nil)
	if len(f.Set()) > 0 || params.Status != "" {
		if within, err = v.Sessions.SelectIDs(ctx, f, params.Status); err != nil {
			return err
		}
	}
	hits, more, err := v.Sessions.Find(ctx, q, within, p.From+pageSize, maxPageSearch)
	if err != nil {
		return err
	}
	if len(hits) == p.From+pageSize && more {
		p.Next = with(p.Query, "from", strconv.Itoa(len(hits)))
	} else {
		p.Partial = more
	}
	at := map[string]int{}
	for _, h := range hits[min(p.From, len(hits)):] {
		i, known := at[h.SessionID]
		if !known {
			i, at[h.SessionID] = len(p.Found), len(p.Found)
			p.Found = append(p.Found, foundSession{Hit: h})
		}
		p.Found[i].Hits = append(p.Found[i].Hits, h)
		p.Places++
	}
	return nil
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
	items, _, err := v.Sessions.Briefly(ctx, rows)
	if err != nil {
		return err
	}
	p.Sum, p.Shown = document.Sum(items), len(items)
	p.sort, _ = store.ParseSessionSort(q.Sort)
	p.Columns = columnsOf(p.Query, p.sort)
	now := time.Now().In(v.Zone)
	for i := range items {
		name := ""
		if p.sort == store.SortUpdated || p.sort == store.SortCreated {
			name = day(time.UnixMilli(p.At(items[i])).In(v.Zone), now)
		}
		if n := len(p.Days); n == 0 || p.Days[n-1].Name != name {
			p.Days = append(p.Days, dayGroup{Name: name})
		}
		last := &p.Days[len(p.Days)-1]
		last.Items = append(last.Items, items[i])
	}
	return nil
}

// Tokens are the tokens of a session that the list has, and At the time.
func (p *listPage) Tokens(s document.Item) int64 {
	if p.sort == store.SortContext {
		return s.ContextTotal
	}
	return s.Total
}

// At is the time of a session that the list has.
func (p *listPage) At(s document.Item) int64 {
	if p.sort == store.SortCreated {
		return s.CreatedAt
	}
	return s.UpdatedAt
}

// day names the day of a time, both times of which are in the zone of the reader.
func day(t, now time.Time) string {
	switch date := t.Format(time.DateOnly); {
	case !session.Credible(t.UnixMilli()):
		return "At an unknown time"
	case date == now.Format(time.DateOnly):
		return "Today"
	case date == now.AddDate(0, 0, -1).Format(time.DateOnly):
		return "Yesterday"
	case t.Year() == now.Year():
		return t.Format("Monday, 2 January")
	}
	return t.Format("Monday, 2 January 2006")
}

// columnsOf are the columns of the list in an order. The column of tokens has those in context if the list is ordered
// by them, and the last one when sessions were created.
func columnsOf(query url.Values, sort store.SessionSort) []listColumn {
	by := func(name, class string, s store.SessionSort) listColumn {
		if s == store.SortUpdated && sort == store.SortCreated {
			name, s = "Created", sort
		} else if s == store.SortTokens && sort == store.SortContext {
			name, s = "In context", sort
		}
		c := listColumn{Name: name, Class: class, Link: with(query, "sort", string(s))}
		if s == sort {
			if c.Order = "descending"; s == store.SortTitle {
				c.Order = "ascending"
			}
		}
		return c
	}
	return []listColumn{{Name: "Status", Class: "sign"}, {Name: "Project"}, by("Session", "", store.SortTitle),
		{Name: "Agent · model"}, by("Turns", "n", store.SortTurns), by("Errors", "n", store.SortErrors),
		by("Tokens", "n", store.SortTokens), by("Cost", "n", store.SortCost),
		by("Duration", "n", store.SortDuration), by("Updated", "n", store.SortUpdated)}
}

// recent is how many of the sessions that were updated last the page Now looks at.
const recent = 200

// nowGroup are sessions that do the same.
type nowGroup struct {
	Title string
	Items []*nowItem
}

type nowItem struct {
	document.Status
	Opening, WorkspaceRoot string
	// Tokens and Cost are what the turn of a session that works has taken per minute since it began, nil and "" where
	// nobody counted.
	Tokens *int64
	Cost   string
}

// minRated is how long a turn has taken at least for it to have a rate.
const minRated = 5 * time.Second

// rate sets what the turn takes per minute.
func (n *nowItem) rate(t *document.Turn, now time.Time) {
	if t == nil || len(t.Messages) == 0 || t.Usage == nil {
		return
	}
	took := now.Sub(time.UnixMilli(t.Messages[0].CreatedAt))
	if took < minRated {
		return
	}
	perMinute := func(v float64) float64 { return v / took.Minutes() }
	n.Tokens = new(int64(perMinute(float64(t.Usage.Total()))))
	if t.CostUSD != nil || t.EstimatedCostUSD != nil {
		stated, estimated := perMinute(session.Deref(t.CostUSD)), t.EstimatedCostUSD
		if estimated != nil {
			estimated = new(perMinute(*estimated))
		}
		n.Cost = document.Cost(&stated, estimated)
	}
}

// now answers with the sessions that wait for somebody, repeat themselves, have failed or are at work.
func (v *pages) now(w http.ResponseWriter, r *http.Request) error {
	ctx, yesterday := r.Context(), time.Now().Add(-24*time.Hour)
	rows, err := v.Sessions.Select(ctx, store.SessionQuery{Limit: recent, Children: true}, "")
	if err != nil {
		return err
	}
	loops := store.SessionFilter{Loops: true, Since: yesterday}
	warned, err := v.Sessions.Select(ctx, store.SessionQuery{SessionFilter: loops, Limit: recent, Children: true}, "")
	if err != nil {
		return err
	}
	groups := []nowGroup{
		{Title: "Waiting for somebody"}, {Title: "Perhaps in a loop"}, {Title: "Failed or interrupted"},
		{Title: "Busy"},
	}
	now, rated := time.Now(), false
	for i := range rows {
		st, err := v.Sessions.StatusOf(ctx, &rows[i])
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		at := -1
		busy := st.State == document.ActivityBusy || st.State == document.ActivityRetrying
		switch {
		case st.State.Waiting():
			at = 0
		case busy && slices.ContainsFunc(warned, func(s session.Session) bool { return s.ID == rows[i].ID }):
			at = 1
		case st.State.Trouble() && time.UnixMilli(st.UpdatedAt).After(yesterday):
			at = 2
		case busy:
			at = 3
		}
		if at < 0 {
			continue
		}
		doc, err := v.Sessions.LoadLast(ctx, rows[i].ID) // which has the texts
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		item := &nowItem{Status: doc.Status, Opening: doc.Session.Opening, WorkspaceRoot: session.Deref(rows[i].WorkspaceRoot)}
		if busy {
			item.rate(doc.LastTurn(), now)
		}
		rated = rated || item.Tokens != nil
		groups[at].Items = append(groups[at].Items, item)
	}
	if r.URL.Query().Get("sort") == "rate" {
		for _, g := range groups {
			slices.SortStableFunc(g.Items, func(a, b *nowItem) int {
				return cmp.Compare(session.Deref(b.Tokens), session.Deref(a.Tokens))
			})
		}
	}
	return v.show(w, r, page{Title: "Now", Here: "now"}, "now", struct {
		Groups []nowGroup
		Rated  bool // reports that a session has a rate
		Self   string
		Live   bool // reports that the page is updated while it is open
	}{groups, rated, r.URL.RequestURI(), v.Changes != nil})
}
