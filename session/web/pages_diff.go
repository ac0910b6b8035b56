package web

import (
	"bytes"
	"html/template"
	"net/http"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// maxCompared is how many sessions a page has beside each other.
const maxCompared = 20

// diff answers with the differences of two sessions, which the list names in its query, or with more beside each other.
func (v *pages) diff(w http.ResponseWriter, r *http.Request) error {
	query, ids := r.URL.Query(), []string{pathOf(r, "a"), pathOf(r, "b")}
	exact := query.Get("exact") != ""
	if ids[0] == "" {
		ids = nil
		for _, name := range slices.Concat(query["s"], query["a"], query["b"]) {
			id, err := v.Sessions.Resolve(r.Context(), name)
			if err != nil {
				return err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		switch {
		case len(ids) < 2 || len(ids) > maxCompared:
			return invalid("%s chosen; go back to the list and choose 2 to %d",
				document.Plural(len(ids), "session is", "sessions are"), maxCompared)
		case len(ids) > 2:
			return v.compare(w, r, ids, exact)
		}
		http.Redirect(w, r, Address("diff", ids[0], ids[1]), http.StatusSeeOther)
		return nil
	}
	d, one, other, err := v.Sessions.Compare(r.Context(), ids[0], ids[1], document.CompareOptions{Exact: exact})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := render.Comparison(&body, d, one, other, document.Words{Zone: v.Zone}); err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Diff"}, "diff", struct {
		A, B  *document.Document
		Exact bool
		With  string // the address of the page with the other way to compare
		Body  template.HTML
	}{one, other, exact, exactly(r, !exact), template.HTML(body.String())})
}

// comparedSession is a session beside others, with where it and the first of them part ways: nil of the first, and of
// one that does not differ from it.
type comparedSession struct {
	document.Item
	ToolCalls int
	First     *document.Divergence
	Link      string
}

// compare answers with sessions beside each other.
func (v *pages) compare(w http.ResponseWriter, r *http.Request, ids []string, exact bool) error {
	ctx := r.Context()
	var rows []session.Session
	for _, id := range ids {
		row, err := v.Sessions.Session(ctx, id)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	items, _, err := v.Sessions.Briefly(ctx, rows)
	if err != nil {
		return err
	}
	first, err := v.Sessions.LoadAll(ctx, ids[0])
	if err != nil {
		return err
	}
	all := make([]comparedSession, len(items))
	for i := range items {
		doc := first
		if i > 0 {
			if doc, err = v.Sessions.LoadAll(ctx, ids[i]); err != nil {
				return err
			}
			all[i].First = document.Compare(first, doc, document.CompareOptions{Exact: exact}).First
			all[i].Link = Address("diff", ids[0], ids[i])
		}
		all[i].Item, all[i].ToolCalls = items[i], doc.Totals.ToolCalls
	}
	return v.show(w, r, page{Title: "Compare"}, "compare", struct {
		Sessions []comparedSession
		Exact    bool
		With     string // the address of the page with the other way to compare
	}{all, exact, exactly(r, !exact)})
}

// exactly is the address of the page with everything that differs counted, or without.
func exactly(r *http.Request, exact bool) string {
	q := r.URL.Query()
	if q.Del("exact"); exact {
		q.Set("exact", "1")
	}
	return r.URL.EscapedPath() + "?" + q.Encode()
}
