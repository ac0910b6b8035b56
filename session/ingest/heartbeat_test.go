package ingest_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/semconv"
	sqlitestore "github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
	"github.com/agenttrace/agenttrace/spans"
)

// TestHeartbeatsMoveTheTimeOfASessionAndNothingElse: an hour of them leaves the
// rows that one status leaves, and exports have nothing to do.
func TestHeartbeatsMoveTheTimeOfASessionAndNothingElse(t *testing.T) {
	s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"),
		sqlitestore.Options{Outbox: true})
	testscale.Must(t, err)
	defer s.Close()
	const began = int64(1795198540000)
	busy := func(at, since int64) request {
		ld := logs(record(&spans.Event{
			Name: semconv.EventStatus, SessionID: "ses_1", Status: semconv.StatusBusy, Heartbeat: 15000, Since: since,
		}, at*1e6))
		return request{logs: ld, isLogs: true}
	}
	touched := func() map[string]int64 {
		all, err := s.Outbox(context.Background())
		testscale.Must(t, err)
		return all
	}
	deliver(t, s, []request{busy(began, 0)})
	if len(touched()) != 1 {
		t.Fatal("the status itself is not exported")
	}
	testscale.Must(t, s.Exported(t.Context(), "ses_1", touched()["ses_1"]))
	before := storetest.Transcript(t, s, "ses_1")
	var hour []request
	for beat := began + 15000; beat <= began+3600_000; beat += 15000 {
		hour = append(hour, busy(beat, began))
	}
	hour = append(hour, hour[3], busy(began, 0)) // late and repeated
	if r := deliver(t, s, hour); r.Malformed != 0 || r.Refused != 0 {
		t.Errorf("report %+v", r)
	}
	after := storetest.Transcript(t, s, "ses_1")
	if want := `{"status":{"state":"busy","at":1795198540000,"heartbeat":15000}}`; after.Session.MetadataJSON != want ||
		before.Session.MetadataJSON != want {
		t.Errorf("metadata %s, then %s, want %s", before.Session.MetadataJSON, after.Session.MetadataJSON, want)
	}
	if after.Session.UpdatedAt != began+3600_000 || after.Session.CreatedAt != began || len(after.Messages) != 0 {
		t.Errorf("session %+v", after.Session)
	}
	if n := len(touched()); n != 0 {
		t.Errorf("heartbeats make %d sessions be exported", n)
	}
}
