//go:build long

package web

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/agenttrace/agenttrace/internal/testscale"
	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
	"github.com/agenttrace/agenttrace/session/store/storetest"
)

// remote is a store that is read and managed through a client. What a client cannot do, the store does.
type remote struct {
	*client
	behind
}

// behind is the store behind the server. Its methods stand deeper than the client's, which go before.
type behind struct{ *sqlite.Store }

func served(t *testing.T) *remote {
	local, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sessions.db"), sqlite.Options{})
	testscale.Must(t, err)
	return &remote{clientOf(t, local, NewCounter(sqlite.Follow(local.Path()))), behind{local}}
}

func (r *remote) Apply(ctx context.Context, b *store.Batch) (store.Result, error) {
	if b.Assemble != nil || b.Adopt != nil || b.Threads != nil { // functions of the suite's own
		return r.Store.Apply(ctx, b)
	}
	return r.client.Apply(ctx, b)
}

func (r *remote) Close() error { return errors.Join(r.client.Close(), r.Store.Close()) }

// Script implements [storetest.SQL].
func (r *remote) Script(statements string) error {
	conn, err := zombie.OpenConn(r.Path(), zombie.OpenReadWrite)
	if err != nil {
		return err
	}
	return errors.Join(sqlitex.ExecuteScript(conn, statements, nil), conn.Close())
}

// A client answers as the store behind the server does: it passes the suite of engines.
func TestConformance(t *testing.T) {
	storetest.RunClient(t, func(t *testing.T) storetest.Store { return served(t) })
}

// What other programs wrote is read through a client as it is in the store.
func TestSQL(t *testing.T) {
	storetest.RunSQL(t, func(t *testing.T) storetest.Store { return served(t) })
}
