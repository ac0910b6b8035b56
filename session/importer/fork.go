package importer

import (
	"context"
	"errors"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// A fork names the message of its parent where it left: the last of the user's that it copied. A transcript does not
// have the id of that message, so it is looked up when both are known, whichever is imported first.

// linkForks sets where a session left its parent, if it is a fork, and where the stored forks of it did.
func (im *Importer) linkForks(ctx context.Context, s *store.Imported) error {
	if isFork(&s.Session) {
		if err := im.linkFork(ctx, s); err != nil {
			return err
		}
	}
	if im.orphans[s.Session.ID] {
		if err := im.flush(ctx); err != nil {
			return err
		}
	}
	var forks []*store.Imported
	q := store.SessionQuery{ParentID: s.Session.ID, Children: true, Archived: true, Limit: -1}
	for row, err := range im.store.Sessions(ctx, q) {
		if err != nil {
			return storeError{err}
		}
		if !isFork(&row) || row.ParentMessageID != nil {
			continue
		}
		fork, err := im.store.Transcript(ctx, row.ID)
		if err != nil {
			return storeError{err}
		}
		if fork.Session.ParentMessageID = whereForked(s.Transcript, fork); fork.Session.ParentMessageID != nil {
			forks = append(forks, &store.Imported{Transcript: fork})
		}
	}
	if forks == nil {
		return nil
	}
	failed := im.flush(ctx)
	if failed == nil {
		im.store.ImportAll(ctx, slices.Values(forks), func(_ *store.Imported, _ store.ImportResult, err error) bool {
			failed = err
			return err == nil
		})
	}
	if failed != nil {
		return storeError{failed}
	}
	return nil
}

// linkFork sets where a fork left its parent, if that is stored.
func (im *Importer) linkFork(ctx context.Context, s *store.Imported) error {
	id := *s.Session.ParentID
	for _, put := range []string{id, s.Session.ID} {
		if im.puts[put] != nil {
			if err := im.flush(ctx); err != nil {
				return err
			}
		}
	}
	if s.Grown != nil {
		row, err := im.store.Session(ctx, s.Session.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return storeError{err}
		}
		before := &s.Grown.Before.Session
		s.Session.ParentMessageID, before.ParentMessageID = row.ParentMessageID, row.ParentMessageID
		if before.CreatedAt == s.Session.CreatedAt {
			return nil // it had all copies
		}
	}
	parent, err := im.store.Transcript(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		im.orphans[id] = true
	case err != nil:
		return storeError{err}
	default:
		if at := whereForked(parent, s.Transcript); at != nil {
			s.Session.ParentMessageID = at
		}
	}
	return nil
}

func isFork(s *session.Session) bool {
	return s.ParentID != nil && session.TranscriptTraceOf(s.MetadataJSON).Forked
}

// whereForked returns the id of the parent's message of which the last copy of a user's message is one, nil if there is
// none: that of the same text and time, or else of the same text and place, or else the last of the same text.
func whereForked(parent, fork *session.Transcript) (id *string) {
	var last *session.MessageAndParts
	place := -1
	for i := range fork.Messages {
		m := &fork.Messages[i]
		if m.Message.Role == session.RoleUser && fork.Session.Copied(m.Message.CreatedAt) {
			last = m
			place++
		}
	}
	if last == nil {
		return nil
	}
	text, users, found := textOf(last), -1, false
	for i := range parent.Messages {
		m := &parent.Messages[i]
		if m.Message.Role != session.RoleUser {
			continue
		}
		users++
		if found || textOf(m) != text {
			continue
		}
		id = &m.Message.ID
		if m.Message.CreatedAt == last.Message.CreatedAt {
			return id
		}
		found = users == place
	}
	return id
}
