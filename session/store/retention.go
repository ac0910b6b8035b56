package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/agenttrace/agenttrace/session"
)

// Retention is what sessions a store keeps. The zero value keeps all.
type Retention struct {
	// MaxAge is how long ago a session may have been updated last; 0 is no limit.
	MaxAge time.Duration
	// MaxSize is how many bytes the store may have in use; 0 is no limit. The sessions that were updated least recently
	// are deleted until it has no more. It needs a [Sizer].
	MaxSize int64
	// KeepTagged keeps sessions with a tag, whatever their age and the size.
	KeepTagged bool
}

// Sizer is a store that knows its size.
type Sizer interface {
	// Size returns how many bytes of the store are in use: what was deleted does not count, though a file or a table
	// keeps its room for what comes next.
	Size(ctx context.Context) (int64, error)
}

// Retained is a store that [Retention] can be applied to.
type Retained interface {
	Sessions(ctx context.Context, q SessionQuery) iter.Seq2[session.Session, error]
	Annotations(ctx context.Context, sessionIDs ...string) ([]Annotation, error)
	Delete(ctx context.Context, id string) error
}

// recentlyUpdated is how long after its last update a session is not deleted for the size of the store: its agent may
// go on.
const recentlyUpdated = time.Hour

// deletedAtOnce is how many sessions are deleted before the size is looked at again.
const deletedAtOnce = 16

// Apply deletes what is not kept at the time now, the oldest first, and calls deleted for each session. A session is
// deleted in a transaction of its own, so that writers wait for no more than one. Forks and the sessions of sub-agents
// are kept and deleted with the session that their family begins with, as [Stale] has them: a tag of one keeps
// them all.
//
// The files that a session was imported from stay known, unlike when a user deletes it: an import that follows these
// files would bring the session back, to be deleted again each time. It comes back when one of its files changes.
func (p Retention) Apply(ctx context.Context, s Retained, now time.Time, deleted func(session.Session)) error {
	if p.MaxAge > 0 {
		if err := p.delete(ctx, s, now.Add(-p.MaxAge), nil, deleted); err != nil {
			return err
		}
	}
	sizer, ok := s.(Sizer)
	if p.MaxSize <= 0 {
		return nil
	} else if !ok {
		return errors.New("the store does not know its size")
	}
	size, err := sizer.Size(ctx)
	if err != nil || size <= p.MaxSize {
		return err
	}
	return p.delete(ctx, s, now.Add(-recentlyUpdated), sizer, deleted)
}

// delete deletes the families that were last updated before a time, the oldest first; with a sizer until the store is
// small enough.
func (p Retention) delete(ctx context.Context, s Retained, before time.Time, sizer Sizer,
	deleted func(session.Session)) error {
	families, err := p.families(ctx, s, before)
	if err != nil {
		return err
	}
	n := 0 // since the size was looked at
	for _, family := range families {
		if sizer != nil && n >= deletedAtOnce {
			n = 0
			if size, err := sizer.Size(ctx); err != nil || size <= p.MaxSize {
				return err
			}
		}
		for _, one := range family {
			n++
			if err := s.Delete(ctx, one.ID); err == nil {
				deleted(one)
			} else if !errors.Is(err, ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// Run applies the retention at once and then once per interval, until ctx ends. looked is called after each time with
// the sessions that were deleted. What fails is tried again after the interval.
func (p Retention) Run(ctx context.Context, s Retained, interval time.Duration,
	looked func(deleted []session.Session, err error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		var deleted []session.Session
		err := p.Apply(ctx, s, time.Now(), func(one session.Session) { deleted = append(deleted, one) })
		if ctx.Err() != nil {
			err = nil
		}
		looked(deleted, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// families are those that were last updated before a time, the oldest first, without those that are kept.
func (p Retention) families(ctx context.Context, s Retained, before time.Time) (all [][]session.Session, _ error) {
	stale, err := Stale(s.Sessions(ctx, UpdatedSince(time.Time{})), before, false)
	if err != nil {
		return nil, err
	}
	heads := FamilyHeads(stale)
	places := make(map[string]int)
	for i := range stale {
		head := heads[stale[i].ID]
		at, known := places[head]
		if !known {
			at = len(all)
			places[head], all = at, append(all, nil)
		}
		all[at] = append(all[at], stale[i])
	}
	if !p.KeepTagged {
		return all, nil
	}
	ids := make([]string, len(stale))
	for i := range stale {
		ids[i] = stale[i].ID
	}
	annotations, err := s.Annotations(ctx, ids...)
	tagged := make(map[string]bool)
	for i := range annotations {
		if n := &annotations[i]; n.Kind == AnnotationTag && n.DeletedAt == nil {
			tagged[heads[n.SessionID]] = true
		}
	}
	return slices.DeleteFunc(all, func(family []session.Session) bool { return tagged[heads[family[0].ID]] }), err
}

// Stale returns those of all sessions, the newest first, that were last updated before a time, oldest first. A session,
// its forks and its sub-agents' are stale together, when all of them are: none of them loses what it came from. With
// archived, only those families are meant of which the oldest is archived.
func Stale(sessions iter.Seq2[session.Session, error], before time.Time, archived bool) ([]session.Session, error) {
	var all []session.Session
	archives := make(map[string]bool)
	for row, err := range sessions {
		if err != nil {
			return nil, err
		}
		archives[row.ID] = row.ArchivedAt != nil
		if row.UpdatedAt >= before.UnixMilli() { // there may be many
			row = session.Session{ID: row.ID, ParentID: row.ParentID, UpdatedAt: row.UpdatedAt}
		}
		all = append(all, row)
	}
	slices.Reverse(all)
	heads, kept := FamilyHeads(all), make(map[string]bool)
	for i := range all {
		if head := heads[all[i].ID]; all[i].UpdatedAt >= before.UnixMilli() || archived && !archives[head] {
			kept[head] = true
		}
	}
	return slices.DeleteFunc(all, func(s session.Session) bool { return kept[heads[s.ID]] }), nil
}

// FamilyHeads returns for the id of each session that of the session which its family begins with: the one from which
// parents lead no further within the sessions.
func FamilyHeads(sessions []session.Session) map[string]string {
	parents, heads := make(map[string]string, len(sessions)), make(map[string]string, len(sessions))
	for i := range sessions {
		parents[sessions[i].ID] = session.Deref(sessions[i].ParentID)
	}
	for id := range parents {
		head := id
		for range parents { // which may be a circle
			up := parents[head]
			if _, known := parents[up]; !known {
				break
			}
			head = up
		}
		heads[id] = head
	}
	return heads
}
