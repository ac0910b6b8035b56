package store

import (
	"encoding/json"

	"github.com/agenttrace/agenttrace/session"
)

// Tx is what an engine gives to [Apply]: single rows, in one transaction that
// sees its own writes. A Tx is used by one goroutine.
//
// Methods that fetch return nil and no error when there is no such row. An
// error of [ErrRefused] concerns the one row; any other ends the transaction.
type Tx interface {
	Session(id string) (*SessionRow, error)
	PutSession(row *SessionRow, insert bool) error

	// Forks returns the sessions whose State.Fork.From is parentID, by id, and the
	// message where each left.
	Forks(parentID string) ([]ForkRef, error)

	Message(id string) (*session.Message, error)
	PutMessage(m *session.Message, insert bool) error
	// DeleteMessage deletes a message with its parts. Only copies in a fork are
	// ever deleted, to be made anew.
	DeleteMessage(id string) error
	// MessagesFrom returns the session's messages at and after the position, in
	// order. The zero position is before every message.
	MessagesFrom(sessionID string, from Position) ([]session.Message, error)

	// InsertPart reports false when the id exists or its place is taken.
	InsertPart(p *session.Part) (bool, error)
	Part(id string) (*session.Part, error)
	PutPart(p *session.Part) error
	// Parts returns the parts of a message by index.
	Parts(messageID string) ([]session.Part, error)
	// Places returns the ids and indexes of the parts of a message.
	Places(messageID string) ([]Place, error)
	// Extent returns how many parts a message has and the index after the last.
	Extent(messageID string) (count, next int64, err error)
	// Compactions returns the data-compaction parts of a message, or of the whole
	// session where messageID is empty.
	Compactions(sessionID, messageID string) ([]session.Part, error)

	// Claims returns the places that displaced parts of a message asked for.
	Claims(messageID string) (map[string]int64, error)
	PutClaim(messageID, partID string, claim int64) error
	// Move sets the indexes of parts of one message, all of them at once.
	Move(messageID string, index map[string]int64) error
	DeletePart(id string) error

	// InsertLink reports false when the span is known.
	InsertLink(l *Link) (bool, error)
	Link(sessionID, traceID, spanID string) (*Link, error)
	PutLink(l *Link) error
	// PutTrace notes that a trace has spans of a session.
	PutTrace(traceID, sessionID string) error
	// Facts returns the links of a message that carry facts.
	Facts(sessionID, messageID string) ([]Link, error)

	InsertDecision(d *Decision) (bool, error)
	Decision(id string) (*Decision, error)
	PutDecision(d *Decision) error
	DeleteDecision(id string) error

	Observation(traceID, source string) (*ObservationRow, error)
	// PutObservation stores it and the calls that it announces.
	PutObservation(o *ObservationRow, insert bool) error
	// SetHome and Place change what is said of a stored observation.
	SetHome(traceID, source, home string) error
	Place(o *Observation, placed *Placement) error
	// TraceObservations returns those of a trace, without their data.
	TraceObservations(traceID string) ([]ObservationRow, error)
	// TraceHome is the home of the observations of a trace, "" when there are none.
	TraceHome(traceID string) (string, error)
	// TraceTold returns the sessions of which the trace has spans of the SDK.
	TraceTold(traceID string) ([]string, error)
	// Observations returns those of a home that begin in [from, to), Unix
	// nanoseconds.
	Observations(home string, from, to int64) ([]Observation, error)
	// OpenerBefore is the start of the last observation that opens a turn and begins
	// before the time, OpenerFrom of the first that begins at it or later.
	OpenerBefore(home string, before int64) (at int64, ok bool, err error)
	OpenerFrom(home string, from int64) (at int64, ok bool, err error)
	// FirstAcross is the start of the first observation that begins before the time
	// and ends after it.
	FirstAcross(home string, at int64) (start int64, ok bool, err error)
	// Announcer is the home of the trace, not this one, that asked for the call last
	// before the time, or "". StrayTraces are those with a call of that id that has
	// no parent.
	Announcer(callID, notTrace string, before int64) (home string, err error)
	StrayTraces(callID string) ([]string, error)
	// Abouts returns the observations that were placed in a session, without their
	// data.
	Abouts(sessionID string) ([]About, error)
	// HasLinks says whether the SDK has spoken of the session.
	HasLinks(sessionID string) (bool, error)
	DeleteSession(id string) error

	// PutBlob stores the body unless the one that is there is as good, and
	// reports whether it did.
	PutBlob(b *Blob) (bool, error)

	// Touch notes that a session changed, for exports that follow the store.
	Touch(sessionID string) error
}

// ObservationRow is an observation with the session that it is kept under: that of
// its trace, which may be another than the one it is told in.
type ObservationRow struct {
	Observation
	Home string
}

// About is what a placed observation says of its session's row.
type About struct {
	Start, End int64
	About      *SessionChange
}

// Place is where a part stands in its message.
type Place struct {
	ID    string
	Index int64
}

// Position is a place in the order of a session's messages.
type Position struct {
	At int64  `json:"at,omitempty"`
	ID string `json:"id,omitempty"`
}

// Before says whether p comes before q.
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

	Rewinds []Rewind `json:"rewinds,omitempty"`

	// Fork is set on a fork, Forks on the session that it was made from.
	Fork  *Fork     `json:"fork,omitempty"`
	Forks []ForkRef `json:"forks,omitempty"`

	// Marker is the latest compaction in force, Tail the message it names, Cut
	// the position from which messages count towards the context.
	Marker Position `json:"marker,omitzero"`
	Tail   string   `json:"tail,omitempty"`
	Cut    Position `json:"cut,omitzero"`

	// Rollup is the usage on the session's row as it was written last. Where the
	// row has another, some other program wrote it and it is summed anew.
	Rollup session.Usage `json:"rollup,omitzero"`
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
