package web

import (
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
	Items []nowItem
}

type nowItem struct {
	document.Status
	WorkspaceRoot string
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
		if at >= 0 {
			groups[at].Items = append(groups[at].Items, nowItem{st, session.Deref(rows[i].WorkspaceRoot)})
		}
	}
	return v.show(w, r, page{Title: "Now", Here: "now"}, "now", struct {
		Groups []nowGroup
		Live   bool // reports that the page is updated while it is open
	}{groups, v.Changes != nil})
}
