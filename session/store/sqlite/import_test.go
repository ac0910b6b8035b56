package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func TestImport(t *testing.T) {
	storetest.RunImport(t, dump)
}

// numbered is a session of one message.
func numbered(n int) *store.Imported {
	id := fmt.Sprintf("ses_%03d", n)
	return &store.Imported{Transcript: &session.Transcript{
		Session: session.Session{ID: id, Title: "t", Agent: "a", PermissionsJSON: "[]", MetadataJSON: "{}",
			CreatedAt: 1795198540000, UpdatedAt: 1795198540000},
		Messages: []session.MessageAndParts{{Message: session.Message{
			ID: fmt.Sprintf("msg_%03d", n), SessionID: id, Role: session.RoleUser, MetadataJSON: "{}",
			CreatedAt: 1795198540000,
			UpdatedAt: 1795198540000,
		}}},
	}}
}

// TestImportAll: sessions that share a transaction are each whole or not at all, and are reported in their order.
func TestImportAll(t *testing.T) {
	const all, broken = 50, 7
	source := func(yield func(*store.Imported) bool) {
		for n := range all {
			in := numbered(n)
			if n == broken {
				in.Messages[0].Message.SessionID = "another" // rows that make no tree
			}
			if !yield(in) {
				return
			}
		}
	}
	run := func(t *testing.T, ctx context.Context, goOn func(n int) bool) (reported, failed, stored []string) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
		testscale.Must(t, err)
		defer s.Close()
		s.ImportAll(ctx, source, func(in *store.Imported, r store.ImportResult, err error) bool {
			reported = append(reported, in.Session.ID)
			if err != nil {
				failed = append(failed, in.Session.ID)
			}
			if (err == nil) != r.Added {
				t.Errorf("%s: added %v, error %v", in.Session.ID, r.Added, err)
			}
			return goOn(len(reported))
		})
		for _, row := range storetest.Sessions(t, s) {
			stored = append(stored, row.ID)
		}
		return reported, failed, stored
	}
	names := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("ses_%03d", i))
		}
		return ids
	}
	t.Run("all", func(t *testing.T) {
		reported, failed, stored := run(t, t.Context(), func(int) bool { return true })
		if diff := cmp.Diff(names(all), reported); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"ses_007"}, failed); diff != "" {
			t.Errorf("failed (-want +got):\n%s", diff)
		}
		if want := slices.Delete(names(all), broken, broken+1); !slices.Equal(stored, want) {
			t.Errorf("stored %v, want %v", stored, want)
		}
	})
	t.Run("ended", func(t *testing.T) {
		reported, _, stored := run(t, t.Context(), func(n int) bool { return n < 3 })
		if len(reported) < 3 || len(reported) >= all || len(stored) != len(reported)-1 || !slices.Equal(reported, names(len(reported))) {
			t.Errorf("reported %v, stored %v", reported, stored)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reported, failed, stored := run(t, ctx, func(n int) bool {
			if n == 3 {
				cancel()
			}
			return true
		})
		if len(reported) != all || len(stored)+len(failed) != all || len(failed) == 0 || len(stored) < 3 {
			t.Errorf("%d reported, %d failed, %d stored", len(reported), len(failed), len(stored))
		}
	})
}
