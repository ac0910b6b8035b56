package document

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Load builds the timeline of the session with the id. The error for a session
// that is not there wraps [store.ErrNotFound]; prompts, catalogs and a parent
// that are not there are no error.
func Load(ctx context.Context, r store.Reader, id string) (*Document, error) {
	in, err := Collect(ctx, r, id)
	if err != nil {
		return nil, err
	}
	return Build(in), nil
}

// Collect reads from a store what a timeline is built from.
func Collect(ctx context.Context, r store.Reader, id string) (in Input, err error) {
	if in.Transcript, err = r.Transcript(ctx, id); err != nil {
		return in, err
	}
	if in.Decisions, err = r.Decisions(ctx, id); err != nil {
		return in, err
	}
	if in.Annotations, err = r.Annotations(ctx, id); err != nil {
		return in, err
	}
	if in.Inherited, err = inherited(ctx, r, in.Transcript); err != nil {
		return in, err
	}
	if in.SpanRefs, err = r.Spans(ctx, id); err != nil {
		return in, err
	}
	if in.Blobs, err = Blobs(ctx, r, in.Transcript); err != nil {
		return in, err
	}
	for s, err := range r.Sessions(ctx, store.SessionQuery{ParentID: id, Children: true, Archived: true, Limit: -1}) {
		if err != nil {
			return in, err
		}
		in.Children = append(in.Children, s)
	}
	if in.ChildTokens, err = tokensOf(ctx, r, in.Children); err != nil {
		return in, err
	}
	if parent := session.Deref(in.Transcript.Session.ParentID); parent != "" {
		s, err := r.Session(ctx, parent)
		if err == nil {
			in.Parent = &s
		} else if err := ignoreNotFound(err); err != nil {
			return in, err
		}
	}
	return in, nil
}

// LastTurn returns of a session what [StatusOf] reads of it: its row and its last visible turn, of which the texts and
// the calls are left out that are over. Its cost does not depend on the length of the session.
func LastTurn(ctx context.Context, r store.Reader, id string) (*session.Transcript, error) {
	e, err := r.Excerpt(ctx, id, store.ExcerptQuery{LastTurns: 1, Outline: true})
	if err != nil {
		return nil, err
	}
	return e.Transcript, nil
}

// Blobs reads the system prompts and tool catalogs that the messages of a session name.
// Those that are not there are left out.
func Blobs(ctx context.Context, r store.Reader, t *session.Transcript) (all []store.Blob, err error) {
	seen := map[string]bool{}
	fetch := func(kind store.BlobKind, digest string) error {
		if digest == "" || seen[string(kind)+digest] {
			return nil
		}
		seen[string(kind)+digest] = true
		b, err := r.Blob(ctx, kind, digest)
		if err == nil {
			all = append(all, b)
		}
		return ignoreNotFound(err)
	}
	for i := range t.Messages {
		m := &t.Messages[i].Message
		if m.Role != session.RoleAssistant {
			continue
		}
		var meta session.MessageMetadata
		_ = json.Unmarshal([]byte(m.MetadataJSON), &meta) // what cannot be read names no digest
		if err := fetch(store.BlobSystemPrompt, meta.SystemPromptDigest); err != nil {
			return all, err
		}
		if err := fetch(store.BlobToolCatalog, meta.Trace.ToolCatalogDigest); err != nil {
			return all, err
		}
	}
	return all, nil
}

// tokensOf counts the tokens of sessions.
func tokensOf(ctx context.Context, r store.Reader, sessions []session.Session) (map[string]session.Tokens, error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	ids := make([]string, len(sessions))
	for i := range sessions {
		ids[i] = sessions[i].ID
	}
	spent, err := r.Spent(ctx, ids, nil)
	tokens := make(map[string]session.Tokens, len(spent))
	for id, s := range spent {
		tokens[id] = s.Tokens
	}
	return tokens, err
}

// inherited reads the decisions about the calls that a fork copied: from its
// parent, and where that is a fork itself, from the parent's.
func inherited(ctx context.Context, r store.Reader, t *session.Transcript) ([]store.Decision, error) {
	calls := map[string]bool{}
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Message.CreatedAt >= t.Session.CreatedAt {
			continue
		}
		for k := range m.Parts {
			if id := session.Deref(m.Parts[k].ToolCallID); id != "" {
				calls[id] = true
			}
		}
	}
	var found []store.Decision
	seen := map[string]bool{t.Session.ID: true}
	for parent := session.Deref(t.Session.ParentID); len(calls) > 0 && parent != "" && !seen[parent]; {
		seen[parent] = true
		all, err := r.Decisions(ctx, parent)
		if err != nil {
			return nil, ignoreNotFound(err)
		}
		for _, d := range all {
			if calls[d.ToolCallID] {
				found = append(found, d)
			}
		}
		s, err := r.Session(ctx, parent)
		if err != nil {
			return found, ignoreNotFound(err)
		}
		parent = session.Deref(s.ParentID)
	}
	return found, nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// NumberTurns sets the Turn of each hit to the number that the session's timeline
// gives the turn. It reads each session of a hit once. A session that is gone
// meanwhile has no numbers.
func NumberTurns(ctx context.Context, r store.Reader, hits []store.Hit) error {
	sessions := map[string]map[string]int{}
	for i := range hits {
		h := &hits[i]
		turns, known := sessions[h.SessionID]
		if !known {
			t, err := r.Transcript(ctx, h.SessionID)
			if ignoreNotFound(err) != nil {
				return err
			}
			turns = map[string]int{}
			if t != nil {
				turns = TurnNumbers(t)
			}
			sessions[h.SessionID] = turns
		}
		h.Turn = turns[h.MessageID]
	}
	return nil
}
