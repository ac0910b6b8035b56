// Package stores opens session stores. A store is named by its location: the path of an SQLite file, or the address
// of a database, which begins with the scheme of its engine.
package stores

import (
	"context"
	"net/url"
	"strings"

	"github.com/agenttrace/agenttrace/session/store"
	"github.com/agenttrace/agenttrace/session/store/postgres"
	"github.com/agenttrace/agenttrace/session/store/sqlite"
)

// Options configure a writer. A database takes the outboxes alone.
type Options = sqlite.Options

// HasEngine reports whether a location is the address of a PostgreSQL database. Any other scheme is left to files,
// which refuse it.
func HasEngine(location string) bool {
	return strings.HasPrefix(location, "postgres://") || strings.HasPrefix(location, "postgresql://")
}

// IsFile reports whether a location is the path of a file. Any other is an address: no path can be derived from it,
// and it may contain a password.
func IsFile(location string) bool { return !strings.Contains(location, "://") }

// Name is a location without the password that an address may have.
func Name(location string) string {
	if IsFile(location) {
		return location
	}
	u, err := url.Parse(location)
	if err != nil {
		scheme, _, _ := strings.Cut(location, "://")
		return scheme + "://…" // the password is somewhere in the rest
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for key := range query {
		if strings.HasSuffix(key, "password") {
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Open opens or creates the store at a location for writing.
//
// Errors wrap store.ErrLocked (naming the process that holds the store), store.ErrNotStore, store.ErrNewer, or
// store.ErrUnavailable for what may pass.
func Open(ctx context.Context, location string, o Options) (store.Store, error) {
	if HasEngine(location) {
		return opened[store.Store](postgres.Open(ctx, location, postgres.Options{Outbox: o.Outbox, SpanOutbox: o.SpanOutbox}))
	}
	return opened[store.Store](sqlite.Open(ctx, location, o))
}

// OpenReader opens the store at a location for reading. It never creates one: the error for one that is not there
// wraps store.ErrNotFound. Other errors are those of [Open].
func OpenReader(ctx context.Context, location string) (store.Reader, error) {
	if HasEngine(location) {
		return opened[store.Reader](postgres.OpenReader(ctx, location))
	}
	return opened[store.Reader](sqlite.OpenReader(ctx, location))
}

// Follow returns a Follower of the store at a location, which need not be there.
func Follow(location string) store.Follower {
	if HasEngine(location) {
		return postgres.Follow(location)
	}
	return sqlite.Follow(location)
}

// opened returns a nil interface with an error, not one that has a nil pointer.
func opened[I store.Reader](s store.Reader, err error) (none I, _ error) {
	if err != nil {
		return none, err
	}
	return s.(I), nil
}

// Migrate creates the tables of the store at a location, or brings them up to date, as [Open] does. Those of a
// database can be distributed over a cluster, and be given an index for searching.
func Migrate(ctx context.Context, location string, distribute, searchIndex bool) error {
	if HasEngine(location) {
		return postgres.Migrate(ctx, location, postgres.Options{Distribute: distribute, SearchIndex: searchIndex})
	}
	s, err := sqlite.Open(ctx, location, sqlite.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}

// MigrationSQL is what makes the tables of an empty PostgreSQL database.
func MigrationSQL() string { return postgres.SQL() }

// Socket returns the Unix socket on which the process that holds the store at a location changes sessions for others,
// "" where there is none.
func Socket(location string) string {
	if !IsFile(location) {
		return ""
	}
	return sqlite.Socket(location)
}
