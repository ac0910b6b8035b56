package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/spans"
)

// A fork holds copies of its parent's messages. They are kept equal to what they were copied from, whatever arrives
// late, so that a fork does not depend on when its parent's telemetry came.

// mergeFork remembers where a session was forked from.
func (a *applier) mergeFork(w *sessionWork, f *Fork) {
	if f == nil || f.From == w.id {
		return
	}
	if old := w.row.State.Fork; old != nil {
		if cmp.Or(cmp.Compare(f.At, old.At), strings.Compare(f.From, old.From),
			strings.Compare(f.Message, old.Message)) >= 0 {
			return
		}
		a.leave(w, old, f.From)
	}
	w.row.State.Fork, w.forked, w.dirty, w.news = new(*f), true, true, true
	if parent := a.loaded(f.From); parent != nil { // otherwise it finds its forks when it becomes known
		parent.resync = true
	}
}

// leave takes back the copies of a session that turned out not to be where the fork left.
func (a *applier) leave(w *sessionWork, old *Fork, from string) {
	former := a.loaded(old.From)
	if old.From == from || former == nil {
		return
	}
	var ids []string
	for _, m := range a.rows.messagesFrom(former.id, Position{}) {
		ids = append(ids, m.ID)
	}
	a.syncMessages(former, w, old, nil, ids)
}

// forksOf are the sessions that were forked from a session, by id.
func (a *applier) forksOf(id string) (forks []*SessionRow) {
	for _, child := range a.rows.forksFrom(id) {
		row := a.rows.session(child)
		if row != nil && row.State.Fork != nil && row.State.Fork.From == id {
			forks = append(forks, row)
		}
	}
	return forks
}

// loaded returns the work of a session whether or not the batch names it, or nil when no such session is stored. A
// session that the batch will create adopts its forks then.
func (a *applier) loaded(id string) *sessionWork {
	if w := a.sessions[id]; w != nil && w.row != nil {
		if w.gone {
			return nil
		}
		return w
	}
	if row := a.rows.session(id); row != nil {
		w := a.session(id)
		w.adopt(row)
		return w
	}
	return nil
}

// forksAt reports whether a fork of the session leaves at the message.
func (a *applier) forksAt(w *sessionWork, messageID string) bool {
	return slices.ContainsFunc(a.forksOf(w.id), func(r *SessionRow) bool { return r.State.Fork.Message == messageID })
}

// syncForks brings every fork of w up to date with what changed in w.
func (a *applier) syncForks(w *sessionWork, path []string) {
	all, touched := w.resync, w.touched
	if w.resync = false; !all && len(touched) == 0 {
		return
	}
	w.touched = make(map[string]bool)
	for _, row := range a.forksOf(w.id) {
		if slices.Contains(path, row.ID) {
			continue // telemetry that makes a session its own ancestor
		}
		if child := a.loaded(row.ID); child != nil {
			a.syncFork(w, child, all, touched)
			a.settle(child, path)
		}
	}
	w.touched = touched
}

func (a *applier) syncFork(w, child *sessionWork, all bool, touched map[string]bool) {
	f := child.row.State.Fork
	point := a.rows.message(f.Message)
	if point != nil && point.SessionID != w.id {
		point = nil
	}
	if point == nil && f.MessageAt != 0 {
		// It has another id now, as what came late wants it: it is the last one of its time.
		messages := a.rows.messagesFrom(w.id, Position{})
		for i := range messages {
			if messages[i].CreatedAt <= f.MessageAt {
				point = &messages[i]
			}
		}
	}
	if point != nil && f.MessageAt != 0 && session.Deref(child.row.ParentMessageID) != point.ID {
		child.row.ParentMessageID, child.dirty = &point.ID, true
	}
	// A message that was touched may be gone: a copy in a fork that is the parent of this one.
	ids := maps.Clone(touched)
	if all {
		messages := a.rows.messagesFrom(w.id, Position{})
		for i := range messages {
			ids[messages[i].ID] = true
		}
	}
	a.syncMessages(w, child, f, point, slices.Sorted(maps.Keys(ids)))
}

// syncMessages makes the fork's copies of some messages what they should be. It reads what it needs for many of them at
// once, and not for all, because a session may be large.
func (a *applier) syncMessages(w, child *sessionWork, f *Fork, point *session.Message, ids []string) {
	for some := range slices.Chunk(ids, 256) {
		both := slices.Clone(some)
		for _, id := range some {
			both = append(both, forkID(child.id, id))
		}
		a.rows.loadWhole(both...)
		for _, id := range some {
			a.syncMessage(w, child, f, point, id)
		}
	}
}

// syncMessage makes the fork's copy of one message what it should be: as a message that is
// rebuilt, it replaces the one that is stored.
func (a *applier) syncMessage(w, child *sessionWork, f *Fork, point *session.Message, original string) {
	id := forkID(child.id, original)
	old := a.rows.message(id)
	if copied := a.copyFor(w, child, f, point, original, old); copied != nil {
		a.replaceMessage(child, copied)
	} else if old != nil {
		a.dropMessage(child, id)
	}
}

// copyFor is the copy that a fork should have of a message of w, nil when it should have none: of a message that is not
// there, comes after the fork's point, or was hidden when the fork was made. old is the copy that the fork has.
func (a *applier) copyFor(
	w, child *sessionWork, f *Fork, point *session.Message, original string, old *session.Message,
) *AssembledMessage {
	m := a.rows.message(original)
	if m == nil || m.SessionID != w.id || point == nil || PositionOf(point).Before(PositionOf(m)) {
		return nil
	}
	if (m.HiddenAt != nil || old == nil && !child.forked) && a.hiddenFrom(w, f, m) {
		return nil
	} // what another program has shown again by the time of the fork is copied
	copied := &AssembledMessage{Message: *m}
	copied.ID, copied.SessionID, copied.HiddenAt = forkID(child.id, original), child.id, nil
	_, known := a.rows.withParts(m.ID)
	for _, p := range known.parts {
		if p.CreatedAt <= f.At {
			copied.Parts = append(copied.Parts, forkPart(child.id, copied.ID, p))
		}
	}
	return copied
}

// hiddenFrom reports whether a message was hidden when a fork was made: by a rewind before
// it, or by another program, which no rewind reports.
func (a *applier) hiddenFrom(w *sessionWork, f *Fork, m *session.Message) bool {
	if m.HiddenAt != nil && *m.HiddenAt <= f.At && !w.hides(*m.HiddenAt) {
		return true
	}
	return w.hiddenAt(m, a.rows, f.At) != nil
}

// forkPart is the copy of a part: verbatim, except for the ids, also the one that a compaction names.
func forkPart(childID, messageID string, p session.Part) session.Part {
	p.ID, p.MessageID, p.SessionID = forkID(childID, p.ID), messageID, childID
	if p.Type == session.TypeCompaction {
		if tail := session.TailStartID(p.DataJSON); tail != "" {
			old, _ := json.Marshal(tail)
			renamed, _ := json.Marshal(forkID(childID, tail))
			p.DataJSON = strings.Replace(p.DataJSON,
				`"tail_start_id":`+string(old), `"tail_start_id":`+string(renamed), 1)
		}
	}
	return p
}

// forkID is the id of a copy. It keeps the original's stamp, so that copies sort as their originals do.
func forkID(childID, id string) string {
	const stamped = len(spans.PrefixMessage) + 12
	if len(id) != stamped+14 {
		return id + "~" + spans.DeriveID("", 0, childID, id)[12:]
	}
	return id[:stamped] + spans.DeriveID("", 0, childID, id)[12:]
}
