package document_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/codec/codectest"
	"github.com/agenttrace/agenttrace/session/document"
	"github.com/agenttrace/agenttrace/session/price"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// TestTurnsOfAnOutlineAreThoseOfTheWholeSession compares every range of turns, loaded by itself, with the same range of
// the whole document, as its readers see it.
func TestTurnsOfAnOutlineAreThoseOfTheWholeSession(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "s.db"), sqlite.Options{})
	testscale.Must(t, err)
	defer s.Close()
	samples := append(codectest.Corpus(), codectest.Generated(200)...)
	var ids []string
	for i, sample := range samples {
		in := codectest.Clone(sample.Session)
		if _, err := s.Import(t.Context(), in); err != nil {
			t.Fatalf("%s: %v", sample.Name, err)
		}
		ids = append(ids, in.Session.ID)
		if i%7 == 3 && len(in.Messages) > 2 { // with a fork, a rewind and what a user noted
			m := &in.Messages[len(in.Messages)/2].Message
			fork, err := s.Fork(t.Context(), store.ForkOptions{From: in.Session.ID, Message: m.ID,
				Now: time.UnixMilli(in.Session.UpdatedAt + 1)})
			if err == nil {
				ids = append(ids, fork)
			}
			if m.Role == session.RoleUser {
				_, _ = s.Rewind(t.Context(), in.Session.ID, m.ID, time.UnixMilli(in.Session.UpdatedAt+1))
			}
			_ = s.Annotate(t.Context(), []store.Annotation{{SessionID: in.Session.ID, MessageID: m.ID,
				Kind: store.AnnotationTag, Name: "seen", CreatedAt: 1, UpdatedAt: 1}})
		}
	}
	find := func(session.Model) *price.Rate { return &price.Rate{Base: [5]float64{1, 2, 3, 4, 5}} }
	now := time.Now()
	r := document.Reader{Reader: s, IdleTimeout: time.Minute, Price: find, Now: func() time.Time { return now }}
	// sum is what is compared of a document that has the sums alone.
	sum := func(d *document.Document) string {
		text := asJSON(t, &document.Document{Totals: d.Totals}) + fmt.Sprint(d.Status.State, d.Session.State)
		for _, turn := range d.Turns {
			text += fmt.Sprintf("\n%d %v %d %q", turn.Number, turn.Hidden, turn.ModelCalls, turn.UserText())
		}
		return text
	}
	sums := map[string]string{}
	for d, err := range r.Each(t.Context(), append([]string{"none"}, ids...), true) {
		testscale.Must(t, err)
		sums[d.Session.ID] = sum(d)
	}
	ranges, hidden, compactions, forks := 0, 0, 0, 0
	for _, id := range ids {
		whole, err := r.LoadAll(t.Context(), id)
		testscale.Must(t, err)
		if d := cmp.Diff(strings.Split(sum(whole), "\n"), strings.Split(sums[id], "\n")); d != "" {
			t.Errorf("session %s (-whole +sums):\n%s", id, d)
		}
		hidden, compactions = hidden+whole.Totals.Hidden, compactions+whole.Totals.Compactions
		if whole.Session.Origin != nil && whole.Session.Origin.Fork {
			forks++
		}
		n := len(whole.Turns)
		spent, err := s.Spent(t.Context(), []string{id}, nil)
		testscale.Must(t, err)
		o, err := r.LoadOutline(t.Context(), id)
		testscale.Must(t, err)
		// A session without a question and an answer has a turn on its page.
		if got := spent[id]; got.Turns != int64(n) && got.Turns > 0 {
			t.Errorf("session %s: a list has %d turns, its pages have %d", id, got.Turns, n)
		}
		figures, err := s.Stats(t.Context(), store.StatsQuery{Sessions: store.SessionFilter{IDs: []string{id}}})
		testscale.Must(t, err)
		counts := func(errors, denied int64) string { return fmt.Sprintf("%d errors, %d denied", errors, denied) }
		of := func(t document.Totals) string { return counts(int64(t.Errors), int64(t.Denied)) }
		all := []string{of(whole.Totals), of(o.Document().Totals), counts(spent[id].Errors, spent[id].Denied)}
		if whole.Session.Origin == nil || !whole.Session.Origin.Fork { // figures count in its parent what a fork copied
			all = append(all, counts(figures.Total.Errors, figures.Total.DeniedCalls))
		}
		if len(slices.Compact(all)) > 1 {
			t.Errorf("session %s: the document, its outline, a list and stats count differently: %q", id, all)
		}
		matching, err := r.SelectIDs(t.Context(), store.SessionFilter{IDs: []string{id}, Errors: true}, "")
		testscale.Must(t, err)
		if whole.Totals.Errors > 0 && len(matching) == 0 {
			t.Errorf("session %s has %d errors and is not selected by them", id, whole.Totals.Errors)
		}
		for first := 1; first <= n; first++ {
			for last := first; last <= n; last += 1 + (n / 4) {
				part, err := r.LoadTurns(t.Context(), id, first, last)
				testscale.Must(t, err)
				ranges++
				want := whole.Between(first, last)
				// That a call or a text is elsewhere too is known of the turns that are loaded.
				want.Notices, part.Notices = nil, nil
				if want, got := asJSON(t, want), asJSON(t, part); want != got {
					diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
					t.Fatalf("turns %d to %d of the %d of session %s (-whole +range)\n%s", first, last, n, id, diff)
				}
			}
		}
		var none *document.NoTurnError
		if _, err := r.LoadTurns(t.Context(), id, 1, n+1); !errors.As(err, &none) {
			t.Errorf("a turn after the last: %v", err)
		}
	}
	if ranges < 200 || hidden == 0 || compactions == 0 || forks == 0 {
		t.Errorf("%d ranges, %d hidden turns, %d compactions, %d forks", ranges, hidden, compactions, forks)
	}
}

func asJSON(t *testing.T, doc *document.Document) string {
	t.Helper()
	text, err := json.MarshalIndent(doc, "", " ")
	testscale.Must(t, err)
	return string(text)
}
