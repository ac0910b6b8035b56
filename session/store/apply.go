package store

import (
	"errors"

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
		a.result.Refused++
	case changed:
		a.result.Rows++
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

// reports reports whether the span carries facts of a message.
func (l *SpanRef) reports() bool { return l.TurnStats != nil && l.MessageID != "" }

// equal reports whether two optional values are equal.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
