package store

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
)

// Tx is one transaction of an engine: all that an engine has to provide for merging.
//
// [Apply] and [Import] work on rows in memory. Through a Tx they load the rows that they need, many at a
// time, and write what has changed. For an engine behind a network a call of Do costs one round trip,
// however many statements it has; what a batch costs is the number of these calls.
//
// Concurrency: a Tx is used by one goroutine, and not after the function that got it has returned. The context and the
// commit are the engine's, and so is isolation: an engine with several writers behaves as if its transactions ran one
// after the other. It may lock what the statements name, in a fixed order, or fail one of two that conflict and run it
// again.
type Tx interface {
	// Do has add add statements, and executes them in their order. No statement depends on the result of another, and
	// none is executed after one that failed. The functions that read results are called before Do returns.
	//
	// Errors: a row that the engine cannot hold, because it violates a constraint or is too large, is not an error:
	// it gets its refused. The caller then undoes everything and repeats it without the row, so the engine may leave
	// out all that follows. Any other error ends the transaction; one that may pass wraps [ErrUnavailable].
	Do(add func(Statements)) error

	// Undo takes back everything that Do has done. Afterwards the transaction is as it was when the
	// engine handed it out, and can be used again.
	Undo() error
}

// Statements are those of one call of [Tx.Do], in the SQL that the engines share: parameters are written ? or ?1, one
// kind in a statement. INDEXED BY and NOT INDEXED are for SQLite; other engines
// leave them out.
type Statements interface {
	// Name notes what the statements name. Whatever they read, another transaction changes only if it names the same
	// session, message, trace or call. A name is "" where there is none.
	Name(kind NameKind, names ...string)
	// Select calls fn for each row of the result. fn must not retain the row.
	Select(query string, fn func(Row) error, args ...any)
	// SelectKeys is Select for each of some keys, whose columns the query compares with parameters: WHERE a = ?1 AND
	// b = ?2. Each list has the values of a column. An engine may find rows with other combinations of them, too.
	SelectKeys(query string, fn func(Row) error, columns ...[]string)
	// Exec executes a statement without a result.
	Exec(query string, args ...any)
	// Put executes a statement that inserts or updates a row. It sets refused, which may be nil, where the engine cannot
	// hold the row, or no row is changed: another is in its place, or it is gone.
	Put(refused *error, query string, args ...any)
	// Dialect states in what the SQL of the engine differs.
	Dialect() *Dialect
	// Stamps are the times of the outboxes of session files and of spans, Unix milliseconds, 0 where there is none.
	Stamps() (files, spans int64)
}

// NameKind is what a name stands for: one text may be the id of a session and of a call.
type NameKind byte

// What statements name.
const (
	NameSession NameKind = 's'
	NameMessage NameKind = 'm'
	NameTrace   NameKind = 't'
	NameCall    NameKind = 'c'
	NamePath    NameKind = 'p'
)

// query adds statements that read.
type query func(Statements)

// SpanKey is the key of a [SpanRef].
type SpanKey struct{ SessionID, TraceID, SpanID string }

// ObservationKey is the key of an [Observation].
type ObservationKey struct {
	TraceID string `column:"trace_id"`
	Source  string `column:"source"`
}

// ObservationRow is an observation with the session that it is kept under: that of
// its trace, which may be another than the one it is built in.
type ObservationRow struct {
	Observation
	Owner string `column:"owner"`
}

// timeRange is a part of an owner's time, in Unix nanoseconds. An owner is the session under which a trace's
// observations are kept together; those of sub-agents are kept with their parent's.
type timeRange struct{ from, to int64 }

// ModelCallPrefix begins what is used as the id of a call in [Observation] where a model is called and no tool: the
// rest is the model. A framework's span of the call requests it, and the span of the provider's own library, in a trace
// of its own, is the orphan. The one happened while the other did.
const ModelCallPrefix = "model:"

// ClockTick is by how much the times of two instrumentations of one process may differ, in nanoseconds.
const ClockTick = 2_000_000

// Position is a place in the order of a session's messages.
type Position struct {
	At int64  `json:"at,omitempty"`
	ID string `json:"id,omitempty"`
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.At < q.At || p.At == q.At && p.ID < q.ID
}

// PositionOf is the position of a message.
func PositionOf(m *session.Message) Position { return Position{m.CreatedAt, m.ID} }

// SessionRow is a session with what must be remembered to merge further changes into it.
type SessionRow struct {
	session.Session
	State State
}

// State is a session's merge state. It grows with the number of rewinds, never with messages.
type State struct {
	// Stamps are when and by whom each column or metadata key was reported.
	Stamps map[string]Stamp `json:"stamps,omitempty"`

	// Declared bounds the session without its observations, nil when its row does so too.
	Declared *Bounds `json:"declared,omitempty"`

	Rewinds []Rewind `json:"rewinds,omitempty"`

	// OtherCost is the part of the session's cost that was reported beside its messages.
	OtherCost float64 `json:"other_cost_usd,omitempty"`

	// Fork is set on a fork.
	Fork *Fork `json:"fork,omitempty"`

	// Marker is the latest compaction in force, Tail the message it names, Cut
	// the position from which messages count towards the context.
	Marker Position `json:"marker,omitzero"`
	Tail   string   `json:"tail,omitempty"`
	Cut    Position `json:"cut,omitzero"`

	// Open are the answers of turns of which no span has come, in order. It grows with those whose end nobody reports.
	Open []Position `json:"open,omitempty"`

	// Rollup is the usage on the session's row as it was written last. Where the
	// row has another, some other program wrote it and it is summed again.
	Rollup session.Usage `json:"rollup,omitzero"`
}

// Portable is what another store can take of the state, nil when that is nothing: its
// stamps, its rewinds, what the session was forked from, and its other cost. The rest follows from the
// rows, or is beside observations, which do not come along.
func (s *State) Portable() *State {
	if s == nil || len(s.Stamps) == 0 && len(s.Rewinds) == 0 && s.Fork == nil {
		return nil
	}
	return &State{Stamps: s.Stamps, Rewinds: s.Rewinds, Fork: s.Fork, OtherCost: s.OtherCost}
}

// Bounds are the least and the greatest time that something happened, in Unix milliseconds; 0 is unknown.
type Bounds struct {
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
}

// Stamp is the provenance of a value; see [Value]. Sum distinguishes values that were reported at the same time without
// looking at the row, which another program may have changed since.
type Stamp struct {
	At   int64  `json:"at"`
	Rank Rank   `json:"rank"`
	Sum  uint32 `json:"sum"`
	// Observed reports that the value is that of an observation: any other takes precedence over it.
	Observed bool `json:"observed,omitempty"`
}

// Encode returns the state as JSON with keys in a fixed order.
func (s *State) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("store: encode state: " + err.Error()) // a plain struct always encodes
	}
	return b
}
