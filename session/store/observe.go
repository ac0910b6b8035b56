package store

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// observer is the part of an Apply that stores observations and rebuilds what they come to. It stores them first, finds
// out where each is kept, and until when it lasts; then it rebuilds the windows that changed: see observe_turns.go.
type observer struct {
	*applier
	batch  *Batch
	traces map[string]*traceWork
	owners map[string]*ownerWork
	// threads are the sessions that observations of the batch's Threads name, or of traces that moved, by the dialect.
	threads map[thread]bool
	// asked are the calls that the model asked for, or no longer did, where that is news.
	asked []asked
	// spans are those that may last longer or shorter than before.
	spans map[ObservationKey]bool
	// fresh are observations that were not stored before the batch, pending those of it that nothing is built of.
	fresh, pending map[ObservationKey]bool
	// left are observations that have no owner any more.
	left []Observation
	// scores are what evaluations may be about that changed: see annotation.go.
	scores map[string]bool
}

// traceWork is what is known of a trace.
type traceWork struct {
	id string
	// owner is under which session its observations are kept, "" if under none because the SDK reports the trace, own
	// the trace's own session. stored reports that the store has had observations of it.
	owner, own string
	stored     bool
	// best is the key by which its observations in the batch name a session, reported are the sessions that the SDK's
	// spans in the batch report, and changed are the times of observations that changed.
	best     *Observation
	reported []string
	changed  []timeRange
	// read reports that what follows is known, which decides on the owner.
	read bool
	// named is the session that the observations name by the best key, of the least rank, then the earliest, then the
	// least; "" if none names one. sessions are those of which the trace has spans of DialectSDK, in order.
	named    string
	sessions []string
	// orphans are the tool calls, and the calls of models, that have no parent, by (start, source). They may be left
	// out if there is a name, or a session.
	orphans []orphanCall
}

// ownerWork is what changes under an owner: the session that observations are kept with.
type ownerWork struct {
	id string
	// touched are the times in which something changed.
	touched []timeRange
	// moving reports that stored observations moved to it or from it, recount that one moved which proves something, and
	// proves that one proves something else than before.
	moving, recount, proves bool
	// mark is set where turns lack observations. proofs is what windows are assembled with.
	mark   *UnbuiltTurns
	proofs []UsageProof
	built  assembled
}

// asked is that the model asked for a call, and when.
type asked struct {
	call string
	at   int64
	// until is when the call of a model ended, 0 of a tool's.
	until int64
}

// newObserver returns an observer of the observations of a batch, which has an Assemble.
func newObserver(a *applier, b *Batch) *observer {
	return &observer{
		applier: a, batch: b, traces: make(map[string]*traceWork), owners: make(map[string]*ownerWork),
		threads: make(map[thread]bool), spans: make(map[ObservationKey]bool),
		fresh: make(map[ObservationKey]bool), pending: make(map[ObservationKey]bool),
	}
}

// queries are those for what is stored of observations, and for where those of their traces are kept.
func (o *observer) queries(observations []Observation) (queries []query) {
	for i := range observations {
		o.rows.observations.want(keyOf(&observations[i]))
		queries = append(queries, o.readTrace(observations[i].TraceID)...)
	}
	for i := range o.batch.SpanRefs {
		if l := &o.batch.SpanRefs[i]; l.Dialect == DialectSDK {
			queries = append(queries, o.readTrace(l.TraceID)...)
		}
	}
	return queries
}

// observe stores the batch's observations and adds what they come to to the work on sessions.
func (o *observer) observe() {
	o.reportsOf(o.batch.SpanRefs)
	for i := range o.batch.SpanRefs {
		l := &o.batch.SpanRefs[i]
		o.scored(l.TraceID)
		if f := l.TurnStats; f != nil && f.Trace.ResponseID != "" {
			o.scored("", ResponsePrefix+f.Trace.ResponseID)
			o.rows.request(ResponsePrefix+f.Trace.ResponseID, l)
		}
	}
	all := o.batch.Observations
	for i := range all {
		if n := &all[i]; n.Session != "" && n.TraceID != "" {
			if t := o.traces[n.TraceID]; t.best == nil || compareKeys(n, t.best) < 0 {
				t.best = n
			}
		}
	}
	for i := range all {
		changed, refused := o.put(&all[i])
		if o.wrote(changed, refused); refused != nil && !all[i].isEvaluation() {
			o.result.RefusedReports++
		}
	}
	// Windows are found by when observations end and under which owner they are kept, so both are settled before.
	o.tie()
	o.resolveOwners()
	o.resolveThreads()
	for _, t := range o.traces {
		o.touch(t.owner, t.changed...)
	}
	o.rebuildAll()
}

// compareKeys orders observations by how well they name a session.
func compareKeys(x, y *Observation) int {
	return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Start, y.Start), strings.Compare(x.Session, y.Session))
}

// reportsOf notes the traces that the SDK's spans are of.
func (o *observer) reportsOf(links []SpanRef) {
	for i := range links {
		l := &links[i]
		if t := o.traces[l.TraceID]; t != nil && l.Dialect == DialectSDK && !slices.Contains(t.reported, l.SessionID) {
			t.reported = append(t.reported, l.SessionID)
		}
	}
}

// put stores an observation, and reports whether that changed anything.
func (o *observer) put(n *Observation) (changed bool, refused error) {
	id := keyOf(n)
	old := find(o.rows, &o.rows.observations, id)
	if len(n.Data) > 0 {
		o.pending[id] = old == nil || old.Attribution.SessionID == ""
	}
	switch {
	case old == nil:
		o.fresh[id] = true
	case n.Session != old.Session && (old.Session != "" || n.version() <= old.version()):
		what := "span " + n.SpanID + " of trace " + n.TraceID
		if !n.isSpan() {
			what = "log record " + n.Source
		}
		return false, refuse("%s: its id belongs to session %s; the one of session %s is left out", what,
			cmp.Or(old.Session, "none"), cmp.Or(n.Session, "none")) // an id that two sessions use stays with the first
	case !n.takesPrecedence(&old.Observation):
		return false, nil
	}
	row := &ObservationRow{Observation: *n, Owner: o.ownerFor(n, old)}
	row.Attribution, row.Until = Attribution{}, n.End
	if old != nil {
		row.Attribution, row.Received = old.Attribution, cmp.Or(old.Received, row.Received)
		o.replaced(old, row)
	}
	o.note(n)
	switch {
	case n.isEvaluation():
		set(&o.scores, n.Calls[0], true)
		delete(o.pending, id) // applyScores counts it
		return true, o.rows.observations.set(row)
	case n.TraceID == "":
		o.touch(row.Owner, timeRange{n.Start, n.End})
	default:
		o.scored(n.TraceID) // evaluations may be below it
		t := o.traces[n.TraceID]
		t.changed = append(t.changed, timeRange{n.Start, n.End})
		if n.isSpan() {
			o.spans[ObservationKey{n.TraceID, n.SpanID}] = true
		}
		o.spans[ObservationKey{n.TraceID, n.parent()}] = true
	}
	return true, o.rows.observations.set(row)
}

// ownerFor is where an observation is kept before the owners of the batch's traces are settled.
func (o *observer) ownerFor(n *Observation, old *ObservationRow) string {
	switch {
	case n.TraceID != "":
	case old != nil && old.Session == n.Session:
		return old.Owner
	default:
		return cmp.Or(n.Session, n.Own) // a record outside of any trace is where it reports
	}
	t := o.traces[n.TraceID]
	if !t.stored && t.own == "" {
		t.owner, t.own = n.Own, n.Own
		if t.best != nil {
			t.owner = t.best.Session
		}
	}
	return t.owner
}

// replaced notes that a stored observation is replaced by a version that takes precedence.
func (o *observer) replaced(old, row *ObservationRow) {
	o.note(&old.Observation)
	if old.isEvaluation() {
		return
	}
	if s := old.Attribution.SessionID; s != "" && (old.Start < row.Start || old.End > row.End) {
		w := o.session(s)
		w.observed.lost = append(w.observed.lost, lostAttrs{bounds: timeRange{old.Start, old.End}})
	}
	if t := o.traces[old.TraceID]; t != nil {
		t.changed = append(t.changed, timeRange{old.Start, old.Until})
		o.spans[ObservationKey{old.TraceID, old.parent()}] = true
		return
	}
	o.touch(old.Owner, timeRange{old.Start, old.Until})
	if old.Owner != row.Owner {
		o.owner(old.Owner).moving, o.owner(row.Owner).moving = true, true
	}
}

// note notes what others may follow from an observation: the calls that it asked for, and the session that it names,
// where it may be that of a sub-agent which its client names in the trace of another.
func (o *observer) note(n *Observation) {
	o.scored("", n.Calls...)
	for _, call := range n.Calls {
		switch {
		case strings.HasPrefix(call, EvaluationPrefix), strings.HasPrefix(call, ResponsePrefix):
		case strings.HasPrefix(call, ModelCallPrefix):
			o.asked = append(o.asked, asked{call, n.Start - ClockTick, n.End})
		default:
			o.asked = append(o.asked, asked{call: call, at: n.Start})
		}
	}
	if n.Session != "" && o.batch.Threads != nil && o.batch.Threads(n.Dialect) {
		o.threads[thread{n.Session, n.Dialect}] = true
	}
}

// tie makes a span last until the last of what is below it begins: the spans of the batch's observations, those above
// them, and those that were above them before. Where a program stores the last message of a turn in a span that begins
// after the turn's own has ended, the next turn may have begun: no boundary separates the two spans then.
//
// In the same round trip it reads what decides on the owners of the traces.
func (o *observer) tie() {
	var times []spanTime
	var queries []query
	for key := range o.spans {
		if key.Source != "" {
			queries = append(queries, readTimes(key, &times))
		}
	}
	for _, t := range o.traces {
		if t.stored || t.own != "" {
			queries = append(queries, t.readIdentity)
		}
	}
	o.rows.ask(queries...)
	for i := range times {
		at := &times[i]
		before := at.Until
		if at.Until = max(at.End, min(at.LastBelow, math.MaxInt64-1)+1); at.Until != before {
			t := o.traces[at.TraceID]
			t.changed = append(t.changed, timeRange{min(before, at.Until), max(before, at.Until)})
			o.rows.setUntil(*at)
		}
	}
}

// owner is the work on an owner.
func (o *observer) owner(id string) *ownerWork {
	w := o.owners[id]
	if w == nil {
		w = &ownerWork{id: id}
		o.owners[id] = w
	}
	return w
}

func (o *observer) touch(owner string, ranges ...timeRange) {
	if owner != "" && len(ranges) > 0 {
		w := o.owner(owner)
		w.touched = append(w.touched, ranges...)
	}
}

// resolveOwners finds the owners of the traces of the batch. Traces of tool calls without a parent follow the
// one that asked for the call, and those that it asked for follow it.
func (o *observer) resolveOwners() {
	settled := make(map[string]bool)
	var traces []string
	for id, t := range o.traces {
		if t.read {
			traces = append(traces, id)
		}
	}
	for {
		traces = append(traces, o.orphansOf(o.asked)...)
		o.asked = nil
		slices.Sort(traces)
		traces = slices.DeleteFunc(slices.Compact(traces), func(id string) bool { return settled[id] })
		if len(traces) == 0 {
			return
		}
		for _, id := range traces {
			settled[id] = true
			o.resolveOwner(id)
		}
		traces = nil
	}
}

// resolveOwner moves the observations of a trace to the session that it is built in, where that is another than before.
func (o *observer) resolveOwner(trace string) {
	owner, t := o.ownerOf(trace), o.trace(trace)
	before := t.owner
	if owner == before {
		return
	}
	t.owner = owner
	if t.stored { // otherwise all of it is in the batch, and known to have changed
		for _, r := range o.rows.ofTrace(trace) {
			o.note(&r.Observation)
			o.move(&r, before, owner)
		}
	}
	o.rows.setOwner(trace, "", owner)
}

// trace is what decides on the owner of a trace.
func (o *observer) trace(id string) *traceWork {
	queries := o.readTrace(id)
	t := o.traces[id]
	if !t.read {
		o.rows.ask(append(queries, t.readIdentity)...)
	}
	return t
}

// move has an observation rebuilt for its new owner. One that is new to the store was never part of what the former
// owner has, so nothing of that is taken back.
func (o *observer) move(r *ObservationRow, before, owner string) {
	if r.isEvaluation() {
		return
	}
	at := timeRange{r.Start, r.Until}
	o.touch(owner, at)
	if o.fresh[keyOf(&r.Observation)] {
		return
	}
	o.touch(before, at)
	for _, id := range []string{before, owner} {
		w := o.owner(id)
		w.moving, w.recount = true, w.recount || r.Attribution.UsageProof.Proof != 0
	}
	if owner == "" {
		o.left = append(o.left, r.Observation)
	}
}

// resolveThreads moves what sessions report outside of any trace to the owner of the trace
// that their other observations are of. The spans of a sub-agent may be in the trace of
// the session that started it, while some of its records, and its transcript, are in none.
func (o *observer) resolveThreads() {
	all := slices.SortedFunc(maps.Keys(o.threads), func(x, y thread) int {
		return cmp.Or(strings.Compare(x.session, y.session), strings.Compare(x.dialect, y.dialect))
	})
	for _, thread := range all {
		owner, records := o.rows.ofThread(thread)
		for i := range records {
			r := &records[i]
			o.touch(r.Owner, timeRange{r.Start, r.Until})
			o.move(r, r.Owner, owner)
			o.rows.setOwner("", r.Source, owner)
		}
	}
}

// ownerOf is where all of a trace's observations are built: in the session that the best key among them names; else
// where the model asked for a tool call of the trace that has no parent; else in a session of its own. What the SDK
// reports is not built again: a trace of its spans that names no other session has no owner.
func (o *observer) ownerOf(trace string) string {
	for path := []string{trace}; ; path = append(path, trace) {
		t := o.trace(trace)
		reported := slices.Concat(t.sessions, t.reported)
		switch {
		case t.named != "" && !slices.Contains(reported, t.named):
			return t.named
		case len(reported) > 0:
			return ""
		}
		from := o.requester(t)
		switch {
		case from == nil:
			return t.own
		case from.traceID == "":
			return from.owner
		}
		trace = from.traceID
		if i := slices.Index(path, trace); i >= 0 {
			// Each asked for a call of the next: no source reports that, but any may send it.
			return o.trace(slices.Min(path[i:])).own
		}
	}
}

// requester is who asked for the first call of a trace that has no parent and that anybody asked for. Most are the
// first one's.
func (o *observer) requester(t *traceWork) *requester {
	var found *requester
	for i := 0; i < len(t.orphans) && found == nil; i++ {
		o.rows.ask(readRequester(t.id, &t.orphans[i], &found))
	}
	return found
}

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
	// Opens states whether a turn begins here.
	Opens Opening `column:"opens"`
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

// Opening states whether a turn begins with an observation.
type Opening = int64

const (
	// Continues is what belongs to the turn in which it happens.
	Continues Opening = iota
	// Opens is what begins a turn, whatever came before.
	Opens
	// Resumes is what would, but what is below it may go on with a turn before: see [Attribution].
	Resumes
)

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
	// Resumes reports that an observation that opens a turn may go on with one before: that shows in what is below it. It
	// is not stored here, and must not depend on what is before the observation.
	Resumes bool `json:"-"`
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
