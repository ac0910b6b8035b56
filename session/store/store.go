// Package store is the contract between what changes sessions and what keeps them.
//
// Writers hand a [Batch] of changes to a [Writer]; the changes state what some source knows, not what the rows shall
// be. [Apply] merges them in memory, and an engine reads and writes sets of rows for it ([Tx]), so that every engine
// gives the same rows: in any order, in any batching, with any number of redeliveries, the result is byte for byte the
// same.
package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// Errors that callers branch on. Engines wrap them with the path or address they concern and a remedy.
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
	// ErrOlder: a reader cannot read what an earlier version wrote. A writer upgrades it.
	ErrOlder = errors.New("store has an older schema")
	// ErrUnavailable: the change could not be stored now and may be later: disk
	// full, file busy, I/O error. Nothing of the batch was stored.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrDenied: the server of the store does not let the program do so: its
	// credentials, its rights, the name of the database or the tables.
	ErrDenied = errors.New("access to the store is denied")
	// ErrClosed: the store was closed by this program.
	ErrClosed = errors.New("store is closed")
)

// Writer accepts changes. It is safe for concurrent use.
type Writer interface {
	// Apply merges the batch and returns when its rows are committed, or with an error when none of it is. It does not
	// retain b. Concurrent calls may share a transaction. Canceling ctx stops the wait, not a commit under way.
	//
	// The first batch with an Assemble, though it may have no changes, has turns rebuilt
	// that a process has left unbuilt which ended before.
	Apply(ctx context.Context, b *Batch) (Result, error)
}

// Result counts what a batch did.
type Result struct {
	// Rows is the number of rows of any table that were inserted or changed.
	Rows int64
	// Refused is the number of changes that the engine could not hold, such as a
	// row that violates a constraint. The rest of the batch is stored.
	Refused int64
	// RefusedReports are those among Refused that are observations, each of a span or a log record of its own. Refusals
	// state why the first were.
	RefusedReports int64
	Refusals       []string
	// Pending is the number of observations of the batch that no session reports yet.
	Pending int64
	// Unbuilt reports that turns may lack observations, see [Batch.Defer].
	Unbuilt bool
	// Sessions are the ids of those that the batch reported, in no order.
	Sessions []string
}

// Reader reads a store. It is safe for concurrent use, and while a Writer of any process writes. Each call reads one
// state of the store. The error for a session that is not there wraps ErrNotFound where one session is asked for.
//
// A store that another program wrote has the canonical tables only. What
// agenttrace keeps beside them, such as decisions and spans, is empty there.
type Reader interface {
	// Name is the path or the address of the store, without any password.
	Name() string

	// Sessions yields sessions newest first, by (updated_at, id) descending.
	//
	// Edge cases: an unknown or used-up cursor yields nothing; an error is
	// yielded once, with a zero session, and ends the sequence.
	Sessions(ctx context.Context, q SessionQuery) iter.Seq2[session.Session, error]

	// Resolve turns what a person typed into one session id: an id, a
	// prefix that only one and its sub-agents have (with or without "ses_"), a trace id or
	// unique prefix of at least 8 hex digits, or "last". It returns ErrNotFound or ErrAmbiguous.
	Resolve(ctx context.Context, name string) (string, error)

	// Session returns one row, or ErrNotFound.
	Session(ctx context.Context, id string) (session.Session, error)
	// Transcript returns the session with all its messages, hidden ones included, or ErrNotFound.
	Transcript(ctx context.Context, id string) (*session.Transcript, error)
	// Excerpt returns a part of a session, or ErrNotFound. Its cost depends on what it returns, except that an outline
	// of all messages passes over the session's spans and decisions, and the spans of messages over those of the
	// session.
	Excerpt(ctx context.Context, id string, q ExcerptQuery) (*Excerpt, error)
	// MayHaveNotices returns those of the sessions of which [session.Notices] may find something, or which have a span
	// without a message. Only the transcript and the spans show whether it does.
	MayHaveNotices(ctx context.Context, ids []string) (map[string]bool, error)

	// Missing counts what no source reports of sessions, by their ids: see [session.Quality].
	Missing(ctx context.Context, ids []string) (map[string]map[string]int64, error)
	// Openings returns how the first texts of users in sessions begin, 200 characters at most, by the ids of the
	// sessions that have one.
	Openings(ctx context.Context, ids []string) (map[string]string, error)

	// Decisions returns the permission decisions of a session in order of time.
	Decisions(ctx context.Context, sessionID string) ([]Decision, error)
	// Annotations returns the tags, notes and scores of the sessions, in the order of the ids and then of (created_at,
	// id). Those that were undone are among them, with DeletedAt. Unknown ids have none.
	Annotations(ctx context.Context, sessionIDs ...string) ([]Annotation, error)
	// Spans returns the spans that a session was built from, each once, with the message
	// and the part that it describes where they are known, in order of start.
	Spans(ctx context.Context, sessionID string) ([]SpanRef, error)
	// SpanRefs returns every source that a session was built from: the spans, each as often
	// as it reported something, and the records of agents without the SDK.
	SpanRefs(ctx context.Context, sessionID string) ([]SpanRef, error)
	// Observed counts the observations that a session was built from.
	Observed(ctx context.Context, sessionID string) (int, error)
	// Pending counts the observations that are not attributed to a session yet: they wait
	// for what belongs to them, or are of a trace that names no session.
	Pending(ctx context.Context) (int64, error)
	// Origin adds to a session what the store remembers of how it came about: the spans
	// that it was built from, as Spans returns them; the ids of its traces; what another
	// store can take of its state; and the indexes that displaced parts requested.
	Origin(ctx context.Context, in *Imported) error

	// Spent returns what each of the sessions used, by id, and asks price, which may be
	// nil, for the cost of the messages that state usage and no cost.
	//
	// Edge cases: unknown ids are not in the result; metadata that cannot be read states nothing.
	Spent(ctx context.Context, ids []string, price Price) (map[string]Spent, error)
	// Stats counts over all sessions. Another program's store has the same figures.
	Stats(ctx context.Context, q StatsQuery) (Stats, error)
	// Search yields where a text is found: in the titles of sessions, in notes, in system prompts and tool catalogs,
	// once for each session that was given one, and then in messages, in the inputs and outputs of tools, and in the
	// data of hosts; what was stored last comes first. What a fork copied from a session that is there is found in that
	// session alone. An error is yielded once and ends the sequence.
	//
	// Parts are looked through one after the other, except those that an index rules out, and only for as long as the
	// consumer wants more. What is found is the same with and without an index.
	Search(ctx context.Context, q SearchQuery) iter.Seq2[Hit, error]

	// Blob returns the system prompt or tool catalog with the digest, or ErrNotFound when no source ever sent it.
	Blob(ctx context.Context, kind BlobKind, digest string) (Blob, error)

	Close() error
}

// Manager is what a user changes of sessions. It is safe for concurrent use.
type Manager interface {
	// Import merges a session as the function [Import] describes. It does not change or retain in.
	Import(ctx context.Context, in *Imported) (ImportResult, error)
	// ImportAll imports sessions in their order, each as Import does: whole or not at all. done is called for each, in
	// order, when it is committed or has failed, and ends the import by returning false; what was taken from the
	// sequence by then may be imported all the same. ImportAll returns when all of it is, and holds a few sessions at a
	// time: they must not change before they are done.
	ImportAll(ctx context.Context, sessions iter.Seq[*Imported], done func(*Imported, ImportResult, error) bool)

	// Fork, Rewind and Unrewind commit what [ForkSession], [RewindSession] and [UnrewindSession] do.
	Fork(ctx context.Context, o ForkOptions) (id string, err error)
	Rewind(ctx context.Context, id, to string, now time.Time) (Rewound, error)
	Unrewind(ctx context.Context, id string) (Rewound, error)
	// Archive sets or takes back that a session is archived, as reported at the time now. Telemetry that reports
	// otherwise counts if it is of a later time; that of an earlier one, delivered again, does not. SetTitle names a
	// session likewise. The error for a session that is not there wraps ErrNotFound.
	Archive(ctx context.Context, id string, archived bool, now time.Time) error
	SetTitle(ctx context.Context, id, title string, now time.Time) error
	// Annotate commits what the function [Annotate] does.
	Annotate(ctx context.Context, annotations []Annotation) error
	// Delete deletes a session with its messages, parts, decisions, spans and
	// observations. Sessions that have it as their parent stay, and so do prompts and
	// catalogs: see Collect. The error for a session that is not there wraps ErrNotFound.
	//
	// Nothing remembers what was deleted: telemetry that is delivered again, or that
	// comes late, makes the session again of what it reports.
	Delete(ctx context.Context, id string) error
	// Collect deletes the system prompts and tool catalogs that no message and no span names, and the observations of
	// sessions that are gone. With dryRun it counts only. Prompts and catalogs are kept as long as a session, or an
	// observation that no session reports yet, is younger than recent: their text is sent once, and may come before the
	// turn that names it.
	Collect(ctx context.Context, recent time.Time, dryRun bool) (Garbage, error)
}

// Service is all that a front end may ask of a store of sessions and change in it: of one in this process, which is a
// [Store], or of one in another, through a client that gives the same answers, errors and their texts included. It is
// safe for concurrent use.
//
// Through a client, the functions of a batch are not sent: the server sets its own.
type Service interface {
	Reader
	Writer
	Manager
	ImportSources
}

// Store is a store that is open for writing in this process. It is safe for concurrent use.
type Store interface {
	Service

	// Transact has do executed in a transaction, which others may share, and returns
	// when it is committed. With an error, nothing that do changed is.
	Transact(ctx context.Context, do func(Tx) error) error

	// Outbox returns the sessions that changed since they were last exported, by id, with the times of their last
	// changes in Unix milliseconds. Exported forgets that a session changed, unless it changed again after touchedAt.
	// The store keeps an outbox only if it was opened with one.
	Outbox(ctx context.Context) (touchedAt map[string]int64, _ error)
	Exported(ctx context.Context, sessionID string, touchedAt int64) error

	// Unsent returns the sessions of the outbox of spans in the order in which they changed, except those of which a
	// turn is yet to be rebuilt. The store has that outbox only if it was opened with one.
	Unsent(ctx context.Context) ([]Unsent, error)
	// SentSpans returns the ids of the spans that were sent of a session, or are about to be.
	SentSpans(ctx context.Context, sessionID string) (map[string]bool, error)
}

// Garbage counts what no session needs.
type Garbage struct {
	SystemPrompts int64 `json:"system_prompts"`
	ToolCatalogs  int64 `json:"tool_catalogs"`
	// Observations are those of sessions that are gone.
	Observations int64 `json:"observations"`
	// Kept reports that prompts and catalogs were not looked at, because something was
	// going on too short a time ago: a turn that has not ended may name them.
	Kept bool `json:"prompts_kept,omitempty"`
}

// Backuper is a [Reader] of a store that can be copied into a file.
type Backuper interface {
	// Backup copies the store into a new file, private to the user, also while another
	// process writes it: the copy is one state of the store. It is complete when it
	// appears under its name; the error for a name that is taken wraps fs.ErrExist.
	Backup(ctx context.Context, path string) error
}

// SearchIndexer is a [Reader] of a store with an index for Search that is not kept up to date by those who write.
type SearchIndexer interface {
	// UpdateSearchIndex makes what the index lacks, and removes what is of parts that were changed or deleted.
	// It calls more from time to time with the number of parts that are in the index, and of those that will be, and
	// ends when more returns false. Any number of processes may call it, while others read and write the store. The
	// error wraps ErrUnavailable if the index cannot be written; Search works all the same.
	UpdateSearchIndex(ctx context.Context, more func(done, total int) bool) error
}

// Compacter is a [Store] that keeps the space of what was deleted until it is asked to give it back.
type Compacter interface {
	// Compact gives the space of what was deleted back to the file system. It needs as much room again as the store
	// takes while it works, and fails with ErrUnavailable while somebody reads.
	Compact(ctx context.Context) error
}

// Follower watches a store that other processes write. It waits for one that is not
// there yet, and goes on with another that takes its place. It is used by one goroutine.
type Follower interface {
	// Poll looks whether the store has changed since the last Poll. The reader is nil while there is no store, and
	// otherwise valid until the next Poll that finds another one, or Close. After an error Poll may be called again.
	Poll(ctx context.Context) (Reader, Change, error)
	Close() error
}

// Change is what a [Follower] finds.
type Change int

// Changes.
const (
	// Unchanged: nobody has committed anything.
	Unchanged Change = iota
	// Changed: somebody may have.
	Changed
	// Opened: the store is there, for the first time or again, perhaps another one under
	// the same name: all that was read before may be different now.
	Opened
	// Gone: there is no store any more.
	Gone
)

// SessionQuery selects sessions. The zero value is the newest 50 that are
// neither archived nor sub-agents' of another session.
type SessionQuery struct {
	// Limit is the most to yield: 0 means 50, negative means all.
	Limit int
	SessionFilter
	// ParentID, if set, selects the children of that session.
	ParentID string
	// Children includes the sessions of sub-agents: those that have a parent which is
	// in the store, and are no forks of it.
	Children bool
	// Archived includes archived sessions.
	Archived bool
	// Sort is the order, by default the newest first.
	Sort SessionSort
	// Before continues after the session with this (updated_at, id). In another order than the default it continues
	// after the session with the id, where that is now; if it is gone, nothing follows.
	Before *Cursor
}

// Most is the most to yield, below 0 for all.
func (q *SessionQuery) Most() int { return cmp.Or(q.Limit, 50) }

// UpdatedSince selects the sessions that were last updated at that time or later, children and archived ones too.
func UpdatedSince(at time.Time) SessionQuery {
	return SessionQuery{Limit: -1, SessionFilter: SessionFilter{Since: at}, Children: true, Archived: true}
}

// Cursor is a position in a listing.
type Cursor struct {
	UpdatedAt int64
	ID        string
}
