package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agenttrace/agenttrace/session/store"
)

// code returns the SQLSTATE of an error of the server, "" of any other.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isRefused reports whether the server cannot hold the row of a statement: it violates a constraint, or is too large,
// or has a text that PostgreSQL does not allow.
func isRefused(err error) bool {
	switch c := code(err); {
	case strings.HasPrefix(c, "23"), strings.HasPrefix(c, "54"):
		return true
	default:
		return c == "22021" || c == "22P05" || c == "22P02" || c == "22003"
	}
}

// isConflict reports whether the server ended a transaction because of another one. It may succeed when it is
// repeated. 55P03 is a lock that could not be had in time.
func isConflict(err error) bool {
	switch code(err) {
	case "40001", "40P01", "55P03", "CR000":
		return true
	}
	return false
}

// mayPass reports whether what failed may succeed later, without anybody changing the request or the configuration.
func mayPass(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
		return false
	}
	if isConflict(err) {
		return true
	}
	switch c := code(err); {
	case c == "":
		// The server sent no code: it was not reached, or the connection broke.
		var network net.Error
		var connect *pgconn.ConnectError
		return errors.As(err, &network) || errors.As(err, &connect) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
			errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "conn closed") ||
			strings.Contains(err.Error(), "unexpected EOF")
	case strings.HasPrefix(c, "08"), strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"):
		return true
	default:
		// A standby cannot write until it is the primary; an old one may lack what was committed.
		return c == "25006" || c == "25P02" || c == "25P03"
	}
}

// wait waits before the next attempt: longer each time, and not as long as others do.
func wait(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(2 * time.Millisecond << min(attempt, 8)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remedies state what a user can do, by SQLSTATE.
var remedies = map[string]string{
	"28P01": "check the user and the password (PGPASSWORD, PGPASSFILE or a service file)",
	"28000": "check the user and pg_hba.conf",
	"3D000": "create the database first: createdb",
	"42501": "let an owner of the tables run `agenttrace store migrate`, and GRANT SELECT, INSERT, UPDATE, DELETE on them",
	"42P01": "run `agenttrace store migrate`",
	"53100": "make room on the server's disk",
	"53200": "the server is out of memory or of locks: raise max_locks_per_transaction",
	"53300": "raise max_connections, or lower pool_max_conns of the collectors",
	"57014": "raise statement_timeout, or make batches smaller",
	"55P03": "other writers hold the same sessions for long; raise lock_timeout",
	"25006": "the server is read-only, such as a standby: connect to the primary, " +
		"or set target_session_attrs=read-write",
}

// explain returns the error with the store's name and what can be done. One that may pass wraps [store.ErrUnavailable].
func explain(what, name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) && code(err) == "" {
		return err
	}
	remedy := remedies[code(err)]
	if remedy != "" {
		remedy = "; " + remedy
	}
	if errors.Is(err, pgx.ErrTxClosed) || mayPass(err) {
		return fmt.Errorf("%s %s: %w: %w%s", what, name, store.ErrUnavailable, err, remedy)
	}
	switch c := code(err); {
	case strings.HasPrefix(c, "28"), strings.HasPrefix(c, "3D"), strings.HasPrefix(c, "3F"), c == "42501", c == "42P01":
		return fmt.Errorf("%s %s: %w: %w%s", what, name, store.ErrDenied, err, remedy)
	}
	return fmt.Errorf("%s %s: %w%s", what, name, err, remedy)
}
