package document_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// show and ls list scores, then tags, then notes, each by name and time, whatever the ids are.
func TestAnnotationsAreShownByKindNameAndTime(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	testscale.Must(t, err)
	defer s.Close()
	annotation := func(id string, kind store.AnnotationKind, name string, at int64) store.Annotation {
		return store.Annotation{ID: id, SessionID: "s1", Kind: kind, Name: name, Comment: id, CreatedAt: at, Value: new(0.0),
			UpdatedAt: at}
	}
	batch := store.Batch{Sessions: []store.SessionChange{{ID: "s1", Start: 1, End: 1}}, Annotations: []store.Annotation{
		annotation("a", store.AnnotationNote, "", 2), annotation("z", store.AnnotationNote, "", 1),
		annotation("b", store.AnnotationTag, "y", 1), annotation("c", store.AnnotationTag, "x", 2),
		annotation("e", store.AnnotationScore, "s", 9), annotation("d", store.AnnotationScore, "s", 9),
		annotation("f", store.AnnotationScore, "s", 3),
	}}
	if _, err := s.Apply(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
	want := []string{"f", "d", "e", "c", "b", "z", "a"}
	rows, err := s.Annotations(t.Context(), "s1")
	testscale.Must(t, err)
	shown := document.PlaceAnnotations(&session.Transcript{}, rows).Session
	row, err := s.Session(t.Context(), "s1")
	testscale.Must(t, err)
	items, _, err := document.Reader{Reader: s}.Items(t.Context(), []session.Session{row})
	testscale.Must(t, err)
	for what, all := range map[string][]document.Annotation{"show": shown, "ls": items[0].Annotations} {
		var got []string
		for i := range all {
			got = append(got, all[i].Comment)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}
