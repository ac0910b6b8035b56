package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

func TestImport(t *testing.T) {
	storetest.RunImport(t, func(t *testing.T) storetest.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return dumped{s}
	})
}
