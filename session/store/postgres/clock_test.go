//go:build long

package postgres

import (
	"testing"
	"time"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// TestOutboxOfSkewedClocks: the clock of one collector is an hour behind that of another. What it changes is exported
// nevertheless, and its sessions have the times that the telemetry has.
func TestOutboxOfSkewedClocks(t *testing.T) {
	dsn := storetest.StartPostgres(t, "fsync = off", "synchronous_commit = off").Create(t)
	ahead, err := Open(t.Context(), dsn, Options{Outbox: true})
	testscale.Must(t, err)
	defer ahead.Close()
	behind, err := Open(t.Context(), dsn, Options{Outbox: true})
	testscale.Must(t, err)
	defer behind.Close()
	behind.clock = func() time.Time { return time.Now().Add(-time.Hour) }
	title := func(s *Store, text string, at int64) {
		t.Helper()
		if _, err := s.Apply(t.Context(),
			&store.Batch{Sessions: []store.SessionChange{{ID: "s", Start: 1000, End: 1000 + at,
				Title: &store.Value{Text: text, At: at, Rank: store.RankFinal}}}}); err != nil {
			t.Fatal(err)
		}
	}
	outbox := func() map[string]int64 {
		t.Helper()
		found, err := ahead.Outbox(t.Context())
		testscale.Must(t, err)
		return found
	}
	title(ahead, "first", 1)
	exported := outbox()["s"]
	title(behind, "second", 2) // while the first is exported
	testscale.Must(t, ahead.Exported(t.Context(), "s", exported))
	again, ok := outbox()["s"]
	if !ok {
		t.Fatal("the change of the collector with the clock behind is not exported")
	}
	testscale.Must(t, ahead.Exported(t.Context(), "s", again))
	if left := outbox(); len(left) > 0 {
		t.Errorf("%v is left to be exported", left)
	}
	row, err := ahead.Session(t.Context(), "s")
	if err != nil || row.Title != "second" || row.CreatedAt != 1000 || row.UpdatedAt != 1002 {
		t.Errorf("%+v, %v; want the second title and the times of the telemetry", row, err)
	}
}
