package storetest

import (
	"fmt"
	"slices"
	"strings"

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
			words := []string{n.Kind, n.Name, n.Label, n.Comment, "by", n.Author}
			if n.Value != nil {
				words = slices.Insert(words, 2, fmt.Sprint(*n.Value))
			}
			all = append(all, strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " "))
		}
	}
	return all
}
