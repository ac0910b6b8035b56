package store

import (
	"bytes"
	"cmp"
	"math"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// Observation is what one span or log record of an agent that was not instrumented with the SDK reports. No such span
// describes a whole message: what it means depends on others that may come before or after it. So observations are
// stored, and the turn that a new one falls into is rebuilt from all of its observations, by the batch's Assemble.
type Observation struct {
	// TraceID is lower-case hex, empty for a record that was emitted in no trace.
	// Source distinguishes the observations of one trace.
	TraceID string `column:"trace_id"`
	Source  string `column:"source"`
	// Dialect names the convention by which it was understood.
	Dialect string `column:"dialect"`
	// SpanID and ParentSpanID are lower-case hex. A record has the span that it was emitted in, if any.
	SpanID       string `column:"span_id,omitempty"`
	ParentSpanID string `column:"parent_span_id,omitempty"`
	// Start and End are Unix nanoseconds.
	Start int64 `column:"start_nano"`
	End   int64 `column:"end_nano"`
	// Until is when the observation ends, or when the last of those that are below it
	// begins, whichever is later; what opens a turn does not count. The store sets it.
	Until int64 `column:"until_nano"`
	// Received is when the observation came, in Unix nanoseconds, and no other's: of one that came again, the first time.
	Received int64 `column:"received_nano"`
	// Error reports that the source reported one.
	Error bool `column:"error"`

	// Session is the session that the source names; Rank orders the keys that sources name one by, the least counting.
	// Without one, the whole trace is of the session that another observation of it names; and without any, the trace
	// is a session of its own.
	Session string `column:"declared_session,omitempty"`
	Rank    int    `column:"declared_rank"`
	// Subagent is the session of the sub-agent of Session that the observation is of, as
	// its source names it, "" where it is of Session itself. It is not stored.
	Subagent string
	// TraceRank is the least Rank of those of its trace that name a session, NoRank
	// where none does. The store sets it for Assemble.
	TraceRank int
	// Own is the session of the trace when nothing names one.
	Own string `column:"default_session"`
	// Opens reports that a turn begins here, whatever came before.
	Opens bool `column:"opens"`
	// Calls are ids of tool calls that the model asked for here. Call is set on a tool call that has no parent: its
	// trace may be of the session where the model asked for it. What begins with ModelCallPrefix is a call of a model,
	// which may have a span in another trace likewise. See ResponsePrefix and EvaluationPrefix for others.
	Calls []string `column:"calls_json"`
	Call  string   `column:"orphan_call,omitempty"`

	// Data is what Assemble reads. The store looks at its first byte only: see [DataVersion]. An observation without
	// data reports nothing, and has what it reaches across assembled together.
	Data []byte `column:"data"`

	// Attribution is what the observation was last understood as.
	Attribution Attribution
}

// parent is the span that the observation is below: a span's parent, and for a log
// record, or a further observation of a span, the span itself.
func (o *Observation) parent() string {
	if o.isSpan() {
		return o.ParentSpanID
	}
	return o.SpanID
}

// isSpan reports whether the observation is the one by which others find its span.
func (o *Observation) isSpan() bool { return o.Source == o.SpanID }

// NoRank is the TraceRank of observations of a trace that names no session.
const NoRank = math.MaxInt

// Attribution is what became of an observation. It is zero when nothing did.
type Attribution struct {
	SessionID string `column:"session_id,omitempty"`
	// MessageID and PartID are what the observation describes before all else.
	MessageID  string `column:"message_id,omitempty"`
	PartID     string `column:"part_id,omitempty"`
	DecisionID string `column:"decision_id,omitempty"`
	// Others are further messages that came of it, such as the user's of a turn.
	Others []string `column:"others_json"`
	// Kind is what the observation was understood as, such as session.turn.
	Kind string `column:"kind,omitempty"`
	// UsageProof is what the observation proves of how tokens were counted.
	UsageProof UsageProof
	// SessionAttrs is what the observation reports of the session's row, nil when nothing.
	// What others report takes precedence over it.
	SessionAttrs *SessionChange `column:"session_attrs_json"`
}

// UsageProof is what is proven of how Counter counts tokens: of a source whose counts nobody knows to read otherwise.
// Counter is "" where that is known. The bits of Proof have a meaning for the Assembler alone; what is proven of a
// Counter is the union of the Proofs of all observations of the owner, and 0 is nothing.
type UsageProof struct {
	Counter string `column:"usage_counter,omitempty"`
	Proof   int64  `column:"usage_proof"`
}

// Assembly is what some observations of one session, and of sessions below it, come to.
type Assembly struct {
	Messages  []AssembledMessage
	Decisions []Decision
	// Attribution is what became of each observation, in their order.
	Attribution []Attribution
	// Annotations are, of a window of evaluations, the score of each, in their order. One without a MessageID gets
	// a target.
	Annotations []Annotation
}

// AssembledMessage is a message with all its parts, in order of index from 0. They replace what is stored of it.
// HiddenAt is set where the source reports that the user took the message back; what was rewound in the store hides it
// too. It does not date its session: the observations do.
type AssembledMessage struct {
	session.Message
	Parts []session.Part
}

// Window is a range of a session's time whose observations are assembled together: from where a turn opens to where
// another one does, with nothing reaching across either: no observation, and none from which another to what is below
// it. Most windows are one turn.
type Window struct {
	Owner string
	// Proofs are what all observations of the owner prove, by Counter.
	Proofs []UsageProof
	// Observations are those that begin in the window.
	Observations []Observation
}

// Assembler returns what the observations of a window come to. It depends on nothing but the window, and not on the
// order in it. The UsageProof of an attribution must not depend on the window's Proofs.
type Assembler func(w *Window) (Assembly, error)

// UnbuiltTurns marks an owner whose rows lack some observations: Added batches have stored some between From and To,
// Unix nanoseconds, whose turns were not built since. See [Batch.Defer].
type UnbuiltTurns struct {
	Owner string `column:"owner"`
	From  int64  `column:"from_nano"`
	To    int64  `column:"to_nano"`
	Added int64  `column:"added"`
}

// DataVersion is the first byte of Data that states how it was understood: of two observations with one identity the
// one whose byte is greater counts, because what read it knows more. Lesser bytes are of no version, and the lowest bit
// is not compared.
const DataVersion = 0x80

// version is how o's data was understood.
func (o *Observation) version() byte {
	if len(o.Data) == 0 || o.Data[0] < DataVersion {
		return 0
	}
	return o.Data[0] &^ 1
}

// takesPrecedence reports whether o replaces p, which has the same identity: a span that
// was delivered twice in different versions.
func (o *Observation) takesPrecedence(p *Observation) bool {
	return cmp.Or(
		cmp.Compare(o.version(), p.version()),
		cmp.Compare(o.End, p.End), cmp.Compare(o.Start, p.Start), cmp.Compare(len(o.Data), len(p.Data)),
		bytes.Compare(o.Data, p.Data),
		strings.Compare(o.Session, p.Session), cmp.Compare(p.Rank, o.Rank),
	) > 0
}

func compareObservations(x, y *Observation) int {
	return cmp.Or(cmp.Compare(x.Start, y.Start), strings.Compare(x.TraceID, y.TraceID),
		strings.Compare(x.Source, y.Source))
}
