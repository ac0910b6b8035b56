package storetest

import (
	"cmp"
	"slices"
	"testing"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Sessions returns all sessions of a store in the order of their ids, those of sub-agents and archived ones included.
func Sessions(t testing.TB, r store.Reader) (all []session.Session) {
	t.Helper()
	all = List(t, r, everything)
	slices.SortFunc(all, func(x, y session.Session) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// everything selects the sessions of a store.
var everything = store.SessionQuery{Limit: -1, Children: true, Archived: true}

// List returns the sessions that a query selects.
func List(t testing.TB, r store.Reader, q store.SessionQuery) (all []session.Session) {
	t.Helper()
	for row, err := range r.Sessions(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// Transcript returns a session of a store.
func Transcript(t testing.TB, r store.Reader, id string) *session.Transcript {
	t.Helper()
	transcript, err := r.Transcript(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return transcript
}

// CheckSessions runs the validator over every session of a store.
func CheckSessions(t testing.TB, r store.Reader) {
	t.Helper()
	for _, row := range Sessions(t, r) {
		for _, v := range session.Check(Transcript(t, r, row.ID)) {
			t.Errorf("session %s: %s", row.ID, v)
		}
	}
}
