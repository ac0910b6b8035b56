//go:build long

package postgres_test

import (
	"testing"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// The server takes every query, also those that only some agents' telemetry asks.
func TestQueries(t *testing.T) {
	const at = 1_795_000_000_000_000_000
	s := stores(t)(t)
	defer s.Close()
	err := s.(storetest.Transactor).Transact(t.Context(), func(tx store.Tx) error {
		for range 2 { // when it is prepared, and after that
			if err := tx.Do(nil, []store.Query{
				&store.Thread{SessionID: "x", Dialect: "d", WithRecords: true},
				&store.RequesterOf{CallID: "c", NotTrace: "t", By: at},
				&store.RequesterOf{CallID: "c", NotTrace: "t", By: at, Until: at},
				&store.OrphanTraces{CallID: "c", At: at}, &store.OrphanTraces{CallID: "c", At: at, Until: at},
				&store.Sources{SessionID: "s"},
				&store.SessionsByID{IDs: []string{"a", "b"}, Forks: true, Children: true}, &store.SessionsByID{},
				&store.Trace{TraceID: "t"}, &store.TraceObservations{TraceID: "t"},
				&store.Compactions{SessionID: "s"},
				&store.Extent{MessageID: "m", WithRequested: true}, &store.StatsOf{SessionID: "s", MessageID: "m"},
				&store.BlobsByDigest{Kind: store.BlobToolCatalog, Digests: []string{"d"}},
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
