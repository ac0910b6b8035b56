package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
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
	annotations, err := s.Annotations(ctx, session.IDs(stale)...)
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

// ParseTime reads a time as users write it: an age before now as of [ParseAge], an instant of RFC 3339, a day, a day
// and a time, or the last time of day before now. Days begin in the zone.
func ParseTime(text string, now time.Time, zone *time.Location) (time.Time, error) {
	if at, err := ParseAge(text, now); err == nil {
		return at, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			y, m, d := now.In(zone).Date()
			at := time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, zone)
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration such as 2h, 7d or 6mo "+
		"nor a time such as 15:04 or 2026-11-20T15:04:05Z", text)
}

const (
	day     = 24 * time.Hour
	century = 36500 * day
)

// ageUnits are the units of ages that [time.ParseDuration] does not know. Months are those of the calendar.
var ageUnits = []struct {
	name   string
	length time.Duration
	months int
}{{"min", time.Minute, 0}, {"d", day, 0}, {"w", 7 * day, 0}, {"mo", 30 * day, 1}, {"y", 365 * day, 12}}

// ParseAge returns the time that an age before now. An age is a number with a unit, such as 30min, 7d, 2w, 6mo or 1y, or
// a duration as of [time.ParseDuration] that is not negative, such as 12h. So m are minutes, but see [AmbiguousAge].
func ParseAge(text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, u := range ageUnits {
		number, ok := strings.CutSuffix(text, u.name)
		n, err := strconv.ParseUint(number, 10, 32)
		switch {
		case !ok || err != nil || n > uint64(century/u.length):
			continue
		case u.months == 0:
			return now.Add(-time.Duration(n) * u.length), nil
		}
		at := now.AddDate(0, -int(n)*u.months, 0)
		if at.Day() != now.Day() {
			at = at.AddDate(0, 0, -at.Day()) // the last day of a month that is shorter
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is not an age; use one such as 30min, 12h, 30d, 8w, 6mo or 1y", text)
}

// AmbiguousAge returns an error for an age in m alone, which people write for minutes and for months. What deletes by an
// age refuses it.
func AmbiguousAge(text string) error {
	number, ok := strings.CutSuffix(text, "m")
	if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
		return nil
	}
	return fmt.Errorf("%q can mean minutes or months; use %smin or %smo", text, number, number)
}
