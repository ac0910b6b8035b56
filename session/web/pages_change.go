package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agenttrace/agenttrace/session/store"
)

// maxForm is the size in bytes up to which a form is accepted.
const maxForm = 256 << 10

// change does what a form asks for, and leads back to its page.
func (v *pages) change(w http.ResponseWriter, r *http.Request) error {
	if v.Change == nil {
		return NewProblem("read-only", http.StatusForbidden, "", "",
			"sessions cannot be changed here: the pages are for reading only")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return invalid("the form cannot be read: %v", err)
	}
	id, now := element(r.PathValue("id")), time.Now()
	to := back(r, "/s/", Address("s", id))
	err := v.Change(r.Context(), func(ctx context.Context, s store.Service) error {
		switch r.PostFormValue("do") {
		case "title":
			title := field(r, "text")
			if title == "" {
				return invalid("the title is empty; enter one")
			}
			return s.SetTitle(ctx, id, title, now)
		case "archive", "unarchive":
			return s.Archive(ctx, id, r.PostFormValue("do") == "archive", now)
		case "annotate", "remove":
			a, err := NewAnnotator(ctx, s, id, now)
			if err != nil {
				return err
			}
			if r.PostFormValue("do") == "remove" {
				err = a.Remove(r.PostFormValue("annotation"))
			} else {
				err = v.annotate(a, r)
			}
			if err != nil {
				return err
			}
			return s.Annotate(ctx, a.Changes())
		case "fork", "rewind", "unrewind":
			var err error
			to, err = v.branch(ctx, s, r, id, now)
			return err
		}
		return invalid("the form asks for nothing that is known")
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// back is the page that has the form, which must be below a path, or the page that is given instead. Only a path of
// this server is one: a form of another page leads nowhere else.
func back(r *http.Request, below, instead string) string {
	to, err := url.Parse(r.PostFormValue("back"))
	if err != nil || to.IsAbs() || to.Host != "" || strings.HasPrefix(to.Path, "//") ||
		!strings.HasPrefix(to.Path, below) {
		return instead
	}
	return to.String()
}

// branch forks a session after a turn, hides what comes after a turn's question, or shows again what was hidden last.
// It returns the address of the page that shows the result.
func (v *pages) branch(ctx context.Context, s store.Service, r *http.Request, id string, now time.Time) (string,
	error) {
	c, err := AtRest(ctx, v.Sessions.On(s), id)
	if err != nil {
		return "", err
	}
	if r.PostFormValue("do") == "unrewind" {
		_, err = c.Unrewind(ctx, s)
		return Address("s", id, "tree"), err
	}
	turn, err := strconv.Atoi(r.PostFormValue("turn"))
	if err != nil {
		return "", invalid("%q is not the number of a turn", r.PostFormValue("turn"))
	}
	at := Place{Turn: &turn}
	if r.PostFormValue("do") == "rewind" {
		_, err = c.Rewind(ctx, s, at, now)
		return Address("s", id), err
	}
	forked, err := c.Fork(ctx, s, at, field(r, "text"), now)
	if err != nil {
		return "", err
	}
	return Address("s", forked.SessionID), nil
}

// field is a field of a form.
func field(r *http.Request, name string) string {
	return strings.ToValidUTF8(strings.TrimSpace(r.PostFormValue(name)), "\uFFFD")
}

// annotate adds the annotation that a form asks for. Of a message it is the turn's.
func (v *pages) annotate(a *Annotator, r *http.Request) error {
	n := store.Annotation{MessageID: r.PostFormValue("message"), PartID: r.PostFormValue("part"),
		Kind: r.PostFormValue("kind"), Author: v.Author}
	if n.Kind == store.AnnotationNote {
		n.Comment = field(r, "text")
	} else {
		n.Name = field(r, "text")
	}
	if n.Kind == store.AnnotationScore {
		var err error
		if n.Value, err = strconv.ParseFloat(strings.TrimSpace(r.PostFormValue("value")), 64); err != nil {
			return invalid("the score %q is not a number", r.PostFormValue("value"))
		}
	}
	_, err := a.Set(n)
	return err
}
