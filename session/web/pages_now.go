package web

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
)

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
