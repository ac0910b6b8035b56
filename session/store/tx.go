package store

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
)

// Tx is what an engine gives to [Apply] and [Import]: rows, in one transaction that
// sees its own writes. A Tx is used by one goroutine.
//
// Methods that fetch return nil and no error when there is no such row. An
// error of [ErrRefused] concerns the one row; any other ends the transaction.
//
// Methods that put insert a row, or else update the one with the same key. Those that
// report whether that changed anything do not where a row with the key, or of a part in
// its place, is there already.
type Tx interface {
	// Delete deletes the row of a table with an id, and all that refers to it: with a
	// message its parts.
	Delete(t Table, id string) error

	Session(id string) (*SessionRow, error)
	PutSession(row *SessionRow, insert bool) error
	// TranscriptChildren returns the ids of the sessions whose ParentID is parentID and
	// whose metadata has the key "transcript" anywhere, in order.
	TranscriptChildren(parentID string) ([]string, error)
	// Forks returns the sessions whose State.Fork.From is parentID, by id, and the
	// message where each left.
	Forks(parentID string) ([]ForkRef, error)
	// Touch notes that a session changed, for exports that follow the store.
	Touch(sessionID string) error

	Message(id string) (*session.Message, error)
	PutMessage(m *session.Message, insert bool) error
	// MessagesFrom returns the session's messages at and after the position, in
	// order. The zero position is before every message.
	MessagesFrom(sessionID string, from Position) ([]session.Message, error)

	Part(id string) (*session.Part, error)
	// PutPart does not change the message of a part that is there, nor its index.
	PutPart(p *session.Part, insert bool) (bool, error)
	// Parts returns the parts of a message from an index on, by index.
	Parts(messageID string, from int64) ([]session.Part, error)
	// Extent returns how many parts a message has and the index after the last.
	Extent(messageID string) (count, next int64, err error)
	// Compactions returns the data-compaction parts of a message, or of the whole
	// session where messageID is empty.
	Compactions(sessionID, messageID string) ([]session.Part, error)
	// MoveParts sets the indexes of parts of one message, all of them at once, and the
	// indexes that displaced parts requested, both by the id of the part.
	MoveParts(messageID string, index, requested map[string]int64) error
	// RequestedIndexes returns the indexes that displaced parts of a message requested.
	RequestedIndexes(messageID string) (map[string]int64, error)

	SpanRef(sessionID, traceID, spanID string) (*SpanRef, error)
	PutSpanRef(l *SpanRef, insert bool) (bool, error)
	// TurnStats returns the spans of a message that have some.
	TurnStats(sessionID, messageID string) ([]SpanRef, error)
	// HasSpans reports whether the session has spans of the SDK, whose dialect is DialectSDK.
	HasSpans(sessionID string) (bool, error)
	// PutTrace notes that a trace has spans of a session, PruneTrace that it may have
	// none any more: neither spans of the SDK nor observations that were attributed to it.
	PutTrace(traceID, sessionID string) error
	PruneTrace(traceID, sessionID string) error

	Decision(id string) (*Decision, error)
	PutDecision(d *Decision, insert bool) (bool, error)

	// PutBlob stores the body unless the one that is there is as good, and
	// reports whether it did.
	PutBlob(b *Blob) (bool, error)

	Observation(traceID, source string) (*ObservationRow, error)
	// PutObservation stores it and the calls that it requests, in the place of old
	// and those of old where that is not nil. It lasts until its end.
	PutObservation(o *ObservationRow, old *Observation) error
	// SpanTime returns the times of the observation of a trace whose source is the span,
	// nil when there is none. SetUntil stores their Until.
	SpanTime(traceID, spanID string) (*SpanTime, error)
	SetUntil(traceID, spanID string, t *SpanTime) error
	// Attribute changes what became of a stored observation.
	Attribute(o *Observation, attributed *Attribution) error
	// TraceOwner returns the owner of the observations of a trace, and the trace's own
	// session. It is not ok when there are none. SetTraceOwner changes the owner.
	TraceOwner(traceID string) (owner, own string, ok bool, err error)
	SetTraceOwner(traceID, owner string) error
	// ThreadOwner returns the owner of the first observation of the dialect, by (start,
	// trace, source), that names the session in a trace of another owner.
	ThreadOwner(sessionID, dialect string) (owner string, ok bool, err error)
	// ThreadRecords returns the observations of the dialect that name the session outside of
	// any trace and whose owner is not owner, by source, without their data.
	// SetRecordOwner changes the owner of one.
	ThreadRecords(sessionID, dialect, owner string) ([]ObservationRow, error)
	SetRecordOwner(source, owner string) error
	// TraceObservations returns those of a trace, without their data.
	TraceObservations(traceID string) ([]ObservationRow, error)
	// TraceKey is the session that the observations of a trace name by the best key:
	// of the least rank, then the earliest, then the least; "" when none names one. It
	// returns the rank too.
	TraceKey(traceID string) (sessionID string, rank int, err error)
	// TraceSessions returns the sessions of which the trace has spans of the SDK, whose
	// dialect is DialectSDK.
	TraceSessions(traceID string) ([]string, error)
	// OrphanCalls returns the tool calls, and the calls of models, of a trace that have
	// no parent, by (start, source).
	OrphanCalls(traceID string) ([]OrphanCall, error)
	// Requester is the last observation that requested the call by then, but no
	// longer than CallLife before, of those that have an owner and are not of the trace;
	// by (start descending, trace, source); of those that ended at until or later,
	// unless it is 0, and then those first whose trace some key names a session for. It
	// is nil when there is none.
	Requester(callID, notTrace string, by, until int64) (*Requester, error)
	// OrphanTraces returns the traces with a tool call of that id that has no parent
	// of which one that was requested at the time may be the requester: those
	// that begin from then on, until CallLife is over or observations of two other
	// traces have requested it since. If until is not 0 they are those that begin by
	// then instead, whoever has requested it since.
	OrphanTraces(callID string, at, until int64) ([]string, error)

	// Observations returns those of an owner that begin in [from, to), Unix
	// nanoseconds.
	Observations(owner string, from, to int64) ([]Observation, error)
	// Start returns the start of an observation of an owner, only of one that opens a
	// turn if opens is set: of the nth that begins at the time or later, or where n is
	// negative of the nth before it. It is not ok when there are fewer.
	Start(owner string, at int64, n int, opens bool) (start int64, ok bool, err error)
	// Across bounds the observations that begin before the time and last until after it:
	// the least of their starts and the greatest of the times until which they last. Its
	// cost depends on how many there are, not on how many there are before or after.
	Across(owner string, at int64) (from, to int64, ok bool, err error)
	// Around returns the observations that begin before the time and last until after it, by
	// (start, trace, source). Its cost is that of Across.
	Around(owner string, at int64) ([]Observation, error)
	// CutBefore returns the last cut of an owner before a time, nil when there is none.
	CutBefore(owner string, before int64) (*Cut, error)
	// ReplaceCuts makes cuts the only ones of an owner in [from, to).
	ReplaceCuts(owner string, from, to int64, cuts []Cut) error
	// UsageProofs returns what the observations of an owner prove, by Counter, those of
	// which nothing is proven left out. Its cost does not depend on how many observations
	// prove the same. PutUsageProof changes the one of a stored observation.
	UsageProofs(owner string) ([]UsageProof, error)
	PutUsageProof(o *Observation, p UsageProof) error
	// Counted bounds the observations of an owner that have a UsageProof with a Counter.
	Counted(owner string) (from, to int64, ok bool, err error)
	// SessionAttrs returns what the observations that are attributed to a session report
	// of it, those that end last first; all of them, or as many as limit says if it is
	// not negative.
	SessionAttrs(sessionID string, limit int) ([]SessionAttrs, error)
}

// Table is a table of which [Tx.Delete] deletes rows.
type Table string

// The tables.
const (
	TableSessions  Table = "chat_sessions"
	TableMessages  Table = "chat_messages"
	TableParts     Table = "chat_parts"
	TableDecisions Table = "permission_decisions"
)

// ObservationRow is an observation with the session that it is kept under: that of
// its trace, which may be another than the one it is built in.
type ObservationRow struct {
	Observation
	Owner string `column:"owner"`
}

// SpanTime has the times of an observation. LastBelow is when the last of those that
// are below it and do not open a turn begins, 0 where there is none.
type SpanTime struct{ Start, End, Until, LastBelow int64 }

// SessionAttrs is what a placed observation reports of its session's row.
type SessionAttrs struct {
	Start, End   int64
	SessionAttrs *SessionChange
}

// CallLife is how long after the model asked for it a tool may run: a day, for a
// person may have to approve it. Ids of calls are not unique for longer.
const CallLife = 24 * 60 * 60 * 1_000_000_000

// OrphanCall is a tool call, or a call of a model, that has no parent.
type OrphanCall struct {
	Call       string
	Start, End int64
}

// ModelCallPrefix begins what stands for the id of a call in [Observation] where a
// model is called and no tool: the rest is the model. A framework's span of the call
// announces it, and the span of the provider's own library, in a trace of its own,
// is the orphan. The one happened while the other did.
const ModelCallPrefix = "model:"

// ClockTick is by how much the times of two instrumentations of one process may
// differ, in nanoseconds.
const ClockTick = 2_000_000

// Requester is an observation that asked for a tool call.
type Requester struct{ TraceID, Owner string }

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

// SessionRow is a session with what must be remembered to merge further
// changes into it.
type SessionRow struct {
	session.Session
	State State
}

// State is a session's merge state. It grows with the number of rewinds and
// forks, never with messages.
type State struct {
	// Stamps tell when and by whom each column or metadata key was said.
	Stamps map[string]Stamp `json:"stamps,omitempty"`

	// Declared bounds the session without its observations, nil when its row does so too.
	Declared *Bounds `json:"said,omitempty"`
	// Quarantined holds what was reported of columns in no final form by others than
	// observations, should what an observation says in its stead be taken back.
	Quarantined map[string]Value `json:"aside,omitempty"`

	Rewinds []Rewind `json:"rewinds,omitempty"`

	// Fork is set on a fork, Forks on the session that it was made from.
	Fork  *Fork     `json:"fork,omitempty"`
	Forks []ForkRef `json:"forks,omitempty"`

	// Marker is the latest compaction in force, Tail the message it names, Cut
	// the position from which messages count towards the context.
	Marker Position `json:"marker,omitzero"`
	Tail   string   `json:"tail,omitempty"`
	Cut    Position `json:"cut,omitzero"`

	// Open are the turns that were only seen live, in order. It grows with those whose
	// end nobody reports.
	Open []OpenTurn `json:"open,omitempty"`

	// Steps are the sums of the model calls of answers that no span describes as a whole
	// yet and that have many, by message, so that the next one need not read them all.
	Steps map[string]*StepSum `json:"steps,omitempty"`

	// Rollup is the usage on the session's row as it was written last. Where the
	// row has another, some other program wrote it and it is summed again.
	Rollup session.Usage `json:"rollup,omitzero"`
}

// Portable is what another store can take of the state, nil when that is nothing: its
// stamps, its rewinds, and what the session was forked from. The rest follows from the
// rows, or is beside observations, which do not come along.
func (s *State) Portable() *State {
	if s == nil || len(s.Stamps) == 0 && len(s.Rewinds) == 0 && s.Fork == nil {
		return nil
	}
	return &State{Stamps: s.Stamps, Rewinds: s.Rewinds, Fork: s.Fork}
}

// Bounds are the least and the greatest time that something happened, in Unix
// milliseconds; 0 is unknown.
type Bounds struct {
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
}

// OpenTurn is the answer of a turn of which no span has come.
type OpenTurn struct {
	Position
	Index int64 `json:"turn_index"`
	// Over reports that a later turn shows that its process is gone.
	Over bool `json:"over,omitempty"`
}

// ForkRef names a fork of a session and the message where it left.
type ForkRef struct {
	Session string `json:"session"`
	Message string `json:"message"`
}

// Stamp is the provenance of a value; see [Value]. Sum tells values that were
// said at the same time apart without looking at the row, which another program
// may have changed since.
type Stamp struct {
	At   int64  `json:"at"`
	Rank Rank   `json:"rank"`
	Sum  uint32 `json:"sum"`
}

// Encode returns the state as JSON with keys in a fixed order.
func (s *State) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("store: encode state: " + err.Error()) // a plain struct always encodes
	}
	return b
}
