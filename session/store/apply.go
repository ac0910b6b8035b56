package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"hash/crc32"

	"github.com/agenttrace/agenttrace/session"
)

// ErrRefused is an engine's answer to a row that it cannot hold, such as one that
// violates a constraint. [Apply] counts it and goes on.
var ErrRefused = errors.New("row refused")

// Apply merges a batch into the rows behind tx. The rows that result depend on the set of changes that were ever
// applied, and on nothing else: not on their order, nor on how they were batched, nor on how often each came. There is
// one exception: an id that two sessions have for a message, or two messages for a part, stays with the one that came
// first, and the other is refused.
//
// The cost of a change depends on the message it belongs to, not on the size of
// its session, except where a rewind, a fork or a compaction redraws the session.
func Apply(tx Tx, b *Batch) (Result, error) {
	var a applier
	err := run(tx, func(set *rows) {
		a = newApplier(set)
		some := *b // observations may be added
		a.apply(&some)
	})
	return a.result, err
}

func (a *applier) apply(b *Batch) {
	a.group(b)
	if b.Assemble != nil {
		a.observer = newObserver(a, b)
	} else if len(b.Observations) > 0 {
		a.rows.fail(errors.New("store observations: the batch has no Assemble"))
	}
	a.prefetch(b)
	for i := range b.Blobs {
		blob := &b.Blobs[i]
		a.rows.within("store "+string(blob.Kind), blob.Digest, func() { a.wrote(a.mergeBlob(blob)) })
	}
	// Transcripts become observations before the batch's are assembled, so that both are in one window. What
	// observations come to is work on sessions like what the SDK reports, and is merged with it.
	if a.observer != nil {
		a.adoptTranscripts(b)
		a.observer.observe()
	}
	a.applySessions()
}

// applySessions merges what is reported of sessions. Forks and parents of the sessions that the batch names join the
// list as they are found.
func (a *applier) applySessions() {
	a.prefetchRows()
	for _, do := range []func(*sessionWork){a.clear, a.applySession} {
		for i := 0; i < len(a.order); i++ {
			w := a.order[i]
			a.rows.within("store session", w.id, func() { do(w) })
		}
	}
	// Annotations follow when the sessions that they move to are there.
	for i := range a.moved {
		if w := a.sessions[a.moved[i].SessionID]; w != nil && !w.gone {
			a.wrote(a.mergeAnnotation(&a.moved[i]))
			a.rows.touch(w.id)
		}
	}
	a.applyScores()
	// A session may have changed after it was settled, because a fork or a parent of it was merged later.
	for _, w := range a.order {
		a.result.Sessions = append(a.result.Sessions, w.id)
		if !w.gone && (w.dirty || w.resync) {
			a.rows.within("store session", w.id, func() { a.settle(w, nil) })
		}
	}
}

// applier is one run of Apply.
type applier struct {
	rows     *rows
	result   Result
	sessions map[string]*sessionWork
	order    []*sessionWork

	// observer is nil where there can be no observations.
	observer *observer
	// moved are annotations of sessions that are gone, as they are to be in the sessions that follow these.
	moved []Annotation
}

// sessionWork is what a batch reports of one session.
type sessionWork struct {
	id       string
	row      *SessionRow
	isNew    bool
	changes  []*SessionChange
	messages map[string]*messageWork
	order    []*messageWork
	links    []*SpanRef
	decided  []*Decision
	noted    []*Annotation

	// observed is what the batch's observations come to in the session.
	observed observedWork
	gone     bool

	// redraw reports that the set of hidden messages must be computed again, recut that the position from which
	// messages count must, resync that every fork must be copied again.
	redraw, recut, resync bool
	// reopen reports that the turns must be looked at again that were only seen live.
	reopen bool
	// resum reports that the rollup must be summed again: what is hidden or counts
	// changed, or another program wrote it.
	resum bool
	// touched are the messages that changed, for the forks to follow.
	touched map[string]bool
	// before are the messages that changed as they were before the batch, nil those that
	// were not there. By them it is known what another program has shown or hidden.
	before map[string]*session.Message
	// noticed reports that the rewinds were looked at which another program may have undone;
	// fresh are those that have not hidden anything before the batch.
	noticed bool
	fresh   map[Rewind]bool
	// forked reports that the batch reports from where the session was forked.
	forked bool
	// usage and cost are what the session's rollup changes by.
	usage session.Usage
	cost  float64
	// asStored is that of a change; see [SessionChange.AsStored].
	asStored bool
	// dirty reports that the row must be written, news that it reports something else than before, besides when the
	// session was last seen: a heartbeat is no reason to export a session.
	dirty, news bool
}

// messageWork is what a batch reports of one message.
type messageWork struct {
	id      string
	changes []*MessageChange
	parts   []*PartChange
	// links carry facts of the message. facts are those of them that are new; reread is set when one was known before
	// in another version, so that facts must be read back.
	links     []*SpanRef
	turnStats []*SpanRef
	reread    bool
}

func newApplier(set *rows) applier {
	return applier{rows: set, sessions: make(map[string]*sessionWork)}
}

func (a *applier) session(id string) *sessionWork {
	w := a.sessions[id]
	if w == nil {
		w = &sessionWork{id: id, messages: make(map[string]*messageWork), touched: make(map[string]bool)}
		a.sessions[id] = w
		a.order = append(a.order, w)
		a.rows.sessions.want(id)
	}
	return w
}

func (w *sessionWork) message(id string) *messageWork {
	m := w.messages[id]
	if m == nil {
		m = &messageWork{id: id}
		w.messages[id] = m
		w.order = append(w.order, m)
	}
	return m
}

// group notes by session and message what a batch reports, and has the rows read that it names.
func (a *applier) group(b *Batch) {
	message := func(sessionID, id string) *messageWork {
		a.rows.messages.want(id)
		return a.session(sessionID).message(id)
	}
	for i := range b.Sessions {
		c := &b.Sessions[i]
		w := a.session(c.ID)
		w.changes, w.asStored = append(w.changes, c), w.asStored || c.AsStored
	}
	for i := range b.Messages {
		c := &b.Messages[i]
		m := message(c.SessionID, c.ID)
		m.changes = append(m.changes, c)
	}
	for i := range b.Parts {
		c := &b.Parts[i]
		m := message(c.SessionID, c.MessageID)
		m.parts = append(m.parts, c)
	}
	for i := range b.SpanRefs {
		l := &b.SpanRefs[i]
		w := a.session(l.SessionID)
		w.links = append(w.links, l)
		a.rows.spanRefs.want(keyOfSpan(l))
		if l.reports() {
			m := message(l.SessionID, l.MessageID)
			m.links = append(m.links, l)
		}
	}
	for i := range b.Decisions {
		d := &b.Decisions[i]
		w := a.session(d.SessionID)
		w.decided = append(w.decided, d)
		a.rows.decisions.want(d.ID)
	}
	for i := range b.Annotations {
		n := &b.Annotations[i]
		w := a.session(n.SessionID)
		w.noted = append(w.noted, n)
		a.rows.annotations.want(keyOfAnnotation(n))
	}
	for i := range b.Blobs {
		if blobs := a.rows.blobs[b.Blobs[i].Kind]; blobs != nil {
			blobs.want(b.Blobs[i].Digest)
		}
	}
}

// wrote counts a row that was changed or refused.
func (a *applier) wrote(changed bool, refused error) {
	switch {
	case refused != nil:
		a.refuse(1, refused)
	case changed:
		a.result.Rows++
	}
}

// refuse counts changes that cannot be stored, and keeps why, of the first.
func (a *applier) refuse(changes int, why error) {
	const maximum = 21 // one more than an import names of a file
	if a.result.Refused += int64(changes); len(a.result.Refusals) < maximum {
		a.result.Refusals = append(a.result.Refusals, why.Error())
	}
}

func (a *applier) applySession(w *sessionWork) {
	if w.row == nil {
		a.loadSession(w)
	}
	if w.isNew && w.nothing() {
		w.gone = true
		return // all that was reported of it is gone, and the session with it
	}
	for _, c := range w.changes {
		a.mergeSession(w, c)
	}
	w.boundAll()
	if a.foldObserved(w); w.gone {
		return
	}
	if w.isNew {
		a.wrote(true, a.rows.putSession(w.row))
		w.dirty = false // what follows may change it again
		w.resync = true // it may have forks that were known before it
	}
	trace := "" // a span without a trace is found by none
	for _, l := range w.links {
		if l.TraceID != trace {
			trace = l.TraceID
			a.rows.exec(noteTrace, trace, w.id)
		}
		a.putLink(w, l)
	}
	for _, m := range w.order {
		a.applyMessage(w, m)
	}
	a.giveUpTurns(w)
	for _, d := range w.decided {
		a.wrote(a.mergeDecision(d, changes))
	}
	for _, n := range w.noted {
		a.wrote(a.mergeAnnotation(n))
	}
	a.applyObserved(w)
	a.settle(w, nil)
}

// settle draws the consequences of what changed in a session: what is hidden, what counts towards its context, what its
// forks copy. path holds the sessions above this one in the tree of forks.
func (a *applier) settle(w *sessionWork, path []string) {
	// What is hidden decides which compaction is in force, and both decide which messages count.
	if w.redraw {
		a.redrawHidden(w)
	}
	if w.recut {
		a.moveCut(w)
	}
	if w.resum {
		a.recount(w)
	}
	w.redraw, w.recut, w.resum = false, false, false
	if w.usage != (session.Usage{}) || w.cost != 0 {
		w.row.SetUsage(w.row.Usage().Add(w.usage))
		w.row.CostUSD = AddCost(w.row.CostUSD, w.cost)
		w.usage, w.cost, w.dirty = session.Usage{}, 0, true
		if u := w.row.Usage(); min(u.Input, u.Output, u.Reasoning, u.CacheRead, u.CacheWrite) < 0 {
			// Another program has shown or hidden messages and left the sums as they were.
			a.recount(w)
		}
	}
	if w.dirty {
		w.dirty = false
		w.row.State.Rollup = w.row.Usage()
		a.wrote(true, a.rows.putSession(w.row))
	}
	a.syncForks(w, append(path, w.id))
	if w.isNew || len(w.touched) > 0 || w.news || len(w.decided) > 0 ||
		len(w.noted) > 0 || len(w.links) > 0 || w.observed.any() {
		a.rows.touch(w.id)
	}
}

func (a *applier) putLink(w *sessionWork, l *SpanRef) {
	changed, old, refused := a.mergeSpan(l)
	a.wrote(changed, refused)
	if refused != nil || old == nil {
		if changed && l.reports() {
			m := w.message(l.MessageID)
			m.turnStats = append(m.turnStats, l)
		}
		return
	}
	// The span was known. Every message that it describes must be built from what is
	// stored, for the batch may have two versions of it.
	for _, reported := range []*SpanRef{old, l} {
		if reported.reports() {
			w.message(reported.MessageID).reread = true
		}
	}
}

// Call returns the model call that the span reports, false for another span and a call that failed and used nothing.
func (l *SpanRef) Call() (session.Step, bool) {
	s := l.TurnStats
	if s == nil || !s.Step || l.Error && s.Usage == nil {
		return session.Step{}, false
	}
	return session.Step{ResponseID: s.Trace.ResponseID, Model: s.Model, Usage: s.Usage, StopReason: s.Trace.StopReason,
		StartedAt: l.StartNano / 1e6}, true
}

// reports reports whether the span carries facts of a message.
func (l *SpanRef) reports() bool { return l.TurnStats != nil && l.MessageID != "" }

// equal reports whether two optional values are equal.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Batch is what one delivery of telemetry reports. The order of its elements has no meaning.
type Batch struct {
	Sessions  []SessionChange
	Messages  []MessageChange
	Parts     []PartChange
	Decisions []Decision
	Blobs     []Blob
	SpanRefs  []SpanRef
	// Annotations are those of people and of programs that evaluate sessions.
	Annotations []Annotation

	// Observations are built as messages by Assemble, which must be set when there
	// are any, and when Links may be of a trace that has some.
	Observations []Observation
	Assemble     Assembler `json:"-"`
	// Defer allows that long turns are not rebuilt with the batch. The engine that sets it has to do that soon, and
	// before it is closed, if a Result is Unbuilt: see [Rebuild].
	Defer bool `json:"-"`
	// Adopt makes observations of a session that was imported from a program's own transcript, when an observation of
	// the batch names it. Nil leaves such a session's rows as they are.
	Adopt func(*Imported) []Observation `json:"-"`
	// Threads reports whether the sub-agents of a dialect have sessions of their own names.
	// What such a session reports outside of any trace is kept with the trace that its other
	// observations are of, though that has another owner. Nil is no dialect.
	Threads func(dialect string) bool `json:"-"`
}

// Len is the number of changes.
func (b *Batch) Len() int {
	return len(b.Sessions) + len(b.Messages) + len(b.Parts) + len(b.Decisions) + len(b.Blobs) + len(b.SpanRefs) +
		len(b.Observations) + len(b.Annotations)
}

// Rank states how much a source knows of the thing it describes. A higher rank
// wins over a lower one, whenever either arrives.
type Rank uint8

const (
	// RankStub knows that the thing exists: a part that a turn lists, a message that a tool call belongs to.
	RankStub Rank = iota
	// RankLive described the thing while it was going on.
	RankLive
	// RankFinal described it when it was over.
	RankFinal
)

// Value is a value of one column or key as one source has it. Of two, the one
// of higher rank takes precedence; then the later; then, arbitrarily, one of the two.
type Value struct {
	Text string `json:"text"`
	// At is when the source reported so, in Unix nanoseconds.
	At   int64 `json:"at"`
	Rank Rank  `json:"rank,omitempty"`
}

// TakesPrecedence reports whether v takes precedence over o, which was reported of the same thing.
func (v Value) TakesPrecedence(o Value) bool { return v.stamp(false).compare(o.stamp(false)) > 0 }

// First turns the order of time around: of two such values the first report takes precedence. It is its own inverse.
func (v Value) First() Value {
	v.At = -v.At
	return v
}

func (v Value) stamp(observed bool) Stamp {
	return Stamp{v.At, v.Rank, crc32.ChecksumIEEE([]byte(v.Text)), observed}
}

func (s Stamp) compare(o Stamp) int {
	return cmp.Or(compareBools(o.Observed, s.Observed),
		cmp.Compare(s.Rank, o.Rank), cmp.Compare(s.At, o.At), cmp.Compare(s.Sum, o.Sum))
}

// SessionChange is what one source knows of a session. Every field but ID may be zero.
type SessionChange struct {
	ID string `json:"id"`

	// Start and End bound what happened, in Unix milliseconds; 0 is unknown. created_at is the least time that anything
	// reports of the session, its messages and parts included, updated_at the greatest.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`

	// Of Title, Mode, WorkspaceID, WorkspaceRoot, Model (JSON) and Permissions (JSON) the last report takes precedence.
	Title         *Value `json:"title,omitempty"`
	Mode          *Value `json:"mode,omitempty"`
	WorkspaceID   *Value `json:"workspace_id,omitempty"`
	WorkspaceRoot *Value `json:"workspace_root,omitempty"`
	Model         *Value `json:"model,omitempty" column:"model_json"`
	Permissions   *Value `json:"permissions,omitempty" column:"permissions_json"`

	// Of Agent, ParentID and ParentMessageID the first report takes precedence.
	Agent           *Value `json:"agent,omitempty"`
	ParentID        *Value `json:"parent_id,omitempty"`
	ParentMessageID *Value `json:"parent_message_id,omitempty"`

	// Archived is "1" or "0"; its At is the time of archiving.
	Archived *Value `json:"archived,omitempty"`

	// Metadata holds JSON values by key.
	Metadata map[string]Value `json:"metadata,omitempty"`

	// AsStored reports that what the batch has of the session are rows of another store. They are stored as they are:
	// the session has the times of its changes alone, and the messages those of their own.
	AsStored bool `json:"-"`
	// MetadataJSON is how the other store spells Metadata.
	MetadataJSON string `json:"metadata_json,omitempty"`
	// OtherCost is the cost in US dollars that the session has beside that of its messages.
	OtherCost *Value `json:"other_cost_usd,omitempty"`

	// Rewinds hide messages.
	Rewinds []Rewind `json:"rewinds,omitempty"`

	// Fork makes the session a copy of the head of another.
	Fork *Fork `json:"fork,omitempty"`
}

// Rewind hides every message of the session that comes after the user message To and was created at or before At (Unix
// milliseconds). A rewind with Undone set reports that the one with the same To and At no longer holds.
type Rewind struct {
	To     string `json:"to"`
	At     int64  `json:"at"`
	Undone bool   `json:"undone,omitempty"`
	// ToAt is when To was created, where that is known. It counts while there is no such message: the turns of other
	// agents may get other ids when something arrives late.
	ToAt int64 `json:"to_at,omitempty"`
}

// Fork copies every message of the session From that is not hidden, up to and including Message, with new ids. At is
// the time of forking (Unix milliseconds): what the parent did later is not copied.
type Fork struct {
	From    string `json:"from"`
	Message string `json:"message"`
	At      int64  `json:"at"`
	// MessageAt is when Message was created: see Rewind.ToAt.
	MessageAt int64 `json:"message_at,omitempty"`
}

// MessageChange is what one source knows of a message.
type MessageChange struct {
	ID        string
	SessionID string
	// Role is empty when the source only knows that the message exists.
	Role string
	// CreatedAt and UpdatedAt are in Unix milliseconds; the least and the greatest count. 0 is unknown.
	CreatedAt, UpdatedAt int64
	Rank                 Rank

	// Metadata is a JSON object for messages described by one source alone (a user message, a compaction). Empty
	// reports nothing: an assistant message of which neither metadata nor facts are known is marked incomplete, as is
	// one that was only seen live.
	Metadata json.RawMessage `json:",omitempty"`
	// HiddenAt is when the message was hidden in the store that it comes from, by a rewind or by
	// another program. Nil reports nothing.
	HiddenAt *int64
	// AsStored reports that Metadata is spelled as another store has it, and stays so.
	AsStored bool
}

// TurnStats is what one span knows of an assistant message. A message may have several (a turn that was continued after
// an approval, a step per model call): counts are summed over them, of anything else the last report counts. TurnStats
// travel on the [SpanRef] of their span, so that they are counted once.
type TurnStats struct {
	// Step reports that the span is one model call of the message. Steps count only
	// as long as no span that describes the whole message is known.
	Step bool `json:"step,omitempty"`
	// Late reports a step beside the turn that ended after it: it counts in addition to what describes the whole
	// message.
	Late bool `json:"late,omitempty"`
	// GivenUp reports that the span was written by a later process for one that had died. It counts only as long as no
	// other span of the whole message is known, except those that ended to wait for a human. Steps since then count,
	// because that process does not know of them.
	GivenUp bool `json:"given_up,omitempty"`

	Model              *session.Model       `json:"model,omitempty"`
	Agent              string               `json:"agent,omitempty"`
	Usage              *session.Usage       `json:"usage,omitempty"`
	SystemPromptDigest string               `json:"system_prompt_digest,omitempty"`
	Trace              session.MessageTrace `json:"agenttrace,omitzero"`
	// Extra holds JSON values for further keys of the message's metadata.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// TypeDamaged is the type of a part in the place of content which could not be read. Its rank is RankStub.
const TypeDamaged = "data-damaged"

// PartChange is what one source knows of a part.
type PartChange struct {
	ID        string
	MessageID string
	SessionID string
	// Index is the place that the source gives the part, from 0 to MaxIndex. When two parts request one index, the
	// lesser id has it and the other moves up to the next. Of several requests of a part the least counts.
	Index int64
	Type  string
	// Data is the AI SDK part as JSON. Ownership passes to the batch.
	Data       json.RawMessage `json:",omitempty"`
	ToolCallID string
	ToolState  string
	// ContinuationRunID is that of a part that comes from another store.
	ContinuationRunID *string
	// CreatedAt and UpdatedAt are in Unix milliseconds; 0 is unknown. The least
	// CreatedAt counts, and the UpdatedAt of the description that takes precedence.
	CreatedAt, UpdatedAt int64
	// Rank is what the source knew. Data must have the same, because it is from the
	// stored data that the rank is read again; see [PartRank].
	Rank Rank
}

// MaxIndex is the greatest index that a part can request; greater ones count as
// MaxIndex. It leaves every index exact in a JSON number.
const MaxIndex = 1 << 52

// Decision is one evaluation of a permission: a row of permission_decisions.
type Decision struct {
	ID         string `json:"id"`
	SessionID  string `json:"session_id"`
	MessageID  string `json:"message_id,omitempty"`
	PartID     string `json:"part_id,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	ToolID     string `json:"tool_id"`
	Pattern    string `json:"pattern,omitempty"`
	// Action is what the rule or watchdog decided: allow, deny or ask.
	Action string `json:"action"`
	// Source is manifest, session or project.
	Source string `json:"source,omitempty"`
	// Outcome is allowed, denied or pending.
	Outcome string `json:"outcome,omitempty"`
	// Reply is a human's answer to ask: once, always or reject.
	Reply  string `json:"reply,omitempty"`
	Reason string `json:"reason,omitempty"`
	// WaitedMS is how long the answer took, in milliseconds.
	WaitedMS *int64 `json:"waited_ms,omitempty"`
	// DecidedAt is in Unix milliseconds.
	DecidedAt int64  `json:"decided_at"`
	TraceID   string `json:"trace_id,omitempty"`
	SpanID    string `json:"span_id,omitempty"`
}

// BlobKind names a table of bodies kept by digest.
type BlobKind string

// Kinds of blobs, which are the names of their tables.
const (
	BlobSystemPrompt BlobKind = "system_prompts"
	BlobToolCatalog  BlobKind = "tool_catalogs"
)

// Blob is a text that many messages refer to by its SHA-256 in lower-case hex.
type Blob struct {
	Kind   BlobKind
	Digest string `column:"digest"`
	Body   string `column:"body"`
	// Exact is false when the body arrived damaged, so that its own digest is
	// another. An exact body replaces one that is not.
	Exact bool `column:"exact"`
}

// DialectSDK is the dialect of the spans that the SDK emits.
const DialectSDK = "agenttrace"

// SpanRef ties a span to the rows it made: a row of span_refs. It does not date its
// message, for a span may begin long before; a [MessageChange] does.
type SpanRef struct {
	SessionID string `column:"session_id"`
	// TraceID and SpanID are lower-case hex.
	TraceID      string `column:"trace_id"`
	SpanID       string `column:"span_id"`
	ParentSpanID string `column:"parent_span_id,omitempty"`
	// MessageID and PartID name the rows that the span describes, if any.
	MessageID string `column:"message_id,omitempty"`
	PartID    string `column:"part_id,omitempty"`
	// Kind is what the span was understood as, such as session.turn.
	Kind string `column:"kind"`
	// Dialect names the convention by which it was understood: DialectSDK, or that of
	// another agent, with whose session the span was imported. Only a span of the SDK
	// reports what it describes; what another's reports is in observations.
	Dialect string `column:"dialect"`
	// StartNano and EndNano are Unix nanoseconds.
	StartNano int64 `column:"start_nano"`
	EndNano   int64 `column:"end_nano"`
	// Error reports that the span's status was an error.
	Error bool `column:"error"`
	// TurnStats is what the span knows of the message, nil when nothing.
	TurnStats *TurnStats `column:"facts_json"`
}
