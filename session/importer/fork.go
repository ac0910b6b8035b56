package importer

import (
	"context"
	"errors"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// A fork names the message of its parent where it left: the last of the user's that it copied. A transcript does not
// have the id of that message, so it is looked up when both are stored, whichever is imported first.

// linkForks sets where the forks among the transcripts that were stored left their parents, and where the stored forks
// of these transcripts did.
func (im *Importer) linkForks(ctx context.Context) error {
	var forks []session.Session
	for _, id := range im.forks {
		if row, err := im.store.Session(ctx, id); err == nil && isFork(&row) {
			forks = append(forks, row)
		}
	}
	for _, id := range im.unlinked {
		q := store.SessionQuery{ParentID: id, Children: true, Archived: true, Limit: -1}
		for row, err := range im.store.Sessions(ctx, q) {
			if err != nil {
				return storeError{err}
			}
			if isFork(&row) && row.ParentMessageID == nil {
				forks = append(forks, row)
			}
		}
	}
	im.forks, im.unlinked = nil, nil
	var linked []*store.Imported
	for i := range forks {
		was := &forks[i]
		parent, err := im.store.Transcript(ctx, *was.ParentID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return storeError{err}
		}
		fork, err := im.store.Transcript(ctx, was.ID)
		if err != nil {
			return storeError{err}
		}
		if at := whereForked(parent, fork); at != nil && *at != session.Deref(was.ParentMessageID) {
			fork.Session.ParentMessageID = at
			linked = append(linked, &store.Imported{Transcript: fork,
				Grown: &store.Grown{Before: &session.Transcript{Session: *was}}})
		}
	}
	var failed error
	im.store.ImportAll(ctx, slices.Values(linked), func(_ *store.Imported, _ store.ImportResult, err error) bool {
		failed = err
		return err == nil
	})
	if failed != nil {
		return storeError{failed}
	}
	return nil
}

// keepLink has a fork whose file grew keep where it left its parent, which its file does not say.
func (im *Importer) keepLink(ctx context.Context, s *store.Imported) error {
	if s.Grown == nil || !isFork(&s.Session) {
		return nil
	}
	if im.puts[s.Session.ID] != nil {
		if err := im.flush(ctx); err != nil {
			return err
		}
	}
	row, err := im.store.Session(ctx, s.Session.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return storeError{err}
	}
	s.Session.ParentMessageID, s.Grown.Before.Session.ParentMessageID = row.ParentMessageID, row.ParentMessageID
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
