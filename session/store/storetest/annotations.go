package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/agenttrace/agenttrace/session/store"
)

// annotation is one of a session that was made, changed or undone at a time.
func annotation(kind, name string, at int64, more func(*store.Annotation)) store.Annotation {
	n := store.Annotation{SessionID: "s1", Kind: kind, Name: name, Author: "ann", CreatedAt: epoch + at,
		UpdatedAt: epoch + at}
	if more != nil {
		more(&n)
	}
	n.Identify()
	return n
}

func annotated(all ...store.Annotation) store.Batch { return store.Batch{Annotations: all} }

// shown are the annotations that are not undone, in their order.
func (h *harness) shown(s Store, id string) (all []string) {
	h.Helper()
	found, err := s.Annotations(h.Context(), id)
	h.check(err)
	for _, n := range found {
		if n.DeletedAt == nil {
			all = append(all, fmt.Sprintf("%s %s %g %s by %s", n.Kind, n.Name, n.Value, n.Comment, n.Author))
		}
	}
	return all
}

var annotationCases = []testCase{
	{"annotations/annotate", "Annotate refuses a session that is not there and what is no annotation, and then " +
		"stores nothing; deleting a session deletes its annotations.", with(func(h *harness, s Store) {
		ctx := context.Background()
		h.apply(s, user("s1", "m1", 10))
		good := annotation("tag", "good", 20, nil)
		other := good
		other.SessionID = "s2"
		if err := s.Annotate(ctx, []store.Annotation{good, other}); !errors.Is(err, store.ErrNotFound) {
			h.Errorf("of a session that is not there: %v", err)
		}
		for what, change := range map[string]func(*store.Annotation){
			"no name":                    func(n *store.Annotation) { n.Name = "" },
			"no kind":                    func(n *store.Annotation) { n.Kind = "star" },
			"a part without its message": func(n *store.Annotation) { n.PartID = "p" },
			"NUL":                        func(n *store.Annotation) { n.Comment = "a\x00" },
		} {
			bad := good
			change(&bad)
			if err := s.Annotate(ctx, []store.Annotation{good, bad}); err == nil {
				h.Errorf("%s is accepted", what)
			}
		}
		h.equal("annotations after errors", h.shown(s, "s1"), []string(nil))
		h.check(s.Annotate(ctx, []store.Annotation{good}))
		h.equal("annotations", h.shown(s, "s1"), []string{"tag good 0  by ann"})
		h.check(s.Delete(ctx, "s1"))
		h.apply(s, user("s1", "m1", 10))
		h.equal("annotations of a session that was made again", h.shown(s, "s1"), []string(nil))
	})},
}
