package web

import (
	"bytes"
	"html/template"
	"net/http"

	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/render"
)

// diff answers with the differences of two sessions, which the form names in its query.
func (v *pages) diff(w http.ResponseWriter, r *http.Request) error {
	ids := [2]string{pathOf(r, "a"), pathOf(r, "b")}
	if ids[0] == "" {
		for i, name := range []string{"a", "b"} {
			var err error
			if ids[i], err = v.Sessions.Resolve(r.Context(), r.URL.Query().Get(name)); err != nil {
				return err
			}
		}
		http.Redirect(w, r, Address("diff", ids[0], ids[1]), http.StatusSeeOther)
		return nil
	}
	d, one, other, err := v.Sessions.Compare(r.Context(), ids[0], ids[1], false)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := render.Comparison(&body, d, one, other, document.Words{Zone: v.Zone}); err != nil {
		return err
	}
	return v.show(w, r, page{Title: "Diff"}, "diff", struct {
		A, B *document.Document
		Body template.HTML
	}{one, other, template.HTML(body.String())})
}
