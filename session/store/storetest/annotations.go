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

// named states which session an observation names.
func named(id string) func(*store.Observation) { return of(id, 0) }

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
	{"annotations/converge", "A tag is one per target, a score one per name and author; the last change counts, an " +
		"undone one stays undone until it is set again, in any order.", func(h *harness) {
		undone := func(n *store.Annotation) { n.DeletedAt = &n.UpdatedAt }
		score := func(value float64, author string) func(*store.Annotation) {
			return func(n *store.Annotation) { n.Value, n.Author = value, author }
		}
		h.story([]store.Batch{
			user("s1", "m1", 10),
			annotated(annotation("tag", "good", 20, nil), annotation("tag", "again", 21, nil)),
			annotated(annotation("tag", "good", 30, func(n *store.Annotation) { n.Author = "bob" })),
			annotated(annotation("tag", "bad", 22, nil), annotation("tag", "bad", 32, undone),
				annotation("tag", "again", 25, undone)),
			annotated(annotation("tag", "again", 40, nil), annotation("score", "quality", 23, score(0.5, "ann"))),
			annotated(annotation("score", "quality", 50, score(-1, "ann")),
				annotation("score", "quality", 24, score(1, "bob"))),
			annotated(annotation("note", "", 26, func(n *store.Annotation) { n.Comment = "see é" })),
		}, func(s Store) {
			h.equal("annotations", h.shown(s, "s1"), []string{
				"tag good 0  by bob", "tag again 0  by ann", "score quality -1  by ann", "score quality 1  by bob",
				"note  0 see é by ann",
			})
			h.equal("updated_at", h.transcript(s, "s1").Session.UpdatedAt, int64(epoch+10))
		})
	}},
	{"annotations/targets", "Annotations stay when their message is rebuilt or was never there, and forks do not " +
		"copy them.", func(h *harness) {
		of := func(message, part string) func(*store.Annotation) {
			return func(n *store.Annotation) { n.MessageID, n.PartID = message, part }
		}
		h.story([]store.Batch{
			user("s1", "m1", 10), assistant("s1", "m2", 20, 3),
			annotated(annotation("tag", "of the session", 20, nil), annotation("tag", "of the turn", 21, of("m1", "")),
				annotation("tag", "of the part", 22, of("m2", "m2-text")),
				annotation("tag", "of nothing", 23, of("gone", "gone"))), fork("fork", "s1", "m2", 60),
		}, func(s Store) {
			h.equal("annotations", h.shown(s, "s1"),
				[]string{"tag of the session 0  by ann", "tag of the turn 0  by ann",
					"tag of the part 0  by ann", "tag of nothing 0  by ann"})
			h.equal("annotations of the fork", h.shown(s, "fork"), []string(nil))
			if _, err := s.Session(h.Context(), "fork"); err != nil {
				h.Error(err)
			}
		})
	}},
	{"annotations/moved-session", "Annotations follow when all of a session moves to another, whose key is better, " +
		"with what they are about.", func(h *harness) {
		of := func(session, message string) func(*store.Annotation) {
			return func(n *store.Annotation) { n.SessionID, n.MessageID = session, message }
		}
		h.with(func(s Store) {
			h.apply(s, observed("a", "t0", 0, 50, script{Input: 3}, opens))
			before := h.transcript(s, "own-a").Messages[0].Message.ID
			h.apply(s, annotated(annotation("tag", "good", 20, of("own-a", "")),
				annotation("score", "q", 21, of("own-a", before))))
			h.apply(s, observed("a", "key", 60, 60, script{Silent: true}, named("s1")))
			h.equal("sessions", h.ids(s), []string{"s1"})
			after := h.transcript(s, "s1").Messages[0].Message.ID
			h.equal("annotations", h.shown(s, "s1"), []string{"tag good 0  by ann", "score q 0  by ann"})
			all, err := s.Annotations(h.Context(), "s1")
			h.check(err)
			want := annotation("score", "q", 21, of("s1", after))
			h.equal("target and id", []string{all[1].MessageID, all[1].ID}, []string{after, want.ID})
			h.equal("annotations of the former session", h.shown(s, "own-a"), []string(nil))
		})
	}},
	{"annotations/import", "Annotations of imported sessions converge with those of the store, in any order, and " +
		"with a second import nothing changes.", func(h *harness) {
		versions := []*store.Imported{
			file("s1", 9, "t", answer("msg_1", 2, 3, 5)), file("s1", 9, "t", answer("msg_1", 2, 3, 5)),
			file("s1", 9, "t", answer("msg_1", 2, 3, 5)),
		}
		versions[0].Annotations = []store.Annotation{annotation("tag", "a", 1, nil), annotation("tag", "b", 1, nil)}
		versions[1].Annotations = []store.Annotation{annotation("tag", "a", 5,
			func(n *store.Annotation) { n.DeletedAt = &n.UpdatedAt })}
		versions[2].Annotations = []store.Annotation{annotation("tag", "a", 5,
			func(n *store.Annotation) { n.Comment = "as late" }),
			annotation("score", "s", 7, func(n *store.Annotation) { n.Value = 0.1 })}
		h.importedInAnyOrder(versions, func(s Store) {
			h.equal("annotations", h.shown(s, "s1"), []string{"tag b 0  by ann", "score s 0.1  by ann"})
		})
	}},
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
	{"annotations/observed", "A tag of a turn stays when telemetry of another agent rebuilds the turn.",
		with(func(h *harness, s Store) {
			h.apply(s, observed("a", "t1", 10, 20, script{}, of("s1", 0)))
			m := h.transcript(s, "s1").Messages[0]
			n := annotation("tag", "kept", 20, func(n *store.Annotation) {
				n.MessageID, n.PartID = m.Message.ID, m.Parts[0].ID
			})
			h.check(s.Annotate(h.Context(), []store.Annotation{n}))
			h.apply(s, observed("a", "t0", 0, 30, script{}, opens))
			again := h.transcript(s, "s1").Messages[0]
			if again.Message.ID == m.Message.ID {
				h.Errorf("message %s was not rebuilt", m.Message.ID)
			}
			h.equal("annotations", h.shown(s, "s1"), []string{"tag kept 0  by ann"})
		})},
}
