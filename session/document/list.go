package document

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/agenttrace/agenttrace/session"
	"github.com/agenttrace/agenttrace/session/store"
)

// Items makes a list of rows of sessions, with what each of them used and the number of its notices. It also returns
// the models that have no price, as provider/model and in order.
func (r Reader) Items(ctx context.Context, rows []session.Session) (items []Item, unpriced []string, err error) {
	items, unpriced, err = r.Briefly(ctx, rows)
	for i := range items {
		if items[i].Notices == 0 {
			continue
		}
		in, err := r.Collect(ctx, items[i].ID)
		if ignoreNotFound(err) != nil {
			return nil, nil, err
		}
		if items[i].Notices = 0; err == nil {
			items[i].Notices = len(NoticesOf(in))
		}
	}
	return items, unpriced, err
}

// Briefly is [Items] without the number of notices, for which a session is read as a whole: it is 1 where there may be
// some.
func (r Reader) Briefly(ctx context.Context, rows []session.Session) (items []Item, unpriced []string, err error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	spent, err := r.Spent(ctx, ids, r.Price)
	if err != nil {
		return nil, nil, err
	}
	doubtful, err := r.MayHaveNotices(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	lacks, err := r.Missing(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	annotations, err := r.Annotations(ctx, ids...)
	if err != nil {
		return nil, nil, err
	}
	annotations = inOrder(annotations)
	annotated := make(map[string][]Annotation)
	for i := range annotations {
		if n := &annotations[i]; n.DeletedAt == nil {
			annotated[n.SessionID] = append(annotated[n.SessionID], AnnotationOf(n))
		}
	}
	items = make([]Item, len(rows))
	lacking := map[string]bool{}
	now, idleTimeout := r.limits()
	for i := range rows {
		s := spent[rows[i].ID]
		t, err := r.lastTurn(ctx, rows[i].ID)
		if errors.Is(err, store.ErrNotFound) {
			t = nil // deleted since it was listed
		} else if err != nil {
			return nil, nil, err
		}
		items[i] = NewItem(&rows[i], t, &s, now, idleTimeout)
		items[i].Annotations = annotated[rows[i].ID]
		if doubtful[rows[i].ID] {
			items[i].Notices = 1
		}
		items[i].Quality = qualityOf(&rows[i], lacks[rows[i].ID], items[i].Status)
		if _, whole := s.Cost(&rows[i]); !whole {
			for _, model := range s.Unpriced {
				lacking[model] = true
			}
		}
	}
	return items, slices.Sorted(maps.Keys(lacking)), nil
}

// Descendants adds the forks and sub-agents of each session, and theirs, to a list of ids. Each id is in it once.
func Descendants(ctx context.Context, r store.Reader, ids []string) ([]string, error) {
	seen := map[string]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	for i := 0; i < len(ids); i++ {
		for s, err := range r.Sessions(ctx, store.SessionQuery{ParentID: ids[i], Limit: -1, Archived: true}) {
			if err != nil {
				return nil, err
			}
			if !seen[s.ID] {
				seen[s.ID] = true
				ids = append(ids, s.ID)
			}
		}
	}
	return ids, nil
}
