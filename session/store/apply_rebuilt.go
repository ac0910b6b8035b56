package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
)

// observedWork is what observations come to in one session.
type observedWork struct {
	// messages are those that were assembled, stale those that were and are no more;
	// decisions are those that were assembled.
	messages []*AssembledMessage
	stale    []string
	// known are the messages that observations were attributed to before.
	known     map[string]bool
	decisions []*Decision
	// attributed bounds the observations, in Unix nanoseconds, abouts is what they report of
	// the session's row, traces are theirs.
	attributed []timeRange
	abouts     []*SessionChange
	traces     map[string]bool
	// lost is what observations reported of the row and report no more, left are traces some
	// of which is built here no more.
	lost []lostAbout
	left map[string]bool
	// successor is the session to which the earliest observation that left is attributed, successorAt when that began.
	successor   string
	successorAt int64
	// folding is set while abouts are merged into the row.
	folding bool
	// unbuilt are answers of turns that lack observations.
	unbuilt []string
}

// lostAbout is what an observation reports no more.
type lostAbout struct {
	bounds timeRange
	// values are stamps by column.
	values map[string]Stamp
}

func (o *observedWork) any() bool {
	return len(o.messages) > 0 || len(o.stale) > 0 || len(o.decisions) > 0 || len(o.attributed) > 0 || len(o.lost) > 0
}

// replace replaces what was built of observations before by what was assembled of them
// now.
func (o *observer) replace(rows []Observation, assembled *Assembly) {
	type row struct{ sessionID, id string }
	stale, void := make(map[row]bool), make(map[row]bool) // of messages and decisions
	known := make(map[string]bool)
	for i := range rows {
		old, attributed := &rows[i].Attribution, &assembled.Attribution[i]
		for _, id := range append([]string{old.MessageID}, old.Others...) {
			if id != "" {
				stale[row{old.SessionID, id}] = true
				known[id] = true
			}
		}
		if old.DecisionID != "" {
			void[row{old.SessionID, old.DecisionID}] = true
		}
		about, before := encodeAbout(attributed.SessionAttrs), encodeAbout(old.SessionAttrs)
		if old.SessionID != "" && (old.SessionID != attributed.SessionID || before != "" && before != about) {
			o.session(old.SessionID).lose(&rows[i], attributed)
		}
		if !sameAttribution(old, attributed) || before != about {
			o.rows.attribute(&rows[i], attributed)
		}
		if attributed.SessionID == "" {
			continue
		}
		w := &o.session(attributed.SessionID).observed
		w.attributed = append(w.attributed, timeRange{rows[i].Start, rows[i].End})
		if rows[i].TraceID != "" {
			set(&w.traces, rows[i].TraceID, true)
		}
		if attributed.SessionAttrs != nil && (old.SessionID != attributed.SessionID || before != about) {
			w.abouts = append(w.abouts, attributed.SessionAttrs) // others are in the row already
		}
	}
	for i := range assembled.Messages {
		m := &assembled.Messages[i]
		delete(stale, row{m.SessionID, m.ID})
		w := &o.session(m.SessionID).observed
		w.messages = append(w.messages, m)
	}
	for i := range assembled.Decisions {
		d := &assembled.Decisions[i]
		delete(void, row{d.SessionID, d.ID})
		w := &o.session(d.SessionID).observed
		w.decisions = append(w.decisions, d)
	}
	for r := range stale {
		w := &o.session(r.sessionID).observed
		w.stale = append(w.stale, r.id)
	}
	for r := range void {
		o.rows.deleteDecision(r.id)
		o.result.Rows++
	}
	// What is done to one session must not depend on chance.
	for _, w := range o.order {
		slices.Sort(w.observed.stale)
		w.observed.known = known
	}
}

// heirOf is the message that was assembled in the place of one that is stored, or "": the next one of its role. A turn
// of which an observation comes late that ended before the others has its messages under other ids from then on.
func (o *observedWork) heirOf(old *session.Message) string {
	var heir *AssembledMessage
	distance := func(m *AssembledMessage) int64 { return max(m.CreatedAt-old.CreatedAt, old.CreatedAt-m.CreatedAt) }
	for _, m := range o.messages {
		if m.Role == old.Role && (heir == nil || cmp.Or(cmp.Compare(distance(m), distance(heir)),
			strings.Compare(m.ID, heir.ID)) < 0) {
			heir = m
		}
	}
	if heir == nil {
		return ""
	}
	return heir.ID
}

// rename has what refers to a message refer to the one in its place: rewinds that go back
// to it and forks that left there. That one is hidden or visible as the old one is. Copies
// in forks follow.
func (a *applier) rename(w *sessionWork, old *session.Message, heir string) {
	s := &w.row.State
	for i := range s.Rewinds {
		switch r := &s.Rewinds[i]; r.To {
		case old.ID:
			r.To, w.dirty = heir, true
		case heir:
			w.begin(*r) // what it goes back to was not there
		}
	}
	slices.SortFunc(s.Rewinds, compareRewinds)
	// The message in the new place was hidden or visible as the old one was. Otherwise a rewind would hide it again
	// that another program has undone.
	stored := a.rows.message(heir)
	if _, known := w.before[heir]; stored == nil && !known {
		renamed := *old
		renamed.ID = heir
		w.remember(old.ID, nil)
		w.remember(heir, &renamed)
	}
	for i := range s.Forks {
		ref := &s.Forks[i]
		child := a.loaded(ref.Session)
		if child == nil || child.row.State.Fork == nil || child.row.State.Fork.From != w.id {
			continue
		}
		if ref.Message == old.ID {
			ref.Message, child.row.State.Fork.Message = heir, heir
			if p := child.row.ParentMessageID; p != nil && *p == old.ID {
				child.row.ParentMessageID = &heir
			}
			w.dirty, w.resync, child.dirty = true, true, true
		}
		copied := a.rows.message(forkID(child.id, old.ID))
		if copied != nil && copied.SessionID == child.id {
			a.rename(child, copied, forkID(child.id, heir))
		}
	}
}

// lose notes what an observation reported of the session's row and does not report where
// it is attributed now.
func (w *sessionWork) lose(n *Observation, attributed *Attribution) {
	old := &n.Attribution
	lost := lostAbout{values: stampsOf(old.SessionAttrs)}
	if old.SessionID != attributed.SessionID {
		lost.bounds = timeRange{n.Start, n.End}
		to, o := attributed.SessionID, &w.observed
		if to != "" && (o.successor == "" || n.Start < o.successorAt || n.Start == o.successorAt && to < o.successor) {
			o.successor, o.successorAt = to, n.Start
		}
		if n.TraceID != "" {
			set(&w.observed.left, n.TraceID, true)
		}
	} else {
		for column, stamp := range stampsOf(attributed.SessionAttrs) {
			if lost.values[column] == stamp {
				delete(lost.values, column)
			}
		}
	}
	w.observed.lost = append(w.observed.lost, lost)
}

// moveAnnotations hands on the annotations of a session that is to be deleted because its observations moved to
// another. Messages and parts keep their ids.
func (a *applier) moveAnnotations(w *sessionWork) {
	if w.observed.successor == "" {
		return
	}
	all := a.rows.annotationsOf(w.id)
	for _, n := range w.noted {
		all = append(all, *n)
	}
	for _, n := range all {
		was := n
		was.Identify()
		n.SessionID = w.observed.successor
		if was.ID == n.ID { // otherwise somebody else chose it
			n.Identify()
		}
		a.moved = append(a.moved, n)
	}
}

func sameAttribution(p, q *Attribution) bool {
	return p.SessionID == q.SessionID && p.MessageID == q.MessageID && p.PartID == q.PartID &&
		p.DecisionID == q.DecisionID && p.Kind == q.Kind &&
		slices.Equal(p.Others, q.Others)
}

func encodeAbout(c *SessionChange) string {
	if c == nil {
		return ""
	}
	b, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return string(b)
}

// stampsOf are the stamps of what a change reports, by column.
func stampsOf(c *SessionChange) map[string]Stamp {
	if c == nil {
		return nil
	}
	stamps := make(map[string]Stamp)
	for column, v := range c.values {
		stamps[column.name] = v.stamp()
	}
	for key, v := range c.Metadata {
		if text, ok := compact(v.Text); ok {
			v.Text = text
			stamps["metadata."+key] = v.stamp()
		}
	}
	return stamps
}

// setColumn sets a column that observations may report, or a key of the metadata, or what
// it is without a report, and reports whether it is one.
func (r *SessionRow) setColumn(column string, v *Value) bool {
	if key, ok := strings.CutPrefix(column, "metadata."); ok {
		have := object(r.MetadataJSON)
		if delete(have, key); v != nil {
			have[key] = json.RawMessage(v.Text)
		}
		r.MetadataJSON = encodeObject(have)
		return true
	}
	i := slices.IndexFunc(reportedColumns, func(c reportedColumn) bool { return c.name == column })
	if i >= 0 {
		reportedColumns[i].set(&r.Session, v)
	}
	return i >= 0
}

// quarantine remembers the best of what is reported of a column in no final form.
func (w *sessionWork) quarantine(column string, v *Value) {
	s := &w.row.State
	old, known := s.Quarantined[column]
	switch {
	case column == "archived_at":
	case v.Rank == RankFinal:
		if known {
			delete(s.Quarantined, column)
			w.dirty = true
		}
	case !known || v.TakesPrecedence(old):
		set(&s.Quarantined, column, *v)
		w.dirty = true
	}
}

// bounds are those of the row and those that it has without observations.
func (w *sessionWork) bounds() (row, declared Bounds) {
	row = Bounds{w.row.CreatedAt, w.row.UpdatedAt}
	if w.row.State.Declared != nil {
		return row, *w.row.State.Declared
	}
	return row, row
}

func (w *sessionWork) setBounds(row, declared Bounds) {
	if oldRow, oldDeclared := w.bounds(); oldRow == row && oldDeclared == declared {
		return
	}
	w.row.CreatedAt, w.row.UpdatedAt, w.dirty = row.From, row.To, true
	if w.row.State.Declared = nil; declared != row {
		w.row.State.Declared = &declared
	}
}

func (b Bounds) include(from, to int64) Bounds {
	return Bounds{earlier(b.From, from), max(b.To, from, to)}
}

// nothing reports that the batch only takes back what observations had come to.
func (w *sessionWork) nothing() bool {
	o := &w.observed
	return len(w.changes)+len(w.order)+len(w.links)+len(w.decided)+len(w.noted)+len(o.messages)+
		len(o.decisions)+len(o.attributed) == 0
}

// clear takes back what observations came to and come to no more, in all sessions
// before any is rebuilt: a row may be in another place then.
func (a *applier) clear(w *sessionWork) {
	o := &w.observed
	if len(o.stale) == 0 && len(o.messages) == 0 {
		return
	}
	if a.loadSession(w); w.isNew {
		return
	}
	for _, id := range o.stale {
		a.dropMessage(w, id)
	}
	for _, m := range o.messages {
		a.clearParts(w, m)
	}
}

// clearParts deletes the stored parts that a message does not have any more, or has
// otherwise, and notes those that are stored as they are.
func (a *applier) clearParts(w *sessionWork, m *AssembledMessage) {
	parts := make(map[string]*session.Part, len(m.Parts))
	for i := range m.Parts {
		parts[m.Parts[i].ID] = &m.Parts[i]
		delete(w.kept, m.Parts[i].ID)
	}
	if old := a.rows.message(m.ID); old == nil || old.SessionID != w.id {
		return
	}
	stored := a.rows.partsOfMessage(m.ID)
	for i := range stored {
		p := &stored[i]
		if n := parts[p.ID]; n != nil && n.Index == p.Index && equalParts(n, p) {
			set(&w.kept, p.ID, true)
			continue
		}
		a.rows.deletePart(p)
		a.result.Rows++
		w.changedPart(p)
	}
}

func (a *applier) dropMessage(w *sessionWork, id string) {
	old := a.rows.message(id)
	if old == nil || old.SessionID != w.id {
		return
	}
	if w.awaitsRewind(id) {
		// Without the message it is not known any more whether the rewind holds.
		w.noticeUndone(a.rows)
	}
	if heir := w.observed.heirOf(old); heir != "" {
		a.rename(w, old, heir)
	}
	a.rows.dropMessage(id)
	a.result.Rows++
	w.remember(id, old)
	w.account(old, -1)
	w.touched[id] = true
	w.recut, w.redraw = true, w.redraw || w.awaitsRewind(id)
	w.resync = w.resync || w.forksAt(id)
}

// foldObserved merges what observations report of the session's row, where what
// the row has was taken back, all that is left of them. Where nothing is left the session
// is deleted.
func (a *applier) foldObserved(w *sessionWork) {
	o := &w.observed
	if !o.any() {
		return
	}
	o.folding = true
	defer func() { o.folding = false }()
	if !w.stale() {
		row, declared := w.bounds()
		for _, s := range o.attributed {
			row = row.include(s.from/1e6, s.to/1e6)
		}
		w.setBounds(row, declared)
		for _, c := range o.abouts {
			a.mergeSession(w, c)
		}
		return
	}
	left, sdk := a.rows.sourcesOf(w.id)
	if w.gone = len(left) == 0 && !w.isNew && !sdk && a.isUnknown(w); w.gone {
		a.moveAnnotations(w)
		a.rows.deleteSession(w.id)
		a.result.Rows++
		a.rows.touch(w.id)
		return
	}
	w.rebuildColumns(slices.Collect(maps.Keys(w.row.State.Stamps))...)
	w.rebuildColumns(slices.Collect(maps.Keys(w.row.State.Quarantined))...)
	_, declared := w.bounds()
	row := declared
	for i := range left {
		row = row.include(left[i].Start/1e6, left[i].End/1e6)
	}
	w.setBounds(row, declared)
	for i := range left {
		if left[i].SessionAttrs != nil {
			a.mergeSession(w, left[i].SessionAttrs)
		}
	}
}

// stale reports whether anything that was taken back is in the session's row, or bounds it.
func (w *sessionWork) stale() bool {
	for _, l := range w.observed.lost {
		if l.bounds != (timeRange{}) || len(l.values) == 0 {
			first, last := l.bounds.from/1e6, max(l.bounds.from, l.bounds.to)/1e6
			if first != 0 && first <= w.row.CreatedAt || w.row.CreatedAt == 0 || last != 0 && last >= w.row.UpdatedAt {
				return true
			}
		}
		for column, stamp := range l.values {
			if w.row.State.Stamps[column] == stamp {
				return true
			}
		}
	}
	return false
}

// rebuildColumns takes the values of observations out of columns.
func (w *sessionWork) rebuildColumns(columns ...string) {
	s := &w.row.State
	for _, column := range columns {
		if s.Stamps[column].Rank != RankFinal && w.row.setColumn(column, nil) {
			delete(s.Stamps, column)
		}
		if v, ok := s.Quarantined[column]; ok && w.row.setColumn(column, &v) {
			s.Stamps[column] = v.stamp()
		}
	}
	w.dirty = true
}

// isUnknown reports whether nothing but observations ever reported the session.
func (a *applier) isUnknown(w *sessionWork) bool {
	s := &w.row.State
	_, declared := w.bounds()
	if declared != (Bounds{}) || len(w.changes)+len(w.order)+len(w.links)+len(w.decided)+len(w.observed.messages) > 0 ||
		s.Fork != nil || len(s.Forks) > 0 || len(s.Rewinds) > 0 || len(s.Quarantined) > 0 {
		return false
	}
	for _, stamp := range s.Stamps {
		if stamp.Rank == RankFinal {
			return false
		}
	}
	return len(a.rows.messagesFrom(w.id, Position{})) == 0
}

// applyObserved writes what was assembled.
func (a *applier) applyObserved(w *sessionWork) {
	o := &w.observed
	for _, trace := range slices.Sorted(maps.Keys(o.traces)) {
		a.rows.noteTrace(trace, w.id)
	}
	for _, trace := range slices.Sorted(maps.Keys(o.left)) {
		a.rows.pruneTrace(trace, w.id)
	}
	a.markUnbuilt(w)
	for _, m := range o.messages {
		a.replaceMessage(w, m)
	}
	for _, d := range o.decisions {
		a.wrote(a.mergeDecision(d, rebuilt))
	}
}

// replaceMessage stores a message with those of its parts that are not stored as
// they are.
func (a *applier) replaceMessage(w *sessionWork, reported *AssembledMessage) {
	m := reported.Message
	old := a.rows.message(m.ID)
	if old != nil && old.SessionID != w.id {
		a.result.Refused += int64(1 + len(reported.Parts))
		return
	}
	m.HiddenAt = cmp.Or(w.hidden(&m, old, a.rows), reported.HiddenAt)
	a.putMessage(w, &m, old)
	for i := range reported.Parts {
		p := &reported.Parts[i]
		if w.kept[p.ID] {
			continue
		}
		inserted, refused := a.rows.insertPart(p)
		if !inserted {
			refused = ErrRefused
		}
		a.wrote(inserted, refused)
		w.changedPart(p)
	}
}

func (w *sessionWork) changedPart(p *session.Part) {
	w.touched[p.MessageID] = true
	if p.Type == session.TypeCompaction {
		w.recut = true
	}
}
