// Package store is the contract between what changes sessions and what keeps
// them.
//
// Writers hand a [Batch] of changes to a [Writer]; the changes state what some
// source knows, not what the rows shall be. [Apply] merges them in memory, and an
// engine reads and writes sets of rows for it ([Tx]), so that every engine
// gives the same rows: in any order, in any batching, with any number of
// redeliveries, the result is byte for byte the same.
package store

import (
	"context"
	"errors"
	"iter"

	"github.com/agenttrace/agenttrace/session"
)

// Errors that callers branch on. Engines wrap them with the path or address
// they concern and a remedy.
var (
	// ErrNotFound: no row matches.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: a prefix matches more than one session.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrLocked: another writer holds the store. The error names it.
	ErrLocked = errors.New("store is in use by another writer")
	// ErrNotStore: the file exists and is not a session store.
	ErrNotStore = errors.New("not a session store")
	// ErrNewer: the store was written by a newer version.
	ErrNewer = errors.New("store has a newer schema")
	// ErrUnavailable: the change could not be stored now and may be later: disk
	// full, file busy, I/O error. Nothing of the batch was stored.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrClosed: the store was closed by this program.
	ErrClosed = errors.New("store is closed")
)

// Writer accepts changes. It is safe for concurrent use.
type Writer interface {
	// Apply merges the batch and returns when its rows are committed, or with an
	// error when none of it is. It does not retain b. Concurrent calls may share
	// a transaction. Canceling ctx stops the wait, not a commit under way.
	Apply(ctx context.Context, b *Batch) (Result, error)
}

// Result counts what a batch did.
type Result struct {
	// Rows is the number of rows of any table that were inserted or changed.
	Rows int64
	// Refused is the number of changes that the engine could not hold, such as a
	// row that violates a constraint. The rest of the batch is stored.
	Refused int64
	// Pending is the number of observations of the batch that no session reports yet.
	Pending int64
	// Sessions are the ids of those that the batch spoke of, in no order.
	Sessions []string
}

// Reader reads a store. It is safe for concurrent use, and while a Writer of
// any process writes.
type Reader interface {
	// Sessions yields sessions newest first, by (updated_at, id) descending.
	//
	// Edge cases: an unknown or used-up cursor yields nothing; an error is
	// yielded once, with a zero session, and ends the sequence.
	Sessions(ctx context.Context, q SessionQuery) iter.Seq2[session.Session, error]

	// Resolve turns what a person typed into one session id: an id, a unique
	// prefix of one (with or without "ses_"), a trace id or unique prefix of at
	// least 8 hex digits, or "last". It returns ErrNotFound or ErrAmbiguous.
	Resolve(ctx context.Context, name string) (string, error)

	// Session returns one row, or ErrNotFound.
	Session(ctx context.Context, id string) (session.Session, error)

	// Transcript returns the session with all its messages, hidden ones
	// included, or ErrNotFound.
	Transcript(ctx context.Context, id string) (*session.Transcript, error)

	// Decisions returns the permission decisions of a session in order of time.
	Decisions(ctx context.Context, sessionID string) ([]Decision, error)

	// Spans returns the spans that a session was built from, each once, with the message
	// and the part that it describes where they are known, in order of start. A store
	// written by another program has none.
	Spans(ctx context.Context, sessionID string) ([]SpanRef, error)
	// SpanRefs returns every source that a session was built from: the spans, each as often
	// as it reported something, and the records of agents without the SDK.
	SpanRefs(ctx context.Context, sessionID string) ([]SpanRef, error)

	// Spent returns what each of the sessions used, by id, and asks price, which may be
	// nil, for the cost of the messages that state usage and no cost. Unknown ids are not
	// in the result.
	Spent(ctx context.Context, ids []string, price Price) (map[string]Spent, error)

	// Blob returns the system prompt or tool catalog with the digest, or
	// ErrNotFound when no source ever sent it.
	Blob(ctx context.Context, kind BlobKind, digest string) (Blob, error)

	Close() error
}

// SessionQuery selects sessions. The zero value is the newest 50 that are
// neither archived nor sub-agents' of another session.
type SessionQuery struct {
	// Limit is the most to yield: 0 means 50, negative means all.
	Limit int
	// Agent, if set, selects sessions of that agent.
	Agent string
	// ParentID, if set, selects the children of that session.
	ParentID string
	// Children includes the sessions of sub-agents: those that have a parent which is
	// in the store, and are no forks of it.
	Children bool
	// Archived includes archived sessions.
	Archived bool
	// Before continues after the session with this (updated_at, id).
	Before *Cursor
}

// Cursor is a position in a listing.
type Cursor struct {
	UpdatedAt int64
	ID        string
}
