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

// Options configure a writer. The zero value is ready for use.
type Options struct {
	// Synchronous is the durability of a file, [sqlite.SynchronousNormal] when empty.
	Synchronous string
	// Outbox makes the store remember which sessions changed, for [store.Store.Outbox].
	Outbox bool
	// MaxBytes limits the size of a file: a commit that would exceed it fails with
	// store.ErrUnavailable, as on a full disk. 0 means no limit.
	MaxBytes int64
}

// engine opens stores of a kind.
type engine struct {
	open   func(ctx context.Context, location string, o Options) (store.Store, error)
	reader func(ctx context.Context, location string) (store.Reader, error)
	follow func(location string) store.Follower
}

// engines are those of locations with a scheme.
var engines = map[string]engine{"postgres": databases, "postgresql": databases}

// databases is the engine of PostgreSQL.
var databases = engine{
	open: func(ctx context.Context, dsn string, o Options) (store.Store, error) {
		return opened[store.Store](postgres.Open(ctx, dsn, postgres.Options{Outbox: o.Outbox}))
	},
	reader: func(ctx context.Context, dsn string) (store.Reader, error) {
		return opened[store.Reader](postgres.OpenReader(ctx, dsn))
	},
	follow: func(dsn string) store.Follower { return postgres.Follow(dsn) },
}

// files is the engine of all other locations.
var files = engine{
	open: func(ctx context.Context, path string, o Options) (store.Store, error) {
		return opened[store.Store](sqlite.Open(ctx, path, sqlite.Options(o)))
	},
	reader: func(ctx context.Context, path string) (store.Reader, error) {
		return opened[store.Reader](sqlite.OpenReader(ctx, path))
	},
	follow: func(path string) store.Follower { return sqlite.Follow(path) },
}

// opened returns a nil interface with an error, not one that has a nil pointer.
func opened[I store.Reader](s store.Reader, err error) (none I, _ error) {
	if err != nil {
		return none, err
	}
	return s.(I), nil
}

// engineOf returns the engine of a location. A scheme that no engine has is left to files, which refuse it.
func engineOf(location string) engine {
	if scheme, _, _ := strings.Cut(location, "://"); HasEngine(location) {
		return engines[scheme]
	}
	return files
}

// HasEngine reports whether a location has a scheme that an engine has.
func HasEngine(location string) bool {
	scheme, _, found := strings.Cut(location, "://")
	_, ok := engines[scheme]
	return found && ok
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
	return engineOf(location).open(ctx, location, o)
}

// OpenReader opens the store at a location for reading. It never creates one: the error for one that is not there
// wraps store.ErrNotFound. Other errors are those of [Open].
func OpenReader(ctx context.Context, location string) (store.Reader, error) {
	return engineOf(location).reader(ctx, location)
}

// Follow returns a Follower of the store at a location, which need not be there.
func Follow(location string) store.Follower { return engineOf(location).follow(location) }

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
