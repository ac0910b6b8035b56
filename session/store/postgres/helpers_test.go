package postgres_test

import (
	"bytes"
	"testing"

	"github.com/agenttrace/agenttrace/session/codec/jsonl"
	"github.com/agenttrace/agenttrace/session/store"
)

// lines are all sessions of a store, each in the canonical format, by id.
func lines(t testing.TB, r store.Reader) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for row, err := range r.Sessions(t.Context(), store.SessionQuery{Limit: -1, Children: true, Archived: true}) {
		if err != nil {
			t.Fatal(err)
		}
		transcript, err := r.Transcript(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := jsonl.Encode(&b, transcript); err != nil {
			t.Fatal(err)
		}
		all[row.ID] = b.String()
	}
	return all
}
