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
	messages  []*AssembledMessage
	stale     []string
	decisions []*Decision
	// attributed are the times of the observations, with what they report of the session's row if that is news; traces
	// are theirs.
	attributed []sessionAttrs
	traces     map[string]bool
	// lost is what observations reported of the row and report no more, left are traces some
	// of which is built here no more.
	lost []lostAttrs
	left map[string]bool
	// successor is the session to which the earliest observation that left is attributed, successorAt when that began.
	successor   string
	successorAt int64
	// folding is set while what observations report is merged into the row.
	folding bool
	// unbuilt are answers of turns that lack observations.
	unbuilt []string
}

// sessionAttrs is what an attributed observation reports of its session's row.
type sessionAttrs struct {
	Start        int64          `column:"start_nano"`
	End          int64          `column:"end_nano"`
	SessionAttrs *SessionChange `column:"session_attrs_json"`
	Kind         string         `column:"kind,omitempty"`
}

// lostAttrs is what an observation reports no more: its times, and stamps by column.
type lostAttrs struct {
	bounds timeRange
	values map[string]Stamp
}

func (o *observedWork) any() bool {
	return len(o.messages) > 0 || len(o.stale) > 0 || len(o.decisions) > 0 || len(o.attributed) > 0 || len(o.lost) > 0
}

// replace replaces what was built of observations before by what was assembled of them now.
func (o *observer) replace(rows []Observation, assembled *Assembly) {
	type row struct{ sessionID, id string }
	stale, void := make(map[row]bool), make(map[row]bool) // of messages and decisions
	for i := range rows {
		old, now := &rows[i].Attribution, &assembled.Attribution[i]
		for _, id := range append([]string{old.MessageID}, old.Others...) {
			stale[row{old.SessionID, id}] = true
		}
		void[row{old.SessionID, old.DecisionID}] = true
		same := old.SessionID == now.SessionID && encode(old.SessionAttrs) == encode(now.SessionAttrs)
		if old.SessionID != "" && !same && (old.SessionID != now.SessionID || old.SessionAttrs != nil) {
			o.session(old.SessionID).lose(&rows[i], now)
		}
		if encode(old) != encode(now) {
			o.rows.attribute(&rows[i], now)
			o.scored(rows[i].TraceID, rows[i].Calls...)
		}
		if now.SessionID == "" {
			continue
		}
		w := &o.session(now.SessionID).observed
		reported := sessionAttrs{Start: rows[i].Start, End: rows[i].End}
		if !same {
			reported.SessionAttrs = now.SessionAttrs // others are in the row already
		}
		w.attributed = append(w.attributed, reported)
		if rows[i].TraceID != "" {
			set(&w.traces, rows[i].TraceID, true)
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
		if r.id != "" {
			w := &o.session(r.sessionID).observed
			w.stale = append(w.stale, r.id)
		}
	}
	for r := range void {
		if r.id != "" {
			o.rows.deleteDecision(r.id)
			o.result.Rows++
		}
	}
	for _, w := range o.order {
		slices.Sort(w.observed.stale) // what is done to one session must not depend on chance
	}
}

// lose notes what an observation reported of the session's row and does not report where it is attributed now.
func (w *sessionWork) lose(n *Observation, now *Attribution) {
	lost := lostAttrs{values: stampsOf(n.Attribution.SessionAttrs)}
	if to, o := now.SessionID, &w.observed; to != w.id {
		lost.bounds = timeRange{n.Start, n.End}
		if to != "" && (o.successor == "" || n.Start < o.successorAt || n.Start == o.successorAt && to < o.successor) {
			o.successor, o.successorAt = to, n.Start
		}
		if n.TraceID != "" {
			set(&o.left, n.TraceID, true)
		}
	} else {
		for column, stamp := range stampsOf(now.SessionAttrs) {
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
	all := selectRows(a.rows, AnnotationTable(), annotationsQuery(), NameSession, w.id)
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

func encode(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// stampsOf are the stamps of what an observation reports, by column.
func stampsOf(c *SessionChange) map[string]Stamp {
	if c == nil {
		return nil
	}
	stamps := make(map[string]Stamp)
	for column, v := range c.values {
		stamps[column.name] = v.stamp(true)
	}
	for key, v := range c.Metadata {
		if text, ok := compact(v.Text); ok {
			v.Text = text
			stamps["metadata."+key] = v.stamp(true)
		}
	}
	return stamps
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

// clear takes back the messages that observations came to and come to no more, in all sessions before any is rebuilt: a
// message may be in another session then.
func (a *applier) clear(w *sessionWork) {
	if len(w.observed.stale) == 0 {
		return
	}
	if a.loadSession(w); w.isNew {
		return
	}
	for _, id := range w.observed.stale {
		a.dropMessage(w, id)
	}
}

// clearParts deletes the stored parts that a message does not have any more, or has otherwise.
func (a *applier) clearParts(w *sessionWork, m *message, now []session.Part) {
	has := partsByID(now)
	parts := slices.DeleteFunc(slices.Clone(m.parts), func(p session.Part) bool {
		n := has[p.ID]
		if n != nil && n.Index == p.Index && equalParts(n, &p) {
			return false
		}
		a.result.Rows++
		w.changedPart(&p)
		return true
	})
	a.rows.setParts(m, parts, m.requested)
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
	a.rows.dropMessage(id)
	a.result.Rows++
	w.remember(id, old)
	w.account(old, -1)
	w.touched[id] = true
	w.recut, w.redraw = true, w.redraw || w.awaitsRewind(id)
	w.resync = w.resync || a.forksAt(w, id)
}

// foldObserved merges what observations report of the session's row. Where what the row has was taken back, it merges
// all that is left of them; where nothing is left the session is deleted.
func (a *applier) foldObserved(w *sessionWork) {
	o := &w.observed
	if !o.any() {
		return
	}
	reported := o.attributed
	row, declared := w.bounds()
	if w.stale() {
		var sdk bool
		reported, sdk = a.rows.sourcesOf(w.id)
		if w.gone = len(reported) == 0 && !w.isNew && !sdk && a.isUnknown(w); w.gone {
			a.moveAnnotations(w)
			a.rows.deleteSession(w.id)
			a.result.Rows++
			a.rows.touch(w.id)
			return
		}
		w.blankObserved()
		row = declared
	}
	for i := range reported {
		row = row.include(reported[i].Start/1e6, reported[i].End/1e6)
	}
	w.setBounds(row, declared)
	o.folding = true
	for i := range reported {
		if reported[i].SessionAttrs != nil {
			a.mergeSession(w, reported[i].SessionAttrs)
		}
	}
	o.folding = false
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

// blankObserved takes the values of observations out of the row.
func (w *sessionWork) blankObserved() {
	for column, stamp := range w.row.State.Stamps {
		if !stamp.Observed {
			continue
		}
		delete(w.row.State.Stamps, column)
		if key, ok := strings.CutPrefix(column, "metadata."); ok {
			have := session.Object(w.row.MetadataJSON)
			delete(have, key)
			w.row.MetadataJSON = encodeObject(have)
		}
		for i := range reportedColumns() {
			if reportedColumns()[i].name == column {
				reportedColumns()[i].set(&w.row.Session, nil)
			}
		}
	}
	w.dirty = true
}

// isUnknown reports whether nothing but observations ever reported the session.
func (a *applier) isUnknown(w *sessionWork) bool {
	s := &w.row.State
	_, declared := w.bounds()
	if declared != (Bounds{}) || len(w.changes)+len(w.order)+len(w.links)+len(w.decided)+len(w.observed.messages) > 0 ||
		s.Fork != nil || len(s.Rewinds) > 0 || len(a.forksOf(w.id)) > 0 {
		return false
	}
	for _, stamp := range s.Stamps {
		if !stamp.Observed {
			return false
		}
	}
	return len(a.rows.messagesFrom(w.id, Position{})) == 0
}

// applyObserved writes what was assembled.
func (a *applier) applyObserved(w *sessionWork) {
	o := &w.observed
	for _, trace := range slices.Sorted(maps.Keys(o.traces)) {
		a.rows.exec(noteTrace, trace, w.id)
	}
	for _, trace := range slices.Sorted(maps.Keys(o.left)) {
		a.rows.exec(pruneTrace, trace, w.id)
	}
	a.markUnbuilt(w)
	for _, m := range o.messages {
		a.replaceMessage(w, m)
	}
	for _, d := range o.decisions {
		a.wrote(a.mergeDecision(d, rebuilt))
	}
}

// replaceMessage stores a message with those of its parts that are not stored as they are.
func (a *applier) replaceMessage(w *sessionWork, reported *AssembledMessage) {
	m := reported.Message
	old, known := a.rows.withParts(m.ID)
	if old != nil && old.SessionID != w.id {
		a.refuse(1+len(reported.Parts), otherMessage(old))
		return
	}
	m.HiddenAt = cmp.Or(w.hidden(&m, old, a.rows), reported.HiddenAt)
	a.putMessage(w, &m, old)
	a.clearParts(w, known, reported.Parts)
	kept := partsByID(known.parts)
	var parts []*session.Part
	for i := range reported.Parts {
		if p := &reported.Parts[i]; kept[p.ID] == nil {
			parts = append(parts, p)
		}
	}
	a.mergeParts(w, known, parts, nil, rebuilt, a.wrotePart)
}

func (w *sessionWork) changedPart(p *session.Part) {
	w.touched[p.MessageID] = true
	if p.Type == session.TypeCompaction {
		w.recut = true
	}
}
