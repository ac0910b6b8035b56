package view

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/service"
	"github.com/agenttrace/agenttrace/session/store"
)

// maxForm is the size in bytes up to which a form is accepted.
const maxForm = 256 << 10

// change does what a form asks for, and leads back to its page.
func (v *view) change(w http.ResponseWriter, r *http.Request) error {
	if v.Change == nil {
		return &problem{http.StatusForbidden, "sessions cannot be changed here: the pages are for reading only"}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return invalid("the form cannot be read: %v", err)
	}
	id, now := element(r.PathValue("id")), time.Now()
	err := v.Change(r.Context(), func(ctx context.Context, s service.Service) error {
		switch r.PostFormValue("do") {
		case "title":
			title := strings.ToValidUTF8(strings.TrimSpace(r.PostFormValue("text")), "\uFFFD")
			if title == "" {
				return invalid("the title is empty; enter one")
			}
			return s.SetTitle(ctx, id, title, now)
		case "archive", "unarchive":
			return s.Archive(ctx, id, r.PostFormValue("do") == "archive", now)
		case "annotate":
			return v.annotate(ctx, s, r, id, now.UnixMilli())
		case "remove":
			return remove(ctx, s, id, r.PostFormValue("annotation"), now.UnixMilli())
		}
		return invalid("the form asks for nothing that is known")
	})
	if err != nil {
		return err
	}
	// Only a path of this server: a form of another page leads nowhere else.
	to, err := url.Parse(r.PostFormValue("back"))
	if err != nil || to.IsAbs() || to.Host != "" || !strings.HasPrefix(to.Path, "/s/") {
		http.Redirect(w, r, Address("s", id), http.StatusSeeOther)
		return nil
	}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
	return nil
}

func (v *view) annotate(ctx context.Context, s service.Service, r *http.Request, id string, now int64) error {
	n := v.annotation(r, id, now)
	if n.Kind == store.AnnotationScore {
		value, err := strconv.ParseFloat(strings.TrimSpace(r.PostFormValue("value")), 64)
		if err != nil {
			return invalid("the score %q is not a number", r.PostFormValue("value"))
		}
		n.Value = value
	}
	n.Identify()
	if err := n.Check(); err != nil {
		return invalid("%v", err)
	}
	return s.Annotate(ctx, []store.Annotation{n})
}

// remove takes back an annotation.
func remove(ctx context.Context, s service.Service, id, annotation string, now int64) error {
	all, err := s.Annotations(ctx, id)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n.ID == annotation {
			n.UpdatedAt, n.DeletedAt = max(now, n.UpdatedAt+1), &now
			return s.Annotate(ctx, []store.Annotation{n})
		}
	}
	return notFound("the session has no annotation %s", annotation)
}
