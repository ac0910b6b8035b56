package store

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
)

// Tx is one transaction of an engine: all that an engine has to provide for merging.
//
// [Apply] and [Import] work on rows in memory. Through a Tx they load the rows that they need, many at a
// time, and write what has changed. For an engine behind a network a call of Do costs one round trip,
// however many changes and queries it has; what a batch costs is the number of these calls.
//
// Ownership: changes, queries and what they point to belong to the caller, who may change them when Do has
// returned. The engine sets the results of the queries and the Refused of rows; it retains neither, and
// every result is memory of its own.
//
// Concurrency: a Tx is used by one goroutine, and not after the function that got it has returned. The context and the
// commit are the engine's, and so is isolation: an engine with several writers behaves as if its transactions ran one
// after the other. It may lock what the queries name, in a fixed order, or fail one of two that conflict and run it
// again.
type Tx interface {
	// Do applies the changes, then answers the queries in the state that results. Changes may be nil, and
	// either may be empty.
	//
	// Order: Do applies what is deleted before what is put, what refers to a row after the row, and within
	// one slice of changes in its order. The queries depend on the changes and on nothing else, so an engine
	// may answer them in any order.
	//
	// Errors: a row that the engine cannot hold, because it violates a constraint or is too large, is no
	// error: Do sets its Refused, leaves it out and goes on, also where another row is refused with it that
	// refers to it. The caller then undoes everything and repeats it without the row. Any other error ends
	// the transaction; one that may pass wraps [ErrUnavailable].
	//
	// Edge cases: a key without a row is left out of a result, or is its zero value. Results are in the
	// order that the query states; where it states none, in any. To change or delete a row that is
	// not there is no error.
	Do(changes *Changes, queries []Query) error

	// Undo takes back everything that Do has applied. Afterwards the transaction is as it was when the
	// engine handed it out, and can be used again.
	Undo() error
}

// Op is what is done to a row.
type Op uint8

// What can be done to a row.
const (
	// Insert adds a row. It is refused where there is one with its key, or a part at its index.
	Insert Op = iota
	// Update sets the columns of the row with the key. Of a message the session stays as it is, of a part
	// the session, the message and the index.
	Update
	// Delete deletes the row with the key, and all rows that refer to it: with a message its parts. Only the
	// key is set. With a session its observations stay, for they may be another's.
	Delete
)

// Put is a change of one row.
type Put[Row any] struct {
	Op  Op
	Row *Row
	// Old is the row that an Update replaces.
	Old *Row
	// Refused is set by the engine where it cannot hold the row.
	Refused error
}

// Changes are the differences between the rows of an engine and those that they shall be. There is one change of
// a row at most, except that it may be deleted and inserted.
type Changes struct {
	// Sessions have their state with them. A session that is put is inserted before all that refers to it.
	Sessions []Put[SessionRow]
	Messages []Put[session.Message]
	// Moved are parts that get another index, before parts are put and after some are deleted. Parts of one
	// message may exchange their indexes.
	Moved []PartIndex
	Parts []Put[session.Part]
	// Requested replace the rows with the same part.
	Requested []RequestedIndex
	SpanRefs  []Put[SpanRef]
	Decisions []Put[Decision]
	Blobs     []Put[Blob]
	// Annotations are inserted and updated; they are deleted with their session alone.
	Annotations []Put[Annotation]

	// Observations are put with the calls that they request. Until is set by SpanTimes alone; an observation that is
	// put lasts until its end.
	Observations []Put[ObservationRow]
	SpanTimes    []SpanTime
	Owners       []NewOwner
	Attributed   []Attributed
	Proofs       []Proof
	// Unbuilt replace those of the same owner; where nothing was Added, that is deleted.
	Unbuilt []UnbuiltTurns

	// Traces that have rows of a session, after all else.
	Traces []SessionTrace
	// Touched are sessions that changed, for exports that follow the store.
	Touched []string
	// Sources replace those with the same paths, after all else.
	Sources []*ImportSource
}

// Names calls add with what the changes name: see [NamesOf].
func (c *Changes) Names(add AddNames) {
	for i := range c.Sessions {
		s := c.Sessions[i].Row
		add(NameSession, s.ID)
		if s.State.Fork != nil {
			add(NameSession, s.State.Fork.From)
		}
	}
	for i := range c.Messages {
		add(NameSession, c.Messages[i].Row.SessionID)
		add(NameMessage, c.Messages[i].Row.ID)
	}
	for i := range c.Observations {
		o := c.Observations[i].Row
		add(NameTrace, o.TraceID)
		add(NameSession, o.Owner, o.Session)
		add(NameCall, o.Call)
		add(NameCall, o.Calls...)
	}
	for _, source := range c.Sources {
		add(NamePath, source.Path)
	}
	for i := range c.Owners {
		add(NameTrace, c.Owners[i].TraceID)
		add(NameSession, c.Owners[i].Owner)
	}
}

// PartIndex is the index of a part.
type PartIndex struct {
	ID    string
	Index int64
}

// NewOwner changes the owner of the observations of a trace; where there is no trace, of the one with the source.
type NewOwner struct{ TraceID, Source, Owner string }

// Attributed sets the attribution of an observation, except for its UsageProof.
type Attributed struct {
	ObservationKey
	Attribution *Attribution
}

// Proof sets the UsageProof of an observation.
type Proof struct {
	ObservationKey
	UsageProof
}

// SessionTrace notes that a trace has spans of a session. Where Pruned is set, it may have none any more: the note
// is deleted if there are neither spans nor observations that are attributed to the session.
type SessionTrace struct {
	TraceID, SessionID string
	Pruned             bool
}

// Query is a question to an engine: a pointer to one of the types below. The first fields are the arguments,
// the exported fields after them the results, which are zero before and set by [Tx.Do].
type Query interface {
	names(add AddNames)
}

// NamesOf calls add with what a query names. Whatever the query reads, another transaction changes only if it names
// the same session, message, trace or call, in a query or in its changes.
func NamesOf(q Query, add AddNames) { q.names(add) }

// NameKind is what a name stands for: one text may be the id of a session and of a call.
type NameKind byte

// What queries and changes name.
const (
	NameSession NameKind = 's'
	NameMessage NameKind = 'm'
	NameTrace   NameKind = 't'
	NameCall    NameKind = 'c'
	NamePath    NameKind = 'p'
)

// AddNames is called with names of a kind, which may be "" where there is none.
type AddNames func(kind NameKind, names ...string)

// Queries for rows by their keys. The rows are in any order, and a row may come twice.
type (
	// SessionsByID also finds what hangs on a session: the forks made from it, if Forks is set, and
	// the sessions below it that are transcripts, if Children is set.
	SessionsByID struct {
		IDs             []string
		Forks, Children bool

		Rows []SessionRow
		// ForksOf are those whose State.Fork.From is the key, by session. Transcripts are the ids of those
		// whose ParentID is the key and whose metadata has the text "transcript", in order. The keys need
		// not be those of sessions that are stored.
		ForksOf     map[string][]ForkRef
		Transcripts map[string][]string
	}
	// MessagesByID finds the messages with the ids.
	MessagesByID struct {
		IDs []string

		Rows []session.Message
	}
	// PartsByKey finds the parts with the ids, whatever message they are of. Of an id that no part has, it
	// finds the part of the message at the index.
	PartsByKey struct {
		MessageID string
		Keys      []PartIndex

		Rows []session.Part
	}
	// SpanRefsByKey finds the spans with the keys.
	SpanRefsByKey struct {
		Keys []SpanKey

		Rows []SpanRef
	}
	// DecisionsByID finds the permission decisions with the ids.
	DecisionsByID struct {
		IDs []string

		Rows []Decision
	}
	// AnnotationsByKey finds the annotations with the keys.
	AnnotationsByKey struct {
		Keys []AnnotationKey

		Rows []Annotation
	}
	// AnnotationsOf finds all annotations of a session.
	AnnotationsOf struct {
		SessionID string

		Rows []Annotation
	}
	// BlobsByDigest finds the system prompts or tool catalogs with the digests.
	BlobsByDigest struct {
		Kind    BlobKind
		Digests []string

		Rows []Blob
	}
	// ObservationsByKey finds the observations with the keys, with their data.
	ObservationsByKey struct {
		Keys []ObservationKey

		Rows []ObservationRow
	}
)

// Queries for the rows of a session or message.
type (
	// MessagesFrom are the messages of a session at and after the position, in order. The zero position is
	// before every message.
	MessagesFrom struct {
		SessionID string
		From      Position

		Rows []session.Message
	}
	// PartsFrom are the parts of a message from an index on, by index.
	PartsFrom struct {
		MessageID string
		From      int64

		Rows []session.Part
	}
	// Extent is how many parts a message has, and the index after the last. Requested, if it is asked for, are the
	// indexes that displaced ones requested.
	Extent struct {
		MessageID     string
		WithRequested bool

		Count, Next int64
		Requested   []RequestedIndex
	}
	// Compactions are the parts of the type data-compaction of a session.
	Compactions struct {
		SessionID string

		Rows []session.Part
	}
	// StatsOf are the spans of the session that have TurnStats of a message.
	StatsOf struct {
		SessionID, MessageID string

		Rows []SpanRef
	}
	// Sources are what observations that are attributed to a session report of it. SDK reports that the session has
	// spans of DialectSDK.
	Sources struct {
		SessionID string

		Rows []SessionAttrs
		SDK  bool
	}
)

// Queries about traces and what connects them.
type (
	// TraceOwners finds under which session the observations of traces are kept. A trace without observations
	// is left out.
	TraceOwners struct {
		TraceIDs []string

		Rows []TraceOwner
	}
	// Trace is what decides on the owner of a trace.
	Trace struct {
		TraceID string

		Owner, Own string // as in TraceOwner
		// Named is the session that the observations of the trace name by the best key, of the least rank, then
		// the earliest, then the least; "" if none names one.
		Named string
		// Sessions are those of which the trace has spans of DialectSDK, in order.
		Sessions []string
		// Orphans are the tool calls, and the calls of models, that have no parent, by (start, source). They may
		// be left out if there is a name, or a session.
		Orphans []OrphanCall
	}
	// TraceObservations are those of a trace, without their data, by source.
	TraceObservations struct {
		TraceID string

		Rows []ObservationRow
	}
	// Thread is where the observations of a dialect are kept that name a session: Owner is that of the first,
	// by (start, trace, source), that names it in a trace of another owner. Records, if they are asked for, are
	// those outside of any trace with an owner other than that, or than the session if there is none; by
	// source, without their data.
	Thread struct {
		SessionID, Dialect string
		WithRecords        bool

		Owner   string
		OK      bool
		Records []ObservationRow
	}
	// RequesterOf is the last observation that requested the call by the time, but no longer than CallLife before,
	// of those that have an owner and are not of the trace; by (start descending, trace, source). If Until is
	// not 0, it is one of those that ended then or later, and first of those whose trace some key names a session for.
	RequesterOf struct {
		CallID, NotTrace string
		By, Until        int64

		Requester *Requester
	}
	// OrphanTraces are the traces with a tool call of that id that has no parent, and for which one that was requested
	// at the time may be the requester, in order: those that begin from then on, until CallLife is over or observations
	// of two other traces have requested it since. If Until is not 0, they are those that begin by then instead,
	// whoever has requested it since.
	OrphanTraces struct {
		CallID    string
		At, Until int64

		TraceIDs []string
	}
)

// Queries about the timeline of an owner, in Unix nanoseconds.
type (
	// SpanTimes are the times of the observations whose sources are spans of their traces.
	SpanTimes struct {
		Keys []ObservationKey

		Rows []SpanTime
	}
	// Opening looks for where a window may begin or end: Start is the last time before At when an observation that opens
	// a turn begins if Before is set, and else the first at At or after it. Across bounds the observations that begin
	// before Start and last until after it, nil if there are none. The cost depends on how many those are, not on how
	// many come before or after.
	Opening struct {
		Owner  string
		At     int64
		Before bool

		OK     bool
		Start  int64
		Across *TimeRange
	}
	// ObservationsIn are those that begin in [From, To), with their TraceRank.
	ObservationsIn struct {
		Owner    string
		From, To int64

		Rows []Observation
	}
	// WindowSize counts the observations that begin in [From, To), up to Limit. Answer is the message to which the last
	// of them that is attributed to a message of the owner is, "" if there is none.
	WindowSize struct {
		Owner    string
		From, To int64
		Limit    int

		Count  int
		Answer string
	}
	// UnbuiltOf finds the mark of an owner; if that is "", the mark of the first owner after another.
	UnbuiltOf struct {
		Owner, After string

		Unbuilt *UnbuiltTurns
	}
	// Proven is what the observations of an owner prove, by Counter, without those of which nothing is proven. The cost
	// does not depend on how many prove the same. Counted, if WithCounted is set, bounds the observations with a
	// UsageProof that has a Counter.
	Proven struct {
		Owner       string
		WithCounted bool

		Proofs  []UsageProof
		Counted *TimeRange
	}
)

func (q *SessionsByID) names(add AddNames)      { add(NameSession, q.IDs...) }
func (q *MessagesByID) names(add AddNames)      { add(NameMessage, q.IDs...) }
func (q *PartsByKey) names(add AddNames)        { add(NameMessage, q.MessageID) }
func (q *DecisionsByID) names(AddNames)         {}
func (q *AnnotationsOf) names(add AddNames)     { add(NameSession, q.SessionID) }
func (q *BlobsByDigest) names(AddNames)         {}
func (q *ObservationsByKey) names(add AddNames) { addTraces(add, q.Keys) }
func (q *MessagesFrom) names(add AddNames)      { add(NameSession, q.SessionID) }
func (q *PartsFrom) names(AddNames)             {}
func (q *Extent) names(AddNames)                {}
func (q *Compactions) names(add AddNames)       { add(NameSession, q.SessionID) }
func (q *StatsOf) names(add AddNames)           { add(NameSession, q.SessionID) }
func (q *Sources) names(add AddNames)           { add(NameSession, q.SessionID) }
func (q *TraceOwners) names(add AddNames)       { add(NameTrace, q.TraceIDs...) }
func (q *Trace) names(add AddNames)             { add(NameTrace, q.TraceID) }
func (q *TraceObservations) names(add AddNames) { add(NameTrace, q.TraceID) }
func (q *Thread) names(add AddNames)            { add(NameSession, q.SessionID) }
func (q *RequesterOf) names(add AddNames)       { add(NameCall, q.CallID) }
func (q *OrphanTraces) names(add AddNames)      { add(NameCall, q.CallID) }
func (q *SpanTimes) names(add AddNames)         { addTraces(add, q.Keys) }
func (q *Opening) names(add AddNames)           { add(NameSession, q.Owner) }
func (q *ObservationsIn) names(add AddNames)    { add(NameSession, q.Owner) }
func (q *WindowSize) names(add AddNames)        { add(NameSession, q.Owner) }
func (q *UnbuiltOf) names(add AddNames)         { add(NameSession, q.Owner) }
func (q *Proven) names(add AddNames)            { add(NameSession, q.Owner) }

func (q *SpanRefsByKey) names(add AddNames) {
	for _, key := range q.Keys {
		add(NameSession, key.SessionID)
	}
}

func (q *AnnotationsByKey) names(add AddNames) {
	for _, key := range q.Keys {
		add(NameSession, key.SessionID)
	}
}

func addTraces(add AddNames, keys []ObservationKey) {
	for _, key := range keys {
		add(NameTrace, key.TraceID)
	}
}

// SpanKey is the key of a [SpanRef].
type SpanKey struct{ SessionID, TraceID, SpanID string }

// ObservationKey is the key of an [Observation].
type ObservationKey struct {
	TraceID string `column:"trace_id"`
	Source  string `column:"source"`
}

// TraceOwner has the session under which the observations of a trace are kept, "" if it has none because the SDK
// reports the trace. Own is the trace's own session.
type TraceOwner struct {
	TraceID string `column:"trace_id"`
	Owner   string `column:"owner"`
	Own     string `column:"default_session"`
}

// TimeRange is a range of time, in Unix nanoseconds.
type TimeRange struct{ From, To int64 }

// ObservationRow is an observation with the session that it is kept under: that of
// its trace, which may be another than the one it is built in.
type ObservationRow struct {
	Observation
	Owner string `column:"owner"`
}

// SpanTime has the times of an observation. LastBelow is when the last of those that
// are below it and do not open a turn begins, 0 where there is none.
type SpanTime struct {
	ObservationKey
	Start     int64 `column:"start_nano"`
	End       int64 `column:"end_nano"`
	Until     int64 `column:"until_nano"`
	LastBelow int64 `column:"last_below"`
}

// SessionAttrs is what an attributed observation reports of its session's row.
type SessionAttrs struct {
	Start        int64          `column:"start_nano"`
	End          int64          `column:"end_nano"`
	SessionAttrs *SessionChange `column:"session_attrs_json"`
}

// CallLife is how long after the model asked for it a tool may run: a day, for a
// person may have to approve it. Ids of calls are not unique for longer.
const CallLife = 24 * 60 * 60 * 1_000_000_000

// OrphanCall is a tool call, or a call of a model, that has no parent.
type OrphanCall struct {
	Call  string `column:"orphan_call"`
	Start int64  `column:"start_nano"`
	End   int64  `column:"end_nano"`
}

// ModelCallPrefix begins what is used as the id of a call in [Observation] where a
// model is called and no tool: the rest is the model. A framework's span of the call
// requests it, and the span of the provider's own library, in a trace of its own,
// is the orphan. The one happened while the other did.
const ModelCallPrefix = "model:"

// ClockTick is by how much the times of two instrumentations of one process may
// differ, in nanoseconds.
const ClockTick = 2_000_000

// Requester is an observation that asked for a tool call.
type Requester struct {
	TraceID string `column:"trace_id"`
	Owner   string `column:"owner"`
}

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
	// Stamps are when and by whom each column or metadata key was reported.
	Stamps map[string]Stamp `json:"stamps,omitempty"`

	// Declared bounds the session without its observations, nil when its row does so too.
	Declared *Bounds `json:"declared,omitempty"`
	// Quarantined holds what was reported of columns in no final form by others than
	// observations, should what an observation reports instead be taken back.
	Quarantined map[string]Value `json:"quarantined,omitempty"`

	Rewinds []Rewind `json:"rewinds,omitempty"`

	// OtherCost is the part of the session's cost that was reported beside its messages.
	OtherCost float64 `json:"other_cost_usd,omitempty"`

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

// Stamp is the provenance of a value; see [Value]. Sum distinguishes values that
// were reported at the same time without looking at the row, which another program
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
